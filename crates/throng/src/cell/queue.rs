//! The queue of a process: messages and signals on their way from the mailbox to their turn.
//!
//! ```text
//! mailbox ──drain──▶ signals: acted on at once
//!                └─▶ messages ─▶ pending, or the backlog if some are pending ──▶ turn
//! ```
//!
//! Invariants:
//! 1. Messages leave in the order in which they came.
//! 2. The pending messages, and the lists of the backlog behind them, belong to the token's holder.
//! 3. Signals in a drained list are acted on before any of its messages runs.

use super::Token;
use crate::cell::extension::Extension;
use crate::cell::slab;
use crate::exit::{ExitReason, catch};
use crate::fault::{self, Step};
use crate::mailbox::bounded::BoundedQueue;
use crate::mailbox::envelope::{self, Cast};
use crate::mailbox::{Generation, Link};
use crate::scheduler::watchdog::CurrentTurn;
use crate::scheduler::worker::Worker;
use crate::signal::{Outcome, Signal};
use crate::turn::after::{After, Progress};
use crate::turn::process::{Process, Turn};
use crate::turn::turn_state::SIGNALS_MOST;
use std::ptr::{self, NonNull};

impl Token {
    /// Queues a message before all others, and before all signals. For a process that has just been
    /// created; the message's turn must call [`CurrentProcess::has_begun`].
    pub(crate) fn set_first<T: Turn<P>, P: Process>(&self, turn: T) {
        self.set_fresh();
        self.queue::<T, P>(turn);
    }

    /// Queues a message of a process that has no other.
    pub(super) fn queue<T: Turn<P>, P: Process>(&self, turn: T) {
        assert!(self.is_a::<P>(), "the message is for another type of process");
        let message = Cast::<P, T>::allocate(turn);
        // SAFETY: the message was just allocated and belongs to this call.
        slab::budget_of(self.as_ref()).charge(unsafe { envelope::bytes(message) });
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`), which the
        // caller has found empty.
        self.cell().pending.with_mut(|pending| unsafe { *pending = message.as_ptr() });
    }

    /// Begins the turn of the next message, if there is one. No turn may be under way.
    #[inline(always)]
    pub(crate) fn run_next(
        &self,
        generation: Generation,
        current_turn: &CurrentTurn,
    ) -> Option<Progress> {
        debug_assert!(self.frame().is_none());
        if self.is_to_start() {
            return Some(self.start());
        }
        let cell = self.cell();
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`).
        let mut first = cell.pending.with(|pending| unsafe { *pending });
        if first.is_null() {
            first = match self.next_backlog() {
                Some(sorted) => sorted,
                None => {
                    let drained = cell.mailbox.drain(generation);
                    if !cell.turn.is_signalled() || drained.is_null() {
                        drained
                    } else {
                        return Some(self.take_signals(drained, current_turn));
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
        // SAFETY: the message was drained, so it belongs to the token's holder (invariant 2); it
        // was queued here, so it is for this process.
        Some(unsafe { self.run_message(message, current_turn) })
    }

    /// Runs messages of a plain process (see [`is_plain`](Self::is_plain)) until it has none, and
    /// then gives the token up. If the process ceases to be plain, or its run is over, returns the
    /// token with the progress of the last turn.
    #[inline(always)]
    pub(crate) fn run_plain(self, worker: &Worker) -> Option<(Token, Progress)> {
        let generation = self.generation();
        let current_turn = worker.current_turn();
        if generation.is_bounded() {
            return Some((self, Progress::Done(After::Next)));
        }
        loop {
            let cell = self.cell();
            let message = match self.first_pending() {
                Some(_) if cell.turn.is_signalled() => {
                    return Some((self, Progress::Done(After::Next)));
                }
                Some(message) => message,
                None => {
                    let drained = cell.mailbox.drain(generation);
                    let Some(message) = NonNull::new(drained) else {
                        if cell.mailbox.park(generation) {
                            self.given();
                            return None;
                        }
                        continue;
                    };
                    if cell.turn.is_signalled() {
                        worker.count_turn();
                        let progress = self.take_signals(drained, current_turn);
                        self.count_turn();
                        worker.end_turn(&self);
                        return Some((self, progress));
                    }
                    message
                }
            };
            // Before the turn, which may end the run.
            worker.count_turn();
            // SAFETY: the message was drained, so it belongs to the token's holder (invariant 2);
            // it was queued here, so it is for this process.
            let progress = unsafe { self.run_message(message, current_turn) };
            self.count_turn();
            let goes_on = worker.end_turn(&self);
            if !matches!(progress, Progress::Done(After::Next)) || !goes_on {
                return Some((self, progress));
            }
        }
    }

    /// Takes the oldest pending message off the list, and begins its turn.
    ///
    /// # Safety
    /// The message is the oldest of a drained list, and the caller owns the list.
    #[inline(always)]
    unsafe fn run_message(&self, message: NonNull<Link>, current_turn: &CurrentTurn) -> Progress {
        // SAFETY: by the contract the message is the caller's, and it is for this process.
        unsafe {
            let next = message.as_ref().next();
            self.cell().pending.with_mut(|pending| *pending = next);
            current_turn.begin(envelope::title_of(message));
            envelope::run(message, self)
        }
    }

    /// Acts on the signals in a list just drained, and queues its messages.
    #[cold]
    fn take_signals(&self, drained: *mut Link, current_turn: &CurrentTurn) -> Progress {
        current_turn.begin(self.class().signalled);
        // If no signal ends the process, more may have come since the list was drained.
        Progress::Done(self.sort_out(drained).unwrap_or(After::Next))
    }

    /// Reason for a kill: the process was killed by a signal, or it has left too many signals
    /// unread.
    #[cold]
    pub(crate) fn reason_of_kill(&self) -> ExitReason {
        if self.cell().turn.is_flooded() {
            ExitReason::other(format!("left {SIGNALS_MOST} signals unread"))
        } else {
            ExitReason::Killed
        }
    }

    /// Whether signals are in the mailbox, or soon will be.
    #[inline(always)]
    pub(crate) fn is_signalled(&self) -> bool {
        self.cell().turn.is_signalled()
    }

    /// Acts on the signals in the mailbox; returns how the process exits if they end it.
    #[cold]
    pub(crate) fn handle_signals(&self, generation: Generation) -> Option<After> {
        if self.is_closed() || self.is_fresh() {
            return None;
        }
        let drained = self.cell().mailbox.drain(generation);
        self.sort_out(drained)
    }

    /// Acts on the signals in a list just drained, and queues its messages behind the pending ones;
    /// returns how the process exits if the signals end it.
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
                            // SAFETY: the message was just made and belongs to this call.
                            budget.charge(unsafe { envelope::bytes(message) });
                            if let Some((queue, number)) = queue.zip(number) {
                                queue.push_at(number, message);
                                continue;
                            }
                            message
                        }
                        Outcome::Exit(after) => {
                            // The first exit counts, but a kill replaces it.
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
            // The answer wakes a task by that task's own waker, which is foreign code and may
            // panic.
            let _ = catch(|| inspect(self));
        }
        // All signals taken out are retracted by now, so the bit of a sender that has set it is
        // seen.
        if self.cell().turn.is_flooded() { Some(After::Kill) } else { over }
    }

    /// Queues a list of messages behind the pending ones.
    fn append(&self, list: *mut Link) {
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`).
        let is_first = self.cell().pending.with_mut(|pending| unsafe {
            let is_first = (*pending).is_null() && !self.has_backlog();
            if is_first {
                *pending = list;
            }
            is_first
        });
        if !is_first {
            self.with_extension(|own| own.rare().backlog.push_back(MessageList(list)));
        }
    }

    fn has_backlog(&self) -> bool {
        let has =
            |own: &mut Extension| own.rare_if_any().is_some_and(|own| !own.backlog.is_empty());
        self.if_extension(has).unwrap_or(false)
    }

    /// Next list of messages that were drained while others were pending.
    #[inline(always)]
    pub(super) fn next_backlog(&self) -> Option<*mut Link> {
        let next = |own: &mut Extension| own.rare_if_any()?.backlog.pop_front();
        self.if_extension(next).flatten().map(|list| list.0)
    }

    /// Puts the message being run back in front, because it holds more messages.
    ///
    /// # Safety
    /// The message is the one that `run_next` has just taken.
    #[inline(always)]
    pub(crate) unsafe fn put_back(&self, message: NonNull<Link>) {
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`); the
        // caller gives the message back to the list.
        self.cell().pending.with_mut(|pending| unsafe {
            message.as_ref().set_next(*pending);
            *pending = message.as_ptr();
        });
    }

