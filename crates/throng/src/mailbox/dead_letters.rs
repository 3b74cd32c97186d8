//! Dead letters: messages that are dropped unhandled, counted by process and reason, and listed for
//! subscribers.
//!
//! ```text
//! exit of a process ─┐             ┌─▶ counts ──▶ Metrics
//! bound of a mailbox ┼─▶ DeadLetter┤
//! broadcast, timer … ┘             └─▶ subscribers, if there are any
//! ```
//!
//! Invariants:
//! 1. A message is counted once, after it has left every queue, by the thread that drops it. A
//!    message that goes back to its sender is not counted, and neither is a message of the runtime's
//!    own ([`Turn::COUNTED`](crate::Turn)).
//! 2. Only code that drops a message runs anything of this file. Without a subscriber, that is an
//!    addition under a lock that few other threads use.
//! 3. No code of users runs under a lock: subscribers are woken after it.

use crate::address::Pid;
use crate::exit::{ExitReason, catch};
use crate::mailbox::bound::Overflow;
use crate::scheduler::{self, watchdog::TurnTitle};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Reason why a message was dropped unhandled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DropReason {
    /// The process exited while the message waited in its mailbox: it stopped, was killed, or the
    /// runtime shut down.
    Exit,
    /// The process panicked while the message waited in its mailbox. The message whose handler
    /// panicked is not counted.
    Panic,
    /// The mailbox had no room, and its bound has this policy. With [`Overflow::Wait`] and
    /// [`Overflow::Reject`] only the messages of a broadcast are dropped: a single message
    /// goes back to its sender.
    Overflow(Overflow),
    /// The budget of all mailboxes was used up. Only the messages of a broadcast are
    /// dropped: a single message goes back to its sender.
    Budget,
    /// The process had exited before the message came, and no sender waited for an answer: the
    /// message of a timer, of a broadcast, of an attached stream, or a piped result. A timer
    /// that was set before the exit ends with the process and is not counted.
    NoProcess,
    /// The process's [layer](crate::layer::Layer) refused the message: for a durable process, its
    /// entity was given up before the message was handled.
    Refused,
}

