//! [`Run`]: the entity of a workflow that runs. It polls the workflow in its turns.
//!
//! ```text
//!  Start, Begin ──▶ running ──(Ready Ok)──▶ done
//!                      │ ├──(Ready Err, Cancel)──▶ stopping ──(all undone)──▶ failed, cancelled
//!                      │ └──(the program does not fit, or panics)──▶ stuck: tried again later
//!                      ▼
//!  Drive: poll ──▶ steps recorded, reminders set, messages sent, in the turn's commit ──▶ on disk: Drive
//! ```
//!
//! Invariants: a run that goes on without anybody who wakes it has the reminder `RESUME`, so that it goes on after the
//! end of the program. One that waits for a time, a signal or another run has none, and may leave memory.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::{Address, Context, Handle, Message, Process};

use super::journal::{Entry, Kind, State};
use super::steps::{Branch, Command, Shared, Steps};
use super::{Failure, WorkflowError, Workflows};
use crate::activation::Activation;
use crate::catalogue::Number;
use crate::message::{Encoded, Receives, messages};
use crate::users::{catch, drop_user_value};
use crate::{
    CellError, CommitError, Durable, DurableContext, EntityError, OnFailure, Schedule, Str,
};

/// Key of the reminder of a run that goes on.
const RESUME: &str = "resume";
/// Time within which a run goes on after the end of a program.
const RESUME_EVERY: Duration = Duration::from_secs(10);
/// Longest pause of a run that is stuck.
const STUCK_LONGEST: Duration = Duration::from_secs(60);

/// Most signals of a name that wait for a step.
pub(super) const SIGNALS_MAX: usize = 1_000;

/// Maps of cells.
pub(super) const STEPS: &str = "steps";
const SIGNALS: &str = "signals";
const PROGRESS: &str = "progress";

/// A workflow that runs, or has run: an entity of its own; see the file's head.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Run {
    /// Name of the workflow; empty before the start.
    pub(super) name: String,
    pub(super) input: Vec<u8>,
    pub(super) phase: Phase,
    parent: Option<Parent>,
    /// Number of times that the run has begun anew.
    round: u32,
    /// Reason why the run does not go on, and number of attempts.
    pub(super) stuck: Option<(String, u32)>,
    #[serde(skip)]
    live: Option<Box<Live>>,
}

/// The run that waits for this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parent {
    pub(super) key: String,
    pub(super) step: String,
    /// Number of times that it has begun anew.
    pub(super) round: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    #[default]
    Unborn,
    Running,
    /// What was done is undone.
    Stopping {
        reason: String,
        is_cancelled: bool,
    },
    Done(Vec<u8>),
    Failed(String),
    Cancelled(String),
}

/// The workflow in memory.
struct Live {
    future: Branch<'static, Outcome>,
    is_undoing: bool,
    shared: Arc<Shared>,
    notice: Arc<Notice>,
    waker: Waker,
    /// Whether the reminder is set, as far as is known.
    is_resuming: Option<bool>,
}

/// The end of a workflow.
pub(super) type Outcome = Result<Encoded, Failure>;

/// Has a run polled when its future can go on.
struct Notice {
    run: Address<Run>,
    is_sent: AtomicBool,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        if !self.is_sent.swap(true, Ordering::AcqRel) {
            // An activation that has ended has its workflow polled by the next one.
            let _ = self.run.send(Drive);
        }
    }
}

/// Returns the key of the entity of a run.
pub(super) fn key_of(workflow: &str, id: &str) -> String {
    format!("{workflow}/{id}")
}

