//! Data that only some processes have: links, monitors, a parent, names, timers, an attachment. It
//! is a box on the cell's extension pointer, made when the first of these is asked for; a process
//! without any pays nothing for them.
//!
//! ```text
//! cell ──▶ Extension: attachment, parent … ──▶ Ties: links, watchers ──▶ Rare: timers, names …
//!                                              └──▶ Monitors
//! ```
//!
//! A supervised or a durable process has an extension, so its size counts. Fields that few of those
//! use are in boxes of their own. The link from a child to its parent is a flag in the extension, so
//! that a child without other links needs no box for it.
//!
//! The extension belongs to the token's holder, like all of the cell's plain fields. Other threads
//! ask for changes in it by a signal (see `signal`).

use crate::address::Pid;
use crate::address::message_timer::{TimerRef, TimerTie, Timers};
use crate::cell::MessageList;
use crate::exit::ExitReason;
use crate::mailbox::envelope::Load;
use crate::signal::links::Links;
use crate::signal::monitors::{MonitorNumber, Monitors, Watcher, Watchers};
use crate::signal::small_map::SmallMap;
use crate::turn::layer::{AnyAround, Layered};
use crate::turn::process::Down;
use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

/// Optional data of a process; see the file's head.
#[derive(Default)]
pub(crate) struct Extension {
    life: Life,
    pub(crate) parent: Option<Pid>,
    pub(crate) ties: Option<Box<Ties>>,
    /// Number of turns begun since this extension was made.
    pub(crate) turns: u64,
    pub(crate) traps_exits: bool,
    /// Whether the parent's exit is obeyed even while exits are trapped, as a `gen_server` does.
    pub(crate) obeys_parent: bool,
    /// Whether the link to the parent is as old as the process. [`Ties::links`] has no entry for the
    /// parent then.
    linked_to_parent: bool,
    /// Whether the end of the runtime has dropped work that the process had to do.
    pub(crate) abandoned: bool,
}

#[cfg(not(throng_loom))]
const _: () = assert!(size_of::<Extension>() <= 56, "every supervised process pays for it");

/// Value that a layer on top keeps with a process, or the reason of the process's exit. They share
/// their bytes, because the value is dropped when the process exits.
#[derive(Default)]
pub(crate) enum Life {
    #[default]
    Plain,
    /// A layer runs around each turn.
    Layered(Box<dyn Layered>),
    /// The process is dead, and its links and watchers are being notified.
    Exited(ExitReason),
}

/// Ties to other processes, and rare data.
#[derive(Default)]
pub(crate) struct Ties {
    links: Links<Pid>,
    /// Processes that monitor this process.
    pub(crate) watchers: Watchers<Pid>,
    /// Monitors that this process has set.
    pub(crate) monitors: Option<Box<Monitors<Pid>>>,
    pub(crate) rare: Option<Box<Rare>>,
}

#[cfg(not(throng_loom))]
const _: () = assert!(size_of::<Ties>() <= 72, "every monitored process pays for it");

/// Data that few of the processes with an extension have.
#[derive(Default)]
pub(crate) struct Rare {
    /// Timers that send to this process, which end with it.
    pub(crate) timers: Timers,
    /// Processes that poll futures piped and streams attached by this process. Those that have ended are removed
    /// when the list is looked at or grows.
    pipes: Vec<Pid>,
    /// Memberships to leave when the process exits, by a key unique to each name or group.
    pub(crate) memberships: SmallMap<usize, Box<dyn Membership>>,
    /// Callbacks to run when the process exits, by their [keys](callback_key).
    pub(crate) callbacks: SmallMap<usize, ExitCallback>,
    /// Messages taken from the mailbox while others were pending: each list comes after the pending
    /// messages and is linked oldest first.
    pub(crate) backlog: VecDeque<MessageList>,
    /// Load of the messages that an async process has taken out of its mailbox and keeps for a
    /// later receive.
    pub(crate) kept: KeptLoad,
    /// Longest turn that was noticed; zero if none was.
    pub(crate) longest_turn: Duration,
    /// Text that tells the process apart from others of its kind.
    pub(crate) label: Option<Box<str>>,
}

/// Number of messages that an async process keeps, all of one size. Every process that has rare
/// data pays for the size of this type.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeptLoad {
    messages: u32,
    message_bytes: u32,
}

impl KeptLoad {
    pub(crate) fn new(messages: usize, message_bytes: u64) -> KeptLoad {
        let fit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        KeptLoad { messages: fit(messages as u64), message_bytes: fit(message_bytes) }
    }

