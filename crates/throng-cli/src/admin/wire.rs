//! What is said over the admin socket: one line of JSON asks, one line answers.
//!
//! ```text
//! {"v":1,"get":"metrics"}                          {"v":1,"metrics":{"uptime_seconds":1.5,…}}
//! {"v":1,"get":"top","by":"memory","limit":20}     {"v":1,"top":[{"pid":"…","kind":"…",…},…]}
//! {"v":1,"get":"list","limit":1000}                {"v":1,"list":{"pids":["…",…],"more":false}}
//! {"v":1,"get":"info","pid":"…"}                   {"v":1,"info":{"pid":"…",…}}
//! {"v":1,"get":"tree","limit":1000}                {"v":1,"tree":[{"depth":0,"pid":"…",…},…]}
//! anything else                                    {"v":1,"error":{"kind":"…","detail":"…"}}
//! ```
//!
//! A client keeps its connection for as many lines as it likes; answers come in the order of the
//! questions. Times are seconds, sizes are bytes. The version changes when a line that was right
//! before is not any more; fields may be added without that, so whoever reads ignores what it does
//! not know. These types are the promise to clients; the runtime's own may change beneath them.

use serde::{Deserialize, Serialize};
use throng::{Pid, ProcessState, SortBy};

/// The version of all lines.
pub(crate) const VERSION: u32 = 1;

/// A question or an answer, as it stands in its line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line<T> {
    v: u32,
    #[serde(flatten)]
    content: T,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The node's counts.
    Metrics,
    /// The processes that have most of something, the first one most.
    Top { by: Order, limit: usize },
    /// The pids of living processes, in no particular order.
    List { limit: usize },
    /// One process.
    Info { pid: String },
    /// Processes below those that spawned them, parents first.
    Tree { limit: usize },
}

/// What the processes of `top` have most of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
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

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Metrics(Metrics),
    Top(Vec<Process>),
    List(PidList),
    Info(Process),
    Tree(Vec<Branch>),
    Error(Refusal),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// For people.
    pub(crate) detail: String,
}

/// What the client can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalKind {
    /// Mend the question.
    Malformed,
    /// Speak the version that the answer has.
    Version,
    /// Ask about another process: this one has exited, or never was.
    NoProcess,
    /// Come back when others have gone.
    Busy,
}

/// The counts of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Metrics {
    pub(crate) uptime_seconds: f64,
    pub(crate) processes: u64,
    pub(crate) process_limit: u64,
    pub(crate) spawned: u64,
    pub(crate) exited: u64,
    pub(crate) panicked: u64,
    /// Bytes of all queued messages, and how many there may be.
    pub(crate) mailbox_bytes: u64,
    pub(crate) mailbox_bytes_limit: u64,
    /// Ready processes that wait for any worker.
    pub(crate) injected: u64,
    pub(crate) workers: Vec<Worker>,
}

/// The counts of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) turns: u64,
    pub(crate) busy_seconds: f64,
    /// Ready processes that wait for this worker.
    pub(crate) queued: u64,
    /// How often it has taken processes from another.
    pub(crate) steals: u64,
    /// How often it went to sleep.
    pub(crate) parks: u64,
    /// Turns that have blocked it for too long.
    pub(crate) stuck_turns: u64,
    /// Whether it stands in for one that a turn blocks.
    pub(crate) spare: bool,
}

/// The pids of living processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PidList {
    pub(crate) pids: Vec<String>,
    /// Whether there are more than were asked for.
    pub(crate) more: bool,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    pub(crate) pid: String,
    /// The type, as Rust names it; null if the process did not answer.
    pub(crate) kind: Option<String>,
    pub(crate) names: Vec<String>,
    pub(crate) state: RunState,
    /// What is running or suspended, if that is known.
    pub(crate) handler: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) links: Vec<String>,
    pub(crate) monitors: Vec<String>,
    pub(crate) monitored_by: Vec<String>,
    pub(crate) traps_exits: bool,
    pub(crate) mailbox_len: u64,
    pub(crate) mailbox_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) turns: Option<u64>,
    pub(crate) longest_turn_seconds: Option<f64>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    #[default]
    Idle,
    Queued,
    Running,
    Suspended,
    Exiting,
}

impl RunState {
    /// As people read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RunState::Idle => "idle",
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Suspended => "suspended",
            RunState::Exiting => "exiting",
        }
    }
}

