//! Groups: processes under a common name, which leave when they exit. Like OTP's `pg`, with the runtime
//! as the only scope. The members are processes of one type, or of any type that handles one message.
//!
//! ```text
//!  RuntimeHandle::group ─▶ Groups: (name, type) ─▶ weak ─┐
//!                                                        ▼
//!  Group (handle) ────────────────────────────────────▶ Core { members, monitors }
//!  a member's membership, which leaves at its exit ──────┘
//! ```
//! Invariants:
//! 1. A group exists as long as it has a handle, a member or a monitor; without any it is removed.
//! 2. The signals by which a process gains and loses a membership are sent under the group's lock,
//!    so that they come in the order in which the members changed.
//! 3. Events are noted under the group's lock and delivered outside of it, in order and by a single
//!    thread at a time: so each monitor sees every change in order, and no user code runs under the
//!    lock.

use crate::address::recipient::Recipient;
use crate::address::{Address, Pid};
use crate::cell::extension::Membership;
use crate::runtime::RuntimeHandle;
use crate::signal::registry::Name;
use crate::signal::registry::table::shard_of;
use crate::signal::{self, Signal};
use crate::sync::{Mutex, lock};
use crate::turn::process::{Handle, Message, Process, Turn};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::any::{Any, TypeId};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

const SHARDS: usize = 16;

/// A named group of processes, each of which may join any number of times. Cloning this handle costs a
/// reference count.
///
/// The members are addresses, of processes of one type, or recipients: processes of any type that handles a
/// message. A group is for processes that come and go by themselves; to send to a list of your own, use
/// [`SendAll`](crate::SendAll), and to one of several equal workers, a [`Pool`](crate::Pool).
///
/// ```
/// # use throng::prelude::*;
/// # struct Room { heard: u32 }
/// # impl Process for Room {}
/// #[derive(Clone)]
/// struct Say(u32);
/// # impl Message for Say { type Reply = u32; }
/// # impl Handle<Say> for Room {
/// #     async fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> u32 {
/// #         self.heard += number;
/// #         self.heard
/// #     }
/// # }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let kitchen = runtime.group::<Address<Room>>("kitchen");
/// for _ in 0..3 {
///     kitchen.join(runtime.spawn(Room { heard: 0 })?);
/// }
/// assert_eq!(kitchen.broadcast(Say(2)), 3);
///
/// let first = kitchen.members()[0];
/// assert_eq!(runtime.block_on(async |_| first.call(Say(1)).await)?, 3);
/// # Ok(())
/// # }
/// ```
///
/// Processes of several types, by the message that each of them handles:
///
/// ```
/// # use throng::prelude::*;
/// #[derive(Clone)]
/// struct Posted(&'static str);
/// impl Message for Posted { type Reply = (); }
/// # struct Reader;
/// # impl Process for Reader {}
/// # impl Handle<Posted> for Reader {
/// #     async fn handle(&mut self, _: Posted, _: &mut Context<Self>) {}
/// # }
/// # struct Archive;
/// # impl Process for Archive {}
/// # impl Handle<Posted> for Archive {
/// #     async fn handle(&mut self, _: Posted, _: &mut Context<Self>) {}
/// # }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let news = runtime.group::<Recipient<Posted>>("news");
/// news.join(runtime.spawn(Reader)?.recipient());
/// news.join(runtime.spawn(Archive)?.recipient());
/// assert_eq!(news.broadcast(Posted("hello")), 2);
/// # Ok(())
/// # }
/// ```
pub struct Group<A: GroupMember>(Arc<Core<A>>);

/// A change of a group's members: the message that the group's [monitors](Group::monitor) get.
pub struct GroupEvent<A> {
    /// The name of the group.
    pub group: Name,
    /// Whether the member has joined or left.
    pub change: GroupChange,
    /// The process that has joined or left.
    pub member: A,
}

/// The kind of a [`GroupEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupChange {
    /// A process has joined, perhaps not for the first time.
    Joined,
    /// A join was taken back, or the process has exited; an exit makes an event for each join of
    /// the process.
    Left,
}

impl<A: GroupMember> Message for GroupEvent<A> {
    type Reply = ();
}

/// A monitor of a group, to be removed with [`Group::demonitor`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupMonitor(u64);

