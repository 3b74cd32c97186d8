//! [`Replica`]: the protocol by which a node follows a shard's log, becomes its owner, appends to it, and learns which
//! of its records count.
//!
//! ```text
//!             claim       end()                 ack                read up to it
//! Following ────▶ Surveying ───▶ CatchingUp ──▶ Claiming ──ack──▶ Confirming ──▶ Serving ─┐
//!     ▲               ▲   (reads)       (EPOCH appended)                │           │     │ hand_over
//!     │               └───── Settling ◀── any other outcome ────────────┼───────────┘     │
//!     └────────────────────────────── a newer epoch ◀───────────────────┴─────────────────┘
//! ```
//!
//! A pure state machine: it is told of outcomes and of records that were read, and answers with [`Effect`]s. The
//! caller appends, reads, and has a deadline for each append, after which its outcome is unknown.
//!
//! 1. All positions up to `at` are known: read, or proven by acknowledgements without a gap. `tail` is the state
//!    of a reader there.
//! 2. A record is published once its position is `at + 1`: nothing lies between, so it counts.
//! 3. After an outcome other than that, nothing is believed that is in flight. The owner reads on, and claims
//!    again: the new epoch ends all copies of its records that may still arrive. What was read up to there is
//!    final.
//! 4. Each record that counts is published or applied, in the order of the log, and none twice.
//! 5. Nothing depends on time or on the engine's condition, which only keeps noise out.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::guard::{Guard, holds};
use crate::record::{Header, Incarnation, RecordKind};
use crate::tail::{Tail, Verdict};

/// Place of a record in a log: 1 for the first, 0 for before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// Error of an append. After either, an owner believes nothing that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log ended elsewhere than the append expected: the record was not stored.
    #[error("the log ends elsewhere")]
    Refused,
    /// No answer came: the record may be stored, or be stored later.
    #[error("the outcome is unknown")]
    Unknown,
}

/// Number of an append of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A record that an owner is to append.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the table of `record.rs` states each field")]
pub struct Entry<'b> {
    pub kind: RecordKind,
    pub level: u32,
    pub first: u64,
    pub count: u32,
    pub time: u64,
    pub body: &'b [&'b [u8]],
}

/// Work that an owner asks its caller for, and news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append a record, behind all that were appended before, on the condition that the log ends there.
    Append {
        /// Number to tell the outcome by.
        ticket: Ticket,
        /// Bytes of the record.
        record: Bytes,
        /// End of the log, unless the record has no condition.
        after: Option<Position>,
    },
    /// Ask the log for its end. An answer that is too low costs a round, and nothing else.
    FindEnd,
    /// Read all records up to a position.
    Read(Position),
    /// The node is the owner, and may append.
    Serve,
    /// The node's record counts.
    Publish {
        /// Number of its append.
        ticket: Ticket,
        /// Its position, which may be another than was expected.
        at: Position,
        /// State of a reader after it.
        tail: Tail,
    },
    /// A record counts that the caller did not append.
    Apply {
        /// Bytes of the record.
        record: Bytes,
        /// Its position.
        at: Position,
        /// State of a reader after it.
        tail: Tail,
    },
    /// The record does not count, and never will.
    Lose(Ticket),
    /// The record may count: this owner will not learn it.
    Doubt(Ticket),
    /// The node is not the owner any more.
    Leave(Reason),
}

/// Reason for which a node is not the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another node has claimed a later epoch.
    Deposed,
    /// The node has handed the shard over.
    HandedOver,
    /// The log has a record that this program is too old for: its level.
    Beyond(u32),
    /// The log has lost records: it went to the first position before, and goes only up to the second now.
    LogLost(Position, Position),
    /// The first position was to be read, and the second came: the log has lost the records between.
    Gap(Position, Position),
}

/// Number of records in flight, at most.
pub const WINDOW: usize = 8;

