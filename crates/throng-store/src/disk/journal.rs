//! [`Journal`]: what makes a commit durable, in one flush of one file that is written in a row.
//!
//! The engine alone needs two flushes for each commit, and the pages of a commit lie all over its
//! file. So it does not flush at all; before each commit its changes go into the journal, and that
//! is flushed. Every now and then the data file is flushed as well, behind the writer's back: a
//! *checkpoint*. After a crash the data file is put back to the last checkpoint, and the records
//! that follow are applied again.
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
//! `deferred.rs`), so a checkpoint begins only where nothing is held back.
//!
//! Where writes are to survive this process but not the loss of power, all is the same but that
//! nothing is flushed: what was written, the system has.
//!
//! What the data file is put back to must still be in it. The engine writes no page that a reader
//! may see; so a read transaction is kept on the state of the last checkpoint, and only the two meta
//! pages, which tell where that state begins, are overwritten. They are in the head.
//!
//! Invariants:
//! - A record is durable before anyone is told or sees what it is about; and one that was rolled
//!   back is gone before anyone is told that.
//! - There is a head from the moment on at which the file `journal.0` has its name. A head is
//!   overwritten only when the other one is durable and newer, and a record only when there is a
//!   head that includes it.
//! - The state of the newest head that may be durable, and of the one before while that is open, are
//!   held by `pin` and `under_way`.
//! - Records have numbers without gaps. One that is missing before one that is there was lost, and
//!   so was a head that a record knows of; both are damage. Only the last record may be torn.
//!
//! Who opens, here or in other processes, goes through the [`Recovery`].

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

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    files: [Arc<File>; 2],
    /// To look at its meta pages.
    data: File,
    salt: u64,
    /// Which file has the newest durable head. Records go there, or into the other one while a
    /// checkpoint is under way.
    head_at: usize,
    /// Of that head.
    generation: u64,
    /// Of the last record.
    number: u64,
    /// Of the last one that is committed in the engine.
    committed: u64,
    /// Where the next record begins.
    end: u64,
    /// How long the files are.
    lengths: [u64; 2],
    /// Holds the state of the newest durable head.
    pin: ReadTxn,
    /// The slot of readers for the next pin, taken for good.
    spare: Option<IdleTxn>,
    /// Holds the state of a checkpoint that is not durable yet.
    under_way: Option<ReadTxn>,
    /// Where the commits of both are published.
    pins: Pins,
    /// The data file's size when the last checkpoint began.
    used_bytes: u64,
    /// A checkpoint failed: what the system was to write it may have forgotten, so that only a
    /// recovery is of use.
    is_broken: bool,
    config: JournalConfig,
    /// What the last record was written from: memory for the next one.
    record: Vec<u8>,
    /// Empty: memory for the next commit.
    log: Log,
    flusher: Flusher,
}

/// Configuration of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalConfig {
    /// After so many bytes of records a checkpoint is due.
    pub(crate) checkpoint_bytes: u64,
    /// Whether what is written is to survive the loss of power.
    pub(crate) is_durable: bool,
}

/// A record that was written.
#[derive(Debug)]
pub(crate) struct Recorded {
    bytes: u64,
    /// How long the disk took.
    pub(crate) flush: Duration,
}

/// Why nothing was committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The journal could not be written. Rolled back.
    Journal(io::Error),
    /// Rolled back, unless the engine has given up.
    Engine(lmdb::Error),
    /// It may or may not be durable: all must be opened anew.
    Unknown(io::Error),
    /// A checkpoint failed before: all must be opened anew.
    Recovering,
}

/// How many slots of readers a journal takes.
pub(crate) const PINS: u32 = 2;

/// The data file may grow by so many times as much.
const GROWTH: u64 = 2;

/// When records lie so many times behind, the writer waits for the checkpoint.
const LAG_MAX: u64 = 8;

