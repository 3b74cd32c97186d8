//! Signals: notices that processes send each other besides messages, and their effect on the
//! receiver.
//!
//! A signal travels in the mailbox of its target, so it comes after every message that its sender
//! sent before. But it takes effect as soon as the target's mailbox is looked at, before the
//! messages that wait, and also while a turn is suspended. It acts under the target's token, so no
//! lock is needed. A sender that finds the target at rest takes the token itself for the signals
//! that only change a list: link, monitor, demonitor.
//!
//! No signal is lost: the push of a signal fails if the target has exited, and a target that is
//! exiting refuses the signals left in its mailbox.
//!
//! | signal | effect | answer if the process has exited |
//! |---|---|---|
//! | link | adds the link | the sender gets an exit signal, `NoProcess` |
//! | unlink | removes the link and acknowledges | – |
//! | exit | ends the process, or is trapped and becomes a message | – |
//! | kill | ends the process | – |
//! | monitor | adds the watcher | the watcher is notified, `NoProcess` |
//! | demonitor | removes the watcher; also sent for each monitor of a process that exits | – |
//! | inspect | shows the process to the inspector | the inspector learns it by the drop |
//! | probe | is seen by the calls that the turn waits for; see `cycle` | – |
//! | watch | adds a watcher that is not a process | the watcher is notified, `NoProcess` |
//! | unwatch | removes that watcher | – |
//! | join | adds a membership, which the process leaves when it exits | the membership is left at once |
//! | leave | drops a membership that has been left already | – |
//! | tie | adds a timer that another process or a thread has set for the process | the timer ends |
//! | untie | removes a timer that has been cancelled elsewhere | – |
//! | pipe | adds a process that polls a future or a stream for a process with a layer | – |
//!
//! A process whose turn does not end leaves its signals unread, and any process or thread may go on
//! sending signals. The count in `turn_state` bounds them, and their bytes are charged to the
//! budget:
//!
//! | unread | outcome |
//! |---|---|
//! | [`SIGNALS_MOST`] / 16 | `inspect` and `probe` are dropped: the inspector learns that the process does not answer, and a cycle of calls ends by its deadlines |
//! | [`SIGNALS_MOST`] | the process is killed as soon as possible, for a reason that says so; later signals are refused as in the table above |
//!
//! A refused signal loses nothing, because the process is certain to end and then notifies every
//! peer it knows of: an exit or a kill finds its target ending, a link and a monitor are answered
//! at once, and a sender that unlinks, demonitors, unwatches or leaves ignores the end.
//!
//! [`SIGNALS_MOST`]: crate::turn::turn_state::SIGNALS_MOST

pub(crate) mod group;
pub(crate) mod links;
pub(crate) mod monitors;
pub(crate) mod registry;
pub(crate) mod small_map;

use crate::address::Pid;
use crate::address::cycle::Probe;
use crate::address::message_timer::{TimerRef, TimerTie};
use crate::cell::Token;
use crate::cell::extension::{self, ExitCallback, Membership};
use crate::exit::{ExitReason, catch, drop_users};
use crate::fault::{self, Step};
use crate::mailbox::Link;
use crate::mailbox::envelope;
use crate::scheduler;
use crate::scheduler::worker::Worker;
use crate::signal::monitors::{MonitorNumber, Watcher};
use crate::turn::after::After;
use crate::turn::process::{Down, Exit, MonitorRef};
use std::ptr::NonNull;

/// A signal to a process. See the file's head.
pub(crate) enum Signal {
    Link {
        from: Pid,
    },
    Unlink {
        from: Pid,
        number: u32,
    },
    UnlinkAcknowledged {
        from: Pid,
        number: u32,
    },
    Exit {
        from: Option<Pid>,
        reason: ExitReason,
        by_link: bool,
    },
    Kill,
    Monitor(Watcher<Pid>),
    Demonitor {
        by: Pid,
        number: MonitorNumber,
    },
    Probe(Probe),
    Watch(ExitCallback),
    Unwatch {
        key: usize,
    },
    /// Has the process inspected by a closure, under its token; see `inspect`.
    Inspect(Box<dyn FnOnce(&Token) + Send>),
    Join {
        key: usize,
        membership: Box<dyn Membership>,
    },
    Leave {
        key: usize,
    },
    Tie(TimerTie),
    /// Enters a process that polls a future or a stream for this one.
    Pipe(Pid),
    /// Takes a timer off the process's list. The timer is on the list, because its `Tie` was sent
    /// before.
    Untie(TimerRef),
}

