//! Workflows: async functions that survive the end of their program.
//!
//! ```text
//!  node.workflow::<W>(id).start(&input) ──▶ entity `workflow` W/id ──▶ W::run, polled in turns of the entity
//!                                                 │                        │ cx.step, cx.sleep, cx.wait …
//!                                                 ▼                        ▼
//!                                         state: name, input,      cells: the journal, a step each
//!                                         phase, result
//! ```
//!
//! After an activation the function is run again from its begin, and each step of the journal is over at once.

mod journal;
mod replay;
mod run;
mod show;
mod steps;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use self::journal::State;
pub use self::replay::{Journal, ReplayError};
use self::run::{
    Cancel, Outcome, Past, Phase, Read, ReadPast, ReadProgress, Run, SIGNALS_MAX, Seen, Signal,
    Start, key_of,
};
pub(crate) use self::show::{KIND, show_run, show_steps};
pub use self::steps::{Branch, Steps};
use crate::due::lock;
use crate::message::Encoded;
use crate::{
    CellError, CommitError, Durable, Entity, EntityError, Node, OnFailure, StateError, values,
};

/// An async function that survives the end of its program; written as a function with [`#[workflow]`](macro@crate::workflow).
///
/// The function acts on the world in [steps](Steps), each of which is stored when it is over. After a crash
/// or a restart the function is run again from its begin; the steps that are over return what was stored, and the
/// function goes on behind them. So all that it does between two steps has to come out the same each time: it takes
/// time, chance and ids from [`Steps`].
///
/// ```
/// use std::time::Duration;
///
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Failure, Node, Retry, Steps, Workflows, workflow};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     cents: u64,
/// }
///
/// /// Charges, waits, and ships; returns the receipt.
/// #[workflow]
/// async fn place_order(cx: &Steps, order: Order) -> Result<String, Failure> {
///     let charge = cx.step("charge", Retry::times(5), async || charge(order.cents).await);
///     let receipt = charge.await?;
///     cx.compensate("charge", Retry::forever(), async || refund().await);
///     cx.sleep(Duration::from_millis(10)).await;
///     cx.step("ship", Retry::times(3), async || ship(order.cents).await).await?;
///     Ok(receipt)
/// }
///
/// # async fn charge(cents: u64) -> Result<String, String> { Ok(format!("{cents} cents")) }
/// # async fn refund() -> Result<(), String> { Ok(()) }
/// # async fn ship(_: u64) -> Result<(), String> { Ok(()) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let runtime = Runtime::builder().workers(1).start()?;
/// let node = Node::options(path).open(&runtime)?;
/// node.run_workflows(Workflows::new().with(PlaceOrder));
/// runtime.block_on(async |_| {
///     let run = node.workflow::<PlaceOrder>("o-17");
///     run.start(&Order { cents: 95 }).await?;
///     assert_eq!(run.result().await?, "95 cents");
///     Ok::<(), throng_durable::WorkflowError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// The attribute makes the type `PlaceOrder` of the function, with the name `place_order` in the store. A workflow whose
/// steps need clients or settings is a type with fields, which implements this trait; the example of
/// [`Node::check_replay`](crate::Node::check_replay) has one.
pub trait Workflow: Send + Sync + 'static {
    /// Name of the workflow in the store, without `/`. The name must never change.
    const NAME: &'static str;

    /// Type of the input of a run.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Type of the result of a run.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Runs the workflow, anew after each activation of its run. `self` has what the steps need: clients, settings.
    fn run(
        &self,
        cx: &Steps,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output, Failure>> + Send;
}

/// Reason why a workflow fails, or begins anew. Any error converts into it by `?`.
pub struct Failure {
    reason: String,
    restart: Option<Encoded>,
}

impl Failure {
    /// Returns a failure for a reason.
    pub fn new(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), restart: None }
    }

    /// Has the run begin anew with another input, and an empty journal: for workflows without an end. Return it as the
    /// error of the workflow.
    pub fn continue_as_new<T: Serialize + DeserializeOwned + 'static>(
        cx: &Steps,
        input: &T,
    ) -> Failure {
        match cx.encode(input) {
            Ok(encoded) => Failure { reason: String::new(), restart: Some(encoded) },
            Err(failure) => failure,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failure").field(&self.reason).finish()
    }
}

/// Error of a step that has failed for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step {step:?} has failed: {reason}")]
pub struct StepError {
    /// Name of the step, with `#2` and so on for later steps of the same name.
    pub step: String,
    /// The last failure.
    pub reason: String,
}

/// Policy for the attempts at a step: their number, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    pauses: OnFailure,
}

