//! Groups: processes of the same type under a common name, which leave when they exit. Like OTP's
//! `pg`, with the runtime as the only scope.
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

use crate::address::{Address, Pid};
use crate::cell::extension::Membership;
use crate::process::{Handle, Message, Process, Turn};
use crate::runtime::RuntimeHandle;
use crate::signal::registry::{Name, shard_of};
use crate::signal::{self, Signal};
use crate::sync::{Mutex, lock};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::any::{Any, TypeId};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

const SHARDS: usize = 16;

/// A group of processes, each of which may join any number of times. Cloning this handle costs a
/// reference count.
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
/// let kitchen = runtime.group::<Room>("kitchen");
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
pub struct Group<P: Process>(Arc<Core<P>>);

/// A change of a group's members: the message that the group's [monitors](Group::monitor) get.
pub struct GroupEvent<P> {
    /// The name of the group.
    pub group: Name,
    /// Whether the member has joined or left.
    pub change: GroupChange,
    /// The process that has joined or left.
    pub member: Address<P>,
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

impl<P: Process> Message for GroupEvent<P> {
    type Reply = ();
}

/// A monitor of a group, to be removed with [`Group::demonitor`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupMonitor(u64);

impl RuntimeHandle {
    /// Returns the group of processes of type `P` with this name, and makes it if there is none.
    /// Groups of different types share nothing, even if they share a name.
    ///
    /// Cost: a lock with little contention; keep the handle if it is used often.
    pub fn group<P: Process>(&self, name: impl Into<Name>) -> Group<P> {
        Group(Groups::get(self.groups(), name.into()))
    }
}

impl<P: Process> Group<P> {
    /// Returns the group's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Adds a process to the group; returns `false` if the process has exited. The process is a
    /// member until it exits, or has [left](Self::leave) as often as it has joined.
    ///
    /// Cost: the group's lock; the first time, an allocation and a signal to the process.
    pub fn join(&self, member: Address<P>) -> bool {
        let joined = Core::join(&self.0, member);
        self.0.tell();
        joined
    }

    /// Takes back a single join of a process; returns `false` if the process is not a member.
    pub fn leave(&self, member: Address<P>) -> bool {
        let left = self.0.leave(member);
        self.0.tell();
        left
    }

    /// Returns the members, in no particular order. A process that has joined twice is listed
    /// twice, as in OTP.
    ///
    /// A process that has just exited may still be listed.
    pub fn members(&self) -> Vec<Address<P>> {
        lock(&self.0.state).list()
    }

    /// Returns the number of processes that are members, each counted once.
    pub fn len(&self) -> usize {
        lock(&self.0.state).members.len()
    }

    /// Whether the group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends a message to each member once, however often the member has joined. Returns the number
    /// of members to which the message was sent.
    ///
    /// Cost: a copy of the list of addresses under the group's lock, then a send for each.
    pub fn broadcast<T: Turn<P> + Clone>(&self, message: T) -> usize {
        let members: Vec<_> = lock(&self.0.state).members.keys().copied().collect();
        members.into_iter().filter(|member| member.send(message.clone()).is_ok()).count()
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
    /// impl Handle<GroupEvent<Room>> for Doorman {
    ///     async fn handle(&mut self, event: GroupEvent<Room>, _: &mut Context<Self>) {
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
    /// let (monitor, present) = runtime.group::<Room>("kitchen").monitor(doorman);
    /// assert!(present.is_empty());
    /// # runtime.group::<Room>("kitchen").demonitor(monitor);
    /// # Ok(())
    /// # }
    /// ```
    pub fn monitor<Q: Handle<GroupEvent<P>>>(
        &self,
        watcher: Address<Q>,
    ) -> (GroupMonitor, Vec<Address<P>>) {
        // A watcher that has exited is about to lose its monitor.
        let tell = Box::new(move |event| drop(watcher.push(event)));
        self.0.monitor(Recipient { pid: watcher.pid(), tell })
    }

    /// Removes a monitor; returns `false` if the monitor was removed before, or its watcher has
    /// exited. Events that are under way still arrive.
    pub fn demonitor(&self, monitor: GroupMonitor) -> bool {
        self.0.demonitor(monitor)
    }
}

impl<P: Process> Clone for Group<P> {
    fn clone(&self) -> Self {
        Group(self.0.clone())
    }
}

impl<P: Process> fmt::Debug for Group<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({}, {} members)", self.0.name, self.len())
    }
}

impl<P> Clone for GroupEvent<P> {
    fn clone(&self) -> Self {
        GroupEvent { group: self.group.clone(), change: self.change, member: self.member }
    }
}

impl<P> fmt::Debug for GroupEvent<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.member, self.change, self.group)
    }
}

/// The groups of a runtime.
pub(crate) struct Groups {
    shards: [Mutex<Shard>; SHARDS],
}

