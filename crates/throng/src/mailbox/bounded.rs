//! The queue of a bounded process: messages that users send to it wait here, within its bound.
//!
//! ```text
//!                      ┌─ counted ───┐
//! send, call ─────────▶│ 7 9 12      │──┐ by number
//!    │ full            └─────────────┘  ├──────────▶ turn ─▶ ( 2 5 held, by an async process )
//!    ▼        room made        ▲     ┌──┘
//! ┌─ waiters ──────────────────┴┐    │
//! │ senders that wait, in order │    │
//! └─────────────────────────────┘    │
//! timers, downs ─────▶ ( 8 10 11 uncounted )
//! ```
//!
//! The mailbox word of a bounded process carries only signals and the state of the token. As a
//! signal is pushed there, its number is kept here; if the signal becomes a message (an exit that
//! is trapped), the message takes the signal's position. A message is queued under the queue's
//! lock; then the sender takes the token if it is free. The token's holder gives it back under the
//! same lock, and only if the queue is empty: so either the holder sees the message, or the sender
//! sees that the token is free.
//!
//! An async process may take a message and keep it for a later receive. Such a message continues to
//! hold its place: the process itself has it, and the queue counts it (`held`). Held messages are
//! older than all others, so [`Overflow::DropOldest`] drops them first. A sender cannot reach them:
//! it takes the place and counts that in `doomed`; the owner drops as many before it examines the
//! messages that it keeps.
//!
//! A bounded queue belongs to a slot for good and is never freed, like the slot. Invariants, all
//! under the lock:
//! 1. Only an address with the owner's generation puts anything in; a stale address never does.
//! 2. The queue owns every message in it, and each is for the owner's type; a message in `returned`
//!    is for the holder of its number.
//! 3. There are waiters only while there is no room. Each place that becomes free admits the first.
//! 4. A number is used once, for a message, a signal or a waiter, over all lives of the slot.
//! 5. `held` is the number of messages that the owner keeps, plus the message that it has taken and
//!    not settled; `doomed` is at most `held`.
//!
//! No user code runs under the lock: messages are dropped, and wakers called and dropped, after it,
//! and a panic in them does not keep the remaining steps from being done. Steps that are the
//! owner's alone are methods of [`Token`], below.

use crate::cell::slab;
use crate::cell::{CellRef, Losses, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::bound::{MailboxBound, Overflow};
use crate::mailbox::budget::{self, Budget};
use crate::mailbox::envelope::{self, Load};
use crate::mailbox::{Generation, Gone, Link};
use crate::scheduler::watchdog::CurrentTurn;
use crate::sync::{Mutex, lock};
use crate::turn::after::Progress;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

/// Reason why a message was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The process has exited.
    Gone,
    /// There is no room, in this mailbox or in the budget of all mailboxes.
    Full,
    /// There is no room, and the bound is [`Overflow::DropNewest`]: the message is to be dropped.
    Dropped,
}

/// State of a message that was offered to the queue.
#[must_use]
pub(crate) enum Offered {
    /// The message is queued; the older message here, if any, was removed to make room.
    Queued(Option<NonNull<Link>>),
    /// The message waits for room, under this number.
    Waiting(u64),
}

/// A message that waits for room in a bounded queue, to be polled or withdrawn.
#[must_use]
pub(crate) struct Waiter {
    pub(crate) queue: &'static BoundedQueue,
    /// Budget that the message is charged to, as long as the queue has it.
    pub(crate) budget: &'static Budget,
    pub(crate) bytes: u32,
    pub(crate) number: u64,
}

impl Waiter {
    /// Returns the state of the message; if it still waits, the waker is called when the wait ends.
    pub(crate) fn poll(&self, waker: &Waker) -> WaiterState {
        let state = self.queue.poll_waiter(self.number, waker);
        if let WaiterState::Returned(_) = state {
            self.budget.discharge(self.bytes);
        }
        state
    }

    /// Ends the wait: returns the message, unless it has been queued or refused.
    pub(crate) fn withdraw(&self) -> Option<NonNull<Link>> {
        let message = self.queue.withdraw(self.number)?;
        self.budget.discharge(self.bytes);
        Some(message)
    }
}

