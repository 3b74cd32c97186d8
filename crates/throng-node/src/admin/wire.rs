//! Protocol of the admin socket: each request and each answer is a line of JSON.
//!
//! ```text
//! {"v":1,"get":"metrics"}                          {"v":1,"metrics":{"uptime_seconds":1.5,…}}
//! {"v":1,"get":"top","by":"memory","limit":20}     {"v":1,"top":[{"pid":"…","kind":"…",…},…]}
//! {"v":1,"get":"sums","by":"memory","limit":20}  {"v":1,"sums":[{"kind":"…","processes":7,…},…]}
//! {"v":1,"get":"list","limit":1000}                {"v":1,"list":{"pids":["…",…],"more":false}}
//! {"v":1,"get":"info","pid":"…"}                   {"v":1,"info":{"pid":"…",…}}
//! {"v":1,"get":"tree","limit":1000}                {"v":1,"tree":[{"depth":0,"pid":"…",…},…]}
//! {"v":1,"get":"kinds","limit":100}                {"v":1,"kinds":[{"process":"…","turns":7,…},…]}
//! {"v":1,"get":"entity","of":"kinds"}              {"v":1,"entity":{"kinds":[["…",7],…]}}
//! anything else                                    {"v":1,"error":{"kind":"…","detail":"…"}}
//! ```
//!
//! `top`, `sums` and `list` may have a `filter`, a text that the kind, the label or a name of each process contains, and
//! `top` an `offset`, the number of processes to leave out before the first. Requests about entities are those of
//! [`EntityRequest`].
//!
//! A client may send any number of lines over a connection; answers come in the order of the
//! requests. Times are seconds, sizes are bytes. The version changes when a previously valid line
//! becomes invalid. Fields may be added without a change of version, so a client must ignore
//! unknown fields. These types are the interface to clients; the runtime's own types may change
//! independently.

use std::cmp::Ordering;

use super::entities::{EntityAnswer, EntityRequest};
use serde::{Deserialize, Serialize};
use throng::{Pid, ProcessState, SortBy, short_kind};

/// Version of all lines.
pub const VERSION: u32 = 1;

/// Line of a request or an answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line<T> {
    v: u32,
    #[serde(flatten)]
    content: T,
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
pub enum Request {
    /// Counts of the node.
    Metrics,
    /// Processes with the largest values in some order, the largest first, without the first `offset`.
    Top {
        by: Order,
        limit: usize,
        #[serde(default, skip_serializing_if = "is_zero")]
        offset: usize,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        filter: String,
    },
    /// Sums over the processes of each kind, the largest in some order first.
    Sums {
        by: Order,
        limit: usize,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        filter: String,
    },
    /// Pids of live processes, in no particular order.
    List {
        limit: usize,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        filter: String,
    },
    /// Details of a process.
    Info { pid: String },
    /// Processes below their parents, parents first.
    Tree { limit: usize },
    /// Counts by kind of process, the kind that kept the workers busy for longest first.
    Kinds { limit: usize },
    /// Durable entities.
    Entity(EntityRequest),
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Order of the processes in `top`, and of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Number of messages in the mailbox
    MailboxLen,
    /// Bytes in the mailbox
    MailboxBytes,
    /// Memory without the mailbox
    Memory,
    /// Number of messages handled
    Turns,
    /// Longest time that a message took
    LongestTurn,
}

/// Answer of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Metrics(Metrics),
    Top(Vec<Process>),
    Sums(Vec<KindSums>),
    List(PidList),
    Info(Process),
    Tree(Vec<TreeRow>),
    Kinds(Vec<Kind>),
    Entity(EntityAnswer),
    Error(Refusal),
}

/// Reason for a missing answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Explanation for people.
    pub detail: String,
}

