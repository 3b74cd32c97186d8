//! The supervisor as a process: carries out the decisions of the engine.
//!
//! While a supervisor starts or stops a child it waits in its turn, as in OTP: other events are
//! queued meanwhile, in order, and a kill still reaches the supervisor. The supervisor is linked to
//! its children. So it learns of the death of a child at any time, and if it is killed, its
//! children die too.

use super::child::ChildSlot;
use super::engine::{Cause, Engine, Key, RunState, Settings, Strategy, Verdict};
use super::error::{ChildError, SupervisorError};
use super::spec::{ChildSpec, Grace, Rules};
use crate::address::call::Call;
use crate::address::deadline::Deadline;
use crate::address::{Address, Pid};
use crate::error::CallError;
use crate::exit::ExitReason;
use crate::mailbox::envelope::Route;
use crate::signal::registry::{Name, RegisterError};
use crate::turn::context::Context;
use crate::turn::process::{self, Exit, Process, Turn};
use std::any::{TypeId, type_name};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;
use tracing::Level;

/// The data from which a supervisor is made at each start.
pub(crate) struct Template {
    pub(crate) settings: Settings,
    pub(crate) children: Vec<(Name, Starter)>,
}

/// Deadline of calls that must not time out.
pub(crate) const UNLIMITED: Duration = Duration::MAX;

/// Channel that carries the outcome of a supervisor's start to the starting thread or process.
pub(crate) type Report = mpsc::Sender<Result<(), SupervisorError>>;

/// A process that starts other processes and restarts them when they die.
///
/// A running supervisor is managed through its address: see [`start_child`](Address::start_child)
/// and the methods beside it. Like any process a supervisor can be named, monitored, linked to and
/// killed. When it is asked to stop, it first stops its children in the reverse order of their
/// start, each within the time its spec allows. When the
/// [runtime shuts down](crate::Runtime::shutdown), each process ends by itself once it has handled
/// the messages in its mailbox; a supervisor then only waits for its children.
///
/// ```
/// # use std::time::Duration;
/// use throng::{ChildSpec, Restart, Supervisor, prelude::*};
/// # #[derive(Default)]
/// # struct Ledger;
/// # impl Process for Ledger {}
/// # #[derive(Default)]
/// # struct Accounts;
/// # impl Process for Accounts {}
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().start()?;
/// let bank = Supervisor::one_for_one()
///     .intensity(3, Duration::from_secs(5))
///     .child("ledger", Ledger::default)
///     .child("accounts", ChildSpec::new(Accounts::default).restart(Restart::Transient))
///     .start(&runtime)?;
/// # bank.stop();
/// # Ok(())
/// # }
/// ```
///
/// | strategy | after the death of a child | stop of all children at the end |
/// |---|---|---|
/// | [`one_for_one`](Self::one_for_one) | this child is restarted | in reverse order of the start |
/// | [`one_for_all`](Self::one_for_all) | all others are stopped, and all are restarted | the same |
/// | [`rest_for_one`](Self::rest_for_one) | the children started after it are stopped and restarted with it | the same |
/// | [`dynamic`](Self::dynamic) | this child is restarted | all at once |
///
/// When more restarts are needed than the [intensity](super::SupervisorSpec::intensity) allows, the
/// supervisor stops its children and exits with [`ExitReason::Shutdown`]. Its own supervisor, if
/// any, then reacts to that exit.
pub struct Supervisor {
    /// Boxed, because the state is in the process's slot: many supervisors take little memory.
    engine: Box<Engine<Pid, Starter>>,
    template: Arc<Template>,
    /// The supervisor's own slot, if it is a child of another supervisor.
    slot: Option<Arc<ChildSlot>>,
    report: Option<Report>,
}

impl Supervisor {
    pub(crate) fn new(
        template: Arc<Template>,
        slot: Option<Arc<ChildSlot>>,
        report: Option<Report>,
    ) -> Supervisor {
        let engine = Box::new(Engine::new(template.settings));
        Supervisor { engine, template, slot, report }
    }

    pub(crate) fn engine(&self) -> &Engine<Pid, Starter> {
        &self.engine
    }

    /// Adds the children of the template and starts them in order.
    async fn start_all(&mut self, cx: &mut Context<Self>) -> Result<(), SupervisorError> {
        for (id, starter) in self.template.clone().children.iter() {
            let key = self
                .add(Some(id.clone()), starter.clone(), cx)
                .map_err(|_| SupervisorError::DuplicateId { id: id.clone() })?;
            if let Err(reason) = self.start(key, cx).await {
                return Err(SupervisorError::Child { id: id.clone(), reason });
            }
        }
        Ok(())
    }

