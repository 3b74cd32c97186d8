//! [`Store`]: the handle of an open data directory.

use std::borrow::Borrow;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use crate::checkpoint::worker;
use crate::disk::environment::Environment;
use crate::disk::opening;
use crate::platform::Clock;
use crate::read::readers::Readers;
use crate::table::TableRef;
use crate::write::copy::{Applying, Control};
use crate::write::load::load;
use crate::write::queue::{Queue, QueueRoom};
use crate::write::sequencer::Sequencer;
use crate::write::ticket::Work;
use crate::write::update::Update;
use crate::write::updating::Updating;
use crate::write::writer::{self, Counters, Writer};
use crate::{
    AppliedRecord, ApplyError, Batch, CheckReport, Codec, DATABASES_MAX, LoadError, LoadFailure,
    OpenError, Options, Outcomes, ReadError, RestoreError, Restored, Settled, Settlement, Snapshot,
    Stamp, Submission, SubmitError, Ticket, Until,
};

#[cfg(feature = "sim")]
pub(crate) mod steps;
#[cfg(test)]
mod tests;

/// An open data directory. Cheap to clone; all clones are the same store.
///
/// When the last clone is dropped, or at [`close`](Store::close), everything queued is committed
/// and the writer thread is joined. The directory is free again once the snapshots are dropped too.
/// A [`Database`](crate::Database) counts as a clone, also one that an update in the queue owns.
///
/// The data file is mapped into memory: no other program may change it while it is open, and it
/// must lie on a local disk, not on a network share.
///
/// The directory may be renamed under an open store, which stays in it: on Linux the store goes on, and elsewhere it
/// refuses writes until the directory is back. Once the directory or a file in it is removed, writes are
/// refused as [`WriteError::Failed`](crate::WriteError::Failed).
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    environment: Arc<Environment>,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    clock: Clock,
    sequencer: Option<Arc<dyn Sequencer>>,
    /// The writer thread, then the checkpoint thread. Taken by the thread that joins them.
    threads: Mutex<Vec<JoinHandle<()>>>,
    writer: OnceLock<ThreadId>,
    /// The work of the threads, in a store that has none.
    #[cfg(feature = "sim")]
    pub(crate) steps: OnceLock<Mutex<steps::Steps>>,
}

/// Statistics of a store, from [`Store::stat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Number of entries in all databases; each of several values under a key counts.
    pub entries: u64,
    /// Number of named databases.
    pub databases: u64,
    /// Size of the data file, in bytes.
    pub file_bytes: u64,
    /// Bytes of the data file that were ever in use. Free pages among them are reused before the
    /// file grows.
    pub used_bytes: u64,
    /// Size of the log without kept files, in bytes; see [`Options::checkpoint_bytes`].
    pub log_bytes: u64,
    /// Memory that the changes since the last checkpoint take, in bytes.
    pub memory_bytes: u64,
    /// Maximum size of the data file, in bytes.
    pub map_bytes: u64,
    /// Number of batches made durable since the store was opened.
    pub batches: u64,
    /// Number of groups of batches made durable since the store was opened. A durable store flushes
    /// the disk once for each group.
    pub commits: u64,
    /// Time that these flushes took, all together.
    pub flush_time: Duration,
    /// Number of checkpoints since the store was opened. A checkpoint writes the changes in memory to the data
    /// file.
    pub checkpoints: u64,
    /// Time that these checkpoints took, all together.
    pub checkpoint_time: Duration,
    /// Whether changes wait for a checkpoint that has begun or is about to begin.
    pub checkpointing: bool,
    /// Largest number of snapshots alive at the same time, including snapshots of other processes
    /// and snapshots kept for reuse.
    pub snapshots: u64,
    /// Number of commits of LMDB since the oldest snapshot of any process. The data file grows while a
    /// snapshot lags behind, because the pages it can see are not reused. A number that keeps
    /// rising means that a snapshot is kept alive, for at most [`Options::snapshot_age_max`] if it
    /// is read.
    pub snapshot_lag_commits: u64,
    /// Number of times the store accepted writes again after it had refused them, because the outcome of a
    /// commit was unknown.
    pub recoveries: u64,
    /// Whether the store accepts writes ([`Store::is_writable`]) and the last did not fail ([`Store::is_failing`]).
    pub writable: bool,
}

impl Stat {
    /// Average number of batches that shared a disk flush; 0 before the first flush.
    pub fn batches_per_commit(&self) -> f64 {
        if self.commits == 0 { 0.0 } else { self.batches as f64 / self.commits as f64 }
    }
}

