//! [`Name`]: the identity of an entity.
//!
//! A name is one allocation behind a pointer of one word: the key of the entity's state, and marks of the
//! entity's use. The clones of a handle share a name, whose marks are not used. An activation has a name of its
//! own, which is also its directory entry and has its address: it tells the activation apart from later ones of
//! the entity.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use throng::layer::AtomicAddress;
use throng::{Address, Process};
use triomphe::ThinArc;

use crate::KeyError;
use crate::layout::{STATE_KEY_BYTES_MAX, own_key, state_key};

/// The identity of an entity; see the file's head.
pub(crate) struct Name<P>(ThinArc<Live<P>, u8>);

/// The data of a live entity that others than its process need.
struct Live<P> {
    address: AtomicAddress<P>,
    marks: Marks,
}

/// Marks of the use of a live entity.
///
/// Relaxed: a mark that is seen late makes an entity leave a little earlier or later.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Tick of the last use.
    used: AtomicU32,
    flags: AtomicU32,
    /// Share in the limit of the inbox: of messages whose copies are in the mailbox, and of others, or [`UNKNOWN`].
    copies: AtomicU32,
    backlog: AtomicU32,
}

/// Share of stored messages of an activation that has not searched for them yet.
const UNKNOWN: u32 = u32::MAX;

/// Flag of an entity that was used since the clock hand has passed.
const RECENT: u32 = 1;
/// Flag of an entity that counts against the limit of live entities.
const RESIDENT: u32 = 2;
/// Flag of an entity that was asked to leave and not used since.
const LEAVING: u32 = 4;
/// Flag of an entity that stays in memory.
const PINNED: u32 = 8;
/// Flag of an entity that was asked to leave and has stayed for its ties.
const TIED: u32 = 16;
/// Flag of an activation whose process is spawned and in the directory.
const SPAWNED: u32 = 32;
/// Flag of an activation whose process has ended before its first turn.
const ENDED: u32 = 64;

impl<P: Process> Name<P> {
    pub(crate) fn new(kind: u16, key: &str) -> Result<Name<P>, KeyError> {
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = state_key(kind, key, &mut buffer)?;
        Ok(Name::of_state_key(state_key))
    }

    /// Returns the name of an entity by the key of its state.
    pub(crate) fn of_state_key(state_key: &[u8]) -> Name<P> {
        Name(ThinArc::from_header_and_slice(Live::default(), state_key))
    }

    /// Returns another name of the same entity, with marks of its own.
    pub(crate) fn fresh(&self) -> Name<P> {
        Name::of_state_key(self.state_key())
    }

    /// Sets the address of the activation.
    pub(crate) fn lives_at(&self, address: Address<P>) {
        self.0.header.header.address.store(address);
    }

    /// Returns the address of the activation; `None` before its spawn.
    pub(crate) fn address(&self) -> Option<Address<P>> {
        self.0.header.header.address.load()
    }

    /// Whether this is a clone of the other name.
    pub(crate) fn is_clone_of(&self, other: &Name<P>) -> bool {
        ptr::eq(self.marks(), other.marks())
    }

    /// Whether this is a name of the same entity.
    pub(crate) fn is_of(&self, other: &Name<P>) -> bool {
        self.state_key() == other.state_key()
    }

    /// Returns the key of the state.
    pub(crate) fn state_key(&self) -> &[u8] {
        &self.0.slice
    }

    /// Returns the entity's key.
    pub(crate) fn key(&self) -> &str {
        match std::str::from_utf8(own_key(self.state_key())) {
            Ok(key) => key,
            Err(_) => unreachable!("the key of a state that a name has is a string"),
        }
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.0.header.header.marks
    }
}

/// Takes a share from a sum, of which it may be no part any more.
fn subtract(sum: &AtomicU32, weight: u32) {
    let left = |sum: u32| Some(sum.saturating_sub(weight));
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
}

impl<P> Clone for Name<P> {
    fn clone(&self) -> Name<P> {
        Name(self.0.clone())
    }
}

impl<P> fmt::Debug for Name<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&own_key(&self.0.slice).escape_ascii()).finish()
    }
}

impl<P> Default for Live<P> {
    fn default() -> Live<P> {
        let marks = Marks {
            used: AtomicU32::default(),
            flags: AtomicU32::default(),
            copies: AtomicU32::default(),
            backlog: AtomicU32::new(UNKNOWN),
        };
        Live { address: AtomicAddress::default(), marks }
    }
}

impl Marks {
    /// Begins the marks of an activation. An entity that is used just once is not recent, so that many
    /// such entities do not drive out entities in use.
    pub(crate) fn begin(&self, tick: u32) {
        self.used.store(tick, Ordering::Relaxed);
    }

    /// Notes that the process is spawned. Returns whether it has ended already; else its end sees that it was spawned.
    pub(crate) fn spawned(&self) -> bool {
        self.flags.fetch_or(SPAWNED, Ordering::AcqRel) & ENDED != 0
    }

