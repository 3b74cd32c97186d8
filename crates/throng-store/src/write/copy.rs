//! [`Copy`]: the writer of a store that is a copy of a shared log (see `sequencer.rs`).
//!
//! ```text
//! queue ─▶ plan ─▶ begun: │ 7 │ 8 │ 9 │ ─ published, from the front ─▶ memtable ─▶ visible
//!            ▲                └──────────── lost, all ───────────────▶ handed back
//!            └── reads what is visible, and what is begun over it
//! ```
//!
//! 1. A group is planned on the state after all groups that are begun, and the sequencer takes it only on that state.
//! 2. Groups are settled in the order in which they were begun. After a loss none is left.
//! 3. Checkpoints have published changes only, for there are no others in the memtables.
//! 4. Settlements, records of others and changes of the lead are done in the order in which they come.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::WriteError;
use crate::disk::environment::Environment;
use crate::memtable::Memtable;
use crate::memtable::change;
use crate::write::commit::{Commit, Failure};
use crate::write::planner::{Outcome, Planner};
use crate::write::queue::{Appetite, Request, Taken, Wait};
use crate::write::sequencer::{AppliedRecord, ApplyError, NewRecord, Sequencer, Settlement, Stamp};
use crate::write::writer::{Step, Writer};

/// News from the shared log, for the writer.
pub(crate) enum Control {
    Settle(u64, Settlement),
    /// A record, its changes, and the function that gets the outcome.
    Apply(Applying),
    /// Whether the store leads, and the function that is called then.
    Lead(bool, Box<dyn FnOnce() + Send>),
}

/// A record that waits to be applied.
pub(crate) struct Applying {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) stamp: Stamp,
    pub(crate) changes: Box<[u8]>,
    pub(crate) done: Box<dyn FnOnce(Result<(), ApplyError>) + Send>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Control::Settle(number, settlement) => {
                formatter.debug_tuple("Settle").field(number).field(settlement).finish()
            }
            Control::Apply(record) => formatter.debug_tuple("Apply").field(&record.first).finish(),
            Control::Lead(leads, _) => formatter.debug_tuple("Lead").field(leads).finish(),
        }
    }
}

/// The groups in flight of a copy; see the file's head.
#[derive(Debug)]
pub(crate) struct Copy {
    sequencer: Arc<dyn Sequencer>,
    leads: bool,
    begun: VecDeque<Begun>,
    /// Requests that were taken from the queue and could not be begun.
    held: Vec<Request>,
    overlay: Overlay,
    pace: Pace,
    /// First position of a record that could not be applied: none behind it can be, not even one without changes, whose
    /// stamp would pass over the record.
    failed: Option<u64>,
}

/// A group in flight.
#[derive(Debug)]
struct Begun {
    /// Number of its record; `None` if it has no changes, and waits for the groups before it.
    number: Option<u64>,
    group: Vec<Request>,
    outcomes: Vec<Outcome>,
    first: u64,
    count: u32,
    chunks: Vec<Box<[u8]>>,
    /// State of the log after it.
    stamp: Stamp,
    at: Instant,
}

impl Begun {
    fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }
}

/// Changes of the groups in flight, for reads of groups that are planned on them: made when one reads, and kept while
/// it is not much larger than what is in flight.
#[derive(Debug, Default)]
struct Overlay(Option<Arc<Memtable>>);

/// Changes that an overlay may have beside twice those in flight.
const OVERLAY_CHANGES: usize = 1024;

impl Overlay {
    fn memtable(&mut self, begun: &VecDeque<Begun>, tables: usize) -> Option<Arc<Memtable>> {
        let live: usize = begun.iter().map(|group| group.count as usize).sum();
        if live == 0 {
            self.0 = None;
            return None;
        }
        let is_large =
            |memtable: &mut Arc<Memtable>| memtable.changes() > 2 * live + OVERLAY_CHANGES;
        let memtable = match self.0.take_if(|memtable| !is_large(memtable)) {
            Some(memtable) => memtable,
            None => Arc::new(Memtable::new(tables, 0)),
        };
        for group in begun.iter().filter(|group| group.count > 0) {
            if group.first > memtable.last() {
                memtable.add_all(group.first, group.chunks.iter().cloned());
            }
        }
        self.0 = Some(memtable.clone());
        Some(memtable)
    }
}

