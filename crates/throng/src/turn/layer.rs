//! A layer on top of processes: code that runs around every turn of a process, for whatever reason
//! the turn runs.
//!
//! ```text
//! message, timer, hook ──▶ begin ──▶ the turn ──▶ end ──┬─▶ reply
//!                            │                          ├─▶ hold: the layer keeps the reply, the process goes on
//!                            │                          └─▶ settle (may wait) ──▶ hold
//!                            └──▶ refused: the message is dropped, its caller gets the reason
//! ```
//!
//! Invariants: between `begin` and the return of `end`, `hold` or `settle` no other turn of the process runs. A turn that is
//! dropped in the middle, for example because its process was killed, has no `end`; the layer
//! learns of this when the layer itself is dropped with the process.

use crate::address::Address;
use crate::cell::Token;
use crate::cell::extension::Extension;
use crate::error::SpawnError;
use crate::exit::ExitReason;
use crate::runtime::RuntimeHandle;
use crate::turn::after::Progress;
use crate::turn::context::{Context, OwnContext};
use crate::turn::frame::{self, HeldReply};
use crate::turn::process::{Process, Turn};
use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;

/// Code that runs around every turn of a process: handlers, timers, `receive_timeout`, piped
/// results, the hooks `down`, `exit` and `timeout`. The layer does not run around the hook
/// `stopping`, and turns whose [`LAYERED`](Turn::LAYERED) is false begin without [`begin`].
///
/// The value is kept with the process, as an [attachment](Context::attachment), from
/// [`RuntimeHandle::spawn_layered`] on. Durable processes are built on a layer.
///
/// Cost: for processes without a layer, a read of a pointer beside the mailbox.
///
/// [`begin`]: Self::begin
pub trait Layer<P: Process>: Send + 'static {
    /// Decides whether a turn may begin.
    ///
    /// # Errors
    /// The reason why the turn is refused: the message is dropped, its caller gets
    /// [`CallError::Died`](crate::CallError::Died), and the process exits when its mailbox is
    /// empty.
    fn begin(cx: &mut Context<P>) -> Result<(), ExitReason>;

    /// Runs when a turn is over, before its reply is sent; `outcome` is an error if it panicked, and
    /// `has_caller` tells whether anyone waits for the reply.
    ///
    /// Also called after turns whose [`LAYERED`](Turn::LAYERED) is false.
    fn end(
        process: &mut P,
        cx: &mut Context<P>,
        outcome: Result<(), &ExitReason>,
        has_caller: bool,
    ) -> TurnEnd;

    /// Gets the reply of a turn whose [`end`](Self::end) has returned [`TurnEnd::Hold`], or that is settled, to give it
    /// later, from any thread. The process goes on with its next message, also after a turn that panicked. A panic of
    /// the layer in this function ends the process.
    fn hold(_: &mut Context<P>, reply: HeldReply) {
        reply.send();
    }

    /// Runs, still within the turn, after [`end`](Self::end) has returned [`TurnEnd::Settle`]: the process takes no
    /// message until the future is ready. [`hold`](Self::hold) gets the reply then.
    ///
    /// # Errors
    /// The reason that the turn's caller gets in place of the reply.
    fn settle(
        _: &mut P,
        _: &mut Context<P>,
    ) -> impl Future<Output = Result<(), ExitReason>> + Send {
        async { Ok(()) }
    }

    /// Returns the label of the process, for processes without a label of their own. Called by inspectors only, between
    /// two steps of the process; must not block.
    fn label(&self) -> Option<String> {
        None
    }
}

/// The step that follows a turn, decided by its [`Layer`].
#[derive(Debug)]
#[must_use]
pub enum TurnEnd {
    /// The reply is sent; a turn that panicked ends its process.
    Over,
    /// The turn's caller gets this reason in place of the reply. The process goes on, unless the
    /// turn or its layer stopped it.
    Refused(ExitReason),
    /// [`Layer::hold`] gets the reply.
    Hold,
    /// The process waits for [`Layer::settle`].
    Settle,
}

/// A layer's functions, for a `P`.
pub(crate) struct Around<P> {
    pub(crate) begin: fn(&mut Context<P>) -> Result<(), ExitReason>,
    pub(crate) end: fn(&mut P, &mut Context<P>, Result<(), &ExitReason>, bool) -> TurnEnd,
    pub(crate) hold: fn(&mut Context<P>, HeldReply),
    pub(crate) settle: fn(&Token, HeldReply, OwnContext<P>) -> Progress,
}

/// An [`Around`] whose type of process is not known statically.
pub(crate) type AnyAround = &'static (dyn Any + Send + Sync);

/// The layer of a process, where the types of both are not known statically.
pub(crate) trait Layered: Send {
    /// Returns the layer's functions, an [`Around`].
    fn around(&self) -> AnyAround;

    /// Returns the layer itself, as the attachment of its process.
    fn attachment(&mut self) -> &mut dyn Any;

    /// Returns the label that the layer makes for its process.
    fn label(&self) -> Option<String>;
}

struct LayerOf<P, L>(L, PhantomData<fn(P)>);

impl<P: Process, L: Layer<P>> LayerOf<P, L> {
    const AROUND: &'static Around<P> =
        &Around { begin: L::begin, end: L::end, hold: L::hold, settle: frame::settle::<P, L> };
}

impl<P: Process, L: Layer<P>> Layered for LayerOf<P, L> {
    fn around(&self) -> AnyAround {
        Self::AROUND
    }

    fn attachment(&mut self) -> &mut dyn Any {
        &mut self.0
    }

    fn label(&self) -> Option<String> {
        self.0.label()
    }
}

/// Returns the layer of the token's process, a `P`, if it has a layer.
#[cold]
pub(crate) fn of<P: Process>(token: &Token) -> Option<&'static Around<P>> {
    token.if_extension(|own| own.layer())??.downcast_ref()
}

/// The first turn of a layered process. Signals wait until this turn first waits or is over.
struct First<T>(T);

impl<P: Process, T: Turn<P>> Turn<P> for First<T> {
    type Reply = T::Reply;
    const COUNTED: bool = false;
    const LAYERED: bool = T::LAYERED;

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = T::Reply> + Send {
        cx.has_begun();
        self.0.run(process, cx)
    }
}

impl RuntimeHandle {
    /// Spawns a process with a [`Layer`] around its turns. `first` runs before all messages, in
    /// place of the hook [`started`](Process::started), which it may call.
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn); the process and its first turn are handed back.
    ///
    /// Cost: three allocations more than [`spawn`](Self::spawn).
    pub fn spawn_layered<P: Process, L: Layer<P>, T: Turn<P>>(
        &self,
        process: P,
        layer: L,
        first: T,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        let extension = Extension::layered(Box::new(LayerOf::<P, L>(layer, PhantomData)));
        let spawned = self.spawn_with_first(process, First(first), Some(Box::new(extension)), None);
        spawned.map_err(|error| error.map(|(process, First(first))| (process, first)))
    }
}
