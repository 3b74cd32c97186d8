//! [`Steps`]: what a workflow does to the world, each step once in the journal.
//!
//! ```text
//!  cx.step(name, …) ──(in the journal)──▶ its result, at once
//!        └──(not there)──▶ asked for ──(everything in the journal was asked for)──▶ begun ──▶ runs ──▶ recorded
//!                              └──(the journal has others)──▶ the program has changed: the run is stuck
//! ```
//!
//! A workflow runs in turns of its entity. A step that is over is recorded in the commit of the turn that ends it, and
//! its result is passed on when that is on disk. So no step begins before those that it follows are stored.
//!
//! Invariants: a step is begun once no step of the journal is left that the workflow has not asked for. The key of a
//! step depends on the steps that were asked for before, and on nothing else.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll, Waker};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Context, Handle, Message, Panic};

use super::journal::{Entry, Kind, State};
use super::run::{Begin, Parent, Run, key_of};
use super::{Failure, Retry, StepError, Workflow, Workflows};
use crate::catalogue::Number;
use crate::message::Encoded;
use crate::node::Inner;
use crate::users::catch;
use crate::{Durable, DurableContext, DurableMessage, ENTITY_KEY_BYTES_MAX, Entity, Node, values};

/// The steps of a workflow that runs, as passed to [`Workflow::run`].
///
/// A step has a name of 1 to 100 bytes, without `#`, under which its result is stored. Steps of the same name are numbered
/// in the order in which the workflow asks for them, so give steps of branches that run at the same time names of their
/// own. A step is asked for when its method is called, and goes on when its future is awaited.
///
/// The closures of steps are polled in turns of the run's entity, which answers its callers whenever they await. Code
/// that blocks belongs on a thread of its own, as in any handler.
pub struct Steps(pub(super) Arc<Shared>);

pub(super) struct Shared {
    node: Arc<Inner>,
    key: Box<str>,
    /// Number of times that the run has begun anew.
    round: u32,
    workflows: Workflows,
    core: Mutex<Core>,
}

/// A step of the journal.
struct Known {
    entry: Entry,
    /// Whether the workflow has asked for it.
    is_matched: bool,
}

/// State that the future of a workflow and the turns of its entity share.
#[derive(Default)]
pub(super) struct Core {
    journal: HashMap<Box<str>, Known>,
    /// Number of those that the workflow has not asked for; steps that undo do not count.
    left: usize,
    /// Number of steps of each name that were asked for.
    counts: HashMap<Box<str>, u32>,
    /// Steps that were asked for and are not in the journal.
    asked: Vec<(Box<str>, Kind)>,
    /// Those of them that may begin.
    begun: HashSet<Box<str>>,
    /// What the turn that polls has to do.
    pub(super) commands: Vec<Command>,
    /// Number of commands so far, and of those whose turns are on disk.
    issued: u64,
    committed: u64,
    /// Number of the last command by which a step is over.
    over: u64,
    /// Number of closures that run.
    running: usize,
    /// Steps that undo others.
    compensations: Vec<Compensation>,
    /// Whether no further step may begin but those that undo.
    pub(super) is_stopping: bool,
    /// Reason why the program does not fit the journal.
    mismatch: Option<String>,
    /// Those who wait for a change.
    wakers: Vec<Waker>,
}

type Compensation = Box<dyn FnOnce(Steps) -> Branch<'static, ()> + Send>;

/// A future on the heap, for [`Steps::all`] and [`Steps::race`].
pub type Branch<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// An act on others in the turn that polls, or the reason why it has to be tried again.
type Act = Box<dyn FnOnce(&mut Context<Run>) -> Result<(), String> + Send>;

/// Something that the turn that polls a workflow does for it.
pub(super) enum Command {
    Put(Box<str>, Entry, Vec<Arc<Number>>),
    /// Has the step woken after a time.
    Wake(Box<str>, Duration),
    /// Takes a signal that waits, or has the step wait for one.
    Listen(Box<str>, Option<Duration>),
    Do(Act),
    /// Stores how far the workflow has come, for its readers.
    Report(Vec<u8>, Vec<Arc<Number>>),
}