/// The groups in flight as a planner reads them.
pub(crate) struct InFlight<'c> {
    overlay: &'c mut Overlay,
    begun: &'c VecDeque<Begun>,
}

impl InFlight<'_> {
    /// Returns the changes in flight; `None` if there are none.
    pub(crate) fn memtable(&mut self, tables: usize) -> Option<Arc<Memtable>> {
        self.overlay.memtable(self.begun, tables)
    }
}

/// The rate at which groups are begun. A record of the shared log costs processor time on several machines, whatever
/// is in it, so while others are in flight a group waits for company: for a part of the time that a record takes.
#[derive(Debug, Default)]
struct Pace {
    /// Mean time from the begin of a record to its publication, of which the last ones have most weight.
    latency: Duration,
    begun_at: Option<Instant>,
}

/// Number of requests with which a group waits for no others.
const GROUP_ENOUGH: usize = 256;
/// Part of a record's time for which a group waits while others are in flight.
const LATENCY_DIVISOR: u32 = 2;
/// Longest wait for company.
const WAIT_MAX: Duration = Duration::from_millis(50);

impl Pace {
    fn begun(&mut self, at: Instant) {
        self.begun_at = Some(at);
    }

    fn published(&mut self, took: Duration) {
        self.latency = match self.latency.is_zero() {
            true => took,
            false => (self.latency * 7 + took) / 8,
        };
    }

    fn appetite(&self, in_flight: usize) -> Appetite {
        match self.begun_at {
            Some(at) if in_flight > 0 => Appetite::WorkFrom {
                until: at + (self.latency / LATENCY_DIVISOR).min(WAIT_MAX),
                enough: GROUP_ENOUGH,
            },
            _ => Appetite::Work,
        }
    }
}

/// Reason for which a group was not begun.
enum Unbegun {
    /// The sequencer takes none on this state.
    NotNow,
    Failed(Failure),
}

impl Copy {
    pub(crate) fn new(sequencer: Arc<dyn Sequencer>) -> Copy {
        Copy {
            sequencer,
            leads: false,
            begun: VecDeque::new(),
            held: Vec::new(),
            overlay: Overlay::default(),
            pace: Pace::default(),
            failed: None,
        }
    }

    /// Returns the state after all groups that are begun: its position, and the stamp.
    fn ahead(&self, environment: &Environment) -> Option<(u64, Stamp)> {
        match self.begun.back() {
            Some(Begun { first, count, stamp, .. }) => {
                Some((first + u64::from(*count) - 1, *stamp))
            }
            None => {
                let log = environment.log()?;
                Some((log.point().position, log.stamp()?))
            }
        }
    }

    fn appetite(&self, environment: &Environment) -> Appetite {
        let begins = self.leads && self.held.is_empty();
        let ahead = if begins { self.ahead(environment) } else { None };
        match ahead {
            Some((_, stamp)) if self.sequencer.has_room(&stamp) => {
                self.pace.appetite(self.begun.len())
            }
            _ => Appetite::Controls,
        }
    }

    /// Plans a group, and begins to append its record.
    fn begin(
        &mut self,
        environment: &Environment,
        group: &mut Vec<Request>,
    ) -> Result<(), Unbegun> {
        let (position, after) =
            self.ahead(environment).ok_or(Unbegun::Failed(Failure::Recovering))?;
        let mut commit = Commit::begin(environment).map_err(Unbegun::Failed)?;
        commit.make_room().map_err(Unbegun::Failed)?;
        let first = position + 1;
        let mut outcomes = vec![Outcome::Applied; group.len()];
        let in_flight = InFlight { overlay: &mut self.overlay, begun: &self.begun };
        let planner = Planner::new(environment, first).over(in_flight);
        let (changes, _) = planner.plan(group, &mut outcomes).map_err(Unbegun::Failed)?;
        let count = changes.count();
        let (mut number, mut stamp) = (None, after);
        let chunks = changes.into_chunks();
        if count > 0 {
            let bytes: usize = chunks.iter().map(|chunk| chunk.len()).sum();
            if bytes > self.sequencer.bytes_max() {
                let too_large = "a record of the shared log has no room for it";
                let error = io::Error::new(io::ErrorKind::FileTooLarge, too_large);
                return Err(Unbegun::Failed(Failure::TooLarge(error)));
            }
            let (others, changes) = self.begun.iter().fold((0, 0), |(bytes, changes), group| {
                (bytes + group.bytes(), changes + group.count as usize)
            });
            commit.check_room(bytes + others, count as usize + changes).map_err(Unbegun::Failed)?;
            let time = environment.since_1970().as_millis() as u64;
            let record =
                NewRecord { after: &after, first, count, time, changes: chunks.as_slice() };
            let begun = self.sequencer.begin(&record).ok_or(Unbegun::NotNow)?;
            (number, stamp) = (Some(begun.0), begun.1);
        }
        drop(commit);
        let (group, at) = (mem::take(group), Instant::now());
        self.pace.begun(at);
        self.begun.push_back(Begun { number, group, outcomes, first, count, chunks, stamp, at });
        Ok(())
    }
}

