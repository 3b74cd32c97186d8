//! [`Journal`]: a run taken out of its store. [`Node::check_replay`]: whether a program fits it.
//!
//! ```text
//!  production: run.journal() ──(serde: a file of the tests)──▶ test: node.check_replay(Workflow, &journal)
//!                                                                 │ polls the workflow, and runs no step
//!                                                                 ▼
//!                             it asks for each step of the journal, and for others only where the journal ends
//! ```
//!
//! Invariant: a check runs no closure of a step, and leaves the store as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, Wake, Waker};

use serde::{Deserialize, Serialize};

use super::journal::{Entry, Kind, State};
use super::run::{Outcome, Past, Phase, Run, key_of};
use super::steps::{Branch, Core, Shared, Steps};
use super::{AnyWorkflow, Workflow, Workflows};
use crate::users::{catch, drop_user_value};
use crate::values::{self, Portable};
use crate::{Durable, Node, StateError};

/// The journal of a run, from [`WorkflowRun::journal`](super::WorkflowRun::journal), for tests of later programs with
/// [`Node::check_replay`]. It can be stored in any format of serde, and needs no store to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    workflow: String,
    id: String,
    input: Portable,
    end: End,
    /// The steps in the order in which they were begun.
    steps: Vec<Step>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    None,
    Result,
    Failure,
    /// It was cancelled, at any place.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    key: String,
    kind: Kind,
    state: State,
    /// The result of a step that is over, in place of the one in its state.
    result: Option<Portable>,
}

/// Reason why a program cannot go on with a run, from [`Node::check_replay`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The journal is of a workflow with another name.
    #[error("the journal is of the workflow {0:?}")]
    OtherWorkflow(String),
    /// The input cannot be read as the type that the program has for it.
    #[error("the input of the run {run:?} does not fit: {error}")]
    Input {
        /// Id of the run.
        run: String,
        /// The reason.
        #[source]
        error: StateError,
    },
    /// The program does other steps than the journal has, or ends elsewhere.
    #[error("the run {run:?} does not fit: {reason}")]
    Mismatch {
        /// Id of the run.
        run: String,
        /// Names the two steps.
        reason: String,
    },
    /// The program panics between two steps.
    #[error("the run {run:?} does not fit: the workflow {panic}")]
    Panicked {
        /// Id of the run.
        run: String,
        /// The panic.
        panic: String,
    },
}

impl Journal {
    pub(super) fn of(node: &Node, workflow: &str, id: &str, past: Past) -> Result<Journal, String> {
        let export = |record: &[u8]| values::export(node.inner(), Run::KIND, record);
        let step = |(key, Entry { kind, state, .. }): (String, Entry)| {
            let result = match (&state, kind.has_value()) {
                (State::Done(record), true) => Some(export(record)?),
                _ => None,
            };
            let state = if result.is_some() { State::Done(Vec::new()) } else { state };
            Ok(Step { key, kind, state, result })
        };
        let end = match past.phase {
            Phase::Done(_) => End::Result,
            Phase::Unborn | Phase::Running => End::None,
            Phase::Failed(_) | Phase::Stopping { is_cancelled: false, .. } => End::Failure,
            Phase::Cancelled(_) | Phase::Stopping { is_cancelled: true, .. } => End::Cancelled,
        };
        Ok(Journal {
            workflow: workflow.into(),
            id: id.into(),
            input: export(&past.input)?,
            end,
            steps: past.steps.into_iter().map(step).collect::<Result<_, String>>()?,
        })
    }

    /// Name of the workflow.
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// Id of the run.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the steps as in the store of a node. None of them is one that would run its closure.
    fn entries(&self, node: &Node) -> Result<Vec<(Box<str>, Entry)>, String> {
        let entry = |(order, step): (usize, &Step)| {
            let state = match (&step.result, &step.state) {
                (Some(value), _) => State::Done(values::import(node.inner(), Run::KIND, value)?),
                (None, State::Again { attempts }) => {
                    State::Fails { attempts: *attempts, reason: String::new() }
                }
                (None, state) => state.clone(),
            };
            let order = u32::try_from(order).unwrap_or(u32::MAX);
            Ok((step.key.as_str().into(), Entry { order, kind: step.kind, state }))
        };
        self.steps.iter().enumerate().map(entry).collect()
    }
}

impl Kind {
    /// Whether the result is a value of the workflow's.
    fn has_value(self) -> bool {
        matches!(self, Kind::Step | Kind::Signal | Kind::Child)
    }
}

