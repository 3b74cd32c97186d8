//! What a handler knows of its own process.

use crate::address::{Address, Pid};
use crate::cell::CurrentProcess;
use crate::cell::extension::{Extension, TellDown};
use crate::exit::ExitReason;
use crate::mailbox::envelope::Cast;
use crate::process::{DownTurn, Exactly, MonitorRef, Process, Repeatable, Turn};
use crate::runtime::RuntimeHandle;
use crate::signal::{self, Signal};
use crate::timer::message_timer::Timer;
use crate::timer::receive_timeout;
use crate::turn::frame::After;
use std::marker::PhantomData;
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
pub struct Context<P> {
    current: CurrentProcess,
    after: After,
    timeout: Option<Duration>,
    process: Exactly<P>,
}

impl<P: Process> Context<P> {
    pub(crate) fn new(current: CurrentProcess) -> Context<P> {
        Context { current, after: After::Next, timeout: None, process: PhantomData }
    }

    /// The turn is over; what comes after it?
    #[inline(always)]
    pub(crate) fn into_after(self) -> After {
        if let Some(time) = self.timeout {
            receive_timeout::set(self.current, time);
        }
        self.after
    }

    /// What is to come after this turn.
    pub(crate) fn end(&mut self, after: After) {
        self.after = after;
    }

    pub(crate) fn current(&self) -> CurrentProcess {
        self.current
    }

    /// The address of this process.
    pub fn address(&self) -> Address<P> {
        Address::from_raw(self.current.pid().raw())
    }

    /// Which process this is.
    pub fn pid(&self) -> Pid {
        self.current.pid()
    }

    /// The process that spawned this one linked or monitored, if one did.
    pub fn parent(&mut self) -> Option<Pid> {
        self.current.if_extension(|own| own.parent).flatten()
    }

    /// The runtime this process lives in.
    pub fn runtime(&self) -> &RuntimeHandle {
        self.current.runtime()
    }