messages! {
    Start { name: &'static str, input: Vec<u8>, numbers: Vec<Arc<Number>> } -> ();
    Cancel { reason: String } -> bool;
    Signal { name: String, value: Vec<u8>, numbers: Vec<Arc<Number>> } -> Result<(), WorkflowError>;
    Read {} -> Seen;
    ReadPast {} -> Result<Past, CellError>;
    ReadProgress {} -> Result<Option<Vec<u8>>, CellError>;
    Begin = "begin" { name: String, input: Vec<u8>, parent: Option<Parent> } -> ();
    Woken = "woken" { step: String } -> ();
    Resume = "resume" {} -> ();
    ChildDone = "child-done" { step: String, round: u32, result: Result<Vec<u8>, String> } -> ();
}

/// Has the workflow polled.
struct Drive;

impl Message for Drive {
    type Reply = ();
}

/// What a run has done so far.
pub(super) struct Past {
    pub(super) phase: Phase,
    pub(super) input: Vec<u8>,
    /// The steps in the order in which they were begun.
    pub(super) steps: Vec<(String, Entry)>,
}

/// A run as it is seen from outside.
pub(super) struct Seen {
    pub(super) phase: Phase,
    pub(super) stuck: Option<String>,
}

impl Durable for Run {
    const KIND: &'static str = "workflow";
    const MESSAGES: &'static [Receives<Run>] = &[
        Receives::of::<Begin>(),
        Receives::of::<Woken>(),
        Receives::of::<Resume>(),
        Receives::of::<ChildDone>(),
    ];
    /// No message of a run is at fault by itself: a store that cannot be read recovers, or somebody mends it.
    const ON_FAILURE: OnFailure = OnFailure::park_after(u32::MAX);
    type Deps = Workflows;

    fn initial(_: &str, _: &Workflows) -> Run {
        Run::default()
    }
}

impl Process for Run {
    async fn started(&mut self, cx: &mut Context<Self>) {
        self.revive(cx);
        // In a turn of its own: one that is refused must not keep the run from being cancelled.
        self.poll_later();
    }
}

impl Run {
    fn poll_later(&self) {
        if let Some(live) = &self.live {
            live.waker.wake_by_ref();
        }
    }

    /// Brings the workflow into memory, if it is under way, to be polled.
    fn revive(&mut self, cx: &mut Context<Run>) {
        if !matches!(self.phase, Phase::Running | Phase::Stopping { .. }) {
            return;
        }
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let steps = steps.range(..).map(|own| own.map(|(key, entry)| (key.into(), entry)));
        match steps.collect::<Result<Vec<(Box<str>, Entry)>, _>>() {
            Ok(journal) => self.replay(cx, journal),
            Err(error) => self.stick(cx, format!("its journal cannot be read: {error}")),
        }
    }

    /// Brings a workflow that is under way into memory, with what its journal has.
    fn replay(&mut self, cx: &mut Context<Run>, journal: Vec<(Box<str>, Entry)>) {
        let (node, workflows) = (cx.node().inner().clone(), cx.deps().clone());
        let shared = Shared::new(node, cx.key(), self.round, workflows.clone(), journal);
        shared.lock().is_stopping = matches!(self.phase, Phase::Stopping { .. });
        let Some(workflow) = workflows.find(&self.name) else {
            let reason = format!("the program has no workflow {:?}", self.name);
            return self.stick(cx, reason);
        };
        let future = match workflow.begin(Steps(shared.clone()), &self.input) {
            Ok(future) => future,
            Err(error) => return self.stick(cx, format!("its input cannot be read: {error}")),
        };
        let notice = Arc::new(Notice { run: cx.address(), is_sent: AtomicBool::new(false) });
        let waker = Waker::from(notice.clone());
        let (is_undoing, is_resuming) = (false, None);
        self.live = Some(Box::new(Live { future, is_undoing, shared, notice, waker, is_resuming }));
    }

    /// Gives up an attempt to go on, and tries again later.
    fn stick(&mut self, cx: &mut Context<Run>, reason: String) {
        let attempts = self.stuck.take().map_or(0, |(_, attempts)| attempts);
        tracing::error!(run = cx.key(), reason, attempts, "a workflow is stuck");
        cx.node().inner().stuck_runs.fetch_add(1, Ordering::Relaxed);
        self.stuck = Some((reason, attempts.saturating_add(1)));
        drop_user_value(self.live.take());
        let pause = Duration::from_secs(1 << attempts.min(6)).min(STUCK_LONGEST);
        cx.remind(RESUME, Schedule::after(pause), Resume {});
    }

