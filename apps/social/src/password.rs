//! Passwords: validation, hashing with Argon2id, verification.
//!
//! Invariants:
//! * At most half the cores hash at once: each hash takes tens of milliseconds and 19 MiB, and must
//!   not starve other work.
//! * Each hash runs in memory that is kept for the next hash, because the system's allocator
//!   retains some of the memory that each thread frees. The memory is wiped after each hash,
//!   because its content would allow fast guesses of the password.
//! * A [`FairQueue`] bounds the waiting hashes, so that the last one waits a few seconds.
//! * A login of an unknown user costs the same hash as a login with a wrong password, so the time
//!   does not reveal whether a user exists.
//! * A password is never printed.

use std::collections::TryReserveError;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use unicode_normalization::UnicodeNormalization;

use crate::fair_queue::{FairQueue, QueueFull};
use crate::name::Name;
use crate::visible;

/// Password as typed by a person: 8 to 128 characters, at least one of them visible.
///
/// The same password may reach the service in several encodings: keyboards and systems differ in how they compose
/// `ä`, and in which space they send. So passwords are compared as the profile *OpaqueString* of RFC 8265 prepares
/// them: every space is U+0020, and the text has normal form C.
#[derive(Clone)]
pub struct Password(String);

/// Reason for rejecting a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a password must have {} to {} characters, at least one of them visible",
    Password::CHARACTERS_MIN,
    Password::CHARACTERS_MAX
)]
pub struct PasswordError;

impl Password {
    /// Minimum length of a password, in Unicode scalar values.
    pub const CHARACTERS_MIN: usize = 8;
    /// Maximum length of a password, in Unicode scalar values; longer passwords would cost hashing time
    /// without adding security.
    pub const CHARACTERS_MAX: usize = 128;

    /// Checks the length, and that the text has a visible character.
    ///
    /// # Errors
    /// The text is too short or too long, or has no visible character.
    pub fn new(text: impl Into<String>) -> Result<Password, PasswordError> {
        let text = prepared(&text.into());
        let fits =
            (Password::CHARACTERS_MIN..=Password::CHARACTERS_MAX).contains(&text.chars().count());
        if fits && visible::is_visible(&text) { Ok(Password(text)) } else { Err(PasswordError) }
    }

    /// Returns the password, prepared for the comparison.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// Returns the text of a password in the form in which passwords are hashed.
fn prepared(text: &str) -> String {
    // All white space beyond ASCII, without the controls that are white space by an older rule.
    let is_space = |c: char| c.is_whitespace() && !c.is_ascii() && !c.is_control();
    text.chars().map(|c| if is_space(c) { ' ' } else { c }).nfc().collect()
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Hash of a password, with its salt and parameters, as an account keeps it. A program that registers many users of
/// its own hashes one password for all of them.
#[derive(Clone)]
pub struct HashedPassword(String);

impl HashedPassword {
    pub(crate) fn new(hash: String) -> HashedPassword {
        HashedPassword(hash)
    }

    /// Returns the hash as it is stored.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword(…)")
    }
}

/// Error in hashing a password, independent of the password itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashError {
    /// The queue for hashing is full, and this client has its share of it; try again soon.
    #[error("too many passwords are waiting to be hashed")]
    Busy,
    /// The machine lacks randomness or memory.
    #[error("the password could not be hashed")]
    Failed,
}

/// Hashes and verifies passwords, a bounded number at once.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    /// Memory for each concurrent hash.
    memories: FairQueue<HashMemory>,
    /// Hash that no password matches, for logins of unknown users; created like every other hash.
    dummy_hash: Arc<str>,
}

/// Client on whose behalf a password is hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'c> {
    pub(crate) address: IpAddr,
    /// Name of the user, or `None` for an invalid name.
    pub(crate) name: Option<&'c Name>,
}

impl Passwords {
    /// Creates the pool. The first pool of the program hashes once, which takes tens of milliseconds.
    pub(crate) fn new() -> Result<Passwords, HashError> {
        let at_once = (available_parallelism().map_or(1, usize::from) / 2).max(1);
        let mut memories: Vec<HashMemory> = (0..at_once).map(|_| HashMemory::default()).collect();
        // The queue lends the last memory first.
        let memory = memories.last_mut().ok_or(HashError::Failed)?;
        let dummy_hash = dummy_hash(memory)?;
        let memories = FairQueue::new(memories, at_once * WAITING_PER_HASH);
        Ok(Passwords { memories, dummy_hash })
    }

