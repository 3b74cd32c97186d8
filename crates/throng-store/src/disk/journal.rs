//! [`Journal`]: makes a commit durable with a single flush of a file that is written sequentially.
//!
//! The engine alone needs two flushes for each commit, and the pages of a commit are scattered over
//! its file. So the engine does not flush at all; before each commit its changes are written to the
//! journal, and the journal is flushed. From time to time the data file is flushed as well, in the
//! background: a *checkpoint*. After a crash the data file is restored to the last checkpoint, and
//! the records that follow are applied again.
//!
//! ```text
//! journal.0 │ head 40 │ 41 42 43 44 45 │                      checkpoint 45 begins: the data file
//! journal.1 │ ------- │ ░░ ░░                                 is flushed while 46, 47 … go on
//!
//! journal.0 │ head 40 │ 41 42 43 44 45 │
//! journal.1 │ head 45 │ 46 47 │                               it is there: journal.0 is free
//! ```
//!
//! A group of writes may be in the journal for a while before it is committed in the engine (see
//! `deferred.rs`), so a checkpoint begins only when no group is deferred.
//!
//! A volatile store, whose writes survive this process but not a power failure, works the same way
//! without any flush: the operating system has the writes.
//!
//! The state to which the data file is restored must still be in it. The engine does not overwrite
//! a page that a reader may see; so a read transaction is kept on the state of the last checkpoint,
//! and only the two meta pages, which point to that state, are overwritten. The head holds a copy
//! of them.
//!
//! Invariants:
//! - A record is durable before its callers are acknowledged and before readers see its changes; a
//!   rolled-back record is erased before its callers learn of the failure.
//! - A head exists from the moment at which the file `journal.0` has its name. A head is
//!   overwritten only when the other head is durable and newer, and a record only when a head
//!   includes it.
//! - `pin` and `under_way` hold the state of the newest head that may be durable, and the state of
//!   the head before until the newest is certainly durable.
//! - Records have consecutive numbers. A missing record before an existing record is damage, and so
//!   is a missing head that a record refers to. Only the last record may be torn.
//!
//! A store that is opened, in this or another process, goes through [`Recovery`].

mod files;
mod log;
mod recovery;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::disk::claim::Claim;
use crate::disk::lmdb::{self, Env, IdleTxn, ReadTxn, Table};
use crate::disk::pages::{Damage, Metas};
use crate::disk::pins::Pins;
use crate::disk::private;
use crate::error::is_lack_of_room;
pub(crate) use files::write_at;
use files::{Head, RECORDS_START};
use log::KEPT_BYTES_MAX;
pub(crate) use log::Log;
pub(crate) use recovery::Recovery;

/// The journal of a store that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    files: [Arc<File>; 2],
    /// The data file, for reading its meta pages.
    data: File,
    salt: u64,
    /// Index of the file with the newest durable head. Records go to that file, or to the other
    /// file while a checkpoint is in progress.
    head_at: usize,
    /// Generation of the newest durable head.
    generation: u64,
    /// Number of the last record written.
    number: u64,
    /// Number of the last record committed in the engine.
    committed: u64,
    /// Offset of the next record.
    end: u64,
    /// Lengths of the files, in bytes.
    lengths: [u64; 2],
    /// Read transaction that holds the state of the newest durable head.
    pin: ReadTxn,
    /// Reader slot for the next pin, reserved for the life of the journal.
    spare: Option<IdleTxn>,
    /// Read transaction that holds the state of a checkpoint that is not durable yet.
    under_way: Option<ReadTxn>,
    /// Publishes the commits of both read transactions.
    pins: Pins,
    /// Size of the used part of the data file when the last checkpoint began, in bytes.
    used_bytes: u64,
    /// Whether a checkpoint failed. The operating system may have dropped the pages it failed to
    /// write, so only a recovery helps.
    is_broken: bool,
    config: JournalConfig,
    /// Empty buffer, reused for the next record.
    record: Vec<u8>,
    /// Empty log, reused for the next commit.
    log: Log,
    flusher: Flusher,
}

/// Configuration of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalConfig {
    /// Bytes of records after which a checkpoint is due.
    pub(crate) checkpoint_bytes: u64,
    /// Whether writes must survive a power failure.
    pub(crate) is_durable: bool,
}

/// Result of writing a record.
#[derive(Debug)]
pub(crate) struct Recorded {
    bytes: u64,
    /// Time that the flush took.
    pub(crate) flush: Duration,
}

/// Reason why nothing was committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The journal could not be written. Rolled back.
    Journal(io::Error),
    /// The engine failed. Rolled back, unless the engine refuses further work.
    Engine(lmdb::Error),
    /// The record may or may not be durable: the engine must be reopened.
    Unknown(io::Error),
    /// A checkpoint failed before: the engine must be reopened.
    Recovering,
}

