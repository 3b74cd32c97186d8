//! [`Driver`]: the task that does what a shard's replica asks for.
//!
//! ```text
//!                        ┌── outcomes of appends, records read, ends, commands
//!                        ▼
//! Core ── effects ──▶ Driver ──▶ appends, reads and questions, each with a deadline
//!                        └─────▶ store: settle, apply, lead
//! ```
//!
//! 1. Effects are done in their order. Those behind a record that the store could not apply wait for it.
//! 2. All appends in flight are polled at once, so that a time-out of one costs no more than that of all.
//! 3. A reader begins behind the position that is known, and no two read at the same time.
//! 4. An owner that has nothing to append asks for the end of the log from time to time, and reads on if somebody
//!    else has appended: so it learns that it is deposed.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use throng_store::{AppliedRecord, ApplyError, Settlement, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::{Core, Role, ShardOptions, Stop};
use crate::log::{BoxFuture, BoxStream, LogError, ShardLog};
use crate::record::{Incarnation, Record};
use crate::replica::{AppendError, Effect, Position, Ticket};
use crate::tail::Tail;

/// A wish of the node.
#[derive(Debug)]
pub(super) enum Command {
    Claim,
    HandOver(Incarnation),
    Close(oneshot::Sender<()>),
}

/// Records that the store may have to apply at a time.
const APPLYING_MAX: usize = 64;

/// Records that were handed to the store, which tells of each in order.
#[derive(Debug, Default)]
struct Applying {
    records: VecDeque<(Bytes, Position, Tail)>,
    /// Number of them of which the store has yet to tell.
    awaited: usize,
    /// Whether the first of them failed, so that all are to be handed over once more.
    has_failed: bool,
    /// Time at which that is done.
    again_at: Option<Instant>,
}

/// The task of a shard's copy; see the file's head.
pub(super) struct Driver {
    log: Arc<dyn ShardLog>,
    store: Store,
    core: Arc<Core>,
    options: ShardOptions,
    role: watch::Sender<Role>,
    appends: FuturesUnordered<BoxFuture<(Ticket, Result<Position, AppendError>)>>,
    reader: Option<BoxStream<Result<(Position, Bytes), LogError>>>,
    /// Position up to which the replica wants to read.
    read_to: Position,
    /// Answer to where the log ends, if it was asked, and whether the replica asked.
    end: Option<BoxFuture<Result<Position, LogError>>>,
    is_end_wanted: bool,
    /// Time before which a log that did not answer is not asked again.
    log_at: Option<Instant>,
    effects: VecDeque<Effect>,
    applying: Applying,
    /// Outcomes of records that the store has applied, from its thread.
    applied: mpsc::UnboundedReceiver<Result<(), ApplyError>>,
    tells: mpsc::UnboundedSender<Result<(), ApplyError>>,
    handing_over: Option<Incarnation>,
    is_stopped: bool,
    /// Whether the replica serves, and number of times that it has begun to.
    is_owner: bool,
    term: u64,
}

/// Next thing that happens to a driver.
enum Event {
    Effects,
    Appended(Ticket, Result<Position, AppendError>),
    Read(Option<Result<(Position, Bytes), LogError>>),
    End(Result<Position, LogError>),
    Applied(Result<(), ApplyError>),
    Command(Option<Command>),
    Poll,
    Retry,
}

impl Driver {
    pub(super) fn new(
        log: Arc<dyn ShardLog>,
        store: Store,
        core: Arc<Core>,
        options: ShardOptions,
        role: watch::Sender<Role>,
    ) -> Driver {
        let (tells, applied) = mpsc::unbounded_channel();
        Driver {
            log,
            store,
            core,
            options,
            role,
            appends: FuturesUnordered::new(),
            reader: None,
            read_to: Position(0),
            end: None,
            is_end_wanted: false,
            log_at: None,
            effects: VecDeque::new(),
            applying: Applying::default(),
            applied,
            tells,
            handing_over: None,
            is_stopped: false,
            is_owner: false,
            term: 0,
        }
    }

