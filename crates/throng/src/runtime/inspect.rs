//! Looking at processes from outside: one, the busiest, all, or the tree they form.
//!
//! ```text
//!                    nobody holds the token          somebody does
//! looker ── pid ──┬─ borrow it, look, give it back
//!                 └────────────────────────────────── inspect signal ─▶ the holder looks for us
//! ```
//!
//! A process that is idle or waits in a turn is looked at on the spot: the looker takes its token,
//! reads, and gives it back, and does not set the process going. One that is queued or running is
//! sent a signal, which it answers between two turns. One that does neither within
//! [`ANSWER_DEADLINE`] is reported as running, with what is known.
//!
//! Invariants: what is read is read under the token, like anything else of a process; a token that
//! is borrowed is given back before anything is awaited; while nobody looks, none of this costs
//! anything.

use crate::address::Pid;
use crate::cell::{CellRef, Token};
use crate::memory::slab::SlotPlace;
use crate::runtime::RuntimeHandle;
use crate::signal::{self, Signal};
use crate::sync::{Mutex, lock};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// What is known of a process.
///
/// ```
/// # use throng::prelude::*;
/// use throng::ProcessState;
///
/// # struct Idle;
/// # impl Process for Idle {}
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let idle = runtime.spawn(Idle)?;
/// let info = runtime.block_on(async |runtime| runtime.info(idle).await).expect("it lives");
/// assert!(info.kind.is_some_and(|kind| kind.ends_with("Idle")));
/// assert_eq!((info.state, info.mailbox_len, info.memory_bytes), (ProcessState::Idle, 0, 64));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Which process this is.
    pub pid: Pid,
    /// Its type; none if it did not answer.
    pub kind: Option<&'static str>,
    /// The names it is registered under.
    pub names: Vec<String>,
    /// What it does.
    pub state: ProcessState,
    /// Who has spawned it, if that is known to it.
    pub parent: Option<Pid>,
    /// Processes it is linked to.
    pub links: Vec<Pid>,
    /// Processes it monitors, once for each monitor.
    pub monitors: Vec<Pid>,
    /// Processes that monitor it, once for each monitor.
    pub monitored_by: Vec<Pid>,
    /// Whether exit signals reach it as messages.
    pub traps_exits: bool,
    /// Messages that are queued; also those that an async process has
    /// [passed over](crate::Inbox::recv_match).
    pub mailbox_len: u64,
    /// What those take, and the signals among them; not what they point to.
    pub mailbox_bytes: u64,
    /// What the process takes besides its mailbox: its slot, a state too large for it, a turn that
    /// waits, links and monitors. What the state points to is not known.
    pub memory_bytes: u64,
    /// Turns it has run since they are counted: from when it first had a parent, a link, a monitor,
    /// a name or the like. None if it never had.
    pub turns: Option<u64>,
    /// The longest that one of its turns has kept a worker without waiting, if that was noticed:
    /// less than three milliseconds never is, ten always are. Resolution: some milliseconds.
    pub longest_turn: Option<Duration>,
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProcessState {
    /// It waits for messages.
    Idle,
    /// It has messages, and waits for a worker or is between two turns.
    Queued,
    /// It has not come to the end of a turn, or to a worker, for as long as it was waited for.
    Running,
    /// Its turn waits for something.
    Suspended {
        /// The type of the message that it handles.
        handler: &'static str,
    },
    /// It runs [`stopping`](crate::Process::stopping).
    Exiting,
}

/// What the processes listed by [`RuntimeHandle::top`] have most of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SortBy {
    /// [`ProcessInfo::mailbox_len`].
    MailboxLen,
    /// [`ProcessInfo::mailbox_bytes`].
    MailboxBytes,
    /// [`ProcessInfo::memory_bytes`].
    Memory,
    /// [`ProcessInfo::turns`].
    Turns,
    /// [`ProcessInfo::longest_turn`].
    LongestTurn,
}

/// A process in the tree that [`RuntimeHandle::tree`] returns: those it has spawned follow it, each
/// one deeper.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProcessTree {
    /// How many are above it.
    pub depth: usize,
    /// Which process this is.
    pub pid: Pid,
    /// Its type; none if it did not answer.
    pub kind: Option<&'static str>,
    /// The names it is registered under.
    pub names: Vec<String>,
    /// How many it has spawned that live, whether they follow or not.
    pub children: u64,
}

