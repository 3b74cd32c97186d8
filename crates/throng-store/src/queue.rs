//! [`Queue`]: the bounded way from any thread to the writer thread.
//!
//! The writer takes everything that waits at once, so the lock is held for the length of a push or
//! of a pointer swap. While one commit flushes, the next group gathers here: the slower the disk,
//! the larger the group.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::ticket::{Completion, Ticket, ticket};
use crate::{Batch, Options, Rejection, WriteError};

/// One accepted batch on its way to the disk.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) batch: Batch,
    pub(crate) completion: Completion,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Signalled only while the writer sleeps on it.
    arrival: Condvar,
    batches_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Waiting {
    requests: Vec<Request>,
    /// The sum over `requests`.
    bytes: usize,
    door: Door,
    writer_sleeps: bool,
    /// Of those who wait for room. Each is one task that holds its batch back, so the list is
    /// bounded by what the user lets run.
    crowd: Vec<Waker>,
}

/// A future that resolves when the store's queue has room, from
/// [`Store::room_for`](crate::Store::room_for).
#[must_use = "futures do nothing unless they are awaited"]
#[derive(Debug)]
pub struct Room {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Future for Room {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.queue.lock();
        // At a closed door there is nothing to wait for.
        if waiting.door != Door::Open || self.queue.fits(&waiting, self.bytes) {
            return Poll::Ready(());
        }
        waiting.crowd.push(cx.waker().clone());
        Poll::Pending
    }
}

/// Whether batches are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    Open,
    /// A commit broke off: none until the store is opened anew.
    BrokenOff,
    Closed,
}

impl Queue {
    pub(crate) fn new(options: &Options) -> Queue {
        Queue {
            waiting: Mutex::new(Waiting {
                requests: Vec::new(),
                bytes: 0,
                door: Door::Open,
                writer_sleeps: false,
                crowd: Vec::new(),
            }),
            arrival: Condvar::new(),
            batches_max: options.queue_batches_max,
            bytes_max: options.queue_bytes_max,
        }
    }

    /// Queues a batch that the engine can store, or hands it back.
    pub(crate) fn push(&self, batch: Batch) -> Ticket {
        if let Err(reason) = self.check(&batch) {
            return Ticket::refused(WriteError::Rejected { batch, reason });
        }
        let bytes = batch.bytes();
        let (ticket, completion) = ticket();
        let mut waiting = self.lock();
        let full = !self.fits(&waiting, bytes);
        let refusal: fn(Batch) -> WriteError = match waiting.door {
            Door::Closed => WriteError::Closed,
            Door::BrokenOff => WriteError::BrokenOff,
            Door::Open if full => WriteError::Overloaded,
            Door::Open => {
                waiting.requests.push(Request { batch, completion });
                waiting.bytes += bytes;
                let wake = mem::take(&mut waiting.writer_sleeps);
                drop(waiting);
                if wake {
                    self.arrival.notify_one();
                }
                return ticket;
            }
        };
        Ticket::refused(refusal(batch))
    }

    /// Waits for requests and takes all of them, in the order they came, leaving the emptied
    /// `spare` to gather the next. `None` once the queue is closed and drained.
    pub(crate) fn take(&self, spare: Vec<Request>) -> Option<Vec<Request>> {
        debug_assert!(spare.is_empty());
        let mut waiting = self.lock();
        while waiting.requests.is_empty() {
            if waiting.door == Door::Closed {
                return None;
            }
            waiting.writer_sleeps = true;
            waiting = self.arrival.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.writer_sleeps = false;
        waiting.bytes = 0;
        let taken = mem::replace(&mut waiting.requests, spare);
        let crowd = mem::take(&mut waiting.crowd);
        drop(waiting);
        crowd.into_iter().for_each(Waker::wake);
        Some(taken)
    }

    /// A future that resolves when the batch fits, or when none will be let in any more.
    pub(crate) fn room_for(self: &Arc<Self>, batch: &Batch) -> Room {
        // A batch that never fits shall be refused, not waited for.
        Room { queue: self.clone(), bytes: batch.bytes().min(self.bytes_max) }
    }

    /// Lets no more batches in; what is queued still goes to the disk.
    pub(crate) fn close(&self) {
        self.shut(Door::Closed);
        self.arrival.notify_one();
    }

    /// Whether batches are let in at all.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().door == Door::Open
    }

    /// Lets no more batches in because a commit broke off.
    pub(crate) fn break_off(&self) {
        self.shut(Door::BrokenOff);
    }