    fn begin(&mut self, cx: &mut Context<Run>, name: &str, input: Vec<u8>, parent: Option<Parent>) {
        if self.phase == Phase::Unborn {
            (self.name, self.input, self.parent) = (name.into(), input, parent);
            self.phase = Phase::Running;
            self.replay(cx, Vec::new());
            self.drive(cx);
            return;
        }
        // Another run waits for one that was started before.
        let Some(other) = parent.filter(|other| self.parent.as_ref() != Some(other)) else {
            return;
        };
        let result = self.result().unwrap_or_else(|| Err("it was started before, and runs".into()));
        tell_parent(cx, &other, result);
    }

    /// Returns the result of a run that has ended, for the run that waits for it.
    fn result(&self) -> Option<Result<Vec<u8>, String>> {
        match &self.phase {
            Phase::Unborn | Phase::Running | Phase::Stopping { .. } => None,
            Phase::Done(result) => Some(Ok(result.clone())),
            Phase::Failed(reason) => Some(Err(reason.clone())),
            Phase::Cancelled(reason) => Some(Err(format!("it was cancelled: {reason}"))),
        }
    }

    /// Polls the workflow until it has to wait.
    fn drive(&mut self, cx: &mut Context<Run>) {
        loop {
            let Some(live) = &mut self.live else { return };
            // A notice of what is polled right here would be in vain.
            live.notice.is_sent.store(true, Ordering::Release);
            live.shared.wake();
            live.notice.is_sent.store(false, Ordering::Release);
            let mut waker = task::Context::from_waker(&live.waker);
            let polled = catch(|| live.future.as_mut().poll(&mut waker));
            let shared = live.shared.clone();
            if let Err(reason) = act(cx, &shared) {
                return self.stick(cx, reason);
            }
            match polled {
                Err(panic) => return self.stick(cx, format!("the workflow {panic}")),
                Ok(Poll::Ready(outcome)) => {
                    if !self.end(cx, outcome) {
                        return;
                    }
                }
                Ok(Poll::Pending) => {
                    let mut core = shared.lock();
                    if core.begin_asked() {
                        continue;
                    }
                    if let Some(reason) = core.mismatch(false) {
                        drop(core);
                        return self.stick(cx, reason);
                    }
                    // What is recorded has to reach the workflow first, which then registers how to undo it.
                    if core.is_stopping && !live.is_undoing && !core.is_delivering() {
                        drop(core);
                        live.undo();
                        continue;
                    }
                    let goes_on = core.goes_on();
                    drop(core);
                    self.stuck = None;
                    if live.is_resuming.replace(goes_on) != Some(goes_on) {
                        set_resume(cx, goes_on);
                    }
                    return;
                }
            }
        }
    }

    /// Ends the workflow, or begins to undo what it has done. Returns whether there is more to poll.
    fn end(&mut self, cx: &mut Context<Run>, outcome: Outcome) -> bool {
        let Some(live) = &mut self.live else { return false };
        let mismatch = live.shared.lock().mismatch(!live.is_undoing);
        if let (Some(reason), Phase::Running) = (mismatch, &self.phase) {
            self.stick(cx, reason);
            return false;
        }
        let failure = match (outcome, &self.phase) {
            (Ok(Encoded { record, numbers }), Phase::Running) => {
                use_numbers(cx, numbers.into_iter().flatten());
                self.close(cx, Phase::Done(record));
                return false;
            }
            (Err(failure), Phase::Running) => failure,
            // It was cancelled, or has failed before.
            (_, Phase::Stopping { reason, is_cancelled }) => match live.is_undoing {
                true => {
                    let (reason, is_cancelled) = (reason.clone(), *is_cancelled);
                    let phase =
                        if is_cancelled { Phase::Cancelled(reason) } else { Phase::Failed(reason) };
                    self.close(cx, phase);
                    return false;
                }
                false => {
                    live.undo();
                    return true;
                }
            },
            _ => return false,
        };
        if let Some(Encoded { record, numbers }) = failure.restart {
            self.clear(cx);
            (self.input, self.round) = (record, self.round.wrapping_add(1));
            use_numbers(cx, numbers.into_iter().flatten());
            self.replay(cx, Vec::new());
            set_resume(cx, true);
            // In another turn, because the workflow may begin anew without a step.
            self.poll_later();
            return false;
        }
        self.phase = Phase::Stopping { reason: failure.reason, is_cancelled: false };
        live.undo();
        true
    }

