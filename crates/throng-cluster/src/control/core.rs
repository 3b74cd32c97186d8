//! [`ControlCore`]: what a node appends to the control log, given what it has read and what its clock shows.
//!
//! ```text
//!            end()           JOIN counts                    leave            LEAVE read
//! CatchingUp ─────▶ Joining ────────────▶ Member ────────────────▶ Leaving ───────────▶ Ended
//!                      │ JOIN is noise      │ RENEW, REPORT; of wishes: EXPIRE, PLAN      ▲
//!                      └────────────────────┴── refused, expired, log lost ───────────────┘
//! ```
//!
//! A pure state machine: each step answers with entries to append, whose outcomes matter little. An entry that got lost
//! is made again from the state that is known then; one that was made twice is noise.
//!
//! 1. The lease counts from before its renewals went out, and holds in no phase but `Member`.
//! 2. A join that was read is the proof that all before it was read. If a namesake made it noise, then joins are tried
//!    until either the namesake renews, so that it lives, or its silence has lasted long enough to expire it. Joins that
//!    come back show that the silence is not that of the log.
//! 3. All members have the same wishes, each `rank` steps later than the members before it which are alive. So the
//!    first of them makes all proposals, unless it cannot.
//! 4. A log that has other entries than before is left for good.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::plan::next_plan;
use crate::guard::{Guard, holds};
use crate::lease::{Lease, Watch};
use crate::members::{Entry, Member, Members, Refusal};
use crate::placement::{Copies, Shard};
use crate::record::Incarnation;
use crate::replica::{AppendError, Position};

/// Length of a lease. Nodes that disagree about it break the promise of leases, so it is no option.
pub const LEASE: Duration = Duration::from_secs(5);

/// Times and numbers of a node's side of the control log.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Number of shards, if this node makes the first plan; 64 by default.
    pub shards: u16,
    /// Number of standbys of each shard; 1 by default.
    pub standbys: usize,
    /// Time between two renewals; 1 s by default.
    pub renew_every: Duration,
    /// Longest time between own renewals that come back, after which the silence of others means nothing; 2.5 s by
    /// default, so that one renewal may get lost.
    pub silence_max: Duration,
    /// Time after the last join at which the first plan is made, so that nodes which start together share the shards;
    /// 3 s by default.
    pub gather: Duration,
    /// Time after the last join or end of a node at which shards move again; 60 s by default.
    pub settle: Duration,
    /// Time by which each member lets those before it propose; 200 ms by default.
    pub rank_delay: Duration,
    /// The run before of the same node, if the caller knows that it has ended, as by a lock on its directory. Its lease
    /// need not run out then.
    pub predecessor: Option<Incarnation>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            shards: 64,
            standbys: 1,
            renew_every: Duration::from_secs(1),
            silence_max: Duration::from_millis(2_500),
            gather: Duration::from_secs(3),
            settle: Duration::from_secs(60),
            rank_delay: Duration::from_millis(200),
            predecessor: None,
        }
    }
}

/// News for the state machine.
#[derive(Debug)]
pub enum Event<'e> {
    /// Time has passed.
    Tick,
    /// The log goes at least to a position.
    End(Position),
    /// An entry was read.
    Read(Position, &'e Bytes),
    /// An append that was made when the log was known up to the first position has an outcome.
    Appended(Position, Result<Position, AppendError>),
    /// The log begins at a position.
    Trimmed(Position),
    /// The log does not answer, for a reason.
    Failed(String),
    /// A copy of a shard on this node is behind by some time, or is gone.
    Report(Shard, Option<Duration>),
    /// The node is to leave.
    Leave,
}

/// End of a node's membership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The node has left.
    #[error("the node has left the cluster")]
    Left,
    /// Others have declared the node dead. It may join again, as another incarnation.
    #[error("the cluster has declared the node dead")]
    Expired,
    /// The cluster does not take the node.
    #[error(transparent)]
    Refused(Refusal),
    /// The log has lost entries that are needed.
    #[error(transparent)]
    Lost(Loss),
    /// The runtime of the node's task has ended.
    #[error("the runtime has ended")]
    Stopped,
}