/// Kind of refusal, by the client's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The request is malformed: correct it.
    Malformed,
    /// The version is not supported: use the version of the answer.
    Version,
    /// The process has exited, or never existed: ask about another process.
    NoProcess,
    /// The kind or the key is wrong: ask about another entity.
    NoEntity,
    /// The node cannot answer, or change the entity: the detail tells the reason.
    Unable,
    /// Too many clients are connected, or the node stops: try again later.
    Busy,
}

/// Counts of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    pub uptime_seconds: f64,
    pub processes: u64,
    pub process_limit: u64,
    pub spawned: u64,
    pub exited: u64,
    pub panicked: u64,
    /// Number of messages that were dropped unhandled.
    pub dropped: u64,
    /// Memory of the processes, without heap memory that their states own.
    pub memory_bytes: u64,
    /// Bytes of all queued messages, and the maximum.
    pub mailbox_bytes: u64,
    pub mailbox_bytes_limit: u64,
    /// Ready processes that wait for any worker.
    pub injected: u64,
    pub workers: Vec<Worker>,
    /// Number of messages that callers from outside have handled, instead of a worker.
    pub guest_turns: u64,
}

/// Counts of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    pub turns: u64,
    pub busy_seconds: f64,
    /// Ready processes that wait for this worker.
    pub queued: u64,
    /// Number of times this worker has stolen processes from another.
    pub steals: u64,
    /// Number of times this worker went to sleep.
    pub parks: u64,
    /// Number of turns that have blocked this worker for too long.
    pub stuck_turns: u64,
    /// Whether this worker replaces a worker that a turn blocks.
    pub spare: bool,
}

/// Counts of a kind of process; a node counts them only while its dashboard listens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// Name of the Rust type, with its path.
    pub process: String,
    /// Name of the Rust type as people read it.
    pub kind: String,
    pub processes: u64,
    pub spawned: u64,
    pub exited: u64,
    pub panicked: u64,
    /// Number of messages to its processes that were dropped unhandled.
    pub dropped: u64,
    pub turns: u64,
    /// Time that its turns held a worker, an estimate.
    pub busy_seconds: f64,
}

/// Pids of live processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidList {
    pub pids: Vec<String>,
    /// Whether there are more processes than the limit.
    pub more: bool,
}

/// Details of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    pub pid: String,
    /// Name of the Rust type as people read it; null if the process did not answer.
    pub kind: Option<String>,
    /// Name of the Rust type, with its path.
    pub r#type: Option<String>,
    pub names: Vec<String>,
    /// Text that tells the process apart from others of its kind.
    pub label: Option<String>,
    pub state: RunState,
    /// Name of the running or suspended handler, if known.
    pub handler: Option<String>,
    pub parent: Option<String>,
    pub links: Vec<String>,
    pub monitors: Vec<String>,
    pub monitored_by: Vec<String>,
    pub traps_exits: bool,
    pub mailbox_len: u64,
    pub mailbox_bytes: u64,
    pub memory_bytes: u64,
    pub turns: Option<u64>,
    pub longest_turn_seconds: Option<f64>,
}

/// Sums over the processes of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KindSums {
    /// Name of the Rust type as people read it; null for processes that did not answer.
    pub kind: Option<String>,
    pub processes: u64,
    pub mailbox_len: u64,
    pub mailbox_bytes: u64,
    pub memory_bytes: u64,
    pub turns: u64,
    pub longest_turn_seconds: Option<f64>,
}

/// Activity of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    #[default]
    Idle,
    Queued,
    Running,
    Suspended,
    Exiting,
}

impl RunState {
    /// Returns the name for display.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Idle => "idle",
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Suspended => "suspended",
            RunState::Exiting => "exiting",
        }
    }
}

/// Process in the tree; its children follow it, a level deeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeRow {
    pub depth: usize,
    pub pid: String,
    pub kind: Option<String>,
    pub names: Vec<String>,
    pub label: Option<String>,
    /// Number of its live children, including children that the answer leaves out.
    pub children: u64,
}

