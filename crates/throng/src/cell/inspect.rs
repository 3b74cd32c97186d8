//! Inspection of a cell: borrowing its token, and the data that can be read under a token.
//!
//! A process that is idle or whose turn is suspended has no holder of its token. An inspecting
//! thread takes the token by the same exchanges as a pusher or a waker, but does not schedule the
//! process. A push or wake that comes meanwhile finds a holder and makes giving the token back
//! fail; then the inspecting thread schedules the process. So no wake is lost, and the process does
//! not notice.
//!
//! Access follows the table in `cell`: the token's holder reads all of this.

use super::{CellRef, Token};
use crate::cell::extension::Rare;
use crate::mailbox::Generation;
use crate::mailbox::envelope::Load;
use crate::scheduler;
use crate::turn::frame;
use std::time::Duration;

/// Token of a process that does nothing at present, for as long as a thread inspects it.
#[must_use]
pub(crate) struct Borrowed {
    token: Token,
    generation: Generation,
    suspended: bool,
}

impl Borrowed {
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// Gives the token back, or schedules the process if a message or a wake has come meanwhile.
    pub(crate) fn give_back(self) {
        let Borrowed { token, generation, suspended } = self;
        let given = if suspended { token.suspend() } else { token.park(generation) };
        if let Err(token) = given {
            scheduler::schedule(token);
        }
    }
}

impl CellRef {
    /// Takes the token of a process that does nothing at present, without scheduling it.
    pub(crate) fn borrow(self, generation: Generation) -> Option<Borrowed> {
        let cell = self.cell();
        if cell.mailbox.wake(generation) {
            return Some(Borrowed { token: Token(self.0), generation, suspended: false });
        }
        if !cell.turn.borrow() {
            return None;
        }
        // The turn's word does not say which process the turn belongs to; it may be the slot's next
        // process by now.
        let token = Token(self.0);
        let borrowed = Borrowed { generation: token.generation(), token, suspended: true };
        if borrowed.generation == generation && !borrowed.token.is_closed() {
            return Some(borrowed);
        }
        borrowed.give_back();
        None
    }
}

impl Token {
    /// Load of the queued messages, whether they were taken from the mailbox already or not,
    /// including the messages that an async process keeps for a later receive.
    ///
    /// Cost: one read of each message.
    pub(crate) fn load(&self) -> Load {
        let cell = self.cell();
        let mut load = Load::default();
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`), and no
        // other thread takes messages out of the mailbox.
        unsafe {
            load.add(cell.pending.with(|pending| *pending));
            load.add(cell.mailbox.newest());
        }
        let doomed =
            if self.generation().is_bounded() { self.bounded_queue().add_to(&mut load) } else { 0 };
        self.if_extension(|own| {
            let Some(own) = own.rare_if_any() else { return };
            let kept = own.kept.without(doomed);
            load.messages += kept.messages;
            load.bytes += kept.bytes;
            for list in &own.backlog {
                // SAFETY: the lists of the backlog belong to the token's holder, like the
                // extension.
                unsafe { load.add(list.0) };
            }
        });
        load
    }

    /// Returns the name of the message of the turn under way, if there is one.
    pub(crate) fn handler(&self) -> Option<&'static str> {
        // SAFETY: the frame is stored in the cell, so it is alive, and the caller holds the cell's
        // token.
        self.frame().map(|frame| unsafe { frame::describe(frame) }.0)
    }

    /// Bytes that the process takes, without its mailbox and the memory that its state points to.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the frame is stored in the cell, so it is alive, and the caller holds the cell's
        // token.
        let frame = self.frame().map_or(0, |frame| unsafe { frame::describe(frame) }.1);
        let extension = self.if_extension(|own| own.bytes()).unwrap_or(0);
        self.class().slot.bytes() + self.class().boxed_bytes + frame + extension
    }

    /// Counts a turn of a process that has an extension. For other processes, this costs no more
    /// than reading a pointer beside the mailbox.
    #[inline(always)]
    pub(crate) fn count_turn(&self) {
        self.if_extension(|own| own.turns += 1);
    }

    /// Records that a turn has kept its worker for this time.
    #[cold]
    pub(crate) fn note_turn(&self, time: Duration) {
        let note = |own: &mut Rare| own.longest_turn = own.longest_turn.max(time);
        if time >= LONG_TURN {
            self.with_extension(|own| note(own.rare()));
        } else {
            self.if_extension(|own| own.rare_if_any().map(note));
        }
    }
}

/// Length from which a turn is recorded even for a process without rare data, which then gets it.
const LONG_TURN: Duration = Duration::from_millis(10);