/// Work that remains when a signal has taken effect.
#[must_use]
pub(crate) enum Outcome {
    Nothing,
    /// The signal has become a message, to be handled after all messages that came before it.
    Message(NonNull<Link>),
    /// The process exits.
    Exit(After),
    /// The closure inspects the process and its mailbox, once all signals are out of the mailbox.
    Inspect(Box<dyn FnOnce(&Token) + Send>),
}

/// Sends a signal; if the process has exited, the signal is refused in its name.
pub(crate) fn send(to: Pid, signal: Signal) {
    if let Err(signal) = try_send(to, signal) {
        signal.refuse(to, &ExitReason::NoProcess);
    }
}

/// Sends a signal, and returns it if the process has exited or refuses signals.
pub(crate) fn try_send(to: Pid, signal: Signal) -> Result<(), Signal> {
    // Messages that this turn has sent before come before the signal, which may become a message
    // there itself.
    scheduler::with_worker(|worker| worker.map(Worker::end_streaks));
    match act_at_once(to, signal) {
        Some(signal) => envelope::send_signal(to, signal),
        None => Ok(()),
    }
}

/// Has a signal take effect on a process that does nothing at present, and has read all signals
/// before it; returns the signal if it must be queued.
///
/// Only signals that enter something in a list, or take it off, because they run no code of users
/// and send nothing. It saves the block and the process's run.
fn act_at_once(to: Pid, signal: Signal) -> Option<Signal> {
    if !matches!(signal, Signal::Link { .. } | Signal::Monitor(_) | Signal::Demonitor { .. }) {
        return Some(signal);
    }
    let Some(borrowed) = to.raw().borrow() else { return Some(signal) };
    let left = if borrowed.token().is_signalled() {
        Some(signal)
    } else {
        let _nothing = signal.act(borrowed.token());
        None
    };
    borrowed.give_back();
    left
}

/// Sends a signal that only asks, and returns it if the process has exited or has so many signals
/// unread that it takes no questions.
pub(crate) fn ask(to: Pid, signal: Signal) -> Result<(), Signal> {
    if to.raw().is_crowded() { Err(signal) } else { try_send(to, signal) }
}

/// Sends a signal that needs no answer from a process that has exited.
fn tell(to: Pid, signal: Signal) {
    let _ = try_send(to, signal);
}

impl Signal {
    /// Takes effect on the token's process.
    pub(crate) fn act(self, token: &Token) -> Outcome {
        let me = token.pid();
        match self {
            Signal::Link { from } => token.with_extension(|own| own.on_link(from)),
            Signal::Unlink { from, number } => {
                token.if_extension(|own| own.on_unlink(from));
                tell(from, Signal::UnlinkAcknowledged { from: me, number });
            }
            Signal::UnlinkAcknowledged { from, number } => {
                token.if_extension(|own| own.on_acknowledge(from, number));
            }
            Signal::Exit { from, reason, by_link } => {
                return exit_signal(token, from, reason, by_link);
            }
            Signal::Kill => return Outcome::Exit(After::Kill),
            Signal::Monitor(watcher) => {
                token.with_extension(|own| own.ties().watchers.insert(watcher));
            }
            Signal::Demonitor { by, number } => {
                token.if_extension(|own| own.remove_watcher(by, number));
            }
            Signal::Inspect(inspect) => return Outcome::Inspect(inspect),
            // Between two turns a process waits for no call.
            Signal::Probe(_) if token.is_between_turns() => {}
            Signal::Probe(probe) => scheduler::show_probe(probe),
            Signal::Watch(callback) => add_callback(token, callback),
            Signal::Unwatch { key } => {
                let callback = token.if_extension(|own| own.rare_if_any()?.callbacks.remove(&key));
                // The callback holds the waker of the task that watched, whose drop may panic.
                drop_users(callback);
            }
            Signal::Join { key, membership } => {
                token.with_extension(|own| own.rare().memberships.insert(key, membership));
            }
            Signal::Leave { key } => {
                let left = token.if_extension(|own| own.rare_if_any()?.memberships.remove(&key));
                // The membership may hold the last reference to something whose drop takes time.
                drop_users(left);
            }
            Signal::Tie(tie) => token.with_extension(|own| own.rare().timers.insert(tie)),
            Signal::Pipe(pipe) => token.with_extension(|own| own.add_pipe(pipe)),
            Signal::Untie(timer) => {
                let tie = token.if_extension(|own| own.remove_timer(timer)).flatten();
                if let Some(tie) = tie {
                    tie.end(token.class().runtime.scheduler());
                }
            }
        }
        Outcome::Nothing
    }

