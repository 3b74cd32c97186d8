//! Signed values that clients send back unchanged: bearer tokens and pagination cursors, signed
//! with HMAC-SHA256 under one key per data directory.
//!
//! ```text
//! sealed  = base64url(payload) "." base64url(HMAC(key, len(purpose) purpose payload))
//! token   purpose "token"              payload = issued u64, expires u64 (ms, big-endian), subject
//! cursor  purpose "cursor " + listing  payload = time u64, id u64 (big-endian)
//! ```
//!
//! Invariants: the signature covers the purpose, so a token is never accepted as a cursor, nor a
//! cursor for another listing. Signatures are compared in constant time. The key is never printed,
//! and only its owner can read its file.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Name of the key's file in a data directory. It is beside the data, because it needs the same protection.
pub const KEY_FILE: &str = "signing.key";

/// Signs and checks tokens and cursors; cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use throng_node::http::Signer;
///
/// let signer = Signer::from_key([7; 32]);
/// let (sealed, token) = signer.issue_token("alice", Duration::from_secs(60));
/// assert_eq!(signer.check_token(&sealed), Ok(token));
/// assert!(Signer::from_key([8; 32]).check_token(&sealed).is_err());
/// ```
#[derive(Clone)]
pub struct Signer {
    /// HMAC state with the key applied; cloned for each signature.
    keyed: Arc<Hmac<Sha256>>,
}

/// Identity of a bearer, and its period of validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the user that the token stands for.
    pub subject: String,
    /// Time of issue, in milliseconds since 1970.
    pub issued: u64,
    /// Time of expiry, in milliseconds since 1970.
    pub expires: u64,
}

/// Position in a listing ordered by (time, id): the next page contains only items beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Time of the last item on the previous page.
    pub time: u64,
    /// Id of the last item on the previous page.
    pub id: u64,
}

/// Reason for rejecting a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token does not have the format of this service.
    #[error("the token is malformed")]
    Malformed,
    /// The token has the right format, but is not signed with this key.
    #[error("the token was not signed with this key")]
    Forged,
    /// The signature is valid, but the token has expired.
    #[error("the token has expired")]
    Expired,
}

/// The cursor was not issued for this listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor was not issued for this listing")]
pub struct CursorError;

