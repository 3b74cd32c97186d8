//! The context of a handler: its view of its own process.

use crate::address::message_timer::{self, Timer};
use crate::address::{Address, Pid};
use crate::cell::CurrentProcess;
use crate::cell::extension::{Extension, TellDown};
use crate::exit::ExitReason;
use crate::mailbox::envelope::Cast;
use crate::runtime::RuntimeHandle;
use crate::signal::monitors::Watcher;
use crate::signal::{self, Signal};
use crate::timer::Tick;
use crate::turn::after::{After, BoxedReason};
use crate::turn::process::{self, DownTurn, Exactly, MonitorRef, Process, Repeatable, Turn};
use crate::turn::receive_timeout;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::Duration;

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
///
/// A context is unsized: it is used through the reference that a handler gets, and cannot be moved, swapped or
/// replaced. So two turns that meet on one thread keep their own.
///
/// ```compile_fail,E0277
/// # use throng::prelude::*;
/// fn swap<P>(one: &mut Context<P>, other: &mut Context<P>) {
///     std::mem::swap(one, other);
/// }
/// ```
// `Tail` is `[()]` wherever user code sees a context. Only the runtime makes contexts, with a sized tail.
pub struct Context<P, Tail: ?Sized = [()]> {
    current: CurrentProcess,
    /// The two parts of the step that follows this turn. A context is a part of every turn's frame,
    /// and smaller than if it held an [`After`].
    reason: BoxedReason,
    step: Step,
    /// Receive timeout in milliseconds, plus one; in the step `Wait`, the tick at which it ends.
    timeout: Option<NonZeroU32>,
    process: Exactly<P>,
    _tail: Tail,
}

/// A context as the runtime holds it, and lends it to a turn as a [`Context`].
pub(crate) type OwnContext<P> = Context<P, [(); 0]>;

/// An [`After`] without its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Step {
    Next,
    /// Next, with the receive timeout of an earlier turn.
    Wait,
    Exit,
    ExitIfIdle,
    Kill,
    Ended,
}

// With the head of a frame and the usual small future this fills a block of 64 bytes.
const _: () = assert!(size_of::<OwnContext<()>>() == 24, "a context has three words");

impl<P: Process> OwnContext<P> {
    pub(crate) fn new(current: CurrentProcess) -> OwnContext<P> {
        Context {
            current,
            reason: BoxedReason::NORMAL,
            step: Step::Next,
            timeout: None,
            process: PhantomData,
            _tail: [],
        }
    }

    /// Ends the turn: sets the receive timeout, if there is one, and returns the next step.
    pub(crate) fn into_after(self) -> After {
        if self.step == Step::Wait {
            if let Some(at) = self.timeout.and_then(|at| Tick::from_raw(at.get())) {
                receive_timeout::resume(self.current, at);
            }
        } else if let Some(time) = self.timeout {
            let time = Duration::from_millis((time.get() - 1).into());
            receive_timeout::set(self.current, time);
        }
        match self.step {
            Step::Next | Step::Wait => After::Next,
            Step::Exit => After::Exit(self.reason),
            Step::ExitIfIdle => After::ExitIfIdle,
            Step::Kill => After::Kill,
            Step::Ended => After::Ended(self.reason),
        }
    }
}

impl<P: Process, Tail: ?Sized> Context<P, Tail> {
    /// Whether the turn asks for nothing but the next message. Such a context needs no
    /// [`into_after`](Self::into_after): it holds nothing that must be dropped.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.step == Step::Next && self.timeout.is_none()
    }

    /// Sets the step that follows this turn.
    pub(crate) fn end(&mut self, after: After) {
        if self.step == Step::Wait {
            self.timeout = None;
        }
        (self.step, self.reason) = match after {
            After::Next => (Step::Next, BoxedReason::NORMAL),
            After::Exit(reason) => (Step::Exit, reason),
            After::ExitIfIdle => (Step::ExitIfIdle, BoxedReason::NORMAL),
            After::Kill => (Step::Kill, BoxedReason::NORMAL),
            After::Ended(reason) => (Step::Ended, reason),
        };
    }

    /// Takes over what an earlier context of the same process has asked for.
    pub(crate) fn go_on_from(&mut self, earlier: OwnContext<P>) {
        (self.reason, self.step, self.timeout) = (earlier.reason, earlier.step, earlier.timeout);
    }

    /// Whether the process handles the messages that it has after this turn.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.step, Step::Next | Step::ExitIfIdle)
    }

    pub(crate) fn current(&self) -> CurrentProcess {
        self.current
    }
}

impl<P: Process> Context<P> {
    /// Returns the address of this process.
    pub fn address(&self) -> Address<P> {
        Address::from_raw(self.current.pid().raw())
    }

    /// Returns the pid of this process.
    pub fn pid(&self) -> Pid {
        self.current.pid()
    }