impl RuntimeHandle {
    /// Returns the group with this name whose members are `A`, and makes it if there is none. Groups of
    /// different types share nothing, even if they share a name.
    ///
    /// Cost: a lock with little contention; keep the handle if it is used often.
    pub fn group<A: GroupMember>(&self, name: impl Into<Name>) -> Group<A> {
        Group(Groups::get(self.groups(), name.into()))
    }
}

impl<A: GroupMember> Group<A> {
    /// Returns the group's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Adds a process to the group; returns `false` if the process has exited. The process is a
    /// member until it exits, or has [left](Self::leave) as often as it has joined.
    ///
    /// Cost: the group's lock; the first time, an allocation and a signal to the process.
    pub fn join(&self, member: A) -> bool {
        let joined = Core::join(&self.0, member);
        self.0.tell();
        joined
    }

    /// Takes back a single join of a process; returns `false` if the process is not a member.
    pub fn leave(&self, member: A) -> bool {
        let left = self.0.leave(member);
        self.0.tell();
        left
    }

    /// Returns the members, in no particular order. A process that has joined twice is listed
    /// twice, as in OTP.
    ///
    /// A process that has just exited may still be listed.
    pub fn members(&self) -> Vec<A> {
        lock(&self.0.state).list()
    }

    /// Returns the number of processes that are members, each counted once.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Monitors the group: from this call until it exits, `watcher` gets a [`GroupEvent`] for each
    /// change. Also returns the members at the moment of the call. A full mailbox refuses and
    /// delays no event.
    ///
    /// ```
    /// # use throng::{GroupChange, GroupEvent, prelude::*};
    /// # struct Room;
    /// # impl Process for Room {}
    /// struct Doorman { present: i32 }
    /// impl Process for Doorman {}
    /// impl Handle<GroupEvent<Address<Room>>> for Doorman {
    ///     async fn handle(&mut self, event: GroupEvent<Address<Room>>, _: &mut Context<Self>) {
    ///         self.present += match event.change {
    ///             GroupChange::Joined => 1,
    ///             GroupChange::Left => -1,
    ///         };
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// let doorman = runtime.spawn(Doorman { present: 0 })?;
    /// let (monitor, present) = runtime.group::<Address<Room>>("kitchen").monitor(doorman);
    /// assert!(present.is_empty());
    /// # runtime.group::<Address<Room>>("kitchen").demonitor(monitor);
    /// # Ok(())
    /// # }
    /// ```
    pub fn monitor<Q: Handle<GroupEvent<A>>>(&self, watcher: Address<Q>) -> (GroupMonitor, Vec<A>) {
        // A watcher that has exited is about to lose its monitor.
        let group = self.name().clone();
        let tell = Box::new(move |(change, member)| {
            drop(watcher.push(GroupEvent { group: group.clone(), change, member }));
        });
        self.0.monitor(Monitor { pid: watcher.pid(), tell })
    }

    /// Removes a monitor; returns `false` if the monitor was removed before, or its watcher has
    /// exited. Events that are under way still arrive.
    pub fn demonitor(&self, monitor: GroupMonitor) -> bool {
        self.0.demonitor(monitor)
    }
}

impl<P: Process> Group<Address<P>> {
    /// Sends a message to each member once, however often the member has joined, in no particular order.
    /// Returns the number of members to which the message was sent; the messages to other members are
    /// [counted](crate::Metrics::dropped) as dropped.
    ///
    /// Each member gets the messages of one sender in the order in which they were sent.
    ///
    /// Cost: a copy of the list of members under the group's lock, then a send for each.
    pub fn broadcast<T: Turn<P> + Clone>(&self, message: T) -> usize {
        self.0.distinct().into_iter().filter(|member| member.send_or_lose(message.clone())).count()
    }
}

impl<M: Message + Clone> Group<Recipient<M>> {
    /// Sends a message to each member once, as a group of addresses does.
    pub fn broadcast(&self, message: M) -> usize {
        self.0.distinct().into_iter().filter(|to| to.send_or_lose(message.clone())).count()
    }
}

impl<A: GroupMember> Clone for Group<A> {
    fn clone(&self) -> Self {
        Group(self.0.clone())
    }
}

impl<A: GroupMember> fmt::Debug for Group<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({}, {} members)", self.0.name, self.len())
    }
}

impl<A: Copy> Clone for GroupEvent<A> {
    fn clone(&self) -> Self {
        GroupEvent { group: self.group.clone(), change: self.change, member: self.member }
    }
}

