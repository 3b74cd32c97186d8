//! Looking at a cell: its token borrowed for that, and what can be read under a token.
//!
//! A process that is idle or whose turn is suspended has no holder of its token. Whoever looks takes
//! it by the same exchanges as a pusher or a waker would, but does not schedule the process; what
//! comes meanwhile finds a holder, and makes giving the token back fail, and then the looker
//! schedules the process. So nothing is lost, and the process does not notice.
//!
//! Who may touch what is as in `cell`: all of this is read by the token's holder.

use super::{CellRef, Token};
use crate::mailbox::Generation;
use crate::mailbox::envelope::Load;
use crate::scheduler;
use crate::turn::frame;
use std::time::Duration;

/// The token of a process that does nothing at present, for as long as somebody looks at it.
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

    /// Leaves the process as it was, or, if it was sent something or woken meanwhile, sees to it
    /// that it runs.
    pub(crate) fn give_back(self) {
        let Borrowed { token, generation, suspended } = self;
        let given = if suspended { token.suspend() } else { token.park(generation) };
        if let Err(token) = given {
            scheduler::schedule(token);
        }
    }
}

impl CellRef {
    /// Takes the token of a process that does nothing at present, without setting it going.
    pub(crate) fn borrow(self, generation: Generation) -> Option<Borrowed> {
        let cell = self.cell();
        if cell.mailbox.wake(generation) {
            return Some(Borrowed { token: Token(self.0), generation, suspended: false });
        }
        if !cell.turn.borrow() {
            return None;
        }
        // Whose turn it is does not show in the turn's word; it may be the next process's by now.
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
    /// What is queued, whether it was taken from the mailbox already or not; also what an async
    /// process keeps for a later receive.
    ///
    /// Cost: a look at each message.
    pub(crate) fn load(&self) -> Load {
        let cell = self.cell();
        let mut load = Load::default();
        // SAFETY: the token's; nobody else takes messages out.
        unsafe {
            load.add(cell.pending.with(|pending| *pending));
            load.add(cell.mailbox.newest());
        }
        let doomed =
            if self.generation().is_bounded() { self.bounded_queue().add_to(&mut load) } else { 0 };
        self.if_extension(|own| {
            let kept = own.kept.without(doomed);
            load.messages += kept.messages;
            load.bytes += kept.bytes;
            for list in &own.backlog {
                // SAFETY: as above.
                unsafe { load.add(list.0) };
            }
        });
        load
    }

    /// The message of the turn under way, if one is.
    pub(crate) fn handler(&self) -> Option<&'static str> {
        // SAFETY: the cell's frame, and the token is ours.
        self.frame().map(|frame| unsafe { frame::describe(frame) }.0)
    }

    /// What the process takes besides its mailbox and what its state points to.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: as above.
        let frame = self.frame().map_or(0, |frame| unsafe { frame::describe(frame) }.1);
        let extension = self.if_extension(|own| own.bytes()).unwrap_or(0);
        self.class().slot.bytes() + self.class().boxed_bytes + frame + extension
    }

    /// A turn has been run. Counted for processes that have an extension, which the others' turns
    /// cost no more than a look at a pointer beside the mailbox.
    #[inline(always)]
    pub(crate) fn count_turn(&self) {
        self.if_extension(|own| own.turns += 1);
    }

    /// A turn has kept its worker for so long.
    #[cold]
    pub(crate) fn note_turn(&self, time: Duration) {
        if time >= LONG_TURN {
            self.with_extension(|own| own.longest_turn = own.longest_turn.max(time));
        } else {
            self.if_extension(|own| own.longest_turn = own.longest_turn.max(time));
        }
    }
}

/// A turn so long is remembered also of a process that has no extension yet.
const LONG_TURN: Duration = Duration::from_millis(10);