    /// Returns the hash to store for `password`, with its salt and parameters.
    pub(crate) async fn hash(
        &self,
        client: Client<'_>,
        password: Password,
    ) -> Result<String, HashError> {
        self.blocking(client, move |memory| memory.hash(password.0.as_bytes())).await?
    }

    /// Returns whether `stored` is a hash of `password`. Without a stored hash, the result is
    /// false, at the same cost.
    pub(crate) async fn verify(
        &self,
        client: Client<'_>,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, HashError> {
        let (stored, password) = (self.stored_or_dummy(stored), prepared(&password));
        self.blocking(client, move |memory| memory.fits(password.as_bytes(), &stored)).await?
    }

    fn stored_or_dummy(&self, stored: Option<String>) -> String {
        stored.unwrap_or_else(|| self.dummy_hash.to_string())
    }

    /// Runs `work` on the blocking pool once a memory is free, unless too many tasks wait already.
    async fn blocking<R: Send + 'static>(
        &self,
        Client { address, name }: Client<'_>,
        work: impl FnOnce(&mut HashMemory) -> R + Send + 'static,
    ) -> Result<R, HashError> {
        let memory = self.memories.borrow(address, name).await;
        let mut memory = memory.map_err(|QueueFull| HashError::Busy)?;
        // The task owns the memory: work whose client has disconnected still occupies its core.
        tokio::task::spawn_blocking(move || memory.get().map(work))
            .await
            .ok()
            .flatten()
            .ok_or(HashError::Failed)
    }
}

/// Returns the hash of a random password, the same for all pools: a pool that never hashes needs no memory for it.
fn dummy_hash(memory: &mut HashMemory) -> Result<Arc<str>, HashError> {
    static DUMMY_HASH: OnceLock<Arc<str>> = OnceLock::new();
    if let Some(known) = DUMMY_HASH.get() {
        return Ok(known.clone());
    }
    let mut unknown = [0; 32];
    getrandom::fill(&mut unknown).map_err(|_| HashError::Failed)?;
    let hash: Arc<str> = memory.hash(&unknown)?.into();
    Ok(DUMMY_HASH.get_or_init(|| hash).clone())
}

/// Maximum number of waiters per concurrent hash: a few seconds' worth.
const WAITING_PER_HASH: usize = 128;

/// Memory for a hash; allocated by the first hash, kept, and wiped after each hash.
struct HashMemory {
    blocks: Vec<Block>,
    reserve: fn(&mut Vec<Block>, usize) -> Result<(), TryReserveError>,
}

struct StoredHash {
    argon2: Argon2<'static>,
    salt: Salt,
    output: Output,
}

impl HashMemory {
    /// Returns the hash of a password with a fresh salt, as a PHC string.
    fn hash(&mut self, password: &[u8]) -> Result<String, HashError> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(|_| HashError::Failed)?;
        let argon2 = Argon2::default();
        self.grow(argon2.params().block_count())?;
        let output = self.fill(&argon2, password, &salt).ok_or(HashError::Failed)?;
        let params = ParamsString::try_from(argon2.params()).map_err(|_| HashError::Failed)?;
        let hash = PasswordHash {
            algorithm: ALGORITHM.ident(),
            version: Some(VERSION.into()),
            params,
            salt: Some(Salt::new(&salt).map_err(|_| HashError::Failed)?),
            hash: Some(output),
        };
        Ok(hash.to_string())
    }

    /// Returns whether a stored hash matches the password. An invalid hash matches no password.
    ///
    /// # Errors
    /// There is too little memory; nothing was compared.
    fn fits(&mut self, password: &[u8], stored: &str) -> Result<bool, HashError> {
        let Some(StoredHash { argon2, salt, output }) = StoredHash::parse(stored) else {
            return Ok(false);
        };
        self.grow(argon2.params().block_count())?;
        // Outputs are compared in constant time.
        Ok(self.fill(&argon2, password, &salt).is_some_and(|found| found == output))
    }

    fn grow(&mut self, count: usize) -> Result<(), HashError> {
        if let Some(missing) = count.checked_sub(self.blocks.len()) {
            (self.reserve)(&mut self.blocks, missing).map_err(|_| HashError::Failed)?;
            self.blocks.resize(count, Block::new());
        }
        Ok(())
    }

    /// Returns `None` for invalid parameters, or if they need more blocks than there are.
    fn fill(&mut self, argon2: &Argon2<'_>, password: &[u8], salt: &[u8]) -> Option<Output> {
        let params = argon2.params();
        let blocks = self.blocks.get_mut(..params.block_count())?;
        let mut output = [0; Output::MAX_LENGTH];
        let output = output.get_mut(..params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN))?;
        let filled = argon2.hash_password_into_with_memory(password, salt, output, &mut *blocks);
        // The compiler cannot optimise this away: the blocks outlive the call, and the next hash
        // uses them. Wiping takes a small part of the time of a hash.
        blocks.fill(Block::new());
        filled.ok()?;
        Output::new(output).ok()
    }
}