    /// Adds a child in the state `Stopped`.
    ///
    /// # Errors
    /// The key of the child that already has this id.
    fn add(&mut self, id: Option<Name>, starter: Starter, cx: &Context<Self>) -> Result<Key, Key> {
        let (rules, slot) = (starter.0.rules(), starter.0.slot().clone());
        let key = self
            .engine
            .add(id, rules.restart, rules.significant, starter)
            .map_err(|(taken, _)| taken)?;
        slot.take(key, cx.pid(), self.slot.as_deref());
        Ok(key)
    }

    pub(crate) async fn start_new(
        &mut self,
        id: Option<Name>,
        starter: Starter,
        cx: &mut Context<Self>,
    ) -> Result<(), ChildError> {
        let key = self.add(id, starter, cx).map_err(|taken| self.why_not_startable(taken))?;
        self.start(key, cx).await.map_err(|reason| {
            self.engine.remove(key);
            ChildError::Failed(reason)
        })
    }

    pub(crate) async fn start_stopped(
        &mut self,
        key: Key,
        cx: &mut Context<Self>,
    ) -> Result<(), ChildError> {
        match self.why_not_startable(key) {
            ChildError::Stopped => self.start(key, cx).await.map_err(ChildError::Failed),
            other => Err(other),
        }
    }

    pub(crate) fn delete(&mut self, key: Key) -> Result<(), ChildError> {
        match self.why_not_startable(key) {
            ChildError::Stopped => {
                self.engine.remove(key);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn why_not_startable(&self, key: Key) -> ChildError {
        match self.engine.get(key).map(|child| child.state) {
            None => ChildError::NoChild,
            Some(RunState::Stopped) => ChildError::Stopped,
            Some(RunState::Running(pid)) => ChildError::Running(pid),
            Some(RunState::Restarting) => ChildError::Restarting,
        }
    }

    /// Stops a child on request, and forgets it if it is temporary or has no id.
    pub(crate) async fn terminate(&mut self, key: Key, cx: &mut Context<Self>) {
        self.stop_child(key, cx).await;
        self.engine.stopped(key);
    }

    /// Starts a child, and waits for its first hook if it has one.
    async fn start(&mut self, key: Key, cx: &mut Context<Self>) -> Result<(), ExitReason> {
        let Some(child) = self.engine.get(key) else { return Err(ExitReason::NoProcess) };
        let started = match child.content.0.clone().spawn(cx) {
            Ok(Spawned { pid, ready: None }) => Ok(pid),
            Ok(Spawned { pid, ready: Some(ready) }) => ready.await.map(|()| pid),
            Err(reason) => Err(reason),
        };
        match started {
            Ok(pid) => {
                self.engine.started(key, pid);
                Ok(())
            }
            Err(reason) => {
                // A shutdown ends children, and refuses every start. That is no failure of the child.
                if !cx.runtime().is_shutting_down() {
                    let id = self.id(key).map(str::to_owned);
                    report(cx, Level::ERROR, "a child did not start", self.kind(key), {
                        let (supervisor, reason) = (cx.address(), reason.clone());
                        move |what| {
                            tracing::error!(target: TARGET, ?supervisor, id, %reason, "{what}");
                        }
                    });
                }
                Err(reason)
            }
        }
    }

    /// Restarts a child; false if it does not start, in which case a [`Retry`] is queued.
    async fn start_again(&mut self, key: Key, cx: &mut Context<Self>) -> bool {
        let started = self.start(key, cx).await.is_ok();
        if started {
            let id = self.id(key).map(str::to_owned);
            let supervisor = cx.address();
            report(cx, Level::INFO, "a child was started again", self.kind(key), move |what| {
                tracing::info!(target: TARGET, ?supervisor, id, "{what}");
            });
        } else {
            self.engine.start_failed(key);
            // Through the mailbox, so that other messages are handled before the next attempt, for
            // example a request to stop.
            if cx.runtime().is_shutting_down() || cx.address().push(Retry(key)).is_err() {
                cx.stop(ExitReason::Shutdown);
            }
        }
        started
    }

    async fn carry_out(&mut self, verdict: Verdict, cx: &mut Context<Self>) {
        match verdict {
            Verdict::Nothing => {}
            Verdict::Restart(key) => {
                self.start_again(key, cx).await;
            }
            Verdict::RestartMany { stop, start } => {
                for key in stop {
                    self.stop_child(key, cx).await;
                    self.engine.halted(key);
                }
                for key in start {
                    if !self.start_again(key, cx).await {
                        break;
                    }
                }
            }
            Verdict::Exit(cause) => {
                let supervisor = cx.address();
                match cause {
                    Cause::Intensity => {
                        report(cx, Level::ERROR, "too many restarts: gives up", "", move |what| {
                            tracing::error!(target: TARGET, ?supervisor, "{what}");
                        });
                    }
                    Cause::AutoShutdown => {
                        report(cx, Level::DEBUG, "auto-shutdown: exits", "", move |what| {
                            tracing::debug!(target: TARGET, ?supervisor, "{what}");
                        });
                    }
                }
                cx.stop(ExitReason::Shutdown);
            }
        }
    }

    async fn stop_child(&mut self, key: Key, cx: &mut Context<Self>) {
        if let Some((pid, grace)) = self.running(key) {
            ask_to_stop(pid, grace, cx);
            wait_for_end(pid, grace, now(cx), cx).await;
        }
    }

    async fn stop_all(&mut self, cx: &mut Context<Self>) {
        let keys = self.engine.stop_order();
        if self.engine.strategy() != Strategy::Dynamic {
            for key in keys {
                self.stop_child(key, cx).await;
                self.engine.halted(key);
            }
            return;
        }
        let asked = now(cx);
        let running: Vec<_> = keys.into_iter().filter_map(|key| self.running(key)).collect();
        running.iter().for_each(|&(pid, grace)| ask_to_stop(pid, grace, cx));
        for (pid, grace) in running {
            wait_for_end(pid, grace, asked, cx).await;
        }
    }

    fn running(&self, key: Key) -> Option<(Pid, Grace)> {
        let child = self.engine.get(key)?;
        match child.state {
            RunState::Running(pid) => Some((pid, child.content.0.rules().grace)),
            RunState::Stopped | RunState::Restarting => None,
        }
    }

    fn kind(&self, key: Key) -> &'static str {
        self.engine.get(key).map_or("", |child| child.content.0.process_name())
    }

    fn id(&self, key: Key) -> Option<&str> {
        self.engine.get(key)?.name.as_deref()
    }
}

impl Process for Supervisor {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.trap_exits(true);
        // Its own supervisor also sets the slot, but perhaps later than the children are started.
        if let (Some(slot), Some(parent)) = (&self.slot, cx.parent()) {
            slot.set(cx.pid(), parent);
        }
        let outcome = self.start_all(cx).await;
        if let Err(error) = &outcome {
            self.stop_all(cx).await;
            // The starting process learns of the failure by the report or by its `Ready` call. It
            // is unlinked, so that it can choose its reaction instead of dying with us.
            if let Some(parent) = cx.parent() {
                cx.unlink(parent);
            }
            cx.stop(ExitReason::other(error.to_string()));
        }
        if let Some(report) = self.report.take() {
            // Fails if the starting thread or process no longer waits, which is no error.
            let _ = report.send(outcome);
        }
    }

    async fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) {
        match exit.pid {
            // A request from outside of all processes. A parent's exit does not reach this hook.
            None => cx.stop(exit.reason),
            // An exit signal sent by a live process, not the end of a child.
            Some(pid) if pid.is_alive() => {}
            Some(pid) => {
                let verdict = self.engine.exited(pid, is_orderly(&exit.reason), now(cx));
                self.carry_out(verdict, cx).await;
            }
        }
    }