impl Retry {
    /// Allows one attempt.
    pub const fn none() -> Retry {
        Retry::times(1)
    }

    /// Allows so many attempts, one at least. The pauses between them are a tenth of a second at first, and double up to
    /// a minute.
    pub const fn times(attempts: u32) -> Retry {
        Retry { attempts, pauses: OnFailure::park_after(attempts) }
    }

    /// Allows any number of attempts.
    pub const fn forever() -> Retry {
        Retry::times(u32::MAX)
    }

    /// Sets the first and the longest pause between two attempts. Each is cut by up to a half, at random.
    #[must_use]
    pub const fn pauses(self, first: Duration, longest: Duration) -> Retry {
        Retry { pauses: self.pauses.pauses(first, longest), ..self }
    }

    fn is_over(&self, attempts: u32) -> bool {
        attempts >= self.attempts
    }

    fn pause(&self, attempts: u32, hash: u64) -> Duration {
        self.pauses.pause(attempts, hash)
    }
}

/// The workflows of a program, for [`Node::run_workflows`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Workflows(Arc<Known>);

#[derive(Default)]
struct Known {
    workflows: HashMap<&'static str, Arc<dyn AnyWorkflow>>,
    limits: HashMap<Box<str>, Arc<Semaphore>>,
    /// Those who wait for the results of runs, by their keys.
    waiting: Mutex<HashMap<Box<str>, watch::Sender<()>>>,
}

/// A type-erased [`Workflow`].
trait AnyWorkflow: Send + Sync {
    fn begin(
        self: Arc<Self>,
        steps: Steps,
        input: &[u8],
    ) -> Result<Branch<'static, Outcome>, StateError>;
}

impl<W: Workflow> AnyWorkflow for W {
    fn begin(
        self: Arc<Self>,
        steps: Steps,
        input: &[u8],
    ) -> Result<Branch<'static, Outcome>, StateError> {
        let input = values::decode(steps.node().inner(), Run::KIND, W::NAME, input)?;
        Ok(Box::pin(async move {
            let output = W::run(&self, &steps, input).await?;
            steps.encode(&output)
        }))
    }
}

impl Workflows {
    /// Returns an empty list.
    pub fn new() -> Workflows {
        Workflows::default()
    }

    /// Adds a workflow.
    ///
    /// # Panics
    ///
    /// If the list has one of this name, or was registered already, or if the name has a `/`.
    #[must_use]
    pub fn with<W: Workflow>(mut self, workflow: W) -> Workflows {
        // Its runs would be those of another workflow.
        assert!(!W::NAME.contains('/'), "the name {:?} of a workflow has a '/'", W::NAME);
        let before = self.known().workflows.insert(W::NAME, Arc::new(workflow));
        assert!(before.is_none(), "two workflows have the name {:?}", W::NAME);
        self
    }

    /// Sets the number of steps of a name that run at the same time on this node.
    ///
    /// # Panics
    ///
    /// If the list was registered already.
    #[must_use]
    pub fn limit(mut self, step: &str, most: usize) -> Workflows {
        self.known().limits.insert(step.into(), Arc::new(Semaphore::new(most)));
        self
    }

    fn known(&mut self) -> &mut Known {
        match Arc::get_mut(&mut self.0) {
            Some(known) => known,
            None => panic!("the workflows were registered already"),
        }
    }

    fn find(&self, name: &str) -> Option<Arc<dyn AnyWorkflow>> {
        self.0.workflows.get(name).cloned()
    }

    fn limit_of(&self, step: &str) -> Option<Arc<Semaphore>> {
        self.0.limits.get(step).cloned()
    }

    /// Tells those who wait for the result of a run that it has ended.
    fn tell(&self, key: &str) {
        if let Some(waiting) = lock(&self.0.waiting).remove(key) {
            waiting.send_replace(());
        }
    }

    fn watch(&self, key: &str) -> Watch {
        let ended = lock(&self.0.waiting).entry(key.into()).or_default().subscribe();
        Watch { workflows: self.clone(), key: key.into(), ended }
    }
}

/// Waits for the end of a run, until it is dropped.
struct Watch {
    workflows: Workflows,
    key: Box<str>,
    ended: watch::Receiver<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiting = lock(&self.workflows.0.waiting);
        if waiting.get(&self.key).is_some_and(|own| own.receiver_count() <= 1) {
            waiting.remove(&self.key);
        }
    }
}

impl fmt::Debug for Workflows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.workflows.keys()).finish()
    }
}