impl Default for HashMemory {
    fn default() -> HashMemory {
        HashMemory { blocks: Vec::new(), reserve: Vec::try_reserve_exact }
    }
}

impl StoredHash {
    fn parse(stored: &str) -> Option<StoredHash> {
        let stored = PasswordHash::new(stored).ok()?;
        let algorithm = Algorithm::try_from(stored.algorithm.as_str()).ok()?;
        let version = stored.version.map_or(Ok(VERSION), Version::try_from).ok()?;
        let params = Params::try_from(&stored).ok()?;
        if params.block_count() > BLOCKS_MAX {
            return None;
        }
        let argon2 = Argon2::new(algorithm, version, params);
        Some(StoredHash { argon2, salt: stored.salt?, output: stored.hash? })
    }
}

impl fmt::Debug for HashMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashMemory({} blocks)", self.blocks.len())
    }
}

const ALGORITHM: Algorithm = Algorithm::Argon2id;
const VERSION: Version = Version::V0x13;

/// Maximum memory that a stored hash may require, in blocks of a KiB. No version of this program
/// has created a hash that requires more.
const BLOCKS_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use argon2::password_hash::{PasswordHasher, PasswordVerifier};
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;
    use crate::fair_queue::BorrowGuard;

    const CLIENT: Client<'_> = Client { address: IpAddr::V4(Ipv4Addr::LOCALHOST), name: None };

    fn lend_all(passwords: &Passwords) -> Vec<BorrowGuard<HashMemory>> {
        let lend = || passwords.memories.borrow(CLIENT.address, None).now_or_never()?.ok();
        std::iter::from_fn(lend).collect()
    }

    #[test]
    fn the_length_is_kept_in_characters() {
        for character in ["x", "ä", "語", "😀"] {
            for bad in [7, 129] {
                assert_eq!(Password::new(character.repeat(bad)).err(), Some(PasswordError));
            }
            for good in [8, 128] {
                assert!(Password::new(character.repeat(good)).is_ok());
            }
        }
        for unseen in ["\0".repeat(8), " ".repeat(8), "\u{200b}".repeat(8)] {
            assert_eq!(Password::new(unseen).err(), Some(PasswordError));
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!format!("{:?}", Password::new("hunter2 hunter2")).contains("hunter"));
    }

    #[test]
    fn a_login_of_an_unknown_user_costs_as_much_as_any() {
        let passwords = Passwords::new().unwrap();
        let somebodys = HashMemory::default().hash(b"correct horse").unwrap();
        let costs = |hash: String| {
            let hash = PasswordHash::new(&passwords.stored_or_dummy(Some(hash))).unwrap();
            (hash.algorithm, hash.version, hash.params.clone(), hash.hash.unwrap().len())
        };
        assert_eq!(costs(passwords.stored_or_dummy(None)), costs(somebodys));
    }

    #[test]
    fn only_the_right_password_of_a_known_user_fits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::new().unwrap();
            let stored =
                passwords.hash(CLIENT, Password::new("correct horse").unwrap()).await.unwrap();
            assert!(stored.starts_with("$argon2id$"), "{stored}");
            let verify = |text: &str, stored: Option<&String>| {
                passwords.verify(CLIENT, text.to_owned(), stored.cloned())
            };
            assert!(verify("correct horse", Some(&stored)).await.unwrap());
            assert!(!verify("battery staple", Some(&stored)).await.unwrap());
            assert!(!verify("", Some(&stored)).await.unwrap());
            assert!(!verify("correct horse", None).await.unwrap());
            assert!(!verify("correct horse", Some(&"damaged".to_owned())).await.unwrap());
        });
    }

    #[test]
    fn a_password_fits_however_a_keyboard_composes_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::new().unwrap();
            let hash = |text: &str| passwords.hash(CLIENT, Password::new(text).unwrap());
            let (composed, apart) = ("Käse und Wein", "Ka\u{308}se\u{a0}und\u{3000}Wein");
            for (registered, typed) in [(composed, apart), (apart, composed)] {
                let stored = hash(registered).await.unwrap();
                assert!(passwords.verify(CLIENT, typed.to_owned(), Some(stored)).await.unwrap());
            }
            // Letters that only look alike stay different.
            let stored = hash("\u{fb01}sh and chips").await.unwrap();
            let typed = "fish and chips".to_owned();
            assert!(!passwords.verify(CLIENT, typed, Some(stored)).await.unwrap());
        });
    }

    #[test]
    fn a_hash_of_the_argon2_crate_fits_and_ours_fits_there() {
        let theirs: PasswordHash = Argon2::default().hash_password(b"correct horse").unwrap();
        let mut memory = HashMemory::default();
        assert_eq!(memory.fits(b"correct horse", &theirs.to_string()), Ok(true));
        assert_eq!(memory.fits(b"battery staple", &theirs.to_string()), Ok(false));
        let ours = memory.hash(b"correct horse").unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", ours.as_str()).is_ok());
        let greedy = ours.replace("m=19456", "m=4194304");
        assert_ne!(greedy, ours);
        assert_eq!(memory.fits(b"correct horse", &greedy), Ok(false));
        assert!(memory.blocks.len() <= 19_456);
    }

    #[test]
    fn a_right_password_is_not_called_wrong_for_want_of_memory() {
        let stored = HashMemory::default().hash(b"correct horse").unwrap();
        let reserve = |blocks: &mut Vec<Block>, _| blocks.try_reserve_exact(usize::MAX);
        let mut none = HashMemory { reserve, ..HashMemory::default() };
        for password in ["correct horse", "battery staple"] {
            assert_eq!(none.fits(password.as_bytes(), &stored), Err(HashError::Failed));
        }
        assert_eq!(none.fits(b"correct horse", "damaged"), Ok(false));
        assert_eq!(none.hash(b"correct horse"), Err(HashError::Failed));
    }

    #[test]
    fn nothing_of_a_password_stays_in_the_memory() {
        let mut memory = HashMemory::default();
        let stored = memory.hash(b"correct horse").unwrap();
        for password in ["correct horse", "battery staple"] {
            memory.fits(password.as_bytes(), &stored).unwrap();
            assert!(!memory.blocks.is_empty());
            let is_wiped = |block: &Block| block.as_ref().iter().all(|word| *word == 0);
            assert!(memory.blocks.iter().all(is_wiped));
        }
    }

    #[test]
    fn hashes_take_turns_in_one_memory_each_and_keep_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::new().unwrap();
            let login = || passwords.verify(CLIENT, "correct horse".to_owned(), None);
            let all_memories = || {
                let mut places: Vec<_> = lend_all(&passwords)
                    .iter_mut()
                    .map(|memory| memory.get().unwrap().blocks.as_ptr())
                    .collect();
                places.sort();
                places
            };
            // The first hash allocates a memory, and some memories may not have run a hash yet.
            let mut lent = lend_all(&passwords);
            let at_once = lent.len();
            for memory in &mut lent {
                memory.get().unwrap().hash(b"correct horse").unwrap();
            }
            drop(lent);
            let before = all_memories();
            let outcomes = join_all((0..8 * at_once).map(|_| login())).await;
            assert!(outcomes.iter().all(|outcome| *outcome == Ok(false)));
            assert_eq!(all_memories(), before);
        });
    }
}