/// State of a message that has waited for room.
#[must_use]
pub(crate) enum WaiterState {
    /// The message still waits.
    Waiting,
    /// The message has been queued.
    Admitted,
    /// The process has exited before there was room; the caller owns the message again.
    Returned(NonNull<Link>),
}

#[must_use]
pub(crate) struct Closed {
    /// Messages that were queued, oldest first.
    pub(crate) queued: Vec<NonNull<Link>>,
    /// Messages that waited for room, and notify their senders themselves when refused.
    pub(crate) waiting: Vec<NonNull<Link>>,
    /// Wakers of senders that will poll for the fate of their message.
    pub(crate) wakers: Vec<Waker>,
}

/// Result of settling a message that the owner took and may keep.
#[must_use]
pub(crate) struct Settled {
    /// Whether the message counts, and so holds a place while it is kept.
    pub(crate) is_counted: bool,
    /// Number of kept messages that have lost their place, oldest first, and are to be dropped.
    pub(crate) doomed: usize,
    /// Wakers of the senders whose messages were admitted.
    pub(crate) wakers: Vec<Waker>,
}

/// Message queue of a bounded process; see the file's head.
pub(crate) struct BoundedQueue(Mutex<State>);

struct State {
    owner: Option<Generation>,
    bound: MailboxBound,
    counted: VecDeque<Numbered>,
    uncounted: VecDeque<Numbered>,
    /// Waiting senders by number. A map, because any of a million may leave from the middle.
    waiters: BTreeMap<u64, WaitingMessage>,
    /// Whether the owner settles each message that it takes.
    holds: bool,
    /// Whether the message taken last, which the owner has not settled, is a counted message.
    taken_counts: bool,
    held: usize,
    doomed: usize,
    /// Numbers of the signals in the mailbox word, in their order there.
    signal_order: VecDeque<u64>,
    returned: BTreeMap<u64, NonNull<Link>>,
    next_number: u64,
}

struct Numbered {
    number: u64,
    message: NonNull<Link>,
}

struct WaitingMessage {
    message: NonNull<Link>,
    /// Waker of a sender that polls for it; none if the message itself notifies its sender.
    waker: Option<Waker>,
}

// SAFETY: messages may be sent to other threads, and the queue owns its messages (invariant 2).
unsafe impl Send for State {}

impl BoundedQueue {
    /// Creates a bounded queue without an owner.
    pub(crate) fn new() -> BoundedQueue {
        BoundedQueue(Mutex::new(State {
            owner: None,
            bound: MailboxBound::new(1, Overflow::Reject),
            counted: VecDeque::new(),
            uncounted: VecDeque::new(),
            waiters: BTreeMap::new(),
            holds: false,
            taken_counts: false,
            held: 0,
            doomed: 0,
            signal_order: VecDeque::new(),
            returned: BTreeMap::new(),
            next_number: 0,
        }))
    }

    /// Gives the queue to an owner, whose mailbox is not open yet.
    pub(crate) fn open(&self, owner: Generation, bound: MailboxBound) {
        let mut state = lock(&self.0);
        debug_assert!(
            state.owner.is_none() && state.is_empty(),
            "a bounded queue has one owner at a time"
        );
        state.owner = Some(owner);
        state.bound = bound;
    }

    /// Queues a message that does not count against the bound.
    pub(crate) fn push(&self, owner: Generation, message: NonNull<Link>) -> Result<(), Gone> {
        let mut state = lock(&self.0);
        if state.owner != Some(owner) {
            return Err(Gone);
        }
        let number = state.number();
        state.uncounted.push_back(Numbered { number, message });
        Ok(())
    }

    /// Pushes a signal, and records its position among the messages.
    pub(crate) fn push_signal<R>(
        &self,
        owner: Generation,
        push: impl FnOnce() -> Result<R, Gone>,
    ) -> Result<R, Gone> {
        let mut state = lock(&self.0);
        if state.owner != Some(owner) {
            return Err(Gone);
        }
        let pushed = push()?;
        let number = state.number();
        state.signal_order.push_back(number);
        Ok(pushed)
    }

