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
//! ```text
//! Environment  the log, checkpoints, databases, room: for the writer
//!      └──► Readers  transactions and the view: for snapshots
//!              └──► Engine  LMDB, which may be reopened, and the claim
//! ```
//!
//! The log and the memtables have everything since the last checkpoint while LMDB is reopened.
//!
//! Lock order: the log, then `writing`, then the memtables of the view; `named` comes last.

mod commits;
mod copies;
mod databases;
mod room;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::checkpoint::Checkpoints;
use crate::disk::engine::Engine;
use crate::disk::lmdb::{self, Closed, Env};
use crate::disk::opening::{Opened, open_engine, prepare, settle_meta};
use crate::disk::recovery::recover;
use crate::disk::reserve::Reserve;
use crate::disk::settings::tables_of;
use crate::disk::{LOG, format};
use crate::log::{self, Archive, Location, Log};
use crate::memtable::Memtable;
use crate::read::follower::Follower;
use crate::read::readers::Readers;
use crate::read::view::View;
use crate::table::{Table, TableRef};
use crate::write::sequencer::Stamp;
use crate::{OpenError, Options, ReadError};

/// The open files of a store; see the file's head.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The log of a store that writes, and the segments before it.
    log: Option<(Mutex<Log>, Arc<Archive>)>,
    /// Held while LMDB is written.
    writing: Mutex<()>,
    checkpoints: Checkpoints,
    checkpoint_bytes: usize,
    format: Table,
    store: u64,
    entries: TableRef,
    named: Mutex<BTreeMap<String, TableRef>>,
    /// Bytes in memory and changes in the active memtable for which there was room in LMDB.
    room: [AtomicUsize; 2],
    /// Room on the disk for deletions; `None` in a read-only store.
    reserve: Option<Reserve>,
    /// Last, because it holds the claim: all else is closed before another process may have the directory.
    readers: Arc<Readers>,
}

