//! [`Ticket`], the future of one write, and its other end, [`Completion`].
//!
//! One small allocation is shared by the two. The lock inside is held for a few instructions and
//! never while foreign code (a waker) runs.
//!
//! Invariant: every ticket resolves. A completion that is dropped unused, which happens only if
//! the writer thread dies, resolves it as [`WriteError::Unknown`].

use std::future::Future;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::WriteError;

/// The outcome of one [`Store::write`](crate::Store::write): a future that resolves when the batch
/// is durable, or surely not, or unknowable.
///
/// Dropping a ticket does **not** take the write back: an accepted batch is committed whether
/// anyone waits for it or not.
///
/// # Panics
///
/// When polled again after it has resolved.
#[must_use = "without its ticket nobody knows whether the write became durable"]
#[derive(Debug)]
pub struct Ticket(State);

#[derive(Debug)]
enum State {
    /// Refused at the door: nothing to wait for.
    Refused(Option<Box<WriteError>>),
    Accepted(Arc<Slot>),
}

/// The end that the writer thread holds.
#[derive(Debug)]
pub(crate) struct Completion(Option<Arc<Slot>>);

#[derive(Debug)]
struct Slot(Mutex<Progress>);

#[derive(Debug)]
enum Progress {
    Waiting(Option<Waker>),
    Done(Result<(), WriteError>),
    Taken,
}

/// A connected pair.
pub(crate) fn ticket() -> (Ticket, Completion) {
    let slot = Arc::new(Slot(Mutex::new(Progress::Waiting(None))));
    (Ticket(State::Accepted(slot.clone())), Completion(Some(slot)))
}

impl Ticket {
    pub(crate) fn refused(error: WriteError) -> Ticket {
        Ticket(State::Refused(Some(Box::new(error))))
    }

    /// Waits on this thread. For code outside async; in a handler, `.await` the ticket instead.
    ///
    /// # Errors
    ///
    /// As awaiting it.
    pub fn wait(self) -> Result<(), WriteError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }

        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut ticket = pin!(self);
        loop {
            match ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Refused(error) => match error.take() {
                Some(error) => Poll::Ready(Err(*error)),
                None => panic!("a ticket was polled after it had resolved"),
            },
            State::Accepted(slot) => slot.lock().poll(cx),
        }
    }
}

impl Completion {
    /// Resolves the ticket. The caller wakes whoever waits, when it suits.
    #[must_use = "the waker must be woken"]
    pub(crate) fn complete(mut self, outcome: Result<(), WriteError>) -> Option<Waker> {
        self.0.take().and_then(|slot| slot.lock().finish(outcome))
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let source = io::Error::other("the writer thread ended");
            let waker = slot.lock().finish(Err(WriteError::Unknown { source }));
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // No step below leaves the value half changed, so a panic elsewhere does not matter.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        match self {
            Progress::Waiting(Some(waker)) => waker.clone_from(cx.waker()),
            Progress::Waiting(empty) => *empty = Some(cx.waker().clone()),
            Progress::Done(_) => {
                if let Progress::Done(outcome) = mem::replace(self, Progress::Taken) {
                    return Poll::Ready(outcome);
                }
            }
            Progress::Taken => panic!("a ticket was polled after it had resolved"),
        }
        Poll::Pending
    }

    fn finish(&mut self, outcome: Result<(), WriteError>) -> Option<Waker> {
        match mem::replace(self, Progress::Done(outcome)) {
            Progress::Waiting(waker) => waker,
            Progress::Done(_) | Progress::Taken => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Batch;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_latest_waker_is_woken_once() {
        let (mut ticket, completion) = ticket();
        let counts: [Arc<Count>; 2] = Default::default();
        for count in &counts {
            let waker = Waker::from(count.clone());
            assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        completion.complete(Ok(())).unwrap().wake();
        let woken = counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
        assert!(matches!(ticket.wait(), Ok(())));
    }

    #[test]
    fn a_lost_completion_resolves_as_unknown() {
        let (ticket, completion) = ticket();
        let waiting = thread::spawn(move || ticket.wait());
        drop(completion);
        assert!(matches!(waiting.join().unwrap(), Err(WriteError::Unknown { .. })));
    }

    #[test]
    fn a_refused_ticket_hands_the_batch_back() {
        let batch = Batch::new().put("key", "value");
        let ticket = Ticket::refused(WriteError::Overloaded(batch.clone()));
        assert_eq!(ticket.wait().unwrap_err().into_batch(), Some(batch));
    }
}
