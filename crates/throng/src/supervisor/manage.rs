//! Start of a supervisor, and management of its children while it runs.

use super::child::{Child, ChildSlot};
use super::engine::{Key, RunState, Strategy};
use super::error::{ChildError, SupervisorError};
use super::process::{Report, Starter, Supervisor, UNLIMITED, ready};
use super::spec::{ChildSpec, Restart, SupervisorSpec};
use crate::address::{Address, Pid};
use crate::error::SpawnError;
use crate::exit::ExitReason;
use crate::runtime::RuntimeHandle;
use crate::scheduler;
use crate::signal::registry::Name;
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use std::any::TypeId;
use std::sync::{Arc, mpsc};

impl Supervisor {
    /// Creates a spec of a supervisor that restarts only the child that died.
    pub fn one_for_one() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::OneForOne)
    }

    /// Creates a spec of a supervisor that restarts all children when any of them dies: for
    /// children that depend on each other.
    pub fn one_for_all() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::OneForAll)
    }

    /// Creates a spec of a supervisor that restarts a child that died and the children started
    /// after it: for children that depend on the children before them.
    pub fn rest_for_one() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::RestForOne)
    }

    /// Creates a spec of a supervisor for many short-lived children, started by
    /// [`spawn_child`](Address::spawn_child). Such a supervisor restarts only the child that died,
    /// and stops all children at once when it exits itself. OTP's `simple_one_for_one`.
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
    ///     assert_eq!(sessions.count_children().await?, 10);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn dynamic() -> SupervisorSpec {
        SupervisorSpec::new(Strategy::Dynamic)
    }
}

impl SupervisorSpec {
    /// Starts the supervisor and then its children in order, each after the previous child has
    /// completed [`Process::started`].
    ///
    /// Blocks the calling thread meanwhile; in async code use [`start_async`](Self::start_async).
    /// The supervisor has no parent: it runs until it gives up, is stopped, or the runtime ends.
    ///
    /// # Errors
    /// [`SupervisorError::DuplicateId`]; [`SupervisorError::Child`] if a child does not start, in
    /// which case the children before it are stopped again; [`SupervisorError::Supervisor`] if the
    /// supervisor cannot be spawned or is killed; [`SupervisorError::WouldBlock`] within a process.
    pub fn start(self, runtime: &RuntimeHandle) -> Result<Address<Supervisor>, SupervisorError> {
        if scheduler::with_worker(|worker| worker.is_some()) {
            return Err(SupervisorError::WouldBlock);
        }
        let (supervisor, outcome) = self.spawn(|process| runtime.spawn(process))?;
        outcome.recv().unwrap_or(Err(SupervisorError::Supervisor(ExitReason::Killed)))?;
        Ok(supervisor)
    }

    /// Starts the supervisor and its children like [`start`](Self::start), without blocking the
    /// calling thread.
    ///
    /// # Errors
    /// The same as [`start`](Self::start), except [`SupervisorError::WouldBlock`].
    ///
    /// # Panics
    /// If awaited outside of both a process and a tokio runtime.
    pub async fn start_async(
        self,
        runtime: &RuntimeHandle,
    ) -> Result<Address<Supervisor>, SupervisorError> {
        let (supervisor, outcome) = self.spawn(|process| runtime.spawn(process))?;
        wait(supervisor, outcome).await
    }

    /// Starts the supervisor as a child of the calling process and linked to it: when the calling
    /// process exits, the supervisor stops its children and exits too. OTP's `start_link`.
    ///
    /// A failure to start does not end the calling process.
    ///
    /// # Errors
    /// The same as [`start_async`](Self::start_async).
    pub async fn start_linked<P: Process>(
        self,
        cx: &mut Context<P>,
    ) -> Result<Address<Supervisor>, SupervisorError> {
        let (supervisor, outcome) = self.spawn(|process| cx.linked().spawn(process))?;
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
    // The supervisor sends its report before it answers or dies, unless it is killed.
    outcome.try_recv().unwrap_or(died)?;
    Ok(supervisor)
}

/// A reference to a child of a supervisor: its id, its pid, its address or its handle.
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

/// A child in the list of its supervisor; see [`which_children`](Address::which_children).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Id of the child; `None` if it was started [without an id](Address::spawn_child).
    pub id: Option<Name>,
    /// Run state of the child.
    pub state: ChildState,
    /// Name of the type of the child's process.
    pub process: &'static str,
    /// Whether the child is a supervisor itself.
    pub is_supervisor: bool,
    /// Condition under which the child is restarted.
    pub restart: Restart,
}

/// The run state of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildState {
    /// The child runs, with this pid.
    Running(Pid),
    /// The child has died and has not started since; the supervisor keeps trying to restart it.
    Restarting,
    /// The child was stopped, or has ended and is not restarted.
    Stopped,
}