/// Error in loading or creating the signing key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key file can neither be read nor created.
    #[error("cannot read or create the key file {path}")]
    File {
        /// Path of the key file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The key file exists, but holds no key. The server does not replace the file, because that
    /// would log out all users.
    #[error("the key file {path} is damaged: it must hold exactly {KEY_BYTES} bytes")]
    Damaged {
        /// Path of the key file.
        path: PathBuf,
    },
    /// Users other than the owner can read the key file.
    #[error("other users can access the key file {path}; set its mode to 600")]
    Exposed {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    Randomness,
}

impl Signer {
    /// Loads the key in file `path`, which is created (mode 600, flushed) if it does not exist.
    ///
    /// Two concurrent starts agree on one key: the file appears complete or not at all.
    ///
    /// # Errors
    /// The file or its directory cannot be used, or the file holds no key or is accessible to other
    /// users.
    pub fn load_or_create(path: &Path) -> Result<Signer, KeyError> {
        match read_key(path) {
            Err(KeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                getrandom::fill(&mut key).map_err(|_| KeyError::Randomness)?;
                create_key(path, &key, &FileOperations::SYSTEM)?;
                read_key(path).map(Signer::from_key)
            }
            found => found.map(Signer::from_key),
        }
    }

    /// Copies the key in file `from` to the new file `to` (mode 600, flushed), for a backup.
    ///
    /// # Errors
    /// `from` holds no key or is accessible to other users, or `to` cannot be created or holds
    /// another key. [`KeyError::Exposed`] with `to` as its path and no file at `to`: the file
    /// system cannot keep a file private, so no part of the key was written.
    pub fn copy_key(from: &Path, to: &Path) -> Result<(), KeyError> {
        Signer::copy_key_with(from, to, &FileOperations::SYSTEM)
    }

    fn copy_key_with(from: &Path, to: &Path, files: &FileOperations) -> Result<(), KeyError> {
        let failed = |source| KeyError::File { path: to.to_owned(), source };
        let key = read_key(from)?;
        match create_key(to, &key, files) {
            // Some file systems have no hard links. A copy that a crash interrupts can be repeated.
            Err(KeyError::File { .. }) => create_key_in_place(to, &key, files)?,
            created => created?,
        }
        if read_key(to)? == key { Ok(()) } else { Err(failed(io::ErrorKind::AlreadyExists.into())) }
    }

    /// Creates a signer from a key that the caller keeps.
    pub fn from_key(key: [u8; KEY_BYTES]) -> Signer {
        // HMAC pads a short key with zeros; padding here rules out an error for a wrong length.
        let mut block = [0; 64];
        block[..KEY_BYTES].copy_from_slice(&key);
        Signer { keyed: Arc::new(Hmac::new(&block.into())) }
    }

    /// Returns whether both are clones of one signer, so that what one seals is what the other seals.
    pub fn is_clone_of(&self, other: &Signer) -> bool {
        Arc::ptr_eq(&self.keyed, &other.keyed)
    }

    /// Issues a token for `subject` with a validity of `ttl` from now; returns it sealed and
    /// decoded.
    pub fn issue_token(&self, subject: &str, ttl: Duration) -> (String, Token) {
        self.issue_token_at(subject, unix_ms(), ttl)
    }

    /// Issues a token as [`issue_token`](Self::issue_token) does, with a given time of issue in milliseconds since 1970:
    /// for a server that revokes tokens by that time, and has checked a password some time ago.
    pub fn issue_token_at(&self, subject: &str, issued: u64, ttl: Duration) -> (String, Token) {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let token =
            Token { subject: subject.to_owned(), issued, expires: issued.saturating_add(ttl_ms) };
        let mut payload = Vec::with_capacity(16 + subject.len());
        payload.extend_from_slice(&token.issued.to_be_bytes());
        payload.extend_from_slice(&token.expires.to_be_bytes());
        payload.extend_from_slice(subject.as_bytes());
        (self.seal(TOKEN, "", &payload), token)
    }

    /// Decodes a sealed token, if its signature is valid and it has not expired.
    ///
    /// # Errors
    /// See [`TokenError`]; the signature is checked before the time.
    pub fn check_token(&self, sealed: &str) -> Result<Token, TokenError> {
        let (payload, signature) = split(sealed).ok_or(TokenError::Malformed)?;
        let (times, subject) = payload.split_first_chunk::<16>().ok_or(TokenError::Malformed)?;
        let [issued, expires] = two_numbers(times);
        self.verify(TOKEN, "", &payload, &signature).ok_or(TokenError::Forged)?;
        let subject = std::str::from_utf8(subject).map_err(|_| TokenError::Malformed)?;
        if expires <= unix_ms() {
            return Err(TokenError::Expired);
        }
        Ok(Token { subject: subject.to_owned(), issued, expires })
    }

    /// Seals a cursor for `listing` (the listing's name and owner); the result is opaque to the
    /// client.
    pub fn seal_cursor(&self, listing: &str, cursor: Cursor) -> String {
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&cursor.time.to_be_bytes());
        payload[8..].copy_from_slice(&cursor.id.to_be_bytes());
        self.seal(CURSOR, listing, &payload)
    }

    /// Opens a cursor that [`seal_cursor`](Signer::seal_cursor) sealed for the same `listing`.
    ///
    /// # Errors
    /// The cursor has no valid signature, or was issued for another listing.
    pub fn open_cursor(&self, listing: &str, sealed: &str) -> Result<Cursor, CursorError> {
        let (payload, signature) = split(sealed).ok_or(CursorError)?;
        self.verify(CURSOR, listing, &payload, &signature).ok_or(CursorError)?;
        let payload: &[u8; 16] = payload.as_slice().try_into().map_err(|_| CursorError)?;
        let [time, id] = two_numbers(payload);
        Ok(Cursor { time, id })
    }

    fn seal(&self, purpose: &str, about: &str, payload: &[u8]) -> String {
        let signature = self.mac(purpose, about, payload).finalize().into_bytes();
        format!("{}.{}", URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(signature))
    }

    fn verify(&self, purpose: &str, about: &str, payload: &[u8], signature: &[u8]) -> Option<()> {
        self.mac(purpose, about, payload).verify_slice(signature).ok()
    }

    fn mac(&self, purpose: &str, about: &str, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = (*self.keyed).clone();
        for part in [purpose, about] {
            // Length prefixes make the encoding of (purpose, about, payload) unambiguous.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac.update(payload);
        mac
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

const KEY_BYTES: usize = 32;
const TOKEN: &str = "token";
const CURSOR: &str = "cursor";

fn split(sealed: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (payload, signature) = sealed.split_once('.')?;
    Some((URL_SAFE_NO_PAD.decode(payload).ok()?, URL_SAFE_NO_PAD.decode(signature).ok()?))
}

fn two_numbers(bytes: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_be_bytes(*bytes);
    [(both >> 64) as u64, both as u64]
}

/// Reads the key file; rejects a file that is not private.
fn read_key(path: &Path) -> Result<[u8; KEY_BYTES], KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned() });
    }
    let mut key = Vec::new();
    (&mut file).take(KEY_BYTES as u64 + 1).read_to_end(&mut key).map_err(failed)?;
    key.try_into().map_err(|_| KeyError::Damaged { path: path.to_owned() })
}