impl<A: fmt::Debug> fmt::Debug for GroupEvent<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.member, self.change, self.group)
    }
}

/// A reference by which a process can join a [`Group`]: an [`Address`] or a [`Recipient`].
pub trait GroupMember: sealed::Pid + Copy + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<P: Process> GroupMember for Address<P> {}

impl<M: Message> GroupMember for Recipient<M> {}

mod sealed {
    use super::{Address, Message, Process, Recipient};

    pub trait Pid {
        fn pid(self) -> crate::address::Pid;
    }

    impl<P: Process> Pid for Address<P> {
        fn pid(self) -> crate::address::Pid {
            Address::pid(self)
        }
    }

    impl<M: Message> Pid for Recipient<M> {
        fn pid(self) -> crate::address::Pid {
            Recipient::pid(self)
        }
    }
}

/// The groups of a runtime.
pub(crate) struct Groups {
    shards: [Mutex<Shard>; SHARDS],
}

/// The groups of a shard. Each value is the [`Core`] for the type of member in its key.
type Shard = HashMap<(Name, TypeId), Weak<dyn Any + Send + Sync>>;

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn get<T: GroupMember>(groups: &Arc<Groups>, name: Name) -> Arc<Core<T>> {
        let id = (name, TypeId::of::<T>());
        let mut shard = lock(&groups.shards[shard_of(&*id.0, SHARDS)]);
        let present = shard.get(&id).and_then(Weak::upgrade);
        if let Some(Ok(core)) = present.map(Arc::downcast) {
            return core;
        }
        let core = Arc::new(Core {
            name: id.0.clone(),
            groups: groups.clone(),
            state: Mutex::new(State::new()),
        });
        let any: Arc<dyn Any + Send + Sync> = core.clone();
        shard.insert(id, Arc::downgrade(&any));
        core
    }
}

struct Core<T: GroupMember> {
    name: Name,
    groups: Arc<Groups>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// Number of joins of each member, in an order that depends on joins and exits alone.
    members: IndexMap<T, usize, FxBuildHasher>,
    /// Replaced as a whole, so that an event can keep the list of monitors that it is for.
    monitors: Monitors<T>,
    last_monitor: u64,
    events: VecDeque<(Event<T>, Monitors<T>)>,
    telling: bool,
}

type Monitors<T> = Arc<Vec<(GroupMonitor, Arc<Monitor<T>>)>>;

/// A change, and the member that has joined or left.
type Event<T> = (GroupChange, T);

struct Monitor<T> {
    pid: Pid,
    tell: Box<dyn Fn(Event<T>) + Send + Sync>,
}

impl<T: GroupMember> Core<T> {
    fn join(self: &Arc<Self>, member: T) -> bool {
        let mut state = lock(&self.state);
        match state.members.get_mut(&member) {
            Some(joins) if member.pid().is_alive() => *joins += 1,
            Some(_) => return false,
            None => {
                let membership = Box::new(Joined { core: self.clone(), member });
                let signal = Signal::Join { key: self.key(), membership };
                if signal::try_send(member.pid(), signal).is_err() {
                    return false;
                }
                state.members.insert(member, 1);
            }
        }
        state.note(GroupChange::Joined, member);
        true
    }

    fn leave(&self, member: T) -> bool {
        let mut state = lock(&self.state);
        let Some(joins) = state.members.get_mut(&member) else { return false };
        *joins -= 1;
        if *joins == 0 {
            state.members.swap_remove(&member);
            // A member that has exited drops its membership anyway.
            let _ = signal::try_send(member.pid(), Signal::Leave { key: self.key() });
        }
        state.note(GroupChange::Left, member);
        true
    }

    fn monitor(self: &Arc<Self>, watcher: Monitor<T>) -> (GroupMonitor, Vec<T>) {
        let watcher = Arc::new(watcher);
        let mut state = lock(&self.state);
        state.last_monitor += 1;
        let monitor = GroupMonitor(state.last_monitor);
        let membership =
            Box::new(Monitoring { core: self.clone(), monitor, _key: watcher.clone() });
        let signal = Signal::Join { key: watcher.key(), membership };
        if signal::try_send(watcher.pid, signal).is_ok() {
            Arc::make_mut(&mut state.monitors).push((monitor, watcher));
        }
        (monitor, state.list())
    }

