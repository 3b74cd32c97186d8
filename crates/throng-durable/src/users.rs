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

thread_local! {
    /// Submission on which the turn builds that this thread polls.
    static SENDER: Cell<Submission> = const { Cell::new(Submission::START) };
}

/// Returns the submission on which messages build that this thread sends: that of the entity whose handler it
/// polls.
pub(crate) fn sender() -> Submission {
    SENDER.get()
}

/// Runs the future of a turn that builds on a submission until it is ready or panics.
pub(crate) async fn catch_turn<F: Future>(last: Submission, turn: F) -> Result<F::Output, Panic> {
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