/// Management of a supervisor's children.
///
/// The supervisor handles requests one after the other, so each method waits until the supervisor
/// has finished its current work: a child that starts slowly, or is slow to stop.
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
    /// Adds a child as the last in the order of starting, and starts it.
    ///
    /// # Errors
    /// [`ChildError::Running`], [`ChildError::Restarting`] or [`ChildError::Stopped`] if a child
    /// already has this id; [`ChildError::Failed`] if the child does not start, in which case it is
    /// not added; [`ChildError::Unanswered`].
    pub async fn start_child<P: Process>(
        self,
        id: impl Into<Name>,
        child: impl Into<ChildSpec<P>>,
    ) -> Result<Child<P>, ChildError> {
        self.add_child(Some(id.into()), child.into()).await
    }

    /// Adds a child without an id and starts it. The supervisor drops the child's spec when the
    /// child has been terminated, or has ended and is not restarted.
    ///
    /// # Errors
    /// [`ChildError::Failed`] if the child does not start; [`ChildError::Unanswered`].
    pub async fn spawn_child<P: Process>(
        self,
        child: impl Into<ChildSpec<P>>,
    ) -> Result<Child<P>, ChildError> {
        self.add_child(None, child.into()).await
    }

    /// Adds many children without ids in a single message, and starts them in order. The supervisor drops the
    /// specs of ended children as it does after [`spawn_child`](Self::spawn_child).
    ///
    /// ```
    /// use throng::{ChildSpec, Restart, Supervisor, prelude::*};
    /// # struct Player(u32);
    /// # impl Process for Player {}
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// let players = Supervisor::dynamic().start(&runtime)?;
    /// let player = |number| ChildSpec::new(move || Player(number)).restart(Restart::Transient);
    /// let all = runtime.block_on(async |_| players.spawn_children((0..1000).map(player)).await)?;
    /// assert_eq!(all.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ChildError::Failed`] if a child does not start; the supervisor then stops the children that it has
    /// started before, in reverse order, and keeps none of them. [`ChildError::Unanswered`].
    pub async fn spawn_children<P: Process>(
        self,
        children: impl IntoIterator<Item: Into<ChildSpec<P>>>,
    ) -> Result<Vec<Child<P>>, ChildError> {
        let specs = children.into_iter().map(Into::into);
        let (handles, starters) = specs.map(|spec| (spec.handle(), Starter::new(spec))).unzip();
        self.manage(AddAll(starters)).await??;
        Ok(handles)
    }

    /// Stops a child within the time its spec allows, and does not restart it. A child that has an
    /// id and is not [temporary](Restart::Temporary) can be started again by
    /// [`restart_child`](Self::restart_child).
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Unanswered`].
    pub async fn terminate_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(Terminate(child.into())).await?
    }

    /// Starts a child that is stopped.
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Running`], [`ChildError::Restarting`],
    /// [`ChildError::Unanswered`]; [`ChildError::Failed`] if the child does not start, in which
    /// case it stays stopped.
    pub async fn restart_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(StartAgain(child.into())).await?
    }

    /// Removes a stopped child from the supervisor.
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Running`], [`ChildError::Restarting`],
    /// [`ChildError::Unanswered`].
    pub async fn delete_child(self, child: impl Into<ChildRef>) -> Result<(), ChildError> {
        self.manage(Delete(child.into())).await?
    }

    /// Returns the handle of the child with the given id.
    ///
    /// # Errors
    /// [`ChildError::NoChild`], [`ChildError::Unanswered`]; [`ChildError::OtherProcess`] if the
    /// child is not a `P`.
    pub async fn child<P: Process>(self, id: impl Into<Name>) -> Result<Child<P>, ChildError> {
        let (slot, process, name) =
            self.manage(Find(id.into())).await?.ok_or(ChildError::NoChild)?;
        if process == TypeId::of::<P>() {
            Ok(Child::new(slot))
        } else {
            Err(ChildError::OtherProcess(name))
        }
    }

    /// Lists all children in the order of their start.
    ///
    /// # Errors
    /// [`ChildError::Unanswered`].
    pub async fn which_children(self) -> Result<Vec<ChildInfo>, ChildError> {
        self.manage(ListChildren).await
    }

    /// Returns the number of children that run.
    ///
    /// # Errors
    /// [`ChildError::Unanswered`].
    ///
    /// Cost: constant, however many children there are.
    pub async fn count_children(self) -> Result<usize, ChildError> {
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

struct AddAll(Vec<Starter>);

impl Turn<Supervisor> for AddAll {
    type Reply = Result<(), ChildError>;

    async fn run(self, supervisor: &mut Supervisor, cx: &mut Context<Supervisor>) -> Self::Reply {
        let mut added = Vec::with_capacity(self.0.len());
        for starter in self.0 {
            let slot = starter.slot().clone();
            if let Err(error) = supervisor.start_new(None, starter, cx).await {
                for slot in added.into_iter().rev() {
                    // A child that has ended by itself may have been removed already.
                    if let Ok(key) = supervisor.find(&ChildRef(Which::Slot(slot))) {
                        supervisor.terminate(key, cx).await;
                    }
                }
                return Err(error);
            }
            added.push(slot);
        }
        Ok(())
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

struct ListChildren;

impl Turn<Supervisor> for ListChildren {
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
    type Reply = usize;

    async fn run(self, supervisor: &mut Supervisor, _: &mut Context<Supervisor>) -> usize {
        supervisor.engine().len().1
    }
}

fn is_supervisor(starter: &Starter) -> bool {
    starter.process() == TypeId::of::<Supervisor>()
}