/// Number of reader slots that a journal takes.
pub(crate) const PINS: u32 = 2;

/// The data file may grow by this multiple of `checkpoint_bytes` before a checkpoint is due.
const GROWTH: u64 = 2;

/// The writer waits for the checkpoint in progress once the records exceed this multiple of
/// `checkpoint_bytes`.
const LAG_MAX: u64 = 8;

impl Journal {
    /// Starts the journal of all following commits; everything committed before is made durable
    /// first.
    pub(crate) fn start(
        env: &Arc<Env>,
        claim: &Claim,
        data_file: &Path,
        recovery: Option<Recovery>,
        config: JournalConfig,
    ) -> Result<Journal, Damage> {
        let engine = |error: lmdb::Error| Damage::Io(error.into_io());
        let pin = env.begin_read().map_err(engine)?;
        let spare = env.begin_read().map_err(engine)?.reset();
        let mut data = File::open(data_file)?;
        let salt = salt()?;
        let (files, newest) = match recovery {
            Some(Recovery { files, found: Some(found) }) => (files, Some(found)),
            _ => {
                env.sync().map_err(engine)?;
                let metas = Metas::read(&mut data)?;
                (make(claim.path(), &Head { salt, generation: 0, number: 0, metas })?, None)
            }
        };
        let lengths = [files[0].metadata()?.len(), files[1].metadata()?.len()];
        let mut journal = Journal {
            files: files.map(Arc::new),
            data,
            salt,
            head_at: newest.as_ref().map_or(0, |newest| newest.at),
            generation: newest.as_ref().map_or(0, |newest| newest.head.generation),
            number: newest.as_ref().map_or(0, |newest| newest.last),
            committed: newest.as_ref().map_or(0, |newest| newest.last),
            end: RECORDS_START,
            lengths,
            pin,
            spare: Some(spare),
            under_way: None,
            pins: claim.pins(),
            used_bytes: env.used_bytes(),
            is_broken: false,
            config,
            record: Vec::new(),
            log: Log::default(),
            flusher: Flusher::start()?,
        };
        journal.publish_pins();
        if newest.is_some() {
            // The recovered head has another salt, and the state before the applied records.
            journal.checkpoint(env)?;
            for file in &journal.files {
                file.unlock()?;
            }
        }
        Ok(journal)
    }

    /// Writes and flushes the group's record. Returns `None` if the group changed nothing.
    pub(crate) fn record(
        &mut self,
        env: &Arc<Env>,
        log: &Log,
        name: impl Fn(Table) -> Option<String>,
    ) -> Result<Option<Recorded>, Failed> {
        if log.is_recorded() {
            return Ok(None);
        }
        let is_far_behind = self.end > self.config.checkpoint_bytes.saturating_mul(LAG_MAX);
        self.settle(is_far_behind).map_err(|_| Failed::Recovering)?;
        let mut record = mem::take(&mut self.record);
        files::record(&mut record, self.salt, self.generation, self.number + 1, |bytes| {
            log.write(bytes, name);
        });
        let bytes = record.len() as u64;
        let mut written = self.write(&record);
        // A checkpoint needs no room, and frees the room of the old records.
        if written.as_ref().is_err_and(is_lack_of_room) && self.checkpoint(env).is_ok() {
            written = self.write(&record);
        }
        record.clear();
        record.shrink_to(KEPT_BYTES_MAX);
        self.record = record;
        written.map_err(Failed::Journal)?;
        let began = Instant::now();
        self.flush(self.current()).map_err(Failed::Unknown)?;
        let recorded = Recorded { bytes, flush: began.elapsed() };
        self.number += 1;
        self.end += recorded.bytes;
        Ok(Some(recorded))
    }

    /// Erases the last record, so that recovery does not find it.
    pub(crate) fn take_back(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.number -= 1;
        self.end -= recorded.bytes;
        files::write_at(self.current(), &[0; files::SECTOR_BYTES as usize], self.end)?;
        self.flush(self.current())
    }

    /// Returns an empty log for a commit.
    pub(crate) fn take_log(&mut self) -> Log {
        mem::take(&mut self.log)
    }

    /// Keeps the log of a completed commit, which is empty then, for the next commit.
    pub(crate) fn keep_log(&mut self, log: Log) {
        self.log = log;
    }

    /// Makes other processes wait before they read, as long as the returned guard lives. Returns
    /// `None` if another process reads already.
    pub(crate) fn close_reader_gate(&self) -> Option<ReaderGate> {
        let file = self.files[1].clone();
        file.try_lock().is_ok().then_some(ReaderGate(file))
    }

