//! [`Environment`]: the open files of a store, and the claim on their directory.
//!
//! A data directory holds:
//!
//! | file       | content                                                        |
//! |------------|----------------------------------------------------------------|
//! | `data.mdb` | LMDB: the tables in `format.rs`, as of the last checkpoint     |
//! | `log/`     | changes since the last checkpoint (see `log.rs`)               |
//! | `lock.mdb` | LMDB's table of readers                                        |
//! | `reserve`  | room for deletions on a full disk (`reserve.rs`)               |
//! | `draft/`   | a new store before it is complete (`draft.rs`)                 |
//!
//! The map is as large as the file may ever become: addresses are cheap, and a map of fixed size
//! need not wait for its readers before it grows. So the file grows by itself up to the quota. If
//! that much address space is not available, the map is the largest half, quarter, and so on, that
//! is; and it takes half of what a limit leaves at most, because the process needs the rest.
//!
//! When a commit of LMDB fails half-way, LMDB refuses everything until it is reopened. Reopening must
//! wait until nothing reads from the old map: snapshots hold the engine by `Arc`, the pool releases
//! its transactions, and the engine signals when it is closed. See [`reopen`]. The log and the
//! memtables have everything since the last checkpoint meanwhile.
//!
//! Lock order: the log, then `writing`, then the memtables of the view; `named` comes last.
//!
//! [`reopen`]: Environment::reopen

mod room;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use crate::checkpoint::{self, Checkpoints, Event, UNBOUNDED};
use crate::database::{Kind, TableRef};
use crate::disk::claim::Claim;
use crate::disk::draft::{self, Rest};
use crate::disk::format::{self, Databases};
use crate::disk::lmdb::{self, Closed, Env, IdleTxn, ReadTxn, Settings, Table};
use crate::disk::pages::{self, Damage};
use crate::disk::private;
use crate::disk::recovery::recover;
use crate::disk::reserve::Reserve;
use crate::log::{self, Access, Archive, Location, Log, Point, Replay};
use crate::memtable::change::Change;
use crate::memtable::{Layers, Memtable};
use crate::platform::Epoch;
use crate::read::follower::Follower;
use crate::read::pool::{Pool, Pooled};
use crate::read::view::View;
use crate::restore::{Restored, Until, time_of};
use crate::{CheckReport, DatabaseError, LoadFailure, OpenError, Options, ReadError, RestoreError};

/// Name that the engine gives to its data file.
pub(crate) const DATA_FILE: &str = "data.mdb";
/// Name of the directory of the log.
pub(crate) const LOG: &str = "log";

/// The open files of a store. The fields are dropped in order: the engine is closed before the claim
/// ends.
#[derive(Debug)]
pub(crate) struct Environment {
    pool: Pool,
    /// Transaction of the writer, which never lacks a reader slot; `None` while it is in use.
    reserved: Mutex<Option<IdleTxn>>,
    view: View,
    /// The open engine; `None` while it is reopened.
    current: RwLock<Option<Arc<Env>>>,
    /// Signals when the engine of `current` is closed. Only `reopen` uses it.
    closed: Mutex<Closed>,
    /// Whether the engine refuses everything until it is reopened.
    is_engine_broken: AtomicBool,
    /// The log of a store that writes, or the view of a store that reads.
    role: Role,
    /// Held while LMDB is written.
    writing: Mutex<()>,
    checkpoints: Checkpoints,
    /// Number of the table of the format.
    format: Table,
    /// Random id of the files.
    store: u64,
    entries: TableRef,
    named: Mutex<BTreeMap<String, TableRef>>,
    settings: Settings,
    checkpoint_bytes: usize,
    /// Bytes in memory and changes in the active memtable for which there was room in LMDB.
    room: [AtomicUsize; 2],
    /// Id by which the handles of databases know their store.
    id: u64,
    /// Room on the disk for deletions; `None` in a read-only store.
    reserve: Option<Reserve>,
    verify_reads: bool,
    snapshot_age_max: Duration,
    began: Epoch,
    /// Time of the last commit, in nanoseconds since `began`; `u64::MAX` in a read-only store.
    last_commit: AtomicU64,
    /// Time of the last search for readers of dead processes, on the same clock.
    last_stale_check: AtomicU64,
    claim: Claim,
}