impl Options {
    /// Opens the store in the directory `path`, and creates the directory if it does not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with a variant for each remedy.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, OpenError> {
        Store::open_with(path.as_ref(), self)
    }
}

impl Store {
    /// Opens the store in the directory `path` with the default [`Options`], and creates the
    /// directory if it does not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with a variant for each remedy.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
        Options::default().open(path)
    }

    /// Returns the default [`Options`].
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Store, OpenError> {
        let shared = Shared::new(Environment::open(path, options)?, options);
        if !shared.environment.is_read_only() {
            shared.start().map_err(|source| OpenError::Io { path: path.into(), source })?;
        }
        Ok(Store(Arc::new(shared)))
    }

    /// Queues a batch for the next commit. Never waits, neither for the disk nor for room in the
    /// queue.
    ///
    /// Batches are committed in the order in which they were queued. The ticket resolves when this
    /// batch is durable, or to a [`WriteError`](crate::WriteError) that hands the batch back.
    pub fn write(&self, batch: Batch) -> Ticket {
        self.0.queue.push(batch)
    }

    /// Queues a batch without a ticket, for a caller that writes often and seldom waits. Empties the batch,
    /// whose memory serves the next one.
    ///
    /// Submissions are committed in order, between the batches of [`write`](Store::write) before and after
    /// them. [`settled`](Store::settled) tells the outcome. If the commit of a submission fails, all
    /// submissions queued behind it are lost too. `after` is the submission on which this one builds, that
    /// is to say, the last one whose changes its author knows: if that one was lost, this one is refused. The
    /// default stands for none.
    ///
    /// Costs less than a batch with a ticket: no memory of its own, and no wake-up.
    ///
    /// ```
    /// # use throng_store::{Batch, Store, Str, Submission, U32};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let counts = store.database::<Str, U32>("counts")?;
    /// let (mut batch, mut last) = (Batch::new(), Submission::START);
    /// for count in 1..=1000 {
    ///     batch = batch.put(&counts, "posts", &count);
    ///     last = store.submit(&mut batch, last)?;
    /// }
    /// store.settled(last).wait()?;
    /// assert_eq!(counts.get(&store.snapshot()?, "posts")?, Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SubmitError`], with a variant for each remedy. The batch is unchanged.
    pub fn submit(&self, batch: &mut Batch, after: Submission) -> Result<Submission, SubmitError> {
        self.0.queue.submit(batch, after)
    }

    /// Returns the last submission that was accepted. Takes the queue's lock.
    pub fn submitted_through(&self) -> Submission {
        self.0.queue.submitted()
    }

    /// Returns the outcomes of all submissions, for a task that outlives the store's use.
    pub fn outcomes(&self) -> Outcomes {
        Outcomes(self.0.queue.submissions().clone())
    }

    /// Returns a future that resolves when the submission is durable, or lost. A number that this store has not
    /// given to a submission, such as one of another store, counts as lost.
    pub fn settled(&self, submission: Submission) -> Settled {
        self.outcomes().settled(submission)
    }

    /// Reads and writes in one transaction: runs the closure on the writer thread, in the order of
    /// the queue.
    ///
    /// The writes of the closure are applied if it returns `Ok`, and are durable when the future
    /// resolves. The closure blocks all other writers, so keep it short. The closure may run more
    /// than once (if its commit is retried), so its side effects must be idempotent. Reading at
    /// length beforehand, in a snapshot, is cheaper. The closure must not wait for the store: a ticket, a
    /// load and a new database wait for the writer thread, which runs the closure.
    ///
    /// ```
    /// # use throng_store::{Batch, ReadError, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let balances = store.database::<Str, U64>("balances")?;
    /// # store.write(Batch::new().put(&balances, "ada", &9).put(&balances, "alan", &2)).wait()?;
    /// let moved = store.update(move |update| {
    ///     let ada = update.get(&balances, "ada")?.unwrap_or(0);
    ///     let alan = update.get(&balances, "alan")?.unwrap_or(0);
    ///     update.put(&balances, "ada", &(ada - 5));
    ///     update.put(&balances, "alan", &(alan + 5));
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

    pub(crate) fn load_into<K: Codec, V: Codec>(
        &self,
        table_ref: TableRef,
        entries: impl IntoIterator<Item = (impl Borrow<K::Item>, impl Borrow<V::Item>)>,
    ) -> Result<u64, LoadError> {
        let Shared { environment, queue, .. } = &*self.0;
        if queue.is_closed() && !environment.is_read_only() {
            return Err(LoadError { loaded: 0, failure: LoadFailure::Closed });
        }
        load::<K, V>(environment, table_ref, entries)
    }

    /// Tells the outcome of a record that the store's [sequencer](Options::sequencer) has begun. Records are settled in
    /// the order in which they were begun; of one that was lost with another before it, the outcome is passed over.
    pub fn settle(&self, number: u64, settlement: Settlement) {
        // A closed store has given up what was in flight.
        let _ = self.0.queue.tell(Control::Settle(number, settlement));
    }

    /// Applies a record of the shared log of which this store is a copy, and calls `done` with the outcome on the
    /// store's thread. Records are applied in the order of the calls; the caller bounds those that are not done.
    pub fn apply(
        &self,
        record: &AppliedRecord<'_>,
        done: impl FnOnce(Result<(), ApplyError>) + Send + 'static,
    ) {
        let AppliedRecord { first, count, stamp, changes } = *record;
        let (changes, done) = (changes.into(), Box::new(done));
        let record = Control::Apply(Applying { first, count, stamp, changes, done });
        let refused = match &self.0.sequencer {
            Some(_) => self.0.queue.tell(record),
            None => Err(record),
        };
        if let Err(Control::Apply(record)) = refused {
            (record.done)(Err(ApplyError::Closed));
        }
    }

    /// Makes a copy of a shared log accept writes, since this node owns the log, or refuse them, and then calls `done` on
    /// the store's thread. Settlements and records that were told before are done before. A closed store calls nothing.
    pub fn lead(&self, leads: bool, done: impl FnOnce() + Send + 'static) {
        let _ = self.0.queue.tell(Control::Lead(leads, Box::new(done)));
    }

    /// Returns the position of the last visible change, and the state of the shared log there; `None` if the store is
    /// no copy of one.
    pub fn stamp(&self) -> Option<(u64, Stamp)> {
        let log = self.0.environment.log()?;
        Some((log.point().position, log.stamp()?))
    }

    /// Returns a [`Ticket`] that resolves when everything queued before is on the disk, also in a
    /// [volatile](crate::Durability::Volatile) store.
    pub fn sync(&self) -> Ticket {
        self.0.queue.push_work(Work::Sync, 0)
    }

    /// Waits for room in the queue, for a caller that prefers waiting to
    /// [`WriteError::Overloaded`].
    ///
    /// The room is not reserved: another writer may take it first, so try in a loop. The future
    /// also resolves once the store accepts no more writes.
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

    /// Whether the store accepts writes. `false` while the store recovers from a failed commit, after it is closed,
    /// or if it was opened read-only.
    ///
    /// Takes a lock. Unlike [`stat`](Store::stat), this method also answers during recovery.
    pub fn is_writable(&self) -> bool {
        self.0.queue.is_open()
    }

    /// Whether the last write failed because of the disk, for example because it is full. `true` until a write
    /// or a recovery succeeds, so only an attempt to write tells that the disk is well again.
    pub fn is_failing(&self) -> bool {
        self.0.counters.is_failing.load(Ordering::Relaxed)
    }

    /// Returns a frozen view of everything whose ticket has resolved.
    ///
    /// Costs about a hundred nanoseconds, because threads keep their snapshots for reuse, and never waits
    /// for a write. Pages that a snapshot can see are not reused while it lives, and changes in memory
    /// stay there, so a long-lived snapshot makes file and memory grow under writes; beyond
    /// [`Options::snapshot_age_max`] its reads fail.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooManySnapshots`] beyond [`Options::snapshots_max`], and
    /// [`ReadError::Recovering`] while the store recovers from a failed commit.
    pub fn snapshot(&self) -> Result<Snapshot, ReadError> {
        Snapshot::begin(self.readers())
    }

    /// Returns the time since 1970 on the clock by which the store dates its log: the system's, or that of a simulation.
    pub fn since_1970(&self) -> Duration {
        self.0.clock.since_1970()
    }

    /// Returns statistics of the store.
    ///
    /// # Errors
    ///
    /// See [`snapshot`](Store::snapshot).
    pub fn stat(&self) -> Result<Stat, ReadError> {
        let Shared { environment, counters, .. } = &*self.0;
        let env = environment.env().ok_or(ReadError::Recovering)?;
        let (checkpoints, checkpoint_time) = environment.checkpoints().finished();
        let (snapshot, databases) = (self.snapshot()?, environment.databases());
        let tables = databases.iter().map(|(_, table)| *table).chain([environment.entries()]);
        let entries = tables.map(|table| snapshot.len_in(table)).sum::<Result<u64, ReadError>>()?;
        drop(snapshot);
        Ok(Stat {
            entries,
            databases: databases.len() as u64,
            file_bytes: environment.engine().file_bytes()?,
            used_bytes: env.used_bytes(),
            log_bytes: environment.log_bytes()?,
            memory_bytes: environment.readers().memory_bytes(),
            map_bytes: env.map_bytes(),
            snapshots: u64::from(environment.readers().slots(&env)),
            snapshot_lag_commits: environment.readers().snapshot_lag(&env)?,
            recoveries: counters.recoveries.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            flush_time: Duration::from_nanos(counters.flush_nanoseconds.load(Ordering::Relaxed)),
            checkpoints,
            checkpoint_time,
            checkpointing: environment.view().frozen().is_some(),
            writable: self.is_writable() && !self.is_failing(),
        })
    }

    /// Returns the maximum size of the data file, in bytes, if it is less than [`Options::map_bytes`] because
    /// the address space of the process lacked room for that.
    pub fn reduced_map_bytes(&self) -> Option<u64> {
        self.0.environment.engine().reduced_map_bytes()
    }

    /// Reads all entries of all databases, verifies their checksums, and returns their number.
    ///
    /// Runs at the speed of the disk, or of memory for cached pages. Writers are not blocked.
    ///
    /// # Errors
    ///
    /// [`ReadError::Corrupt`] with the first damaged entry.
    pub fn verify(&self) -> Result<u64, ReadError> {
        self.verify_with(|_| ())
    }

    /// Verifies all entries as [`verify`](Store::verify) does, and reports the number of entries
    /// read so far to `progress` from time to time.
    ///
    /// # Errors
    ///
    /// See [`verify`](Store::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64)) -> Result<u64, ReadError> {
        let environment = &self.0.environment;
        let snapshot = Snapshot::begin_unbounded(environment.readers())?;
        let mut entries = snapshot.verify(environment.entries(), 0, &mut progress)?;
        for (_, table_ref) in environment.databases() {
            entries = snapshot.verify(table_ref, entries, &mut progress)?;
        }
        progress(entries);
        Ok(entries)
    }

    /// Checks the data file in the directory `path` without opening it: the structure of every
    /// page, and the checksum of every value.
    ///
    /// Unlike [`verify`](Store::verify), it does not use the engine, which trusts its file and can
    /// crash the process on damaged pages. Runs at the speed of the disk, and takes memory for the
    /// largest value plus some bytes for each free page.
    ///
    /// Damage of two kinds is not detected. In databases [without
    /// checksums](crate::DatabaseOptions::without_checksums) or with [several
    /// values](crate::DatabaseOptions::duplicates) under a key: changed bytes of a key or value
    /// that leave the order of the keys intact, and a length that is wrong by one, because an odd
    /// length takes as much room as the next even length. In any store: a whole file that was
    /// replaced by an earlier version.
    ///
    /// ```
    /// # use throng_store::{Batch, OpenError, Store, Str};
    /// # let directory = tempfile::tempdir()?;
    /// let store = Store::open(directory.path())?;
    /// store.write(Batch::new().put(&store.default_database::<Str, Str>(), "key", "value")).wait()?;
    /// assert!(matches!(Store::check(directory.path()), Err(OpenError::InUse { .. })));
    /// drop(store);
    /// assert_eq!(Store::check(directory.path())?.entries, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError::Corrupt`] with the first damage found; otherwise the errors of
    /// [`open`](Store::open), including [`OpenError::InUse`] while the store is open anywhere.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenError> {
        opening::check(path.as_ref())
    }

    /// Writes a copy of everything whose ticket has resolved into the directory `path`, which is
    /// created and must not hold a store yet. The copy is compact, and opens as a store. Its files
    /// and the directories created for it have the modes 0600 and 0700.
    ///
    /// The copy may also have later changes, up to a load or a new database. Runs at the speed of the disk.
    /// Writers are not blocked, but the file and the log grow under them as under a
    /// [`snapshot`](Store::snapshot) held for as long.
    ///
    /// # Errors
    ///
    /// The error of the operating system; `AlreadyExists` if the directory holds a store, and `InvalidInput` if
    /// it lies within the directory of one. An unfinished copy is removed, with the directories made for it. A copy that a crash interrupted is not a store, and the next
    /// copy into that directory replaces it.
    pub fn backup(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.environment.copy_to(path.as_ref())
    }

    /// Makes a store in the directory `to` of the backup in the directory `backup`, and of the changes after
    /// it that the directory `log` has, up to a moment.
    ///
    /// `log` is the directory `log` of the store of which the backup was made, with its subdirectory `kept`
    /// (see [`Options::keep_log`]); or a directory into which their files were copied. The store may be open
    /// meanwhile. `to` must not hold a store.
    ///
    /// ```
    /// # use throng_store::{Store, Str, U64, Until};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = |name: &str| directory.path().join(name);
    /// let store = Store::options().keep_log(true).open(path("data"))?;
    /// let born = store.database::<Str, U64>("born")?;
    /// store.backup(path("backup"))?;
    /// born.put("ada", &1815).wait()?;
    /// let before = store.snapshot()?.commit();
    /// born.delete("ada").wait()?;
    ///
    /// let until = Until::Position(before);
    /// Store::restore(path("backup"), path("data").join("log"), path("restored"), until)?;
    /// let restored = Store::open(path("restored"))?;
    /// let born = restored.database::<Str, U64>("born")?;
    /// assert_eq!(born.get(&restored.snapshot()?, "ada")?, Some(1815));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RestoreError`], with a variant for each remedy.
    pub fn restore(
        backup: impl AsRef<Path>,
        log: impl AsRef<Path>,
        to: impl AsRef<Path>,
        until: Until,
    ) -> Result<Restored, RestoreError> {
        let options =
            Options { databases_max: DATABASES_MAX, read_only: true, ..Options::default() };
        Environment::open(backup.as_ref(), &options)?.restore_to(to.as_ref(), log.as_ref(), until)
    }

    /// Commits everything queued and ends the writer thread; blocks until that is done.
    ///
    /// Further writes through any clone are refused with [`WriteError::Closed`]; reads continue.
    ///
    /// [`WriteError::Closed`]: crate::WriteError::Closed
    pub fn close(&self) {
        self.0.close();
    }

    pub(crate) fn environment(&self) -> &Arc<Environment> {
        &self.0.environment
    }

    pub(crate) fn readers(&self) -> &Arc<Readers> {
        self.0.environment.readers()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn shared(&self) -> std::sync::Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    /// Returns the number that distinguishes this store from all others in this process.
    pub fn id(&self) -> u64 {
        self.0.environment.id()
    }
}