/// A node's side of a shard's log; see the file's head.
#[derive(Debug)]
pub struct Replica {
    me: Incarnation,
    level: u32,
    at: Position,
    tail: Tail,
    /// Epoch that was claimed last; 0 before the first claim.
    epoch: u64,
    /// Epoch in which the node was the owner last.
    served: Option<u64>,
    phase: Phase,
    window: VecDeque<Flight>,
    /// State of a reader after the window.
    ahead: Tail,
    next: u64,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Applies what others append.
    Following,
    /// Waits for the end of the log.
    Surveying,
    /// Reads up to that end.
    CatchingUp(Position),
    /// Waits for the acknowledgement of its epoch, which it appended when it knew the log up to a position.
    Claiming(Ticket, Position),
    /// Reads up to the position of its epoch.
    Confirming(Position),
    Serving,
    /// Has a handover in flight.
    Leaving,
    /// Waits for the outcomes of all that is in flight, and believes none.
    Settling,
    /// Cannot go on by itself.
    Stopped,
}

/// A record that was appended and is not known to count.
#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    record: Bytes,
    /// State of a reader after the record, if all before it count.
    after: Tail,
    /// Whether the caller does not know the record.
    is_own: bool,
    outcome: Option<Result<Position, AppendError>>,
}

impl Replica {
    /// Begins to follow a log for a node that understands records up to a level, from the state of a reader at a
    /// position.
    pub fn new(me: Incarnation, level: u32, at: Position, tail: Tail) -> Replica {
        Replica {
            me,
            level,
            at,
            tail,
            epoch: 0,
            served: None,
            phase: Phase::Following,
            window: VecDeque::new(),
            ahead: tail,
            next: 1,
            effects: VecDeque::new(),
        }
    }

    /// Begins to claim the log, unless the node does so already.
    pub fn claim(&mut self) {
        if self.phase == Phase::Following {
            self.served = None;
            self.survey();
        }
    }

    /// Takes the next effect, in order.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The position up to which all records are known, and the state of a reader there.
    pub fn known(&self) -> (Position, Tail) {
        (self.at, self.tail)
    }

    /// Whether the node is the owner, and has room for another record in flight.
    pub fn has_room(&self) -> bool {
        self.phase == Phase::Serving && self.window.len() < WINDOW
    }

    /// Returns the state of a reader after all that is in flight, on which the next record builds.
    pub fn ahead(&self) -> Tail {
        if self.window.is_empty() { self.tail } else { self.ahead }
    }

    /// Number of records in flight.
    pub fn in_flight(&self) -> usize {
        self.window.len()
    }

    /// Whether the node follows the owner, and needs all that is appended to the log.
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Appends a record. Returns its number, and the position and the state of a reader after it if it counts; `None`
    /// without [room](Replica::has_room), and then does nothing.
    pub fn append(&mut self, entry: &Entry<'_>) -> Option<(Ticket, Position, Tail)> {
        self.has_room().then(|| self.send(entry, false))
    }

    fn send(&mut self, entry: &Entry<'_>, is_own: bool) -> (Ticket, Position, Tail) {
        let record = self.encode(entry, self.epoch, &self.ahead);
        let after = Position(self.at.0 + self.window.len() as u64);
        let mut ahead = self.ahead;
        let verdict = ahead.read(u32::MAX, &record);
        debug_assert!(matches!(verdict, Verdict::Counts(_)), "{verdict:?}");
        let ticket = self.ticket();
        let flight = Flight { ticket, record: record.clone(), after: ahead, is_own, outcome: None };
        self.window.push_back(flight);
        self.ahead = ahead;
        self.effects.push_back(Effect::Append { ticket, record, after: Some(after) });
        (ticket, after.next(), ahead)
    }

    /// Hands the shard to another node, behind all that is in flight. Returns whether it does so: not without
    /// [room](Replica::has_room). If the handover is lost, the node is the owner again.
    pub fn hand_over(&mut self, to: Incarnation, time: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        let (to, kind) = (to.0.to_le_bytes(), RecordKind::Handoff);
        let body: &[&[u8]] = &[&to];
        let entry = Entry { kind, level: 0, first: 0, count: 0, time, body };
        self.send(&entry, true);
        self.phase = Phase::Leaving;
        true
    }