#[derive(Debug)]
enum Role {
    Writes { log: Mutex<Log>, archive: Arc<Archive> },
    Reads(Mutex<Follower>),
}

/// The engine and the log of a store that was opened.
struct Opened {
    env: Arc<Env>,
    closed: Closed,
    databases: Databases,
}

impl Environment {
    /// Opens the environment in `directory`, and creates both if they do not exist.
    pub(crate) fn open(directory: &Path, options: &Options) -> Result<Environment, OpenError> {
        let refused = |source| OpenError::Io { path: directory.into(), source };
        let damaged = |damage: Damage| damage.into_open_error(directory);
        let mut claim = enter(directory, options)?;
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
                draft::make_store(&claim, directory, options)?;
            }
            Err(error) => return Err(refused(error)),
        }
        if options.check {
            pages::check(&data_file).map_err(damaged)?;
            claim.share();
        }
        let settings = options.settings();
        let Opened { env, closed, databases } = open_engine(&claim, &settings, directory)?;
        let location = Location {
            directory: claim.path().join(LOG),
            platform: options.platform.clone(),
            store: databases.store,
            is_durable: options.is_durable(),
            is_kept: options.keep_log,
        };
        let tables = tables_of(&settings);
        let checkpoint_bytes = options.checkpoint_bytes_bounded();
        let (role, view);
        if options.read_only {
            let mut follower = Follower::new(location, databases.format, tables, checkpoint_bytes);
            let begin = || env.begin_read().map_err(ReadError::from_engine);
            let is_written = || claim.is_written();
            follower.begin(begin, is_written).map_err(|error| match error {
                ReadError::Corrupt(reason) => OpenError::Corrupt { path: directory.into(), reason },
                ReadError::Io(source) => OpenError::Io { path: directory.into(), source },
                other => refused(io::Error::other(other)),
            })?;
            role = Role::Reads(Mutex::new(follower));
            view = View::new(Memtable::new(tables, 0), 0);
        } else {
            if location.is_durable {
                // A volatile store flushes nothing.
                settle_meta(&env, claim.path()).map_err(refused)?;
            }
            let (log, memtable) =
                recover(&env, databases.format, &location, tables, options).map_err(damaged)?;
            view = View::new(memtable, log.point().position);
            role = Role::Writes { archive: log.archive(), log: Mutex::new(log) };
        }
        let reserved =
            env.begin_read().map_err(|error| OpenError::from_engine(error, directory))?;
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let environment = Environment {
            pool: Pool::default(),
            reserved: Mutex::new(Some(reserved.reset())),
            view,
            closed: Mutex::new(closed),
            is_engine_broken: AtomicBool::new(false),
            role,
            writing: Mutex::new(()),
            checkpoints: Checkpoints::default(),
            format: databases.format,
            store: databases.store,
            entries: databases.entries,
            named: Mutex::new(databases.named),
            settings,
            checkpoint_bytes,
            room: [AtomicUsize::new(0), AtomicUsize::new(0)],
            // Relaxed: the id only has to be unique.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            reserve: (!options.read_only).then(|| {
                let files = options.platform.files.clone();
                Reserve::hold(files, claim.path(), env.map_bytes())
            }),
            verify_reads: options.verify_reads,
            snapshot_age_max: options.snapshot_age_max,
            began: options.platform.clock.begin(),
            last_commit: AtomicU64::new(if options.read_only { u64::MAX } else { 0 }),
            last_stale_check: AtomicU64::new(0),
            claim,
            current: RwLock::new(None),
        };
        environment.pool.sweep(env.last_txn());
        environment.set_current(Some(env));
        Ok(environment)
    }

    /// Checks the files in `directory` without opening the store.
    pub(crate) fn check(directory: &Path) -> Result<CheckReport, OpenError> {
        let damaged = |damage: Damage| damage.into_open_error(directory);
        let options = Options { read_only: true, check: true, ..Options::default() };
        let claim = enter(directory, &options)?;
        let checked = pages::check(&claim.path().join(DATA_FILE)).map_err(damaged)?;
        let (report, store, applied) = checked;
        let directory = claim.path().join(LOG);
        let platform = options.platform;
        let location = Location { directory, platform, store, is_durable: false, is_kept: false };
        let mut replay = Replay::open(&location, applied, Access::ReadAll).map_err(damaged)?;
        while let Some(_record) =
            replay.next(applied.position).map_err(|error| damaged(error.into_damage()))?
        {}
        Ok(report)
    }

    pub(crate) fn entries(&self) -> TableRef {
        self.entries
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.role, Role::Reads(_))
    }

    /// Whether threads write and make checkpoints. Otherwise a simulation makes their steps.
    pub(crate) fn has_threads(&self) -> bool {
        self.settings.platform.has_threads
    }

    pub(crate) fn verify_reads(&self) -> bool {
        self.verify_reads
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    pub(crate) fn checkpoint_bytes(&self) -> usize {
        self.checkpoint_bytes
    }

    /// Returns the size of the map, in bytes, if it is less than the options ask for.
    pub(crate) fn reduced_map_bytes(&self) -> Option<u64> {
        let bytes = self.env()?.map_bytes();
        (bytes < self.settings.map_bytes as u64).then_some(bytes)
    }

    /// Returns a number above all numbers of tables.
    pub(crate) fn tables_max(&self) -> usize {
        tables_of(&self.settings)
    }

    /// Whether the engine refuses everything until it is reopened.
    pub(crate) fn is_engine_broken(&self) -> bool {
        // Acquire: pairs with the store in `reopen`.
        self.is_engine_broken.load(Ordering::Acquire)
    }

    /// Locks the log; `None` if the store is read-only.
    pub(crate) fn log(&self) -> Option<MutexGuard<'_, Log>> {
        match &self.role {
            Role::Writes { log, .. } => Some(log.lock().unwrap_or_else(PoisonError::into_inner)),
            Role::Reads(_) => None,
        }
    }

    /// Returns the engine, unless it is being reopened.
    pub(crate) fn env(&self) -> Option<Arc<Env>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to read everything that is visible at this moment.
    ///
    /// The caller keeps `self` alive as well, for the claim.
    pub(crate) fn begin(&self) -> Result<(ReadTxn, Layers), ReadError> {
        match &self.role {
            Role::Writes { .. } => self.view.begin(|| self.begin_read()),
            Role::Reads(follower) => {
                let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
                follower.begin(|| self.begin_read(), || self.claim.is_written())
            }
        }
    }

    /// Begins to read on behalf of the writer, for which a slot is reserved.
    pub(crate) fn begin_reserved(&self) -> Result<(ReadTxn, Layers), ReadError> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        self.view.begin(|| match reserved.take() {
            Some(idle) if !idle.env().is_retired() => idle.renew().map_err(ReadError::from_engine),
            _ => self.begin_new(),
        })
    }

    /// Ends a read that began with [`begin_reserved`](Environment::begin_reserved).
    pub(crate) fn end_reserved(&self, txn: ReadTxn) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        *reserved = (!txn.env().is_retired()).then(|| txn.reset());
    }

    fn begin_read(&self) -> Result<ReadTxn, ReadError> {
        match self.pool.take() {
            Some(Pooled::Fresh(txn)) => Ok(txn),
            Some(Pooled::Idle(idle)) if !idle.env().is_retired() => {
                idle.renew().map_err(ReadError::from_engine)
            }
            Some(Pooled::Idle(_)) | None => self.begin_new(),
        }
    }

    fn begin_new(&self) -> Result<ReadTxn, ReadError> {
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

    /// Whether a snapshot with this transaction, which shows the changes up to a position, shows
    /// everything.
    pub(crate) fn is_fresh(&self, txn: &ReadTxn, upto: u64) -> bool {
        // A process that reads would have to look at the log, as a new snapshot does.
        !self.is_read_only()
            && upto == self.view.position()
            && txn.id() == self.pool.committed()
            && !txn.env().is_retired()
    }

    /// Keeps a transaction for the next reader.
    pub(crate) fn end_read(&self, txn: ReadTxn) {
        // A read-only process does not learn of the commits of another process, so it keeps no
        // transaction that would retain the pages that the next commit frees.
        self.pool.give(txn, !self.is_read_only());
    }

    /// Makes the changes up to a position visible.
    pub(crate) fn publish(&self, position: u64) {
        self.view.publish(position);
        // Relaxed: a snapshot that expires a moment later does no harm.
        self.last_commit.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records a commit of LMDB: updates the pool, and frees the slots of dead readers from time to time.
    fn committed(&self, env: &Env) {
        let now = self.now();
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
    /// old snapshot that does not show the last commit of LMDB has expired.
    #[cold]
    fn is_outdated(&self, txn: &ReadTxn, expiry: u64) -> bool {
        !self.is_read_only()
            || (txn.id() != txn.env().last_txn() && self.began.elapsed().as_nanos() > expiry.into())
    }

    /// Returns the number of LMDB's commits since the oldest snapshot, here and in other processes.
    pub(crate) fn snapshot_lag(&self, env: &Env) -> Result<u64, ReadError> {
        let oldest = env.reader_txns().map_err(ReadError::from_engine)?.into_iter().min();
        Ok(oldest.map_or(0, |oldest| env.last_txn().saturating_sub(oldest)))
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
        let missing = || DatabaseError::Missing { name: name.into() };
        if !make && !self.is_read_only() {
            // No other process makes any.
            return Err(missing());
        }
        match self.log() {
            Some(mut log) => {
                // Another thread may have created it while this thread waited for the lock.
                if let Some(table_ref) = known() {
                    return fits(table_ref);
                }
                self.commit_in_engine(&mut log, 1, |env, at| {
                    let made = format::make_database(env, self.format, name, kind, at)?;
                    self.named().insert(name.into(), made);
                    Ok(made)
                })
                .map_err(DatabaseError::from_engine)
            }
            None => {
                let _writing = self.writing();
                let env = self.env().ok_or(DatabaseError::Recovering)?;
                let found = format::find_database(&env, self.format, name, kind);
                let found = found.map_err(DatabaseError::from_engine)?.ok_or_else(missing)?;
                self.named().insert(name.into(), found);
                fits(found)
            }
        }
    }

    /// Commits changes in LMDB at once, after everything that is in memory, and gives them the next
    /// `positions` of the log. The caller's transaction stores the point.
    pub(crate) fn commit_in_engine<T>(
        &self,
        log: &mut Log,
        positions: u64,
        commit: impl FnOnce(&Env, Point) -> Result<T, lmdb::Error>,
    ) -> Result<T, lmdb::Error> {
        if log.is_broken() {
            // A record of unknown outcome would be replayed over the changes.
            return Err(lmdb::Error::Panic);
        }
        self.drain(log)?;
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        let point = log.point();
        let at = Point { position: point.position + positions, ..point };
        let committed = self.examined(&env, commit(&env, at))?;
        log.skip_to(at.position);
        self.view.publish_commit(at.position, || self.committed(&env));
        Ok(committed)
    }

    /// Stores changes of a table beside the writer, as durably as the store is. The changes come in the
    /// order of their sort keys.
    pub(crate) fn load(&self, table: Table, mut changes: &[u8]) -> Result<(), LoadFailure> {
        let mut log = self.log().ok_or(LoadFailure::ReadOnly)?;
        self.drain(&log).map_err(LoadFailure::from_engine)?;
        // The entries lie side by side, so they need no copies of pages but those of one place.
        if !self.keeps_reserve(changes.len(), 1).map_err(LoadFailure::from_engine)? {
            return Err(LoadFailure::Full(io::ErrorKind::StorageFull.into()));
        }
        let stored = self.commit_in_engine(&mut log, 1, |env, at| {
            let mut txn = env.begin_write()?;
            let next = || Change::take(&mut changes);
            checkpoint::apply(&mut txn, table, next, &mut { UNBOUNDED })?;
            format::put_applied(&mut txn, self.format, at)?;
            txn.commit()
        });
        stored.map_err(LoadFailure::from_engine)
    }

    /// Commits changes of a memtable, which are `count`, in a single transaction of LMDB.
    pub(crate) fn write_at_once(
        &self,
        log: &mut Log,
        memtable: Memtable,
        count: u32,
    ) -> Result<(), lmdb::Error> {
        self.commit_in_engine(log, count.into(), |env, at| {
            checkpoint::write(env, self.format, Arc::new(memtable), at, false, |_| {})
        })
    }

    /// Freezes the active memtable for the next checkpoint. There is no frozen memtable.
    pub(crate) fn freeze(&self, log: &Log) {
        let expected = self.view.memtables()[0].changes();
        self.view.freeze(Memtable::new(self.tables_max(), expected), log.point());
        self.ask_for_room();
        self.checkpoints.advance(0, 1);
        self.checkpoints.ask();
    }

    /// Makes the writer ask for room again before the next group.
    fn ask_for_room(&self) {
        // Relaxed: the writer may use the old answer once more.
        self.room.iter().for_each(|room| room.store(0, Ordering::Relaxed));
    }

    /// Freezes the active memtable if it has changes and no commit is in progress.
    pub(crate) fn freeze_if_free(&self) {
        let Role::Writes { log, .. } = &self.role else { return };
        let log = match log.try_lock() {
            Ok(log) => log,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if self.view.memtables()[0].changes() > 0 && self.view.frozen().is_none() {
            self.freeze(&log);
        }
    }

    /// Writes the frozen memtable to LMDB, if there is one.
    pub(crate) fn checkpoint(&self) -> Result<(), lmdb::Error> {
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        self.write_frozen(&env)
    }

    /// Writes everything in memory to LMDB. The caller holds the log.
    pub(crate) fn drain(&self, log: &Log) -> Result<(), lmdb::Error> {
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        self.write_frozen(&env)?;
        if self.view.memtables()[0].changes() > 0 {
            self.freeze(log);
            self.write_frozen(&env)?;
        }
        Ok(())
    }

    fn write_frozen(&self, env: &Env) -> Result<(), lmdb::Error> {
        let Some((memtable, at)) = self.view.frozen() else { return Ok(()) };
        // Readers that come meanwhile see a part of the checkpoint, and do not retain the pages that it frees.
        let report = |event| match event {
            Event::Apply { done, all } => self.checkpoints.advance(done, all),
            Event::Committed => self.pool.sweep(env.last_txn()),
        };
        let began = Instant::now();
        let written = checkpoint::write(env, self.format, memtable, at, true, report);
        self.ask_for_room();
        self.examined(env, written)?;
        self.checkpoints.count(began.elapsed());
        self.committed(env);
        self.view.drop_frozen();
        if let Role::Writes { archive, .. } = &self.role {
            archive.release(at.position);
        }
        Ok(())
    }

    /// Makes the checkpoint thread reopen the engine after an error that calls for it.
    fn examined<T>(&self, env: &Env, result: Result<T, lmdb::Error>) -> Result<T, lmdb::Error> {
        if result.is_err() && matches!(env.begin_write(), Err(lmdb::Error::Panic)) {
            self.is_engine_broken.store(true, Ordering::Release);
            self.checkpoints.ask();
        }
        result
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes everything to the disk, also in a volatile store. The caller holds the log.
    pub(crate) fn sync(&self, log: &mut Log) -> io::Result<()> {
        if self.settings.no_sync {
            self.drain(log).map_err(lmdb::Error::into_io)?;
            let env = self.env().ok_or_else(|| lmdb::Error::Panic.into_io())?;
            env.sync().map_err(lmdb::Error::into_io)?;
        }
        log.sync()
    }

    /// Returns the number of reader slots taken by snapshots, here and in other processes.
    pub(crate) fn readers(&self, env: &Env) -> u32 {
        env.readers().saturating_sub(RESERVED)
    }

    /// Writes everything in memory to LMDB at the end of a store. If that fails, the log has it.
    pub(crate) fn close(&self) {
        if let Some(log) = self.log() {
            let _ = self.drain(&log);
        }
    }

    /// Returns the named databases, in order.
    pub(crate) fn databases(&self) -> Vec<(String, TableRef)> {
        self.named().iter().map(|(name, table_ref)| (name.clone(), *table_ref)).collect()
    }

    fn named(&self) -> MutexGuard<'_, BTreeMap<String, TableRef>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the engine and reopens it once the last snapshot is dropped; meanwhile nothing can be
    /// read. Polls `go_on` at each interval, and gives up if that is false.
    pub(crate) fn reopen(&self, interval: Duration, go_on: impl Fn() -> bool) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(env) = self.set_current(None) {
            env.retire();
            self.pool.clear();
            drop(self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take());
            drop(env);
        }
        loop {
            match closed.recv_timeout(interval) {
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) if go_on() => continue,
                Err(RecvTimeoutError::Timeout) => return,
                Ok(never) => match never {},
            }
            if let Some((env, new_closed)) = self.open_again() {
                *closed = new_closed;
                self.pool.sweep(env.last_txn());
                self.set_current(Some(env));
                // Release: a thread that sees the engine whole also finds it in `current`.
                self.is_engine_broken.store(false, Ordering::Release);
                return;
            }
            if !go_on() {
                return;
            }
            std::thread::sleep(interval);
        }
    }

    /// Opens the engine again, with the same tables under the same numbers; `None` if that fails.
    fn open_again(&self) -> Option<(Arc<Env>, Closed)> {
        let path = self.claim.path();
        let Opened { env, closed, databases } =
            open_engine(&self.claim, &self.settings, path).ok()?;
        let applied = format::applied(&env.begin_read().ok()?, databases.format).ok()?;
        let mut log = self.log()?;
        if !self.settings.no_sync {
            settle_meta(&env, path).ok()?;
        }
        // The commit that failed may be in memory only: another one decides.
        format::settle_applied(&env, databases.format, applied).ok()?;
        if applied.position > log.point().position {
            log.skip_to(applied.position);
            self.view.publish(applied.position);
        }
        let reserved = env.begin_read().ok()?.reset();
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(reserved);
        *self.named() = databases.named;
        Some((env, closed))
    }

    fn set_current(&self, env: Option<Arc<Env>>) -> Option<Arc<Env>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, env)
    }

    /// Copies the current state into a new store in `directory`, durably.
    pub(crate) fn copy_to(&self, directory: &Path) -> io::Result<()> {
        let (_retention, access) = match &self.role {
            Role::Writes { archive, .. } => (Some(archive.hold()), Access::Read),
            Role::Reads(_) if self.claim.is_written()? => (None, Access::Read),
            Role::Reads(_) => (None, Access::ReadAll),
        };
        // The copy is compact if LMDB has everything; otherwise the log has the rest.
        let _ = self.checkpoint();
        self.freeze_if_free();
        let _ = self.checkpoint();
        let recovering = || io::Error::other(ReadError::Recovering.to_string());
        let env = self.env().ok_or_else(recovering)?;
        let log = self.location();
        let rest = Rest { log: &log, access, after: None, until: Until::End };
        draft::copy_store(&env, rest, &self.settings, self.checkpoint_bytes, directory)
            .map_err(RestoreError::into_io)?;
        Ok(())
    }

    /// Copies this store, which is a backup, into a new store in `directory`, with the changes that a log
    /// has after it, up to a moment.
    pub(crate) fn restore_to(
        &self,
        directory: &Path,
        log: &Path,
        until: Until,
    ) -> Result<Restored, RestoreError> {
        let (txn, layers) = self.begin()?;
        let refused = |error: lmdb::Error| RestoreError::Io(error.into_io());
        let applied = format::applied(&txn, self.format).map_err(refused)?;
        let origin = format::origin(&txn, self.format).map_err(refused)?;
        let path = || self.claim.shown().into();
        let origin = origin.ok_or_else(|| RestoreError::NotACopy { path: path() })?;
        let format::Origin { store, point: after, time } = origin;
        if applied.position != after.position || layers.upto != after.position {
            return Err(RestoreError::Changed { path: path() });
        }
        let is_later = match until {
            Until::End => false,
            Until::Position(until) => until < after.position,
            Until::Time(until) => until < time_of(time),
        };
        if is_later {
            return Err(RestoreError::Later { position: after.position, time: time_of(time) });
        }
        let (source, platform) = (log.into(), self.settings.platform.clone());
        let log =
            Location { directory: source, platform, store, is_durable: false, is_kept: false };
        let rest = Rest { log: &log, access: Access::Kept, after: Some((after, time)), until };
        let env = txn.env();
        draft::copy_store(env, rest, &self.settings, self.checkpoint_bytes, directory)
    }

    pub(crate) fn location(&self) -> Location {
        let directory = self.claim.path().join(LOG);
        let is_durable = !self.settings.no_sync;
        let platform = self.settings.platform.clone();
        Location { directory, platform, store: self.store, is_durable, is_kept: false }
    }

    /// Returns the size of the log, in bytes.
    pub(crate) fn log_bytes(&self) -> Result<u64, ReadError> {
        log::bytes(&self.location()).map_err(ReadError::Io)
    }

    /// Returns the memory of the changes since the last checkpoint, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let memtables = match &self.role {
            Role::Writes { .. } => self.view.memtables(),
            Role::Reads(follower) => {
                follower.lock().unwrap_or_else(PoisonError::into_inner).memtables().clone()
            }
        };
        memtables.iter().map(|memtable| memtable.bytes() as u64).sum()
    }

    /// Returns the size of the data file, in bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64, ReadError> {
        let env = self.env().ok_or(ReadError::Recovering)?;
        env.file_bytes().map_err(ReadError::Io)
    }
}

