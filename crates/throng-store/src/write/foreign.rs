//! Calls into user code (wakers, closures, `Drop` of user values) from the store's own threads.
//!
//! A panic in such a call must not end the writer thread, which serves all other callers as well.
//! The panic is caught at the call, after the panic hook has reported it.
//!
//! Invariant: user code runs on the writer thread only through this module, and never under a lock
//! of the queue or of a ticket.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs user code. Returns `None` if it panicked.
pub(crate) fn call<R>(code: impl FnOnce() -> R) -> Option<R> {
    // State that the code leaves half done is the user's own: the store hands it nothing mutable
    // but an `Update`, which is discarded after a panic.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(returned) => Some(returned),
        Err(payload) => {
            drop_payload(payload);
            None
        }
    }
}

/// Wakes a task. If its waker panics, that task alone is not woken.
pub(crate) fn wake(waker: Waker) {
    let _ = call(move || waker.wake());
}

pub(crate) fn discard<T>(value: T) {
    let _ = call(move || drop(value));
}

/// Drops the payload of a panic, which may panic in its own `Drop`; the payload of that second
/// panic is leaked.
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        mem::forget(again);
    }
}
