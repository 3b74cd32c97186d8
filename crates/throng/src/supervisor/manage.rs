//! Starting a supervisor, and managing its children while it runs.

use super::child::{Child, ChildSlot};
use super::engine::{Key, RunState, Strategy};
use super::error::{ChildError, SupervisorError};
use super::process::{Report, Starter, Supervisor, UNLIMITED, ready};
use super::spec::{ChildSpec, IntoChildSpec, Restart, SupervisorSpec};
use crate::address::{Address, Pid};
use crate::error::SpawnError;
use crate::exit::ExitReason;
use crate::process::{Process, Turn};
use crate::runtime::RuntimeHandle;
use crate::scheduler;
use crate::signal::registry::Name;
use crate::turn::context::Context;
use std::any::TypeId;
use std::sync::{Arc, mpsc};

impl Supervisor {
    /// Restarts a child that dies, and leaves the others alone.
    pub fn one_for_one() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::OneForOne)
    }

    /// Restarts all when one dies: for children that cannot do without each other.
    pub fn one_for_all() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::OneForAll)
    }

    /// Restarts a child that dies and those started after it: for children that build on those
    /// before them.
    pub fn rest_for_one() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::RestForOne)
    }

    /// Restarts a child that dies, and stops all at once: for many children that come and go,
    /// started by [`spawn_child`](Address::spawn_child). OTP's `simple_one_for_one`.
    ///
    /// ```
    /// use throng::{ChildSpec, Restart, Supervisor, prelude::*};
    ///
    /// struct Session { user: u64 }
    /// impl Process for Session {}
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().start()?;
    /// let sessions = Supervisor::dynamic().start(&runtime)?;
    /// runtime.block_on(async |_| {
    ///     for user in 0..10 {
    ///         let session = ChildSpec::new(move || Session { user });
    ///         sessions.spawn_child(session.restart(Restart::Temporary)).await?;
    ///     }
    ///     assert_eq!(sessions.count_children().await?.active, 10);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn dynamic() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::Dynamic)
    }
}

impl SupervisorSpec {
    /// Starts the supervisor and then its children in order, each when the one before has done with
    /// [`Process::started`].
    ///
    /// Blocks the calling thread meanwhile; in async code [`start_async`](Self::start_async) does
    /// not. It belongs to nobody: it runs until it gives up, is stopped, or the runtime ends.
    ///
    /// # Errors
    /// If a child does not start, those before it are stopped again and
    /// [`SupervisorError::Child`] says why. Within a process: [`SupervisorError::WouldBlock`].
    pub fn start(self, runtime: &RuntimeHandle) -> Result<Address<Supervisor>, SupervisorError> {
        if scheduler::with_worker(|worker| worker.is_some()) {
            return Err(SupervisorError::WouldBlock);
        }
        let (supervisor, outcome) = self.spawn(|process| runtime.spawn(process))?;
        outcome.recv().unwrap_or(Err(SupervisorError::Supervisor(ExitReason::Killed)))?;
        Ok(supervisor)
    }

    /// As [`start`](Self::start), without blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// If it is awaited neither in a process nor in a tokio runtime.
    pub async fn start_async(
        self,
        runtime: &RuntimeHandle,
    ) -> Result<Address<Supervisor>, SupervisorError> {
        let (supervisor, outcome) = self.spawn(|process| runtime.spawn(process))?;
        wait(supervisor, outcome).await
    }

    /// As [`start_async`](Self::start_async), as a child of the calling process and linked to it:
    /// when that exits, the supervisor stops its children and exits too. OTP's `start_link`.
    ///
    /// A failure to start does not end the calling process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_linked<P: Process>(
        self,
        cx: &mut Context<P>,
    ) -> Result<Address<Supervisor>, SupervisorError> {
        let (supervisor, outcome) = self.spawn(|process| cx.spawn_linked(process))?;
        wait(supervisor, outcome).await
    }

    fn spawn(
        self,
        spawn: impl FnOnce(Supervisor) -> Result<Address<Supervisor>, SpawnError<Supervisor>>,
    ) -> Result<(Address<Supervisor>, Outcome), SupervisorError> {
        let (report, outcome): (Report, _) = mpsc::channel();
        let supervisor = spawn(Supervisor::new(Arc::new(self.template), None, Some(report)));
        match supervisor {
            Ok(supervisor) => Ok((supervisor, outcome)),
            Err(error) => Err(SupervisorError::Supervisor(ExitReason::other(error.to_string()))),
        }
    }
}

type Outcome = mpsc::Receiver<Result<(), SupervisorError>>;

async fn wait(
    supervisor: Address<Supervisor>,
    outcome: Outcome,
) -> Result<Address<Supervisor>, SupervisorError> {
    let died = ready(supervisor).await.map_err(SupervisorError::Supervisor);
    // It reports before it answers or dies, unless it is killed.
    outcome.try_recv().unwrap_or(died)?;
    Ok(supervisor)
}