/// Begin of the names of steps that undo others.
const UNDO: &str = "undo:";

/// Maximum length of the name of a step, in bytes, which is a part of the key of a reminder.
const STEP_NAME_BYTES_MAX: usize = 100;

impl Shared {
    pub(super) fn new(
        node: Arc<Inner>,
        key: &str,
        round: u32,
        workflows: Workflows,
        journal: impl IntoIterator<Item = (Box<str>, Entry)>,
    ) -> Arc<Shared> {
        let known = |(key, entry)| (key, Known { entry, is_matched: false });
        let journal: HashMap<Box<str>, Known> = journal.into_iter().map(known).collect();
        let left = journal.keys().filter(|key| !key.starts_with(UNDO)).count();
        let core = Mutex::new(Core { journal, left, ..Core::default() });
        Arc::new(Shared { node, key: key.into(), round, workflows, core })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // No user code runs under the lock.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all that wait for a change.
    pub(super) fn wake(&self) {
        let wakers = mem::take(&mut self.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes that the commands of a turn are on disk.
    pub(super) fn committed(&self, through: u64) {
        {
            let mut core = self.lock();
            core.committed = core.committed.max(through);
        }
        self.wake();
    }

    /// Shows the workflow what has become of a step.
    pub(super) fn show(&self, key: &str, entry: Entry) {
        if let Some(known) = self.lock().journal.get_mut(key) {
            known.entry = entry;
        }
        self.wake();
    }
}

impl Core {
    /// Lets the steps begin that were asked for, once the workflow can do nothing else. Returns whether there were some.
    pub(super) fn begin_asked(&mut self) -> bool {
        if self.asked.is_empty() || self.mismatch.is_some() {
            return false;
        }
        if let Some(left) = self.first_left()
            && let Some(asked) = self.first_asked()
        {
            self.mismatch =
                Some(format!("the program comes to the {asked}, where the journal has the {left}"));
            return false;
        }
        let is_stopping = self.is_stopping;
        let asked = mem::take(&mut self.asked);
        let (begun, kept): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|(key, _)| !is_stopping || key.starts_with(UNDO));
        self.asked = kept;
        let has_some = !begun.is_empty();
        self.begun.extend(begun.into_iter().map(|(key, _)| key));
        has_some
    }

    /// Describes the first step that the workflow has asked for, and that is not in the journal.
    pub(super) fn first_asked(&self) -> Option<String> {
        self.asked.first().map(|(key, kind)| format!("{} {key:?}", kind.name()))
    }

    /// Describes the first step of the journal that the workflow has not asked for.
    pub(super) fn first_left(&self) -> Option<String> {
        if self.left == 0 {
            return None;
        }
        let is_left = |key: &str, known: &Known| !known.is_matched && !key.starts_with(UNDO);
        let left = self.journal.iter().filter(|(key, known)| is_left(key, known));
        let (key, known) = left.min_by_key(|(_, known)| known.entry.order)?;
        Some(format!("{} {key:?}", known.entry.kind.name()))
    }

    fn state(&self, key: &str) -> Option<&State> {
        self.journal.get(key).map(|known| &known.entry.state)
    }

    /// Notes that the workflow has asked for a step; returns false if the journal does not have it, or has another kind
    /// of step there.
    fn ask(&mut self, key: &str, kind: Kind) -> bool {
        let Some(known) = self.journal.get_mut(key) else { return false };
        if known.entry.kind != kind {
            let (kind, known) = (kind.name(), known.entry.kind.name());
            self.mismatch.get_or_insert(format!(
                "the program comes to the {kind} {key:?}, where the journal has the {known} {key:?}"
            ));
            return false;
        }
        if !mem::replace(&mut known.is_matched, true) && !key.starts_with(UNDO) {
            self.left -= 1;
        }
        true
    }

    /// Checks the name of a step, or of a version.
    fn check_name(&mut self, name: &str) {
        let is_undoing = name.starts_with(UNDO) && !self.is_stopping;
        if name.is_empty() || name.len() > STEP_NAME_BYTES_MAX || name.contains('#') || is_undoing {
            self.mismatch.get_or_insert(format!(
                "the name {name:?} of a step is not valid: it has 1 to {STEP_NAME_BYTES_MAX} bytes, no '#', and \
                 does not begin with {UNDO:?}"
            ));
        }
    }

    /// Returns the reason why the program does not fit the journal; `has_ended` tells whether it asks for nothing more.
    pub(super) fn mismatch(&self, has_ended: bool) -> Option<String> {
        let left = || {
            let left = self.first_left().filter(|_| has_ended)?;
            Some(format!("the program ends, where the journal has the {left}"))
        };
        self.mismatch.clone().or_else(left)
    }

    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether the workflow goes on without a time, a message or another run that wakes it.
    pub(super) fn goes_on(&self) -> bool {
        self.running > 0 || self.is_delivering()
    }

    /// Whether a step is over whose result has not reached the workflow.
    pub(super) fn is_delivering(&self) -> bool {
        self.committed < self.over
    }

    /// Whether a step may not go on, because what was done is undone.
    fn is_stopped(&self, key: &str) -> bool {
        self.is_stopping && !key.starts_with(UNDO)
    }

    /// Takes the steps that undo others, the last one first.
    pub(super) fn take_compensations(&mut self) -> Vec<Compensation> {
        let mut compensations = mem::take(&mut self.compensations);
        compensations.reverse();
        compensations
    }

    fn command(&mut self, command: Command) -> u64 {
        self.commands.push(command);
        self.issued += 1;
        self.issued
    }

    fn put(&mut self, key: &str, kind: Kind, state: State, numbers: Vec<Arc<Number>>) -> u64 {
        let order = self.journal.get(key).map(|known| known.entry.order);
        let order = order.unwrap_or_else(|| u32::try_from(self.journal.len()).unwrap_or(u32::MAX));
        if state.is_over() {
            self.over = self.issued + 1;
        }
        let entry = Entry { order, kind, state };
        self.journal.insert(key.into(), Known { entry: entry.clone(), is_matched: true });
        self.command(Command::Put(key.into(), entry, numbers))
    }
}

/// A closure that runs, until it is dropped.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl Steps {
    /// Runs a closure, and stores its result, which a repeated run of the workflow gets in place of the closure.
    ///
    /// The closure runs at least once: again if the program ends before the result is on disk, and as `retry` says if it
    /// fails or panics. An effect on another system takes place once if that system knows the [id](Steps::id) of the
    /// run and the name of the step as the id of a request.
    ///
    /// # Errors
    ///
    /// [`StepError`] after the last attempt that `retry` allows.
    pub fn step<T, E, F, Fut>(
        &self,
        name: &str,
        retry: Retry,
        run: F,
    ) -> impl Future<Output = Result<T, StepError>> + Send + use<'_, T, E, F, Fut>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Display + Send,
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
    {
        let key = self.ask(name, Kind::Step);
        let limit = self.0.workflows.limit_of(name);
        self.run_step(key, retry, limit, run)
    }

    async fn run_step<T, E, F, Fut>(
        &self,
        key: Box<str>,
        retry: Retry,
        limit: Option<Arc<tokio::sync::Semaphore>>,
        mut run: F,
    ) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Display + Send,
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
    {
        loop {
            let before = self.until(|core| match core.state(&key) {
                Some(State::Again { .. }) if core.is_stopped(&key) => None,
                Some(State::Again { attempts }) => Some(Ok(*attempts)),
                Some(State::Waits | State::Fails { .. }) => None,
                Some(over) => Some(Err(over.clone())),
                None => core.begun.contains(&key).then_some(Ok(0)),
            });
            let attempts = match before.await {
                Ok(attempts) => attempts.saturating_add(1),
                Err(over) => return self.result(&key, over).await,
            };
            let outcome = {
                self.0.lock().running += 1;
                let _running = Running(&self.0);
                // A semaphore that nobody closes.
                let _permit = match limit.clone() {
                    Some(limit) => limit.acquire_owned().await.ok(),
                    None => None,
                };
                self.attempt(&key, &mut run).await
            };
            let outcome = outcome.and_then(|value| {
                values::encode(&self.0.node, Run::KIND, Vec::new(), &value)
                    .map(|encoded| (value, encoded))
            });
            match outcome {
                Ok((value, Encoded { record, numbers })) => {
                    let numbers = numbers.into_iter().flatten().collect();
                    self.record(&key, Kind::Step, State::Done(record), numbers).await;
                    return Ok(value);
                }
                Err(reason) if retry.is_over(attempts) => {
                    self.record(&key, Kind::Step, State::Failed(reason.clone()), Vec::new()).await;
                    return Err(StepError { step: key.into(), reason });
                }
                Err(reason) => {
                    let pause = retry.pause(attempts, self.random(&key));
                    tracing::warn!(
                        run = &*self.0.key,
                        step = &*key,
                        attempts,
                        reason,
                        "a step has failed"
                    );
                    let mut core = self.0.lock();
                    core.put(&key, Kind::Step, State::Fails { attempts, reason }, Vec::new());
                    core.command(Command::Wake(key.clone(), pause));
                }
            }
        }
    }

    /// Waits for a time, which may be years, in and out of memory.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + use<'_> {
        let key = self.ask("sleep", Kind::Sleep);
        async move {
            let began = |core: &mut Core, key: &str| {
                core.put(key, Kind::Sleep, State::Waits, Vec::new());
                core.command(Command::Wake(key.into(), time));
            };
            self.wait_for(&key, began).await;
        }
    }