impl DropReason {
    /// Array of all reasons, in the order of the metrics.
    pub const ALL: [DropReason; 9] = [
        DropReason::Exit,
        DropReason::Panic,
        DropReason::Overflow(Overflow::Wait),
        DropReason::Overflow(Overflow::Reject),
        DropReason::Overflow(Overflow::DropNewest),
        DropReason::Overflow(Overflow::DropOldest),
        DropReason::Budget,
        DropReason::NoProcess,
        DropReason::Refused,
    ];

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Exit => "exit",
            DropReason::Panic => "panic",
            DropReason::Overflow(Overflow::Wait) => "full",
            DropReason::Overflow(Overflow::Reject) => "rejected",
            DropReason::Overflow(Overflow::DropNewest) => "newest",
            DropReason::Overflow(Overflow::DropOldest) => "oldest",
            DropReason::Budget => "budget",
            DropReason::NoProcess => "no_process",
            DropReason::Refused => "refused",
        }
    }

    pub(crate) fn of_exit(reason: &ExitReason) -> DropReason {
        match reason {
            ExitReason::Panicked(_) => DropReason::Panic,
            _ => DropReason::Exit,
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of messages that processes of a type have lost for a reason.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DroppedMessages {
    /// Name of the processes' type, with its path.
    pub process: &'static str,
    /// Reason why the messages were dropped.
    pub reason: DropReason,
    /// Number of messages since the start of the runtime.
    pub messages: u64,
}

/// Messages of a type that were dropped together, unhandled. Sent to the subscribers of
/// [`RuntimeHandle::dead_letters`](crate::RuntimeHandle::dead_letters).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Pid of the process that would have handled the messages.
    pub to: Pid,
    /// Name of the process's type, with its path.
    pub process: &'static str,
    /// Name of the messages' type, with its path.
    pub message: &'static str,
    /// Reason why the messages were dropped.
    pub reason: DropReason,
    /// Number of messages, at least 1.
    pub messages: u64,
}

impl DeadLetter {
    pub(crate) fn of(title: &TurnTitle, to: Pid, reason: DropReason, messages: u64) -> DeadLetter {
        DeadLetter { to, process: title.process(), message: title.message(), reason, messages }
    }
}

/// Subscription to the messages that a runtime drops unhandled. Returned by
/// [`RuntimeHandle::dead_letters`](crate::RuntimeHandle::dead_letters); dropping it ends the subscription.
#[derive(Debug)]
pub struct DeadLetters {
    letters: mpsc::Receiver<DeadLetter>,
    missed: Arc<AtomicU64>,
}

impl DeadLetters {
    /// Waits for the next letter; `None` if the runtime is over and no letter is left. A receive that is
    /// dropped has taken none.
    pub async fn recv(&mut self) -> Option<DeadLetter> {
        self.letters.recv().await
    }

    /// Takes the next letter without waiting.
    pub fn try_recv(&mut self) -> Option<DeadLetter> {
        self.letters.try_recv().ok()
    }

    /// Returns the number of dropped messages without a letter, because the subscription was full.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

const fn mpsc_most() -> usize {
    tokio::sync::Semaphore::MAX_PERMITS
}

/// Number of locks over which the counts are spread.
const SHARDS: usize = 16;

/// Dropped messages of a runtime.
#[derive(Default)]
pub(crate) struct Drops {
    shards: [Shard; SHARDS],
    is_heard: AtomicBool,
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<FxHashMap<(&'static str, DropReason), u64>>);

#[derive(Clone)]
struct Subscriber {
    letters: mpsc::Sender<DeadLetter>,
    missed: Arc<AtomicU64>,
}

impl Drops {
    #[cold]
    pub(crate) fn count(&self, letter: DeadLetter) {
        if letter.messages == 0 {
            return;
        }
        let shard = scheduler::with_worker(|worker| worker.map_or(0, |worker| 1 + worker.index()));
        let counts = &self.shards[shard % SHARDS].0;
        *lock(counts).entry((letter.process, letter.reason)).or_default() += letter.messages;
        // Relaxed: a subscriber gets no letters from before its subscription.
        if self.is_heard.load(Ordering::Relaxed) {
            self.report(letter);
        }
    }

    fn report(&self, letter: DeadLetter) {
        let subscribers = lock(&self.subscribers).clone();
        let mut has_closed = false;
        for Subscriber { letters, missed } in subscribers {
            // Wakes the subscriber by its own waker, which may be the user's.
            let sent = catch(|| letters.try_send(letter.clone()));
            match sent {
                Ok(Err(mpsc::error::TrySendError::Full(_))) => {
                    missed.fetch_add(letter.messages, Ordering::Relaxed);
                }
                Ok(Err(mpsc::error::TrySendError::Closed(_))) => has_closed = true,
                Ok(Ok(())) | Err(_) => {}
            }
        }
        if has_closed {
            let mut subscribers = lock(&self.subscribers);
            subscribers.retain(|subscriber| !subscriber.letters.is_closed());
            self.is_heard.store(!subscribers.is_empty(), Ordering::Relaxed);
        }
    }

    /// Subscribes to the messages that are dropped from here on. At most `capacity` letters wait, at least 1.
    pub(crate) fn subscribe(&self, capacity: usize) -> DeadLetters {
        // More places than that are out of reach.
        let capacity = capacity.clamp(1, mpsc_most());
        let (sender, letters) = mpsc::channel(capacity);
        let missed = Arc::<AtomicU64>::default();
        let mut subscribers = lock(&self.subscribers);
        subscribers.push(Subscriber { letters: sender, missed: missed.clone() });
        self.is_heard.store(true, Ordering::Relaxed);
        DeadLetters { letters, missed }
    }

    pub(crate) fn all(&self) -> Vec<DroppedMessages> {
        let mut all = BTreeMap::new();
        for Shard(counts) in &self.shards {
            for (&key, &messages) in &*lock(counts) {
                *all.entry(key).or_default() += messages;
            }
        }
        let dropped = |((process, reason), messages)| DroppedMessages { process, reason, messages };
        all.into_iter().map(dropped).collect()
    }

    /// Ends all subscriptions and forgets the counts.
    pub(crate) fn clear(&self) {
        let subscribers = std::mem::take(&mut *lock(&self.subscribers));
        self.is_heard.store(false, Ordering::Relaxed);
        self.shards.iter().for_each(|Shard(counts)| lock(counts).clear());
        // Wakes the subscribers.
        let _ = catch(|| drop(subscribers));
    }
}