/// Bytes that an update counts towards the queue's limit; the size of its captures is unknown.
const UPDATE_BYTES: usize = 256;

impl Shared {
    fn new(environment: Environment, options: &Options) -> Shared {
        Shared {
            queue: Arc::new(Queue::new(options, environment.id())),
            environment: Arc::new(environment),
            counters: Arc::default(),
            clock: options.platform.clock.clone(),
            sequencer: options.sequencer.clone(),
            threads: Mutex::default(),
            writer: OnceLock::new(),
            #[cfg(feature = "sim")]
            steps: OnceLock::new(),
        }
    }

    fn make_writer(&self) -> Writer {
        let (environment, queue) = (self.environment.clone(), self.queue.clone());
        Writer::new(environment, queue, self.counters.clone(), self.sequencer.clone())
    }

    /// Starts the threads of a store that writes, if it shall have any.
    fn start(&self) -> io::Result<()> {
        let (writer, environment) = (self.make_writer(), self.environment.clone());
        #[cfg(feature = "sim")]
        if !environment.has_threads() {
            let _ = self.steps.set(Mutex::new(steps::Steps::new(writer, environment)));
            return Ok(());
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |name: &str| thread::Builder::new().name(name.into());
        let writer = named("throng-store").spawn(move || writer::run(writer))?;
        let _ = self.writer.set(writer.thread().id());
        threads.push(writer);
        // If this thread cannot be started, dropping the store ends the other.
        threads.push(named("throng-checkpoint").spawn(move || worker::run(&environment))?);
        Ok(())
    }

    fn close(&self) {
        self.queue.close();
        #[cfg(feature = "sim")]
        if let Some(steps) = self.steps.get() {
            // A waker that closes the store runs within a step, after which the writer ends.
            if let Ok(mut steps) = steps.try_lock() {
                steps.end();
            }
            return;
        }
        // A waker may close the store on the writer thread itself, which cannot join itself and ends after
        // this call. Another thread may wait for that with the lock held.
        if self.writer.get() == Some(&thread::current().id()) {
            return;
        }
        // Held while joining, so that a second `close` also returns only when everything is
        // written.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer ends the checkpoints. If a thread died of a panic, its tickets have resolved as
        // unknown.
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}
