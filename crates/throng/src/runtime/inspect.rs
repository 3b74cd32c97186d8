//! Inspection of processes from outside: a single process, the busiest, all, the sums of each kind, or their tree.
//!
//! ```text
//!                       the token is free               the token has a holder
//! inspector ── pid ──┬─ borrow it, read, give it back
//!                    └───────────────────────────────── inspect signal ─▶ the holder reads
//! ```
//!
//! An idle or suspended process is inspected on the spot: the inspector borrows its token, reads,
//! and gives the token back without scheduling the process. A queued or running process is sent a
//! signal, which it answers between two turns. A process that does not answer within
//! [`ANSWER_DEADLINE`] is reported as running, with only its pid.
//!
//! Invariants: the state of a process is read only by the holder of its token; a borrowed token is
//! given back before anything is awaited; inspection costs nothing while it is not used.

use crate::address::Pid;
use crate::cell::slab::SlotPlace;
use crate::cell::{CellRef, Token};
use crate::runtime::RuntimeHandle;
use crate::runtime::short_kind::short_kind;
use crate::signal::{self, Signal};
use crate::sync::{Mutex, lock};
use crate::turn::context::Context;
use crate::turn::process::Process;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// A snapshot of a process: its state, ties, queue and memory.
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
    /// Pid of the process.
    pub pid: Pid,
    /// Name of the process's type; `None` if the process did not answer.
    pub kind: Option<&'static str>,
    /// Names under which the process is registered.
    pub names: Vec<String>,
    /// Label of the process; see [`Context::set_label`].
    pub label: Option<String>,
    /// Current activity of the process.
    pub state: ProcessState,
    /// Pid of the process that spawned this process, if this process has recorded it.
    pub parent: Option<Pid>,
    /// Processes linked to this process.
    pub links: Vec<Pid>,
    /// Processes that this process monitors, once for each monitor.
    pub monitors: Vec<Pid>,
    /// Processes that monitor this process, once for each monitor.
    pub monitored_by: Vec<Pid>,
    /// Whether exit signals reach the process as messages.
    pub traps_exits: bool,
    /// Number of queued messages, including messages that an async process has
    /// [passed over](crate::Inbox::recv_match).
    pub mailbox_len: u64,
    /// Bytes of the queued messages and signals; heap memory they own is not included.
    pub mailbox_bytes: u64,
    /// Bytes the process uses besides its mailbox: its slot, a state too large for the slot, a
    /// suspended turn, links and monitors. Heap memory owned by the state is not included.
    pub memory_bytes: u64,
    /// Number of turns run since counting began, which is when the process first gets a parent, a
    /// link, a monitor, a name or the like. `None` if counting has not begun.
    pub turns: Option<u64>,
    /// Longest time that a turn of the process has held a worker without suspending, if measured:
    /// turns under three milliseconds never are, turns of ten milliseconds or more always are.
    /// Resolution: a few milliseconds.
    pub longest_turn: Option<Duration>,
}

/// Current activity of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProcessState {
    /// The process waits for messages.
    Idle,
    /// The process has messages, and waits for a worker or is between two turns.
    Queued,
    /// The process did not answer in time: it has not ended a turn, or has not reached a worker.
    Running,
    /// The process has a suspended turn, which waits for something.
    Suspended {
        /// Type of the message whose handler is suspended.
        handler: &'static str,
    },
    /// The process runs [`stopping`](crate::Process::stopping).
    Exiting,
}

/// Quantity by which [`RuntimeHandle::top`] ranks processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SortBy {
    /// Ranks processes by [`ProcessInfo::mailbox_len`].
    MailboxLen,
    /// Ranks processes by [`ProcessInfo::mailbox_bytes`].
    MailboxBytes,
    /// Ranks processes by [`ProcessInfo::memory_bytes`].
    Memory,
    /// Ranks processes by [`ProcessInfo::turns`].
    Turns,
    /// Ranks processes by [`ProcessInfo::longest_turn`].
    LongestTurn,
}

/// A process in the tree that [`RuntimeHandle::tree`] returns. Its children follow it, one level
/// deeper.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProcessTree {
    /// Number of ancestors of the process in the tree.
    pub depth: usize,
    /// Pid of the process.
    pub pid: Pid,
    /// Name of the process's type; `None` if the process did not answer.
    pub kind: Option<&'static str>,
    /// Names under which the process is registered.
    pub names: Vec<String>,
    /// Label of the process; see [`Context::set_label`].
    pub label: Option<String>,
    /// Number of live children of the process, whether or not they are listed.
    pub children: u64,
}