impl Answer {
    /// Cuts texts to `bytes` bytes and lists of a process to `items` items, so that the answer's size has a bound.
    pub fn clip(&mut self, bytes: usize, items: usize) {
        let text = |text: &mut String| text.truncate(text.floor_char_boundary(bytes));
        match self {
            Answer::Top(processes) => {
                // A table has no room for lists.
                processes.iter_mut().for_each(|process| process.clip(bytes, 0));
            }
            Answer::Info(process) => process.clip(bytes, items),
            Answer::Tree(rows) => {
                for row in rows {
                    row.names.truncate(NAMES_MAX);
                    row.names.iter_mut().chain(&mut row.kind).chain(&mut row.label).for_each(text);
                }
            }
            Answer::Sums(sums) => {
                sums.iter_mut().filter_map(|sums| sums.kind.as_mut()).for_each(text);
            }
            Answer::Kinds(kinds) => {
                kinds
                    .iter_mut()
                    .flat_map(|kind| [&mut kind.process, &mut kind.kind])
                    .for_each(text);
            }
            // The texts of entities have bounds of their own.
            Answer::Entity(_) | Answer::Metrics(_) | Answer::List(_) | Answer::Error(_) => {}
        }
    }
}

impl Process {
    fn clip(&mut self, bytes: usize, items: usize) {
        for list in [&mut self.links, &mut self.monitors, &mut self.monitored_by] {
            list.truncate(items);
        }
        self.names.truncate(NAMES_MAX);
        let texts = self.names.iter_mut().chain(&mut self.kind).chain(&mut self.r#type);
        let texts = texts.chain(&mut self.label).chain(&mut self.handler);
        texts.for_each(|text| text.truncate(text.floor_char_boundary(bytes)));
    }
}

impl KindSums {
    /// Compares the sums of two kinds by an order, and by their number of processes if they are equal in it.
    pub fn compare(&self, other: &KindSums, by: Order) -> Ordering {
        let in_order = match by {
            Order::MailboxLen => self.mailbox_len.cmp(&other.mailbox_len),
            Order::MailboxBytes => self.mailbox_bytes.cmp(&other.mailbox_bytes),
            Order::Memory => self.memory_bytes.cmp(&other.memory_bytes),
            Order::Turns => self.turns.cmp(&other.turns),
            Order::LongestTurn => {
                let longest = |sums: &KindSums| sums.longest_turn_seconds.unwrap_or(0.0);
                longest(self).total_cmp(&longest(other))
            }
        };
        in_order.then(self.processes.cmp(&other.processes))
    }
}

/// Maximum number of names of a process in an answer whose size is bounded.
const NAMES_MAX: usize = 4;

impl Metrics {
    /// Returns the number of messages handled by all workers and guests.
    pub fn turns(&self) -> u64 {
        self.guest_turns + self.workers.iter().map(|worker| worker.turns).sum::<u64>()
    }

    /// Returns the number of processes that are ready and wait for a worker.
    pub fn ready(&self) -> u64 {
        self.injected + self.workers.iter().map(|worker| worker.queued).sum::<u64>()
    }

    /// Returns the number of turns that have blocked a worker for too long.
    pub fn stuck_turns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.stuck_turns).sum()
    }
}

impl From<throng::Metrics> for Metrics {
    fn from(metrics: throng::Metrics) -> Metrics {
        let guests = metrics.workers.iter().filter(|worker| worker.guest);
        Metrics {
            guest_turns: guests.map(|guests| guests.turns).sum(),
            uptime_seconds: metrics.uptime.as_secs_f64(),
            processes: metrics.processes,
            process_limit: metrics.process_limit,
            spawned: metrics.spawned,
            exited: metrics.exited,
            panicked: metrics.panicked,
            dropped: metrics.dropped.iter().map(|dropped| dropped.messages).sum(),
            memory_bytes: metrics.memory_bytes,
            mailbox_bytes: metrics.mailbox_bytes,
            mailbox_bytes_limit: metrics.mailbox_bytes_limit,
            injected: metrics.injected,
            workers: metrics
                .workers
                .into_iter()
                .filter(|worker| !worker.guest)
                .map(Worker::from)
                .collect(),
        }
    }
}