/// Which child: by its id, its pid, its address or its handle.
#[derive(Clone, Debug)]
pub struct ChildRef(Which);

#[derive(Clone, Debug)]
enum Which {
    Id(Name),
    Pid(Pid),
    Slot(Arc<ChildSlot>),
}

impl From<&str> for ChildRef {
    fn from(id: &str) -> ChildRef {
        ChildRef(Which::Id(id.into()))
    }
}

impl From<Name> for ChildRef {
    fn from(id: Name) -> ChildRef {
        ChildRef(Which::Id(id))
    }
}

impl From<Pid> for ChildRef {
    fn from(pid: Pid) -> ChildRef {
        ChildRef(Which::Pid(pid))
    }
}

impl<P: Process> From<Address<P>> for ChildRef {
    fn from(address: Address<P>) -> ChildRef {
        ChildRef(Which::Pid(address.pid()))
    }
}

impl<P: Process> From<&Child<P>> for ChildRef {
    fn from(child: &Child<P>) -> ChildRef {
        ChildRef(Which::Slot(child.slot().clone()))
    }
}

/// A child as its supervisor knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id, unless it was started [without](Address::spawn_child).
    pub id: Option<Name>,
    /// Whether it runs.
    pub state: ChildState,
    /// The type of its process.
    pub process: &'static str,
    /// Whether it is a supervisor itself.
    pub is_supervisor: bool,
    /// When it is started again.
    pub restart: Restart,
}

/// Whether a child runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildState {
    /// It does.
    Running(Pid),
    /// It has died and has not started again since; the supervisor goes on trying.
    Restarting,
    /// It was stopped, or ended for good.
    Stopped,
}

/// How many children a supervisor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ChildCount {
    /// All it knows.
    pub specs: usize,
    /// Those that run.
    pub active: usize,
    /// Those that are supervisors, running or not.
    pub supervisors: usize,
    /// Those that are not, running or not.
    pub workers: usize,
}

/// Managing a supervisor's children.
///
/// The supervisor does one thing after the other, so these wait for as long as what it is doing
/// takes: a child that starts slowly, or is slow to stop.
///
/// ```
/// use throng::{ChildError, Supervisor, prelude::*};
/// # #[derive(Default)]
/// # struct Ledger;
/// # impl Process for Ledger {}
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().start()?;
/// let bank = Supervisor::one_for_one().start(&runtime)?;
/// runtime.block_on(async |_| {
///     let ledger = bank.start_child("ledger", Ledger::default).await?;
///     assert!(ledger.address().is_some());
///
///     bank.terminate_child("ledger").await?;
///     assert!(ledger.address().is_none());
///     bank.restart_child("ledger").await?;
///     assert!(ledger.address().is_some());
///
///     assert!(matches!(bank.delete_child("ledger").await, Err(ChildError::Running(_))));
///     Ok(())
/// })
/// # }
/// ```
impl Address<Supervisor> {
    /// Adds a child behind all others and starts it.
    ///
    /// # Errors
    /// [`ChildError::Running`], [`ChildError::Restarting`] or [`ChildError::Stopped`] if a child has
    /// this id; [`ChildError::Failed`] if it does not start: then it is not added.
    pub async fn start_child<C: IntoChildSpec>(
        self,
        id: impl Into<Name>,
        child: C,
    ) -> Result<Child<C::Process>, ChildError> {
        self.add_child(Some(id.into()), child.into_child_spec()).await
    }

    /// Adds a child without an id and starts it. It is forgotten when it has ended for good or has
    /// been terminated.
    ///
    /// # Errors
    /// [`ChildError::Failed`] if it does not start.
    pub async fn spawn_child<C: IntoChildSpec>(
        self,
        child: C,
    ) -> Result<Child<C::Process>, ChildError> {
        self.add_child(None, child.into_child_spec()).await
    }