/// Loss of entries of a control log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The entries up to a position were removed: join with a copy of the members.
    #[error("the control log begins at {}, and the entries from {} on are needed", .first.0, .needed.0)]
    Trimmed {
        /// First position that the log has.
        first: Position,
        /// First position that the node has not read.
        needed: Position,
    },
    /// The log went further before: it was restored from an old copy, or its servers have lost the end.
    #[error("the control log has taken an entry at {}, and went to {} before", .now.0, .before.0)]
    WentBack {
        /// Position of an entry that the log has taken.
        now: Position,
        /// Position up to which the log had been read before.
        before: Position,
    },
    /// A position has another entry than it had.
    #[error("the control log has another entry at {} than before", .0.0)]
    Changed(Position),
    /// A position is missing.
    #[error("the control log goes on at {} instead of {}", .found.0, .expected.0)]
    Gap {
        /// Next position to be read.
        expected: Position,
        /// Position that came.
        found: Position,
    },
}

/// Phase of a node's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reads what the log has.
    CatchingUp,
    /// Tries to join.
    Joining,
    /// Is a member.
    Member,
    /// Waits for its own leave.
    Leaving,
    /// Does nothing any more.
    Ended(Ended),
}

/// A node's side of the control log; see the file's head.
#[derive(Debug)]
pub struct ControlCore {
    me: Incarnation,
    member: Member,
    rules: Rules,
    phase: Phase,
    at: Position,
    /// Last entry that was read; none if the node began with a copy of the members.
    last: Option<Bytes>,
    /// Position up to which the log is read before the node joins.
    end: Option<Position>,
    members: Members,
    /// Number of entries that have changed the members but for renewals and reports.
    changes: u64,
    lease: Lease,
    watch: Watch,
    /// Reason of the last failure since a renewal came back.
    failure: Option<String>,
    /// Time of the next renewal, or of the next attempt to join or to leave.
    renew_at: Duration,
    /// Renewals of the namesake that were read since the node tries to join.
    namesake_renewals: u32,
    /// Time at which the last join or end of a node was read.
    changed_at: Duration,
    /// The change of the plan that is due, unless members have changed since, and whether it is that of a settled
    /// cluster.
    plan: Option<(bool, Option<BTreeMap<Shard, Copies>>)>,
    /// Time since which something is to be proposed.
    wished_at: Option<Duration>,
    /// Time at which this node has proposed it.
    proposed_at: Option<Duration>,
    lags: BTreeMap<Shard, u32>,
    /// Reports that were sent, the last of them, and whether it was read back.
    reports: (u64, BTreeMap<Shard, u32>, bool),
}

impl ControlCore {
    /// Begins with the members as of a position of the log, at a time.
    pub fn new(
        me: Incarnation,
        member: Member,
        rules: Rules,
        from: (Position, Members),
        now: Duration,
    ) -> ControlCore {
        let mut watch = Watch::new(me, LEASE, rules.silence_max);
        let (at, members) = from;
        members.nodes().iter().for_each(|(node, member)| watch.read(*node, member.renewal, now));
        ControlCore {
            me,
            member: Member { renewal: 0, ..member },
            rules,
            phase: Phase::CatchingUp,
            at,
            last: None,
            end: None,
            members,
            changes: 0,
            lease: Lease::new(LEASE),
            watch,
            failure: None,
            renew_at: now,
            namesake_renewals: 0,
            changed_at: now,
            plan: None,
            wished_at: None,
            proposed_at: None,
            lags: BTreeMap::new(),
            reports: (0, BTreeMap::new(), true),
        }
    }

    /// Takes an event in, and returns the entries to append, each without waiting for others.
    pub fn step(&mut self, now: Duration, event: Event<'_>) -> Vec<Entry> {
        if matches!(self.phase, Phase::Ended(_)) {
            return Vec::new();
        }
        match event {
            Event::Tick => {}
            Event::End(end) => self.end = Some(end),
            Event::Read(position, bytes) => self.read(now, position, bytes),
            Event::Appended(before, Ok(now)) if now <= before => {
                self.finish(Ended::Lost(Loss::WentBack { now, before }));
            }
            Event::Appended(_, Err(error)) => self.failure = Some(error.to_string()),
            Event::Appended(_, Ok(_)) => {}
            Event::Trimmed(first) if first > self.next() => {
                let needed = self.next();
                self.finish(Ended::Lost(Loss::Trimmed { first, needed }));
            }
            // The last entry is gone, and is not needed.
            Event::Trimmed(_) => self.last = None,
            Event::Failed(reason) => self.failure = Some(reason),
            Event::Report(shard, Some(lag)) => {
                self.lags.insert(shard, u32::try_from(lag.as_secs()).unwrap_or(u32::MAX));
            }
            Event::Report(shard, None) => {
                self.lags.remove(&shard);
            }
            // A join that is on its way will be expired.
            Event::Leave if matches!(self.phase, Phase::CatchingUp | Phase::Joining) => {
                self.finish(Ended::Left);
            }
            Event::Leave => {
                if holds(Guard::LeaveEndsLease) {
                    self.lease.end();
                }
                self.phase = Phase::Leaving;
                self.renew_at = now;
            }
        }
        if self.phase == Phase::CatchingUp && self.end.is_some_and(|end| self.at >= end) {
            self.phase = Phase::Joining;
        }
        self.act(now)
    }

