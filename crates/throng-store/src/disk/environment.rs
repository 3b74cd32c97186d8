//! [`Environment`]: the open engine and the claim on its directory. It also reopens the engine.
//!
//! A data directory holds:
//!
//! | file       | content                                                        |
//! |------------|----------------------------------------------------------------|
//! | `LOCK`     | locked while a store writes there (`claim.rs`, `pins.rs`)      |
//! | `data.mdb` | LMDB: the tables in `format.rs`                                |
//! | `journal.0`, `journal.1` | changes that `data.mdb` may lack after a crash (see `journal.rs`) |
//! | `lock.mdb` | LMDB's table of readers                                        |
//! | `draft`    | a directory in which `data.mdb` is created, before it has its name |
//! | `data.draft` | a copy that is not complete yet                               |
//!
//! The map is as large as the file may ever become: addresses are cheap, and a map of fixed size
//! need not wait for its readers before it grows. So the file grows by itself up to the quota. If
//! that much address space is not available, the map is the largest half, quarter, and so on, that
//! is.
//!
//! When a commit fails half-way, the engine refuses everything until it is reopened. Reopening must
//! wait until nothing reads from the old map: snapshots hold the engine by `Arc`, the pool releases
//! its transactions, and the engine signals when it is closed. See [`reopen`].
//!
//! [`reopen`]: Environment::reopen

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::database::{Kind, TableRef};
use crate::disk::apply::apply;
use crate::disk::claim::Claim;
use crate::disk::commit::Commit;
use crate::disk::format;
use crate::disk::journal::{self, Journal, JournalConfig, Log, Recovery};
use crate::disk::lmdb::{self, Closed, Env, ReadTxn, Settings, Table};
use crate::disk::pages::{self, Damage};
use crate::disk::pins::Pins;
use crate::disk::private;
use crate::memtable::Run;
use crate::read::pool::{Pool, Pooled};
use crate::write::deferred::Deferred;
use crate::{CheckReport, DatabaseError, LoadFailure, OpenError, Options, ReadError};

/// Name that the engine gives to its data file.
pub(crate) const DATA_FILE: &str = "data.mdb";

/// An open environment. The fields are dropped in order: the engine is closed before the claim
/// ends.
///
/// Lock order of a commit: the journal, then the engine, then `named`.
#[derive(Debug)]
pub(crate) struct Environment {
    pool: Pool,
    /// The journal; `None` in a read-only store, and while the engine is reopened.
    journal: Mutex<Option<Journal>>,
    /// Configuration of the journal; `None` if the store is read-only.
    journal_config: Option<JournalConfig>,
    deferred: Deferred,
    /// Shared lock of a read-only store, by which a process that recovers knows that the store is
    /// read.
    _reads: Option<File>,
    /// The open engine; `None` while it is reopened.
    current: RwLock<Option<Arc<Env>>>,
    /// Signals when the engine of `current` is closed. Only `reopen` uses it.
    closed: Mutex<Closed>,
    entries: TableRef,
    named: Mutex<BTreeMap<String, TableRef>>,
    settings: Settings,
    /// Id by which the handles of databases know their store.
    id: u64,
    verify_reads: bool,
    snapshot_age_max: Duration,
    began: Instant,
    /// Time of the last commit, in nanoseconds since `began`; `u64::MAX` in a read-only store.
    last_commit: AtomicU64,
    /// Time of the last search for readers of dead processes, on the same clock.
    last_stale_check: AtomicU64,
    claim: Claim,
}