/// File operations that some file systems do not support.
struct FileOperations {
    link: fn(&Path, &Path) -> io::Result<()>,
    set_mode: fn(&File, Permissions) -> io::Result<()>,
}

impl FileOperations {
    const SYSTEM: FileOperations = FileOperations {
        link: |from, to| fs::hard_link(from, to),
        set_mode: File::set_permissions,
    };
}

/// Writes the key into a draft file and links it to its final path, so that the file appears
/// complete or not at all. A key that a concurrent start created first is kept.
fn create_key(path: &Path, key: &[u8; KEY_BYTES], files: &FileOperations) -> Result<(), KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&draft).map_err(failed)?;
    let linked =
        write_key(file, path, key, files).and_then(|()| match (files.link)(&draft, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        });
    let removed = fs::remove_file(&draft).map_err(failed);
    linked.and(removed)?;
    sync_parent(path).map_err(failed)
}

/// Writes the key directly to its final path, unless the file exists.
fn create_key_in_place(
    path: &Path,
    key: &[u8; KEY_BYTES],
    files: &FileOperations,
) -> Result<(), KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        opened => opened.map_err(failed)?,
    };
    if let Err(error) = write_key(file, path, key, files) {
        let _ = fs::remove_file(path); // no reader can rely on it yet
        return Err(error);
    }
    sync_parent(path).map_err(failed)
}

/// Writes the key for `path` into `file` and flushes it, if the file is private.
fn write_key(
    mut file: File,
    path: &Path,
    key: &[u8; KEY_BYTES],
    files: &FileOperations,
) -> Result<(), KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    // A draft left by a crash may have another mode, and the umask may have changed this mode. A
    // file system with fixed modes refuses the change; the check below uses the actual mode.
    let _ = (files.set_mode)(&file, Permissions::from_mode(0o600));
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned() });
    }
    file.write_all(key).and_then(|()| file.sync_all()).map_err(failed)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