    /// What [`spawn_attached`](RuntimeHandle::spawn_attached) gave along, if it is a `T`.
    pub fn attachment<T: 'static>(&mut self) -> Option<&mut T> {
        self.current.attachment()?.downcast_mut()
    }

    /// Has [`Process::timeout`] run if no message is handled within this time from the end of this
    /// turn. Whatever is handled before, that ends it; zero means as soon as the mailbox is empty.
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
    /// Resolution: the clock's, some milliseconds; more than twelve days count as twelve.
    ///
    /// Cost: some nanoseconds, however often it is set anew; 16 bytes while it is set.
    pub fn receive_timeout(&mut self, time: Duration) {
        self.timeout = Some(time);
    }

    /// Sends a message to this process when a time has passed. See
    /// [`RuntimeHandle::send_after`].
    pub fn send_after<T: Turn<P>>(&self, delay: Duration, message: T) -> Timer {
        self.runtime().send_after(self.address(), delay, message)
    }

    /// Sends clones of a message to this process, one each period. See
    /// [`RuntimeHandle::send_every`].
    pub fn send_every<T: Turn<P> + Repeatable>(&self, period: Duration, message: T) -> Timer {
        self.runtime().send_every(self.address(), period, message)
    }

    /// Exits when this turn is over, with a reason.
    ///
    /// Messages still queued are dropped, and their callers told the reason. The reply of this
    /// turn is sent.
    pub fn stop(&mut self, reason: ExitReason) {
        self.after = After::exit(reason);
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

    /// Links this process and another: when one exits, the other gets an exit signal.
    ///
    /// Unless it [traps exits](Self::trap_exits), a process that gets one with a reason other than
    /// [`ExitReason::Normal`] exits for the same reason. If the other has exited already, the
    /// signal comes at once, with [`ExitReason::NoProcess`]. Two processes have one link or none.
    ///
    /// Cost: a message to the other. The first link, monitor or name of a process allocates about
    /// 200 bytes for all of these.
    pub fn link(&mut self, other: impl Into<Pid>) {
        let (me, other) = (self.pid(), other.into());
        if me != other && self.current.with_extension(|own| own.links.link(other)) {
            signal::send(other, Signal::Link { from: me });
        }
    }

    /// Takes the link to another process away; from here on its exit has no effect on this one.
    pub fn unlink(&mut self, other: impl Into<Pid>) {
        let (me, other) = (self.pid(), other.into());
        if let Some(number) = self.current.if_extension(|own| own.links.unlink(other)).flatten() {
            signal::send(other, Signal::Unlink { from: me, number });
        }
    }

    /// Whether exit signals come as messages to [`Process::exit`], instead of ending this process.
    ///
    /// A [kill](Pid::kill) cannot be trapped.
    pub fn trap_exits(&mut self, trap: bool) {
        self.current.with_extension(|own| own.traps_exits = trap);
    }

    /// Asks to be told when a process exits, by [`Process::down`]; at once if it has.
    ///
    /// Each call makes a monitor of its own. It is one-sided: the other does not notice.
    pub fn monitor(&mut self, other: impl Into<Pid>) -> MonitorRef {
        let (me, other) = (self.pid(), other.into());
        let number = self.current.with_extension(|own| own.monitor(other));
        signal::send(other, Signal::Monitor { by: me, number, tell: tell_down::<P>() });
        MonitorRef::new(other, number)
    }

    /// Takes a monitor away; it will not fire after this, even if the other has exited already.
    pub fn demonitor(&mut self, monitor: MonitorRef) {
        if self.forget_monitor(monitor) {
            let (by, number) = (self.pid(), monitor.number());
            signal::send(monitor.pid(), Signal::Demonitor { by, number });
        }
    }

    /// Sends an exit signal from this process; see [`Pid::exit`].
    ///
    /// To itself, also [`ExitReason::Normal`] has effect.
    pub fn exit(&mut self, other: impl Into<Pid>, reason: ExitReason) {
        let from = Some(self.pid());
        signal::send(other.into(), Signal::Exit { from, reason, by_link: false });
    }

    /// Whether something other than a message may still wake this process: a timer whose message is
    /// neither handled nor cancelled, a piped future, a receive timeout, a link, a monitor, a name or
    /// a group. For a [layer](crate::Layer), about processes that it has spawned; a piped future
    /// counts for good, also when its result has come.
    pub fn has_ties(&mut self) -> bool {
        let tied = |own: &mut Extension| {
            *own.has_piped.get_mut()
                || !own.timers.is_empty()
                || own.links.iter().next().is_some()
                || own.monitors.len() > 0
                || own.watchers.processes.len() > 0
                || own.memberships.len() > 0
        };
        self.timeout.is_some() || self.current.if_extension(tied).unwrap_or(false)
    }

    /// The first turn of the process runs.
    pub(crate) fn has_begun(&self) {
        self.current.has_begun();
    }

    /// Strikes a monitor off; false if it has fired or was taken away.
    pub(crate) fn forget_monitor(&mut self, monitor: MonitorRef) -> bool {
        let (number, pid) = (monitor.number(), monitor.pid());
        let forget = |own: &mut Extension| {
            // One that another process was given may have the number of one of ours.
            own.monitors.get(&number).is_some_and(|&of| of == pid)
                && own.monitors.remove(&number).is_some()
        };
        self.current.if_extension(forget).unwrap_or(false)
    }

    /// Whether an exit signal from there is to be obeyed though exits are trapped.
    pub(crate) fn obeys(&mut self, from: Option<Pid>) -> bool {
        let obeyed = self.current.if_extension(|own| own.parent.filter(|_| own.obeys_parent));
        from.is_some() && obeyed.flatten() == from
    }
}

/// How a `P` is told that a process it monitors is down.
pub(crate) fn tell_down<P: Process>() -> TellDown {
    |to, down| {
        let _ = Cast::<P, _>::push(to.raw(), DownTurn(down));
    }
}