    /// Stops a child, within the time its spec allows, and does not start it again. A child with an
    /// id that is not [temporary](Restart::Temporary) can be by
    /// [`restart_child`](Self::restart_child).
    ///
    /// # Errors
    /// [`ChildError::NoChild`].
    pub async fn terminate_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(Terminate(child.into())).await?
    }

    /// Starts a child that is stopped.
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Running`], [`ChildError::Restarting`];
    /// [`ChildError::Failed`] if it does not start: then it stays stopped.
    pub async fn restart_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(StartAgain(child.into())).await?
    }

    /// Forgets a child that is stopped.
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Running`], [`ChildError::Restarting`].
    pub async fn delete_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(Delete(child.into())).await?
    }

    /// The handle of the child with an id.
    ///
    /// # Errors
    /// [`ChildError::NoChild`]; [`ChildError::OtherProcess`] if it is no `P`.
    pub async fn child<P: Process>(self, id: impl Into<Name>) -> Result<Child<P>, ChildError> {
        let (slot, process, name) =
            self.manage(Find(id.into())).await?.ok_or(ChildError::NoChild)?;
        if process == TypeId::of::<P>() {
            Ok(Child::new(slot))
        } else {
            Err(ChildError::OtherProcess(name))
        }
    }

    /// All children in the order of their start.
    ///
    /// # Errors
    /// [`ChildError::Unanswered`].
    pub async fn which_children(self) -> Result<Vec<ChildInfo>, ChildError> {
        self.manage(List).await
    }

    /// How many children there are.
    ///
    /// # Errors
    /// [`ChildError::Unanswered`].
    pub async fn count_children(self) -> Result<ChildCount, ChildError> {
        self.manage(Count).await
    }

    async fn add_child<P: Process>(
        self,
        id: Option<Name>,
        spec: ChildSpec<P>,
    ) -> Result<Child<P>, ChildError> {
        let child = spec.handle();
        self.manage(Add(id, Starter::new(spec))).await??;
        Ok(child)
    }

    async fn manage<T: Turn<Supervisor>>(self, what: T) -> Result<T::Reply, ChildError> {
        let answer = self.call(what).within(UNLIMITED).await;
        answer.map_err(|error| ChildError::Unanswered(error.into()))
    }
}

impl Supervisor {
    fn find(&self, child: &ChildRef) -> Result<Key, ChildError> {
        let engine = self.engine();
        let key = match &child.0 {
            Which::Id(id) => engine.by_name(id),
            Which::Pid(pid) => engine.by_pid(*pid),
            Which::Slot(slot) => slot.key().filter(|&key| {
                engine.get(key).is_some_and(|child| Arc::ptr_eq(child.content.slot(), slot))
            }),
        };
        key.ok_or(ChildError::NoChild)
    }
}

struct Add(Option<Name>, Starter);

impl Turn<Supervisor> for Add {
    type Reply = Result<(), ChildError>;

    async fn run(self, supervisor: &mut Supervisor, cx: &mut Context<Supervisor>) -> Self::Reply {
        supervisor.start_new(self.0, self.1, cx).await
    }
}

struct Terminate(ChildRef);

impl Turn<Supervisor> for Terminate {
    type Reply = Result<(), ChildError>;

    async fn run(self, supervisor: &mut Supervisor, cx: &mut Context<Supervisor>) -> Self::Reply {
        let key = supervisor.find(&self.0)?;
        supervisor.terminate(key, cx).await;
        Ok(())
    }
}

struct StartAgain(ChildRef);

impl Turn<Supervisor> for StartAgain {
    type Reply = Result<(), ChildError>;

    async fn run(self, supervisor: &mut Supervisor, cx: &mut Context<Supervisor>) -> Self::Reply {
        let key = supervisor.find(&self.0)?;
        supervisor.start_stopped(key, cx).await
    }
}

struct Delete(ChildRef);

impl Turn<Supervisor> for Delete {
    type Reply = Result<(), ChildError>;

    async fn run(self, supervisor: &mut Supervisor, _: &mut Context<Supervisor>) -> Self::Reply {
        let key = supervisor.find(&self.0)?;
        supervisor.delete(key)
    }
}

struct Find(Name);

impl Turn<Supervisor> for Find {
    type Reply = Option<(Arc<ChildSlot>, TypeId, &'static str)>;

    async fn run(self, supervisor: &mut Supervisor, _: &mut Context<Supervisor>) -> Self::Reply {
        let key = supervisor.engine().by_name(&self.0)?;
        let starter = &supervisor.engine().get(key)?.content;
        Some((starter.slot().clone(), starter.process(), starter.process_name()))
    }
}

struct List;

impl Turn<Supervisor> for List {
    type Reply = Vec<ChildInfo>;

    async fn run(self, supervisor: &mut Supervisor, _: &mut Context<Supervisor>) -> Self::Reply {
        let info = supervisor.engine().iter().map(|(_, child)| ChildInfo {
            id: child.name.clone(),
            state: match child.state {
                RunState::Running(pid) => ChildState::Running(pid),
                RunState::Restarting => ChildState::Restarting,
                RunState::Stopped => ChildState::Stopped,
            },
            process: child.content.process_name(),
            is_supervisor: is_supervisor(&child.content),
            restart: child.restart,
        });
        info.collect()
    }
}

struct Count;

impl Turn<Supervisor> for Count {
    type Reply = ChildCount;

    async fn run(self, supervisor: &mut Supervisor, _: &mut Context<Supervisor>) -> ChildCount {
        let engine = supervisor.engine();
        let (specs, active) = engine.len();
        let supervisors = engine.iter().filter(|(_, child)| is_supervisor(&child.content)).count();
        ChildCount { specs, active, supervisors, workers: specs - supervisors }
    }
}

fn is_supervisor(starter: &Starter) -> bool {
    starter.process() == TypeId::of::<Supervisor>()
}