    /// Owner: returns the number of the next signal that it takes out of the mailbox word, in
    /// order.
    pub(crate) fn next_signal_number(&self) -> u64 {
        let mut state = lock(&self.0);
        state.signal_order.pop_front().expect("each signal has a number")
    }

    /// Owner: queues the message that a signal has become, at the signal's position.
    pub(crate) fn push_at(&self, number: u64, message: NonNull<Link>) {
        let uncounted = &mut lock(&self.0).uncounted;
        let index = uncounted.partition_point(|earlier| earlier.number < number);
        uncounted.insert(index, Numbered { number, message });
    }

    /// Queues a message if there is room for it, or if the bound makes room for it.
    pub(crate) fn offer(
        &self,
        owner: Generation,
        message: NonNull<Link>,
    ) -> Result<Offered, Refusal> {
        lock(&self.0).offer(owner, message)
    }

    /// Queues a message, or lets it wait for room if the bound says so. The waker, if present, is
    /// called when the wait ends.
    pub(crate) fn offer_or_wait(
        &self,
        owner: Generation,
        message: NonNull<Link>,
        waker: Option<Waker>,
    ) -> Result<Offered, Refusal> {
        let mut state = lock(&self.0);
        match state.offer(owner, message) {
            Err(Refusal::Full) if state.bound.overflow == Overflow::Wait => {
                let number = state.number();
                state.waiters.insert(number, WaitingMessage { message, waker });
                Ok(Offered::Waiting(number))
            }
            offered => {
                drop(state);
                drop_users(waker);
                offered
            }
        }
    }

    /// Returns the policy of the owner, or of the last owner.
    pub(crate) fn overflow(&self) -> Overflow {
        lock(&self.0).bound.overflow
    }