    /// Answers in the name of a process that has exited. Only a watcher that is not a process gets
    /// the reason: a process learns that there was no such process, as in OTP.
    pub(crate) fn refuse(self, gone: Pid, reason: &ExitReason) {
        match self {
            Signal::Link { from } => {
                let reason = ExitReason::NoProcess;
                tell(from, Signal::Exit { from: Some(gone), reason, by_link: true });
            }
            Signal::Monitor(Watcher { pid, number, tell }) => {
                let monitor = MonitorRef::new(gone, number);
                tell(pid, Down { monitor, pid: gone, reason: ExitReason::NoProcess });
            }
            Signal::Watch(callback) => run_users(|| callback(reason.clone())),
            // The drop of the closure wakes the inspecting task, by that task's own waker.
            Signal::Inspect(inspect) => drop_users(inspect),
            Signal::Join { membership, .. } => membership.leave(gone),
            // The drop of the tie ends the timer.
            Signal::Tie(tie) => drop(tie),
            Signal::Untie(_)
            | Signal::Pipe(_)
            | Signal::Unlink { .. }
            | Signal::UnlinkAcknowledged { .. }
            | Signal::Exit { .. }
            | Signal::Kill
            | Signal::Probe(_)
            | Signal::Leave { .. }
            | Signal::Unwatch { .. }
            | Signal::Demonitor { .. } => {}
        }
    }
}

/// Adds a callback, which runs when the process has exited.
pub(crate) fn add_callback(token: &Token, callback: ExitCallback) {
    let key = extension::callback_key(&callback);
    token.with_extension(|own| own.rare().callbacks.insert(key, callback));
}

/// Runs a callback's code, which is the user's: a panic of it is caught and dropped.
fn run_users(f: impl FnOnce()) {
    let _ = catch(f);
}

fn exit_signal(token: &Token, from: Option<Pid>, reason: ExitReason, by_link: bool) -> Outcome {
    if by_link {
        let counts =
            from.is_some_and(|peer| token.if_extension(|own| own.on_exit(peer)).unwrap_or(false));
        if !counts {
            return Outcome::Nothing;
        }
    }
    if token.if_extension(|own| own.traps_exits).unwrap_or(false) {
        return Outcome::Message(token.class().exit_message(Exit { pid: from, reason }));
    }
    if reason == ExitReason::Normal && from != Some(token.pid()) {
        return Outcome::Nothing;
    }
    Outcome::Exit(After::exit(reason))
}

/// Notifies at most `most` others that a process is dead; true if all have been notified.
///
/// Its timers end and its memberships are left first: a watcher finds the timers' messages dropped
/// and the process's names free.
pub(crate) fn publish_obituary(token: &Token, most: usize) -> bool {
    let Some(reason) = token.obituary() else {
        return true;
    };
    let me = token.pid();
    for _ in 0..most {
        fault::point(Step::Obituary, token.class().name);
        let next = token.if_extension(|own| {
            if let Some(rare) = own.rare_if_any() {
                if let Some(timer) = rare.timers.pop() {
                    return Some(Notified::Timer(timer));
                }
                if let Some((_, membership)) = rare.memberships.pop() {
                    return Some(Notified::Membership(membership));
                }
            }
            if let Some(peer) = own.pop_link() {
                return Some(Notified::Link(peer));
            }
            let ties = own.ties.as_mut()?;
            if let Some(watcher) = ties.watchers.pop() {
                return Some(Notified::Watcher(watcher));
            }
            if let Some((_, callback)) = ties.rare.as_mut().and_then(|own| own.callbacks.pop()) {
                return Some(Notified::Callback(callback));
            }
            let (number, pid) = ties.monitors.as_mut()?.pop()?;
            Some(Notified::Monitored { pid, number })
        });
        let reason = reason.clone();
        match next.flatten() {
            None => return true,
            Some(Notified::Timer(timer)) => timer.end(token.class().runtime.scheduler()),
            Some(Notified::Membership(membership)) => membership.leave(me),
            Some(Notified::Link(peer)) => {
                tell(peer, Signal::Exit { from: Some(me), reason, by_link: true });
            }
            Some(Notified::Watcher(Watcher { pid, number, tell })) => {
                tell(pid, Down { monitor: MonitorRef::new(me, number), pid: me, reason });
            }
            Some(Notified::Callback(callback)) => run_users(|| callback(reason)),
            Some(Notified::Monitored { pid, number }) => {
                tell(pid, Signal::Demonitor { by: me, number })
            }
        }
    }
    false
}