impl RuntimeHandle {
    /// What is known of a process; none if it has exited.
    ///
    /// Like Erlang's `process_info`, this asks the process itself: what it says is true at one
    /// instant between two of its steps. One that blocks its worker cannot answer, and is reported
    /// as [`ProcessState::Running`] after half a second.
    ///
    /// Cost: a look at each queued message; for a process that is busy, a signal to it.
    pub async fn info(&self, pid: impl Into<Pid>) -> Option<ProcessInfo> {
        let pid = pid.into();
        let (generation, cell) = pid.raw().parts();
        if let Some(borrowed) = cell.borrow(generation) {
            let info = ProcessInfo::of(borrowed.token());
            borrowed.give_back();
            return Some(info);
        }
        let (sender, answer) = oneshot::channel();
        let inspect = Box::new(move |token: &Token| drop(sender.send(ProcessInfo::of(token))));
        if signal::ask(pid, Signal::Inspect(inspect)).is_err() {
            // Or it has more signals unread than it can answer.
            return pid.is_alive().then(|| ProcessInfo::unanswered(pid));
        }
        match timeout(ANSWER_DEADLINE, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => pid.is_alive().then(|| ProcessInfo::unanswered(pid)),
        }
    }

    /// The pids of all processes, one after the other.
    ///
    /// The list is made as it is read: a process that lives all the while comes once, one that is
    /// spawned or exits meanwhile may come or not. So it costs no memory for millions, and
    /// [`take`](Iterator::take) ends it early.
    ///
    /// ```
    /// # use throng::prelude::*;
    /// # struct Idle;
    /// # impl Process for Idle {}
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let idle = runtime.spawn(Idle)?;
    /// assert!(runtime.list().eq([idle.pid()]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ProcessList {
        ProcessList { runtime: self.clone(), place: SlotPlace::default() }
    }

    /// The `n` processes that have most of something, the first one most.
    ///
    /// Cost: a look at each process, some hundred nanoseconds; the calling task lets others run
    /// meanwhile. Of the processes that are busy at this time 65,536 are asked, and waited for half
    /// a second; what does not answer comes last, but first by [`SortBy::LongestTurn`].
    pub async fn top(&self, n: usize, by: SortBy) -> Vec<ProcessInfo> {
        let best = Arc::new(Mutex::new(Best { n, heap: BinaryHeap::new() }));
        let visit = {
            let best = best.clone();
            move |token: &Token| lock(&best).offer(by, token)
        };
        let silent = survey(self, visit).await;
        let mut best = std::mem::replace(&mut *lock(&best), Best { n, heap: BinaryHeap::new() });
        for pid in silent {
            best.insert(by, ProcessInfo::unanswered(pid));
        }
        best.heap.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked.info).collect()
    }

    /// The processes that have a parent, and those parents, as a tree: each is followed by those it
    /// has spawned. At most `limit` of them.
    ///
    /// A process whose parent has exited stands at the top. Cost: as [`top`](Self::top).
    pub async fn tree(&self, limit: usize) -> Vec<ProcessTree> {
        let kin = Arc::new(Mutex::new(Kin { limit, ..Kin::default() }));
        let visit = {
            let kin = kin.clone();
            move |token: &Token| lock(&kin).visit(token)
        };
        survey(self, visit).await;
        let kin = std::mem::take(&mut *lock(&kin));
        // Those nobody has spawned, or nobody who lives.
        let mut roots = Vec::new();
        for (&parent, children) in &kin.children {
            if kin.known.contains(&parent) || roots.len() >= limit {
                continue;
            }
            match self.info(parent).await {
                // It was passed over: it has a parent itself, but the limit was reached before.
                Some(info) if info.parent.is_some_and(Pid::is_alive) => {}
                Some(info) => roots.push(Member::from(info)),
                None => roots.extend(children.kept.iter().cloned()),
            }
        }
        kin.grow(roots)
    }

    /// The process whose pid is printed as this text, if it lives in this runtime.
    ///
    /// ```
    /// # use throng::prelude::*;
    /// # struct Idle;
    /// # impl Process for Idle {}
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let pid = runtime.spawn(Idle)?.pid();
    /// assert_eq!(runtime.find(&pid.to_string()), Some(pid));
    /// assert_eq!(runtime.find("0"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(&self, pid: &str) -> Option<Pid> {
        let printed = u64::from_str_radix(pid, 16).ok()?;
        let cell = self.slab().find(Pid::slot_of_bits(printed))?;
        cell.resident().filter(|pid| pid.to_bits() == printed)
    }
}