impl Writer {
    /// Makes a step of a copy: hears news of the shared log, or begins a group.
    pub(super) fn step_copy(&mut self, copy: &mut Copy, wait: Wait) -> Step {
        if self.queue.is_closed() {
            // What is in flight stays unknown here: nobody settles it any more.
            self.fail(copy, &Failure::Unknown(io::Error::other("the store was closed")));
            self.environment.close();
            return Step::End;
        }
        let held = mem::take(&mut copy.held);
        if !held.is_empty() && copy.leads {
            self.begin(copy, held);
            if copy.held.is_empty() {
                self.wake_all();
                return Step::Commit;
            }
        } else {
            copy.held = held;
        }
        let appetite = copy.appetite(&self.environment);
        let Writer { queue, group, spare, group_delay, .. } = self;
        match queue.take(group, spare, group_delay, (wait, appetite)) {
            Taken::Group(_) => {
                let group = mem::take(&mut self.group);
                self.begin(copy, group);
            }
            Taken::Controls(controls) => {
                controls.into_iter().for_each(|control| self.control(copy, control));
            }
            Taken::Nothing => return Step::Idle,
            Taken::End => return Step::Commit,
        }
        self.wake_all();
        Step::Commit
    }

    fn begin(&mut self, copy: &mut Copy, mut group: Vec<Request>) {
        if group.is_empty() {
            // All of it was cancelled.
            return;
        }
        let failure = match copy.begin(&self.environment, &mut group) {
            Ok(()) => return self.settle_empty(copy),
            Err(Unbegun::NotNow) => return copy.held.append(&mut group),
            Err(Unbegun::Failed(failure)) => failure,
        };
        if matches!(failure, Failure::Full(_) | Failure::TooLarge(_)) && group.len() > 1 {
            // Small batches beside one that does not fit are not spoiled by it.
            let later = group.split_off(group.len() / 2);
            self.begin(copy, group);
            // A loss in the first half is also that of the submissions in the second.
            let submissions = self.queue.submissions().clone();
            let is_lost = |request: &Request| {
                request.last_submission().is_some_and(|last| submissions.loss(last).is_some())
            };
            let later: Vec<_> = later.into_iter().filter(|request| !is_lost(request)).collect();
            return match copy.held.is_empty() {
                true => self.begin(copy, later),
                false => copy.held.extend(later),
            };
        }
        let has_submissions = group.iter().any(|request| request.last_submission().is_some());
        if has_submissions && !copy.begun.is_empty() {
            // A loss is one of all submissions that are not settled, and those in flight may be published.
            return copy.held.append(&mut group);
        }
        self.note(&failure);
        self.give_back(copy, group, &failure);
    }

    fn control(&mut self, copy: &mut Copy, control: Control) {
        match control {
            Control::Settle(number, settlement) => self.settle(copy, number, settlement),
            Control::Apply(record) => {
                let Applying { first, count, stamp, changes, done } = record;
                let record = AppliedRecord { first, count, stamp, changes: &changes };
                done(self.apply(copy, &record));
            }
            Control::Lead(true, done) => {
                copy.leads = true;
                self.queue.end_standby();
                done();
            }
            Control::Lead(false, done) => {
                copy.leads = false;
                self.queue.begin_standby();
                let left = "this node has left the shared log";
                self.fail(copy, &Failure::Unknown(io::Error::other(left)));
                let mut requests = mem::take(&mut copy.held);
                requests.extend(self.queue.take_waiting());
                let failure = Failure::Failed(io::Error::other(left));
                self.refuse(requests, &failure, WriteError::Standby);
                done();
            }
        }
    }