    /// Tells the outcome of an append. Each append has one outcome; they may come in any order.
    pub fn appended(&mut self, ticket: Ticket, outcome: Result<Position, AppendError>) {
        if let Phase::Claiming(claim, after) = self.phase
            && claim == ticket
        {
            return match outcome {
                Ok(position) if position <= after => self.leave(Reason::LogLost(after, position)),
                Ok(position) => self.confirm(position),
                // The claim may still arrive: the next one is above it.
                Err(_) => self.survey(),
            };
        }
        if let Some(flight) = self.window.iter_mut().find(|flight| flight.ticket == ticket) {
            flight.outcome = Some(outcome);
        }
        match self.phase {
            Phase::Serving | Phase::Leaving => self.settle(),
            Phase::Settling => self.survey_if_settled(),
            _ => {}
        }
    }

    /// Tells a position to which the log goes at least.
    pub fn found_end(&mut self, end: Position) {
        if self.phase == Phase::Surveying {
            self.phase = Phase::CatchingUp(end);
            self.effects.push_back(Effect::Read(end));
            self.go_on();
        }
    }

    /// Tells a record that was read. Positions that are known already are passed over; with a gap beyond these the
    /// replica stops.
    pub fn read(&mut self, position: Position, record: &Bytes) {
        if position <= self.at || self.phase == Phase::Stopped {
            return;
        }
        if position != self.at.next() {
            return self.leave(Reason::Gap(self.at.next(), position));
        }
        let verdict = self.tail.read(self.level, record);
        if let Verdict::Beyond(level) = verdict {
            return self.leave(Reason::Beyond(level));
        }
        self.at = position;
        if matches!(verdict, Verdict::Counts(_)) {
            self.leave_if_taken_over();
            if self.window.front().is_some_and(|flight| flight.record == *record) {
                self.publish_front();
            } else {
                // Only an epoch counts between records of an owner, and ends what was not read before it. A copy
                // can apply nothing on top of records that may not count.
                self.leave_if_deposed();
                self.lose_all();
                let (record, at, tail) = (record.clone(), position, self.tail);
                self.effects.push_back(Effect::Apply { record, at, tail });
            }
        }
        self.leave_if_deposed();
        self.go_on();
    }

    /// Stops to be the owner if the log says so: a newer epoch is proof enough, while acknowledgements are due.
    fn leave_if_deposed(&mut self) {
        let serves = matches!(self.phase, Phase::Serving | Phase::Leaving);
        if serves && self.tail.owner != Some(self.me) {
            self.leave(match self.tail.owner {
                None => Reason::HandedOver,
                Some(_) => Reason::Deposed,
            });
        }
    }

    /// Stops to be the owner, and to claim again, if another node has claimed meanwhile: what the caller has in memory is
    /// not that of the log any more, even if a later claim of this node counts.
    fn leave_if_taken_over(&mut self) {
        let has_served = self.served.is_some() && holds(Guard::TakeoverLeaves);
        if has_served && self.tail.owner.is_some_and(|owner| owner != self.me) {
            self.leave(Reason::Deposed);
        }
    }

    /// Moves on after a record was read.
    fn go_on(&mut self) {
        let is_mine = self.tail.owner == Some(self.me);
        match self.phase {
            Phase::CatchingUp(end) if self.at >= end => {
                let is_deposed = self.served.is_some_and(|served| self.tail.epoch > served);
                if is_deposed && !is_mine {
                    self.leave(Reason::Deposed);
                } else if self.served == Some(self.tail.epoch) && self.tail.owner.is_none() {
                    self.leave(Reason::HandedOver);
                } else if is_mine
                    && self.served == Some(self.tail.epoch)
                    && !holds(Guard::ClaimsAgain)
                {
                    self.serve();
                } else {
                    self.append_claim();
                }
            }
            Phase::Confirming(claim) if self.at >= claim => {
                if is_mine && self.tail.epoch == self.epoch {
                    self.serve();
                } else {
                    self.leave(Reason::Deposed);
                }
            }
            _ => {}
        }
    }

