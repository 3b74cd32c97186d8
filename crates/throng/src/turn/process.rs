//! The traits that a user implements: [`Process`], [`Message`], [`Handle`]; and [`Turn`], the form
//! in which the runtime runs every message and every hook of a process.

use crate::address::Pid;
use crate::exit::ExitReason;
use crate::signal::monitors::MonitorNumber;
use crate::turn::context::Context;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll;

/// The state of a process: any value that can move between threads.
///
/// A process handles one message at a time, from the first line of its handler to the last, also
/// across `await`s. No other code can see the state, so it needs no lock.
///
/// ```
/// use throng::prelude::*;
///
/// struct Account { balance: u64 }
/// impl Process for Account {}
/// ```
///
/// Cost: a live process takes one slot of 48 bytes plus its state, rounded up to 64, 128, 192 or
/// 256 bytes (above that the steps are wider). A hook that is not overridden costs nothing.
pub trait Process: Sized + Send + 'static {
    /// Promise that no turn of this type blocks its thread, as tokio expects of each of its tasks; `false` by
    /// default.
    ///
    /// A message from a task of a multi-threaded tokio runtime, such as the handler of a web server, is then
    /// handled by that runtime's own threads, if the process is idle: some fifty times as fast as by a worker,
    /// whose thread would have to be woken. The turn is a task of its own there, and not a part of the task
    /// that has called it.
    ///
    /// ```
    /// use throng::prelude::*;
    ///
    /// struct Basket { items: Vec<u64> }
    ///
    /// impl Process for Basket {
    ///     const NEVER_BLOCKS: bool = true;
    /// }
    /// ```
    ///
    /// A turn of such a type must not call `block_on`, drop a tokio runtime, or wait for a lock that is held
    /// across an `await`: on a thread of tokio's the first two panic, and the process exits. While it computes
    /// or blocks all the same, it holds up a thread of that tokio runtime, and with the last of them the
    /// deadline of its caller. Turns of other types may do all of that, and run on the runtime's own threads
    /// only.
    const NEVER_BLOCKS: bool = false;

    /// Runs before the first message is handled. The part before the hook's first wait also runs
    /// before any signal.
    ///
    /// A process that calls [`trap_exits`](Context::trap_exits) before the first wait of this hook
    /// traps every exit signal.
    fn started(&mut self, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = cx;
        Nothing
    }

    /// Runs after the last message is handled, on every exit except a kill; also after a panic.
    ///
    /// Messages that are still queued, or are sent while this hook runs, are dropped after it, and
    /// their callers get an error. A kill ends this hook too.
    fn stopping(
        &mut self,
        reason: &ExitReason,
        cx: &mut Context<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (reason, cx);
        Nothing
    }

    /// Runs when a process that this process [monitors](Context::monitor) has exited.
    ///
    /// Runs once for each monitor, after all messages that the exited process had sent to this
    /// process.
    fn down(&mut self, down: Down, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = (down, cx);
        Nothing
    }

    /// Runs when an exit signal arrives, if this process [traps](Context::trap_exits) exit signals.
    ///
    /// If this process was spawned [linked](Context::linked) by a parent, the parent's exit
    /// is not passed to this hook: this process then exits in order too, as OTP's behaviours do.
    fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = (exit, cx);
        Nothing
    }

    /// Runs when the time set by [`Context::receive_timeout`] has passed without a message.
    fn timeout(&mut self, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = cx;
        Nothing
    }
}

/// The end of a monitored process, as passed to [`Process::down`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Down {
    /// The monitor that has fired.
    pub monitor: MonitorRef,
    /// The process that has exited.
    pub pid: Pid,
    /// Reason of the exit; [`ExitReason::NoProcess`] if the process had exited before it was
    /// monitored.
    pub reason: ExitReason,
}

/// An exit signal that was trapped; see [`Process::exit`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Exit {
    /// The linked process that has exited, or the process that sent the signal; `None` if the
    /// signal came from outside of all processes.
    pub pid: Option<Pid>,
    /// Reason for which the linked process has exited, or for which this process is asked to exit.
    pub reason: ExitReason,
}