impl Environment {
    /// Opens the environment in `directory`, and creates both if they do not exist.
    pub(crate) fn open(directory: &Path, options: &Options) -> Result<Environment, OpenError> {
        let claim = prepare(directory, options)?;
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
        let (log, view, follower) = if options.read_only {
            let mut follower = Follower::new(location, databases.format, tables, checkpoint_bytes);
            let begin = || env.begin_read().map_err(ReadError::from_engine);
            let began = follower.begin(begin, || claim.is_written());
            began.map_err(|error| OpenError::from_read(error, directory))?;
            (None, View::new(Memtable::new(tables, 0), 0), Some(follower))
        } else {
            if location.is_durable {
                // A volatile store flushes nothing.
                settle_meta(&env, claim.path())
                    .map_err(|source| OpenError::Io { path: directory.into(), source })?;
            }
            let (mut log, memtable) = recover(&env, databases.format, &location, tables, options)
                .map_err(|damage| damage.into_open_error(directory))?;
            let txn = env.begin_read().map_err(|error| OpenError::from_engine(error, directory))?;
            let stamp = format::stamp(&txn, databases.format);
            drop(txn);
            let stamp = stamp.map_err(|error| OpenError::from_engine(error, directory))?;
            if let Some(stamp) = stamp_of_copy(stamp, log.point().position, options, directory)? {
                log.stamp_at(stamp);
            }
            let view = View::new(memtable, log.point().position);
            let archive = log.archive();
            (Some((Mutex::new(log), archive)), view, None)
        };
        let reserved =
            env.begin_read().map_err(|error| OpenError::from_engine(error, directory))?.reset();
        let reserve = (!options.read_only).then(|| {
            let files = options.platform.files.clone();
            Reserve::hold(files, claim.path(), env.map_bytes())
        });
        let engine = Engine::new(claim, settings, env, closed);
        Ok(Environment {
            readers: Arc::new(Readers::new(engine, reserved, (view, follower), options)),
            log,
            writing: Mutex::new(()),
            checkpoints: Checkpoints::default(),
            checkpoint_bytes,
            format: databases.format,
            store: databases.store,
            entries: databases.entries,
            named: Mutex::new(databases.named),
            room: [AtomicUsize::new(0), AtomicUsize::new(0)],
            reserve,
        })
    }

    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.readers.engine()
    }

    pub(crate) fn view(&self) -> &View {
        self.readers.view()
    }

    /// Returns LMDB, unless it is being reopened.
    pub(crate) fn env(&self) -> Option<Arc<Env>> {
        self.engine().env()
    }

    pub(crate) fn id(&self) -> u64 {
        self.readers.id()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.log.is_none()
    }

    /// Whether threads write and make checkpoints. Otherwise a simulation makes their steps.
    pub(crate) fn has_threads(&self) -> bool {
        self.engine().settings().platform.has_threads
    }

    pub(crate) fn since_1970(&self) -> Duration {
        self.engine().settings().platform.clock.since_1970()
    }

    pub(crate) fn entries(&self) -> TableRef {
        self.entries
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    pub(crate) fn checkpoint_bytes(&self) -> usize {
        self.checkpoint_bytes
    }

    /// Locks the log; `None` if the store is read-only.
    pub(crate) fn log(&self) -> Option<MutexGuard<'_, Log>> {
        let (log, _) = self.log.as_ref()?;
        Some(log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Flushes everything to the disk, also in a volatile store. The caller holds the log.
    pub(crate) fn sync(&self, log: &mut Log) -> io::Result<()> {
        if self.engine().settings().no_sync {
            self.drain(log).map_err(lmdb::Error::into_io)?;
            let env = self.env().ok_or_else(|| lmdb::Error::Panic.into_io())?;
            env.sync().map_err(lmdb::Error::into_io)?;
        }
        log.sync()
    }

    /// Writes everything in memory to LMDB at the end of a store. If that fails, the log has it.
    pub(crate) fn close(&self) {
        if let Some(log) = self.log() {
            let _ = self.drain(&log);
        }
    }

    /// Closes LMDB and reopens it once the last snapshot is dropped; meanwhile nothing can be read. Polls
    /// `go_on` at each interval, and gives up if that is false.
    pub(crate) fn reopen(&self, interval: Duration, go_on: impl Fn() -> bool) {
        if let Some(env) = self.engine().take() {
            env.retire();
            self.readers.clear();
        }
        self.engine().reopen(interval, go_on, || self.open_again());
    }

    /// Opens the engine again, with the same tables under the same numbers; `None` if that fails.
    fn open_again(&self) -> Option<(Arc<Env>, Closed)> {
        let (claim, settings) = (self.engine().claim(), self.engine().settings());
        let path = claim.path();
        let Opened { env, closed, databases } = open_engine(claim, settings, path).ok()?;
        let applied = format::applied(&env.begin_read().ok()?, databases.format).ok()?;
        let mut log = self.log()?;
        if !settings.no_sync {
            settle_meta(&env, path).ok()?;
        }
        // The commit that failed may be in memory only: another one decides.
        format::settle_applied(&env, databases.format, applied).ok()?;
        if applied.position > log.point().position {
            log.skip_to(applied.position);
            self.view().publish(applied.position);
        }
        self.readers.reserve(env.begin_read().ok()?.reset());
        *self.named() = databases.named;
        self.readers.sweep(&env);
        Some((env, closed))
    }

    pub(crate) fn location(&self) -> Location {
        let directory = self.engine().claim().path().join(LOG);
        let is_durable = !self.engine().settings().no_sync;
        let platform = self.engine().settings().platform.clone();
        Location { directory, platform, store: self.store, is_durable, is_kept: false }
    }

    pub(crate) fn log_bytes(&self) -> Result<u64, ReadError> {
        log::bytes(&self.location()).map_err(ReadError::Io)
    }
}

/// Returns the state of the shared log of which the store is a copy, if it is one and opened as such.
fn stamp_of_copy(
    stored: Option<Stamp>,
    position: u64,
    options: &Options,
    directory: &Path,
) -> Result<Option<Stamp>, OpenError> {
    match (stored, options.sequencer.is_some()) {
        (Some(_), false) => Err(OpenError::Shared { path: directory.into() }),
        (None, true) if position == 0 => Ok(Some(Stamp::START)),
        (None, true) => Err(OpenError::Single { path: directory.into() }),
        (stored, _) => Ok(stored),
    }
}
