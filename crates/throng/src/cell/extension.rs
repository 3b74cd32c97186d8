//! Data that only some processes have: links, monitors, a parent, names, timers, an attachment. It
//! is a box on the cell's extension pointer, made when the first of these is asked for; a process
//! without any pays nothing for them.
//!
//! ```text
//! cell ──▶ Extension: parent, links, watchers, attachment … ──▶ Rare: timers, names, backlog …
//!                     └──▶ Monitors
//! ```
//!
//! A supervised or a durable process has an extension, so its size counts. Fields that few of those
//! use are in boxes of their own.
//!
//! The extension belongs to the token's holder, like all of the cell's plain fields. Other threads
//! ask for changes in it by a signal (see `signal`).

use crate::address::Pid;
use crate::cell::MessageList;
use crate::exit::ExitReason;
use crate::mailbox::envelope::Load;
use crate::process::Down;
use crate::signal::links::Links;
use crate::signal::monitors::{Monitors, Watchers};
use crate::signal::small_map::SmallMap;
use crate::sync::atomic::AtomicBool;
use crate::timer::message_timer::{TimerRef, TimerTie, Timers};
use crate::turn::layer::AnyAround;
use std::any::Any;
use std::collections::VecDeque;
use std::ptr;
use std::time::Duration;

/// Data that a layer on top keeps with a process.
pub(crate) type Attachment = Box<dyn Any + Send>;

/// Optional data of a process; see the file's head.
#[derive(Default)]
pub(crate) struct Extension {
    pub(crate) attachment: Option<Attachment>,
    /// Layer that runs around each turn; the attachment then belongs to it.
    pub(crate) layer: Option<AnyAround>,
    pub(crate) parent: Option<Pid>,
    pub(crate) links: Links<Pid>,
    /// Processes that monitor this process.
    pub(crate) watchers: Watchers<Pid>,
    /// Monitors that this process has set.
    pub(crate) monitors: Option<Box<Monitors<Pid>>>,
    pub(crate) rare: Option<Box<Rare>>,
    /// Reason of the exit; set when the process is dead and its links and watchers are being
    /// notified.
    pub(crate) obituary: Option<ExitReason>,
    /// Number of turns begun since this extension was made.
    pub(crate) turns: u64,
    /// Whether a turn has piped a future. Atomic because a shared context may set it.
    pub(crate) has_piped: AtomicBool,
    pub(crate) traps_exits: bool,
    /// Whether the parent's exit is obeyed even while exits are trapped, as a `gen_server` does.
    pub(crate) obeys_parent: bool,
    /// Whether the end of the runtime has dropped work that the process had to do.
    pub(crate) abandoned: bool,
}

#[cfg(not(throng_loom))]
const _: () = assert!(size_of::<Extension>() <= 152, "every supervised process pays for it");

/// Data that few of the processes with an extension have.
#[derive(Default)]
pub(crate) struct Rare {
    /// Timers that send to this process, which end with it.
    pub(crate) timers: Timers,
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

    /// Load without `dropped` of the messages, which are to be dropped.
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
    /// Returns the rare data, which is created if there is none.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns the monitors that the process has set, in a list that is created if there is none.
    pub(crate) fn monitors(&mut self) -> &mut Monitors<Pid> {
        self.monitors.get_or_insert_default()
    }

    /// Takes a timer off the process's list; `None` if it is not on it.
    pub(crate) fn remove_timer(&mut self, timer: TimerRef) -> Option<TimerTie> {
        self.rare.as_mut()?.timers.remove(timer)
    }

    /// Bytes that the extension takes, without the attachment.
    pub(crate) fn bytes(&self) -> usize {
        let monitors =
            self.monitors.as_ref().map_or(0, |own| size_of::<Monitors<Pid>>() + own.bytes());
        let rare = self.rare.as_ref().map_or(0, |own| own.bytes());
        size_of::<Extension>() + self.links.bytes() + self.watchers.bytes() + monitors + rare
    }
}

impl Rare {
    fn bytes(&self) -> usize {
        size_of::<Rare>()
            + self.timers.bytes()
            + self.memberships.bytes()
            + self.callbacks.bytes()
            + self.backlog.capacity() * size_of::<MessageList>()
    }
}
