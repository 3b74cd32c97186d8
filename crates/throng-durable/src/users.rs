//! Running user code so that its panics are caught.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use throng::Panic;
use throng_store::Submission;

/// Runs user code and returns a panic of it.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    // After a panic the values that the code had borrowed are only dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(Panic::from_payload)
}

/// Drops a user's value.
pub(crate) fn drop_user_value<T>(value: T) {
    if let Err(panic) = catch(|| drop(value)) {
        tracing::error!(%panic, "a value panicked as it was dropped");
    }
}

/// Submission of a turn's entity before the turn, on which what its handler sends builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// [Number](throng_store::Store::id) of the entity's store.
    pub store: u64,
    /// The entity's last submission; [`START`](Submission::START) if there is none, and outside of a handler.
    pub submission: Submission,
}

impl Sender {
    /// Nobody: a task outside of entities.
    pub const NOBODY: Sender = Sender { store: 0, submission: Submission::START };

    /// Returns the sender whose handler this thread polls.
    ///
    /// A layer that sends messages between entities of different stores needs the sender: stores commit independently
    /// of each other, so such a message waits until the submission is settled.
    pub fn current() -> Sender {
        SENDER.get()
    }

    /// Runs a function as if this sender's handler called it.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        struct Outer(Sender);
        impl Drop for Outer {
            fn drop(&mut self) {
                SENDER.set(self.0);
            }
        }
        let _outer = Outer(SENDER.replace(self));
        f()
    }
}

thread_local! {
    /// The sender whose turn this thread polls.
    static SENDER: Cell<Sender> = const { Cell::new(Sender::NOBODY) };
}

/// Returns the submission on which messages build that this thread sends: that of the entity whose handler it
/// polls.
pub(crate) fn sender() -> Submission {
    SENDER.get().submission
}

/// Runs the future of a turn that builds on a submission until it is ready or panics.
pub(crate) async fn catch_turn<F: Future>(last: Sender, turn: F) -> Result<F::Output, Panic> {
    let mut turn = pin!(turn);
    poll_fn(|cx| {
        let outer = SENDER.replace(last);
        let polled = catch(|| turn.as_mut().poll(cx));
        SENDER.set(outer);
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