    async fn stopping(&mut self, _: &ExitReason, cx: &mut Context<Self>) {
        self.stop_all(cx).await;
    }
}

fn is_orderly(reason: &ExitReason) -> bool {
    matches!(reason, ExitReason::Normal | ExitReason::Shutdown)
}

/// The `tracing` target of a supervisor's events.
const TARGET: &str = "throng::supervisor::process";

/// Reports an event about a kind of child. The supervisor's turn does not wait for the subscriber.
fn report(
    cx: &Context<Supervisor>,
    level: Level,
    what: &'static str,
    child: &'static str,
    emit: impl FnOnce(&'static str) + Send + 'static,
) {
    cx.runtime().events().report(level, what, child, emit);
}

/// Returns the time by which restarts and stops are measured: the runtime's clock, which leaps in a
/// simulation.
fn now(cx: &Context<Supervisor>) -> Duration {
    cx.runtime().scheduler().clock.elapsed()
}

fn ask_to_stop(pid: Pid, grace: Grace, cx: &mut Context<Supervisor>) {
    match grace {
        // The shutdown makes the child exit when its mailbox is empty. An exit signal would make it
        // drop the messages there.
        _ if cx.runtime().is_shutting_down() => {}
        Grace::None => pid.kill(),
        Grace::Within(_) | Grace::Unlimited => cx.exit(pid, ExitReason::Shutdown),
    }
}

/// Waits until a process that was asked to exit at `asked` has exited; kills it when its time is
/// over.
async fn wait_for_end(pid: Pid, grace: Grace, asked: Duration, cx: &mut Context<Supervisor>) {
    match grace {
        // During a shutdown the runtime's deadline applies instead, and the runtime kills.
        Grace::Within(grace) if !cx.runtime().is_shutting_down() => {
            if !exits_within(pid, grace.saturating_sub(now(cx).saturating_sub(asked))).await {
                report(
                    cx,
                    Level::WARN,
                    "a child did not stop in time and is killed",
                    "",
                    move |what| {
                        tracing::warn!(target: TARGET, ?pid, "{what}");
                    },
                );
                pid.kill();
                pid.exited().await;
            }
        }
        _ => drop(pid.exited().await),
    }
}

/// Waits at most `time` for a process to exit; true if it has exited.
async fn exits_within(pid: Pid, time: Duration) -> bool {
    let mut exited = pin!(pid.exited());
    let mut deadline = Deadline::within(time);
    poll_fn(|cx| match exited.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if deadline.is_late(cx) => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Message of a supervisor to itself: try again to restart this child.
struct Retry(Key);

impl Turn<Supervisor> for Retry {
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(self, supervisor: &mut Supervisor, cx: &mut Context<Supervisor>) {
        let verdict = supervisor.engine.retry(self.0, now(cx));
        supervisor.carry_out(verdict, cx).await;
    }
}

/// A call that a process answers once it has completed its `started` hook.
pub(crate) struct Ready;

impl<P: Process> Turn<P> for Ready {
    type Reply = ();
    // Not counted, so that a full mailbox or a spent budget does not make the start fail.
    const COUNTED: bool = false;

    async fn run(self, _: &mut P, _: &mut Context<P>) {}
}

/// Waits until a process has completed its `started` hook.
///
/// # Errors
/// The reason of the exit, if the process exits before that.
pub(crate) async fn ready<P: Process>(address: Address<P>) -> Result<(), ExitReason> {
    match Call::new(Route::to(address), Ready).within(UNLIMITED).await {
        Ok(()) => Ok(()),
        Err(CallError::Died(reason)) => Err(reason),
        Err(error) => {
            let reason = ExitReason::other(error.to_string());
            address.kill();
            Err(reason)
        }
    }
}

/// A child's spec with the type of its process erased.
#[derive(Clone)]
pub(crate) struct Starter(Arc<dyn Startable>);

impl Starter {
    pub(crate) fn new<P: Process>(spec: ChildSpec<P>) -> Starter {
        Starter(Arc::new(spec))
    }

    pub(crate) fn slot(&self) -> &Arc<ChildSlot> {
        self.0.slot()
    }

    pub(crate) fn process(&self) -> TypeId {
        self.0.process()
    }

    pub(crate) fn process_name(&self) -> &'static str {
        self.0.process_name()
    }
}

trait Startable: Send + Sync {
    fn rules(&self) -> Rules;
    fn slot(&self) -> &Arc<ChildSlot>;
    fn process(&self) -> TypeId;
    fn process_name(&self) -> &'static str;
    fn spawn(&self, cx: &mut Context<Supervisor>) -> Result<Spawned, ExitReason>;
}

/// A spawned child, and the future to await before it counts as started.
struct Spawned {
    pid: Pid,
    ready: Option<Readiness>,
}

type Readiness = Pin<Box<dyn Future<Output = Result<(), ExitReason>> + Send>>;

impl<P: Process> Startable for ChildSpec<P> {
    fn rules(&self) -> Rules {
        self.rules
    }

    fn slot(&self) -> &Arc<ChildSlot> {
        &self.slot
    }

    fn process(&self) -> TypeId {
        TypeId::of::<P>()
    }

    fn process_name(&self) -> &'static str {
        type_name::<P>()
    }

    fn spawn(&self, cx: &mut Context<Supervisor>) -> Result<Spawned, ExitReason> {
        let spawner = match self.mailbox {
            Some(bound) => cx.linked().mailbox(bound),
            None => cx.linked(),
        };
        let address = (self.spawn)(spawner)?;
        if let Some(name) = &self.name {
            // A child that has died already needs no name: its exit signal is on its way.
            if let Err(error @ RegisterError::Taken { .. }) =
                cx.runtime().register(name.clone(), address)
            {
                cx.unlink(address);
                address.kill();
                let reason = ExitReason::other(error.to_string());
                // The start counts as failed only after this process has exited. Otherwise the next
                // attempt could run beside it.
                let gone = async move {
                    address.pid().exited().await;
                    Err(reason)
                };
                return Ok(Spawned { pid: address.pid(), ready: Some(Box::pin(gone)) });
            }
        }
        self.slot.set(address.pid(), cx.pid());
        let ready = const { process::has_started::<P>() }.then(|| Box::pin(ready(address)) as _);
        Ok(Spawned { pid: address.pid(), ready })
    }
}