/// Longest name of a database, in bytes.
const DATABASE_NAME_BYTES_MAX: usize = 500;
/// Time between two searches for readers of dead processes.
const STALE_INTERVAL: Duration = Duration::from_secs(10);
/// Number of reader slots that are reserved for the writer.
pub(crate) const RESERVED: u32 = 1;

/// Returns a number above all numbers of tables: LMDB has two of its own.
pub(crate) fn tables_of(settings: &Settings) -> usize {
    settings.tables_max as usize + 2
}

/// Claims the directory.
pub(crate) fn enter(directory: &Path, options: &Options) -> Result<Claim, OpenError> {
    let refused = |source| OpenError::Io { path: directory.into(), source };
    match options {
        Options { read_only: false, .. } => {
            private::create_directory(directory)
                .map_err(|source| OpenError::from_io(source, directory))?;
            Claim::to_write(directory)
        }
        Options { check, .. } => {
            // The engine would create its table of readers before it found that there is no data.
            fs::metadata(directory.join(DATA_FILE)).map_err(|error| {
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                match is_missing && directory.join(LOG).exists() {
                    true => OpenError::Corrupt { path: directory.into(), reason: draft::lost() },
                    false => refused(error),
                }
            })?;
            // Pages written during the check would look damaged.
            if *check { Claim::to_read_alone(directory) } else { Claim::to_read(directory) }
        }
    }
}