    fn settle(&mut self, copy: &mut Copy, number: u64, settlement: Settlement) {
        if copy.begun.front().is_none_or(|front| front.number != Some(number)) {
            // It was lost together with one before it.
            return;
        }
        match settlement {
            Settlement::Published(stamp) => {
                if let Some(begun) = copy.begun.pop_front() {
                    self.publish(copy, begun, stamp);
                }
                self.settle_empty(copy);
            }
            Settlement::Lost => {
                let lost = "another node has taken the shared log, which does not have it";
                self.fail(copy, &Failure::Failed(io::Error::other(lost)));
            }
            Settlement::Unknown => {
                let unknown = "this node has stopped to read the shared log";
                self.fail(copy, &Failure::Unknown(io::Error::other(unknown)));
            }
        }
    }

    /// Makes a group in flight visible, and resolves its tickets.
    fn publish(&mut self, copy: &mut Copy, begun: Begun, stamp: Stamp) {
        let took = begun.at.elapsed();
        copy.pace.published(took);
        let last = begun.last();
        let Begun { mut group, outcomes, first, chunks, .. } = begun;
        if let Some(mut log) = self.environment.log() {
            self.environment.view().memtables()[0].add_all(first, chunks);
            log.advance(last, stamp);
            // Before a checkpoint can have the log.
            self.environment.readers().publish(last);
        }
        self.count_commit(&group, took);
        self.acknowledge(&mut group, &outcomes);
    }

    /// Resolves the tickets of groups without changes that wait for no other.
    fn settle_empty(&mut self, copy: &mut Copy) {
        while let Some(begun) = copy.begun.pop_front_if(|front| front.number.is_none()) {
            let Begun { mut group, outcomes, .. } = begun;
            self.acknowledge(&mut group, &outcomes);
        }
    }

    /// Gives up all groups in flight.
    fn fail(&mut self, copy: &mut Copy, failure: &Failure) {
        copy.overlay = Overlay::default();
        let begun = mem::take(&mut copy.begun).into_iter();
        self.give_back(copy, begun.flat_map(|begun| begun.group).collect(), failure);
    }

    /// Hands back a group that was not committed, and loses the submissions behind it, too.
    fn give_back(&mut self, copy: &mut Copy, group: Vec<Request>, failure: &Failure) {
        if group.iter().any(|request| request.last_submission().is_some()) {
            copy.held.retain(|request| request.last_submission().is_none());
        }
        self.refuse(group, failure, |batch| failure.to_error(batch));
    }

    fn apply(&mut self, copy: &mut Copy, record: &AppliedRecord<'_>) -> Result<(), ApplyError> {
        let AppliedRecord { first, count, .. } = *record;
        if copy.failed.is_some_and(|failed| count == 0 || first != failed) {
            let last = self.environment.view().position();
            return Err(ApplyError::Misplaced { found: first, last });
        }
        let applied = self.apply_next(copy, record);
        match &applied {
            Ok(()) => copy.failed = None,
            Err(ApplyError::Misplaced { .. }) => {}
            Err(_) => copy.failed = Some(first),
        }
        applied
    }

    fn apply_next(&self, copy: &Copy, record: &AppliedRecord<'_>) -> Result<(), ApplyError> {
        let environment = &self.environment;
        let tables = environment.tables_end();
        let AppliedRecord { first, count, stamp, changes } = *record;
        let failed = |failure| match failure {
            Failure::Full(error) | Failure::Clogged(error) => ApplyError::Full(error),
            Failure::TooLarge(error) | Failure::Failed(error) | Failure::Unknown(error) => {
                ApplyError::Failed(error)
            }
            Failure::Recovering => {
                ApplyError::Failed(io::Error::other("the store is recovering from a failed commit"))
            }
        };
        let mut commit = Commit::begin(environment).map_err(failed)?;
        let last = commit.first() - 1;
        if count == 0 {
            commit.advance(last, stamp);
            return Ok(());
        }
        if first != last + 1 || !copy.begun.is_empty() {
            return Err(ApplyError::Misplaced { found: first, last });
        }
        if !change::are_whole(changes, count, tables) {
            return Err(ApplyError::Unreadable);
        }
        commit.make_room().map_err(failed)?;
        commit.check_room(changes.len(), count as usize).map_err(failed)?;
        environment.view().memtables()[0].add_all(first, [Box::from(changes)]);
        let last = last + u64::from(count);
        commit.advance(last, stamp);
        environment.readers().publish(last);
        Ok(())
    }
}