    /// Removes the journal, whose workflow begins anew.
    fn clear(&mut self, cx: &mut Context<Run>) {
        drop_user_value(self.live.take());
        cancel_reminders(cx);
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let keys = steps.range(..).map(|own| own.map(|(key, _)| key.to_string()));
        let keys = keys.collect::<Result<Vec<String>, _>>();
        for key in checked(cx, keys).unwrap_or_default() {
            cx.cells::<Str, Entry>(STEPS).delete(&key);
        }
    }

    /// Ends the run.
    fn close(&mut self, cx: &mut Context<Run>, phase: Phase) {
        drop_user_value(self.live.take());
        self.stuck = None;
        cancel_reminders(cx);
        self.phase = phase;
        if let (Some(parent), Some(result)) = (&self.parent, self.result()) {
            tell_parent(cx, parent, result);
        }
        let (workflows, key) = (cx.deps().clone(), cx.key().to_owned());
        cx.after_commit(move || workflows.tell(&key));
    }

    /// Notes in the journal what has become of a step, and shows it to the workflow once that is on disk.
    fn settle(&mut self, cx: &mut Context<Run>, step: &str, state: State) {
        if let Some(entry) = change(cx, step, state)
            && let Some(live) = &self.live
        {
            let (shared, step) = (live.shared.clone(), step.to_owned());
            cx.after_commit(move || shared.show(&step, entry));
        }
    }

    /// Returns the first step that waits for a signal with this name.
    fn listener(cx: &mut Context<Run>, name: &str) -> Result<Option<String>, CellError> {
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let is_own = |key: &str| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
        };
        let waits = |entry: &Entry| entry.kind == Kind::Signal && entry.state == State::Waits;
        let mut first: Option<(u32, String)> = None;
        for step in steps.prefix(name) {
            let (key, entry) = step?;
            let is_first = first.as_ref().is_none_or(|(order, _)| entry.order < *order);
            if is_own(key) && waits(&entry) && is_first {
                first = Some((entry.order, key.to_owned()));
            }
        }
        Ok(first.map(|(_, key)| key))
    }
}

impl Live {
    /// Drops the workflow, and begins to undo what it has done.
    fn undo(&mut self) {
        let compensations = {
            let mut core = self.shared.lock();
            core.is_stopping = true;
            core.take_compensations()
        };
        let shared = self.shared.clone();
        let undone = async move {
            for compensation in compensations {
                compensation(Steps(shared.clone())).await;
            }
            Err(Failure::new(String::new()))
        };
        let before = mem::replace(&mut self.future, Box::pin(undone));
        drop_user_value(before);
        self.is_undoing = true;
    }
}

/// Takes what was read of cells. An error fails the turn, whose message is tried again.
fn checked<T>(cx: &mut Context<Run>, found: Result<T, CellError>) -> Option<T> {
    let failed = |error| EntityError::NotCommitted(CommitError::Cell(error));
    found.map_err(|error| fail(cx, failed(error))).ok()
}

fn fail(cx: &mut Context<Run>, error: EntityError) {
    if let Some(own) = Activation::of(cx) {
        own.changes().fail(error);
    }
}

fn use_numbers(cx: &mut Context<Run>, numbers: impl IntoIterator<Item = Arc<Number>>) {
    if let Some(own) = Activation::of(cx) {
        own.changes().use_numbers(numbers);
    }
}

fn cancel_reminders(cx: &mut Context<Run>) {
    if let Some(own) = Activation::of(cx)
        && let Err(error) = own.cancel_reminders()
    {
        own.changes().fail(error);
    }
}

