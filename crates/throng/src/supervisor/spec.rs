//! Specs of supervisors and children: how to start a process, and how to react when it dies.

use super::child::{Child, ChildSlot};
use super::engine::{Settings, Strategy};
use super::process::{Starter, Supervisor, Template};
use crate::address::Address;
use crate::error::SpawnError;
use crate::exit::IntoExitReason;
use crate::exit::{self, ExitReason};
use crate::mailbox::bound::MailboxBound;
use crate::runtime::spawner::Spawner;
use crate::signal::registry::Name;
use crate::turn::async_process::{AsyncProcess, Inbox};
use crate::turn::process::{Message, Process};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Default time that a child other than a supervisor may take to stop.
const GRACE: Duration = Duration::from_secs(5);
/// Default number of restarts allowed within [`PERIOD`]; OTP's default.
const INTENSITY: u32 = 1;
/// Default period over which restarts are counted; OTP's default.
const PERIOD: Duration = Duration::from_secs(5);

/// The condition under which a child that has exited is restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Restart {
    /// The child is always restarted.
    #[default]
    Permanent,
    /// The child is restarted unless it ended in order: with
    /// [`Normal`](crate::ExitReason::Normal) or [`Shutdown`](crate::ExitReason::Shutdown).
    Transient,
    /// The child is never restarted. The supervisor drops its spec once the child has exited or has
    /// been stopped together with a sibling.
    Temporary,
}

/// Whether a supervisor exits when its [significant](ChildSpec::significant) children have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AutoShutdown {
    /// The supervisor keeps running.
    #[default]
    Never,
    /// The supervisor exits when any significant child exits and is not restarted.
    AnySignificant,
    /// The supervisor exits when the last significant child exits and is not restarted.
    AllSignificant,
}

/// The procedure by which a child is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grace {
    /// The child is killed at once.
    None,
    /// The child is asked to exit, and killed when the time is over.
    Within(Duration),
    /// The child is asked to exit, and waited for without a limit.
    Unlimited,
}

/// The spec of a child: how it is started, stopped and restarted.
///
/// ```
/// # use std::time::Duration;
/// use throng::{ChildSpec, Restart, prelude::*};
/// # #[derive(Default)]
/// # struct Accounts;
/// # impl Process for Accounts {}
///
/// let accounts = ChildSpec::new(|| Accounts::default())
///     .restart(Restart::Transient)
///     .shutdown(Duration::from_secs(2))
///     .register("accounts");
/// # let _ = accounts;
/// ```
///
/// A closure that makes the state, or the spec of a supervisor, is accepted in place of a spec. Such a child
/// has OTP's defaults: it is permanent, and has five seconds to stop, or unlimited time as a supervisor.
#[must_use]
pub struct ChildSpec<P> {
    pub(crate) spawn: Arc<Spawn<P>>,
    pub(crate) slot: Arc<ChildSlot>,
    pub(crate) rules: Rules,
    pub(crate) name: Option<Name>,
    pub(crate) mailbox: Option<MailboxBound>,
}

/// Spawns a child with the supervisor's [`Spawner`], or returns the reason why it cannot.
pub(crate) type Spawn<P> = dyn Fn(Spawner<'_>) -> Result<Address<P>, ExitReason> + Send + Sync;

/// The rules of a spec: restart, significance and stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) restart: Restart,
    pub(crate) significant: bool,
    pub(crate) grace: Grace,
}

