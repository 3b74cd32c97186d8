//! The user's code, run so that no panic of it gets any further.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use throng::ExitReason;

/// Runs the user's code; an error is the text of its panic.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    // After a panic whatever it had borrowed is only dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| match ExitReason::from_panic(payload) {
        ExitReason::Panicked(text) => text,
        reason => reason.to_string().into(),
    })
}

/// Drops a value of the user's.
pub(crate) fn drop_users<T>(value: T) {
    if let Err(panic) = catch(|| drop(value)) {
        tracing::error!(%panic, "a value panicked as it was dropped");
    }
}

/// Runs a future to its end or to its panic.
pub(crate) async fn catch_future<F: Future>(future: F) -> Result<F::Output, Arc<str>> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch(|| future.as_mut().poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(text) => Poll::Ready(Err(text)),
    })
    .await
}