fn unix_ms() -> u64 {
    // A clock before 1970 makes every token expired, which is the safe side.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::MAX);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        Signer::from_key([1; KEY_BYTES])
    }

    #[test]
    fn a_refused_token_gets_the_matching_error() {
        let (sealed, token) = signer().issue_token("alice", Duration::from_secs(60));
        assert_eq!(signer().check_token(&sealed), Ok(token));

        let (expired, _) = signer().issue_token("alice", Duration::ZERO);
        assert_eq!(signer().check_token(&expired), Err(TokenError::Expired));

        let (other, _) = Signer::from_key([2; KEY_BYTES]).issue_token("alice", Duration::MAX);
        assert_eq!(signer().check_token(&other), Err(TokenError::Forged));

        let (bob, _) = signer().issue_token("bob", Duration::from_secs(60));
        let (payload, _) = bob.split_once('.').unwrap();
        let (_, signature) = sealed.split_once('.').unwrap();
        let mixed = format!("{payload}.{signature}");
        assert_eq!(signer().check_token(&mixed), Err(TokenError::Forged));

        for malformed in
            ["", ".", "a.b", "nonsense", "AAAA.AAAA", "é.é", &sealed[..sealed.len() / 4]]
        {
            assert_eq!(signer().check_token(malformed), Err(TokenError::Malformed), "{malformed}");
        }
    }

    #[test]
    fn every_changed_character_of_a_token_is_noticed() {
        let (sealed, _) = signer().issue_token("alice", Duration::from_secs(60));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(signer().check_token(&changed).is_err(), "character {at}");
        }
    }

    #[test]
    fn a_cursor_belongs_to_its_listing() {
        let cursor = Cursor { time: 12, id: u64::MAX };
        let sealed = signer().seal_cursor("timeline alice", cursor);
        assert_eq!(signer().open_cursor("timeline alice", &sealed), Ok(cursor));
        assert_eq!(signer().open_cursor("timeline bob", &sealed), Err(CursorError));
        assert_eq!(signer().open_cursor("", &sealed), Err(CursorError));
        let (token, _) = signer().issue_token("", Duration::MAX);
        assert_eq!(signer().open_cursor("", &token), Err(CursorError));
        assert_eq!(signer().check_token(&sealed), Err(TokenError::Forged));
    }

    #[test]
    fn the_key_file_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = Signer::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        let (sealed, token) = first.issue_token("alice", Duration::from_secs(60));
        let second = Signer::load_or_create(&path).unwrap();
        assert_eq!(second.check_token(&sealed), Ok(token));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Signer::load_or_create(&path), Err(KeyError::Exposed { .. })));
        fs::write(&path, b"short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(Signer::load_or_create(&path), Err(KeyError::Damaged { .. })));
        let nowhere = directory.path().join("missing").join("key");
        assert!(matches!(Signer::load_or_create(&nowhere), Err(KeyError::File { .. })));
    }

    #[test]
    fn a_copied_key_signs_the_same_and_replaces_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let [key, copy, other] = ["key", "copy", "other"].map(|name| directory.path().join(name));
        let (sealed, token) =
            Signer::load_or_create(&key).unwrap().issue_token("alice", Duration::from_secs(60));
        for _ in 0..2 {
            Signer::copy_key(&key, &copy).unwrap();
        }
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Signer::load_or_create(&copy).unwrap().check_token(&sealed), Ok(token));
        Signer::load_or_create(&other).unwrap();
        assert!(matches!(Signer::copy_key(&key, &other), Err(KeyError::File { .. })));
        assert!(Signer::load_or_create(&other).unwrap().check_token(&sealed).is_err());
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let nowhere = directory.path().join("nowhere");
        assert!(matches!(Signer::copy_key(&key, &nowhere), Err(KeyError::Exposed { .. })));
        assert!(!nowhere.exists());
    }

    #[test]
    fn a_key_is_copied_where_there_are_no_hard_links() {
        let directory = tempfile::tempdir().unwrap();
        let [key, copy, other] = ["key", "copy", "other"].map(|name| directory.path().join(name));
        let (sealed, token) =
            Signer::load_or_create(&key).unwrap().issue_token("alice", Duration::from_secs(60));
        Signer::load_or_create(&other).unwrap();
        let no_links: [fn(&Path, &Path) -> io::Result<()>; 2] = [
            |_, _| Err(io::ErrorKind::PermissionDenied.into()), // the error of vfat
            |_, _| Err(io::ErrorKind::Unsupported.into()),
        ];
        for link in no_links {
            let files = FileOperations { link, ..FileOperations::SYSTEM };
            for _ in 0..2 {
                Signer::copy_key_with(&key, &copy, &files).unwrap();
            }
            assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(
                Signer::load_or_create(&copy).unwrap().check_token(&sealed).as_ref(),
                Ok(&token)
            );
            let refused = Signer::copy_key_with(&key, &other, &files);
            assert!(matches!(refused, Err(KeyError::File { .. })), "{refused:?}");
            fs::remove_file(&copy).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn no_key_is_written_where_others_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let [key, copy] = ["key", "copy"].map(|name| directory.path().join(name));
        Signer::load_or_create(&key).unwrap();
        // The mode of an existing file stands in for a fixed mode.
        let draft = copy.with_extension(format!("{}.draft", std::process::id()));
        fs::write(&draft, "").unwrap();
        fs::set_permissions(&draft, Permissions::from_mode(0o755)).unwrap();
        let set_mode = |_: &File, _| Err(io::ErrorKind::PermissionDenied.into());
        let refused = Signer::copy_key_with(
            &key,
            &copy,
            &FileOperations { set_mode, ..FileOperations::SYSTEM },
        );
        assert!(matches!(refused, Err(KeyError::Exposed { path }) if path == copy));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn printing_a_signer_does_not_print_its_key() {
        assert_eq!(format!("{:?}", signer()), "Signer { .. }");
    }
}
