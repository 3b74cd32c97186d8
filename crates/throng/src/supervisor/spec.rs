//! Supervisors and their children as data: what is to be started, and what happens when it dies.

use super::child::{Child, ChildSlot};
use super::engine::{Settings, Strategy};
use super::process::{Starter, Supervisor, Template};
use crate::address::Address;
use crate::error::SpawnError;
use crate::exit::IntoExitReason;
use crate::exit::{self, ExitReason};
use crate::mailbox::bound::MailboxBound;
use crate::process::{Message, Process};
use crate::runtime::spawner::Spawner;
use crate::signal::registry::Name;
use crate::turn::async_process::{AsyncProcess, Inbox};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long a child that is no supervisor may take to stop unless told otherwise.
const GRACE: Duration = Duration::from_secs(5);
/// How many restarts are borne in [`PERIOD`] unless told otherwise; both are OTP's.
const INTENSITY: u32 = 1;
const PERIOD: Duration = Duration::from_secs(5);

/// When a child that has exited is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// Unless it ended in order: with [`Normal`](crate::ExitReason::Normal) or
    /// [`Shutdown`](crate::ExitReason::Shutdown).
    Transient,
    /// Never; once it has exited, or has been stopped for another's sake, it is forgotten.
    Temporary,
}

/// Whether a supervisor exits of itself when its [significant](ChildSpec::significant) children have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AutoShutdown {
    /// It does not.
    #[default]
    Never,
    /// When one has exited that is not started again.
    AnySignificant,
    /// When the last has exited that is not started again.
    AllSignificant,
}

/// How a child is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grace {
    /// Killed at once.
    None,
    /// Asked, and killed when the time is over.
    Within(Duration),
    /// Asked, and waited for however long it takes.
    Unlimited,
}

/// A child to be: how it is made, and what happens when it exits.
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
/// A closure alone is one, too, with OTP's defaults: permanent, and five seconds to stop.
#[must_use]
pub struct ChildSpec<P> {
    pub(crate) spawn: Arc<Spawn<P>>,
    pub(crate) slot: Arc<ChildSlot>,
    pub(crate) rules: Rules,
    pub(crate) name: Option<Name>,
    pub(crate) mailbox: Option<MailboxBound>,
}

/// Spawns a process by what its supervisor lends for that, or says why it cannot.
pub(crate) type Spawn<P> = dyn Fn(Spawner<'_>) -> Result<Address<P>, ExitReason> + Send + Sync;

/// What a spec says besides how the child is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) restart: Restart,
    pub(crate) significant: bool,
    pub(crate) grace: Grace,
}

impl<P: Process> ChildSpec<P> {
    /// A permanent child whose state the closure makes, at each start anew.
    ///
    /// If the closure panics, the start has failed. What takes time or may fail can also be done in
    /// [`Process::started`], which a supervisor waits for before it starts the next child.
    pub fn new(make: impl Fn() -> P + Send + Sync + 'static) -> ChildSpec<P> {
        ChildSpec::fallible(move || Ok::<P, &str>(make()))
    }

    /// The same, of a closure that may fail; then the start has.
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

    /// When it is started again; [`Restart::Permanent`] by default.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.rules.restart = restart;
        self
    }

    /// How long it may take to stop before it is killed; five seconds by default.
    pub fn shutdown(mut self, grace: Duration) -> Self {
        self.rules.grace = Grace::Within(grace);
        self
    }

    /// It is not asked to stop, but killed.
    pub fn brutal_kill(mut self) -> Self {
        self.rules.grace = Grace::None;
        self
    }

    /// It may take as long as it likes to stop, as is usual for supervisors.
    pub fn shutdown_unlimited(mut self) -> Self {
        self.rules.grace = Grace::Unlimited;
        self
    }

    /// Its end may be its supervisor's; see [`AutoShutdown`]. No effect on permanent children.
    pub fn significant(mut self, significant: bool) -> Self {
        self.rules.significant = significant;
        self
    }

    /// Has it [registered](crate::RuntimeHandle::register) under a name, at each start anew. If
    /// another process has the name, the start has failed.
    pub fn register(mut self, name: impl Into<Name>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Bounds its mailbox, which otherwise takes what comes.
    pub fn mailbox(mut self, bound: MailboxBound) -> Self {
        self.mailbox = Some(bound);
        self
    }

    /// The handle by which it will be reached, whichever incarnation runs: to be given to those
    /// who need it, also to its siblings, before anything is started.
    pub fn handle(&self) -> Child<P> {
        Child::new(self.slot.clone())
    }
}

impl<M: Message<Reply = ()>> ChildSpec<AsyncProcess<M>> {
    /// A permanent child written as a future; see
    /// [`spawn_async`](crate::RuntimeHandle::spawn_async). It counts as started at once.
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

/// What a supervisor can start as a child: a closure that makes a process's state, a
/// [`ChildSpec`], or a [`SupervisorSpec`].
pub trait IntoChildSpec {
    /// What runs.
    type Process: Process;

    /// The spec, with OTP's defaults for what has not been said.
    fn into_child_spec(self) -> ChildSpec<Self::Process>;
}

impl<P: Process> IntoChildSpec for ChildSpec<P> {
    type Process = P;

    fn into_child_spec(self) -> ChildSpec<P> {
        self
    }
}

impl<P: Process, F: Fn() -> P + Send + Sync + 'static> IntoChildSpec for F {
    type Process = P;

    fn into_child_spec(self) -> ChildSpec<P> {
        ChildSpec::new(self)
    }
}

impl IntoChildSpec for SupervisorSpec {
    type Process = Supervisor;

    fn into_child_spec(self) -> ChildSpec<Supervisor> {
        let (template, slot) = (Arc::new(self.template), Arc::<ChildSlot>::default());
        let own = slot.clone();
        let spec =
            ChildSpec::new(move || Supervisor::new(template.clone(), Some(own.clone()), None));
        ChildSpec { slot, ..spec }.shutdown_unlimited()
    }
}

/// A supervisor to be: its children in the order of starting, and its rules. Made by
/// [`Supervisor::one_for_one`] and the like.
///
/// It is itself a child for another supervisor, with no limit to the time it may take to stop.
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

    /// Bears so many restarts within a period, and exits at the next; one in five seconds by
    /// default.
    ///
    /// Restarts exactly as old as the period still count. Each try to start a child that does not
    /// start again counts.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        self.template.settings.intensity = restarts;
        self.template.settings.period = period;
        self
    }

    /// Whether it exits of itself when its significant children have.
    pub fn auto_shutdown(mut self, auto_shutdown: AutoShutdown) -> Self {
        self.template.settings.auto_shutdown = auto_shutdown;
        self
    }

    /// Adds a child, to be started after those added before.
    ///
    /// That two have the same id is found when the supervisor starts.
    pub fn child(mut self, id: impl Into<Name>, child: impl IntoChildSpec) -> Self {
        self.template.children.push((id.into(), Starter::new(child.into_child_spec())));
        self
    }
}
