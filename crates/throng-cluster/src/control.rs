//! [`Control`]: a node's membership of a cluster: joins, renews its lease, watches others, and plans shards.
//!
//! ```text
//!            ┌─ task ────────────────────────────┐
//! drain … ──▶│ commands ──▶ ControlCore ──▶ entry ─── append ──▶ control log ─┐
//! members ◀──│ watch ◀──── step(now, event) ◀────── read ◀────────────────────┘
//! lease   ◀──│ until                             │
//!            └───────────────────────────────────┘
//! ```
//!
//! All decisions are those of [`ControlCore`]; the task carries entries to the log and back, and tries again where the
//! log does not answer.
//!
//! 1. The lease is asked by the clock alone, so it runs out while the task rests.
//! 2. No append waits for another one, and each has a deadline, after which its outcome does not matter.
//! 3. A node whose membership has ended appends nothing, and joins again only as another one, by another call.

mod clock;
mod core;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

pub use self::clock::Clock;
pub use self::core::{ControlCore, Ended, Event, LEASE, Loss, Phase, Rules};
pub use self::plan::next_plan;
use crate::log::{BoxFuture, BoxStream, LogError, ShardLog};
use crate::members::{Entry, Member, Members, Refusal};
use crate::placement::Shard;
use crate::record::Incarnation;
use crate::replica::{AppendError, Position};

/// Options of a node's membership.
#[derive(Clone, Debug)]
pub struct Options {
    /// Times and numbers of the decisions.
    pub rules: Rules,
    /// Time after which the outcome of an append is taken for unknown; 3 s by default.
    pub append_within: Duration,
    /// Time in which the node has to be a member; 30 s by default. A node that was killed waits for the end of the lease
    /// of its run before.
    pub join_within: Duration,
    /// Time after which a command gives up; 10 s by default.
    pub command_within: Duration,
    /// Longest pause before a log that does not answer is read again; 2 s by default.
    pub backoff_max: Duration,
    /// Members as of a position of the log, from which it is read; the log's begin by default.
    pub from: (Position, Members),
    /// Clock of the lease; that of the system by default.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rules: Rules::default(),
            append_within: Duration::from_secs(3),
            join_within: Duration::from_secs(30),
            command_within: Duration::from_secs(10),
            backoff_max: Duration::from_secs(2),
            from: (Position(0), Members::default()),
            clock: Clock::system(),
        }
    }
}

/// Error of joining a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The cluster does not take this node: start another version, or under another name.
    #[error("the cluster refuses the node: {0}")]
    Refused(Refusal),
    /// The log does not answer: look after its servers and the network, and try again. The node may be a member for the
    /// time of a lease.
    #[error("the node has not become a member in time: {0}")]
    Unreachable(String),
    /// The log has lost entries: join with a copy of the members, or have the log repaired.
    #[error("the control log cannot be followed: {0}")]
    Lost(Loss),
    /// The system has no random numbers.
    #[error("the system has no random numbers for an incarnation: {0}")]
    Random(String),
    /// The membership ended at once, for instance because the node was expired: try again.
    #[error("the membership ended at once: {0}")]
    Ended(Ended),
}

/// Error of a command to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No member has the name.
    #[error("the cluster has no node {0}")]
    NoNode(String),
    /// Some nodes do not understand the level: replace their programs first.
    #[error("level {level} is not understood by {}", .nodes.join(", "))]
    NotUnderstood {
        /// Level that was asked for.
        level: u32,
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// The log did not answer in time: the command may be carried out later.
    #[error("the control log did not answer in time, and may carry the command out later")]
    Unknown,
    /// The node is no member any more.
    #[error("the node is no member: {0}")]
    Ended(Ended),
}

/// Whether a node hears the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Own entries come back.
    Well,
    /// No own entry has come back lately.
    Silent {
        /// Time since the last one came back, by the node's clock; all time that the node has tried if none has.
        since: Duration,
        /// Last failure, or that there was none.
        reason: String,
    },
}

/// A node's membership of a cluster; see the file's head. A handle that is dropped ends the membership as a crash does:
/// others expire the node.
#[derive(Debug)]
pub struct Control {
    me: Incarnation,
    options: Options,
    commands: mpsc::UnboundedSender<Command>,
    news: watch::Receiver<Arc<Members>>,
    phase: watch::Receiver<Phase>,
    shared: Arc<Shared>,
}