/// A process in the tree: its children follow it, each one deeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Branch {
    pub(crate) depth: usize,
    pub(crate) pid: String,
    pub(crate) kind: Option<String>,
    pub(crate) names: Vec<String>,
    /// How many it has spawned that live, also where the answer leaves some out.
    pub(crate) children: u64,
}

impl Metrics {
    /// Messages handled by all workers.
    pub(crate) fn turns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.turns).sum()
    }

    /// Processes that are ready and wait for a worker.
    pub(crate) fn ready(&self) -> u64 {
        self.injected + self.workers.iter().map(|worker| worker.queued).sum::<u64>()
    }

    /// Turns that have blocked a worker for too long.
    pub(crate) fn stuck_turns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.stuck_turns).sum()
    }
}

impl From<throng::Metrics> for Metrics {
    fn from(metrics: throng::Metrics) -> Metrics {
        Metrics {
            uptime_seconds: metrics.uptime.as_secs_f64(),
            processes: metrics.processes,
            process_limit: metrics.process_limit,
            spawned: metrics.spawned,
            exited: metrics.exited,
            panicked: metrics.panicked,
            mailbox_bytes: metrics.mailbox_bytes,
            mailbox_bytes_limit: metrics.mailbox_bytes_limit,
            injected: metrics.injected,
            workers: metrics.workers.into_iter().map(Worker::from).collect(),
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

impl From<throng::ProcessInfo> for Process {
    fn from(info: throng::ProcessInfo) -> Process {
        let texts = |pids: Vec<Pid>| pids.into_iter().map(|pid| pid.to_string()).collect();
        let (state, handler) = match info.state {
            ProcessState::Idle => (RunState::Idle, None),
            ProcessState::Queued => (RunState::Queued, None),
            ProcessState::Suspended { handler } => (RunState::Suspended, Some(handler.to_owned())),
            ProcessState::Exiting => (RunState::Exiting, None),
            _ => (RunState::Running, None),
        };
        Process {
            pid: info.pid.to_string(),
            kind: info.kind.map(str::to_owned),
            names: info.names,
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

impl From<throng::ProcessTree> for Branch {
    fn from(branch: throng::ProcessTree) -> Branch {
        Branch {
            depth: branch.depth,
            pid: branch.pid.to_string(),
            kind: branch.kind.map(str::to_owned),
            names: branch.names,
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

/// Why a line says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("invalid line: {0}")]
    Malformed(serde_json::Error),
    #[error("version {0} of the protocol is not supported; use version {VERSION}")]
    Version(u32),
}

/// Writes a line, with its end.
pub(crate) fn write<T: Serialize>(content: T) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(&Line { v: VERSION, content })?;
    line.push('\n');
    Ok(line)
}

/// Reads a line.
///
/// # Errors
/// It is of another version, or not of this protocol.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, LineError> {
    /// All that is sure about a line of any version.
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
                Request::Top { by: Order::Memory, limit: 20 },
            ),
            (r#"{"v":1,"get":"list","limit":1000}"#, Request::List { limit: 1000 }),
            (r#"{"v":1,"get":"info","pid":"a"}"#, Request::Info { pid: "a".into() }),
            (r#"{"v":1,"get":"tree","limit":5}"#, Request::Tree { limit: 5 }),
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
            Answer::List(PidList { pids: vec!["a".into()], more: true }),
            Answer::Info(Process { names: vec!["n".into()], ..Process::default() }),
            Answer::Tree(vec![Branch { depth: 3, ..Branch::default() }]),
        ] {
            let line = write(&answer).unwrap();
            assert_eq!(read::<Answer>(line.as_bytes()).unwrap(), answer, "{line}");
        }
    }

    #[test]
    fn other_versions_are_told_from_nonsense_and_unknown_fields_are_ignored() {
        let read = |line: &str| read::<Request>(line.as_bytes());
        assert!(matches!(read(r#"{"v":2,"ask":"anything"}"#), Err(LineError::Version(2))));
        for line in ["", "metrics", "{}", r#"{"v":1}"#, r#"{"v":1,"get":"salary"}"#, "[1]", "\0"] {
            assert!(matches!(read(line), Err(LineError::Malformed(_))), "{line}");
        }
        let line = r#"{"v":1,"get":"metrics","colour":"blue"}"#;
        assert_eq!(read(line).unwrap(), Request::Metrics);
    }
}