    /// Waits for a [signal](super::WorkflowRun::signal) with this name, of a person or another program. Signals that
    /// came before wait in their order. `None` if none comes in time.
    ///
    /// # Errors
    ///
    /// [`StepError`] if the signal is of another type.
    pub fn wait<T>(
        &self,
        name: &str,
        within: Option<Duration>,
    ) -> impl Future<Output = Result<Option<T>, StepError>> + Send + use<'_, T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let key = self.ask(name, Kind::Signal);
        async move {
            let began = |core: &mut Core, key: &str| {
                core.put(key, Kind::Signal, State::Waits, Vec::new());
                core.command(Command::Listen(key.into(), within));
            };
            match self.wait_for(&key, began).await {
                State::TimedOut => Ok(None),
                State::Done(record) => {
                    let value = values::decode(&self.0.node, Run::KIND, "signal", &record);
                    let failed = |error: crate::StateError| StepError {
                        step: key.into(),
                        reason: error.to_string(),
                    };
                    value.map(Some).map_err(failed)
                }
                over => self.result(&key, over).await.map(Some),
            }
        }
    }

    /// Starts another run, and waits for its result. It is started once; the result of one that has ended before is
    /// taken, and one that somebody else has started and that still runs is an error.
    ///
    /// # Errors
    ///
    /// [`StepError`] if the other run fails or is cancelled.
    pub fn child<W: Workflow>(
        &self,
        id: &str,
        input: &W::Input,
    ) -> impl Future<Output = Result<W::Output, StepError>> + Send + use<'_, W> {
        let key = self.ask(W::NAME, Kind::Child);
        let encoded = values::encode(&self.0.node, Run::KIND, Vec::new(), input);
        let child = key_of(W::NAME, id);
        async move {
            let failed = |reason| StepError { step: key.to_string(), reason };
            if child.len() > ENTITY_KEY_BYTES_MAX {
                let most = ENTITY_KEY_BYTES_MAX - W::NAME.len() - 1;
                return Err(failed(format!("the id of the run has more than {most} bytes")));
            }
            let Encoded { record, numbers } = encoded.map_err(failed)?;
            let began = |core: &mut Core, key: &str| {
                let numbers = numbers.into_iter().flatten().collect();
                let (parent, step, round) = (self.0.key.to_string(), key.to_owned(), self.0.round);
                let parent = Some(Parent { key: parent, step, round });
                let begin = Begin { name: W::NAME.into(), input: record, parent };
                core.command(Command::Do(Box::new(move |cx| {
                    let child = cx.node().entity::<Run>(child);
                    cx.try_send_durable(&child, begin).map_err(|unsent| unsent.error.to_string())
                })));
                core.put(key, Kind::Child, State::Waits, numbers);
            };
            let over = self.wait_for(&key, began).await;
            self.result(&key, over).await
        }
    }

    /// Sends an entity a [durable message](DurableMessage), once. If its inbox is full, the run is
    /// [stuck](super::RunStatus::Stuck), and tries again later.
    pub fn send<R, M>(
        &self,
        to: &Entity<R>,
        message: M,
    ) -> impl Future<Output = ()> + Send + use<'_, R, M>
    where
        R: Durable + Handle<M>,
        M: DurableMessage,
    {
        let key = self.ask(M::NAME, Kind::Send);
        let to = to.clone();
        async move {
            let began = |core: &mut Core, key: &str| {
                core.command(Command::Do(Box::new(move |cx| {
                    cx.try_send_durable(&to, message).map_err(|unsent| unsent.error.to_string())
                })));
                core.put(key, Kind::Send, State::Done(Vec::new()), Vec::new());
            };
            self.wait_for(&key, began).await;
            self.committed().await;
        }
    }

    /// Calls an entity with a message, which is made for each attempt. The call acts once: the entity keeps its reply for
    /// 30 days, under an id of the run, its round and this step, which has
    /// [`ONCE_ID_BYTES_MAX`](crate::ONCE_ID_BYTES_MAX) bytes at most.
    ///
    /// # Errors
    ///
    /// [`StepError`] after the last attempt that `retry` allows.
    pub fn call<R, M>(
        &self,
        name: &str,
        retry: Retry,
        to: &Entity<R>,
        message: impl Fn() -> M + Send,
    ) -> impl Future<Output = Result<M::Reply, StepError>> + Send
    where
        R: Durable + Handle<M>,
        M: Message,
        M::Reply: Serialize + DeserializeOwned,
    {
        const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
        let key = self.ask(name, Kind::Step);
        let limit = self.0.workflows.limit_of(name);
        // No key of a step is the begin of another id, as no name of a step has a `#` and no name of a workflow a `/`.
        let id: Box<str> = format!("{key}#{}/{}", self.0.round, self.0.key).into();
        let to = to.clone();
        self.run_step(key, retry, limit, move || {
            to.call(message()).once(id.clone()).expires_after(KEPT)
        })
    }

    /// Registers a closure that undoes what was done, for a workflow that fails or is cancelled: the last one registered
    /// runs first, each as a step of its own. Register it before a step whose effect may remain although the step has
    /// failed, or was under way when the run was cancelled. One that fails for good is logged, and the others run.
    pub fn compensate<E, F, Fut>(&self, name: &str, retry: Retry, run: F)
    where
        E: Display + Send + 'static,
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        let name = format!("{UNDO}{name}");
        let compensation: Compensation = Box::new(move |steps: Steps| {
            Box::pin(async move {
                if let Err(error) = steps.step(&name, retry, run).await {
                    tracing::error!(run = &*steps.0.key, %error, "a compensation has failed");
                }
            })
        });
        self.0.lock().compensations.push(compensation);
    }

    /// Awaits all branches, and returns their results in their order.
    pub async fn all<'f, T: Send>(&self, branches: Vec<Branch<'f, T>>) -> Vec<T> {
        let mut branches = unpolled(branches);
        poll_fn(|cx| {
            poll_all(&mut branches, cx);
            match branches.iter().all(|(_, result)| result.is_some()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        branches.into_iter().filter_map(|(_, result)| result).collect()
    }

    /// Awaits the branch that is ready first, and drops the others. Returns its index and its result; a repeated run of
    /// the workflow chooses the same branch.
    ///
    /// # Panics
    ///
    /// If there is no branch.
    pub fn race<'f, T: Send + 'f>(
        &self,
        branches: Vec<Branch<'f, T>>,
    ) -> impl Future<Output = (usize, T)> + Send + use<'_, 'f, T> {
        assert!(!branches.is_empty(), "a race without a branch");
        let key = self.ask("race", Kind::Race);
        async move {
            let mut branches = unpolled(branches);
            let chosen = match self.0.lock().state(&key) {
                Some(State::Done(chosen)) => postcard::from_bytes::<usize>(chosen).ok(),
                _ => None,
            };
            // All are polled each time, so that a repeated run asks for the steps of all.
            let first = poll_fn(|cx| {
                poll_all(&mut branches, cx);
                let is_ready = |(_, result): &(_, Option<T>)| result.is_some();
                let first = match chosen {
                    Some(chosen) => {
                        branches.get(chosen).filter(|own| is_ready(own)).map(|_| chosen)
                    }
                    None => branches.iter().position(is_ready),
                };
                first.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            if chosen.is_none() {
                self.until(|core| core.begun.contains(&key).then_some(())).await;
                let record = postcard::to_stdvec(&first).unwrap_or_default();
                self.record(&key, Kind::Race, State::Done(record), Vec::new()).await;
            }
            match branches.swap_remove(first).1 {
                Some(result) => (first, result),
                None => unreachable!("the branch that was chosen is ready"),
            }
        }
    }

    /// Whether the run has come here with a program that has this version of the code: false for a run that was begun
    /// before, and is repeated up to here. So the code can differ for runs under way.
    pub fn version(&self, name: &str) -> bool {
        let mut core = self.0.lock();
        core.check_name(name);
        let is_new = !core.journal.contains_key(name);
        if is_new && core.left == 0 {
            core.put(name, Kind::Version, State::Done(Vec::new()), Vec::new());
        }
        core.ask(name, Kind::Version)
    }

    /// Returns the time, which a repeated run gets again.
    pub async fn now(&self) -> SystemTime {
        let now = || {
            let node = self.0.node.clone();
            async move { Ok::<_, StepError>(node.store.since_1970()) }
        };
        let now = self.step("now", Retry::none(), now).await;
        SystemTime::UNIX_EPOCH + now.unwrap_or_default()
    }

    /// Returns a number that is the same in each repetition of the run, for a name; evenly distributed.
    pub fn random(&self, name: &str) -> u64 {
        // FNV-1a with a finish: a run draws few numbers, and they must not change with the program.
        let bytes = self.0.key.bytes().chain([0]).chain(name.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    /// Stores how far the workflow has come, for [`WorkflowRun::progress`](super::WorkflowRun::progress). May be called
    /// between steps and in their closures; of several calls at once the last one counts. A repeated run reports
    /// nothing before it has caught up.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the value cannot be stored.
    pub fn report<T>(&self, progress: &T) -> Result<(), Failure>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let Encoded { record, numbers } = self.encode(progress)?;
        let mut core = self.0.lock();
        if core.left == 0 {
            core.command(Command::Report(record, numbers.into_iter().flatten().collect()));
        }
        Ok(())
    }

    /// Returns the id of the run.
    pub fn id(&self) -> &str {
        self.0.key.split_once('/').map_or(&self.0.key, |(_, id)| id)
    }

    /// Returns the node, through which a step can reach entities.
    pub fn node(&self) -> Node {
        Node::of(self.0.node.clone())
    }

    pub(super) fn encode<T: Serialize + DeserializeOwned + 'static>(
        &self,
        value: &T,
    ) -> Result<Encoded, Failure> {
        values::encode(&self.0.node, Run::KIND, Vec::new(), value).map_err(Failure::new)
    }

    /// Runs an attempt of a step, whose panic is a failure.
    async fn attempt<T, E: Display, Fut: Future<Output = Result<T, E>>>(
        &self,
        key: &str,
        run: &mut impl FnMut() -> Fut,
    ) -> Result<T, String> {
        let panicked = |panic: Panic| panic.to_string();
        let mut attempt = pin!(catch(run).map_err(panicked)?);
        let outcome = poll_fn(|cx| {
            // It is dropped with the workflow.
            if self.0.lock().is_stopped(key) {
                return Poll::Pending;
            }
            match catch(|| attempt.as_mut().poll(cx)) {
                Ok(poll) => poll.map(|outcome| outcome.map_err(|error| error.to_string())),
                Err(panic) => Poll::Ready(Err(panicked(panic))),
            }
        });
        outcome.await
    }

    /// Asks for a step, and returns its key.
    fn ask(&self, name: &str, kind: Kind) -> Box<str> {
        let mut core = self.0.lock();
        core.check_name(name);
        let count = core.counts.entry(name.into()).or_default();
        *count += 1;
        let key: Box<str> = match *count {
            1 => name.into(),
            count => format!("{name}#{count}").into(),
        };
        if !core.ask(&key, kind) {
            core.asked.push((key.clone(), kind));
        }
        key
    }

    /// Waits until a question about the shared state has an answer. Waits for ever once the program does not fit.
    async fn until<R>(&self, answer: impl Fn(&mut Core) -> Option<R>) -> R {
        poll_fn(|cx| {
            let mut core = self.0.lock();
            if core.mismatch.is_none()
                && let Some(answer) = answer(&mut core)
            {
                return Poll::Ready(answer);
            }
            core.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Begins a step that waits, unless it is in the journal, and waits until it is over.
    async fn wait_for(&self, key: &str, began: impl FnOnce(&mut Core, &str)) -> State {
        let is_new = self.until(|core| match core.journal.contains_key(key) {
            true => Some(false),
            false => core.begun.contains(key).then_some(true),
        });
        if is_new.await {
            began(&mut self.0.lock(), key);
        }
        self.until(|core| core.state(key).filter(|state| state.is_over()).cloned()).await
    }

    /// Records a step that is over, and waits until that is on disk.
    async fn record(&self, key: &str, kind: Kind, state: State, numbers: Vec<Arc<Number>>) {
        self.0.lock().put(key, kind, state, numbers);
        self.committed().await;
    }

    /// Waits until everything that was recorded is on disk.
    async fn committed(&self) {
        let issued = self.0.lock().issued;
        self.until(|core| (core.committed >= issued).then_some(())).await;
    }

    /// Returns the result of a step that is over.
    async fn result<T: Serialize + DeserializeOwned + 'static>(
        &self,
        key: &str,
        over: State,
    ) -> Result<T, StepError> {
        let failed = |reason| Err(StepError { step: key.into(), reason });
        match over {
            State::Done(record) => match values::decode(&self.0.node, Run::KIND, "step", &record) {
                Ok(value) => Ok(value),
                Err(error) => {
                    let mismatch = format!("the result of the step {key:?} does not fit: {error}");
                    self.0.lock().mismatch.get_or_insert(mismatch);
                    self.until(|_| None::<Result<T, StepError>>).await
                }
            },
            State::Failed(reason) => failed(reason),
            _ => failed("it has timed out".into()),
        }
    }
}

/// Branches with their results.
type Branches<'f, T> = Vec<(Branch<'f, T>, Option<T>)>;

fn unpolled<T>(branches: Vec<Branch<'_, T>>) -> Branches<'_, T> {
    branches.into_iter().map(|branch| (branch, None)).collect()
}

/// Polls the branches that are not ready.
fn poll_all<T>(branches: &mut Branches<'_, T>, cx: &mut task::Context<'_>) {
    for (branch, result) in branches.iter_mut().filter(|(_, result)| result.is_none()) {
        if let Poll::Ready(ready) = branch.as_mut().poll(cx) {
            *result = Some(ready);
        }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steps").field(&self.0.key).finish()
    }
}