/// State that a caller asks for without the task.
#[derive(Debug)]
struct Shared {
    /// End of the lease in nanoseconds of the clock; 0 if it does not hold.
    lease_until: AtomicU64,
    /// Time at which an own entry came back last, and the last failure since.
    heard: Mutex<(Duration, Option<String>)>,
}

#[derive(Debug)]
enum Command {
    Append(Entry),
    Report(Shard, Option<Duration>),
    Leave,
}

impl Control {
    /// Joins the cluster of a control log, and returns when the log has the node. `renewal` of the member is
    /// disregarded.
    ///
    /// # Errors
    ///
    /// A node that cannot become a member. If the log has not answered in time, then the node may be one until others
    /// expire it.
    pub async fn join(
        log: Arc<dyn ShardLog>,
        member: Member,
        options: Options,
    ) -> Result<Control, JoinError> {
        let mut me = [0; 16];
        getrandom::fill(&mut me).map_err(|error| JoinError::Random(error.to_string()))?;
        let me = Incarnation(u128::from_le_bytes(me));
        let now = options.clock.now();
        let core = ControlCore::new(me, member, options.rules.clone(), options.from.clone(), now);
        let shared =
            Arc::new(Shared { lease_until: AtomicU64::new(0), heard: Mutex::new((now, None)) });
        let (commands, received) = mpsc::unbounded_channel();
        let (publish, news) = watch::channel(Arc::new(core.members().clone()));
        let (phases, phase) = watch::channel(core.phase().clone());
        let (within, records) = (options.append_within, log.read(core.read_from()));
        let task = Task {
            log,
            clock: options.clock.clone(),
            append_within: within,
            backoff_max: options.backoff_max,
            core,
            records: Some(records),
            read_at: now,
            appends: FuturesUnordered::new(),
            commands: received,
            publish,
            phases,
            shared: shared.clone(),
            told: (Position(0), 0),
        };
        let mut control = Control { me, options, commands, news, phase, shared };
        tokio::spawn(task.run());
        let within = control.options.join_within;
        let is_over = |phase: &Phase| matches!(phase, Phase::Member | Phase::Ended(_));
        let joined = timeout(within, control.phase.wait_for(is_over)).await;
        let ended = match joined.map(|phase| phase.map(|phase| phase.clone())) {
            Ok(Ok(Phase::Ended(ended))) => ended,
            Ok(Ok(_)) => return Ok(control),
            Ok(Err(_)) => Ended::Stopped,
            Err(_) => return Err(JoinError::Unreachable(control.why_not())),
        };
        Err(match ended {
            Ended::Refused(refusal) => JoinError::Refused(refusal),
            Ended::Lost(loss) => JoinError::Lost(loss),
            ended => JoinError::Ended(ended),
        })
    }

    fn why_not(&self) -> String {
        match self.health() {
            Health::Silent { reason, .. } => reason,
            Health::Well => "the run before of the node has not ended".into(),
        }
    }

    /// Number of this membership.
    pub fn me(&self) -> Incarnation {
        self.me
    }

    /// Whether the node may answer reads from its own state at this moment; ask after the state was read. Costs a look
    /// at the clock.
    pub fn lease_holds(&self) -> bool {
        let now = self.options.clock.now();
        // Relaxed: that the lease holds until then stays true, whenever it was learnt. Only a leave ends it earlier,
        // and the store precedes the system call that sends the leave.
        now < Duration::from_nanos(self.shared.lease_until.load(Ordering::Relaxed))
    }

    /// Returns the members and the plan, as of the last entry that was read. All changes but renewals and reports wake
    /// the receiver.
    pub fn watch(&self) -> watch::Receiver<Arc<Members>> {
        self.news.clone()
    }

    /// Returns whether the log is heard, and if not, since when and why.
    pub fn health(&self) -> Health {
        let (heard, failure) =
            self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let since = self.options.clock.now().saturating_sub(heard);
        if since <= self.options.rules.silence_max {
            return Health::Well;
        }
        let none = || "entries that were appended do not come back".to_owned();
        Health::Silent { since, reason: failure.unwrap_or_else(none) }
    }

    /// States the time by which this node's copy of a shard is behind, an owner's by nothing; `None` without a copy. A
    /// copy that is less than a second behind may become the owner.
    pub fn report(&self, shard: Shard, lag: Option<Duration>) {
        self.send(Command::Report(shard, lag));
    }