    /// Runs until the copy is closed, or all handles to it are dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut poll = interval(self.options.poll_every);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.work();
            let event = self.next(&mut commands, &mut poll).await;
            match event {
                Event::Effects => {}
                Event::Appended(ticket, outcome) => self.appended(ticket, outcome),
                Event::Read(record) => self.read(record),
                Event::End(end) => self.found_end(end),
                Event::Applied(outcome) => self.applied(outcome),
                Event::Command(Some(Command::Claim)) => {
                    if *self.role.borrow() == Role::Standby {
                        self.role.send_replace(Role::Claiming);
                        self.core.replica().claim();
                    }
                }
                Event::Command(Some(Command::HandOver(to))) => self.handing_over = Some(to),
                Event::Command(Some(Command::Close(done))) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
                Event::Command(None) => return self.close().await,
                Event::Poll => self.poll(),
                Event::Retry => self.retry(),
            }
        }
    }

    async fn close(self) {
        let store = self.store.clone();
        // The checkpoint of a close may take seconds.
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
        self.role.send_replace(Role::Stopped(Stop::Closed));
    }

    async fn next(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        poll: &mut tokio::time::Interval,
    ) -> Event {
        let wakes_at = [self.log_at, self.applying.again_at].into_iter().flatten().min();
        let can_read = self.applying.records.len() < APPLYING_MAX && self.effects.is_empty();
        let retry = async {
            match wakes_at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let end = async {
            match &mut self.end {
                Some(end) => end.await,
                None => pending().await,
            }
        };
        let read = async {
            match &mut self.reader {
                Some(reader) if can_read => reader.next().await,
                _ => pending().await,
            }
        };
        let (end, read, retry) = (pin!(end), pin!(read), pin!(retry));
        tokio::select! {
            biased;
            command = commands.recv() => Event::Command(command),
            Some(outcome) = self.applied.recv() => Event::Applied(outcome),
            Some((ticket, outcome)) = self.appends.next() => Event::Appended(ticket, outcome),
            () = self.core.wake.notified() => Event::Effects,
            end = end => Event::End(end),
            record = read => Event::Read(record),
            () = retry => Event::Retry,
            _ = poll.tick() => Event::Poll,
        }
    }

    /// Does what can be done now: effects in their order, the reader, the question for the end.
    fn work(&mut self) {
        if let Some(to) = self.handing_over {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let is_owner = matches!(*self.role.borrow(), Role::Owner { .. });
            // Without room the next outcome of an append makes some.
            if !is_owner || self.core.replica().hand_over(to, now.as_millis() as u64) {
                self.handing_over = None;
            }
        }
        loop {
            while let Some(effect) = self.core.replica().effect() {
                self.effects.push_back(effect);
            }
            let Some(effect) = self.effects.pop_front() else { break };
            if let Err(effect) = self.perform(effect) {
                self.effects.push_front(effect);
                break;
            }
        }
        self.keep_reading();
        if self.is_end_wanted && self.end.is_none() && self.log_at.is_none() {
            self.ask_end();
        }
    }

    /// Does an effect, or returns it if it has to wait.
    fn perform(&mut self, effect: Effect) -> Result<(), Effect> {
        // Whatever the store hears comes in order, so behind a record that it cannot apply all waits.
        let is_blocked = self.applying.has_failed || self.applying.again_at.is_some();
        match effect {
            Effect::Append { ticket, record, after } => self.append(ticket, record, after),
            Effect::FindEnd => self.is_end_wanted = true,
            Effect::Read(to) => self.read_to = self.read_to.max(to),
            effect if is_blocked => return Err(effect),
            Effect::Publish { ticket, at, tail } => {
                self.core.status().counters.published += 1;
                self.store.settle(ticket.0, Settlement::Published(tail.to_stamp(at)));
            }
            Effect::Lose(ticket) => {
                self.core.status().counters.lost += 1;
                self.store.settle(ticket.0, Settlement::Lost);
            }
            Effect::Doubt(ticket) => self.store.settle(ticket.0, Settlement::Unknown),
            // Behind a record that does not fit, nothing does.
            Effect::Apply { .. } if self.is_stopped => {}
            Effect::Apply { record, at, tail } => {
                self.hand_to_store(&record, at, &tail);
                self.applying.records.push_back((record, at, tail));
            }
            Effect::Serve if !self.applying.records.is_empty() => return Err(effect),
            Effect::Serve => {
                let (_, tail) = self.core.replica().known();
                if !std::mem::replace(&mut self.is_owner, true) {
                    self.term += 1;
                }
                self.lead(true, Role::Owner { epoch: tail.epoch, term: self.term });
            }
            Effect::Leave(reason) => {
                tracing::info!(?reason, "a shard has another owner, or none");
                self.is_owner = false;
                match Stop::of(reason) {
                    None => self.lead(false, Role::Standby),
                    Some(stop) => self.stop(stop),
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, ticket: Ticket, record: Bytes, after: Option<Position>) {
        {
            let counters = &mut self.core.status().counters;
            counters.appends += 1;
            counters.append_bytes += record.len() as u64;
        }
        let appended = timeout(self.options.append_within, self.log.append(record, after));
        let appended = appended.map(|outcome| outcome.unwrap_or(Err(AppendError::Unknown)));
        self.appends.push(Box::pin(appended.map(move |outcome| (ticket, outcome))));
    }

    fn appended(&mut self, ticket: Ticket, outcome: Result<Position, AppendError>) {
        {
            let mut told = self.core.status();
            match outcome {
                Ok(position) => told.end = told.end.max(position),
                Err(AppendError::Refused) => told.counters.refused += 1,
                Err(AppendError::Unknown) => told.counters.unknown += 1,
            }
        }
        if outcome == Err(AppendError::Unknown) && self.log_at.is_none() {
            // An engine without a leader may refuse at once, as often as it is asked.
            self.log_at = Some(Instant::now() + self.options.retry_after);
        }
        self.core.replica().appended(ticket, outcome);
    }

    /// Begins or ends to read, as the replica needs it.
    fn keep_reading(&mut self) {
        let (known, follows) = {
            let replica = self.core.replica();
            (replica.known().0, replica.is_following())
        };
        if self.is_stopped || !follows && known >= self.read_to {
            self.reader = None;
        } else if self.reader.is_none() && self.log_at.is_none() {
            self.reader = Some(self.log.read(Position(known.0 + 1)));
        }
    }

    fn read(&mut self, record: Option<Result<(Position, Bytes), LogError>>) {
        match record {
            Some(Ok((position, record))) => {
                {
                    let mut told = self.core.status();
                    told.counters.read += 1;
                    told.end = told.end.max(position);
                    told.trouble = None;
                }
                self.core.replica().read(position, &record);
            }
            Some(Err(LogError::Trimmed(first))) => {
                self.reader = None;
                self.stop(Stop::Trimmed(first));
            }
            Some(Err(LogError::Unavailable(reason))) => {
                self.reader = None;
                self.log_failed(reason);
            }
            None => {
                self.reader = None;
                self.log_failed("the log ended its stream of records".into());
            }
        }
    }

    fn ask_end(&mut self) {
        let end = timeout(self.options.append_within, self.log.end());
        let late = || Err(LogError::Unavailable("no answer came in time".into()));
        self.end = Some(Box::pin(end.map(move |end| end.unwrap_or_else(|_| late()))));
    }

    fn found_end(&mut self, end: Result<Position, LogError>) {
        self.end = None;
        match end {
            Ok(end) => {
                {
                    let mut told = self.core.status();
                    told.end = told.end.max(end);
                    (told.is_end_known, told.trouble) = (true, None);
                }
                let mut replica = self.core.replica();
                if std::mem::take(&mut self.is_end_wanted) {
                    replica.found_end(end);
                } else if self.is_owner && end.0 > replica.known().0.0 + replica.in_flight() as u64
                {
                    // Somebody else has appended.
                    self.read_to = self.read_to.max(end);
                }
            }
            Err(error) => self.log_failed(error.to_string()),
        }
    }

    fn log_failed(&mut self, reason: String) {
        self.log_at = Some(Instant::now() + self.options.retry_after);
        let mut told = self.core.status();
        told.counters.log_failures += 1;
        told.trouble = Some(reason);
    }

    fn poll(&mut self) {
        // A standby reads what comes, and needs the end that the log had when the copy was opened.
        let asks = self.is_owner && self.appends.is_empty() || !self.core.status().is_end_known;
        if asks && !self.is_stopped && self.end.is_none() && self.log_at.is_none() {
            self.ask_end();
        }
    }

    fn retry(&mut self) {
        let is_over = |at: &mut Instant| *at <= Instant::now();
        self.log_at.take_if(is_over);
        if self.applying.again_at.take_if(is_over).is_some() {
            for index in 0..self.applying.records.len() {
                let (record, at, tail) = self.applying.records[index].clone();
                self.hand_to_store(&record, at, &tail);
            }
        }
    }

    fn hand_to_store(&mut self, record: &Bytes, at: Position, tail: &Tail) {
        // It was decoded when it was found to count.
        let Some(Record { header, body }) = Record::decode(record) else { return };
        let stamp = tail.to_stamp(at);
        let (first, count) = (header.first, header.count);
        let told = self.tells.clone();
        self.applying.awaited += 1;
        let record = AppliedRecord { first, count, stamp, changes: body };
        self.store.apply(&record, move |outcome| _ = told.send(outcome));
    }

    fn applied(&mut self, outcome: Result<(), ApplyError>) {
        let Applying { records, awaited, has_failed, again_at } = &mut self.applying;
        *awaited -= 1;
        if self.is_stopped {
            // Records behind the one for which it stopped are misplaced.
            return;
        }
        match outcome {
            // Records behind one that failed are misplaced, and are handed over once more with it.
            _ if *has_failed => {}
            Ok(()) => {
                records.pop_front();
                let mut told = self.core.status();
                told.counters.applied += 1;
            }
            Err(ApplyError::Full(_) | ApplyError::Failed(_)) => {
                *has_failed = true;
                let mut told = self.core.status();
                told.counters.apply_failures += 1;
                told.trouble = outcome.err().map(|error| error.to_string());
            }
            Err(ApplyError::Closed) => return self.stop(Stop::Closed),
            Err(error) => return self.stop(Stop::Diverged(error.to_string())),
        }
        if *has_failed && *awaited == 0 {
            *has_failed = false;
            *again_at = Some(Instant::now() + self.options.retry_after);
        }
    }

    /// Stops for good, with a reason.
    fn stop(&mut self, stop: Stop) {
        tracing::error!(reason = %stop, "a copy of a shard has stopped");
        (self.reader, self.is_stopped) = (None, true);
        self.lead(false, Role::Stopped(stop));
    }

    /// Makes the store lead or not; the role is told once it does.
    fn lead(&self, leads: bool, role: Role) {
        let told = self.role.clone();
        self.store.lead(leads, move || _ = told.send_replace(role));
    }
}
