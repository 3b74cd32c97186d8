//! The queue of a bounded process: what users send to it waits here, within its bound.
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
//! The mailbox word of a bounded process carries signals only, and says who holds the token. As a
//! signal is pushed there its number is kept here, so that if it becomes a message (an exit that is
//! trapped) that comes where the signal came. A
//! message is queued under the queue's lock; then whoever queued it takes the token if nobody has
//! it. The token's holder gives it back under the same lock, and only if the queue is empty: so
//! either it sees the message, or the sender sees that the token is free.
//!
//! An async process may take a message and keep it for a later receive. Such a message goes on to
//! hold its place: the process itself has it, the queue counts it (`held`). Held messages are older
//! than all others, so they are the ones that [`Overflow::DropOldest`] is for. A sender cannot reach
//! them: it takes the place, and says so (`doomed`); the owner drops as many before it looks at what
//! it keeps.
//!
//! A bounded queue belongs to a slot for good and is never freed, like the slot. Invariants, all
//! under the lock:
//! 1. Only addresses with the owner's generation put anything in: none that is stale does.
//! 2. Every message in here is owned by the queue, and is for the owner's type; one in `returned`
//!    is for whoever has its ticket.
//! 3. There are waiters only while there is no room. The first is admitted with each place that
//!    becomes free.
//! 4. Each number is given once, to a message, a signal or a waiter, in every life of the slot.
//! 5. `held` is the number of messages that the owner keeps, and the one it has taken and not settled;
//!    `doomed` is no more than that.
//!
//! No code of a user's runs under the lock: messages are dropped, and wakers called and dropped,
//! after it, and no panic of theirs keeps what is due from being done. What is
//! for the owner alone is done by a [`Token`], below.

use crate::cell::{CellRef, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::bound::{MailboxBound, Overflow};
use crate::mailbox::budget::{self, Budget};
use crate::mailbox::envelope::{self, Load};
use crate::mailbox::{Generation, Gone, Link};
use crate::memory::slab;
use crate::scheduler::watchdog::CurrentTurn;
use crate::sync::{Mutex, lock};
use crate::turn::frame::Progress;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

/// Why a message was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The process has exited.
    Gone,
    /// There is no room, in this mailbox or in all of them together.
    Full,
    /// There is no room, and then a message is to be dropped.
    Dropped,
}

/// What was done with a message for which there may be no room.
#[must_use]
pub(crate) enum Offered {
    /// It is queued; this one had to go for it.
    Queued(Option<NonNull<Link>>),
    /// It waits for room, under this number.
    Waiting(u64),
}

/// A message that waits for room in a bounded queue, to be polled or withdrawn.
#[must_use]
pub(crate) struct Waiter {
    pub(crate) queue: &'static BoundedQueue,
    /// Where the message is counted, as long as the queue has it.
    pub(crate) budget: &'static Budget,
    pub(crate) bytes: u32,
    pub(crate) number: u64,
}

impl Waiter {
    /// Returns the state of the message; if it still waits, the waker is called when that is over.
    pub(crate) fn poll(&self, waker: &Waker) -> WaiterState {
        let state = self.queue.poll_waiter(self.number, waker);
        if let WaiterState::Returned(_) = state {
            self.budget.discharge(self.bytes);
        }
        state
    }

    /// Ends the wait: the message comes back, unless it has been queued or refused.
    pub(crate) fn withdraw(&self) -> Option<NonNull<Link>> {
        let message = self.queue.withdraw(self.number)?;
        self.budget.discharge(self.bytes);
        Some(message)
    }
}

/// State of a message that has waited for room.
#[must_use]
pub(crate) enum WaiterState {
    /// It still waits.
    Waiting,
    /// It has been queued.
    Admitted,
    /// The process has exited before there was room; the message is the caller's again.
    Returned(NonNull<Link>),
}

/// Contents of a bounded queue that was closed.
#[must_use]
pub(crate) struct Closed {
    /// Messages that were queued, oldest first.
    pub(crate) queued: Vec<NonNull<Link>>,
    /// Messages that waited for room, and whose senders learn from them what has happened.
    pub(crate) waiting: Vec<NonNull<Link>>,
    /// Wakers of senders that will poll for the fate of their message.
    pub(crate) wakers: Vec<Waker>,
}