    /// Has a node's shards moved to others, or ends that, and returns when the log has it.
    ///
    /// # Errors
    ///
    /// A name that no member has, or a log that does not answer.
    pub async fn drain(&self, name: &str, drains: bool) -> Result<(), CommandError> {
        self.command(|members| {
            let named = members.named(name);
            let (node, member) = named.ok_or_else(|| CommandError::NoNode(name.to_owned()))?;
            Ok((member.is_draining != drains).then_some(Entry::Drain(node, drains)))
        })
        .await
    }

    /// Raises the level of features to one that all nodes understand, and returns when the log has it.
    ///
    /// # Errors
    ///
    /// A level that a node does not understand, or a log that does not answer.
    pub async fn finalize(&self, level: u32) -> Result<(), CommandError> {
        self.command(|members| {
            let nodes = members.nodes().values().filter(|member| member.levels.1 < level);
            let nodes: Vec<String> = nodes.map(|member| member.name.clone()).collect();
            if !nodes.is_empty() {
                return Err(CommandError::NotUnderstood { level, nodes });
            }
            Ok((members.level() < level).then_some(Entry::Level(level)))
        })
        .await
    }

    /// Ends the membership in order. The node's lease ends at once, and others may take its shards.
    ///
    /// # Errors
    ///
    /// A log that does not answer: others expire the node.
    pub async fn leave(&self) -> Result<(), CommandError> {
        self.send(Command::Leave);
        match timeout(self.options.command_within, self.ended()).await {
            Ok(Ended::Left) => Ok(()),
            Ok(ended) => Err(CommandError::Ended(ended)),
            Err(_) => Err(CommandError::Unknown),
        }
    }

    /// Waits until the membership has ended. A node that was expired may join again.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + use<> {
        // The future does not keep the membership.
        let mut phase = self.phase.clone();
        async move {
            let ended = phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
            match ended.as_deref() {
                Ok(Phase::Ended(ended)) => ended.clone(),
                _ => Ended::Stopped,
            }
        }
    }

    /// Appends what `due` says until nothing is due any more.
    async fn command(
        &self,
        due: impl Fn(&Members) -> Result<Option<Entry>, CommandError>,
    ) -> Result<(), CommandError> {
        let mut news = self.news.clone();
        let carry_out = async {
            loop {
                let members = news.borrow_and_update().clone();
                let Some(entry) = due(&members)? else { return Ok(()) };
                self.send(Command::Append(entry));
                tokio::select! {
                    _ = timeout(self.options.append_within, news.changed()) => {}
                    ended = self.ended() => return Err(CommandError::Ended(ended)),
                }
            }
        };
        timeout(self.options.command_within, carry_out).await.unwrap_or(Err(CommandError::Unknown))
    }

    fn send(&self, command: Command) {
        // Without the task the membership has ended, as `ended` says.
        let _ended = self.commands.send(command);
    }
}

/// Position up to which the log was known when an entry was appended, and its outcome.
type Outcome = (Position, Result<Position, AppendError>);
type Records = BoxStream<Result<(Position, bytes::Bytes), LogError>>;

/// The task of a membership.
struct Task {
    log: Arc<dyn ShardLog>,
    clock: Clock,
    append_within: Duration,
    backoff_max: Duration,
    core: ControlCore,
    /// None while the task waits to read again.
    records: Option<Records>,
    /// Time at which the log was read last, or an attempt was begun.
    read_at: Duration,
    appends: FuturesUnordered<BoxFuture<Outcome>>,
    commands: mpsc::UnboundedReceiver<Command>,
    publish: watch::Sender<Arc<Members>>,
    phases: watch::Sender<Phase>,
    shared: Arc<Shared>,
    /// Position and number of changes that callers know.
    told: (Position, u64),
}

/// Number of entries that are read before others get a turn.
const READ_MAX: usize = 256;
const BACKOFF_MIN: Duration = Duration::from_millis(50);