    pub(crate) fn without(self, dropped: usize) -> Load {
        let messages = u64::from(self.messages).saturating_sub(dropped as u64);
        Load { messages, bytes: messages * u64::from(self.message_bytes) }
    }
}

/// Registration that refers to a process by its pid for as long as it lives: a name, a group.
pub(crate) trait Membership: Send {
    /// Returns the name that this membership gives the process, if it is a registered name.
    fn name(&self) -> Option<String> {
        None
    }

    /// Ends the membership of a process that has exited.
    fn leave(self: Box<Self>, pid: Pid);
}

/// Function that notifies a process of another's end, as a message of its own type.
pub(crate) type TellDown = fn(Pid, Down);

/// Callback to which a process's last worker passes the reason of the exit. Not a zero-sized type.
pub(crate) type ExitCallback = Box<dyn FnOnce(ExitReason) + Send>;

/// Address of a callback, unique among all callbacks that exist.
pub(crate) fn callback_key(callback: &ExitCallback) -> usize {
    ptr::from_ref(&**callback).addr()
}

impl Extension {
    pub(crate) fn layered(layer: Box<dyn Layered>) -> Extension {
        Extension { life: Life::Layered(layer), ..Extension::default() }
    }

    pub(crate) fn linked_to(parent: Pid) -> Extension {
        Extension {
            parent: Some(parent),
            obeys_parent: true,
            linked_to_parent: true,
            ..Extension::default()
        }
    }

    pub(crate) fn monitored_by(parent: Watcher<Pid>) -> Extension {
        let mut extension = Extension { parent: Some(parent.pid), ..Extension::default() };
        extension.ties().watchers.insert(parent);
        extension
    }