    /// Marks everything recorded as committed in the engine, and begins a checkpoint if it is due.
    pub(crate) fn committed(&mut self, env: &Arc<Env>) {
        self.committed = self.number;
        if self.under_way.is_none() && self.is_due(env) {
            // If the checkpoint cannot begin, the next commit tries again.
            let _ = self.begin_checkpoint(env, self.config.is_durable);
        }
    }

    /// Makes a checkpoint, which makes commits without a record as durable as the others.
    pub(crate) fn checkpoint(&mut self, env: &Arc<Env>) -> io::Result<()> {
        self.settle(true)?;
        self.begin_checkpoint(env, self.config.is_durable)?;
        self.settle(true)
    }

    /// Makes everything committed survive a power failure, until the next commit at least.
    pub(crate) fn sync(&mut self, env: &Arc<Env>) -> io::Result<()> {
        if self.config.is_durable {
            return Ok(());
        }
        self.settle(true)?;
        self.begin_checkpoint(env, true)?;
        self.settle(true)?;
        self.files[1 - self.head_at].sync_data()
    }

    /// Releases the pages pinned by the last checkpoint. Returns whether there were any.
    pub(crate) fn free_pages(&mut self, env: &Arc<Env>) -> bool {
        self.pin.id() != env.last_txn() && self.checkpoint(env).is_ok()
    }

    /// Closes the journal: leaves a data file that is complete by itself, and a short journal
    /// without records, because the next opening reads the whole journal.
    pub(crate) fn close(&mut self, env: &Arc<Env>) -> io::Result<()> {
        self.checkpoint(env)?;
        for (file, length) in self.files.iter().zip(&mut self.lengths) {
            file.set_len(LENGTH_MIN)?;
            *length = LENGTH_MIN;
        }
        // The other file holds the old head, which is erased.
        self.flush(&self.files[1 - self.head_at])
    }

    /// Flushes the file, if the store is durable.
    fn flush(&self, file: &File) -> io::Result<()> {
        if self.config.is_durable { file.sync_data() } else { Ok(()) }
    }

    /// Returns the file for the next record.
    fn current(&self) -> &File {
        &self.files[self.current_at()]
    }

    fn current_at(&self) -> usize {
        if self.under_way.is_some() { 1 - self.head_at } else { self.head_at }
    }

    /// Writes a record after the last record, without counting it yet.
    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let at = self.current_at();
        let end = self.end + record.len() as u64;
        files::write_at(&self.files[at], record, self.end)?;
        if end > self.lengths[at] {
            self.lengths[at] = end;
            // A growing file takes far longer to flush than an overwritten file; so the file grows
            // in large steps, of zeros. If there is no room for a step, the file does without it.
            let step = end.clamp(STEP_MIN, STEP_MAX);
            if files::write_at(&self.files[at], &vec![0; step as usize], end).is_ok() {
                self.lengths[at] = end + step;
            }
        }
        Ok(())
    }

    fn is_due(&self, env: &Env) -> bool {
        let growth = env.used_bytes().saturating_sub(self.used_bytes);
        let due = self.config.checkpoint_bytes;
        self.end - RECORDS_START > due
            || growth > due.saturating_mul(GROWTH).max(self.used_bytes / 8)
    }

    fn begin_checkpoint(&mut self, env: &Arc<Env>, flush: bool) -> io::Result<()> {
        if self.committed != self.number {
            return Err(io::Error::other("there are records of what is not committed"));
        }
        let pin = match self.spare.take() {
            Some(idle) => idle.renew(),
            None => env.begin_read(),
        };
        let pin = pin.map_err(lmdb::Error::into_io)?;
        let metas = Metas::read(&mut self.data).map_err(Damage::into_io)?;
        let (salt, generation) = (self.salt, self.generation + 1);
        let head = Head { salt, generation, number: self.number, metas };
        let [old, new] = [self.head_at, 1 - self.head_at].map(|at| self.files[at].clone());
        let checkpoint = Checkpoint { head, new, old };
        if flush {
            self.flusher.begin((env.clone(), checkpoint))?;
            self.under_way = Some(pin);
            self.publish_pins();
        } else {
            checkpoint.take(|_| Ok(()))?;
            self.adopt(pin);
        }
        self.end = RECORDS_START;
        self.used_bytes = env.used_bytes();
        Ok(())
    }

    /// Completes the checkpoint in progress, if it is done. With `wait`, waits for it.
    fn settle(&mut self, wait: bool) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("a checkpoint failed before"));
        }
        if self.under_way.is_none() {
            return Ok(());
        }
        let Some(outcome) = self.flusher.outcome(wait) else { return Ok(()) };
        self.is_broken = outcome.is_err();
        outcome?;
        if let Some(pin) = self.under_way.take() {
            self.adopt(pin);
        }
        Ok(())
    }

    /// Makes the state that `pin` shows the newest state with a durable head, and releases the
    /// previous pin.
    fn adopt(&mut self, pin: ReadTxn) {
        self.spare = Some(mem::replace(&mut self.pin, pin).reset());
        self.generation += 1;
        self.head_at = 1 - self.head_at;
        self.publish_pins();
    }

    fn publish_pins(&self) {
        self.pins.publish([self.pin.id(), self.under_way.as_ref().map_or(0, ReadTxn::id)]);
    }
}

