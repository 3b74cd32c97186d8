//! [`Readers`]: read transactions of LMDB, each with the changes in memory that lie over it.
//!
//! Snapshots hold the readers by `Arc`, and these hold the engine and the claim on its directory. So a
//! directory is free again once the store and its last snapshot are dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::disk::engine::Engine;
use crate::disk::lmdb::{self, Env, IdleTxn, ReadTxn};
use crate::disk::settings::{RESERVED, tables_of};
use crate::memtable::Layers;
use crate::platform::Epoch;
use crate::read::follower::Follower;
use crate::read::pool::{Pool, Pooled};
use crate::read::view::View;
use crate::{Options, ReadError};

/// Time between two searches for readers of dead processes.
const STALE_INTERVAL: Duration = Duration::from_secs(10);

/// Read transactions of a store; see the file's head. The engine is dropped last.
#[derive(Debug)]
pub(crate) struct Readers {
    pool: Pool,
    /// Transaction of the writer, which never lacks a reader slot; `None` while it is in use.
    reserved: Mutex<Option<IdleTxn>>,
    view: View,
    /// The log of another process that writes, in a read-only store.
    follower: Option<Mutex<Follower>>,
    /// Id by which the handles of databases know their store.
    id: u64,
    verify_reads: bool,
    snapshot_age_max: Duration,
    began: Epoch,
    /// Time of the last commit, in nanoseconds since `began`; `u64::MAX` in a read-only store.
    last_commit: AtomicU64,
    /// Time of the last search for readers of dead processes, on the same clock.
    last_stale_check: AtomicU64,
    engine: Engine,
}

impl Readers {
    /// Creates the readers of a store: a read-only one has a follower.
    pub(crate) fn new(
        engine: Engine,
        reserved: IdleTxn,
        (view, follower): (View, Option<Follower>),
        options: &Options,
    ) -> Readers {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let readers = Readers {
            pool: Pool::default(),
            reserved: Mutex::new(Some(reserved)),
            view,
            // Relaxed: the id only has to be unique.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            verify_reads: options.verify_reads,
            snapshot_age_max: options.snapshot_age_max,
            began: options.platform.clock.begin(),
            last_commit: AtomicU64::new(if follower.is_some() { u64::MAX } else { 0 }),
            follower: follower.map(Mutex::new),
            last_stale_check: AtomicU64::new(0),
            engine,
        };
        if let Some(env) = readers.engine.env() {
            readers.pool.sweep(env.last_txn());
        }
        readers
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.follower.is_some()
    }

    pub(crate) fn verify_reads(&self) -> bool {
        self.verify_reads
    }

    pub(crate) fn tables_max(&self) -> usize {
        tables_of(self.engine.settings())
    }

    /// Begins to read everything that is visible at this moment.
    ///
    /// The caller keeps `self` alive as well, for the claim.
    pub(crate) fn begin(&self) -> Result<(ReadTxn, Layers), ReadError> {
        match &self.follower {
            None => self.view.begin(|| self.begin_read()),
            Some(follower) => {
                let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
                follower.begin(|| self.begin_read(), || self.engine.claim().is_written())
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
        let env = self.engine.env().ok_or(ReadError::Recovering)?;
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

    /// Keeps a transaction for the next reader.
    pub(crate) fn end_read(&self, txn: ReadTxn) {
        // A read-only process does not learn of the commits of another process, so it keeps no
        // transaction that would retain the pages that the next commit frees.
        self.pool.give(txn, !self.is_read_only());
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

    /// Makes the changes up to a position visible.
    pub(crate) fn publish(&self, position: u64) {
        self.view.publish(position);
        // Relaxed: a snapshot that expires a moment later does no harm.
        self.last_commit.store(self.now(), Ordering::Relaxed);
    }

    /// Makes visible what LMDB got at once, with the changes before it.
    pub(crate) fn publish_commit(&self, position: u64, env: &Env) {
        self.view.publish_commit(position, || self.committed(env));
    }

    /// Makes new readers see the last commit of LMDB.
    pub(crate) fn sweep(&self, env: &Env) {
        self.pool.sweep(env.last_txn());
    }

    /// Ends all transactions that wait for readers, so that the engine can be closed.
    pub(crate) fn clear(&self) {
        self.pool.clear();
        drop(self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Sets the transaction of the writer after the engine was opened again.
    pub(crate) fn reserve(&self, idle: IdleTxn) {
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(idle);
    }

    /// Records a commit of LMDB: updates the pool, and frees the slots of dead readers from time to time.
    pub(crate) fn committed(&self, env: &Env) {
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

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
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

    /// Returns the number of reader slots taken by snapshots, here and in other processes.
    pub(crate) fn slots(&self, env: &Env) -> u32 {
        env.readers().saturating_sub(RESERVED)
    }

    /// Returns the memory of the changes since the last checkpoint, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let memtables = match &self.follower {
            None => self.view.memtables(),
            Some(follower) => {
                follower.lock().unwrap_or_else(PoisonError::into_inner).memtables().clone()
            }
        };
        memtables.iter().map(|memtable| memtable.bytes() as u64).sum()
    }
}