enum Notified {
    Timer(TimerTie),
    Membership(Box<dyn Membership>),
    Link(Pid),
    Watcher(Watcher<Pid>),
    Callback(ExitCallback),
    /// A process that the dead process monitors; it would keep the monitor until its own end.
    Monitored {
        pid: Pid,
        number: MonitorNumber,
    },
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use crate::prelude::*;
    use crate::signal::{self, Signal};
    use crate::turn::turn_state::SIGNALS_MOST;
    use std::future::Future;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context as Polling, Waker};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(120);

    /// Reports the exits it hears of, and blocks its worker on request.
    struct Actor(Sender<Heard>);
    #[derive(Debug, PartialEq)]
    enum Heard {
        Down(ExitReason),
        Exit(ExitReason),
        Blocked,
    }
    #[process(crate = crate)]
    impl Actor {
        #[hook]
        fn started(&mut self, cx: &mut Context<Self>) {
            cx.trap_exits(true);
        }
        #[hook]
        fn down(&mut self, down: Down) {
            self.0.send(Heard::Down(down.reason)).expect("the test listens");
        }
        #[hook]
        fn exit(&mut self, exit: Exit) {
            self.0.send(Heard::Exit(exit.reason)).expect("the test listens");
        }
        #[message(send)]
        fn block(&mut self, until: Receiver<()>) {
            self.0.send(Heard::Blocked).expect("the test listens");
            let _ = until.recv();
        }
        #[message(send)]
        async fn hang(&mut self) {
            self.0.send(Heard::Blocked).expect("the test listens");
            std::future::pending().await
        }
        /// Monitors another actor and links to it.
        #[message]
        fn watch(&mut self, other: Pid, cx: &mut Context<Self>) {
            cx.monitor(other);
            cx.link(other);
        }
    }

    fn actor(runtime: &Runtime) -> (Address<Actor>, Receiver<Heard>) {
        let (heard, hears) = channel();
        (runtime.spawn(Actor(heard)).expect("there is room"), hears)
    }

    /// An actor in a turn that goes on until the sender is dropped.
    fn blocked(runtime: &Runtime) -> (Address<Actor>, Receiver<Heard>, Sender<()>) {
        let (actor, hears) = actor(runtime);
        let (let_go, until) = channel();
        actor.block(until).expect("lives");
        assert_eq!(hears.recv_timeout(PATIENCE), Ok(Heard::Blocked));
        (actor, hears, let_go)
    }

    fn wait(mut holds: impl FnMut() -> bool) {
        let patience = std::time::Instant::now() + PATIENCE;
        while !holds() {
            assert!(std::time::Instant::now() < patience, "this never comes true");
            std::thread::yield_now();
        }
    }

    fn flooded() -> ExitReason {
        ExitReason::other(format!("left {SIGNALS_MOST} signals unread"))
    }

    #[test]
    fn a_process_with_too_many_unread_signals_is_killed_and_its_watchers_learn_the_reason() {
        let runtime = Runtime::builder().workers(2).start().expect("starts");
        let (victim, _log, let_go) = blocked(&runtime);
        let (friend, hears) = actor(&runtime);
        let watch = |watcher: Address<Actor>| {
            let watched = watcher.watch(victim.pid());
            runtime.block_on(async |_| watched.await).expect("answers");
        };
        let exited = || {
            let mut exited = Box::pin(victim.pid().exited());
            let _ = exited.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
            exited
        };
        watch(friend);
        let early = exited();
        let call = victim.watch(friend.pid()).within(PATIENCE);
        let call = runtime.tokio().spawn(call);
        let before = runtime.mailbox_bytes();
        // From several threads at once, so that some threads are sending when the bound is reached.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..SIGNALS_MOST).for_each(|_| victim.exit(ExitReason::Normal)));
            }
        });
        let counted = runtime.mailbox_bytes() - before;
        let most = u64::from(SIGNALS_MOST + 8) * 64;
        assert!((most / 2..=most).contains(&counted), "{counted} bytes");
        assert!(victim.is_alive(), "its turn goes on");
        // For signals, the process counts as exited from here on.
        let (stranger, late_hears) = actor(&runtime);
        watch(stranger);
        assert_eq!(late_hears.recv_timeout(PATIENCE), Ok(Heard::Down(ExitReason::NoProcess)));
        assert_eq!(late_hears.recv_timeout(PATIENCE), Ok(Heard::Exit(ExitReason::NoProcess)));
        let late = victim.pid().exited();
        assert_eq!(runtime.block_on(async |_| late.await), ExitReason::NoProcess);
        assert!(runtime.register("victim", victim).is_err());
        drop(let_go);
        let early = runtime.block_on(async |_| tokio::time::timeout(PATIENCE, early).await);
        assert_eq!(early, Ok(flooded()));
        let died = runtime.block_on(async |_| call.await).expect("does not panic");
        assert!(matches!(died, Err(CallError::Died(reason)) if reason == flooded()));
        assert_eq!(hears.recv_timeout(PATIENCE), Ok(Heard::Exit(flooded())));
        assert_eq!(hears.recv_timeout(PATIENCE), Ok(Heard::Down(flooded())));
        wait(|| runtime.process_count() == 2);
        assert_eq!(runtime.mailbox_bytes(), 0);
        // The worker goes on, and the slot can be used again.
        let (next, _log) = actor(&runtime);
        runtime.block_on(async |_| next.watch(friend.pid()).await).expect("answers");
    }

    #[test]
    fn below_the_bound_every_signal_is_acted_on() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let (actor, hears, let_go) = blocked(&runtime);
        let reason = |number: u32| ExitReason::other(number.to_string());
        (1..SIGNALS_MOST).for_each(|number| actor.exit(reason(number)));
        drop(let_go);
        for number in 1..SIGNALS_MOST {
            assert_eq!(hears.recv_timeout(PATIENCE), Ok(Heard::Exit(reason(number))));
        }
        assert!(actor.is_alive());
        // Their total number does not matter, if they are read.
        for _ in 0..4 {
            (1..SIGNALS_MOST).for_each(|_| actor.exit(reason(0)));
            (1..SIGNALS_MOST).for_each(|_| drop(hears.recv_timeout(PATIENCE).expect("alive")));
        }
        wait(|| runtime.mailbox_bytes() == 0);
    }

    #[test]
    fn a_flood_of_questions_kills_no_process() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let (actor, _log, let_go) = blocked(&runtime);
        let tokio = runtime.tokio().enter();
        for _ in 0..2 * SIGNALS_MOST {
            // Dropped at once, like a request that times out.
            let mut info = Box::pin(runtime.info(actor));
            let _ = info.as_mut().poll(&mut Polling::from_waker(Waker::noop()));
        }
        drop(tokio);
        assert!(runtime.mailbox_bytes() < u64::from(SIGNALS_MOST) * 64 / 8);
        // The process lives, but does not answer.
        let info = runtime.block_on(async |runtime| runtime.info(actor).await).expect("lives");
        assert_eq!(info.kind, None);
        let top = runtime.block_on(async |runtime| runtime.top(1, crate::SortBy::Memory).await);
        assert_eq!(top.first().map(|info| info.pid), Some(actor.pid()));
        drop(let_go);
        wait(|| {
            let info = runtime.block_on(async |runtime| runtime.info(actor).await);
            info.expect("lives").kind.is_some()
        });
    }

    #[test]
    fn a_suspended_process_that_is_flooded_is_killed() {
        let runtime = Runtime::builder().workers(1).spare_workers(0).start().expect("starts");
        let (hangs, log) = actor(&runtime);
        hangs.hang().expect("lives");
        assert_eq!(log.recv_timeout(PATIENCE), Ok(Heard::Blocked));
        // The worker is busy with another process, so no signal is read.
        let (_blocker, _log, let_go) = blocked(&runtime);
        let exited = runtime.tokio().spawn(hangs.pid().exited());
        for _ in 0..2 * SIGNALS_MOST {
            let _ = signal::try_send(hangs.pid(), Signal::Unwatch { key: 0 });
        }
        drop(let_go);
        let exited = runtime.block_on(async |_| tokio::time::timeout(PATIENCE, exited).await);
        let reason = exited.expect("is killed").expect("does not panic");
        assert!(reason == flooded() || reason == ExitReason::NoProcess, "{reason}");
        wait(|| !hangs.is_alive());
        wait(|| runtime.mailbox_bytes() == 0);
    }
}