/// The pids of a runtime's processes; made by [`RuntimeHandle::list`].
#[derive(Clone, Debug)]
pub struct ProcessList {
    runtime: RuntimeHandle,
    place: SlotPlace,
}

impl Iterator for ProcessList {
    type Item = Pid;

    fn next(&mut self) -> Option<Pid> {
        loop {
            let (cell, next) = self.runtime.slab().slot(self.place)?;
            self.place = next;
            if let Some(pid) = cell.resident() {
                return Some(pid);
            }
        }
    }
}

impl ProcessInfo {
    /// Reads what there is to know. For the token's holder, between two steps of the process.
    fn of(token: &Token) -> ProcessInfo {
        let load = token.load();
        let state = match token.handler() {
            _ if token.is_stopping() => ProcessState::Exiting,
            Some(handler) => ProcessState::Suspended { handler },
            None if load.messages > 0 => ProcessState::Queued,
            None => ProcessState::Idle,
        };
        let mut info = ProcessInfo {
            kind: Some(token.class().name),
            state,
            mailbox_len: load.messages,
            mailbox_bytes: load.bytes,
            memory_bytes: token.memory_bytes() as u64,
            ..ProcessInfo::unanswered(token.pid())
        };
        token.if_extension(|own| {
            info.names = own.memberships.iter().filter_map(|(_, member)| member.name()).collect();
            info.parent = own.parent;
            info.links = own.links.iter().collect();
            info.monitors = own.monitors.iter().map(|(_, pid)| *pid).collect();
            info.monitored_by = own.watchers.processes.iter().map(|((by, _), _)| *by).collect();
            info.traps_exits = own.traps_exits;
            info.turns = Some(own.turns);
            info.longest_turn = Some(own.longest_turn).filter(|time| !time.is_zero());
        });
        info
    }

    /// What is known of a process that does not answer.
    fn unanswered(pid: Pid) -> ProcessInfo {
        ProcessInfo {
            pid,
            kind: None,
            names: Vec::new(),
            state: ProcessState::Running,
            parent: None,
            links: Vec::new(),
            monitors: Vec::new(),
            monitored_by: Vec::new(),
            traps_exits: false,
            mailbox_len: 0,
            mailbox_bytes: 0,
            memory_bytes: 0,
            turns: None,
            longest_turn: None,
        }
    }
}

/// Has every process looked at, under its token; says who did not answer.
async fn survey(
    runtime: &RuntimeHandle,
    visit: impl Fn(&Token) + Send + Sync + 'static,
) -> Vec<Pid> {
    let visit = Arc::new(visit);
    let answered = Arc::new(Mutex::new(HashSet::new()));
    // Nothing is sent through it: that all senders are gone says that all have answered.
    let (pending, mut all_answered) = mpsc::channel::<()>(1);
    let mut asked = Vec::new();
    let mut place = SlotPlace::default();
    let mut looked_at = 0_usize;
    while let Some((cell, next)) = runtime.slab().slot(place) {
        place = next;
        looked_at += 1;
        if looked_at.is_multiple_of(SLOTS_IN_A_ROW) {
            tokio::task::yield_now().await;
        }
        if visit_at_rest(cell, &*visit) || asked.len() >= ASKED_MOST {
            continue;
        }
        let Some(pid) = cell.resident() else { continue };
        let inspect = {
            let (visit, answered, pending) = (visit.clone(), answered.clone(), pending.clone());
            move |token: &Token| {
                visit(token);
                lock(&answered).insert(pid);
                drop(pending);
            }
        };
        // One that takes no questions will not have answered in time either.
        let _ = signal::ask(pid, Signal::Inspect(Box::new(inspect)));
        asked.push(pid);
    }
    drop(pending);
    // Late or complete, what has been heard is there.
    let _ = timeout(ANSWER_DEADLINE, all_answered.recv()).await;
    let answered = lock(&answered);
    asked.retain(|pid| pid.is_alive() && !answered.contains(pid));
    asked
}

/// Looks at a process that does nothing at present; false if there is none, or it is busy.
fn visit_at_rest(cell: CellRef, visit: impl Fn(&Token)) -> bool {
    let borrowed = cell.generation().and_then(|generation| cell.borrow(generation));
    let Some(borrowed) = borrowed else { return false };
    visit(borrowed.token());
    borrowed.give_back();
    true
}