impl Node {
    /// Sets the workflows of the program. The node goes on with the runs that are under way; those of other names are
    /// stuck until a program has them.
    ///
    /// # Panics
    ///
    /// If the node has workflows already.
    pub fn run_workflows(&self, workflows: Workflows) {
        self.register::<Run>(workflows);
    }

    /// Returns the run of a workflow with this id, whether it was started or not. No I/O.
    pub fn workflow<W: Workflow>(&self, id: impl Display) -> WorkflowRun<W> {
        let entity = self.entity::<Run>(key_of(W::NAME, &id.to_string()));
        WorkflowRun { entity, workflow: PhantomData }
    }
}

/// A run of a workflow, from [`Node::workflow`].
pub struct WorkflowRun<W> {
    entity: Entity<Run>,
    workflow: PhantomData<fn() -> W>,
}

/// State of a run, from [`WorkflowRun::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunStatus {
    /// It was never started.
    Unborn,
    /// It runs, or waits.
    Running,
    /// It does not go on: the program does not fit its journal, panics between two steps, or does not have the workflow.
    /// It is tried again, a minute later at most.
    Stuck(String),
    /// It has failed or was cancelled, and what was done is undone.
    Stopping(String),
    /// It has ended with a result.
    Done,
    /// It has failed.
    Failed(String),
    /// It was cancelled, for a reason.
    Cancelled(String),
}

/// A step of a run, from [`WorkflowRun::steps`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepInfo {
    /// Name of the step, with `#2` and so on for later steps of the same name.
    pub name: String,
    /// What the step does: `step`, `sleep`, `wait`, `child`, `send`, `version` or `race`.
    pub kind: &'static str,
    /// Whether it is over.
    pub is_over: bool,
    /// Number of attempts that have failed, while it is not over.
    pub failures: u32,
    /// The last failure.
    pub failure: Option<String>,
}