/// Changes what has become of a step; returns its entry if there is one.
fn change(cx: &mut Context<Run>, step: &str, state: State) -> Option<Entry> {
    let found = cx.cells::<Str, Entry>(STEPS).get(step);
    let entry = Entry { state, ..checked(cx, found)?? };
    cx.cells::<Str, Entry>(STEPS).put(step, &entry);
    Some(entry)
}

fn tell_parent(cx: &mut Context<Run>, parent: &Parent, result: Result<Vec<u8>, String>) {
    let Parent { key, step, round } = parent;
    let parent = cx.node().entity::<Run>(key);
    cx.send_durable(&parent, ChildDone { step: step.clone(), round: *round, result });
}

/// Sets the reminder of a run that goes on, or removes it.
fn set_resume(cx: &mut Context<Run>, goes_on: bool) {
    match goes_on {
        true => cx.remind(RESUME, Schedule::every(RESUME_EVERY), Resume {}),
        false => _ = cx.cancel_reminder(RESUME),
    }
}

/// Does what the workflow has asked for.
///
/// # Errors
///
/// The reason why something has to be tried again; what comes after it is not done.
fn act(cx: &mut Context<Run>, shared: &Arc<Shared>) -> Result<(), String> {
    let (commands, issued) = {
        let mut core = shared.lock();
        (mem::take(&mut core.commands), core.issued())
    };
    if commands.is_empty() {
        return Ok(());
    }
    for command in commands {
        match command {
            Command::Put(key, entry, numbers) => {
                cx.cells::<Str, Entry>(STEPS).put(&key, &entry);
                use_numbers(cx, numbers);
            }
            Command::Wake(key, time) => wake_after(cx, &key, time),
            Command::Listen(key, within) => listen(cx, shared, &key, within),
            Command::Do(act) => act(cx)?,
            Command::Report(progress, numbers) => {
                cx.cells::<Str, Vec<u8>>(PROGRESS).put("", &progress);
                use_numbers(cx, numbers);
            }
        }
    }
    let shared = shared.clone();
    cx.after_commit(move || shared.committed(issued));
    Ok(())
}

/// Returns the key of the reminder that wakes a step.
fn reminder_of(step: &str) -> String {
    format!("step {step}")
}

fn wake_after(cx: &mut Context<Run>, key: &str, time: Duration) {
    cx.remind(&reminder_of(key), Schedule::after(time), Woken { step: key.into() });
}

/// Gives a step the signal that waits for it, or has it wait for one.
fn listen(cx: &mut Context<Run>, shared: &Arc<Shared>, key: &str, within: Option<Duration>) {
    let name = key.split_once('#').map_or(key, |(name, _)| name);
    let found = cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS).get(name);
    let Some(found) = checked(cx, found) else { return };
    let mut waiting = found.unwrap_or_default();
    if waiting.is_empty() {
        if let Some(within) = within {
            wake_after(cx, key, within);
        }
        return;
    }
    let value = waiting.remove(0);
    let mut signals = cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS);
    match waiting.is_empty() {
        true => signals.delete(name),
        false => signals.put(name, &waiting),
    }
    if let Some(entry) = change(cx, key, State::Done(value)) {
        let (shared, key) = (shared.clone(), key.to_owned());
        cx.after_commit(move || shared.show(&key, entry));
    }
}

impl Handle<Drive> for Run {
    async fn handle(&mut self, _: Drive, cx: &mut Context<Self>) {
        self.drive(cx);
    }
}

impl Handle<Start> for Run {
    async fn handle(&mut self, start: Start, cx: &mut Context<Self>) {
        let Start { name, input, numbers } = start;
        use_numbers(cx, numbers);
        self.begin(cx, name, input, None);
    }
}

impl Handle<Begin> for Run {
    async fn handle(&mut self, begin: Begin, cx: &mut Context<Self>) {
        let Begin { name, input, parent } = begin;
        self.begin(cx, &name, input, parent);
    }
}