/// What came of a message that an owner took and may keep.
#[must_use]
pub(crate) struct Settled {
    /// Whether it counts, and so holds a place while it is kept.
    pub(crate) is_counted: bool,
    /// How many of those kept have lost their place, oldest first, and are to be dropped.
    pub(crate) doomed: usize,
    /// The wakers of the senders that were let in.
    pub(crate) wakers: Vec<Waker>,
}

/// See the file's head.
pub(crate) struct BoundedQueue(Mutex<State>);

struct State {
    owner: Option<Generation>,
    bound: MailboxBound,
    counted: VecDeque<Numbered>,
    uncounted: VecDeque<Numbered>,
    /// Waiting senders by number. A map, because each of a million may leave from the middle.
    waiters: BTreeMap<u64, WaitingMessage>,
    /// Whether the owner says what has become of each message it takes.
    holds: bool,
    /// Whether the message taken last, of which it has not said so, was a counted one.
    taken_counts: bool,
    held: usize,
    doomed: usize,
    /// Numbers of the signals in the mailbox, in their order there.
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
    /// Waker of a sender that polls for it; none if the message itself tells its sender.
    waker: Option<Waker>,
}

// SAFETY: messages are made to be sent, and the queue owns those in it.
unsafe impl Send for State {}

impl BoundedQueue {
    /// A bounded queue nobody has yet.
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

    /// Begins a life. The mailbox is not open yet.
    pub(crate) fn open(&self, owner: Generation, bound: MailboxBound) {
        let mut state = lock(&self.0);
        debug_assert!(
            state.owner.is_none() && state.is_empty(),
            "a bounded queue has one owner at a time"
        );
        state.owner = Some(owner);
        state.bound = bound;
    }

    /// Queues a message that no bound holds up.
    pub(crate) fn push(&self, owner: Generation, message: NonNull<Link>) -> Result<(), Gone> {
        let mut state = lock(&self.0);
        if state.owner != Some(owner) {
            return Err(Gone);
        }
        let number = state.number();
        state.uncounted.push_back(Numbered { number, message });
        Ok(())
    }

    /// Pushes a signal, and notes its place among the messages.
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

    /// Owner: the number of the signal that was taken out of the mailbox; they come in order.
    pub(crate) fn next_signal_number(&self) -> u64 {
        let mut state = lock(&self.0);
        state.signal_order.pop_front().expect("each signal has a number")
    }

    /// Owner: queues what a signal has become.
    pub(crate) fn push_at(&self, number: u64, message: NonNull<Link>) {
        let uncounted = &mut lock(&self.0).uncounted;
        let index = uncounted.partition_point(|earlier| earlier.number < number);
        uncounted.insert(index, Numbered { number, message });
    }

    /// Queues a message if there is room for it, or if there is made room for it.
    pub(crate) fn offer(
        &self,
        owner: Generation,
        message: NonNull<Link>,
    ) -> Result<Offered, Refusal> {
        lock(&self.0).offer(owner, message)
    }

    /// Queues a message, or has it wait for room if the bound says so. The waker, if there is
    /// one, is called when that is over.
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