    /// Returns the state of the message with this number; if it still waits, the waker is called
    /// when the wait ends.
    fn poll_waiter(&self, number: u64, waker: &Waker) -> WaiterState {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.0);
        let found = match state.waiters.get_mut(&number) {
            Some(waiting) => {
                mem::swap(&mut waiting.waker, &mut waker);
                WaiterState::Waiting
            }
            None => state.take_outcome(number),
        };
        drop(state);
        // The waker's code, or that of the waker it replaced, runs after the lock is released.
        drop_users(waker);
        found
    }

    /// Ends the wait of the message with this number: returns it, unless it has been queued.
    fn withdraw(&self, number: u64) -> Option<NonNull<Link>> {
        let mut state = lock(&self.0);
        if let Some(WaitingMessage { message, waker }) = state.waiters.remove(&number) {
            drop(state);
            drop_users(waker);
            return Some(message);
        }
        match state.take_outcome(number) {
            WaiterState::Returned(message) => Some(message),
            WaiterState::Waiting | WaiterState::Admitted => None,
        }
    }

    /// Owner: takes the oldest message, and admits a waiter if that frees a place; the waker is
    /// that waiter's.
    pub(crate) fn take(&self) -> Option<(NonNull<Link>, Option<Waker>)> {
        let mut state = lock(&self.0);
        let numbers = |queue: &VecDeque<Numbered>| queue.front().map(|first| first.number);
        let uncounted_first = match (numbers(&state.counted), numbers(&state.uncounted)) {
            (Some(counted), Some(uncounted)) => uncounted < counted,
            (counted, _) => counted.is_none(),
        };
        if uncounted_first {
            return state.uncounted.pop_front().map(|first| (first.message, None));
        }
        let first = state.counted.pop_front()?;
        if state.holds {
            state.held += 1;
            state.taken_counts = true;
            return Some((first.message, None));
        }
        let waker = state.admit_first();
        Some((first.message, waker))
    }

    /// Owner: from here on, each counted message that it takes holds its place until the owner has
    /// [settled](Self::settle) it.
    pub(crate) fn hold_taken(&self) {
        lock(&self.0).holds = true;
    }

    /// Owner: settles the message taken last, from which `left` messages are kept; they hold places
    /// if that message did. (`left` is 0 or 1 except for turns that users implement themselves.)
    pub(crate) fn settle(&self, left: usize) -> Settled {
        let mut state = lock(&self.0);
        let is_counted = mem::take(&mut state.taken_counts);
        if is_counted {
            state.held += left;
            state.free_held();
        }
        let doomed = state.take_doomed();
        Settled { is_counted, doomed, wakers: state.admit_all() }
    }

    /// Owner: releases the place of a kept message. Returns the wakers of the senders whose
    /// messages were admitted.
    pub(crate) fn release(&self) -> Vec<Waker> {
        let mut state = lock(&self.0);
        state.free_held();
        state.admit_all()
    }

    /// Owner: returns the number of kept messages that have lost their place, oldest first, and are
    /// to be dropped.
    pub(crate) fn take_doomed(&self) -> usize {
        lock(&self.0).take_doomed()
    }

    /// Adds the messages queued here, without the waiters, to `load`; returns how many of the
    /// messages that the owner keeps have lost their place.
    pub(crate) fn add_to(&self, load: &mut Load) -> usize {
        let state = lock(&self.0);
        for numbered in state.counted.iter().chain(&state.uncounted) {
            // SAFETY: the queue owns the message (invariant 2), and only the lock's holder takes
            // it.
            unsafe { load.add_one(numbered.message) };
        }
        state.doomed
    }

    /// Owner: calls `then`, which gives the token back, if nothing is queued here; true if `then`
    /// was called and returned true.
    pub(crate) fn if_empty(&self, then: impl FnOnce() -> bool) -> bool {
        let state = lock(&self.0);
        state.is_empty() && then()
    }

    /// Owner: calls `close` if nothing is queued here, and gives the queue up if that returns true;
    /// returns whether it did.
    pub(crate) fn close_if_empty(&self, close: impl FnOnce() -> bool) -> bool {
        let mut state = lock(&self.0);
        let closed = state.is_empty() && close();
        if closed {
            state.owner = None;
            (state.holds, state.taken_counts, state.held, state.doomed) = (false, false, 0, 0);
        }
        closed
    }

    /// Owner: gives the queue up, and returns its contents. From here on nothing gets in.
    pub(crate) fn close(&self) -> Closed {
        let mut state = lock(&self.0);
        state.owner = None;
        // The buffers are freed, too: the next owner may need little.
        let mut queued: Vec<_> = mem::take(&mut state.counted).into();
        queued.extend(mem::take(&mut state.uncounted));
        state.signal_order = VecDeque::new();
        (state.holds, state.taken_counts, state.held, state.doomed) = (false, false, 0, 0);
        let mut closed = Closed { queued: Vec::new(), waiting: Vec::new(), wakers: Vec::new() };
        for (number, WaitingMessage { message, waker }) in mem::take(&mut state.waiters) {
            match waker {
                Some(waker) => {
                    closed.wakers.push(waker);
                    state.returned.insert(number, message);
                }
                None => closed.waiting.push(message),
            }
        }
        drop(state);
        queued.sort_unstable_by_key(|numbered| numbered.number);
        closed.queued = queued.into_iter().map(|numbered| numbered.message).collect();
        closed
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.uncounted.is_empty()
    }

    fn offer(&mut self, owner: Generation, message: NonNull<Link>) -> Result<Offered, Refusal> {
        if self.owner != Some(owner) {
            return Err(Refusal::Gone);
        }
        let mut dropped = None;
        if !self.has_room() {
            match self.bound.overflow {
                Overflow::Wait | Overflow::Reject => return Err(Refusal::Full),
                Overflow::DropNewest => return Err(Refusal::Dropped),
                Overflow::DropOldest if self.held > self.doomed => self.doomed += 1,
                Overflow::DropOldest => {
                    dropped = self.counted.pop_front().map(|oldest| oldest.message);
                }
            }
        }
        let number = self.number();
        self.counted.push_back(Numbered { number, message });
        Ok(Offered::Queued(dropped))
    }

    fn has_room(&self) -> bool {
        self.counted.len() + (self.held - self.doomed) < self.bound.capacity
    }

    fn free_held(&mut self) {
        self.held -= 1;
        self.doomed = self.doomed.min(self.held);
    }

    fn take_doomed(&mut self) -> usize {
        let doomed = mem::take(&mut self.doomed);
        self.held -= doomed;
        doomed
    }

    /// Admits as many waiters as there is room for; returns their wakers.
    fn admit_all(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while !self.waiters.is_empty() && self.has_room() {
            wakers.extend(self.admit_first());
        }
        wakers
    }

    /// Admits the first waiter; returns its waker.
    fn admit_first(&mut self) -> Option<Waker> {
        let (_, WaitingMessage { message, waker }) = self.waiters.pop_first()?;
        let number = self.number();
        self.counted.push_back(Numbered { number, message });
        waker
    }

    /// Takes the outcome of a message that does not wait any more.
    fn take_outcome(&mut self, number: u64) -> WaiterState {
        self.returned.remove(&number).map_or(WaiterState::Admitted, WaiterState::Returned)
    }
}