impl Environment {
    /// Opens the environment in `directory`, and creates both if they do not exist.
    pub(crate) fn open(directory: &Path, options: &Options) -> Result<Environment, OpenError> {
        let refused = |source| OpenError::Io { path: directory.into(), source };
        if options.read_only {
            // The engine would create its table of readers before it found that there is no data.
            fs::metadata(directory.join(DATA_FILE)).map_err(refused)?;
        }
        let (mut claim, mut recovery) = enter(directory, options)?;
        let data_file = claim.path().join(DATA_FILE);
        match fs::metadata(&data_file) {
            Ok(metadata) if metadata.len() == 0 => {
                // The engine would treat an empty file as a new store, but a new data file has
                // content before it has its name.
                let reason = "it is empty".into();
                return Err(OpenError::Corrupt { path: directory.into(), reason });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !options.read_only => {
                make_data_file(&claim, directory, options)?;
            }
            // The engine reports the same error.
            Err(_) => {}
        }
        let damaged = |damage: Damage| damage.into_open_error(directory);
        let mut reads = None;
        if options.read_only {
            reads = recovery
                .take()
                .map(|recovery| read_beside(recovery, &data_file, directory))
                .transpose()?;
        } else if let Some(recovery) = &mut recovery {
            recovery.inspect(&data_file).map_err(damaged)?;
            recovery.put_back(&data_file).map_err(refused)?;
        }
        if options.check {
            pages::check(&data_file, None).map_err(damaged)?;
            claim.share();
        }
        let settings = options.settings();
        let (env, closed) = Env::open(&claim, &settings)
            .map_err(|error| OpenError::from_engine(error, directory))?;
        // The slots of killed readers would pin old pages for ever. An environment on a read-only
        // file system has no slots.
        if !options.read_only {
            env.clear_stale_readers().map_err(|error| OpenError::from_engine(error, directory))?;
        }
        let databases = format::open_databases(&env, directory, options.read_only)?;
        let mut journal = None;
        let journal_config = options.journal_config();
        if let Some(journal_config) = journal_config {
            let table = |name: &str| databases.table(name);
            let begun = journal_of(&env, &claim, recovery, journal_config, table);
            journal = Some(begun.map_err(damaged)?);
            sync_names(claim.path()).map_err(refused)?;
        }
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let environment = Environment {
            pool: Pool::default(),
            journal: Mutex::new(journal),
            journal_config,
            deferred: Deferred::new(Arc::default()),
            _reads: reads,
            closed: Mutex::new(closed),
            entries: databases.entries,
            named: Mutex::new(databases.named),
            settings,
            // Relaxed: the id only has to be unique.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            verify_reads: options.verify_reads,
            snapshot_age_max: options.snapshot_age_max,
            began: Instant::now(),
            last_commit: AtomicU64::new(if options.read_only { u64::MAX } else { 0 }),
            last_stale_check: AtomicU64::new(0),
            claim,
            current: RwLock::new(None),
        };
        environment.pool.sweep(env.last_txn());
        environment.set_current(Some(env));
        Ok(environment)
    }

    /// Checks the data file in `directory` without opening it.
    pub(crate) fn check(directory: &Path) -> Result<CheckReport, OpenError> {
        let damaged = |damage: Damage| damage.into_open_error(directory);
        let options = Options { read_only: true, check: true, ..Options::default() };
        let (claim, mut recovery) = enter(directory, &options)?;
        let data_file = claim.path().join(DATA_FILE);
        if let Some(recovery) = &mut recovery {
            recovery.inspect(&data_file).map_err(damaged)?;
        }
        // The state that recovery would restore is checked. The claim alone keeps writers out; they
        // get an error instead of waiting for the journal's lock.
        let metas = recovery.and_then(Recovery::into_metas);
        pages::check(&data_file, metas.as_ref()).map_err(damaged)
    }

    pub(crate) fn entries(&self) -> TableRef {
        self.entries
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.claim.is_read_only()
    }

    pub(crate) fn verify_reads(&self) -> bool {
        self.verify_reads
    }

    /// Groups that are acknowledged, but not yet visible to readers.
    pub(crate) fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// Returns the engine, unless it is being reopened.
    pub(crate) fn env(&self) -> Option<Arc<Env>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a read transaction that sees everything committed so far.
    ///
    /// The caller keeps `self` alive as well, for the claim.
    pub(crate) fn begin_read(&self) -> Result<ReadTxn, ReadError> {
        match self.pool.take() {
            Some(Pooled::Fresh(txn)) => Ok(txn),
            Some(Pooled::Idle(idle)) => self.renew(idle),
            None => self.begin_anew(),
        }
    }

    /// Renews a transaction, so that it sees everything committed so far.
    pub(crate) fn renew(&self, idle: lmdb::IdleTxn) -> Result<ReadTxn, ReadError> {
        if idle.env().is_retired() {
            drop(idle);
            return self.begin_anew();
        }
        idle.renew().map_err(ReadError::from_engine)
    }

    fn begin_anew(&self) -> Result<ReadTxn, ReadError> {
        let env = self.env().ok_or(ReadError::Recovering)?;
        match env.begin_read() {
            Err(lmdb::Error::ReadersFull) => {}
            other => return other.map_err(ReadError::from_engine),
        }
        if let Some(idle) = self.pool.take_anywhere() {
            return idle.renew().map_err(ReadError::from_engine);
        }
        // Another process may have died with slots taken.
        env.clear_stale_readers().map_err(ReadError::from_engine)?;
        env.begin_read().map_err(ReadError::from_engine)
    }

    /// Whether a transaction sees everything committed so far.
    pub(crate) fn is_fresh(&self, txn: &ReadTxn) -> bool {
        let committed =
            if self.is_read_only() { txn.env().last_txn() } else { self.pool.committed() };
        txn.id() == committed && !txn.env().is_retired()
    }

    /// Keeps a transaction for the next reader.
    pub(crate) fn end_read(&self, txn: ReadTxn) {
        // A read-only process does not learn of the commits of another process, so it keeps no
        // transaction that would retain the pages that the next commit frees.
        self.pool.give(txn, !self.is_read_only());
    }

    /// Records a commit: updates the pool, and frees the slots of dead readers from time to time.
    pub(crate) fn committed(&self, env: &Env) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a snapshot that expires a moment later does no harm.
        self.last_commit.store(now, Ordering::Relaxed);
        self.pool.sweep(env.last_txn());
        // Relaxed: a superfluous search does no harm.
        let last_stale_check = self.last_stale_check.load(Ordering::Relaxed);
        if Duration::from_nanos(now.saturating_sub(last_stale_check)) > STALE_INTERVAL {
            self.last_stale_check.store(now, Ordering::Relaxed);
            // A process that was killed while it read would retain its pages for ever. If this
            // search fails, the next may succeed.
            let _ = env.clear_stale_readers();
        }
    }