/// Sums over the processes of a kind; returned by [`RuntimeHandle::sums_by_kind`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct KindSums {
    /// Name of the processes' type; `None` for processes that did not answer.
    pub kind: Option<&'static str>,
    /// Number of processes of the kind.
    pub processes: u64,
    /// Sum of [`ProcessInfo::mailbox_len`].
    pub mailbox_len: u64,
    /// Sum of [`ProcessInfo::mailbox_bytes`].
    pub mailbox_bytes: u64,
    /// Sum of [`ProcessInfo::memory_bytes`].
    pub memory_bytes: u64,
    /// Sum of [`ProcessInfo::turns`], of the processes that count them.
    pub turns: u64,
    /// Maximum of [`ProcessInfo::longest_turn`].
    pub longest_turn: Option<Duration>,
}

impl<P: Process> Context<P> {
    /// Labels this process: inspection shows the text beside the type, so that processes of a type can be told apart.
    /// Replaces the label that it has, such as the kind and the key of a durable process.
    ///
    /// ```
    /// use throng::prelude::*;
    ///
    /// struct Session { user: String }
    /// impl Process for Session {
    ///     async fn started(&mut self, cx: &mut Context<Self>) {
    ///         cx.set_label(format!("session of {}", self.user));
    ///     }
    /// }
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let session = runtime.spawn(Session { user: "ada".to_owned() })?;
    /// # runtime.block_on(async |runtime| {
    /// # while runtime.info(session).await.expect("it lives").label.is_none() {}
    /// let found = runtime.search("of ada", 10, throng::SortBy::Memory).await;
    /// assert_eq!(found[0].pid, session.pid());
    /// # });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: some 300 bytes for the first of a label, a name or a timer; a process without these pays nothing.
    pub fn set_label(&mut self, label: impl Into<Box<str>>) {
        let label = label.into();
        let mut current = self.current();
        current.with_extension(|own| own.rare().label = Some(label));
    }
}

impl RuntimeHandle {
    /// Returns a snapshot of a process; `None` if it has exited.
    ///
    /// Like Erlang's `process_info`, this asks the process itself: the answer is consistent, taken
    /// at one instant between two of its steps. A process that blocks its worker cannot answer, and
    /// is reported as [`ProcessState::Running`] after half a second.
    ///
    /// Cost: a visit to each queued message; for a busy process, a signal to it.
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
            // The process has exited, or has too many unread signals to take another.
            return pid.is_alive().then(|| ProcessInfo::unanswered(pid));
        }
        match timeout(ANSWER_DEADLINE, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => pid.is_alive().then(|| ProcessInfo::unanswered(pid)),
        }
    }

    /// Returns an iterator over the pids of all processes.
    ///
    /// The list is produced as it is read: a process that lives throughout is listed once; a
    /// process that is spawned or exits meanwhile may or may not be listed. So the list uses no
    /// memory even for millions of processes, and [`take`](Iterator::take) ends it early.
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

    /// Returns the `n` processes with the most of a quantity, in descending order.
    ///
    /// Cost: a visit to each process, some hundred nanoseconds; the calling task yields to other
    /// tasks meanwhile. At most 65,536 busy processes are asked, and are given half a second to
    /// answer. Processes that do not answer come last; with [`SortBy::LongestTurn`] they come
    /// first.
    pub async fn top(&self, n: usize, by: SortBy) -> Vec<ProcessInfo> {
        self.search("", n, by).await
    }

    /// Returns the `n` processes with the most of a quantity, as [`top`](Self::top) does, of the processes whose kind,
    /// label or name contains `text`. The kind is that of [`short_kind`], and upper and lower case are the same.
    ///
    /// Cost: the same as [`top`](Self::top), and a copy of the label and the names of each process.
    pub async fn search(&self, text: &str, n: usize, by: SortBy) -> Vec<ProcessInfo> {
        let best = Best { n, heap: BinaryHeap::new(), filter: Filter::new(text) };
        let best = Arc::new(Mutex::new(best));
        let visit = {
            let best = best.clone();
            move |token: &Token| lock(&best).offer(by, token)
        };
        let silent = survey(self, visit).await;
        let mut best = lock(&best);
        if best.filter.is_empty() {
            silent.into_iter().for_each(|pid| best.insert(by, ProcessInfo::unanswered(pid)));
        }
        let heap = std::mem::take(&mut best.heap);
        heap.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked.info).collect()
    }

    /// Returns the sums over the processes of each kind, in no particular order, of the processes whose kind, label or
    /// name contains `text`, as for [`search`](Self::search).
    ///
    /// Cost: a snapshot of each process.
    pub async fn sums_by_kind(&self, text: &str) -> Vec<KindSums> {
        let sums = Arc::new(Mutex::new((Filter::new(text), HashMap::new())));
        let visit = {
            let sums = sums.clone();
            move |token: &Token| {
                let (filter, sums) = &mut *lock(&sums);
                if filter.accepts(token) {
                    KindSums::add(sums, &ProcessInfo::of(token));
                }
            }
        };
        let silent = survey(self, visit).await;
        let (filter, sums) = &mut *lock(&sums);
        if filter.is_empty() {
            for pid in silent {
                KindSums::add(sums, &ProcessInfo::unanswered(pid));
            }
        }
        std::mem::take(sums).into_values().collect()
    }

    /// Returns the processes that have a parent, and their parents, as a tree: each process is
    /// followed by its children. Lists at most `limit` processes.
    ///
    /// A process whose parent has exited is a root. Cost: the same as [`top`](Self::top).
    pub async fn tree(&self, limit: usize) -> Vec<ProcessTree> {
        let kin = Arc::new(Mutex::new(Kin { limit, ..Kin::default() }));
        let visit = {
            let kin = kin.clone();
            move |token: &Token| lock(&kin).visit(token)
        };
        survey(self, visit).await;
        let kin = std::mem::take(&mut *lock(&kin));
        // Processes without a live parent.
        let mut roots = Vec::new();
        for (&parent, children) in &kin.children {
            if kin.known.contains(&parent) || roots.len() >= limit {
                continue;
            }
            match self.info(parent).await {
                // This parent has a live parent itself, but the limit was reached before its visit.
                Some(info) if info.parent.is_some_and(Pid::is_alive) => {}
                Some(info) => roots.push(Member::from(info)),
                None => roots.extend(children.kept.iter().cloned()),
            }
        }
        kin.grow(roots)
    }

    /// Parses a pid from the text that its `Display` prints; `None` unless the process lives in
    /// this runtime.
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