/// Queues a message that does not count against the bound; returns the token if it was free.
#[cold]
pub(crate) fn push(
    cell: CellRef,
    owner: Generation,
    message: NonNull<Link>,
) -> Result<Option<Token>, Gone> {
    slab::bounded_queue_of(cell).ok_or(Gone)?.push(owner, message)?;
    Ok(cell.wake_for_push(owner))
}

impl Token {
    #[cold]
    pub(crate) fn bounded_queue(&self) -> &'static BoundedQueue {
        slab::bounded_queue_of(self.as_ref())
            .expect("a bounded process is given its queue as it is spawned")
    }

    /// Runs the next message, like [`run_next`](Self::run_next), for a bounded process with no
    /// message outside its bounded queue.
    #[cold]
    pub(crate) fn run_from_bounded_queue(&self, current_turn: &CurrentTurn) -> Option<Progress> {
        let (message, waker) = self.bounded_queue().take()?;
        if let Some(waker) = waker {
            // The waker may be the user's: any future may wait for room with its own waker.
            let _ = catch(|| waker.wake());
        }
        // SAFETY: `take` passes the message on from the queue, and it is for this process's type
        // (invariants 1 and 2).
        Some(unsafe {
            current_turn.begin(envelope::title_of(message));
            envelope::run(message, self)
        })
    }

    /// Closes the queue, discards the queued messages, and refuses the messages that wait for room.
    #[cold]
    pub(crate) fn close_bounded_queue(&self, reason: &ExitReason) {
        let closed = self.bounded_queue().close();
        let mut losses = Losses::new(self, reason);
        for message in closed.queued {
            // SAFETY: `close` passes the message on from the queue, which owned it (invariant 2).
            unsafe {
                let title = envelope::title_of(message);
                losses.add(title, envelope::discard(message, reason));
            }
        }
        drop(losses);
        for message in closed.waiting {
            // SAFETY: `close` passes the message on from the queue, which owned it (invariant 2);
            // only counted messages wait for room.
            unsafe {
                budget::discharge_here(envelope::bytes(message));
                // The message goes back to its sender, or the sender has given up.
                let _ = envelope::refuse(message, Refusal::Gone);
            }
        }
        for waker in closed.wakers {
            let _ = catch(|| waker.wake());
        }
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;

    const OWNER: Generation = Generation::FIRST;

    fn bounded_queue(capacity: usize, overflow: Overflow) -> BoundedQueue {
        let queue = BoundedQueue::new();
        queue.open(OWNER, MailboxBound::new(capacity, overflow));
        queue
    }

    /// Messages, identified by their addresses.
    struct Messages(Vec<Link>);

    impl Messages {
        fn new(count: usize) -> Messages {
            Messages((0..count).map(|_| Link::new()).collect())
        }

        fn get(&self, index: usize) -> NonNull<Link> {
            NonNull::from(&self.0[index])
        }

        fn index(&self, message: NonNull<Link>) -> usize {
            self.0.iter().position(|link| NonNull::from(link) == message).expect("one of these")
        }

        fn all_of(&self, queue: &BoundedQueue) -> Vec<usize> {
            std::iter::from_fn(|| queue.take()).map(|(message, _)| self.index(message)).collect()
        }
    }

    fn waiting(offered: Result<Offered, Refusal>) -> u64 {
        match offered {
            Ok(Offered::Waiting(number)) => number,
            _ => panic!("it does not wait for room"),
        }
    }

    #[test]
    fn counted_and_uncounted_messages_come_out_in_order_of_arrival() {
        let (queue, messages) = (bounded_queue(2, Overflow::Reject), Messages::new(6));
        assert!(matches!(queue.offer(OWNER, messages.get(0)), Ok(Offered::Queued(None))));
        assert_eq!(queue.push(OWNER, messages.get(1)), Ok(()));
        assert_eq!(queue.push_signal(OWNER, || Ok(())), Ok(()));
        assert_eq!(queue.push(OWNER, messages.get(3)), Ok(()));
        assert!(matches!(queue.offer(OWNER, messages.get(4)), Ok(Offered::Queued(None))));
        assert!(matches!(queue.offer(OWNER, messages.get(5)), Err(Refusal::Full)));
        // The signal has become a message, and takes the signal's position.
        queue.push_at(queue.next_signal_number(), messages.get(2));
        assert!(!queue.if_empty(|| unreachable!("it is not")));
        assert_eq!(messages.all_of(&queue), [0, 1, 2, 3, 4]);
        assert!(queue.if_empty(|| true) && !queue.if_empty(|| false));
    }

    #[test]
    fn a_signal_that_is_not_pushed_has_no_number() {
        let (queue, messages) = (bounded_queue(1, Overflow::Reject), Messages::new(2));
        assert_eq!(queue.push_signal(OWNER, || Err::<(), _>(Gone)), Err(Gone));
        assert_eq!(queue.push(OWNER, messages.get(0)), Ok(()));
        assert_eq!(queue.push_signal(OWNER, || Ok(())), Ok(()));
        queue.push_at(queue.next_signal_number(), messages.get(1));
        assert_eq!(messages.all_of(&queue), [0, 1]);
    }

    #[test]
    fn the_oldest_counted_message_makes_room_even_if_an_uncounted_message_is_older() {
        let (queue, messages) = (bounded_queue(2, Overflow::DropOldest), Messages::new(4));
        assert_eq!(queue.push(OWNER, messages.get(0)), Ok(()));
        for index in 1..3 {
            assert!(matches!(queue.offer(OWNER, messages.get(index)), Ok(Offered::Queued(None))));
        }
        let Ok(Offered::Queued(Some(dropped))) = queue.offer(OWNER, messages.get(3)) else {
            panic!("nothing made room");
        };
        assert_eq!(messages.index(dropped), 1);
        assert_eq!(messages.all_of(&queue), [0, 2, 3]);
    }

    #[test]
    fn a_message_that_the_owner_keeps_holds_its_place_until_it_is_released() {
        let (queue, messages) = (bounded_queue(2, Overflow::Wait), Messages::new(5));
        queue.hold_taken();
        for index in 0..2 {
            assert!(matches!(queue.offer(OWNER, messages.get(index)), Ok(Offered::Queued(None))));
        }
        assert_eq!(queue.push(OWNER, messages.get(2)), Ok(()));
        let waker = Waker::noop();
        let first = waiting(queue.offer_or_wait(OWNER, messages.get(3), Some(waker.clone())));
        let second = waiting(queue.offer_or_wait(OWNER, messages.get(4), Some(waker.clone())));
        // A message is kept, and no waiter is admitted.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(0));
        let Settled { is_counted, doomed, wakers } = queue.settle(1);
        assert_eq!((is_counted, doomed, wakers.len()), (true, 0, 0));
        // A message is received, and a waiter is admitted.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(1));
        assert!(matches!(queue.poll_waiter(first, waker), WaiterState::Waiting));
        let Settled { is_counted, wakers, .. } = queue.settle(0);
        assert_eq!((is_counted, wakers.len()), (true, 1));
        assert!(matches!(queue.poll_waiter(first, waker), WaiterState::Admitted));
        // A message that does not count holds no place, kept or not; nor does settling without a
        // taken message.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(2));
        assert!(!queue.settle(1).is_counted && !queue.settle(1).is_counted);
        assert!(matches!(queue.poll_waiter(second, waker), WaiterState::Waiting));
        // The kept message is received.
        assert_eq!(queue.release().len(), 1);
        assert!(matches!(queue.poll_waiter(second, waker), WaiterState::Admitted));
        assert_eq!(messages.all_of(&queue), [3, 4]);
        // The next owner starts without held places.
        assert!(queue.close().queued.is_empty());
        let next = OWNER.next();
        queue.open(next, MailboxBound::new(1, Overflow::Reject));
        assert!(matches!(queue.offer(next, messages.get(0)), Ok(Offered::Queued(None))));
        assert_eq!(messages.all_of(&queue), [0]);
        assert!(matches!(queue.offer(next, messages.get(1)), Ok(Offered::Queued(None))));
    }

    #[test]
    fn the_oldest_message_that_the_owner_keeps_makes_room_first() {
        let (queue, messages) = (bounded_queue(2, Overflow::DropOldest), Messages::new(6));
        let offer = |index| match queue.offer(OWNER, messages.get(index)) {
            Ok(Offered::Queued(dropped)) => dropped.map(|dropped| messages.index(dropped)),
            _ => panic!("it was not queued"),
        };
        queue.hold_taken();
        assert_eq!([offer(0), offer(1)], [None, None]);
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(0));
        assert_eq!(queue.settle(1).doomed, 0);
        // The first message, which the owner keeps, gives up its place; then the second is dropped.
        assert_eq!([offer(2), offer(3)], [None, Some(1)]);
        assert_eq!(queue.take_doomed(), 1);
        assert_eq!(queue.take_doomed(), 0);
        // A message that is received at once cannot be doomed any more.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(2));
        assert_eq!(offer(4), None);
        assert_eq!(queue.settle(0).doomed, 0);
        assert_eq!(offer(5), Some(3));
        assert_eq!(messages.all_of(&queue), [4, 5]);
    }

    #[test]
    fn waiters_are_admitted_in_order_and_returned_when_the_queue_closes() {
        let (queue, messages) = (bounded_queue(1, Overflow::Wait), Messages::new(6));
        let waker = Waker::noop();
        let offer_or_wait = |index, waker| queue.offer_or_wait(OWNER, messages.get(index), waker);
        assert!(matches!(offer_or_wait(0, None), Ok(Offered::Queued(None))));
        let [first, second, third] =
            [1, 2, 3].map(|index| waiting(offer_or_wait(index, Some(waker.clone()))));
        let call = waiting(offer_or_wait(4, None));
        assert!(matches!(queue.offer(OWNER, messages.get(5)), Err(Refusal::Full)));
        assert_eq!(queue.withdraw(second).map(|message| messages.index(message)), Some(2));
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(0));
        assert!(matches!(queue.poll_waiter(first, waker), WaiterState::Admitted));
        assert!(matches!(queue.poll_waiter(third, waker), WaiterState::Waiting));
        assert!(queue.withdraw(first).is_none());

        let closed = queue.close();
        assert_eq!(
            closed.queued.iter().map(|&message| messages.index(message)).collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(
            closed.waiting.iter().map(|&message| messages.index(message)).collect::<Vec<_>>(),
            [4]
        );
        assert_eq!(closed.wakers.len(), 1);
        assert!(queue.withdraw(call).is_none());
        let next = OWNER.next();
        queue.open(next, MailboxBound::new(1, Overflow::Wait));
        // The waiter is from the earlier owner's time; no other message has its number.
        let WaiterState::Returned(returned) = queue.poll_waiter(third, waker) else {
            panic!("not sent back");
        };
        assert_eq!(messages.index(returned), 3);
        assert!(matches!(queue.poll_waiter(third, waker), WaiterState::Admitted));
        assert_eq!(queue.push(OWNER, messages.get(0)), Err(Gone));
        assert!(matches!(queue.offer(OWNER, messages.get(0)), Err(Refusal::Gone)));
        assert!(matches!(queue.offer(next, messages.get(0)), Ok(Offered::Queued(None))));
    }
}