    /// Notes that the activation ends before its first turn. Returns whether its process was spawned; else the spawn sees
    /// the end, if there is one.
    pub(crate) fn ended_unused(&self) -> bool {
        self.flags.fetch_or(ENDED, Ordering::AcqRel) & SPAWNED != 0
    }

    /// Notes a use. Returns whether the entity was leaving.
    pub(crate) fn touch(&self, tick: u32) -> bool {
        if self.used.load(Ordering::Relaxed) != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & (RECENT | LEAVING) == RECENT {
            return false;
        }
        self.flags.fetch_or(RECENT, Ordering::Relaxed);
        self.stay()
    }

    /// Notes that the entity stays. Returns whether it was leaving; of several calls, one gets this answer.
    pub(crate) fn stay(&self) -> bool {
        self.flags.fetch_and(!LEAVING, Ordering::Relaxed) & LEAVING != 0
    }

    /// Whether the entity should leave: it was last used more than `ticks` before this tick, or was asked to
    /// leave before.
    pub(crate) fn is_idle(&self, tick: u32, ticks: u32) -> bool {
        let flags = self.flags.load(Ordering::Relaxed);
        let idle = tick.wrapping_sub(self.used.load(Ordering::Relaxed));
        flags & PINNED == 0 && (idle > ticks || flags & LEAVING != 0)
    }

    /// Lets the clock hand pass. Returns whether the entity should make room, in spite of ties that it is known to
    /// have if `even_if_tied`.
    pub(crate) fn pass(&self, even_if_tied: bool) -> bool {
        let flags = self.flags.fetch_and(!RECENT, Ordering::Relaxed);
        let ignored = if even_if_tied { TIED } else { 0 };
        flags & (RECENT | RESIDENT | LEAVING | PINNED | TIED) & !ignored == RESIDENT
    }

    /// Notes that the entity, which was asked to leave at this tick, has ties. It is asked again when it has been idle
    /// for as long as from a message on.
    pub(crate) fn tie(&self, tick: u32) {
        self.used.store(tick, Ordering::Relaxed);
        self.flags.fetch_or(TIED, Ordering::Relaxed);
    }

    /// Whether the entity has stayed for its ties and may have them still.
    pub(crate) fn is_tied(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TIED != 0
    }

    /// Notes that the entity has no ties any more.
    pub(crate) fn untie(&self) {
        self.flags.fetch_and(!TIED, Ordering::Relaxed);
    }

    /// Notes that the entity is asked to leave. Returns whether it was asked before.
    pub(crate) fn leave(&self) -> bool {
        self.flags.fetch_or(LEAVING, Ordering::Relaxed) & LEAVING != 0
    }

    /// Notes that the entity counts against the limit.
    pub(crate) fn reside(&self) {
        self.flags.fetch_or(RESIDENT, Ordering::Relaxed);
    }

    /// Makes the entity stay in memory, or not.
    pub(crate) fn pin(&self, is_pinned: bool) {
        match is_pinned {
            true => self.flags.fetch_or(PINNED, Ordering::Relaxed),
            false => self.flags.fetch_and(!PINNED, Ordering::Relaxed),
        };
    }

    /// Notes that the copy of a stored message is sent to the entity.
    pub(crate) fn copy_sent(&self, weight: u32) {
        self.copies.fetch_add(weight, Ordering::Relaxed);
    }

    /// Notes that the copy of a stored message has reached the entity.
    pub(crate) fn copy_arrived(&self, weight: u32) {
        subtract(&self.copies, weight);
    }

    /// Notes the share of stored messages that are to be fed.
    pub(crate) fn set_backlog(&self, weight: u64) {
        let weight = u32::try_from(weight).unwrap_or(u32::MAX).min(UNKNOWN - 1);
        self.backlog.store(weight, Ordering::Relaxed);
    }

    /// Notes the share of all stored messages, before the activation has searched for them: the search sets the share anew.
    /// Copies whose messages are not on disk yet make it too low by as much.
    pub(crate) fn estimate_backlog(&self, stored: u64) {
        let copies = self.copies.load(Ordering::Relaxed);
        let others = u32::try_from(stored).unwrap_or(u32::MAX).saturating_sub(copies);
        let (known, relaxed) = (others.min(UNKNOWN - 1), Ordering::Relaxed);
        // If the search was faster, its share stays.
        let _ = self.backlog.compare_exchange(UNKNOWN, known, relaxed, relaxed);
    }

    pub(crate) fn add_backlog(&self, weight: u32) {
        self.backlog.fetch_add(weight, Ordering::Relaxed);
    }

    /// Notes that a stored message is handled.
    pub(crate) fn backlog_handled(&self, weight: u32) {
        subtract(&self.backlog, weight);
    }

    /// Returns the share of all messages that wait; `None` before the activation has searched for them.
    pub(crate) fn waiting(&self) -> Option<u64> {
        let [copies, backlog] =
            [&self.copies, &self.backlog].map(|part| part.load(Ordering::Relaxed));
        (backlog != UNKNOWN).then(|| u64::from(copies) + u64::from(backlog))
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & PINNED != 0
    }
}