    /// Returns the expiry time of a snapshot that begins at this moment, on the clock of
    /// `is_expired`.
    pub(crate) fn expiry(&self) -> u64 {
        let expiry = self.began.elapsed().checked_add(self.snapshot_age_max);
        expiry.and_then(|expiry| u64::try_from(expiry.as_nanos()).ok()).unwrap_or(u64::MAX)
    }

    /// Whether a commit followed that time: without a commit, an old snapshot costs nothing.
    pub(crate) fn is_expired(&self, txn: &ReadTxn, expiry: u64) -> bool {
        self.last_commit.load(Ordering::Relaxed) > expiry && self.is_outdated(txn, expiry)
    }

    /// Decides expiry where the last commit may be another process's, whose time is not known: an
    /// old snapshot that does not show the last commit has expired.
    #[cold]
    fn is_outdated(&self, txn: &ReadTxn, expiry: u64) -> bool {
        !self.is_read_only()
            || (txn.id() != txn.env().last_txn() && self.began.elapsed().as_nanos() > expiry.into())
    }

    /// Returns the number of commits since the oldest snapshot, here and in other processes.
    pub(crate) fn snapshot_lag(&self, env: &Env) -> Result<u64, ReadError> {
        let last = env.last_txn();
        let mut pins = Pins::read(self.claim.path()).to_vec();
        let readers = env.reader_txns().map_err(ReadError::from_engine)?;
        let snapshots = readers.into_iter().filter(|reader| {
            let pin = pins.iter().position(|pin| pin == reader);
            pin.map(|at| pins.swap_remove(at)).is_none()
        });
        Ok(snapshots.min().map_or(0, |oldest| last.saturating_sub(oldest)))
    }

    /// Opens a named database, and creates it if it does not exist; creation waits for a commit.
    pub(crate) fn open_database(
        &self,
        name: &str,
        kind: Kind,
        make: bool,
    ) -> Result<TableRef, DatabaseError> {
        if name.is_empty() || name.len() > DATABASE_NAME_BYTES_MAX || name.contains('\0') {
            return Err(DatabaseError::Name);
        }
        let known = || self.named().get(name).copied();
        let fits = |table_ref: TableRef| {
            let other = || DatabaseError::Kind { name: name.into() };
            if table_ref.kind == kind { Ok(table_ref) } else { Err(other()) }
        };
        if let Some(table_ref) = known() {
            return fits(table_ref);
        }
        // The writer keeps the lock as long as groups are deferred.
        let _suspension = self.deferred.suspend();
        self.deferred.wait().map_err(|_| DatabaseError::Recovering)?;
        let mut journal = self.journal();
        // Another thread may have created it while this thread waited for the lock.
        if let Some(table_ref) = known() {
            return fits(table_ref);
        }
        let env = self.env().ok_or(DatabaseError::Recovering)?;
        if journal.is_none() && !self.is_read_only() {
            return Err(DatabaseError::Recovering);
        }
        let make = make && !self.is_read_only();
        let missing = || DatabaseError::Missing { name: name.into() };
        let table_ref = format::open_database(&env, name, kind, make)
            .map_err(DatabaseError::from_engine)?
            .ok_or_else(missing)?;
        // Records name tables, so each table is on the disk before the first record that may name
        // it.
        if let Some(journal) = &mut *journal {
            let failed = |error: io::Error| DatabaseError::Failed(error.to_string());
            journal.checkpoint(&env).map_err(failed)?;
            self.committed(&env);
        }
        self.named().insert(name.into(), table_ref);
        Ok(table_ref)
    }

