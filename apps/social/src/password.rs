//! Passwords: taken in, hashed with Argon2id, compared.
//!
//! Invariants: no more hashes run at once than there are cores (each takes tens of milliseconds
//! and 19 MiB, and nothing else may starve for it); a login of somebody unknown costs the same
//! hash as one with a wrong password, so that time does not tell who exists; a password is never
//! printed.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

/// A password as a person typed it: 8 to 128 bytes.
#[derive(Clone)]
pub struct Password(String);

/// Why a password is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a password is {} to {} bytes long", Password::BYTES_MIN, Password::BYTES_MAX)]
pub struct PasswordError;

impl Password {
    /// The shortest password.
    pub const BYTES_MIN: usize = 8;
    /// The longest; more would buy an attacker hashing time and a person nothing.
    pub const BYTES_MAX: usize = 128;

    /// Checks the length.
    ///
    /// # Errors
    /// The text is too short or too long.
    pub fn new(text: impl Into<String>) -> Result<Password, PasswordError> {
        let text = text.into();
        if (Password::BYTES_MIN..=Password::BYTES_MAX).contains(&text.len()) {
            Ok(Password(text))
        } else {
            Err(PasswordError)
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Hashing failed for a reason that is not the password's: no randomness, or no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the password could not be hashed")]
pub struct HashError;

/// Hashes and compares, a bounded number at once.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    permits: Arc<Semaphore>,
    /// A hash that no password fits, for logins of nobody; made like every other.
    decoy: Arc<str>,
}

impl Passwords {
    /// Prepares; hashes once, so takes tens of milliseconds.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn new() -> Result<Passwords, HashError> {
        let mut unknown = [0; 32];
        getrandom::fill(&mut unknown).map_err(|_| HashError)?;
        let cores = available_parallelism().map_or(1, usize::from);
        Ok(Passwords { permits: Arc::new(Semaphore::new(cores)), decoy: hash(&unknown)?.into() })
    }

    /// The hash to keep for `password`, salted, with its parameters.
    ///
    /// # Errors
    /// The machine could not, see [`HashError`].
    pub(crate) async fn hash(&self, password: Password) -> Result<String, HashError> {
        self.blocking(move || hash(password.0.as_bytes())).await?
    }

    /// Whether `password` is the one that `kept` was made from; if there is none, false, at the
    /// same cost.
    ///
    /// # Errors
    /// The machine could not, see [`HashError`].
    pub(crate) async fn verify(
        &self,
        password: String,
        kept: Option<String>,
    ) -> Result<bool, HashError> {
        let kept = self.kept_or_decoy(kept);
        self.blocking(move || {
            // A stored hash that does not parse fits no password.
            PasswordHash::new(&kept).is_ok_and(|kept| {
                Argon2::default().verify_password(password.as_bytes(), &kept).is_ok()
            })
        })
        .await
    }

    fn kept_or_decoy(&self, kept: Option<String>) -> String {
        kept.unwrap_or_else(|| self.decoy.to_string())
    }

    /// Runs `work` on the blocking pool once a core is free for it.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, HashError> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| HashError)?;
        // The permit goes along: work whose client has left still occupies its core.
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
        .map_err(|_| HashError)
    }
}

fn hash(password: &[u8]) -> Result<String, HashError> {
    let hash: PasswordHash = Argon2::default().hash_password(password).map_err(|_| HashError)?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_kept_in_bytes() {
        assert_eq!(Password::new("1234567").err(), Some(PasswordError));
        assert!(Password::new("12345678").is_ok());
        assert!(Password::new("ä".repeat(64)).is_ok());
        assert_eq!(Password::new("ä".repeat(65)).err(), Some(PasswordError));
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!format!("{:?}", Password::new("hunter2 hunter2")).contains("hunter"));
    }

    #[test]
    fn nobodys_password_costs_what_anybodys_costs() {
        let passwords = Passwords::new().unwrap();
        let somebodys = hash(b"correct horse").unwrap();
        let costs = |hash: String| {
            let hash = PasswordHash::new(&passwords.kept_or_decoy(Some(hash))).unwrap();
            (hash.algorithm, hash.version, hash.params.clone(), hash.hash.unwrap().len())
        };
        assert_eq!(costs(passwords.kept_or_decoy(None)), costs(somebodys));
    }

    #[test]
    fn only_the_right_password_of_somebody_known_fits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::new().unwrap();
            let kept = passwords.hash(Password::new("correct horse").unwrap()).await.unwrap();
            assert!(kept.starts_with("$argon2id$"), "{kept}");
            let verify = |text: &str, kept: Option<&String>| {
                passwords.verify(text.to_owned(), kept.cloned())
            };
            assert!(verify("correct horse", Some(&kept)).await.unwrap());
            assert!(!verify("battery staple", Some(&kept)).await.unwrap());
            assert!(!verify("", Some(&kept)).await.unwrap());
            assert!(!verify("correct horse", None).await.unwrap());
            assert!(!verify("correct horse", Some(&"damaged".to_owned())).await.unwrap());
        });
    }
}