/// The processes that have most of something so far.
struct Best {
    n: usize,
    /// The least of them first.
    heap: BinaryHeap<Reverse<Ranked>>,
}

impl Best {
    fn offer(&mut self, by: SortBy, token: &Token) {
        // Most are not among the best, and are not described only to be forgotten.
        let is_full = self.heap.len() >= self.n;
        let least = self.heap.peek().filter(|_| is_full).map(|Reverse(least)| least.rank);
        if self.n > 0 && least.is_none_or(|least| rank_of(by, token) > least) {
            self.insert(by, ProcessInfo::of(token));
        }
    }

    fn insert(&mut self, by: SortBy, info: ProcessInfo) {
        self.heap.push(Reverse(Ranked { rank: info.rank(by), info }));
        if self.heap.len() > self.n {
            self.heap.pop();
        }
    }
}

/// How much of it a process has, without describing it.
fn rank_of(by: SortBy, token: &Token) -> u128 {
    match by {
        SortBy::MailboxLen => token.load().messages.into(),
        SortBy::MailboxBytes => token.load().bytes.into(),
        SortBy::Memory => token.memory_bytes() as u128,
        SortBy::Turns | SortBy::LongestTurn => ProcessInfo::of(token).rank(by),
    }
}

impl ProcessInfo {
    fn rank(&self, by: SortBy) -> u128 {
        match by {
            SortBy::MailboxLen => self.mailbox_len.into(),
            SortBy::MailboxBytes => self.mailbox_bytes.into(),
            SortBy::Memory => self.memory_bytes.into(),
            SortBy::Turns => self.turns.unwrap_or(0).into(),
            SortBy::LongestTurn if self.state == ProcessState::Running => u128::MAX,
            SortBy::LongestTurn => self.longest_turn.unwrap_or_default().as_nanos(),
        }
    }
}

/// A process and how much it has; of those that have the same, the first pid is more.
struct Ranked {
    rank: u128,
    info: ProcessInfo,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        (self.rank, Reverse(self.info.pid)).cmp(&(other.rank, Reverse(other.info.pid)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// Who has spawned whom.
#[derive(Default)]
struct Kin {
    limit: usize,
    children: HashMap<Pid, Children>,
    /// All that are kept anywhere.
    known: HashSet<Pid>,
}

#[derive(Default)]
struct Children {
    count: u64,
    kept: Vec<Member>,
}

/// A process of the tree.
#[derive(Clone)]
struct Member {
    pid: Pid,
    kind: Option<&'static str>,
    names: Vec<String>,
}

impl From<ProcessInfo> for Member {
    fn from(info: ProcessInfo) -> Member {
        Member { pid: info.pid, kind: info.kind, names: info.names }
    }
}

impl Kin {
    fn visit(&mut self, token: &Token) {
        let Some(parent) = token.if_extension(|own| own.parent).flatten() else { return };
        let children = self.children.entry(parent).or_default();
        children.count += 1;
        if self.known.len() < self.limit {
            let info = ProcessInfo::of(token);
            self.known.insert(info.pid);
            children.kept.push(info.into());
        }
    }

    /// The tree above these roots, in the order of pids.
    fn grow(mut self, mut roots: Vec<Member>) -> Vec<ProcessTree> {
        let mut branches = Vec::new();
        let by_pid_backwards = |members: &mut Vec<Member>| {
            members.sort_unstable_by_key(|member| Reverse(member.pid));
        };
        by_pid_backwards(&mut roots);
        // The next one last. Each list of children is taken once, so no pid comes twice.
        let mut rest: Vec<(usize, Member)> = roots.into_iter().map(|root| (0, root)).collect();
        while let Some((depth, Member { pid, kind, names })) = rest.pop() {
            if branches.len() >= self.limit {
                break;
            }
            let mut children = self.children.remove(&pid).unwrap_or_default();
            branches.push(ProcessTree { depth, pid, kind, names, children: children.count });
            by_pid_backwards(&mut children.kept);
            rest.extend(children.kept.into_iter().map(|child| (depth + 1, child)));
        }
        branches
    }
}

/// How long a process that is busy may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_millis(500);

/// Processes that are asked by one survey. A signal takes memory until it is answered.
const ASKED_MOST: usize = 65_536;

/// Slots that are looked at before others get their turn.
const SLOTS_IN_A_ROW: usize = 1024;
