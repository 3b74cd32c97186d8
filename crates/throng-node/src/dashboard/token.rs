//! The admin token: 256 random bits, of which the data directory keeps a hash.
//!
//! ```text
//! token   base64url of 32 bytes of the system     printed once, then known to the operator alone
//! file    hex of SHA-256(token), a line           admin.token, mode 0600
//! ```
//!
//! A plain hash is enough, because nobody can try all values of 256 random bits.
//!
//! Invariants: the file appears with its whole content or not at all. Digests are compared in constant time. A
//! file that cannot be read opens nothing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Name of the file of the dashboard's token in the data directory.
pub const TOKEN_FILE: &str = "admin.token";

/// Error in reading or writing the file of the token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read or written.
    #[error("cannot read or write the admin token's file {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The content of the file is no token's: draw another token.
    #[error(
        "the admin token's file {path} is damaged; draw another token with `throng admin-token`"
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
    },
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    Randomness,
}

/// Draws another token for the dashboard of the node with the data directory `data`, which may be running, and returns
/// it. The token before opens nothing from then on.
///
/// # Errors
/// The file cannot be written, or there are no random bytes.
pub fn replace_token(data: &Path) -> Result<String, TokenFileError> {
    AdminToken::replace(data)
}

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of(token: &str) -> Digest {
        Digest(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares in constant time.
    pub(crate) fn equals(&self, other: &Digest) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        black_box(pairs.fold(0, |differences, (one, other)| differences | (one ^ other))) == 0
    }

    fn to_line(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n"
    }

    fn from_line(line: &str) -> Option<Digest> {
        let digits = line.strip_suffix('\n').filter(|line| line.len() == 64 && line.is_ascii())?;
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Digest(bytes))
    }
}

/// File of the token's digest. Clones are the same file.
#[derive(Clone, Debug)]
pub(crate) struct AdminToken {
    path: Arc<Path>,
}

impl AdminToken {
    /// Finds the token of the data directory `data`, or draws one and returns it, too.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged.
    pub(crate) fn load_or_draw(
        data: &Path,
    ) -> Result<(AdminToken, Option<String>), TokenFileError> {
        let path = data.join(TOKEN_FILE);
        let drawn = match read(&path) {
            Ok(_) => None,
            Err(TokenFileError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some(AdminToken::replace(data)?)
            }
            Err(error) => return Err(error),
        };
        Ok((AdminToken { path: path.into() }, drawn))
    }

    /// Draws a token for the data directory `data`, which ends the one before it, and returns it.
    ///
    /// # Errors
    /// The file cannot be written, or there are no random bytes.
    pub(crate) fn replace(data: &Path) -> Result<String, TokenFileError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| TokenFileError::Randomness)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let path = data.join(TOKEN_FILE);
        let line = Digest::of(&token).to_line();
        write(&path, &line).map_err(|source| TokenFileError::File { path, source })?;
        Ok(token)
    }

    /// Reads the digest of the current token; `None` if that fails, which is logged.
    pub(crate) async fn read(&self) -> Option<Digest> {
        let token = self.clone();
        // The task fails only while the runtime shuts down.
        tokio::task::spawn_blocking(move || token.read_blocking()).await.ok().flatten()
    }

    /// Reads the digest as [`read`](AdminToken::read) does, on a thread that may wait for the disk.
    pub(crate) fn read_blocking(&self) -> Option<Digest> {
        read(&self.path)
            .inspect_err(|error| {
                tracing::warn!(error = crate::log::error_chain(error), "the dashboard is locked")
            })
            .ok()
    }
}

fn read(path: &Path) -> Result<Digest, TokenFileError> {
    let failed = |source| TokenFileError::File { path: path.to_owned(), source };
    let line = fs::read_to_string(path).map_err(failed)?;
    Digest::from_line(&line).ok_or_else(|| TokenFileError::Damaged { path: path.to_owned() })
}

/// Replaces the file by one with this content, mode 0600, for the owner of its directory.
fn write(path: &Path, content: &str) -> io::Result<()> {
    // Its own name, so that two commands at once do not write into one file. A killed command of the same number
    // may have left a file.
    let draft = path.with_extension(format!("token.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let written = file
        .set_permissions(Permissions::from_mode(0o600))
        .and_then(|()| give_to_owner(&file, path))
        .and_then(|()| file.write_all(content.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
        return written;
    }
    match path.parent() {
        Some(data) if !data.as_os_str().is_empty() => File::open(data)?.sync_all(),
        _ => Ok(()),
    }
}

/// Gives a file to the owner of the directory of `path`, because an operator may run the command as root, and the node
/// under its own user.
fn give_to_owner(file: &File, path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|data| !data.as_os_str().is_empty());
    let owner = fs::metadata(directory.unwrap_or(Path::new(".")))?;
    if owner.uid() == file.metadata()?.uid() {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_drawn_once_and_only_its_digest_is_kept() {
        let data = tempfile::tempdir().unwrap();
        let (file, drawn) = AdminToken::load_or_draw(data.path()).unwrap();
        let token = drawn.unwrap();
        assert_eq!(token.len(), 43, "256 bits in base64url");
        let kept = fs::read_to_string(data.path().join(TOKEN_FILE)).unwrap();
        assert!(!kept.contains(&token));
        let mode = fs::metadata(data.path().join(TOKEN_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(file.read_blocking().unwrap().equals(&Digest::of(&token)));
        assert!(!file.read_blocking().unwrap().equals(&Digest::of(&token[1..])));
        assert!(AdminToken::load_or_draw(data.path()).unwrap().1.is_none());

        let replaced = AdminToken::replace(data.path()).unwrap();
        assert_ne!(replaced, token);
        assert!(file.read_blocking().unwrap().equals(&Digest::of(&replaced)));
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn the_file_belongs_to_the_owner_of_the_directory() {
        let data = tempfile::tempdir().unwrap();
        // Only root may give a directory away; otherwise it stays with this user.
        let _ = std::os::unix::fs::chown(data.path(), Some(12_345), Some(12_345));
        let owner = fs::metadata(data.path()).unwrap().uid();
        for _ in 0..2 {
            AdminToken::replace(data.path()).unwrap();
            let file = fs::metadata(data.path().join(TOKEN_FILE)).unwrap();
            assert_eq!((file.uid(), file.mode() & 0o777), (owner, 0o600));
        }
        // A file that a killed command has left is no obstacle.
        let left = data.path().join(format!("admin.token.{}", std::process::id()));
        fs::write(&left, "left").unwrap();
        AdminToken::replace(data.path()).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn a_damaged_or_missing_file_opens_nothing() {
        let data = tempfile::tempdir().unwrap();
        let (file, _) = AdminToken::load_or_draw(data.path()).unwrap();
        let whole = fs::read_to_string(data.path().join(TOKEN_FILE)).unwrap();
        for damaged in ["", "\n", &whole[1..], &whole[..64], &whole.replace(&whole[..1], "é")] {
            fs::write(data.path().join(TOKEN_FILE), damaged).unwrap();
            assert!(file.read_blocking().is_none(), "{damaged:?}");
            let loaded = AdminToken::load_or_draw(data.path());
            assert!(matches!(loaded, Err(TokenFileError::Damaged { .. })), "{damaged:?}");
        }
        fs::remove_file(data.path().join(TOKEN_FILE)).unwrap();
        assert!(file.read_blocking().is_none());
    }
}