impl Node {
    /// Checks that a program can go on with a run of an earlier program: for a test that fails before a deployment leaves
    /// runs [stuck](super::RunStatus::Stuck). The node may be any, such as one of the test; its store stays as it is.
    ///
    /// The function is run with the results in the journal, up to the first step that the journal does not have or that
    /// is not over; no step runs. It has to ask for the same steps, and to end where the run has ended.
    ///
    /// ```
    /// use throng::prelude::*;
    /// use throng_durable::{Failure, Journal, Node, Retry, Steps, Workflow, Workflows};
    ///
    /// /// The program of today, and of tomorrow.
    /// struct Greet(&'static str);
    ///
    /// impl Workflow for Greet {
    ///     const NAME: &'static str = "greet";
    ///     type Input = String;
    ///     type Output = String;
    ///
    ///     async fn run(&self, cx: &Steps, name: String) -> Result<String, Failure> {
    ///         Ok(cx.step(self.0, Retry::none(), async || Ok::<_, String>(format!("hello {name}"))).await?)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let node = Node::options(path).open(&runtime)?;
    /// node.run_workflows(Workflows::new().with(Greet("say")));
    /// let journal: Journal = runtime.block_on(async |_| {
    ///     let run = node.workflow::<Greet>(1);
    ///     run.start(&"Ada".to_owned()).await?;
    ///     run.result().await?;
    ///     run.journal().await
    /// })?;
    /// node.check_replay(Greet("say"), &journal)?;
    /// let error = node.check_replay(Greet("shout"), &journal).unwrap_err();
    /// assert!(error.to_string().contains("the step \"shout\", where the journal has the step \"say\""));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReplayError`], with the two steps that differ.
    pub fn check_replay<W: Workflow>(
        &self,
        workflow: W,
        journal: &Journal,
    ) -> Result<(), ReplayError> {
        if journal.workflow != W::NAME {
            return Err(ReplayError::OtherWorkflow(journal.workflow.clone()));
        }
        let mismatch = |reason| ReplayError::Mismatch { run: journal.id.clone(), reason };
        let entries = journal.entries(self).map_err(mismatch)?;
        let input = values::import(self.inner(), Run::KIND, &journal.input).map_err(mismatch)?;
        let key = key_of(W::NAME, &journal.id);
        let shared = Shared::new(self.inner().clone(), &key, 0, Workflows::default(), entries);
        shared.lock().is_stopping = journal.end == End::Cancelled;
        let begun = Arc::new(workflow).begin(Steps(shared.clone()), &input);
        let input = |error| ReplayError::Input { run: journal.id.clone(), error };
        let mut future = begun.map_err(input)?;
        let polled = poll_through(&mut future);
        let compared = polled.map(|polled| compare(&shared.lock(), journal.end, &polled));
        drop_user_value(future);
        let panicked = |panic| ReplayError::Panicked { run: journal.id.clone(), panic };
        compared.map_err(panicked)?.map_err(mismatch)
    }
}

/// Polls a workflow until it waits for what the journal does not have.
fn poll_through(future: &mut Branch<'static, Outcome>) -> Result<Poll<Outcome>, String> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut polled = Poll::Pending;
    while polled.is_pending() && woken.0.swap(false, Ordering::Relaxed) {
        let mut cx = task::Context::from_waker(&waker);
        polled = catch(|| future.as_mut().poll(&mut cx)).map_err(|panic| panic.to_string())?;
    }
    Ok(polled)
}

/// Whether a workflow that waits can go on.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Compares where the program has come to with where the run has.
fn compare(core: &Core, end: End, polled: &Poll<Outcome>) -> Result<(), String> {
    if let Some(reason) = core.mismatch(false) {
        return Err(reason);
    }
    let place = match (core.first_asked(), polled) {
        (Some(asked), _) => format!("comes to the {asked}"),
        (None, Poll::Pending) => "waits".to_owned(),
        (None, Poll::Ready(Ok(_))) => "has a result".to_owned(),
        (None, Poll::Ready(Err(failure))) => format!("fails: {failure:?}"),
    };
    // What was cancelled may have left off anywhere.
    let left = core.first_left().filter(|_| end != End::Cancelled || core.first_asked().is_some());
    if let Some(left) = left {
        return Err(format!("the program {place}, where the journal has the {left}"));
    }
    match (end, polled) {
        (End::None | End::Cancelled, _)
        | (End::Result, Poll::Ready(Ok(_)))
        | (End::Failure, Poll::Ready(Err(_))) => Ok(()),
        (End::Result, _) => Err(format!("the program {place}, where the run has a result")),
        (End::Failure, _) => Err(format!("the program {place}, where the run has failed")),
    }
}