    /// Stores a run of changes beside the writer, as durably as the store is.
    pub(crate) fn load(&self, run: &Run) -> Result<(), LoadFailure> {
        if self.is_read_only() {
            return Err(LoadFailure::ReadOnly);
        }
        // The writer keeps the lock as long as groups are deferred.
        let _suspension = self.deferred.suspend();
        self.deferred.wait().map_err(|_| LoadFailure::Recovering)?;
        let mut journal = self.journal();
        let (Some(journal), Some(env)) = (&mut *journal, self.env()) else {
            return Err(LoadFailure::Recovering);
        };
        let mut txn = env.begin_write().map_err(LoadFailure::from_engine)?;
        let stored = apply(run, &mut txn).and_then(|()| txn.commit());
        stored.map_err(LoadFailure::from_engine)?;
        // The changes have no record.
        journal.checkpoint(&env).map_err(LoadFailure::from_io)?;
        self.committed(&env);
        Ok(())
    }

    /// Begins a commit, which excludes all others.
    pub(crate) fn commit<'e>(&'e self, env: &'e Arc<Env>) -> Result<Commit<'e>, lmdb::Error> {
        let mut journal = self.journal();
        let txn = env.begin_write()?;
        let log = journal.as_mut().map_or_else(Log::default, Journal::take_log);
        let (last, reader_gate) = (None, None);
        Ok(Commit { environment: self, env, txn, log, last, reader_gate, journal })
    }

