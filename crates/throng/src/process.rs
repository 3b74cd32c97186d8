//! What a user implements: processes, messages, handlers; and the turn, of which those are made.

use crate::address::Pid;
use crate::exit::ExitReason;
use crate::turn::context::Context;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll;

/// The state of a process: any value that can move between threads.
///
/// A process handles one message at a time, from the first line of its handler to the last, also
/// across `await`s: its state needs no lock. Nobody else can see the state.
///
/// ```
/// use throng::prelude::*;
///
/// struct Account { balance: u64 }
/// impl Process for Account {}
/// ```
///
/// Cost: a live process takes one slot of 48 bytes plus its state, rounded up to 64, 128, 192 or
/// 256 bytes (above that the steps are wider). The hooks cost nothing where they are not
/// overridden.
pub trait Process: Sized + Send + 'static {
    /// Runs before the first message; up to where it first waits, also before any signal.
    ///
    /// So a process that [traps exits](Context::trap_exits) from here on traps all of them.
    fn started(&mut self, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = cx;
        Nothing
    }

    /// Runs after the last message, on any exit short of a kill, a panic included.
    ///
    /// What is still queued, and what is sent while this runs, is dropped after it, and callers
    /// are told; a kill ends this too.
    fn stopping(
        &mut self,
        reason: &ExitReason,
        cx: &mut Context<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (reason, cx);
        Nothing
    }

    /// A process that this one [monitors](Context::monitor) has exited.
    ///
    /// Comes after all that the other had sent to this one, once for each monitor.
    fn down(&mut self, down: Down, cx: &mut Context<Self>) -> impl Future<Output = ()> + Send {
        let _ = (down, cx);
        Nothing
    }

    /// An exit signal has come, and this process [traps](Context::trap_exits) them.
    ///
    /// The exit of the process that spawned this one [linked](Context::spawn_linked) does not get
    /// here: this one then exits too, in order, as OTP's behaviours do.
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

/// Told of a monitored process's end, by [`Process::down`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Down {
    /// Which monitor has fired.
    pub monitor: MonitorRef,
    /// Which process has exited.
    pub pid: Pid,
    /// Why; [`ExitReason::NoProcess`] if it had exited before it was monitored.
    pub reason: ExitReason,
}

/// An exit signal that was trapped; see [`Process::exit`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Exit {
    /// The linked process that has exited, or the one that sent the signal; none if it came from
    /// outside of all processes.
    pub pid: Option<Pid>,
    /// Why it has exited, or wants this process to.
    pub reason: ExitReason,
}

/// A monitor, as the process that made it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MonitorRef {
    pid: Pid,
    number: u32,
}

impl MonitorRef {
    pub(crate) fn new(pid: Pid, number: u32) -> MonitorRef {
        MonitorRef { pid, number }
    }

    /// Which process is monitored.
    pub fn pid(self) -> Pid {
        self.pid
    }

    pub(crate) fn number(self) -> u32 {
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
    /// What a call with this message returns.
    type Reply: Send + 'static;
}

/// How a process handles one type of message.
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
/// Any tokio timer, socket or client may be awaited. What should not happen is blocking the thread:
/// a spare worker then takes over, and a warning names the process and the message, but not before
/// some milliseconds ([`stuck_after`](crate::RuntimeBuilder::stuck_after)).
///
/// Cost: a handler that finishes without suspending is polled once in place, about as fast as a
/// function call. One that suspends keeps the memory of its future until it is done.
///
/// # Panics
/// A panic ends this process with [`ExitReason::Panicked`], drops its state, and reaches nobody
/// else; callers get [`CallError::Died`](crate::CallError::Died).
pub trait Handle<M: Message>: Process {
    /// Handles one message.
    fn handle(
        &mut self,
        message: M,
        cx: &mut Context<Self>,
    ) -> impl Future<Output = M::Reply> + Send;
}

/// What a mailbox holds: anything that can run as one turn of a `P`.
///
/// Each [`Message`] that `P` handles is one; users need nothing else. A layer on top implements
/// it for types of its own, to wrap a handler: the durable layer runs the handler and then waits
/// for the disk, all in one turn.
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
    /// What a call with it returns.
    type Reply: Send + 'static;

    /// Whether bounds and budget hold a call with it up. Only the runtime's own go past them.
    #[doc(hidden)]
    const COUNTED: bool = true;

    /// Whether a [`Layer`](crate::Layer) is asked before it begins. Only a layer's own turns go past
    /// that.
    const LAYERED: bool = true;

    /// Runs the turn.
    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = Self::Reply> + Send;
}

impl<P: Handle<M>, M: Message> Turn<P> for M {
    type Reply = M::Reply;

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = M::Reply> + Send {
        process.handle(self, cx)
    }
}

/// A message that a timer can send again and again: any that is [`Clone`].
///
/// See [`RuntimeHandle::send_every`](crate::RuntimeHandle::send_every). The trait asks for nothing
/// more; the compiler's complaint about a message without `Clone` is better.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent again and again: it is not `Clone`",
    label = "each period sends a clone of this message",
    note = "for a message made by `#[process]`, write `#[message(derive(Clone))]` on its method",
    note = "for a message type of your own, write `#[derive(Clone)]` on the type"
)]
pub trait Repeatable: Clone {}

#[diagnostic::do_not_recommend]
impl<T: Clone> Repeatable for T {}

/// Which type of process something leads to, and no other: neither a subtype nor a supertype will
/// do. For turns that run there are given the state as a `P`, and what one type of function may be
/// called with, another may keep.
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
/// // What borrows may stand where what keeps is wanted, but not as the process that it is.
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

/// The future of a hook nobody has written: told from any other, at compile time, by a layout that
/// nobody else's has.
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

/// The turn that runs [`Process::down`].
pub(crate) struct DownTurn(pub(crate) Down);

impl<P: Process> Turn<P> for DownTurn {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        // Unless it was demonitored meanwhile.
        if cx.forget_monitor(self.0.monitor) {
            process.down(self.0, cx).await;
        }
    }
}

/// The turn that runs [`Process::exit`].
pub(crate) struct ExitTurn(pub(crate) Exit);

impl<P: Process> Turn<P> for ExitTurn {
    type Reply = ();

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

    /// Does all its work before it returns a future of no size.
    struct Early;
    impl Process for Early {
        fn started(&mut self, _: &mut Context<Self>) -> impl Future<Output = ()> + Send {
            std::future::poll_fn(|_| Poll::Ready(()))
        }
    }

    #[test]
    fn missing_hooks_are_told_from_empty_ones() {
        const { assert!(!has_started::<Bare>() && !has_stopping::<Bare>()) };
        const { assert!(!has_timeout::<Bare>() && has_timeout::<Hooked>()) };
        const { assert!(has_started::<Early>() && !has_stopping::<Early>()) };
        const { assert!(has_started::<Hooked>() && has_stopping::<Hooked>()) };
    }
}