/// The groups of a shard. Each value is the [`Core`] for the type of process in its key.
type Shard = HashMap<(Name, TypeId), Weak<dyn Any + Send + Sync>>;

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn get<P: Process>(groups: &Arc<Groups>, name: Name) -> Arc<Core<P>> {
        let id = (name, TypeId::of::<P>());
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

struct Core<P: Process> {
    name: Name,
    groups: Arc<Groups>,
    state: Mutex<State<P>>,
}

struct State<P> {
    /// Number of joins of each member, in an order that depends on joins and exits alone.
    members: IndexMap<Address<P>, usize, FxBuildHasher>,
    /// Replaced as a whole, so that an event can keep the list of monitors that it is for.
    monitors: Monitors<P>,
    last_monitor: u64,
    events: VecDeque<(GroupEvent<P>, Monitors<P>)>,
    /// Whether a thread is delivering events.
    telling: bool,
}

type Monitors<P> = Arc<Vec<(GroupMonitor, Arc<Recipient<P>>)>>;

struct Recipient<P> {
    pid: Pid,
    tell: Box<dyn Fn(GroupEvent<P>) + Send + Sync>,
}

impl<P: Process> Core<P> {
    fn join(self: &Arc<Self>, member: Address<P>) -> bool {
        let mut state = lock(&self.state);
        match state.members.get_mut(&member) {
            Some(joins) if member.is_alive() => *joins += 1,
            Some(_) => return false,
            None => {
                let membership = Box::new(Member { core: self.clone(), address: member });
                let signal = Signal::Join { key: self.key(), membership };
                if signal::try_send(member.pid(), signal).is_err() {
                    return false;
                }
                state.members.insert(member, 1);
            }
        }
        state.note(&self.name, GroupChange::Joined, member);
        true
    }

    fn leave(&self, member: Address<P>) -> bool {
        let mut state = lock(&self.state);
        let Some(joins) = state.members.get_mut(&member) else { return false };
        *joins -= 1;
        if *joins == 0 {
            state.members.swap_remove(&member);
            // A member that has exited drops its membership anyway.
            let _ = signal::try_send(member.pid(), Signal::Leave { key: self.key() });
        }
        state.note(&self.name, GroupChange::Left, member);
        true
    }

    fn monitor(self: &Arc<Self>, recipient: Recipient<P>) -> (GroupMonitor, Vec<Address<P>>) {
        let recipient = Arc::new(recipient);
        let mut state = lock(&self.state);
        state.last_monitor += 1;
        let monitor = GroupMonitor(state.last_monitor);
        let membership =
            Box::new(Monitoring { core: self.clone(), monitor, _key: recipient.clone() });
        let signal = Signal::Join { key: recipient.key(), membership };
        if signal::try_send(recipient.pid, signal).is_ok() {
            Arc::make_mut(&mut state.monitors).push((monitor, recipient));
        }
        (monitor, state.list())
    }

    fn demonitor(&self, monitor: GroupMonitor) -> bool {
        let mut state = lock(&self.state);
        let Some(at) = state.monitors.iter().position(|(own, _)| *own == monitor) else {
            return false;
        };
        let (_, recipient) = Arc::make_mut(&mut state.monitors).swap_remove(at);
        let _ = signal::try_send(recipient.pid, Signal::Leave { key: recipient.key() });
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
            monitors.iter().for_each(|(_, recipient)| (recipient.tell)(event.clone()));
            state = lock(&self.state);
        }
        state.telling = false;
    }

    /// Key of a member's membership in this group: the address of the core, which the membership
    /// keeps alive.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<P> Recipient<P> {
    /// Key of a watcher's membership: the recipient's address; the membership keeps it alive.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<P: Process> State<P> {
    fn new() -> State<P> {
        State {
            members: IndexMap::default(),
            monitors: Arc::default(),
            last_monitor: 0,
            events: VecDeque::new(),
            telling: false,
        }
    }

    fn list(&self) -> Vec<Address<P>> {
        let members = self.members.iter();
        members.flat_map(|(&member, &joins)| std::iter::repeat_n(member, joins)).collect()
    }

    fn note(&mut self, group: &Name, change: GroupChange, member: Address<P>) {
        if !self.monitors.is_empty() {
            let event = GroupEvent { group: group.clone(), change, member };
            self.events.push_back((event, self.monitors.clone()));
        }
    }
}

impl<P: Process> Drop for Core<P> {
    fn drop(&mut self) {
        let id = (self.name.clone(), TypeId::of::<P>());
        let mut shard = lock(&self.groups.shards[shard_of(&*self.name, SHARDS)]);
        // Another group of this name may have been made since the last reference to this core went.
        if shard.get(&id).is_some_and(|core| core.strong_count() == 0) {
            shard.remove(&id);
        }
    }
}

/// A member's side of its membership.
struct Member<P: Process> {
    core: Arc<Core<P>>,
    address: Address<P>,
}

impl<P: Process> Membership for Member<P> {
    fn leave(self: Box<Self>, _: Pid) {
        let mut state = lock(&self.core.state);
        let joins = state.members.swap_remove(&self.address).unwrap_or(0);
        for _ in 0..joins {
            state.note(&self.core.name, GroupChange::Left, self.address);
        }
        drop(state);
        self.core.tell();
    }
}

/// A watcher's side of its monitor.
struct Monitoring<P: Process> {
    core: Arc<Core<P>>,
    monitor: GroupMonitor,
    /// Keeps the recipient's address, which is the key of this membership, from being used again.
    _key: Arc<Recipient<P>>,
}

impl<P: Process> Membership for Monitoring<P> {
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
        let kitchen = runtime.group::<Idle>("kitchen");
        assert!(kitchen.join(first) && kitchen.join(second));
        drop(kitchen);
        assert_eq!(count(&runtime), 1, "the members keep the group");
        runtime.block_on(async |runtime| {
            let kitchen = runtime.group::<Idle>("kitchen");
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
