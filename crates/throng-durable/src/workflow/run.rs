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

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::{Address, Context, Handle, Message, Process};

use super::journal::{Entry, Kind, State};
use super::steps::{Branch, Command, Shared, Steps};
use super::{Failure, Workflows};
use crate::activation::Activation;
use crate::catalogue::Number;
use crate::message::{Encoded, Receives};
use crate::users::{catch, drop_user_value};
use crate::{Durable, DurableContext, DurableMessage, Schedule, Str};

/// Key of the reminder of a run that goes on.
const RESUME: &str = "resume";
/// Time within which a run goes on after the end of a program.
const RESUME_EVERY: Duration = Duration::from_secs(10);
/// Longest pause of a run that is stuck.
const STUCK_LONGEST: Duration = Duration::from_secs(60);

/// Maps of cells.
const STEPS: &str = "steps";
const SIGNALS: &str = "signals";

/// A workflow that runs, or has run: an entity of its own; see the file's head.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Run {
    /// Name of the workflow; empty before the start.
    name: String,
    input: Vec<u8>,
    phase: Phase,
    parent: Option<Parent>,
    /// Reason why the run does not go on, and number of attempts.
    stuck: Option<(String, u32)>,
    #[serde(skip)]
    live: Option<Box<Live>>,
}

/// The run that waits for this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parent {
    pub(super) key: String,
    pub(super) step: String,
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