impl<P: Process> ChildSpec<P> {
    /// Creates a spec of a permanent child. The closure makes the child's state at each start.
    ///
    /// If the closure panics, the start fails. Work that takes time or may fail can also be done in
    /// [`Process::started`], which the supervisor awaits before it starts the next child.
    pub fn new(make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec<P> {
        ChildSpec::fallible(move || Ok::<P, &str>(make()))
    }

    /// Creates a spec of a permanent child from a closure that may fail. If the closure returns an
    /// error or panics, the start fails.
    ///
    /// ```
    /// use throng::{ChildSpec, prelude::*};
    ///
    /// struct Settings(String);
    /// impl Process for Settings {}
    ///
    /// let settings = ChildSpec::fallible(|| std::fs::read_to_string("settings").map(Settings));
    /// # let _ = settings;
    /// ```
    pub fn fallible<E: fmt::Display>(
        make: impl Fn() -> Result<P, E> + Send + Sync + 'static,
    ) -> ChildSpec<P> {
        ChildSpec::spawned_by(move |spawner| {
            let made = exit::catch(|| make().map_err(|error| ExitReason::other(error.to_string())));
            spawner.spawn(made??).map_err(not_spawned)
        })
    }

    fn spawned_by(
        spawn: impl Fn(Spawner<'_>) -> Result<Address<P>, ExitReason> + Send + Sync + 'static,
    ) -> ChildSpec<P> {
        let (restart, grace) = (Restart::Permanent, Grace::Within(GRACE));
        let rules = Rules { restart, significant: false, grace };
        let spawn = Arc::new(spawn);
        ChildSpec { spawn, slot: Arc::default(), rules, name: None, mailbox: None }
    }

    /// Sets when the child is restarted; [`Restart::Permanent`] by default.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.rules.restart = restart;
        self
    }

    /// Sets the time the child may take to stop before it is killed; five seconds by default.
    pub fn shutdown(mut self, grace: Duration) -> Self {
        self.rules.grace = Grace::Within(grace);
        self
    }

    /// Makes the supervisor stop the child by killing it, instead of asking it to exit.
    pub fn brutal_kill(mut self) -> Self {
        self.rules.grace = Grace::None;
        self
    }

    /// Sets no limit to the time the child may take to stop, as is usual for supervisors.
    pub fn shutdown_unlimited(mut self) -> Self {
        self.rules.grace = Grace::Unlimited;
        self
    }

    /// Sets whether the end of the child may end its supervisor; see [`AutoShutdown`]. No effect on
    /// permanent children.
    pub fn significant(mut self, significant: bool) -> Self {
        self.rules.significant = significant;
        self
    }

    /// [Registers](crate::RuntimeHandle::register) the child under a name at each start. If another
    /// process has the name, the start fails.
    pub fn register(mut self, name: impl Into<Name>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Bounds the child's mailbox, which is unbounded by default.
    pub fn mailbox(mut self, bound: MailboxBound) -> Self {
        self.mailbox = Some(bound);
        self
    }

    /// Returns a handle to the child, which reaches the incarnation that runs at the moment. The
    /// handle can be given to other processes, including siblings, before anything is started.
    pub fn handle(&self) -> Child<P> {
        Child::new(self.slot.clone())
    }
}

impl<M: Message<Reply = ()>> ChildSpec<AsyncProcess<M>> {
    /// Creates a spec of a permanent child written as a future; see
    /// [`spawn_async`](Spawner::spawn_async). The child counts as started at once.
    ///
    /// ```
    /// # use throng::{Restart, Supervisor, prelude::*};
    /// struct Line(String);
    /// impl Message for Line { type Reply = (); }
    ///
    /// let printer = ChildSpec::from_async(|mut inbox: Inbox<Line>| async move {
    ///     loop {
    ///         let Line(line) = inbox.recv().await;
    ///         println!("{line}");
    ///     }
    /// });
    /// let spec = Supervisor::one_for_one().child("printer", printer);
    /// # let _ = spec;
    /// ```
    pub fn from_async<F, R>(begin: F) -> Self
    where
        F: Fn(Inbox<M>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoExitReason> + Send + 'static,
    {
        let begin = Arc::new(begin);
        ChildSpec::spawned_by(move |spawner| {
            let begin = begin.clone();
            spawner.spawn_async(move |inbox| begin(inbox)).map_err(not_spawned)
        })
    }
}

fn not_spawned<T>(error: SpawnError<T>) -> ExitReason {
    let reason = ExitReason::other(error.to_string());
    exit::drop_users(error);
    reason
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> From<F> for ChildSpec<P> {
    fn from(make: F) -> ChildSpec<P> {
        ChildSpec::new(make)
    }
}

impl From<SupervisorSpec> for ChildSpec<Supervisor> {
    fn from(spec: SupervisorSpec) -> ChildSpec<Supervisor> {
        let (template, slot) = (Arc::new(spec.template), Arc::<ChildSlot>::default());
        let own = slot.clone();
        let spec =
            ChildSpec::new(move || Supervisor::new(template.clone(), Some(own.clone()), None));
        ChildSpec { slot, ..spec }.shutdown_unlimited()
    }
}

/// The spec of a supervisor: its rules, and its children in the order of starting. Made by
/// [`Supervisor::one_for_one`] and the like.
///
/// A supervisor spec can itself be a child of another supervisor, with no limit to the time it may
/// take to stop.
///
/// ```
/// # use std::time::Duration;
/// use throng::{Supervisor, prelude::*};
/// # #[derive(Default)]
/// # struct Ledger;
/// # impl Process for Ledger {}
/// # #[derive(Default)]
/// # struct Teller;
/// # impl Process for Teller {}
///
/// let bank = Supervisor::rest_for_one()
///     .intensity(3, Duration::from_secs(5))
///     .child("ledger", Ledger::default)
///     .child("tellers", Supervisor::one_for_one().child("anne", Teller::default));
/// # let _ = bank;
/// ```
#[must_use = "nothing is started until `start`"]
pub struct SupervisorSpec {
    pub(crate) template: Template,
}

impl SupervisorSpec {
    pub(crate) fn new(strategy: Strategy) -> SupervisorSpec {
        let settings = Settings {
            strategy,
            auto_shutdown: AutoShutdown::Never,
            intensity: INTENSITY,
            period: PERIOD,
        };
        SupervisorSpec { template: Template { settings, children: Vec::new() } }
    }

    /// Sets the number of restarts allowed within a period, 1 in five seconds by default. The
    /// supervisor exits when a further restart is needed.
    ///
    /// Restarts exactly as old as the period still count. Each failed attempt to restart a child
    /// counts.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        self.template.settings.intensity = restarts;
        self.template.settings.period = period;
        self
    }

    /// Sets whether the supervisor exits when its significant children have ended;
    /// [`AutoShutdown::Never`] by default.
    pub fn auto_shutdown(mut self, auto_shutdown: AutoShutdown) -> Self {
        self.template.settings.auto_shutdown = auto_shutdown;
        self
    }

    /// Adds a child, to be started after the children added before it.
    ///
    /// If two children have the same id, the start of the supervisor fails.
    pub fn child<P: Process>(
        mut self,
        id: impl Into<Name>,
        child: impl Into<ChildSpec<P>>,
    ) -> Self {
        self.template.children.push((id.into(), Starter::new(child.into())));
        self
    }
}
