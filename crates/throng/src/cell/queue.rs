//! What a process has before it: messages and signals from the mailbox on, until their turn.
//!
//! ```text
//! mailbox ──drain──▶ signals: acted on at once
//!                └─▶ messages ─▶ pending, or the backlog if some are pending ──▶ turn
//! ```
//!
//! Invariants: messages leave in the order in which they came. What is pending, and the lists of
//! the backlog behind it, is owned by the token's holder. Signals in a list drained are acted on
//! before any of its messages runs.

use super::Token;
use crate::exit::{ExitReason, catch};
use crate::fault::{self, Step};
use crate::mailbox::bounded::BoundedQueue;
use crate::mailbox::envelope::{self, Cast};
use crate::mailbox::{Generation, Link};
use crate::memory::slab;
use crate::process::{Process, Turn};
use crate::scheduler::watchdog::CurrentTurn;
use crate::signal::{Outcome, Signal};
use crate::turn::frame::{After, Progress};
use crate::turn::turn_state::SIGNALS_MOST;
use std::ptr::{self, NonNull};

impl Token {
    /// Puts a message before all others, and before all signals. For a process that has just been
    /// created; the turn is to call [`CurrentProcess::has_begun`].
    pub(crate) fn set_first<T: Turn<P>, P: Process>(&self, turn: T) {
        assert!(self.is_a::<P>(), "the message is for another type of process");
        self.cell().turn.set_fresh();
        let message = Cast::<P, T>::allocate(turn);
        // SAFETY: just allocated.
        slab::budget_of(self.as_ref()).charge(unsafe { envelope::bytes(message) });
        // SAFETY: the token's.
        self.cell().pending.with_mut(|pending| unsafe { *pending = message.as_ptr() });
    }

    /// Signals need not wait for the first turn any more: it will not be run.
    pub(crate) fn forgo_first(&self) {
        self.cell().turn.clear_fresh();
    }

    /// Begins the turn of the next message, if there is one. No turn may be under way.
    #[inline(always)]
    pub(crate) fn run_next(
        &self,
        generation: Generation,
        current_turn: &CurrentTurn,
    ) -> Option<Progress> {
        debug_assert!(self.frame().is_none());
        let cell = self.cell();
        // SAFETY: the token's.
        let mut first = cell.pending.with(|pending| unsafe { *pending });
        if first.is_null() {
            first = match self.next_backlog() {
                Some(sorted) => sorted,
                None => {
                    let drained = cell.mailbox.drain(generation);
                    if !cell.turn.is_signalled() || drained.is_null() {
                        drained
                    } else {
                        current_turn.begin(self.class().signalled);
                        // If none ends the process, there may be more by now than what was sorted.
                        return Some(Progress::Done(self.sort_out(drained).unwrap_or(After::Next)));
                    }
                }
            };
        }
        let Some(message) = NonNull::new(first) else {
            return if generation.is_bounded() {
                self.run_from_bounded_queue(current_turn)
            } else {
                None
            };
        };
        // SAFETY: drained, so owned by the token; it was queued here, so it is for this process.
        unsafe {
            let next = message.as_ref().next();
            cell.pending.with_mut(|pending| *pending = next);
            current_turn.begin(envelope::title_of(message));
            Some(envelope::run(message, self))
        }
    }

    /// Reason for a kill: the process was told to end, or it has left too many signals unread.
    #[cold]
    pub(crate) fn reason_of_kill(&self) -> ExitReason {
        if self.cell().turn.is_flooded() {
            ExitReason::other(format!("left {SIGNALS_MOST} signals unread"))
        } else {
            ExitReason::Killed
        }
    }

    /// Whether there are signals to be looked at, or soon will be.
    #[inline(always)]
    pub(crate) fn is_signalled(&self) -> bool {
        self.cell().turn.is_signalled()
    }

    /// Acts on the signals in the mailbox; says if the process is over thereby.
    #[cold]
    pub(crate) fn handle_signals(&self, generation: Generation) -> Option<After> {
        if self.is_closed() || self.cell().turn.is_fresh() {
            return None;
        }
        let drained = self.cell().mailbox.drain(generation);
        self.sort_out(drained)
    }

