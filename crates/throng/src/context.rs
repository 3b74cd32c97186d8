//! What a handler knows of its own process.

use crate::address::Address;
use crate::cell::Inside;
use crate::exit::ExitReason;
use crate::frame::After;
use crate::process::Process;
use crate::runtime::RuntimeHandle;
use std::marker::PhantomData;

/// A handler's view of its own process.
///
/// ```
/// # use throng::prelude::*;
/// struct Counter { left: u32 }
/// impl Process for Counter {}
/// struct Tick;
/// impl Message for Tick { type Reply = (); }
/// impl Handle<Tick> for Counter {
///     async fn handle(&mut self, _: Tick, cx: &mut Context<Self>) {
///         self.left -= 1;
///         if self.left == 0 {
///             cx.stop(ExitReason::Normal);
///         }
///     }
/// }
/// ```
pub struct Context<P> {
    inside: Inside,
    after: After,
    process: PhantomData<fn(P)>,
}

impl<P: Process> Context<P> {
    pub(crate) fn new(inside: Inside) -> Context<P> {
        Context { inside, after: After::Next, process: PhantomData }
    }

    pub(crate) fn into_after(self) -> After {
        self.after
    }

    /// The address of this process.
    pub fn address(&self) -> Address<P> {
        Address::from_raw(self.inside.address())
    }

    /// The runtime this process lives in.
    pub fn runtime(&self) -> &RuntimeHandle {
        self.inside.runtime()
    }

    /// What [`spawn_attached`](RuntimeHandle::spawn_attached) gave along, if it is a `T`.
    pub fn attachment<T: 'static>(&mut self) -> Option<&mut T> {
        self.inside.attachment()?.downcast_mut()
    }

    /// Exits when this turn is over, with a reason.
    ///
    /// Messages still queued are dropped, and their callers told the reason. The reply of this
    /// turn is sent.
    pub fn stop(&mut self, reason: ExitReason) {
        self.after = After::Exit(reason);
    }

    /// Exits when this turn is over, but only if at that instant no message is queued.
    ///
    /// Check and exit are one step, so no message is lost: each is either handled here, or handed
    /// back to a sender that came too late.
    pub fn stop_if_idle(&mut self) {
        if matches!(self.after, After::Next) {
            self.after = After::ExitIfIdle;
        }
    }
}