    /// Whether acknowledged writes are on the disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.journal_config.is_some_and(|journal_config| journal_config.is_durable)
    }

    /// Flushes everything committed to the disk, also in a volatile store.
    pub(crate) fn sync(&self, env: &Arc<Env>) -> io::Result<()> {
        match &mut *self.journal() {
            Some(journal) => journal.sync(env),
            None => Err(io::Error::other(ReadError::Recovering.to_string())),
        }
    }

    /// Releases the pages pinned by the last checkpoint. Returns whether there were any.
    pub(crate) fn free_pages(&self, env: &Arc<Env>) -> bool {
        self.journal().as_mut().is_some_and(|journal| journal.free_pages(env))
    }

    /// Returns the number of reader slots taken by snapshots, here and in other processes.
    pub(crate) fn readers(&self, env: &Env) -> u32 {
        env.readers().saturating_sub(self.journal_config.map_or(0, |_| journal::PINS))
    }

    /// Makes the data file complete by itself, after the last commit. If that fails, the file is
    /// complete together with the journal.
    pub(crate) fn close_journal(&self) {
        // The journal stays, and keeps its reader slots, which are not for snapshots.
        if let (Some(journal), Some(env)) = (&mut *self.journal(), self.env()) {
            let _ = journal.close(&env);
        }
    }

    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the named databases, in order.
    pub(crate) fn databases(&self) -> Vec<(String, TableRef)> {
        self.named().iter().map(|(name, table_ref)| (name.clone(), *table_ref)).collect()
    }

    /// Returns the name of the table in the engine.
    pub(super) fn stored_name(&self, table: Table) -> Option<String> {
        if table == self.entries.table {
            return Some(format::ENTRIES.into());
        }
        let named = self.named();
        let (name, table_ref) = named.iter().find(|(_, table_ref)| table_ref.table == table)?;
        Some(format::stored_name(name, table_ref.kind))
    }

    fn named(&self) -> MutexGuard<'_, BTreeMap<String, TableRef>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the engine refuses everything, including reads, until it is reopened.
    pub(crate) fn needs_recovery(env: &Env) -> bool {
        matches!(env.begin_write(), Err(lmdb::Error::Panic))
    }

    /// Closes the engine and reopens it once the last snapshot is dropped; meanwhile nothing can be
    /// read. Polls `go_on`, and returns `false` if that is false.
    pub(crate) fn reopen(&self, go_on: impl Fn() -> bool) -> bool {
        // The journal holds the engine.
        drop(self.journal().take());
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(env) = self.set_current(None) {
            env.retire();
            self.pool.clear();
            drop(env);
        }
        loop {
            match closed.recv_timeout(REOPEN_INTERVAL) {
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) if go_on() => continue,
                Err(RecvTimeoutError::Timeout) => return false,
                Ok(never) => match never {},
            }
            if let Some((env, new_closed)) = self.open_again() {
                *closed = new_closed;
                self.pool.sweep(env.last_txn());
                self.set_current(Some(env));
                return true;
            }
            if !go_on() {
                return false;
            }
            std::thread::sleep(REOPEN_INTERVAL);
        }
    }

    /// Opens the engine again, with the same tables under the same numbers; `None` if that fails.
    fn open_again(&self) -> Option<(Arc<Env>, Closed)> {
        let data_file = self.claim.path().join(DATA_FILE);
        let mut recovery = Recovery::to_write(self.claim.path()).ok()?;
        if let Some(recovery) = &mut recovery {
            recovery.inspect(&data_file).ok()?;
            recovery.put_back(&data_file).ok()?;
        }
        let (env, closed) = Env::open(&self.claim, &self.settings).ok()?;
        let known = self.named().clone();
        let databases = format::open_databases(&env, self.claim.path(), false).ok()?;
        // Handles hold the numbers, so their meaning must not change.
        let same = databases.entries == self.entries
            && known.iter().all(|(name, table_ref)| databases.named.get(name) == Some(table_ref));
        if !same {
            return None;
        }
        let table = |name: &str| databases.table(name);
        *self.journal() =
            Some(journal_of(&env, &self.claim, recovery, self.journal_config?, table).ok()?);
        self.named().extend(databases.named);
        Some((env, closed))
    }

    fn set_current(&self, env: Option<Arc<Env>>) -> Option<Arc<Env>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, env)
    }

    /// Copies the current state into a data file in `directory`, durably. The copy has its name
    /// only when it is complete.
    pub(crate) fn copy_to(&self, directory: &Path) -> io::Result<()> {
        let recovering = |error: ReadError| io::Error::other(error.to_string());
        let there = || io::Error::from(io::ErrorKind::AlreadyExists);
        self.deferred.wait().map_err(recovering)?;
        let env = self.env().ok_or_else(|| recovering(ReadError::Recovering))?;
        private::create_directory(directory)?;
        // Two concurrent copies into the same directory would spoil each other.
        let claim = Claim::to_write(directory).map_err(|error| match error {
            OpenError::Io { source, .. } | OpenError::ReadOnly { source, .. } => source,
            OpenError::InUse { .. } => there(),
            other => io::Error::other(other),
        })?;
        let path = directory.join(DATA_FILE);
        if path.try_exists()? {
            return Err(there());
        }
        let draft = directory.join(COPY_DRAFT);
        let file = private::create_file(&draft)?;
        let copied = env
            .copy_to(&file, true)
            .map_err(lmdb::Error::into_io)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| sync_names(claim.path()));
        if copied.is_err() {
            // The error of the copy matters, not this one.
            let _ = fs::remove_file(&draft);
        }
        copied
    }

    /// Whether the disk reports less free space than `bytes`, or the file size limit is lower.
    #[cfg(unix)]
    pub(crate) fn lacks_room(&self, bytes: u64) -> bool {
        let disk = rustix::fs::statvfs(self.claim.path());
        let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < bytes)
            || longest.is_some_and(|longest| {
                self.file_bytes().is_ok_and(|now| now.saturating_add(bytes) > longest)
            })
    }

    /// Returns `false`: on this system a partial write is an error of its own, so no check is
    /// needed.
    #[cfg(not(unix))]
    pub(crate) fn lacks_room(&self, _: u64) -> bool {
        false
    }

    /// Returns the size of the journal, in bytes; 0 if there is none.
    pub(crate) fn journal_bytes(&self) -> Result<u64, ReadError> {
        journal::bytes(self.claim.path()).map_err(ReadError::Io)
    }

    /// Returns the size of the data file, in bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64, ReadError> {
        let path = self.claim.path().join(DATA_FILE);
        fs::metadata(path).map(|metadata| metadata.len()).map_err(ReadError::Io)
    }
}