/// Identifies a monitor; returned by [`Context::monitor`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MonitorRef {
    pid: Pid,
    number: MonitorNumber,
}

impl MonitorRef {
    pub(crate) fn new(pid: Pid, number: MonitorNumber) -> MonitorRef {
        MonitorRef { pid, number }
    }

    /// Returns the pid of the monitored process.
    pub fn pid(self) -> Pid {
        self.pid
    }

    pub(crate) fn number(self) -> MonitorNumber {
        self.number
    }
}

/// A message and the type of its reply.
///
/// ```
/// use throng::prelude::*;
///
/// struct Deposit(u64);
/// impl Message for Deposit { type Reply = u64; }
/// ```
pub trait Message: Send + 'static {
    /// Type of the value that a call with this message returns.
    type Reply: Send + 'static;
}

/// The handler of a process for messages of type `M`.
///
/// ```
/// # use throng::prelude::*;
/// # struct Account { balance: u64 }
/// # impl Process for Account {}
/// # struct Deposit(u64);
/// # impl Message for Deposit { type Reply = u64; }
/// impl Handle<Deposit> for Account {
///     async fn handle(&mut self, Deposit(amount): Deposit, _: &mut Context<Self>) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
/// }
/// ```
///
/// A handler may await any tokio timer, socket or client. A handler should not block its thread:
/// the processes queued behind it wait until, after some milliseconds
/// ([`stuck_after`](crate::RuntimeBuilder::stuck_after)), a spare worker takes them over and a
/// warning names the process and the message.
///
/// Cost: a handler that finishes without suspending is polled once in place, about as fast as a
/// function call. A handler that suspends takes memory for its future until the handler is done.
///
/// # Panics
/// A panic ends only this process, with [`ExitReason::Panicked`], and drops its state. Its callers
/// get [`CallError::Died`](crate::CallError::Died).
pub trait Handle<M: Message>: Process {
    /// Whether the handler leaves the state as it is. `#[process]` sets the constant for a method
    /// with `&self`; set it in an `impl` by hand only if the handler just reads the state.
    ///
    /// The runtime ignores it. A layer may rely on it: the durable layer does not encode the state
    /// after such a turn, so a change that the handler makes after all, such as through a cell or a
    /// lock, is not stored with that turn.
    const READ_ONLY: bool = false;

    /// Handles a message, and returns the reply to its caller.
    fn handle(
        &mut self,
        message: M,
        cx: &mut Context<Self>,
    ) -> impl Future<Output = M::Reply> + Send;
}

/// An item of a mailbox that can run as a turn of a `P`.
///
/// Each [`Message`] that `P` handles is a turn, and most programs need no other. A layer on top
/// implements this trait for types of its own, to wrap a handler: the durable layer runs the
/// handler and then waits for the disk, all in the same turn.
///
/// ```
/// use throng::prelude::*;
///
/// struct Account { balance: u64 }
/// impl Process for Account {}
///
/// /// Runs a closure on the state.
/// struct Apply<F>(F);
/// impl<P: Process, R: Send + 'static, F> Turn<P> for Apply<F>
/// where
///     F: FnOnce(&mut P) -> R + Send + 'static,
/// {
///     type Reply = R;
///     async fn run(self, process: &mut P, _: &mut Context<P>) -> R {
///         (self.0)(process)
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let account = runtime.spawn(Account { balance: 3 })?;
/// let balance = runtime.block_on(async |_| account.call(Apply(|a: &mut Account| a.balance)).await)?;
/// assert_eq!(balance, 3);
/// # Ok(())
/// # }
/// ```
pub trait Turn<P: Process>: Send + 'static {
    /// Type of the value that a call with this turn returns.
    type Reply: Send + 'static;

    /// Whether mailbox bounds and the mailbox budget apply to a call with this turn, and whether it is
    /// counted if it is dropped unhandled; `false` only for turns of the runtime itself.
    #[doc(hidden)]
    const COUNTED: bool = true;

    /// Whether the process's [`Layer`](crate::layer::Layer) is asked before this turn begins; `false` only
    /// for a layer's own turns and for requests to stop.
    const LAYERED: bool = true;

    /// Whether the turn leaves the state as it is; the turn of a message has the constant of its
    /// [handler](Handle::READ_ONLY).
    const READ_ONLY: bool = false;

    /// Runs the turn on the state of the process, and returns the reply to the caller.
    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = Self::Reply> + Send;
}