/// Error of a [`WorkflowRun`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// The run cannot be reached, or a value cannot be stored.
    #[error(transparent)]
    Entity(#[from] EntityError),
    /// The result is of another type.
    #[error(transparent)]
    Result(#[from] StateError),
    /// It was never started.
    #[error("the workflow was not started")]
    Unborn,
    /// It has ended.
    #[error("the workflow has ended")]
    Ended,
    /// So many signals of this name wait for the run that it takes no more: try again when it has waited for some.
    #[error("{SIGNALS_MAX} signals {name:?} wait for the workflow already")]
    TooManySignals {
        /// Name of the signal.
        name: String,
    },
    /// It has failed.
    #[error("the workflow has failed: {0}")]
    Failed(String),
    /// It was cancelled.
    #[error("the workflow was cancelled: {0}")]
    Cancelled(String),
}

impl<W: Workflow> WorkflowRun<W> {
    fn encode<T: Serialize + DeserializeOwned + 'static>(
        &self,
        value: &T,
    ) -> Result<Encoded, EntityError> {
        let encoded = values::encode(self.entity.node().inner(), Run::KIND, Vec::new(), value);
        let message = std::any::type_name::<T>();
        let failed = |reason| EntityError::NotCommitted(CommitError::Message { message, reason });
        encoded.map_err(failed)
    }

    /// Starts the run, and returns when that is on disk. If it was started before, nothing happens, whatever the input.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Entity`]
    pub async fn start(&self, input: &W::Input) -> Result<(), WorkflowError> {
        let Encoded { record: input, numbers } = self.encode(input)?;
        let numbers = numbers.into_iter().flatten().collect();
        Ok(self.entity.call(Start { name: W::NAME, input, numbers }).await?)
    }

    /// Waits until the run has ended, and returns its result.
    ///
    /// # Errors
    ///
    /// [`WorkflowError`], which tells of an end without a result as well.
    pub async fn result(&self) -> Result<W::Output, WorkflowError> {
        /// Time after which a run is asked again that may have ended unheard.
        const AGAIN: Duration = Duration::from_secs(5);
        loop {
            let mut watch = self.entity.deps()?.watch(self.entity.key());
            match self.entity.call(Read {}).await?.phase {
                Phase::Unborn => return Err(WorkflowError::Unborn),
                Phase::Running | Phase::Stopping { .. } => {}
                Phase::Done(result) => {
                    let node = self.entity.node().inner();
                    return Ok(values::decode(node, Run::KIND, W::NAME, &result)?);
                }
                Phase::Failed(reason) => return Err(WorkflowError::Failed(reason)),
                Phase::Cancelled(reason) => return Err(WorkflowError::Cancelled(reason)),
            }
            let _ = timeout(AGAIN, watch.ended.changed()).await;
        }
    }

    /// Returns the state of the run.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Entity`]
    pub async fn status(&self) -> Result<RunStatus, WorkflowError> {
        let Seen { phase, stuck } = self.entity.call(Read {}).await?;
        Ok(match (phase, stuck) {
            (Phase::Unborn, _) => RunStatus::Unborn,
            (Phase::Running | Phase::Stopping { .. }, Some(reason)) => RunStatus::Stuck(reason),
            (Phase::Running, None) => RunStatus::Running,
            (Phase::Stopping { reason, .. }, None) => RunStatus::Stopping(reason),
            (Phase::Done(_), _) => RunStatus::Done,
            (Phase::Failed(reason), _) => RunStatus::Failed(reason),
            (Phase::Cancelled(reason), _) => RunStatus::Cancelled(reason),
        })
    }

    /// Sends the run a signal, for a step that [waits](Steps::wait) for it, now or later. Returns when it is on disk.
    ///
    /// # Errors
    ///
    /// [`WorkflowError`]: the run was not started or has ended, or 1,000 signals of this name wait.
    pub async fn signal<T: Serialize + DeserializeOwned + 'static>(
        &self,
        name: &str,
        value: &T,
    ) -> Result<(), WorkflowError> {
        let Encoded { record: value, numbers } = self.encode(value)?;
        let numbers = numbers.into_iter().flatten().collect();
        self.entity.call(Signal { name: name.into(), value, numbers }).await?
    }

    /// Cancels the run: no further step begins, and what was done is [undone](Steps::compensate). Returns false if it has
    /// ended, or fails.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Entity`]
    pub async fn cancel(&self, reason: &str) -> Result<bool, WorkflowError> {
        Ok(self.entity.call(Cancel { reason: reason.into() }).await?)
    }

    /// Returns the steps of the run, in the order in which they were begun.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Entity`]
    pub async fn steps(&self) -> Result<Vec<StepInfo>, WorkflowError> {
        let Past { steps, .. } = self.past().await?;
        let describe = |(name, entry): (String, journal::Entry)| {
            let is_over = entry.state.is_over();
            let (failures, failure) = match entry.state {
                State::Fails { attempts, reason } => (attempts, Some(reason)),
                State::Again { attempts } => (attempts, None),
                State::Failed(reason) => (0, Some(reason)),
                _ => (0, None),
            };
            StepInfo { name, kind: entry.kind.name(), is_over, failures, failure }
        };
        Ok(steps.into_iter().map(describe).collect())
    }

    async fn past(&self) -> Result<Past, WorkflowError> {
        Ok(self.entity.call(ReadPast {}).await?.map_err(unread)?)
    }

    /// Returns the journal of the run, for a test of a later program with [`Node::check_replay`].
    ///
    /// # Errors
    ///
    /// [`WorkflowError`]: the run cannot be reached, or was not started.
    pub async fn journal(&self) -> Result<Journal, WorkflowError> {
        let past = self.past().await?;
        if past.phase == Phase::Unborn {
            return Err(WorkflowError::Unborn);
        }
        let (_, id) = self.entity.key().split_once('/').unwrap_or_default();
        let damaged = |reason| StateError::Undecodable { kind: W::NAME, found: 0, reason };
        Ok(Journal::of(self.entity.node(), W::NAME, id, past).map_err(damaged)?)
    }

    /// Returns what the run has [reported](Steps::report) last; `None` if it has reported nothing.
    ///
    /// # Errors
    ///
    /// [`WorkflowError`]: the run cannot be reached, or has reported another type.
    pub async fn progress<T>(&self) -> Result<Option<T>, WorkflowError>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let record = self.entity.call(ReadProgress {}).await?.map_err(unread)?;
        let node = self.entity.node().inner();
        let decode = |record: Vec<u8>| values::decode(node, Run::KIND, "progress", &record);
        Ok(record.map(decode).transpose()?)
    }

    /// Removes the run with its journal; see [`Entity::forget`].
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Entity`]
    pub async fn forget(&self) -> Result<(), WorkflowError> {
        Ok(self.entity.forget().await?)
    }
}

fn unread(error: CellError) -> EntityError {
    EntityError::NotCommitted(CommitError::Cell(error))
}

impl<W> Clone for WorkflowRun<W> {
    fn clone(&self) -> WorkflowRun<W> {
        WorkflowRun { entity: self.entity.clone(), workflow: PhantomData }
    }
}

impl<W> fmt::Debug for WorkflowRun<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkflowRun").field(&self.entity.key()).finish()
    }
}
