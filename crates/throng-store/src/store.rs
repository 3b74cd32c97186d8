//! [`Store`]: the handle that everything else hangs on.

use std::io;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::database::{DatabaseOptions, encode_bounds};
use crate::disk::environment::Environment;
use crate::read::range::prefix_bounds;
use crate::write::queue::{Queue, QueueRoom};
use crate::write::ticket::Work;
use crate::write::update::{Update, Updating};
use crate::write::writer::{self, Counters};
use crate::{
    Batch, Bytes, CheckReport, Codec, Database, DatabaseError, OpenError, Options, ReadError,
    Reader, Scan, Snapshot, Ticket,
};

/// An open data directory. Cheap to clone; all clones are the same store.
///
/// When the last clone is dropped, or at [`close`](Store::close), everything queued is committed
/// and the writer thread joined. The directory is free again once the snapshots are dropped too.
///
/// The data file is mapped into memory: nothing else may change it while it is open, and it must
/// lie on a local disk, not on a network share.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    environment: Arc<Environment>,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    /// Taken by whoever joins it.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A store in numbers, from [`Store::stat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Keys in the default database.
    pub entries: u64,
    /// Named databases.
    pub databases: u64,
    /// The size of the data file.
    pub file_bytes: u64,
    /// How much of it was ever in use. What is free of that is used again before it grows.
    pub used_bytes: u64,
    /// The size of the journal beside it; see [`Options::checkpoint_bytes`].
    pub journal_bytes: u64,
    /// What the data file may grow to.
    pub map_bytes: u64,
    /// Batches made durable since the store was opened.
    pub batches: u64,
    /// Groups, each with its own disk flush, that this took.
    pub commits: u64,
    /// The most snapshots there were at once, those of other processes and those kept for later use
    /// included.
    pub snapshots: u64,
    /// How many commits the oldest snapshot is behind, in whichever process it is held. The data file
    /// grows as long as a snapshot stays behind, because the pages it can see are not used again; a
    /// number that rises and rises means that a snapshot is kept, for at most
    /// [`Options::snapshot_age_max`] if it is read.
    pub snapshot_lag_commits: u64,
    /// Number of times the engine was reopened after a commit whose outcome was unknown.
    pub recoveries: u64,
    /// As [`Store::is_writable`] says.
    pub writable: bool,
}

/// One database of a store in numbers, from [`Store::stat_databases`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatabaseStat {
    /// Its name; the default database has none.
    pub name: Option<String>,
    /// What it is like.
    pub options: DatabaseOptions,
    /// How many entries it has; of several values under a key, each counts.
    pub entries: u64,
    /// How many bytes its pages take in the data file.
    pub bytes: u64,
}

impl Stat {
    /// How many batches shared one disk flush on average; 0 before the first.
    pub fn batches_per_commit(&self) -> f64 {
        if self.commits == 0 { 0.0 } else { self.batches as f64 / self.commits as f64 }
    }
}