    /// Returns the parent: the process that spawned this process linked or monitored, if there is
    /// one.
    pub fn parent(&mut self) -> Option<Pid> {
        self.current.if_extension(|own| own.parent).flatten()
    }

    /// Returns a handle to the runtime in which this process lives.
    pub fn runtime(&self) -> &RuntimeHandle {
        self.current.runtime()
    }

    /// Returns the [layer](crate::layer::Layer) of this process, if it is a `T`.
    pub fn attachment<T: 'static>(&mut self) -> Option<&mut T> {
        self.current.attachment()?.downcast_mut()
    }

    /// Runs [`Process::timeout`] if no message is handled within this time from the end of this
    /// turn. Any turn that runs before then ends the wait; zero means as soon as the mailbox is
    /// empty.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::prelude::*;
    ///
    /// struct Session;
    /// impl Process for Session {
    ///     async fn started(&mut self, cx: &mut Context<Self>) {
    ///         cx.receive_timeout(Duration::from_millis(20));
    ///     }
    ///     async fn timeout(&mut self, cx: &mut Context<Self>) {
    ///         cx.stop(ExitReason::other("nobody has anything to say"));
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let session = runtime.spawn(Session)?;
    /// while session.is_alive() {
    ///     std::thread::yield_now();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Resolution: the clock's, some milliseconds late and never early; more than twelve days count
    /// as twelve.
    ///
    /// Cost: a reading of the system's clock, however often it is set again; 16 bytes while it is set.
    pub fn receive_timeout(&mut self, time: Duration) {
        let milliseconds = u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        if self.step == Step::Wait {
            self.step = Step::Next;
        }
        self.timeout = Some(NonZeroU32::MIN.saturating_add(milliseconds));
    }

    /// Sends a message to this process after a delay. See [`RuntimeHandle::send_after`].
    pub fn send_after<T: Turn<P>>(&mut self, delay: Duration, message: T) -> Timer {
        message_timer::send_after_in::<P, T>(&mut self.current, delay, message)
    }

    /// Sends a clone of a message to this process each period. See
    /// [`RuntimeHandle::send_every`].
    pub fn send_every<T: Turn<P> + Repeatable>(&mut self, period: Duration, message: T) -> Timer {
        message_timer::send_every_in::<P, T>(&mut self.current, period, message)
    }

    /// Cancels a timer, as [`Timer::cancel`] does, at less cost if it is one of this process.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::{Timer, prelude::*};
    ///
    /// #[derive(Default)]
    /// struct Connection {
    ///     timeout: Option<Timer>,
    /// }
    ///
    /// #[process]
    /// impl Connection {
    ///     #[message]
    ///     fn received(&mut self, cx: &mut Context<Self>) {
    ///         if let Some(timeout) = self.timeout.take() {
    ///             cx.cancel_timer(&timeout);
    ///         }
    ///         self.timeout = Some(cx.send_after(Duration::from_secs(30), Close {}));
    ///     }
    ///     #[message]
    ///     fn close(&mut self, cx: &mut Context<Self>) {
    ///         cx.stop(ExitReason::Normal);
    ///     }
    /// }
    /// ```
    ///
    /// Cost: constant, without a signal if the timer sends to this process.
    pub fn cancel_timer(&mut self, timer: &Timer) -> bool {
        timer.cancel_in(&mut self.current)
    }

    /// Exits with a reason when this turn is over.
    ///
    /// The reply of this turn is sent. Messages still queued are dropped, and their callers get
    /// the reason.
    pub fn stop(&mut self, reason: ExitReason) {
        self.end(After::exit(reason));
    }

    /// Exits when this turn is over, but only if no message is queued at that instant.
    ///
    /// Check and exit are a single step, so no message is lost: each is either handled here, or
    /// handed back to a sender that came too late.
    pub fn stop_if_idle(&mut self) {
        if matches!(self.step, Step::Next | Step::Wait) {
            self.end(After::ExitIfIdle);
        }
    }

    /// Links this process and another: when either exits, the other gets an exit signal.
    ///
    /// A process that gets an exit signal with a reason other than [`ExitReason::Normal`] exits for
    /// the same reason, unless it [traps exits](Self::trap_exits). If the other process has exited
    /// already, the signal comes at once, with [`ExitReason::NoProcess`]. Two processes have a
    /// single link or none.
    ///
    /// Cost: an entry in a list of each process, and a message to the other process if it runs, has
    /// messages, or is of another runtime. The first link or monitor of a process allocates about
    /// 144 bytes for all of these.
    pub fn link(&mut self, other: impl Into<Pid>) {
        let (me, other) = (self.pid(), other.into());
        if me != other && self.current.with_extension(|own| own.link(other)) {
            signal::send(other, Signal::Link { from: me });
        }
    }

    /// Removes the link to another process, whose exit has no effect on this process after that.
    pub fn unlink(&mut self, other: impl Into<Pid>) {
        let (me, other) = (self.pid(), other.into());
        if let Some(number) = self.current.if_extension(|own| own.unlink(other)).flatten() {
            signal::send(other, Signal::Unlink { from: me, number });
        }
    }

    /// Sets whether exit signals come as messages to [`Process::exit`] instead of ending this
    /// process.
    ///
    /// A [kill](Pid::kill) cannot be trapped.
    pub fn trap_exits(&mut self, trap: bool) {
        self.current.with_extension(|own| own.traps_exits = trap);
    }

    /// Monitors a process: the hook [`Process::down`] of this process runs when the other process
    /// exits, or at once if it has exited already.
    ///
    /// Each call makes a monitor of its own. A monitor is one-sided: the other process does not
    /// notice it.
    ///
    /// Cost: the same as of a [link](Self::link). The list of the monitors that a process has set
    /// gives its memory back when it is empty.
    pub fn monitor(&mut self, other: impl Into<Pid>) -> MonitorRef {
        let (me, other) = (self.pid(), other.into());
        let number = self.current.with_extension(|own| own.monitors().insert(other));
        signal::send(other, Signal::Monitor(Watcher { pid: me, number, tell: tell_down::<P>() }));
        MonitorRef::new(other, number)
    }

    /// Returns the latest monitor of this process on another, if there is one that has not fired; such as
    /// that of a [monitored](Self::monitored) child.
    ///
    /// Cost: in proportion to the number of monitors that this process has set.
    pub fn monitor_of(&mut self, other: impl Into<Pid>) -> Option<MonitorRef> {
        let other = other.into();
        let find = |own: &mut Extension| own.ties.as_ref()?.monitors.as_ref()?.latest(other);
        let number = self.current.if_extension(find).flatten()?;
        Some(MonitorRef::new(other, number))
    }

    /// Removes a monitor. The monitor does not fire after this call, even if the other process has
    /// exited before it.
    pub fn demonitor(&mut self, monitor: MonitorRef) {
        if self.forget_monitor(monitor) {
            let (by, number) = (self.pid(), monitor.number());
            signal::send(monitor.pid(), Signal::Demonitor { by, number });
        }
    }

    /// Sends an exit signal from this process; see [`Pid::exit`].
    ///
    /// A process that sends itself [`ExitReason::Normal`] exits as well, unless it traps exits.
    pub fn exit(&mut self, other: impl Into<Pid>, reason: ExitReason) {
        let from = Some(self.pid());
        signal::send(other.into(), Signal::Exit { from, reason, by_link: false });
    }

    /// Whether something other than a message may still wake this process: a timer whose message is
    /// neither handled nor cancelled, a piped future, an attached stream, a receive timeout, a link, a
    /// monitor, a name or a group. Meant for a [layer](crate::layer::Layer) that asks about a process that it has spawned.
    /// A waiting signal counts as a tie, too, because a timer that this turn has set is tied to the process by one.
    pub fn has_ties(&mut self) -> bool {
        self.timeout.is_some()
            || self.current.is_signalled()
            || self.current.if_extension(Extension::is_tied).unwrap_or(false)
    }

    /// Continues the receive timeout that an earlier turn has set, as if this turn did not run. Returns whether
    /// there is one. For a turn that has not waited yet, and meant for a [layer](crate::layer::Layer) whose own turns
    /// the process should not notice.
    pub fn keep_receive_timeout(&mut self) -> bool {
        if !const { process::has_timeout::<P>() } || !self.is_plain() {
            return false;
        }
        let until = self.current.waits_until();
        if let Some(at) = until.and_then(|at| NonZeroU32::new(at.to_raw())) {
            (self.step, self.timeout) = (Step::Wait, Some(at));
        }
        until.is_some()
    }

    /// Records that the process's first turn has begun: signals need not wait any longer.
    pub(crate) fn has_begun(&self) {
        self.current.has_begun();
    }

    /// Removes a monitor from the process's list; false if it has fired or was removed before.
    pub(crate) fn forget_monitor(&mut self, monitor: MonitorRef) -> bool {
        let (number, pid) = (monitor.number(), monitor.pid());
        let forget = |own: &mut Extension| {
            // The reference of another process's monitor may have the number of a monitor of ours.
            Some(own.ties.as_mut()?.monitors.as_mut()?.remove(number, pid))
        };
        self.current.if_extension(forget).flatten().unwrap_or(false)
    }

    /// Whether an exit signal from this sender ends the process although it traps exits.
    pub(crate) fn obeys(&mut self, from: Option<Pid>) -> bool {
        let obeyed = self.current.if_extension(|own| own.parent.filter(|_| own.obeys_parent));
        from.is_some() && obeyed.flatten() == from
    }
}

/// Returns the function that notifies a `P` of the exit of a process it monitors.
pub(crate) fn tell_down<P: Process>() -> TellDown {
    |to, down| {
        let _ = Cast::<P, _>::push(to.raw(), DownTurn::from(down));
    }
}