impl From<throng::WorkerMetrics> for Worker {
    fn from(worker: throng::WorkerMetrics) -> Worker {
        Worker {
            turns: worker.turns,
            busy_seconds: worker.busy.as_secs_f64(),
            queued: worker.queued,
            steals: worker.steals,
            parks: worker.parks,
            stuck_turns: worker.stuck_turns,
            spare: worker.spare,
        }
    }
}

impl From<throng::KindMetrics> for Kind {
    fn from(kind: throng::KindMetrics) -> Kind {
        Kind {
            process: kind.process.to_owned(),
            kind: short_kind(kind.process),
            processes: kind.processes,
            spawned: kind.spawned,
            exited: kind.exited,
            panicked: kind.panicked,
            dropped: kind.dropped,
            turns: kind.turns,
            busy_seconds: kind.busy.as_secs_f64(),
        }
    }
}

impl From<throng::ProcessInfo> for Process {
    fn from(info: throng::ProcessInfo) -> Process {
        let texts = |pids: Vec<Pid>| pids.into_iter().map(|pid| pid.to_string()).collect();
        let (state, handler) = match info.state {
            ProcessState::Idle => (RunState::Idle, None),
            ProcessState::Queued => (RunState::Queued, None),
            ProcessState::Suspended { handler } => (RunState::Suspended, Some(short_kind(handler))),
            ProcessState::Exiting => (RunState::Exiting, None),
            _ => (RunState::Running, None),
        };
        Process {
            pid: info.pid.to_string(),
            kind: info.kind.map(short_kind),
            r#type: info.kind.map(str::to_owned),
            names: info.names,
            label: info.label,
            state,
            handler,
            parent: info.parent.map(|parent| parent.to_string()),
            links: texts(info.links),
            monitors: texts(info.monitors),
            monitored_by: texts(info.monitored_by),
            traps_exits: info.traps_exits,
            mailbox_len: info.mailbox_len,
            mailbox_bytes: info.mailbox_bytes,
            memory_bytes: info.memory_bytes,
            turns: info.turns,
            longest_turn_seconds: info.longest_turn.map(|time| time.as_secs_f64()),
        }
    }
}

impl From<throng::KindSums> for KindSums {
    fn from(sums: throng::KindSums) -> KindSums {
        KindSums {
            kind: sums.kind.map(short_kind),
            processes: sums.processes,
            mailbox_len: sums.mailbox_len,
            mailbox_bytes: sums.mailbox_bytes,
            memory_bytes: sums.memory_bytes,
            turns: sums.turns,
            longest_turn_seconds: sums.longest_turn.map(|time| time.as_secs_f64()),
        }
    }
}

impl From<throng::ProcessTree> for TreeRow {
    fn from(branch: throng::ProcessTree) -> TreeRow {
        TreeRow {
            depth: branch.depth,
            pid: branch.pid.to_string(),
            kind: branch.kind.map(short_kind),
            names: branch.names,
            label: branch.label,
            children: branch.children,
        }
    }
}

impl From<Order> for SortBy {
    fn from(order: Order) -> SortBy {
        match order {
            Order::MailboxLen => SortBy::MailboxLen,
            Order::MailboxBytes => SortBy::MailboxBytes,
            Order::Memory => SortBy::Memory,
            Order::Turns => SortBy::Turns,
            Order::LongestTurn => SortBy::LongestTurn,
        }
    }
}

/// Reason for rejecting a line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("invalid line: {0}")]
    Malformed(serde_json::Error),
    #[error("version {0} of the protocol is not supported; use version {VERSION}")]
    Version(u32),
}