/// Name of the directory in which a new data file is created.
const DRAFT: &str = "draft";

/// Name of a copy before it is complete.
const COPY_DRAFT: &str = "data.draft";

/// Longest name of a database, in bytes.
const DATABASE_NAME_BYTES_MAX: usize = 500;

/// Time between two searches for readers of dead processes.
const STALE_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two polls of `go_on` while the writer waits for snapshots to end.
const REOPEN_INTERVAL: Duration = Duration::from_millis(20);

/// Claims the directory, and locks the journal if there is one.
fn enter(directory: &Path, options: &Options) -> Result<(Claim, Option<Recovery>), OpenError> {
    let refused = |source| OpenError::Io { path: directory.into(), source };
    if !options.read_only {
        private::create_directory(directory).map_err(refused)?;
    }
    loop {
        let recovery = match options.read_only {
            false => Recovery::to_write(directory),
            true => Recovery::to_read(directory),
        };
        let recovery = recovery.map_err(|source| OpenError::from_io(source, directory))?;
        let claim = match options {
            Options { read_only: false, .. } => Claim::to_write(directory)?,
            // Pages written during the check would look damaged.
            Options { check: true, .. } => Claim::to_read_alone(directory)?,
            _ => Claim::to_read(directory)?,
        };
        // Otherwise the journal was created in between.
        if recovery.is_some() || !Recovery::exists(directory) {
            return Ok((claim, recovery));
        }
    }
}

/// Enters as a reader, if no recovery is needed or a writer has recovered the store.
fn read_beside(
    mut recovery: Recovery,
    data_file: &Path,
    directory: &Path,
) -> Result<File, OpenError> {
    let refused = |source| OpenError::Io { path: directory.into(), source };
    if !Claim::is_written(directory).map_err(refused)? {
        recovery.inspect(data_file).map_err(|damage| damage.into_open_error(directory))?;
        if recovery.is_needed() {
            return Err(OpenError::Unrecovered { path: directory.into() });
        }
    }
    recovery.into_reader_gate().map_err(refused)
}

/// Replays the journal, and starts it again.
fn journal_of(
    env: &Arc<Env>,
    claim: &Claim,
    mut recovery: Option<Recovery>,
    journal_config: JournalConfig,
    table: impl Fn(&str) -> Option<Table>,
) -> Result<Journal, Damage> {
    let data_file = claim.path().join(DATA_FILE);
    if let Some(recovery) = &mut recovery {
        recovery.apply(env, &data_file, table)?;
    }
    Journal::start(env, claim, &data_file, recovery, journal_config)
}

impl Damage {
    fn into_open_error(self, directory: &Path) -> OpenError {
        let path = directory.into();
        match self {
            Damage::Foreign => OpenError::Foreign { path },
            Damage::Found(reason) => OpenError::Corrupt { path, reason },
            Damage::Io(source) => OpenError::Io { path, source },
        }
    }
}

/// Creates the data file, which has its name only once it is complete and on the disk: the engine
/// could not open a partial file.
fn make_data_file(claim: &Claim, directory: &Path, options: &Options) -> Result<(), OpenError> {
    let refused = |source| OpenError::Io { path: directory.into(), source };
    let draft = claim.path().join(DRAFT);
    let remove_draft = || match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    // A crash may have left a draft.
    remove_draft().and_then(|()| private::create_directory(&draft)).map_err(refused)?;
    let claim_draft = Claim::to_write(&draft)?;
    let settings = Settings { no_sync: false, write_map: false, ..options.settings() };
    let (env, _) = Env::open(&claim_draft, &settings)
        .map_err(|error| OpenError::from_engine(error, directory))?;
    format::open_databases(&env, directory, false)?;
    drop((env, claim_draft));
    let path = draft.join(DATA_FILE);
    File::open(&path)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&path, claim.path().join(DATA_FILE)))
        .and_then(|()| remove_draft())
        .map_err(refused)
}

/// Makes the names of new files durable, and the name of the directory itself: the engine flushes
/// only the contents of the files.
#[cfg(unix)]
fn sync_names(directory: &Path) -> io::Result<()> {
    for directory in [Some(directory), directory.parent()].into_iter().flatten() {
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            // A parent directory without read permission was not created by this store.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

/// Does nothing: where directories cannot be flushed, the file system makes names durable by
/// itself.
#[cfg(not(unix))]
fn sync_names(_: &Path) -> io::Result<()> {
    Ok(())
}
