//! [`Updating`]: the outcome of an update, which brings back what its closure has returned.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::write::foreign;
use crate::write::update::Job;
use crate::{Ticket, Update, UpdateError, WriteError};

/// The outcome of a [`Store::update`](crate::Store::update): a future that resolves to the
/// closure's result once its writes are durable.
///
/// # Panics
///
/// When polled again after it has resolved.
#[must_use = "without the future it is unknown whether the update became durable"]
pub struct Updating<T, E> {
    ticket: Ticket,
    returned: Returned<T, E>,
}

/// Result of the last run of the closure.
type Returned<T, E> = Arc<Mutex<Option<Result<T, UpdateError<E>>>>>;

impl<T, E> Updating<T, E> {
    pub(crate) fn new(
        mut closure: impl FnMut(&mut Update<'_>) -> Result<T, E> + Send + 'static,
        push: impl FnOnce(Job) -> Ticket,
    ) -> Updating<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let returned = Returned::default();
        let job = Job::new({
            let returned = returned.clone();
            move |update| {
                let ended = foreign::call(|| closure(update));
                let rejection = update.rejection();
                let outcome = match (ended, rejection) {
                    (Some(Ok(value)), Some(rejection)) => {
                        foreign::discard(value);
                        Err(UpdateError::Rejected(rejection))
                    }
                    (Some(Ok(value)), None) => Ok(value),
                    (Some(Err(error)), _) => Err(UpdateError::Aborted(error)),
                    (None, _) => Err(UpdateError::Panicked),
                };
                let applies = outcome.is_ok();
                let earlier = {
                    let mut returned = returned.lock().unwrap_or_else(PoisonError::into_inner);
                    returned.replace(outcome)
                };
                // The outcome of an earlier run, if the group is retried.
                foreign::discard(earlier);
                applies
            }
        });
        Updating { ticket: push(job), returned }
    }

    /// Blocks this thread until the update resolves. For code outside async.
    ///
    /// # Errors
    ///
    /// The error to which the update resolves.
    pub fn wait(self) -> Result<T, UpdateError<E>> {
        resolve(self.ticket.wait(), &self.returned)
    }

    /// Makes dropping the future cancel the update; see [`Ticket::cancel_on_drop`].
    pub fn cancel_on_drop(mut self) -> Updating<T, E> {
        self.ticket = self.ticket.cancel_on_drop();
        self
    }
}

impl<T, E> Future for Updating<T, E> {
    type Output = Result<T, UpdateError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.ticket).poll(cx);
        outcome.map(|outcome| resolve(outcome, &self.returned))
    }
}

impl<T, E> fmt::Debug for Updating<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updating").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

fn resolve<T, E>(
    outcome: Result<(), WriteError>,
    returned: &Returned<T, E>,
) -> Result<T, UpdateError<E>> {
    outcome.map_err(UpdateError::Write)?;
    let returned = returned.lock().unwrap_or_else(PoisonError::into_inner).take();
    match returned {
        Some(returned) => returned,
        None => unreachable!("a group is committed after its closures have run"),
    }
}
