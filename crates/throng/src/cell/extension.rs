//! Data that only some processes have: links, monitors, a parent, names, timers, an attachment. It
//! is a box on the cell's extension pointer, made when the first of these is asked for; a process
//! without any pays nothing for them.
//!
//! The extension belongs to the token's holder, like all of the cell's plain fields. Other threads
//! ask for changes in it by a signal (see `signal`).

use crate::address::Pid;
use crate::cell::MessageList;
use crate::exit::ExitReason;
use crate::mailbox::envelope::Load;
use crate::process::Down;
use crate::signal::links::Links;
use crate::signal::small_map::SmallMap;
use crate::sync::atomic::AtomicBool;
use crate::timer::message_timer::Timers;
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
    /// Whether a turn has piped a future. Atomic because a shared context may set it.
    pub(crate) has_piped: AtomicBool,
    pub(crate) parent: Option<Pid>,
    pub(crate) links: Links<Pid>,
    /// Processes monitored by this process, by the number of the monitor.
    pub(crate) monitors: SmallMap<u32, Pid>,
    pub(crate) last_monitor: u32,
    pub(crate) watchers: Watchers,
    pub(crate) traps_exits: bool,
    /// Whether the parent's exit is obeyed even while exits are trapped, as a `gen_server` does.
    pub(crate) obeys_parent: bool,
    /// Memberships to leave when the process exits, by a key unique to each name or group.
    pub(crate) memberships: SmallMap<usize, Box<dyn Membership>>,
    /// Messages taken from the mailbox while others were pending: each list comes after the pending
    /// messages and is linked oldest first.
    pub(crate) backlog: VecDeque<MessageList>,
    /// Timers that send to this process, which end with it.
    pub(crate) timers: Timers,
    /// Load of the messages that an async process has taken out of its mailbox and keeps for a
    /// later receive.
    pub(crate) kept: KeptLoad,
    /// Number of turns begun since this extension was made.
    pub(crate) turns: u64,
    /// Longest turn that was noticed; zero if none was.
    pub(crate) longest_turn: Duration,
    /// Whether the end of the runtime has dropped work that the process had to do.
    pub(crate) abandoned: bool,
    /// Reason of the exit; set when the process is dead and its links and watchers are being
    /// notified.
    pub(crate) obituary: Option<ExitReason>,
}

/// Number of messages that an async process keeps, all of one size. Every process that has an
/// extension pays for the size of this type.
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

/// Watchers to notify when a process ends.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Processes, by the number that each gave its monitor.
    pub(crate) processes: SmallMap<(Pid, u32), TellDown>,
    /// Watchers that are not processes, by their [keys](watcher_key).
    pub(crate) others: SmallMap<usize, Watcher>,
}

/// Callback to which the process's last worker passes the reason of the exit. Not a zero-sized
/// type.
pub(crate) type Watcher = Box<dyn FnOnce(ExitReason) + Send>;

/// Address of a watcher, unique among all watchers that exist.
pub(crate) fn watcher_key(watcher: &Watcher) -> usize {
    ptr::from_ref(&**watcher).addr()
}

impl Extension {
    /// Bytes that the extension takes, without the attachment.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Extension>()
            + self.links.bytes()
            + self.monitors.bytes()
            + self.watchers.processes.bytes()
            + self.watchers.others.bytes()
            + self.memberships.bytes()
            + self.backlog.capacity() * size_of::<MessageList>()
            + self.timers.bytes()
    }

    /// Enters a new monitor on `pid`, and returns its number.
    pub(crate) fn monitor(&mut self, pid: Pid) -> u32 {
        let number = self.number_monitor();
        self.monitors.insert(number, pid);
        number
    }

    /// Returns the number under which to enter a new monitor.
    pub(crate) fn number_monitor(&mut self) -> u32 {
        loop {
            self.last_monitor = self.last_monitor.wrapping_add(1);
            if self.monitors.get(&self.last_monitor).is_none() {
                return self.last_monitor;
            }
        }
    }
}