    /// Returns the state of the message with this number; if it still waits, the waker is called
    /// when that is over.
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
        // Outside of the lock, like the one that was there before.
        drop_users(waker);
        found
    }

    /// Ends the wait of the message with this number: it comes back, unless it has been queued.
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

    /// Owner: takes the oldest message; the waker is that of whose place became free.
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

    /// Owner: from here on each counted message that is taken holds its place until the owner has
    /// [settled](Self::settle) what becomes of it.
    pub(crate) fn hold_taken(&self) {
        lock(&self.0).holds = true;
    }

    /// Owner: of the message taken last, so many are left to be kept, which hold places if it did.
    /// (A message is one, but for turns of the user's own making.)
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

    /// Owner: one of the messages that were kept does not hold its place any more. The wakers are
    /// those of the senders that were let in.
    pub(crate) fn release(&self) -> Vec<Waker> {
        let mut state = lock(&self.0);
        state.free_held();
        state.admit_all()
    }

    /// Owner: how many of those kept have lost their place, oldest first, and are to be dropped.
    pub(crate) fn take_doomed(&self) -> usize {
        lock(&self.0).take_doomed()
    }

    /// Adds what is queued here, without the waiters; returns how many of the messages that the
    /// owner keeps have lost their place.
    pub(crate) fn add_to(&self, load: &mut Load) -> usize {
        let state = lock(&self.0);
        for numbered in state.counted.iter().chain(&state.uncounted) {
            // SAFETY: invariant 2: the queue owns it, and under the lock nobody takes it.
            unsafe { load.add_one(numbered.message) };
        }
        state.doomed
    }

    /// Owner: does what ends its possession of the token, if nothing waits here; true if it did.
    pub(crate) fn if_empty(&self, then: impl FnOnce() -> bool) -> bool {
        let state = lock(&self.0);
        state.is_empty() && then()
    }

    /// Owner: as [`if_empty`](Self::if_empty), and the life is over if it did.
    pub(crate) fn close_if_empty(&self, close: impl FnOnce() -> bool) -> bool {
        let mut state = lock(&self.0);
        let closed = state.is_empty() && close();
        if closed {
            state.owner = None;
            (state.holds, state.taken_counts, state.held, state.doomed) = (false, false, 0, 0);
        }
        closed
    }

    /// Owner: ends this life. From here on nothing gets in.
    pub(crate) fn close(&self) -> Closed {
        let mut state = lock(&self.0);
        state.owner = None;
        // The buffers go too: the next life may be a small one.
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

    /// One of the messages held gives its place up.
    fn free_held(&mut self) {
        self.held -= 1;
        self.doomed = self.doomed.min(self.held);
    }

    fn take_doomed(&mut self) -> usize {
        let doomed = mem::take(&mut self.doomed);
        self.held -= doomed;
        doomed
    }

    /// Admits as many of the waiters as there is room for.
    fn admit_all(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while !self.waiters.is_empty() && self.has_room() {
            wakers.extend(self.admit_first());
        }
        wakers
    }

    /// Admits the first of the waiters.
    fn admit_first(&mut self) -> Option<Waker> {
        let (_, WaitingMessage { message, waker }) = self.waiters.pop_first()?;
        let number = self.number();
        self.counted.push_back(Numbered { number, message });
        waker
    }

    /// Takes the outcome of a message that waits no longer.
    fn take_outcome(&mut self, number: u64) -> WaiterState {
        self.returned.remove(&number).map_or(WaiterState::Admitted, WaiterState::Returned)
    }
}