/// Declares messages, and their names if they are stored.
macro_rules! messages {
    ($($name:ident $(= $stored:literal)? { $($field:ident: $type:ty),* } -> $reply:ty;)*) => {$(
        $(#[doc = $stored] #[derive(Clone, Serialize, Deserialize)])?
        pub(super) struct $name { $(pub(super) $field: $type),* }
        impl Message for $name { type Reply = $reply; }
        $(impl DurableMessage for $name { const NAME: &'static str = $stored; })?
    )*};
}

messages! {
    Start { name: &'static str, input: Vec<u8>, numbers: Vec<Arc<Number>> } -> ();
    Cancel { reason: String } -> bool;
    Signal { name: String, value: Vec<u8>, numbers: Vec<Arc<Number>> } -> ();
    Read {} -> Seen;
    ReadSteps {} -> Vec<(String, Entry)>;
    Begin = "begin" { name: String, input: Vec<u8>, parent: Option<Parent> } -> ();
    Woken = "woken" { step: String } -> ();
    Resume = "resume" {} -> ();
    ChildDone = "child-done" { step: String, result: Result<Vec<u8>, String> } -> ();
}

/// Has the workflow polled.
struct Drive;

impl Message for Drive {
    type Reply = ();
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
    type Deps = Workflows;

    fn initial(_: &str, _: &Workflows) -> Run {
        Run::default()
    }
}

impl Process for Run {
    async fn started(&mut self, cx: &mut Context<Self>) {
        self.revive(cx);
        self.drive(cx);
    }
}

impl Run {
    /// Brings the workflow into memory, if it is under way, to be polled.
    fn revive(&mut self, cx: &mut Context<Run>) {
        if !matches!(self.phase, Phase::Running | Phase::Stopping { .. }) {
            return;
        }
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let steps = steps.range(..).map(|own| own.map(|(key, entry)| (key.into(), entry)));
        let journal = match steps.collect::<Result<HashMap<Box<str>, Entry>, _>>() {
            Ok(journal) => journal,
            Err(error) => return self.stick(cx, format!("its journal cannot be read: {error}")),
        };
        let (node, workflows) = (cx.node().inner().clone(), cx.deps().clone());
        let shared = Shared::new(node, cx.key(), workflows.clone(), journal);
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
        self.stuck = Some((reason, attempts.saturating_add(1)));
        drop_user_value(self.live.take());
        let pause = Duration::from_secs(1 << attempts.min(6)).min(STUCK_LONGEST);
        cx.remind(RESUME, Schedule::after(pause), Resume {});
    }

    fn begin(&mut self, cx: &mut Context<Run>, name: &str, input: Vec<u8>, parent: Option<Parent>) {
        if self.phase == Phase::Unborn {
            (self.name, self.input, self.parent) = (name.into(), input, parent);
            self.phase = Phase::Running;
            self.revive(cx);
            self.drive(cx);
            return;
        }
        // Another run waits for one that was started before.
        let is_own =
            |own: &Parent, other: &Parent| (&own.key, &own.step) == (&other.key, &other.step);
        let Some(other) =
            parent.filter(|other| !self.parent.as_ref().is_some_and(|own| is_own(own, other)))
        else {
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
            let has_acted = act(cx, &shared);
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
                    if has_acted {
                        self.stuck = None;
                    }
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
                if let Some(own) = Activation::of(cx) {
                    own.changes().use_numbers(numbers.into_iter().flatten());
                }
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
            self.input = record;
            if let Some(own) = Activation::of(cx) {
                own.changes().use_numbers(numbers.into_iter().flatten());
            }
            self.revive(cx);
            set_resume(cx, true);
            if let Some(live) = &self.live {
                // In another turn, because the workflow may begin anew without a step.
                live.waker.wake_by_ref();
            }
            return false;
        }
        self.phase = Phase::Stopping { reason: failure.reason, is_cancelled: false };
        live.undo();
        true
    }

    /// Removes the journal, whose workflow begins anew.
    fn clear(&mut self, cx: &mut Context<Run>) {
        drop_user_value(self.live.take());
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let keys: Vec<String> =
            steps.range(..).filter_map(|own| Some(own.ok()?.0.to_string())).collect();
        keys.iter().for_each(|key| steps.delete(key));
    }

    /// Ends the run.
    fn close(&mut self, cx: &mut Context<Run>, phase: Phase) {
        drop_user_value(self.live.take());
        self.stuck = None;
        cx.cancel_reminder(RESUME);
        self.phase = phase;
        if let (Some(parent), Some(result)) = (&self.parent, self.result()) {
            tell_parent(cx, parent, result);
        }
        let (workflows, key) = (cx.deps().clone(), cx.key().to_owned());
        cx.after_commit(move || workflows.tell(&key));
    }

    /// Notes in the journal what has become of a step, and shows it to the workflow once that is on disk.
    fn settle(&mut self, cx: &mut Context<Run>, step: &str, state: State) {
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let Ok(Some(entry)) = steps.get(step) else { return };
        let entry = Entry { state, ..entry };
        steps.put(step, &entry);
        if let Some(live) = &self.live {
            let (shared, step) = (live.shared.clone(), step.to_owned());
            cx.after_commit(move || shared.show(&step, entry));
        }
    }

    /// Returns the first step that waits for a signal with this name.
    fn listener(cx: &mut Context<Run>, name: &str) -> Option<String> {
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let own =
            |key: &str| key == name || key.strip_prefix(name).is_some_and(|n| n.starts_with('#'));
        let waits = |entry: &Entry| entry.kind == Kind::Signal && entry.state == State::Waits;
        let mut found: Vec<(u32, String)> = steps
            .prefix(name)
            .filter_map(|step| step.ok().filter(|(key, entry)| own(key) && waits(entry)))
            .map(|(key, entry)| (entry.order, key.to_string()))
            .collect();
        found.sort();
        found.into_iter().next().map(|(_, key)| key)
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

fn tell_parent(cx: &mut Context<Run>, parent: &Parent, result: Result<Vec<u8>, String>) {
    let Parent { key, step } = parent;
    let parent = cx.node().entity::<Run>(key);
    cx.send_durable(&parent, ChildDone { step: step.clone(), result });
}

/// Sets the reminder of a run that goes on, or removes it.
fn set_resume(cx: &mut Context<Run>, goes_on: bool) {
    match goes_on {
        true => cx.remind(RESUME, Schedule::every(RESUME_EVERY), Resume {}),
        false => _ = cx.cancel_reminder(RESUME),
    }
}

/// Does what the workflow has asked for. Returns whether it has.
fn act(cx: &mut Context<Run>, shared: &Arc<Shared>) -> bool {
    let (commands, issued) = {
        let mut core = shared.lock();
        (mem::take(&mut core.commands), core.issued())
    };
    if commands.is_empty() {
        return false;
    }
    for command in commands {
        match command {
            Command::Put(key, entry, numbers) => {
                cx.cells::<Str, Entry>(STEPS).put(&key, &entry);
                if let Some(own) = Activation::of(cx) {
                    own.changes().use_numbers(numbers);
                }
            }
            Command::Wake(key, time) => wake_after(cx, &key, time),
            Command::Listen(key, within) => listen(cx, shared, &key, within),
            Command::Do(act) => act(cx),
        }
    }
    let shared = shared.clone();
    cx.after_commit(move || shared.committed(issued));
    true
}

fn wake_after(cx: &mut Context<Run>, key: &str, time: Duration) {
    cx.remind(&format!("step {key}"), Schedule::after(time), Woken { step: key.into() });
}

/// Gives a step the signal that waits for it, or has it wait for one.
fn listen(cx: &mut Context<Run>, shared: &Arc<Shared>, key: &str, within: Option<Duration>) {
    let name = key.split_once('#').map_or(key, |(name, _)| name);
    let mut signals = cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS);
    // A store that cannot be read fails the turn when it is written.
    let mut waiting = signals.get(name).ok().flatten().unwrap_or_default();
    if waiting.is_empty() {
        if let Some(within) = within {
            wake_after(cx, key, within);
        }
        return;
    }
    let value = waiting.remove(0);
    match waiting.is_empty() {
        true => signals.delete(name),
        false => signals.put(name, &waiting),
    }
    let mut steps = cx.cells::<Str, Entry>(STEPS);
    if let Ok(Some(entry)) = steps.get(key) {
        let entry = Entry { state: State::Done(value), ..entry };
        steps.put(key, &entry);
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
        if let Some(own) = Activation::of(cx) {
            own.changes().use_numbers(numbers);
        }
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

impl Handle<ReadSteps> for Run {
    const READ_ONLY: bool = true;

    async fn handle(&mut self, _: ReadSteps, cx: &mut Context<Self>) -> Vec<(String, Entry)> {
        let mut steps = cx.cells::<Str, Entry>(STEPS);
        let steps =
            steps.range(..).filter_map(|own| own.ok().map(|(k, entry)| (k.to_string(), entry)));
        let mut steps: Vec<_> = steps.collect();
        steps.sort_by_key(|(_, entry)| entry.order);
        steps
    }
}

impl Handle<Woken> for Run {
    async fn handle(&mut self, Woken { step }: Woken, cx: &mut Context<Self>) {
        let entry = cx.cells::<Str, Entry>(STEPS).get(&step).ok().flatten();
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
    async fn handle(&mut self, signal: Signal, cx: &mut Context<Self>) {
        let Signal { name, value, numbers } = signal;
        if let Some(own) = Activation::of(cx) {
            own.changes().use_numbers(numbers);
        }
        if let Some(step) = Run::listener(cx, &name) {
            cx.cancel_reminder(&format!("step {step}"));
            return self.settle(cx, &step, State::Done(value));
        }
        let mut signals = cx.cells::<Str, Vec<Vec<u8>>>(SIGNALS);
        let mut waiting = signals.get(&name).ok().flatten().unwrap_or_default();
        waiting.push(value);
        signals.put(&name, &waiting);
    }
}

impl Handle<ChildDone> for Run {
    async fn handle(&mut self, ChildDone { step, result }: ChildDone, cx: &mut Context<Self>) {
        let state = match result {
            Ok(result) => State::Done(result),
            Err(reason) => State::Failed(reason),
        };
        self.settle(cx, &step, state);
    }
}
