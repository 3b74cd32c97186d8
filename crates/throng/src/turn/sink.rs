//! The sink of a turn: where its reply goes.

use crate::exit::{ExitReason, drop_users};
use std::marker::PhantomData;

/// Destination of a turn's reply.
pub(crate) trait Sink: Send + 'static {
    type Reply: Send + 'static;
    /// Whether this is the last turn of an exit. Such a turn requests the exit itself.
    const LAST: bool = false;
    /// Whether a layer is consulted before the answer; see `layer`.
    const LAYERED: bool = true;
    /// Whether anyone waits for the answer.
    const HAS_CALLER: bool = true;

    /// Records that the answer depends no longer on the process.
    fn detach(&self) {}
    fn deliver(self, reply: Self::Reply);
    fn fail(self, reason: &ExitReason);
}

/// Sink of a turn without a caller: drops the reply.
pub(crate) struct NoReply<const LAST: bool, R>(PhantomData<fn(R)>);

impl<const LAST: bool, R> NoReply<LAST, R> {
    pub(crate) const fn new() -> Self {
        NoReply(PhantomData)
    }
}

impl<const LAST: bool, R: Send + 'static> Sink for NoReply<LAST, R> {
    type Reply = R;
    const LAST: bool = LAST;
    const LAYERED: bool = !LAST;
    const HAS_CALLER: bool = false;

    #[inline(always)]
    fn deliver(self, reply: R) {
        drop_users(reply);
    }

    fn fail(self, _: &ExitReason) {}
}