    /// Publishes what is acknowledged where it was expected, in order.
    fn settle(&mut self) {
        while let Some(flight) = self.window.front()
            && let Some(outcome) = flight.outcome
        {
            let fits =
                outcome == Ok(self.at.next()) || outcome.is_ok() && !holds(Guard::PositionFits);
            if !fits && !holds(Guard::LaterAcksVoid) {
                self.lose_front();
                continue;
            }
            if !fits {
                self.phase = Phase::Settling;
                return self.survey_if_settled();
            }
            (self.at, self.tail) = (self.at.next(), flight.after);
            self.publish_front();
        }
        if self.phase == Phase::Leaving && self.window.is_empty() {
            self.leave(Reason::HandedOver);
        }
    }

    fn survey_if_settled(&mut self) {
        if self.window.iter().all(|flight| flight.outcome.is_some()) {
            self.survey();
        }
    }

    fn survey(&mut self) {
        self.phase = Phase::Surveying;
        self.effects.push_back(Effect::FindEnd);
    }

    fn append_claim(&mut self) {
        self.epoch = self.epoch.max(self.tail.epoch) + 1;
        let (kind, body): (_, &[&[u8]]) = (RecordKind::Epoch, &[]);
        let entry = Entry { kind, level: 0, first: 0, count: 0, time: 0, body };
        let record = self.encode(&entry, self.epoch, &self.tail);
        let ticket = self.ticket();
        self.phase = Phase::Claiming(ticket, self.at);
        // Without a condition: behind a busy predecessor a condition might never hold.
        self.effects.push_back(Effect::Append { ticket, record, after: None });
    }

    fn confirm(&mut self, claim: Position) {
        if !holds(Guard::ClaimIsRead) {
            (self.tail.epoch, self.tail.owner) = (self.epoch, Some(self.me));
            self.at = claim;
            return self.serve();
        }
        self.phase = Phase::Confirming(claim);
        self.effects.push_back(Effect::Read(claim));
        self.go_on();
    }

    fn serve(&mut self) {
        // The new epoch has ended what was not read before it.
        self.lose_all();
        (self.served, self.ahead, self.phase) = (Some(self.epoch), self.tail, Phase::Serving);
        self.effects.push_back(Effect::Serve);
    }

    fn leave(&mut self, reason: Reason) {
        let stops = !matches!(reason, Reason::Deposed | Reason::HandedOver);
        if stops {
            let known = self.window.drain(..).filter(|flight| !flight.is_own);
            self.effects.extend(known.map(|flight| Effect::Doubt(flight.ticket)));
        }
        self.lose_all();
        self.served = None;
        self.phase = if stops { Phase::Stopped } else { Phase::Following };
        self.effects.push_back(Effect::Leave(reason));
    }

    /// Publishes the oldest record in flight, whose position is known.
    fn publish_front(&mut self) {
        let Some(Flight { ticket, record, after, is_own, .. }) = self.window.pop_front() else {
            return;
        };
        self.effects.push_back(match is_own {
            true => Effect::Apply { record, at: self.at, tail: after },
            false => Effect::Publish { ticket, at: self.at, tail: after },
        });
    }

    fn lose_front(&mut self) {
        // The caller knows nothing of the others, and would take the loss for one of records that it appends later.
        let flight = self.window.pop_front().filter(|flight| !flight.is_own);
        self.effects.extend(flight.map(|flight| Effect::Lose(flight.ticket)));
    }

    fn lose_all(&mut self) {
        while !self.window.is_empty() {
            self.lose_front();
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next - 1)
    }

    fn encode(&self, entry: &Entry<'_>, epoch: u64, after: &Tail) -> Bytes {
        let Entry { kind, level, first, count, time, body } = *entry;
        let (number, chain, owner) = (after.number + 1, after.chain, self.me);
        let header = Header { kind, level, epoch, number, chain, owner, first, count, time };
        header.encode(body.iter().copied())
    }
}