/// Encodes a line, with its line end.
pub fn write<T: Serialize>(content: T) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(&Line { v: VERSION, content })?;
    line.push('\n');
    Ok(line)
}

/// Decodes a line.
///
/// # Errors
/// The line has another version, or is malformed.
pub fn read<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, LineError> {
    /// Part that lines of all versions have in common.
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let Version { v } = serde_json::from_slice(line).map_err(LineError::Malformed)?;
    if v != VERSION {
        return Err(LineError::Version(v));
    }
    let line: Line<T> = serde_json::from_slice(line).map_err(LineError::Malformed)?;
    Ok(line.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_documented_and_come_back_as_they_were() {
        for (line, request) in [
            (r#"{"v":1,"get":"metrics"}"#, Request::Metrics),
            (
                r#"{"v":1,"get":"top","by":"memory","limit":20}"#,
                Request::Top { by: Order::Memory, limit: 20, offset: 0, filter: String::new() },
            ),
            (
                r#"{"v":1,"get":"top","by":"turns","limit":20,"offset":40,"filter":"user/"}"#,
                Request::Top { by: Order::Turns, limit: 20, offset: 40, filter: "user/".into() },
            ),
            (
                r#"{"v":1,"get":"sums","by":"memory","limit":20}"#,
                Request::Sums { by: Order::Memory, limit: 20, filter: String::new() },
            ),
            (
                r#"{"v":1,"get":"list","limit":1000}"#,
                Request::List { limit: 1000, filter: String::new() },
            ),
            (r#"{"v":1,"get":"info","pid":"a"}"#, Request::Info { pid: "a".into() }),
            (r#"{"v":1,"get":"tree","limit":5}"#, Request::Tree { limit: 5 }),
            (r#"{"v":1,"get":"kinds","limit":5}"#, Request::Kinds { limit: 5 }),
        ] {
            assert_eq!(write(&request).unwrap(), format!("{line}\n"));
            assert_eq!(read::<Request>(line.as_bytes()).unwrap(), request);
        }
        let refusal = Answer::Error(Refusal { kind: RefusalKind::Busy, detail: "wait".into() });
        let line = write(&refusal).unwrap();
        assert_eq!(line, "{\"v\":1,\"error\":{\"kind\":\"busy\",\"detail\":\"wait\"}}\n");
        assert_eq!(read::<Answer>(line.as_bytes()).unwrap(), refusal);
        for answer in [
            Answer::Metrics(Metrics { workers: vec![Worker::default()], ..Metrics::default() }),
            Answer::Top(vec![Process { longest_turn_seconds: Some(0.25), ..Process::default() }]),
            Answer::Sums(vec![KindSums { processes: 7, ..KindSums::default() }]),
            Answer::List(PidList { pids: vec!["a".into()], more: true }),
            Answer::Info(Process { names: vec!["n".into()], ..Process::default() }),
            Answer::Tree(vec![TreeRow { depth: 3, ..TreeRow::default() }]),
            Answer::Kinds(vec![Kind { busy_seconds: 0.5, ..Kind::default() }]),
        ] {
            let line = write(&answer).unwrap();
            assert_eq!(read::<Answer>(line.as_bytes()).unwrap(), answer, "{line}");
        }
    }

    #[test]
    fn other_versions_differ_from_malformed_lines_and_unknown_fields_are_ignored() {
        let read = |line: &str| read::<Request>(line.as_bytes());
        assert!(matches!(read(r#"{"v":2,"ask":"anything"}"#), Err(LineError::Version(2))));
        for line in ["", "metrics", "{}", r#"{"v":1}"#, r#"{"v":1,"get":"salary"}"#, "[1]", "\0"] {
            assert!(matches!(read(line), Err(LineError::Malformed(_))), "{line}");
        }
        let line = r#"{"v":1,"get":"metrics","colour":"blue"}"#;
        assert_eq!(read(line).unwrap(), Request::Metrics);
    }
}