impl Store {
    /// Opens the store in the directory `path` with the default [`Options`], making it if need be.
    ///
    /// # Errors
    ///
    /// [`OpenError`], sorted by what can be done about it.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
        Options::default().open(path)
    }

    /// The options to open a store with.
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Store, OpenError> {
        let environment = Arc::new(Environment::open(path, options)?);
        let writer_waker = environment.deferred().writer_waker().clone();
        let queue = Arc::new(Queue::new(options, environment.id(), writer_waker));
        let counters = Arc::new(Counters::default());
        if environment.is_read_only() {
            let writer = Mutex::new(None);
            return Ok(Store(Arc::new(Shared { environment, queue, counters, writer })));
        }
        let writer = thread::Builder::new()
            .name("throng-store".into())
            .spawn({
                let (environment, queue, counters) =
                    (environment.clone(), queue.clone(), counters.clone());
                move || writer::run(&environment, &queue, &counters)
            })
            .map_err(|source| OpenError::Io { path: path.into(), source })?;
        let writer = Mutex::new(Some(writer));
        Ok(Store(Arc::new(Shared { environment, queue, counters, writer })))
    }

    /// Queues a batch for the next commit. Never waits: neither for the disk nor for room.
    ///
    /// Batches are committed in the order in which they were queued. The ticket resolves when this
    /// one is durable, or to a [`WriteError`](crate::WriteError) that hands it back.
    pub fn write(&self, batch: Batch) -> Ticket {
        self.0.queue.push(batch)
    }

    /// Reads and writes in one transaction: runs the closure on the writer thread, at its turn.
    ///
    /// What it writes is applied if it returns `Ok`, and durable when the future resolves. It holds
    /// up everybody who writes, so it should be short; and it runs again if its commit is tried
    /// again, so what it does besides should bear that. Reading for long beforehand, in a
    /// snapshot, is cheaper.
    ///
    /// ```
    /// # use throng_store::{Batch, ReadError, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// # store.write(Batch::new().put("ada", [9]).put("alan", [2])).wait()?;
    /// let moved = store.update(|update| {
    ///     let ada = update.get(b"ada")?.map_or(0, |value| value[0]);
    ///     let alan = update.get(b"alan")?.map_or(0, |value| value[0]);
    ///     update.put(b"ada", &[ada - 5]);
    ///     update.put(b"alan", &[alan + 5]);
    ///     Ok::<_, ReadError>(alan + 5)
    /// });
    /// assert_eq!(moved.wait()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update<T, E>(
        &self,
        closure: impl FnMut(&mut Update<'_>) -> Result<T, E> + Send + 'static,
    ) -> Updating<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        Updating::new(closure, |job| self.0.queue.push_work(Work::Update(job), UPDATE_BYTES))
    }

    /// Waits, as a [`Ticket`], until everything queued before is on the disk, also where the store
    /// is [volatile](crate::Durability::Volatile).
    pub fn sync(&self) -> Ticket {
        self.0.queue.push_work(Work::Sync, 0)
    }

    /// The database of that name, made if it is not there: one value under each key, with a
    /// checksum.
    ///
    /// Blocks for a commit if it has to be made, so do it when you start.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`], sorted by what can be done about it.
    pub fn database<K: Codec, V: Codec>(
        &self,
        name: &str,
    ) -> Result<Database<K, V>, DatabaseError> {
        self.database_with(name, &DatabaseOptions::new())
    }

    /// The database of that name, which is as the options say.
    ///
    /// ```
    /// use throng_store::{DatabaseOptions, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let tags = store.database_with::<Str, U64>("tags", &DatabaseOptions::new().duplicates())?;
    /// for post in [7, 3, 5] {
    ///     tags.put("rust", &post).wait()?;
    /// }
    /// let snapshot = store.snapshot()?;
    /// let posts = tags.values(&snapshot, "rust").map(|entry| Ok(entry?.1));
    /// assert_eq!(posts.collect::<Result<Vec<_>, throng_store::ReadError>>()?, [3, 5, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`database`](Store::database).
    pub fn database_with<K: Codec, V: Codec>(
        &self,
        name: &str,
        options: &DatabaseOptions,
    ) -> Result<Database<K, V>, DatabaseError> {
        let table_ref = self.0.environment.open_database(name, options.kind(), options.make())?;
        Ok(Database::new(self.clone(), table_ref))
    }

    /// The names of all databases, in order.
    pub fn databases(&self) -> Vec<String> {
        self.0.environment.databases().into_iter().map(|(name, _)| name).collect()
    }

    /// All databases in numbers: the default one, then the others by their names.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Store::snapshot).
    pub fn stat_databases(&self) -> Result<Vec<DatabaseStat>, ReadError> {
        let environment = &self.0.environment;
        let snapshot = self.snapshot()?;
        let named =
            environment.databases().into_iter().map(|(name, table_ref)| (Some(name), table_ref));
        std::iter::once((None, environment.entries()))
            .chain(named)
            .map(|(name, table_ref)| {
                let options = DatabaseOptions::of(table_ref.kind);
                let (entries, bytes) = (snapshot.len_in(table_ref)?, snapshot.bytes_in(table_ref)?);
                Ok(DatabaseStat { name, options, entries, bytes })
            })
            .collect()
    }

    /// Waits for room in the queue, for those who would rather wait than be handed
    /// [`WriteError::Overloaded`].
    ///
    /// Nothing is reserved: another may take the room first, so try in a loop. Also resolves once
    /// the store takes no more writes.
    ///
    /// ```
    /// # use throng_store::{Batch, Store, WriteError};
    /// async fn write_patiently(store: &Store, mut batch: Batch) -> Result<(), WriteError> {
    ///     loop {
    ///         match store.write(batch).await {
    ///             Err(WriteError::Overloaded(handed_back)) => batch = handed_back,
    ///             outcome => return outcome,
    ///         }
    ///         store.room_for(&batch).await;
    ///     }
    /// }
    /// ```
    ///
    /// [`WriteError::Overloaded`]: crate::WriteError::Overloaded
    pub fn room_for(&self, batch: &Batch) -> QueueRoom {
        self.0.queue.room_for(batch)
    }

    /// Whether writes are taken: not while it recovers from a failed commit, nor once it is
    /// closed, nor if it was opened to read only.
    ///
    /// Costs a lock. Unlike [`stat`](Store::stat) it answers also while it recovers.
    pub fn is_writable(&self) -> bool {
        self.0.queue.is_open()
    }

    /// A frozen view of everything whose ticket has resolved.
    ///
    /// Costs some tens of nanoseconds: threads keep theirs for the next time. Where writes have just
    /// been told to be done, it blocks until they are committed as well: until 1,024 keys at most are
    /// applied and their pages handed to the system, and for a flush of the disk if one is under way.
    /// Where that happens again and again it soon does not, for then the writer commits each group at
    /// once. A [`Reader`] asked for single keys need not wait for others. Pages that a snapshot can see
    /// are not reused while it lives, so one that is kept for long makes the file grow under writes; so
    /// beyond [`Options::snapshot_age_max`] it can no longer be read.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooManySnapshots`] beyond [`Options::snapshots_max`], and
    /// [`ReadError::Recovering`] while the store recovers from a failed commit.
    pub fn snapshot(&self) -> Result<Snapshot, ReadError> {
        Snapshot::begin(&self.0.environment)
    }

    /// The entries of the default database whose keys lie within the bounds, in chunks, each from a
    /// snapshot of its own.
    pub fn scan<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> Scan {
        Scan::new(self.clone(), self.0.environment.entries(), encode_bounds::<Bytes>(bounds))
    }

    /// As [`scan`](Store::scan), of the keys that begin with `prefix`.
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan {
        Scan::new(self.clone(), self.0.environment.entries(), Ok(prefix_bounds(prefix)))
    }

    /// A view that follows the store, for those who read often.
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }

    /// The store in numbers.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Store::snapshot).
    pub fn stat(&self) -> Result<Stat, ReadError> {
        let Shared { environment, counters, .. } = &*self.0;
        let env = environment.env().ok_or(ReadError::Recovering)?;
        Ok(Stat {
            entries: self.snapshot()?.len()?,
            databases: environment.databases().len() as u64,
            file_bytes: environment.file_bytes()?,
            used_bytes: env.used_bytes(),
            journal_bytes: environment.journal_bytes()?,
            map_bytes: env.map_bytes(),
            snapshots: u64::from(environment.readers(&env)),
            snapshot_lag_commits: environment.snapshot_lag(&env)?,
            recoveries: counters.recoveries.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            writable: self.is_writable(),
        })
    }

    /// Reads everything, in all databases, and compares it with its checksums; returns how many
    /// entries there are.
    ///
    /// Goes at the speed of the disk, or of memory for what is cached. Writers are not held up.
    ///
    /// # Errors
    ///
    /// [`ReadError::Corrupt`] with the first damaged entry.
    pub fn verify(&self) -> Result<u64, ReadError> {
        self.verify_with(|_| ())
    }

    /// As [`verify`](Store::verify), and says every now and then how many entries were read so far.
    ///
    /// # Errors
    ///
    /// As [`verify`](Store::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64)) -> Result<u64, ReadError> {
        let environment = &self.0.environment;
        let snapshot = Snapshot::begin_unbounded(environment)?;
        let mut entries = snapshot.verify(environment.entries(), 0, &mut progress)?;
        for (_, table_ref) in environment.databases() {
            entries = snapshot.verify(table_ref, entries, &mut progress)?;
        }
        progress(entries);
        Ok(entries)
    }

    /// Looks at the data file in the directory `path` without opening it: at every page, whether it
    /// is what it should be, and at every value, whether it is what its checksum says.
    ///
    /// Unlike [`verify`](Store::verify) it does so without the engine, which trusts its file, and
    /// which damaged pages can make crash the process. Goes at the speed of the disk, and takes
    /// memory for the largest value, and some bytes for each free page.
    ///
    /// What it cannot notice: other bytes of the same order, and of the same length but for one byte,
    /// in keys and values that have [no](crate::DatabaseOptions::without_checksums)
    /// [checksums](crate::DatabaseOptions::duplicates), and a whole file put back to an earlier one.
    ///
    /// ```
    /// # use throng_store::{Batch, OpenError, Store};
    /// # let directory = tempfile::tempdir()?;
    /// let store = Store::open(directory.path())?;
    /// store.write(Batch::new().put("key", "value")).wait()?;
    /// assert!(matches!(Store::check(directory.path()), Err(OpenError::InUse { .. })));
    /// drop(store);
    /// assert_eq!(Store::check(directory.path())?.entries, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError::Corrupt`] with the first damage found; otherwise as for [`open`](Store::open),
    /// also [`OpenError::InUse`] while the store is open anywhere.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenError> {
        Environment::check(path.as_ref())
    }

    /// Writes a copy of everything whose ticket has resolved into the directory `path`, which is made and
    /// must not hold a store yet. The copy is compact, and opens as a store. Its files and the directories made
    /// for it have the modes 0600 and 0700.
    ///
    /// Goes at the speed of the disk. Writers are not held up, but the file grows under them as
    /// under a [`snapshot`](Store::snapshot) held for as long.
    ///
    /// # Errors
    ///
    /// The operating system's; `AlreadyExists` if there is a store. An unfinished copy is removed,
    /// and one that a crash left behind is no store; the next copy into that place replaces it.
    pub fn backup(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.environment.copy_to(path.as_ref())
    }

    /// Commits what is queued and ends the writer thread; blocks until that is done.
    ///
    /// Further writes through any clone are refused with [`WriteError::Closed`]; reads go on.
    ///
    /// [`WriteError::Closed`]: crate::WriteError::Closed
    pub fn close(&self) {
        self.0.close();
    }

    pub(crate) fn environment(&self) -> &Arc<Environment> {
        &self.0.environment
    }

    /// Tells it from all others in this process.
    pub(crate) fn id(&self) -> u64 {
        self.0.environment.id()
    }
}