    fn demonitor(&self, monitor: GroupMonitor) -> bool {
        let mut state = lock(&self.state);
        let Some(at) = state.monitors.iter().position(|(own, _)| *own == monitor) else {
            return false;
        };
        let (_, watcher) = Arc::make_mut(&mut state.monitors).swap_remove(at);
        let _ = signal::try_send(watcher.pid, Signal::Leave { key: watcher.key() });
        true
    }

    /// Delivers the noted events to the monitors, without holding the lock (invariant 3).
    fn tell(&self) {
        let mut state = lock(&self.state);
        if state.telling {
            return;
        }
        while let Some((event, monitors)) = state.events.pop_front() {
            state.telling = true;
            drop(state);
            monitors.iter().for_each(|(_, watcher)| (watcher.tell)(event));
            state = lock(&self.state);
        }
        state.telling = false;
    }

    /// Number of members, each counted once.
    fn len(&self) -> usize {
        lock(&self.state).members.len()
    }

    /// Members, each listed once.
    fn distinct(&self) -> Vec<T> {
        lock(&self.state).members.keys().copied().collect()
    }

    /// Key of a member's membership in this group: the address of the core, which the membership
    /// keeps alive.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> Monitor<T> {
    /// Key of a watcher's membership: the address of its monitor; the membership keeps it alive.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T: GroupMember> State<T> {
    fn new() -> State<T> {
        State {
            members: IndexMap::default(),
            monitors: Arc::default(),
            last_monitor: 0,
            events: VecDeque::new(),
            telling: false,
        }
    }

    fn list(&self) -> Vec<T> {
        let members = self.members.iter();
        members.flat_map(|(&member, &joins)| std::iter::repeat_n(member, joins)).collect()
    }

    fn note(&mut self, change: GroupChange, member: T) {
        if !self.monitors.is_empty() {
            self.events.push_back(((change, member), self.monitors.clone()));
        }
    }
}

impl<T: GroupMember> Drop for Core<T> {
    fn drop(&mut self) {
        let id = (self.name.clone(), TypeId::of::<T>());
        let mut shard = lock(&self.groups.shards[shard_of(&*self.name, SHARDS)]);
        // Another group of this name may have been made since the last reference to this core went.
        if shard.get(&id).is_some_and(|core| core.strong_count() == 0) {
            shard.remove(&id);
        }
    }
}

/// A member's side of its membership.
struct Joined<T: GroupMember> {
    core: Arc<Core<T>>,
    member: T,
}

impl<T: GroupMember> Membership for Joined<T> {
    fn leave(self: Box<Self>, _: Pid) {
        let mut state = lock(&self.core.state);
        let joins = state.members.swap_remove(&self.member).unwrap_or(0);
        for _ in 0..joins {
            state.note(GroupChange::Left, self.member);
        }
        drop(state);
        self.core.tell();
    }
}

/// A watcher's side of its monitor.
struct Monitoring<T: GroupMember> {
    core: Arc<Core<T>>,
    monitor: GroupMonitor,
    /// Keeps the monitor's address, which is the key of this membership, from being used again.
    _key: Arc<Monitor<T>>,
}

impl<T: GroupMember> Membership for Monitoring<T> {
    fn leave(self: Box<Self>, _: Pid) {
        let mut state = lock(&self.core.state);
        if state.monitors.iter().any(|(own, _)| *own == self.monitor) {
            Arc::make_mut(&mut state.monitors).retain(|(own, _)| *own != self.monitor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    struct Idle;
    impl Process for Idle {}

    fn count(runtime: &Runtime) -> usize {
        runtime.groups().shards.iter().map(|shard| lock(shard).len()).sum()
    }

    #[test]
    fn a_group_is_gone_with_its_last_handle_and_member() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let [first, second] = [(); 2].map(|()| runtime.spawn(Idle).expect("spawns"));
        let kitchen = runtime.group::<Address<Idle>>("kitchen");
        assert!(kitchen.join(first) && kitchen.join(second));
        drop(kitchen);
        assert_eq!(count(&runtime), 1, "the members keep the group");
        runtime.block_on(async |runtime| {
            let kitchen = runtime.group::<Address<Idle>>("kitchen");
            assert!(kitchen.leave(first));
            drop(kitchen);
            second.kill();
            second.pid().exited().await;
        });
        // The process that left drops its membership in its own time.
        while count(&runtime) > 0 {
            std::hint::spin_loop();
        }
        assert!(first.is_alive());
    }
}