impl Journal {
    /// Begins to journal what is committed from now on; everything before is made durable first.
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
            // That head has another salt, and the state of before what was applied since.
            journal.checkpoint(env)?;
            for file in &journal.files {
                file.unlock()?;
            }
        }
        Ok(journal)
    }

    /// Makes durable what a group changed, before anyone is told; nothing if that is nothing.
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
        // A checkpoint needs no room, and afterwards there is some: that of the old records.
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

    /// Makes sure that the last record is not found after a crash.
    pub(crate) fn take_back(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.number -= 1;
        self.end -= recorded.bytes;
        files::write_at(self.current(), &[0; files::SECTOR_BYTES as usize], self.end)?;
        self.flush(self.current())
    }

    /// An empty log for a commit.
    pub(crate) fn take_log(&mut self) -> Log {
        mem::take(&mut self.log)
    }

    /// Takes the log of a commit that has ended, which is empty then, for the next one.
    pub(crate) fn keep_log(&mut self, log: Log) {
        self.log = log;
    }

    /// Makes other processes wait before they read, as long as the returned guard lives. Returns `None`
    /// if another process reads already.
    pub(crate) fn close_reader_gate(&self) -> Option<ReaderGate> {
        let file = self.files[1].clone();
        file.try_lock().is_ok().then_some(ReaderGate(file))
    }

    /// Takes note that everything recorded is committed in the engine.
    pub(crate) fn committed(&mut self, env: &Arc<Env>) {
        self.committed = self.number;
        if self.under_way.is_none() && self.is_due(env) {
            // If it cannot begin now, it may after the next commit.
            let _ = self.begin_checkpoint(env, self.config.is_durable);
        }
    }

    /// Makes as durable as anything what was committed without a record.
    pub(crate) fn checkpoint(&mut self, env: &Arc<Env>) -> io::Result<()> {
        self.settle(true)?;
        self.begin_checkpoint(env, self.config.is_durable)?;
        self.settle(true)
    }

    /// Has everything that is committed survive the loss of power, until the next commit at least.
    pub(crate) fn sync(&mut self, env: &Arc<Env>) -> io::Result<()> {
        if self.config.is_durable {
            return Ok(());
        }
        self.settle(true)?;
        self.begin_checkpoint(env, true)?;
        self.settle(true)?;
        self.files[1 - self.head_at].sync_data()
    }

    /// Lets go of the pages that the engine holds for the last checkpoint; whether there were any.
    pub(crate) fn free_pages(&mut self, env: &Arc<Env>) -> bool {
        self.pin.id() != env.last_txn() && self.checkpoint(env).is_ok()
    }

    /// Leaves a data file that is whole by itself, and a journal without records, which is short
    /// again: who opens it reads it.
    pub(crate) fn close(&mut self, env: &Arc<Env>) -> io::Result<()> {
        self.checkpoint(env)?;
        for (file, length) in self.files.iter().zip(&mut self.lengths) {
            file.set_len(LENGTH_MIN)?;
            *length = LENGTH_MIN;
        }
        // The old head is erased there.
        self.flush(&self.files[1 - self.head_at])
    }

    /// Waits for the disk where that is wanted.
    fn flush(&self, file: &File) -> io::Result<()> {
        if self.config.is_durable { file.sync_data() } else { Ok(()) }
    }

    /// Where records go.
    fn current(&self) -> &File {
        &self.files[self.current_at()]
    }

    fn current_at(&self) -> usize {
        if self.under_way.is_some() { 1 - self.head_at } else { self.head_at }
    }

    /// Writes a record behind the last one, which it does not yet count among them.
    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let at = self.current_at();
        let end = self.end + record.len() as u64;
        files::write_at(&self.files[at], record, self.end)?;
        if end > self.lengths[at] {
            self.lengths[at] = end;
            // A file that grows takes far longer to flush than one that is overwritten; so it
            // grows in large steps, of zeros. Without room for that, it goes without.
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

    /// Takes note of the checkpoint under way, if there is one and it is done, or is waited for.
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

    /// From now on, what the pin holds is the newest state with a durable head.
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
        // It ends with the file at the latest.
        let _ = self.0.unlock();
    }
}

/// By how much a file grows at once, in bytes.
const STEP_MIN: u64 = 64 << 10;
const STEP_MAX: u64 = 4 << 20;
/// How long a file is at least: a head and some records find room on a disk that is full.
const LENGTH_MIN: u64 = RECORDS_START + STEP_MIN;

fn salt() -> io::Result<u64> {
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(salt))
}

/// The thread that waits for the disk while the writer goes on.
#[derive(Debug)]
struct Flusher {
    /// Taken to end the thread.
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
    /// Makes the new head the newest one. Everything it builds on is flushed already.
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
                // Whoever does not listen any more has ended the journal.
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

    /// What came of the checkpoint; nothing if that is not known yet and not waited for.
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
        // It holds the engine while it flushes. If it died of a panic, that was told.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that flushes ended")
}

/// The names of the files.
const NAMES: [&str; 2] = ["journal.0", "journal.1"];
/// The name of the first one before it has a head.
const DRAFT: &str = "journal.draft";

/// Makes both files, the first one with a head. They are there from when that has its name.
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

/// How many bytes the files take.
pub(crate) fn bytes(directory: &Path) -> io::Result<u64> {
    let bytes_of = |name| match fs::metadata(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        metadata => metadata.map(|metadata| metadata.len()),
    };
    NAMES.into_iter().map(bytes_of).sum()
}
