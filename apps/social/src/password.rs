//! Passwords: taken in, hashed with Argon2id, compared.
//!
//! Invariants: half the cores at most hash at once (each hash takes tens of milliseconds and
//! 19 MiB, and nothing else may starve for it), and so many at most wait for that that the last
//! waits a few seconds; a login of somebody unknown costs the same
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

/// Hashing failed for a reason that is not the password's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashError {
    /// As many wait for their hash as may; try again soon.
    #[error("too many passwords wait to be hashed")]
    Busy,
    /// The machine has no randomness, or no memory.
    #[error("the password could not be hashed")]
    Failed,
}

/// Hashes and compares, a bounded number at once.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    permits: Arc<Semaphore>,
    /// Places to wait for a permit.
    places: Arc<Semaphore>,
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
        getrandom::fill(&mut unknown).map_err(|_| HashError::Failed)?;
        let at_once = (available_parallelism().map_or(1, usize::from) / 2).max(1);
        Ok(Passwords {
            permits: Arc::new(Semaphore::new(at_once)),
            places: Arc::new(Semaphore::new(at_once * WAITING_PER_PERMIT)),
            decoy: hash(&unknown)?.into(),
        })
    }

    /// The hash to keep for `password`, salted, with its parameters.
    ///
    /// # Errors
    /// [`HashError`]; nothing was hashed.
    pub(crate) async fn hash(&self, password: Password) -> Result<String, HashError> {
        self.blocking(move || hash(password.0.as_bytes())).await?
    }

    /// Whether `password` is the one that `kept` was made from; if there is none, false, at the
    /// same cost.
    ///
    /// # Errors
    /// [`HashError`]; nothing was compared.
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

    /// Runs `work` on the blocking pool once a core is free for it, if not too many wait already.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, HashError> {
        // Whoever leaves while waiting frees the place, too.
        let place = self.places.try_acquire().map_err(|_| HashError::Busy)?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| HashError::Failed)?;
        drop(place);
        // The permit goes along: work whose client has left still occupies its core.
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
        .map_err(|_| HashError::Failed)
    }
}

/// How many may wait for each hash that runs: a few seconds' worth.
const WAITING_PER_PERMIT: usize = 128;

fn hash(password: &[u8]) -> Result<String, HashError> {
    let hash: PasswordHash =
        Argon2::default().hash_password(password).map_err(|_| HashError::Failed)?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

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

    #[test]
    fn who_finds_no_place_to_wait_is_told_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::new().unwrap();
            let login = async || passwords.verify("correct horse".to_owned(), None).await;
            let all = passwords.permits.available_permits().try_into().unwrap();
            let running = passwords.permits.acquire_many(all).await.unwrap();
            let places = passwords.places.available_permits();
            let mut waiting: Vec<_> = (0..places).map(|_| Box::pin(login())).collect();
            for waits in &mut waiting {
                assert!(waits.now_or_never().is_none());
            }
            assert_eq!(login().now_or_never(), Some(Err(HashError::Busy)));
            waiting.pop(); // one leaves
            waiting.push(Box::pin(login()));
            assert!(waiting.last_mut().unwrap().now_or_never().is_none());
            waiting.truncate(1);
            drop(running);
            assert_eq!(waiting.remove(0).await, Ok(false));
        });
    }
}