impl Handle<Cancel> for Run {
    async fn handle(&mut self, Cancel { reason }: Cancel, cx: &mut Context<Self>) -> bool {
        if self.phase != Phase::Running {
            return matches!(self.phase, Phase::Stopping { is_cancelled: true, .. });
        }
        self.phase = Phase::Stopping { reason, is_cancelled: true };
        match &mut self.live {
            Some(live) => live.shared.lock().is_stopping = true,
            None => self.revive(cx),
        }
        self.drive(cx);
        true
    }
}

impl Handle<Read> for Run {
    const READ_ONLY: bool = true;

    async fn handle(&mut self, _: Read, _: &mut Context<Self>) -> Seen {
        let stuck = self.stuck.as_ref().map(|(reason, _)| reason.clone());
        Seen { phase: self.phase.clone(), stuck }
    }
}

impl Handle<ReadPast> for Run {
    const READ_ONLY: bool = true;

    async fn handle(&mut self, _: ReadPast, cx: &mut Context<Self>) -> Result<Past, CellError> {
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let steps = steps.range(..).map(|own| own.map(|(key, entry)| (key.to_string(), entry)));
        let mut steps = steps.collect::<Result<Vec<_>, CellError>>()?;
        steps.sort_by_key(|(_, entry)| entry.order);
        Ok(Past { phase: self.phase.clone(), input: self.input.clone(), steps })
    }
}

impl Handle<ReadProgress> for Run {
    const READ_ONLY: bool = true;

    async fn handle(
        &mut self,
        _: ReadProgress,
        cx: &mut Context<Self>,
    ) -> Result<Option<Vec<u8>>, CellError> {
        cx.cells::<Str, Vec<u8>>(PROGRESS).get("")
    }
}

impl Handle<Woken> for Run {
    async fn handle(&mut self, Woken { step }: Woken, cx: &mut Context<Self>) {
        let found = cx.cells::<Str, Entry>(STEPS).get(&step);
        let Some(entry) = checked(cx, found) else { return };
        let state = match entry.map(|entry| (entry.kind, entry.state)) {
            Some((Kind::Sleep, State::Waits)) => State::Done(Vec::new()),
            Some((Kind::Signal, State::Waits)) => State::TimedOut,
            Some((_, State::Fails { attempts, .. })) => State::Again { attempts },
            _ => return,
        };
        self.settle(cx, &step, state);
    }
}

impl Handle<Resume> for Run {
    async fn handle(&mut self, _: Resume, cx: &mut Context<Self>) {
        // The activation has polled it already, unless it was stuck.
        if self.live.is_none() {
            self.revive(cx);
            self.drive(cx);
        }
    }
}

impl Handle<Signal> for Run {
    async fn handle(
        &mut self,
        signal: Signal,
        cx: &mut Context<Self>,
    ) -> Result<(), WorkflowError> {
        let Signal { name, value, numbers } = signal;
        match self.phase {
            Phase::Unborn => return Err(WorkflowError::Unborn),
            Phase::Running | Phase::Stopping { .. } => {}
            _ => return Err(WorkflowError::Ended),
        }
        use_numbers(cx, numbers);
        let found = Run::listener(cx, &name);
        let Some(listener) = checked(cx, found) else { return Ok(()) };
        if let Some(step) = listener {
            cx.cancel_reminder(&reminder_of(&step));
            self.settle(cx, &step, State::Done(value));
            return Ok(());
        }
        let found = cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS).get(&name);
        let Some(found) = checked(cx, found) else { return Ok(()) };
        let mut waiting = found.unwrap_or_default();
        if waiting.len() >= SIGNALS_MAX {
            return Err(WorkflowError::TooManySignals { name });
        }
        waiting.push(value);
        cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS).put(&name, &waiting);
        Ok(())
    }
}

impl Handle<ChildDone> for Run {
    async fn handle(&mut self, done: ChildDone, cx: &mut Context<Self>) {
        let ChildDone { step, round, result } = done;
        if round != self.round {
            // The run has begun anew since, and waits for another one.
            return;
        }
        let state = match result {
            Ok(result) => State::Done(result),
            Err(reason) => State::Failed(reason),
        };
        self.settle(cx, &step, state);
    }
}