/// Guard of [`Journal::close_reader_gate`]: no other process begins to read while it lives.
#[derive(Debug)]
pub(crate) struct ReaderGate(Arc<File>);

impl Drop for ReaderGate {
    fn drop(&mut self) {
        // The lock ends with the file at the latest.
        let _ = self.0.unlock();
    }
}

/// Step by which a file grows, in bytes.
const STEP_MIN: u64 = 64 << 10;
const STEP_MAX: u64 = 4 << 20;
/// Minimum length of a file, so that a head and some records have room on a full disk.
const LENGTH_MIN: u64 = RECORDS_START + STEP_MIN;

fn salt() -> io::Result<u64> {
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(salt))
}

/// The thread that flushes the data file while the writer continues.
#[derive(Debug)]
struct Flusher {
    /// Channel of checkpoints to the thread; taken to end the thread.
    checkpoints: Option<Sender<(Arc<Env>, Checkpoint)>>,
    outcomes: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Checkpoint {
    head: Head,
    new: Arc<File>,
    old: Arc<File>,
}

impl Checkpoint {
    /// Makes the new head the newest head. Everything it builds on is flushed already.
    fn take(self, flush: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        self.head.write(&self.new)?;
        flush(&self.new)?;
        Head::erase(&self.old)
    }
}

impl Flusher {
    fn start() -> io::Result<Flusher> {
        let (checkpoints, received) = mpsc::channel::<(Arc<Env>, Checkpoint)>();
        let (sender, outcomes) = mpsc::channel();
        let run = move || {
            for (env, checkpoint) in received {
                let flushed = env.sync().map_err(lmdb::Error::into_io);
                let taken = flushed.and_then(|()| checkpoint.take(File::sync_data));
                drop(env);
                // A receiver that is gone has ended the journal.
                let _ = sender.send(taken);
            }
        };
        let thread = thread::Builder::new().name("throng-flush".into()).spawn(run)?;
        Ok(Flusher { checkpoints: Some(checkpoints), outcomes, thread: Some(thread) })
    }

    fn begin(&self, checkpoint: (Arc<Env>, Checkpoint)) -> io::Result<()> {
        match &self.checkpoints {
            Some(checkpoints) if checkpoints.send(checkpoint).is_ok() => Ok(()),
            _ => Err(gone()),
        }
    }

    /// Returns the outcome of the checkpoint; `None` if it is not known yet and `wait` is false.
    fn outcome(&self, wait: bool) -> Option<io::Result<()>> {
        if wait {
            return Some(self.outcomes.recv().unwrap_or_else(|_| Err(gone())));
        }
        match self.outcomes.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.checkpoints = None;
        // The thread holds the engine while it flushes. A panic of the thread was reported by the
        // panic hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that flushes ended")
}

/// Names of the files.
const NAMES: [&str; 2] = ["journal.0", "journal.1"];
/// Name of the first file before it has a head.
const DRAFT: &str = "journal.draft";

/// Creates both files, the first with a head. The journal exists from the moment at which the first
/// file has its name.
fn make(directory: &Path, head: &Head) -> io::Result<[File; 2]> {
    let make = |name: &str| private::create_file(&directory.join(name));
    let [first, second] = [make(DRAFT)?, make(NAMES[1])?];
    for file in [&first, &second] {
        files::write_at(file, &vec![0; LENGTH_MIN as usize], 0)?;
    }
    second.sync_all()?;
    head.write(&first)?;
    first.sync_data()?;
    fs::rename(directory.join(DRAFT), directory.join(NAMES[0]))?;
    Ok([first, second])
}

/// Returns the size of both files, in bytes.
pub(crate) fn bytes(directory: &Path) -> io::Result<u64> {
    let bytes_of = |name| match fs::metadata(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        metadata => metadata.map(|metadata| metadata.len()),
    };
    NAMES.into_iter().map(bytes_of).sum()
}