    /// Acts on the signals in a list just drained and queues the rest behind what is pending; says
    /// if the process is over.
    fn sort_out(&self, list: *mut Link) -> Option<After> {
        let queue = self.generation().is_bounded().then(|| self.bounded_queue());
        let budget = slab::budget_of(self.as_ref());
        let mut over: Option<After> = None;
        let mut inspections = Vec::new();
        let mut sorting = Sorting { token: self, rest: list, sorted: MessageQueue::new() };
        while !sorting.rest.is_null() {
            fault::point(Step::Signals, self.class().name);
            let message = match sorting.next() {
                Next::Message(message) => message,
                Next::Signal(signal) => {
                    self.cell().turn.retract();
                    let number = queue.map(BoundedQueue::next_signal_number);
                    match signal.act(self) {
                        Outcome::Nothing => continue,
                        Outcome::Inspect(inspect) => {
                            inspections.push(inspect);
                            continue;
                        }
                        Outcome::Message(message) => {
                            // SAFETY: just made.
                            budget.charge(unsafe { envelope::bytes(message) });
                            if let Some((queue, number)) = queue.zip(number) {
                                queue.push_at(number, message);
                                continue;
                            }
                            message
                        }
                        Outcome::Exit(after) => {
                            // The first exit counts, but for a kill.
                            if over.is_none() || matches!(after, After::Kill) {
                                over = Some(after);
                            }
                            continue;
                        }
                    }
                }
            };
            sorting.sorted.push(message);
        }
        drop(sorting);
        for inspect in inspections {
            // The answer wakes a task by its own waker, which is not ours.
            let _ = catch(|| inspect(self));
        }
        // All that was taken out is retracted by now, so a sender that has set the bit is seen.
        if self.cell().turn.is_flooded() { Some(After::Kill) } else { over }
    }

    /// Queues a list of messages behind what is pending.
    fn append(&self, list: *mut Link) {
        // SAFETY: the token's.
        let is_first = self.cell().pending.with_mut(|pending| unsafe {
            let is_first = (*pending).is_null() && !self.has_backlog();
            if is_first {
                *pending = list;
            }
            is_first
        });
        if !is_first {
            self.with_extension(|own| own.backlog.push_back(MessageList(list)));
        }
    }

    fn has_backlog(&self) -> bool {
        self.if_extension(|own| !own.backlog.is_empty()).unwrap_or(false)
    }

    /// The next list of messages that were drained while others were pending.
    #[inline(always)]
    pub(super) fn next_backlog(&self) -> Option<*mut Link> {
        self.if_extension(|own| own.backlog.pop_front()).flatten().map(|list| list.0)
    }

    /// Puts the message being run back in front: there is more in it.
    ///
    /// # Safety
    /// The message is the one that `run_next` has just taken.
    #[inline(always)]
    pub(crate) unsafe fn put_back(&self, message: NonNull<Link>) {
        // SAFETY: the token's; the message is owned by the list again.
        self.cell().pending.with_mut(|pending| unsafe {
            message.as_ref().set_next(*pending);
            *pending = message.as_ptr();
        });
    }

    /// Whether a message waits that was already taken from the mailbox.
    pub(super) fn has_pending(&self) -> bool {
        // SAFETY: the token's; a message that has let go is not looked at again.
        let has_pending = self.cell().pending.with_mut(|pending| unsafe {
            while let Some(message) = NonNull::new(*pending) {
                let next = message.as_ref().next();
                if !envelope::uncouple(message) {
                    return true;
                }
                *pending = next;
            }
            false
        });
        has_pending || self.has_backlog()
    }
}

/// A drained list that is being sorted out. Its drop queues what is left of it: the messages, and,
/// if the sorting was cut short by a panic, what was not looked at yet, signals included. The
/// process is then about to exit, and nothing of it is run.
struct Sorting<'a> {
    token: &'a Token,
    /// What was not looked at yet.
    rest: *mut Link,
    sorted: MessageQueue,
}

enum Next {
    Message(NonNull<Link>),
    Signal(Signal),
}

impl Sorting<'_> {
    /// Takes the oldest out of the rest, which is not empty.
    fn next(&mut self) -> Next {
        let Some(oldest) = NonNull::new(self.rest) else { unreachable!("the rest is not empty") };
        // SAFETY: drained, so owned; the link is read before the message goes.
        unsafe {
            self.rest = oldest.as_ref().next();
            envelope::take_signal(oldest).map_or(Next::Message(oldest), Next::Signal)
        }
    }
}

impl Drop for Sorting<'_> {
    fn drop(&mut self) {
        while let Some(oldest) = NonNull::new(self.rest) {
            // SAFETY: drained, so owned.
            self.rest = unsafe { oldest.as_ref().next() };
            self.sorted.push(oldest);
        }
        if !self.sorted.first.is_null() {
            self.token.append(self.sorted.first);
        }
    }
}

/// Messages that somebody owns, linked oldest first, to which more can be added.
struct MessageQueue {
    first: *mut Link,
    last: *mut Link,
}

impl MessageQueue {
    const fn new() -> MessageQueue {
        MessageQueue { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Adds a message, which the caller owns.
    fn push(&mut self, message: NonNull<Link>) {
        // SAFETY: what is in the queue is owned, and so is the message.
        unsafe {
            message.as_ref().set_next(ptr::null_mut());
            match NonNull::new(self.last) {
                Some(last) => last.as_ref().set_next(message.as_ptr()),
                None => self.first = message.as_ptr(),
            }
        }
        self.last = message.as_ptr();
    }
}

/// Messages taken from a mailbox, linked oldest first.
pub(crate) struct MessageList(pub(super) *mut Link);

// SAFETY: it is owned by the token's holder, and messages are made to travel between threads.
unsafe impl Send for MessageList {}