/// Queues a message that no bound holds up; the token comes along if nobody had it.
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
    /// Where a bounded process's messages wait.
    #[cold]
    pub(crate) fn bounded_queue(&self) -> &'static BoundedQueue {
        slab::bounded_queue_of(self.as_ref())
            .expect("a bounded process is given its queue as it is spawned")
    }

    /// As [`run_next`](Self::run_next), for a bounded process with no message outside its bounded
    /// queue.
    #[cold]
    pub(crate) fn run_from_bounded_queue(&self, current_turn: &CurrentTurn) -> Option<Progress> {
        let (message, waker) = self.bounded_queue().take()?;
        if let Some(waker) = waker {
            // Any future may wait for room with a waker of its own.
            let _ = catch(|| waker.wake());
        }
        // SAFETY: out of the queue, so owned; no address but this process's put it there.
        Some(unsafe {
            current_turn.begin(envelope::title_of(message));
            envelope::run(message, self)
        })
    }

    /// Drops what waits in the queue, and refuses the messages that wait for room.
    #[cold]
    pub(crate) fn close_bounded_queue(&self, reason: &ExitReason) {
        let closed = self.bounded_queue().close();
        for message in closed.queued {
            // SAFETY: out of the queue, so owned.
            unsafe { envelope::discard(message, reason) };
        }
        for message in closed.waiting {
            // SAFETY: the same; only what counts waits for room.
            unsafe {
                budget::discharge_here(envelope::bytes(message));
                envelope::refuse(message, Refusal::Gone);
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

    /// Messages, told apart by where they are.
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
    fn counted_and_uncounted_come_out_in_the_order_of_their_coming() {
        let (queue, messages) = (bounded_queue(2, Overflow::Reject), Messages::new(6));
        assert!(matches!(queue.offer(OWNER, messages.get(0)), Ok(Offered::Queued(None))));
        assert_eq!(queue.push(OWNER, messages.get(1)), Ok(()));
        assert_eq!(queue.push_signal(OWNER, || Ok(())), Ok(()));
        assert_eq!(queue.push(OWNER, messages.get(3)), Ok(()));
        assert!(matches!(queue.offer(OWNER, messages.get(4)), Ok(Offered::Queued(None))));
        assert!(matches!(queue.offer(OWNER, messages.get(5)), Err(Refusal::Full)));
        // The signal has become a message, and comes where it came.
        queue.push_at(queue.next_signal_number(), messages.get(2));
        assert!(!queue.if_empty(|| unreachable!("it is not")));
        assert_eq!(messages.all_of(&queue), [0, 1, 2, 3, 4]);
        assert!(queue.if_empty(|| true) && !queue.if_empty(|| false));
    }

    #[test]
    fn a_signal_that_finds_nobody_has_no_number() {
        let (queue, messages) = (bounded_queue(1, Overflow::Reject), Messages::new(2));
        assert_eq!(queue.push_signal(OWNER, || Err::<(), _>(Gone)), Err(Gone));
        assert_eq!(queue.push(OWNER, messages.get(0)), Ok(()));
        assert_eq!(queue.push_signal(OWNER, || Ok(())), Ok(()));
        queue.push_at(queue.next_signal_number(), messages.get(1));
        assert_eq!(messages.all_of(&queue), [0, 1]);
    }

    #[test]
    fn the_oldest_that_counts_makes_room_whatever_is_older() {
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
    fn what_the_owner_keeps_holds_its_place_until_it_is_released() {
        let (queue, messages) = (bounded_queue(2, Overflow::Wait), Messages::new(5));
        queue.hold_taken();
        for index in 0..2 {
            assert!(matches!(queue.offer(OWNER, messages.get(index)), Ok(Offered::Queued(None))));
        }
        assert_eq!(queue.push(OWNER, messages.get(2)), Ok(()));
        let waker = Waker::noop();
        let first = waiting(queue.offer_or_wait(OWNER, messages.get(3), Some(waker.clone())));
        let second = waiting(queue.offer_or_wait(OWNER, messages.get(4), Some(waker.clone())));
        // One is kept, and none is admitted.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(0));
        let Settled { is_counted, doomed, wakers } = queue.settle(1);
        assert_eq!((is_counted, doomed, wakers.len()), (true, 0, 0));
        // One is received, and one is admitted.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(1));
        assert!(matches!(queue.poll_waiter(first, waker), WaiterState::Waiting));
        let Settled { is_counted, wakers, .. } = queue.settle(0);
        assert_eq!((is_counted, wakers.len()), (true, 1));
        assert!(matches!(queue.poll_waiter(first, waker), WaiterState::Admitted));
        // One that does not count holds no place, kept or not; nor does one that was no message's.
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(2));
        assert!(!queue.settle(1).is_counted && !queue.settle(1).is_counted);
        assert!(matches!(queue.poll_waiter(second, waker), WaiterState::Waiting));
        // The one that was kept is received.
        assert_eq!(queue.release().len(), 1);
        assert!(matches!(queue.poll_waiter(second, waker), WaiterState::Admitted));
        assert_eq!(messages.all_of(&queue), [3, 4]);
        // All that is held ends with the life.
        assert!(queue.close().queued.is_empty());
        let next = OWNER.next();
        queue.open(next, MailboxBound::new(1, Overflow::Reject));
        assert!(matches!(queue.offer(next, messages.get(0)), Ok(Offered::Queued(None))));
        assert_eq!(messages.all_of(&queue), [0]);
        assert!(matches!(queue.offer(next, messages.get(1)), Ok(Offered::Queued(None))));
    }

    #[test]
    fn the_oldest_that_makes_room_is_one_that_the_owner_keeps() {
        let (queue, messages) = (bounded_queue(2, Overflow::DropOldest), Messages::new(6));
        let offer = |index| match queue.offer(OWNER, messages.get(index)) {
            Ok(Offered::Queued(dropped)) => dropped.map(|dropped| messages.index(dropped)),
            _ => panic!("it was not queued"),
        };
        queue.hold_taken();
        assert_eq!([offer(0), offer(1)], [None, None]);
        assert_eq!(queue.take().map(|(message, _)| messages.index(message)), Some(0));
        assert_eq!(queue.settle(1).doomed, 0);
        // The first is in the owner's hands, and gives its place; then comes the second.
        assert_eq!([offer(2), offer(3)], [None, Some(1)]);
        assert_eq!(queue.take_doomed(), 1);
        assert_eq!(queue.take_doomed(), 0);
        // One that is received at once cannot be doomed any more.
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
        // Of an owner before; its number is nobody else's.
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