impl Task {
    async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        let mut read_again = Box::pin(sleep(Duration::ZERO));
        let mut end = Some(self.log.end());
        let mut end_again = Box::pin(sleep(self.append_within));
        while !matches!(self.core.phase(), Phase::Ended(_)) {
            let now = self.clock.now();
            if self.records.is_some() && now >= self.read_at + LEASE {
                // A client whose server went away may wait for ever, and own renewals should have come.
                self.fail(Some(LogError::Unavailable("nothing comes from it".into())));
                read_again = Box::pin(sleep(Duration::ZERO));
            }
            let wake = sleep(self.core.wake_at(now).saturating_sub(now));
            tokio::select! {
                record = next(&mut self.records), if self.records.is_some() => match record {
                    Some(Ok(record)) => {
                        backoff = BACKOFF_MIN;
                        self.read(record);
                    }
                    failed => {
                        self.fail(failed.and_then(Result::err));
                        read_again = Box::pin(sleep(backoff));
                        backoff = (backoff * 2).min(self.backoff_max);
                    }
                },
                () = &mut read_again, if self.records.is_none() => {
                    self.records = Some(self.log.read(self.core.read_from()));
                    self.read_at = self.clock.now();
                }
                found = async { Some(end.as_mut()?.await) }, if end.is_some() => {
                    end = None;
                    match found {
                        Some(Ok(found)) => self.step(Event::End(found)),
                        Some(Err(error)) => self.step(Event::Failed(error.to_string())),
                        None => {}
                    }
                }
                () = &mut end_again, if *self.core.phase() == Phase::CatchingUp => {
                    end = Some(self.log.end());
                    end_again = Box::pin(sleep(self.append_within));
                }
                Some((at, outcome)) = self.appends.next() => self.step(Event::Appended(at, outcome)),
                command = self.commands.recv() => match command {
                    Some(Command::Append(entry)) => self.append(&entry),
                    Some(Command::Report(shard, lag)) => self.step(Event::Report(shard, lag)),
                    Some(Command::Leave) => self.step(Event::Leave),
                    None => break,
                },
                () = wake => self.step(Event::Tick),
            }
            self.tell();
        }
        self.shared.lease_until.store(0, Ordering::Relaxed);
    }

    /// Takes an entry in, and those behind it that are there already.
    fn read(&mut self, (position, bytes): (Position, bytes::Bytes)) {
        self.read_at = self.clock.now();
        self.step(Event::Read(position, &bytes));
        for _ in 1..READ_MAX {
            match next(&mut self.records).now_or_never() {
                Some(Some(Ok((position, bytes)))) => self.step(Event::Read(position, &bytes)),
                Some(failed) => return self.fail(failed.and_then(Result::err)),
                None => return,
            }
        }
    }

    fn fail(&mut self, error: Option<LogError>) {
        self.records = None;
        self.step(match error {
            Some(LogError::Trimmed(first)) => Event::Trimmed(first),
            Some(error) => Event::Failed(error.to_string()),
            None => Event::Failed("the log has ended the reading".into()),
        });
    }

    fn step(&mut self, event: Event<'_>) {
        let entries = self.core.step(self.clock.now(), event);
        // Before the appends: a leave that the log has lets others take over at once.
        let until = u64::try_from(self.core.lease_until().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: see `lease_holds`.
        self.shared.lease_until.store(until, Ordering::Relaxed);
        entries.iter().for_each(|entry| self.append(entry));
    }

    /// Tells the callers what the last steps have changed.
    fn tell(&mut self) {
        if self.told.0 != self.core.at() {
            let is_change = self.told.1 != self.core.changes();
            self.told = (self.core.at(), self.core.changes());
            self.publish.send_if_modified(|known| {
                *known = Arc::new(self.core.members().clone());
                is_change
            });
        }
        self.phases.send_if_modified(|known| {
            let is_other = known != self.core.phase();
            known.clone_from(self.core.phase());
            is_other
        });
        let (heard, failure) = self.core.heard();
        let mut shared = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0 = heard.unwrap_or(shared.0);
        if shared.1.as_deref() != failure {
            shared.1 = failure.map(str::to_owned);
        }
    }

    fn append(&mut self, entry: &Entry) {
        let (at, append) = (self.core.at(), self.log.append(entry.encode(), None));
        let outcome = timeout(self.append_within, append);
        let outcome = async move { (at, outcome.await.unwrap_or(Err(AppendError::Unknown))) };
        self.appends.push(Box::pin(outcome));
    }
}

async fn next(records: &mut Option<Records>) -> Option<Result<(Position, bytes::Bytes), LogError>> {
    records.as_mut()?.next().await
}