impl<P: Handle<M>, M: Message> Turn<P> for M {
    type Reply = M::Reply;
    const READ_ONLY: bool = <P as Handle<M>>::READ_ONLY;

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = M::Reply> + Send {
        process.handle(self, cx)
    }
}

/// A message that a timer can send again and again: any type that is [`Clone`].
///
/// See [`RuntimeHandle::send_every`](crate::RuntimeHandle::send_every). The trait requires nothing
/// beyond `Clone`. Its purpose is a clear compiler error for a type without `Clone`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent again and again: it is not `Clone`",
    label = "each period sends a clone of this message",
    note = "for a message made by `#[process]`, write `#[message(derive(Clone))]` on its method",
    note = "for a message type of your own, write `#[derive(Clone)]` on the type"
)]
pub trait Repeatable: Clone {}

#[diagnostic::do_not_recommend]
impl<T: Clone> Repeatable for T {}

/// Marker that makes a type invariant in the process type `P`, so that neither a subtype nor a
/// supertype of `P` can take its place. A turn is given the state as a `P`: with a subtype,
/// functions in the state that keep their `'static` argument could be called with a borrowed value.
///
/// ```
/// use throng::{Child, prelude::*};
///
/// struct Holder<F>(F);
/// impl<F: Send + 'static> Process for Holder<F> {}
///
/// type Keeps = Holder<fn(&'static u8)>;
/// type Borrows = Holder<for<'a> fn(&'a u8)>;
///
/// // `Borrows` is a subtype of `Keeps`; an `Address`, a `Context` or a `Child` has no subtype.
/// fn function(process: Borrows) -> Keeps { Holder(process.0) }
/// fn address(process: Address<Keeps>) -> Address<Keeps> { process }
/// fn context<'c>(process: &'c Context<Keeps>) -> &'c Context<Keeps> { process }
/// fn child(process: Child<Keeps>) -> Child<Keeps> { process }
/// ```
///
/// ```compile_fail,E0308
/// # use throng::prelude::*;
/// # struct Holder<F>(F);
/// # impl<F: Send + 'static> Process for Holder<F> {}
/// # type Keeps = Holder<fn(&'static u8)>;
/// # type Borrows = Holder<for<'a> fn(&'a u8)>;
/// fn address(process: Address<Keeps>) -> Address<Borrows> { process }
/// ```
///
/// ```compile_fail,E0308
/// # use throng::prelude::*;
/// # struct Holder<F>(F);
/// # impl<F: Send + 'static> Process for Holder<F> {}
/// # type Keeps = Holder<fn(&'static u8)>;
/// # type Borrows = Holder<for<'a> fn(&'a u8)>;
/// fn context<'c>(process: &'c Context<Keeps>) -> &'c Context<Borrows> { process }
/// ```
///
/// ```compile_fail,E0308
/// # use throng::{Child, prelude::*};
/// # struct Holder<F>(F);
/// # impl<F: Send + 'static> Process for Holder<F> {}
/// # type Keeps = Holder<fn(&'static u8)>;
/// # type Borrows = Holder<for<'a> fn(&'a u8)>;
/// fn child(process: Child<Keeps>) -> Child<Borrows> { process }
/// ```
///
pub(crate) type Exactly<P> = PhantomData<fn(P) -> P>;

/// The future of a hook that is not overridden. Its layout, zero bytes aligned to 512,
/// distinguishes this future from every other at compile time.
#[repr(align(512))]
struct Nothing;

impl Future for Nothing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Whether `P` overrides [`Process::started`].
pub const fn has_started<P: Process>() -> bool {
    const fn is<'a, P: 'a, F>(_: &impl FnOnce(&'a mut P, &'a mut Context<P>) -> F) -> bool {
        is_written::<F>()
    }
    is(&P::started)
}