    /// Returns the attachment, if there is one.
    pub(crate) fn attachment(&mut self) -> Option<&mut dyn Any> {
        match &mut self.life {
            Life::Layered(layer) => Some(layer.attachment()),
            Life::Plain | Life::Exited(_) => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_layered(&self) -> bool {
        matches!(self.life, Life::Layered(_))
    }

    /// Returns the functions of the layer, if there is one.
    pub(crate) fn layer(&self) -> Option<AnyAround> {
        match &self.life {
            Life::Layered(layer) => Some(layer.around()),
            _ => None,
        }
    }

    /// Whether the process is dead, and its links and watchers are being notified.
    #[inline(always)]
    pub(crate) fn is_exiting(&self) -> bool {
        matches!(self.life, Life::Exited(_))
    }

    /// Returns the reason of the exit, if [`is_exiting`](Self::is_exiting).
    pub(crate) fn obituary(&self) -> Option<&ExitReason> {
        match &self.life {
            Life::Exited(reason) => Some(reason),
            _ => None,
        }
    }

    /// Sets the reason of the exit, unless it is set, and prepares the lists of the processes to
    /// notify. Returns the process's life until here, for the caller to drop the attachment.
    #[must_use = "the drop of an attachment may panic"]
    pub(crate) fn exit(&mut self, reason: &ExitReason) -> Life {
        if self.is_exiting() {
            return Life::Plain;
        }
        if let Some(ties) = &mut self.ties {
            // Links and watchers are popped from the end, so this notifies them in the order in
            // which they asked.
            ties.links.reverse();
            ties.watchers.reverse();
            if let Some(rare) = &mut ties.rare {
                rare.kept = KeptLoad::default();
                rare.callbacks.reverse();
            }
        }
        mem::replace(&mut self.life, Life::Exited(reason.clone()))
    }

    /// Returns the ties, which are created if there are none.
    pub(crate) fn ties(&mut self) -> &mut Ties {
        self.ties.get_or_insert_default()
    }

    /// Returns the rare data, which is created if there is none.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.ties().rare.get_or_insert_default()
    }

    /// Returns the rare data, if there is any.
    #[inline(always)]
    pub(crate) fn rare_if_any(&mut self) -> Option<&mut Rare> {
        self.ties.as_mut()?.rare.as_deref_mut()
    }

    pub(crate) fn label(&mut self) -> Option<String> {
        if let Some(label) = self.rare_if_any().and_then(|own| own.label.as_deref()) {
            return Some(label.to_owned());
        }
        match &self.life {
            // A panic must not unwind through an inspector, which has borrowed the token.
            Life::Layered(layer) => catch_unwind(AssertUnwindSafe(|| layer.label())).ok().flatten(),
            _ => None,
        }
    }

    pub(crate) fn names(&mut self) -> impl Iterator<Item = String> {
        let memberships = self.rare_if_any().into_iter().flat_map(|own| own.memberships.iter());
        memberships.filter_map(|(_, member)| member.name())
    }

    /// Returns the monitors that the process has set, in a list that is created if there is none.
    pub(crate) fn monitors(&mut self) -> &mut Monitors<Pid> {
        self.ties().monitors.get_or_insert_default()
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = Pid> {
        let parent = self.parent.filter(|_| self.linked_to_parent);
        parent.into_iter().chain(self.ties.iter().flat_map(|ties| ties.links.iter()))
    }

    /// Links the process to a peer, as [`Links::link`] does.
    pub(crate) fn link(&mut self, peer: Pid) -> bool {
        !self.is_linked_parent(peer) && self.ties().links.link(peer)
    }

    /// Unlinks the process from a peer, as [`Links::unlink`] does.
    pub(crate) fn unlink(&mut self, peer: Pid) -> Option<u32> {
        if self.remove_linked_parent(peer) {
            // The unlink is open until the parent acknowledges it, so it needs an entry.
            self.ties().links.on_link(peer);
        }
        self.ties.as_mut()?.links.unlink(peer)
    }

    /// Acts on a peer's link, as [`Links::on_link`] does.
    pub(crate) fn on_link(&mut self, peer: Pid) {
        if !self.is_linked_parent(peer) {
            self.ties().links.on_link(peer);
        }
    }

    /// Acts on a peer's unlink, as [`Links::on_unlink`] does.
    pub(crate) fn on_unlink(&mut self, peer: Pid) {
        if !self.remove_linked_parent(peer)
            && let Some(ties) = &mut self.ties
        {
            ties.links.on_unlink(peer);
        }
    }

    /// Acts on a peer's acknowledgement, as [`Links::on_acknowledge`] does.
    pub(crate) fn on_acknowledge(&mut self, peer: Pid, number: u32) {
        if let Some(ties) = &mut self.ties {
            ties.links.on_acknowledge(peer, number);
        }
    }

    /// Acts on a peer's exit, as [`Links::on_exit`] does.
    pub(crate) fn on_exit(&mut self, peer: Pid) -> bool {
        self.remove_linked_parent(peer)
            || self.ties.as_mut().is_some_and(|ties| ties.links.on_exit(peer))
    }

    /// Takes a linked peer out, to be notified of the process's own exit: the parent first, which
    /// was linked first.
    pub(crate) fn pop_link(&mut self) -> Option<Pid> {
        if mem::take(&mut self.linked_to_parent) {
            return self.parent;
        }
        self.ties.as_mut()?.links.pop()
    }

    fn is_linked_parent(&self, peer: Pid) -> bool {
        self.linked_to_parent && self.parent == Some(peer)
    }

    /// Removes the link that is as old as the process, if it is with this peer.
    fn remove_linked_parent(&mut self, peer: Pid) -> bool {
        let is_parent = self.is_linked_parent(peer);
        self.linked_to_parent &= !is_parent;
        is_parent
    }

    /// Removes a process that monitors this process, as [`Watchers::remove`] does.
    pub(crate) fn remove_watcher(&mut self, watcher: Pid, number: MonitorNumber) {
        if let Some(ties) = &mut self.ties {
            ties.watchers.remove(watcher, number);
        }
    }

    /// Takes a timer off the process's list; `None` if it is not on it.
    pub(crate) fn remove_timer(&mut self, timer: TimerRef) -> Option<TimerTie> {
        self.rare_if_any()?.timers.remove(timer)
    }

    /// Enters a process that polls a piped future or an attached stream.
    pub(crate) fn add_pipe(&mut self, pipe: Pid) {
        let pipes = &mut self.rare().pipes;
        if pipes.len() == pipes.capacity() {
            pipes.retain(|pipe| pipe.is_alive());
            pipes.reserve(pipes.len() + 1);
        }
        pipes.push(pipe);
    }

    /// Whether another process, a timer, a name or a piped future may still concern the process.
    pub(crate) fn is_tied(&mut self) -> bool {
        self.links().next().is_some() || self.ties.as_mut().is_some_and(|ties| ties.are_any())
    }

    /// Bytes that the extension takes, without the attachment.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Extension>() + self.ties.as_ref().map_or(0, |ties| ties.bytes())
    }
}

impl Ties {
    /// Whether there is a monitor from or to the process, a timer, a pipe, a name or a group.
    fn are_any(&mut self) -> bool {
        let has_rare = |own: &mut Rare| {
            own.pipes.retain(|pipe| pipe.is_alive());
            !own.timers.is_empty() || !own.pipes.is_empty() || own.memberships.len() > 0
        };
        self.monitors.as_ref().is_some_and(|own| own.len() > 0)
            || !self.watchers.is_empty()
            || self.rare.as_deref_mut().is_some_and(has_rare)
    }