/// Puts the meta pages on the disk as they are seen. That of a commit that failed may be on the disk only, and the next
/// transaction writes over pages of that commit.
fn settle_meta(env: &Env, directory: &Path) -> io::Result<()> {
    pages::rewrite_metas(&directory.join(DATA_FILE), env.page_bytes())?;
    env.sync().map_err(lmdb::Error::into_io)
}

/// Opens the engine and its tables.
fn open_engine(claim: &Claim, settings: &Settings, directory: &Path) -> Result<Opened, OpenError> {
    let engine = |error| match error {
        lmdb::Error::Io(source) if claim.is_read_only() => {
            OpenError::Io { path: directory.into(), source }
        }
        error => OpenError::from_engine(error, directory),
    };
    let (env, closed) = Env::open(claim, settings).map_err(engine)?;
    // The slots of killed readers would pin old pages for ever. An environment on a read-only
    // file system has no slots.
    if !claim.is_read_only() {
        env.clear_stale_readers().map_err(engine)?;
    }
    let databases = format::open_databases(&env, directory, claim.is_read_only())?;
    Ok(Opened { env, closed, databases })
}

impl Damage {
    pub(crate) fn into_open_error(self, directory: &Path) -> OpenError {
        let path = directory.into();
        match self {
            Damage::Foreign => OpenError::Foreign { path },
            Damage::Found(reason) => OpenError::Corrupt { path, reason },
            Damage::Io(source) => OpenError::Io { path, source },
        }
    }
}