    /// Closes the queue and takes what is left, for a writer that ends early.
    pub(crate) fn abandon(&self) -> Vec<Request> {
        self.shut(Door::Closed);
        mem::take(&mut self.lock().requests)
    }

    fn shut(&self, door: Door) {
        let mut waiting = self.lock();
        // What is closed stays closed.
        waiting.door = waiting.door.max(door);
        let crowd = mem::take(&mut waiting.crowd);
        drop(waiting);
        crowd.into_iter().for_each(Waker::wake);
    }

    fn fits(&self, waiting: &Waiting, bytes: usize) -> bool {
        waiting.requests.len() < self.batches_max
            && waiting.bytes.saturating_add(bytes) <= self.bytes_max
    }

    fn check(&self, batch: &Batch) -> Result<(), Rejection> {
        batch.check()?;
        let (bytes, bytes_max) = (batch.bytes(), self.bytes_max);
        if bytes > bytes_max {
            return Err(Rejection::BatchTooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock is held can only be an allocation that failed in `Vec::push`,
        // which leaves the list as it was.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(batches_max: usize, bytes_max: usize) -> Queue {
        Queue::new(&Options::default().queue_batches_max(batches_max).queue_bytes_max(bytes_max))
    }

    fn batch(value_bytes: usize) -> Batch {
        Batch::new().put("k", vec![0; value_bytes])
    }

    #[test]
    fn too_many_batches_are_handed_back_until_some_are_taken() {
        let queue = queue(2, 1 << 20);
        let accepted = [queue.push(batch(1)), queue.push(batch(2))];
        let refused = queue.push(batch(3)).wait();
        assert!(matches!(refused, Err(WriteError::Overloaded(handed)) if handed == batch(3)));
        let taken = queue.take(Vec::new()).unwrap();
        assert!(taken.iter().map(|request| &request.batch).eq([&batch(1), &batch(2)]));
        drop((accepted, queue.push(batch(3))));
        assert_eq!(queue.take(Vec::new()).unwrap().len(), 1);
    }

    #[test]
    fn too_many_bytes_are_handed_back() {
        let queue = queue(100, 1000);
        drop(queue.push(batch(600)));
        let refused = queue.push(batch(600)).wait();
        assert!(matches!(refused, Err(WriteError::Overloaded(_))));
        let hopeless = queue.push(batch(1000)).wait();
        assert!(matches!(
            hopeless,
            Err(WriteError::Rejected { reason: Rejection::BatchTooLarge { .. }, .. })
        ));
        drop(queue.take(Vec::new()));
        drop(queue.push(batch(600)));
        assert_eq!(queue.take(Vec::new()).unwrap().len(), 1);
    }

    #[test]
    fn those_who_wait_for_room_are_woken_when_there_is_some() {
        let poll = |room: &mut Room| Pin::new(room).poll(&mut Context::from_waker(Waker::noop()));
        let queue = Arc::new(queue(2, 1000));
        let mut room = queue.room_for(&batch(600));
        assert!(poll(&mut room).is_ready());
        drop(queue.push(batch(600)));
        assert!(poll(&mut room).is_pending());
        assert!(poll(&mut queue.room_for(&batch(1))).is_ready());

        let woken = std::thread::spawn({
            struct Unpark(std::thread::Thread);
            impl std::task::Wake for Unpark {
                fn wake(self: Arc<Self>) {
                    self.0.unpark();
                }
            }
            move || {
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                while Pin::new(&mut room).poll(&mut Context::from_waker(&waker)).is_pending() {
                    std::thread::park();
                }
            }
        });
        while queue.lock().crowd.len() < 2 {
            std::thread::yield_now();
        }
        drop(queue.take(Vec::new()));
        woken.join().unwrap();

        drop(queue.push(batch(600)));
        let mut room = queue.room_for(&batch(600));
        assert!(poll(&mut room).is_pending());
        queue.close();
        assert!(poll(&mut room).is_ready());
    }

    #[test]
    fn a_closed_queue_is_drained_and_ends() {
        let queue = queue(2, 1000);
        drop(queue.push(batch(1)));
        queue.close();
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::Closed(_))));
        assert_eq!(queue.take(Vec::new()).unwrap().len(), 1);
        assert!(queue.take(Vec::new()).is_none());
    }

    #[test]
    fn after_a_broken_commit_batches_are_refused_as_such() {
        let queue = queue(2, 1000);
        assert!(queue.is_open());
        queue.break_off();
        assert!(!queue.is_open());
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::BrokenOff(_))));
        queue.close();
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::Closed(_))));
    }
}