    fn bytes(&self) -> usize {
        let monitors =
            self.monitors.as_ref().map_or(0, |own| size_of::<Monitors<Pid>>() + own.bytes());
        let rare = self.rare.as_ref().map_or(0, |own| own.bytes());
        size_of::<Ties>() + self.links.bytes() + self.watchers.bytes() + monitors + rare
    }
}

impl Rare {
    fn bytes(&self) -> usize {
        size_of::<Rare>()
            + self.timers.bytes()
            + self.pipes.capacity() * size_of::<Pid>()
            + self.memberships.bytes()
            + self.callbacks.bytes()
            + self.backlog.capacity() * size_of::<MessageList>()
            + self.label.as_deref().map_or(0, str::len)
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;
    use crate::prelude::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::sync::LazyLock;

    struct Peer;
    impl Process for Peer {}

    /// Pids of a parent and of other peers.
    static PEERS: LazyLock<Vec<Pid>> = LazyLock::new(|| {
        let runtime = Runtime::builder().workers(1).start().expect("a runtime starts");
        (0..4).map(|_| runtime.spawn(Peer).expect("there is room").pid()).collect()
    });

    #[test]
    fn a_child_that_is_linked_to_its_parent_only_has_no_second_box() {
        let mut child = Extension::linked_to(PEERS[0]);
        assert!(!child.link(PEERS[0]), "they are linked already");
        child.on_link(PEERS[0]);
        assert_eq!(child.bytes(), size_of::<Extension>());
        assert_eq!(child.links().collect::<Vec<_>>(), [PEERS[0]]);
        assert!(child.on_exit(PEERS[0]) && !child.on_exit(PEERS[0]));
        assert_eq!(child.bytes(), size_of::<Extension>());
    }

    #[test]
    fn the_parent_hears_of_an_exit_before_the_peers_that_were_linked_later() {
        let mut child = Extension::linked_to(PEERS[0]);
        for peer in [PEERS[2], PEERS[1], PEERS[3]] {
            assert!(child.link(peer));
        }
        assert!(matches!(child.exit(&ExitReason::Killed), Life::Plain));
        let popped: Vec<_> = std::iter::from_fn(|| child.pop_link()).collect();
        assert_eq!(popped, [PEERS[0], PEERS[2], PEERS[1], PEERS[3]]);
    }

    #[test]
    fn the_reason_of_an_exit_takes_the_place_of_the_attachment_once() {
        struct Own(u32);
        impl Layered for Own {
            fn around(&self) -> AnyAround {
                &()
            }
            fn attachment(&mut self) -> &mut dyn Any {
                &mut self.0
            }
            fn label(&self) -> Option<String> {
                None
            }
        }
        let mut own = Extension::layered(Box::new(Own(7)));
        assert_eq!(own.attachment().and_then(|own| own.downcast_ref()), Some(&7_u32));
        assert!(matches!(own.exit(&ExitReason::Killed), Life::Layered(_)));
        assert!(matches!(own.exit(&ExitReason::Normal), Life::Plain));
        assert_eq!(own.obituary(), Some(&ExitReason::Killed));
        assert!(own.attachment().is_none());
    }

    proptest! {
        /// The links of a child, whose parent is the first peer, against a list without a flag.
        #[test]
        fn links_match_those_of_a_process_without_a_parent(
            steps in prop::collection::vec((0_u8..6, 0_usize..4, 0_u32..4), 0..40),
        ) {
            let mut child = Extension::linked_to(PEERS[0]);
            let mut model = Links::default();
            model.on_link(PEERS[0]);
            for (step, peer, number) in steps {
                let peer = PEERS[peer];
                match step {
                    0 => prop_assert_eq!(child.link(peer), model.link(peer)),
                    1 => prop_assert_eq!(child.unlink(peer), model.unlink(peer)),
                    2 => {
                        child.on_link(peer);
                        model.on_link(peer);
                    }
                    3 => {
                        child.on_unlink(peer);
                        model.on_unlink(peer);
                    }
                    4 => {
                        child.on_acknowledge(peer, number);
                        model.on_acknowledge(peer, number);
                    }
                    _ => prop_assert_eq!(child.on_exit(peer), model.on_exit(peer)),
                }
                let links: HashSet<_> = child.links().collect();
                prop_assert_eq!(&links, &model.iter().collect());
                prop_assert_eq!(child.is_tied(), !links.is_empty());
            }
            let popped: HashSet<_> = std::iter::from_fn(|| child.pop_link()).collect();
            prop_assert_eq!(popped, std::iter::from_fn(|| model.pop()).collect());
        }
    }
}
