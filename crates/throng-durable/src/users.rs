//! Running user code so that its panics are caught.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use throng::ExitReason;

/// Runs user code; the error is the text of its panic.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    // After a panic the values that the code had borrowed are only dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| match ExitReason::from_panic(payload) {
        ExitReason::Panicked(text) => text,
        reason => reason.to_string().into(),
    })
}

/// Drops a user's value.
pub(crate) fn drop_user_value<T>(value: T) {
    if let Err(panic) = catch(|| drop(value)) {
        tracing::error!(%panic, "a value panicked as it was dropped");
    }
}

/// Runs a future until it is ready or panics.
pub(crate) async fn catch_future<F: Future>(future: F) -> Result<F::Output, Arc<str>> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch(|| future.as_mut().poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(text) => Poll::Ready(Err(text)),
    })
    .await
}