    /// Number of the member.
    pub fn me(&self) -> Incarnation {
        self.me
    }

    /// Phase of the membership.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The members as of the last entry that was read.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Number of entries that have changed the members but for renewals and reports.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Position up to which the log was read.
    pub fn at(&self) -> Position {
        self.at
    }

    /// Position to read from: the last entry again, to see whether the log still has it.
    pub fn read_from(&self) -> Position {
        if self.last.is_some() { self.at } else { self.next() }
    }

    /// Time up to which the lease holds; 0 if it does not.
    pub fn lease_until(&self) -> Duration {
        self.lease.until()
    }

    /// Time at which an own entry came back last, and the reason of the last failure since.
    pub fn heard(&self) -> (Option<Duration>, Option<&str>) {
        (self.watch.heard(), self.failure.as_deref())
    }

    /// Time at which to step again if nothing happens before.
    pub fn wake_at(&self, now: Duration) -> Duration {
        // Deaths and wishes become due in between, and are no worse for this delay.
        self.renew_at.clamp(now, now + self.rules.rank_delay)
    }

    fn next(&self) -> Position {
        Position(self.at.0 + 1)
    }

    fn finish(&mut self, ended: Ended) {
        self.lease.end();
        self.phase = Phase::Ended(ended);
    }

    fn read(&mut self, now: Duration, position: Position, bytes: &Bytes) {
        if position == self.at && self.last.as_ref().is_some_and(|last| last != bytes) {
            return self.finish(Ended::Lost(Loss::Changed(position)));
        }
        if position <= self.at {
            return;
        }
        if position != self.next() {
            let gap = Loss::Gap { expected: self.next(), found: position };
            return self.finish(Ended::Lost(gap));
        }
        (self.at, self.last) = (position, Some(bytes.clone()));
        let Some(entry) = Entry::decode(bytes) else { return };
        let refusal = match &entry {
            Entry::Join(node, member) => self.members.refusal(*node, member),
            _ => None,
        };
        let counts = self.members.apply(&entry);
        if let Entry::Join(node, _) = &entry
            && *node == self.me
            && self.phase == Phase::Joining
        {
            self.read_join(now, refusal);
        }
        if counts {
            self.read_counted(now, entry);
        }
    }

    /// Takes in that the node's own join was read, whether it counts or not.
    fn read_join(&mut self, now: Duration, refusal: Option<Refusal>) {
        self.watch.read(self.me, 0, now);
        match refusal {
            None => {
                self.phase = Phase::Member;
                self.renew_at = now;
            }
            // The silence of the namesake decides.
            Some(Refusal::Name { .. }) => {}
            Some(refusal) => self.finish(Ended::Refused(refusal)),
        }
    }

    fn read_counted(&mut self, now: Duration, entry: Entry) {
        if !matches!(entry, Entry::Renew(..)) {
            self.plan = None;
            self.changes += u64::from(!matches!(entry, Entry::Report(..)));
        }
        match entry {
            Entry::Join(node, _) => {
                self.watch.read(node, 0, now);
                self.changed_at = now;
            }
            Entry::Renew(node, renewal) => {
                self.watch.read(node, renewal, now);
                if node == self.me {
                    self.read_renewal(now, renewal);
                } else if self.phase == Phase::Joining {
                    self.read_renewal_of_other(node);
                }
            }
            Entry::Expire(node, _) | Entry::Leave(node) => {
                self.watch.forget(node);
                self.changed_at = now;
                (self.wished_at, self.proposed_at) = (None, None);
                if node == self.me {
                    let is_leaving = self.phase == Phase::Leaving;
                    self.finish(if is_leaving { Ended::Left } else { Ended::Expired });
                } else if self.phase == Phase::Joining {
                    self.renew_at = now;
                }
            }
            Entry::Plan(..) => (self.wished_at, self.proposed_at) = (None, None),
            Entry::Report(node, number, _) if node == self.me => {
                self.reports.2 |= number == self.reports.0;
            }
            Entry::Drain(..) | Entry::Level(_) | Entry::Report(..) => {}
        }
    }