/// Whether `P` overrides [`Process::stopping`].
pub(crate) const fn has_stopping<P: Process>() -> bool {
    const fn is<'a, P: 'a, F>(
        _: &impl FnOnce(&'a mut P, &'a ExitReason, &'a mut Context<P>) -> F,
    ) -> bool {
        is_written::<F>()
    }
    is(&P::stopping)
}

/// Whether `P` overrides [`Process::timeout`].
pub(crate) const fn has_timeout<P: Process>() -> bool {
    const fn is<'a, P: 'a, F>(_: &impl FnOnce(&'a mut P, &'a mut Context<P>) -> F) -> bool {
        is_written::<F>()
    }
    is(&P::timeout)
}

/// Whether `F` is not the future of a default hook, by the layout of [`Nothing`].
const fn is_written<F>() -> bool {
    size_of::<F>() != 0 || align_of::<F>() != align_of::<Nothing>()
}

/// The turn that runs [`Process::started`].
pub(crate) struct Started;

impl<P: Process> Turn<P> for Started {
    type Reply = ();

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = ()> + Send {
        cx.has_begun();
        process.started(cx)
    }
}

/// The turn that runs [`Process::stopping`].
pub(crate) struct Stopping(pub(crate) ExitReason);

impl<P: Process> Turn<P> for Stopping {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        process.stopping(&self.0, cx).await;
        cx.stop(self.0);
    }
}

/// The turn that runs [`Process::down`]. Without the pid of [`Down`], which the monitor has too, its
/// message takes the smallest block.
pub(crate) struct DownTurn {
    monitor: MonitorRef,
    reason: ExitReason,
}

const _: () = assert!(size_of::<DownTurn>() <= 48, "a notification takes one small block");

impl From<Down> for DownTurn {
    fn from(Down { monitor, pid: _, reason }: Down) -> DownTurn {
        DownTurn { monitor, reason }
    }
}

impl<P: Process> Turn<P> for DownTurn {
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        // False if the process has removed the monitor meanwhile.
        let DownTurn { monitor, reason } = self;
        if cx.forget_monitor(monitor) {
            process.down(Down { monitor, pid: monitor.pid(), reason }, cx).await;
        }
    }
}

/// The turn that runs [`Process::exit`].
pub(crate) struct ExitTurn(pub(crate) Exit);

impl<P: Process> Turn<P> for ExitTurn {
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if cx.obeys(self.0.pid) {
            cx.stop(self.0.reason);
        } else {
            process.exit(self.0, cx).await;
        }
    }
}

/// The turn that runs [`Process::timeout`].
pub(crate) struct TimedOut;

impl<P: Process> Turn<P> for TimedOut {
    type Reply = ();

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = ()> + Send {
        process.timeout(cx)
    }
}

/// The turn by which an address asks its process to stop.
pub(crate) struct Stop;

impl<P: Process> Turn<P> for Stop {
    type Reply = ();
    const COUNTED: bool = false;
    const LAYERED: bool = false;

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        cx.stop(ExitReason::Normal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bare;
    impl Process for Bare {}

    struct Hooked;
    impl Process for Hooked {
        async fn started(&mut self, _: &mut Context<Self>) {}
        async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {}
        async fn timeout(&mut self, _: &mut Context<Self>) {}
    }

    /// A process whose `started` returns a zero-sized future, but not the default one.
    struct Early;
    impl Process for Early {
        fn started(&mut self, _: &mut Context<Self>) -> impl Future<Output = ()> + Send {
            std::future::poll_fn(|_| Poll::Ready(()))
        }
    }

    #[test]
    fn a_missing_hook_differs_from_an_empty_one() {
        const { assert!(!has_started::<Bare>() && !has_stopping::<Bare>()) };
        const { assert!(!has_timeout::<Bare>() && has_timeout::<Hooked>()) };
        const { assert!(has_started::<Early>() && !has_stopping::<Early>()) };
        const { assert!(has_started::<Hooked>() && has_stopping::<Hooked>()) };
    }
}