/// What an update counts towards the queue's budget; what it captures nobody knows.
const UPDATE_BYTES: usize = 256;

impl Shared {
    fn close(&self) {
        self.queue.close();
        // Held while joining, so that a second closer also returns only when all is written.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // A waker may drop the last store on the writer thread itself, which cannot join itself
        // and ends by itself.
        if writer.as_ref().is_some_and(|writer| writer.thread().id() == thread::current().id()) {
            return;
        }
        if let Some(writer) = writer.take() {
            // It died of a panic at worst; its tickets have been told.
            let _ = writer.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, target_os = "linux"))]
// Clippy grants this to tests by itself, but does not see through the condition.
#[allow(clippy::unwrap_used)]
mod tests {
    use std::mem;

    use super::*;
    use crate::WriteError;

    /// The engine gives up as after a failed commit, here because a thread ended within its
    /// transaction, which the engine notices by the lock left behind.
    fn leave_a_commit_half_done(store: &Store) {
        let environment = store.0.environment.clone();
        let leave = thread::spawn(move || {
            let env = environment.env().unwrap();
            // The environment is closed all the same.
            mem::forget(env.begin_write().unwrap());
        });
        leave.join().unwrap();
    }

    #[test]
    fn after_a_commit_with_unknown_outcome_the_store_recovers_when_old_snapshots_end() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let named = store.database::<crate::Str, crate::Str>("named").unwrap();
        let early = store.database::<crate::Str, crate::Str>("early").unwrap();
        named.put("key", "value").wait().unwrap();
        store.write(Batch::new().put("key", "value")).wait().unwrap();
        let before = store.snapshot().unwrap();
        let mut reader = store.reader();
        assert_eq!(reader.get(b"key").unwrap(), Some(&b"value"[..]));
        reader.rest();
        assert!(store.is_writable());