    fn read_renewal(&mut self, now: Duration, renewal: u64) {
        self.failure = None;
        if self.phase != Phase::Member && holds(Guard::LeaveEndsLease) {
            return;
        }
        let renewal =
            if holds(Guard::LeaseCountsFromSending) { renewal } else { self.lease.renew(now) };
        self.lease.read_back(renewal);
    }

    fn read_renewal_of_other(&mut self, node: Incarnation) {
        let namesake = self.members.named(&self.member.name).filter(|(other, _)| *other == node);
        let Some((node, member)) = namesake else { return };
        self.namesake_renewals += 1;
        // One renewal may have been on its way when the namesake was killed.
        if self.namesake_renewals > 1 {
            let (name, address) = (member.name.clone(), member.address.clone());
            self.finish(Ended::Refused(Refusal::Name { name, node, address }));
        }
    }

    fn act(&mut self, now: Duration) -> Vec<Entry> {
        let is_due = now >= self.renew_at;
        if is_due {
            self.renew_at = now + self.rules.renew_every;
        }
        match self.phase {
            Phase::CatchingUp | Phase::Ended(_) => Vec::new(),
            Phase::Joining if is_due => self.join(now),
            Phase::Leaving if is_due => vec![Entry::Leave(self.me)],
            Phase::Joining | Phase::Leaving => Vec::new(),
            Phase::Member => {
                let mut entries = if is_due { self.renew(now) } else { Vec::new() };
                entries.extend(self.propose(now));
                entries
            }
        }
    }

    fn join(&self, now: Duration) -> Vec<Entry> {
        let join = Entry::Join(self.me, self.member.clone());
        let Some((namesake, _)) = self.members.named(&self.member.name) else { return vec![join] };
        if self.rules.predecessor == Some(namesake) {
            return vec![Entry::Leave(namesake), join];
        }
        let mut dead = self.watch.dead(now).filter(|(node, _)| *node == namesake);
        let expiry = dead.next().map(|(node, renewal)| Entry::Expire(node, renewal));
        expiry.into_iter().chain([join]).collect()
    }

    fn renew(&mut self, now: Duration) -> Vec<Entry> {
        let mut entries = vec![Entry::Renew(self.me, self.lease.renew(now))];
        let (number, sent, is_read) = &self.reports;
        // All lags below a second are the same, and greater ones are told apart by their magnitude.
        let magnitude = |lag: &u32| u32::BITS - lag.leading_zeros();
        let is_as_sent = self.lags.keys().eq(sent.keys())
            && self.lags.values().map(magnitude).eq(sent.values().map(magnitude));
        if !is_read || !is_as_sent {
            self.reports = (number + 1, self.lags.clone(), false);
            entries.push(Entry::Report(self.me, self.reports.0, self.lags.clone()));
        }
        entries
    }

    /// Returns what this node has to propose: first expiries, then the plan without those that have expired.
    fn propose(&mut self, now: Duration) -> Vec<Entry> {
        // Proposals on their way would pile up in a log that is silent.
        if !self.watch.hears(now) && holds(Guard::SilenceIsNoDeath) {
            return Vec::new();
        }
        let dead: BTreeMap<Incarnation, u64> = self.watch.dead(now).collect();
        let plan = self.plan(now);
        if dead.is_empty() && plan.is_none() {
            self.wished_at = None;
            return Vec::new();
        }
        let before = self.members.nodes().range(..self.me);
        let rank = before.filter(|(node, _)| !dead.contains_key(node)).count() as u32;
        let wished_at = *self.wished_at.get_or_insert(now);
        let may_again = self.proposed_at.is_none_or(|at| now >= at + self.rules.renew_every);
        if now < wished_at + self.rules.rank_delay * rank || !may_again {
            return Vec::new();
        }
        self.proposed_at = Some(now);
        if dead.is_empty() {
            let number = self.members.plans() + 1;
            return plan.map(|plan| Entry::Plan(number, plan)).into_iter().collect();
        }
        dead.into_iter().map(|(node, renewal)| Entry::Expire(node, renewal)).collect()
    }

    /// Returns the change of the plan that is due.
    fn plan(&mut self, now: Duration) -> Option<BTreeMap<Shard, Copies>> {
        if self.members.plans() == 0 && now < self.changed_at + self.rules.gather {
            return None;
        }
        let is_settled = now >= self.changed_at + self.rules.settle && !self.members.is_mixed();
        if self.plan.as_ref().is_none_or(|(settled, _)| *settled != is_settled) {
            let (shards, standbys) = (self.rules.shards, self.rules.standbys);
            self.plan = Some((is_settled, next_plan(&self.members, shards, standbys, is_settled)));
        }
        self.plan.as_ref()?.1.clone()
    }
}