    /// Whether the first turn or a message waits that was already taken from the mailbox.
    pub(crate) fn has_pending(&self) -> bool {
        if self.is_to_start() {
            return true;
        }
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`); a message
        // that `uncouple` has released is not read again.
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

/// Drained list that is being sorted. Its drop queues the rest: the messages, and, if a panic cut
/// the sorting short, the entries not yet sorted, including signals. The process is then about to
/// exit, and runs none of them.
struct Sorting<'a> {
    token: &'a Token,
    /// Entries not yet sorted.
    rest: *mut Link,
    sorted: MessageQueue,
}

enum Next {
    Message(NonNull<Link>),
    Signal(Signal),
}

impl Sorting<'_> {
    /// Takes the oldest entry out of `rest`, which is not empty.
    fn next(&mut self) -> Next {
        let Some(oldest) = NonNull::new(self.rest) else { unreachable!("the rest is not empty") };
        // SAFETY: a drained entry belongs to the token's holder (invariant 2); the link is read
        // before the entry goes.
        unsafe {
            self.rest = oldest.as_ref().next();
            envelope::take_signal(oldest).map_or(Next::Message(oldest), Next::Signal)
        }
    }
}

impl Drop for Sorting<'_> {
    fn drop(&mut self) {
        while let Some(oldest) = NonNull::new(self.rest) {
            // SAFETY: a drained entry belongs to the token's holder (invariant 2).
            self.rest = unsafe { oldest.as_ref().next() };
            self.sorted.push(oldest);
        }
        if !self.sorted.first.is_null() {
            self.token.append(self.sorted.first);
        }
    }
}

/// Messages with one owner, linked oldest first, to which more can be added.
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
        // SAFETY: the owner of the queue owns the messages in it and the message added.
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

// SAFETY: only the holder of the process's token follows the list, and the turns in its messages
// are `Send` (a bound of `Turn`).
unsafe impl Send for MessageList {}