        leave_a_commit_half_done(&store);
        let batch = Batch::new().put("late", "value");
        let refused = store.write(batch.clone()).wait();
        assert!(matches!(refused, Err(WriteError::Recovering(handed)) if handed == batch));
        assert!(!store.is_writable());
        let refused = store.write(batch.clone()).wait();
        assert!(matches!(refused, Err(WriteError::Recovering(handed)) if handed == batch));
        // The old snapshot goes on, and holds the recovery up.
        while !matches!(store.snapshot(), Err(ReadError::Recovering)) {
            thread::yield_now();
        }
        assert!(matches!(store.stat(), Err(ReadError::Recovering)));
        assert_eq!(before.get(b"key").unwrap(), Some(&b"value"[..]));
        drop(before);

        while !store.is_writable() {
            thread::yield_now();
        }
        store.write(batch).wait().unwrap();
        early.put("still", "itself").wait().unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.get(b"late").unwrap(), Some(&b"value"[..]));
        assert_eq!(named.get(&snapshot, "key").unwrap(), Some("value"));
        assert_eq!(named.get(&snapshot, "still").unwrap(), None);
        assert_eq!(early.get(&snapshot, "still").unwrap(), Some("itself"));
        assert_eq!(reader.get(b"late").unwrap(), Some(&b"value"[..]));
        assert_eq!(store.stat().unwrap().recoveries, 1);
    }

    #[test]
    fn a_store_that_recovers_can_be_closed_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let held = store.snapshot().unwrap();
        leave_a_commit_half_done(&store);
        assert!(store.write(Batch::new().put("key", "value")).wait().is_err());
        store.close();
        let refused = store.write(Batch::new().put("key", "value")).wait();
        assert!(matches!(refused, Err(WriteError::Closed(_))));
        drop(held);
    }
}