/// Iterator over the pids of a runtime's processes; made by [`RuntimeHandle::list`].
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
    /// Reads a snapshot. Called by the token's holder, between two steps of the process.
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
            info.parent = own.parent;
            info.links = own.links().collect();
            info.traps_exits = own.traps_exits;
            info.turns = Some(own.turns);
            if let Some(own) = &own.ties {
                info.monitors = own.monitors.iter().flat_map(|own| own.iter()).collect();
                info.monitored_by = own.watchers.iter().collect();
            }
            info.names = own.names().collect();
            info.label = own.label();
            if let Some(own) = own.rare_if_any() {
                info.longest_turn = Some(own.longest_turn).filter(|time| !time.is_zero());
            }
        });
        info
    }

    /// Returns the snapshot of a process that does not answer: its pid, and nothing else.
    fn unanswered(pid: Pid) -> ProcessInfo {
        ProcessInfo {
            pid,
            kind: None,
            names: Vec::new(),
            label: None,
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

/// Has `visit` called for every process by the holder of its token; returns the live processes that
/// did not answer.
async fn survey(
    runtime: &RuntimeHandle,
    visit: impl Fn(&Token) + Send + Sync + 'static,
) -> Vec<Pid> {
    let visit = Arc::new(visit);
    let answered = Arc::new(Mutex::new(HashSet::new()));
    // Carries no values: the channel closes when the last closure, and so the last sender, is
    // dropped, which means that all processes have answered or exited.
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
        // A process that refuses the signal is treated like a process that answers too late.
        let _ = signal::ask(pid, Signal::Inspect(Box::new(inspect)));
        asked.push(pid);
    }
    drop(pending);
    // Whether this timed out or not, `answered` holds the answers received so far.
    let _ = timeout(ANSWER_DEADLINE, all_answered.recv()).await;
    let answered = lock(&answered);
    asked.retain(|pid| pid.is_alive() && !answered.contains(pid));
    asked
}

/// Visits the process in a slot if its token is free; false if the slot is empty or the process is
/// busy.
fn visit_at_rest(cell: CellRef, visit: impl Fn(&Token)) -> bool {
    let borrowed = cell.generation().and_then(|generation| cell.borrow(generation));
    let Some(borrowed) = borrowed else { return false };
    visit(borrowed.token());
    borrowed.give_back();
    true
}

impl KindSums {
    fn add(sums: &mut HashMap<Option<&'static str>, KindSums>, info: &ProcessInfo) {
        let own = sums.entry(info.kind).or_default();
        own.kind = info.kind;
        own.processes += 1;
        own.mailbox_len += info.mailbox_len;
        own.mailbox_bytes += info.mailbox_bytes;
        own.memory_bytes += info.memory_bytes;
        own.turns += info.turns.unwrap_or(0);
        own.longest_turn = own.longest_turn.max(info.longest_turn);
    }
}

/// Selection of processes by a text.
struct Filter {
    /// Text to be found, in lower case.
    text: String,
    /// Whether the name of each kind that was met contains the text.
    kinds: HashMap<&'static str, bool>,
}

impl Filter {
    fn new(text: &str) -> Filter {
        Filter { text: text.to_lowercase(), kinds: HashMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn accepts(&mut self, token: &Token) -> bool {
        let Filter { text, kinds } = self;
        if text.is_empty() {
            return true;
        }
        let holds = |name: &str| name.to_lowercase().contains(&**text);
        let kind = token.class().name;
        *kinds.entry(kind).or_insert_with(|| holds(&short_kind(kind)))
            || token.if_extension(|own| {
                own.label().is_some_and(|label| holds(&label))
                    || own.names().any(|name| holds(&name))
            }) == Some(true)
    }
}

/// The `n` highest-ranked processes found so far.
struct Best {
    n: usize,
    /// Min-heap: the lowest rank is at the top.
    heap: BinaryHeap<Reverse<Ranked>>,
    filter: Filter,
}

impl Best {
    fn offer(&mut self, by: SortBy, token: &Token) {
        // Most processes do not rank high enough, so their snapshots are not taken at all.
        let is_full = self.heap.len() >= self.n;
        let least = self.heap.peek().filter(|_| is_full).map(|Reverse(least)| least.rank);
        let ranks = self.n > 0 && least.is_none_or(|least| rank_of(by, token) > least);
        if ranks && self.filter.accepts(token) {
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

/// Returns the rank of a process, where possible without taking a whole snapshot.
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

/// A process and its rank; among equal ranks the lower pid is the greater.
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

/// Parents and their children, gathered for [`RuntimeHandle::tree`].
#[derive(Default)]
struct Kin {
    limit: usize,
    children: HashMap<Pid, Children>,
    /// Pids of all processes kept in `children`, at most `limit`.
    known: HashSet<Pid>,
}

#[derive(Default)]
struct Children {
    count: u64,
    kept: Vec<Member>,
}

/// A process of the tree, before its place there is known.
#[derive(Clone)]
struct Member {
    pid: Pid,
    kind: Option<&'static str>,
    names: Vec<String>,
    label: Option<String>,
}

impl From<ProcessInfo> for Member {
    fn from(info: ProcessInfo) -> Member {
        Member { pid: info.pid, kind: info.kind, names: info.names, label: info.label }
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

    /// Returns the tree that grows from these roots, siblings in the order of their pids.
    fn grow(mut self, mut roots: Vec<Member>) -> Vec<ProcessTree> {
        let mut branches = Vec::new();
        let by_pid_backwards = |members: &mut Vec<Member>| {
            members.sort_unstable_by_key(|member| Reverse(member.pid));
        };
        by_pid_backwards(&mut roots);
        // A stack: the next process is the last entry. Each list of children is removed when it is
        // taken, so no pid is listed twice.
        let mut rest: Vec<(usize, Member)> = roots.into_iter().map(|root| (0, root)).collect();
        while let Some((depth, Member { pid, kind, names, label })) = rest.pop() {
            if branches.len() >= self.limit {
                break;
            }
            let mut children = self.children.remove(&pid).unwrap_or_default();
            let count = children.count;
            branches.push(ProcessTree { depth, pid, kind, names, label, children: count });
            by_pid_backwards(&mut children.kept);
            rest.extend(children.kept.into_iter().map(|child| (depth + 1, child)));
        }
        branches
    }
}

const ANSWER_DEADLINE: Duration = Duration::from_millis(500);

/// Maximum number of processes asked in one survey: a signal takes memory until it is answered.
const ASKED_MOST: usize = 65_536;

/// Slots visited before the survey yields to other tasks.
const SLOTS_IN_A_ROW: usize = 1024;
