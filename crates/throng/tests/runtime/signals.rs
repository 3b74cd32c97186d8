//! Links, monitors, exit signals and kills.

use crate::{Do, eventually, runtime, scaled};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, Overflow};

#[derive(Debug, PartialEq)]
enum Event {
    Down(MonitorRef, Pid, ExitReason),
    Exit(Option<Pid>, ExitReason),
    Stopping(ExitReason),
    Message(u32),
}
use Event::{Down as GotDown, Exit as GotExit, Message as GotMessage, Stopping};

/// Runs closures in its turns, and reports the signals and messages it receives.
struct Actor {
    events: Sender<Event>,
    traps: bool,
}

#[process]
impl Actor {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        cx.trap_exits(self.traps);
    }
    #[hook]
    fn stopping(&mut self, reason: &ExitReason) {
        let _ = self.events.send(Stopping(reason.clone()));
    }
    #[hook]
    fn down(&mut self, down: Down) {
        let _ = self.events.send(GotDown(down.monitor, down.pid, down.reason));
    }
    #[hook]
    fn exit(&mut self, exit: Exit) {
        let _ = self.events.send(GotExit(exit.pid, exit.reason));
    }
    #[message]
    fn say(&mut self, number: u32) {
        let _ = self.events.send(GotMessage(number));
    }
    /// Keeps the actor in a turn that never ends.
    #[message]
    async fn hang(&mut self) {
        std::future::pending().await
    }
}

struct Stage {
    runtime: Runtime,
}

impl Stage {
    fn new() -> Stage {
        Stage { runtime: runtime() }
    }

    fn actor(&self, traps: bool) -> (Address<Actor>, Receiver<Event>) {
        let (events, log) = channel();
        (self.runtime.spawn(Actor { events, traps }).unwrap(), log)
    }

    /// Runs a closure in a turn of an actor.
    fn have<R: Send + 'static>(
        &self,
        actor: Address<Actor>,
        f: impl FnOnce(&mut Actor, &mut Context<Actor>) -> R + Send + 'static,
    ) -> R {
        self.runtime.block_on(async |_| actor.call(Do(f)).await).unwrap()
    }

    fn ended(&self, pid: impl Into<Pid>) -> ExitReason {
        let pid = pid.into();
        self.runtime.block_on(async |_| pid.exited().await)
    }
}

fn next(log: &Receiver<Event>) -> Event {
    log.recv_timeout(Duration::from_secs(20)).expect("an event")
}

fn nothing_more(log: &Receiver<Event>) {
    assert!(log.try_recv().is_err(), "another event happened");
}

fn boom() -> ExitReason {
    ExitReason::other("boom")
}

#[test]
fn a_trapped_exit_keeps_its_place_in_a_flood() {
    let stage = Stage::new();
    let (first, _log) = stage.actor(false);
    let (second, log) = stage.actor(true);
    stage.have(first, move |_, cx| {
        // Enough messages to form a train.
        (0..20).for_each(|number| second.send_say(number).unwrap());
        cx.exit(second, boom());
        (20..40).for_each(|number| second.send_say(number).unwrap());
    });
    for number in 0..20 {
        assert_eq!(next(&log), GotMessage(number));
    }
    assert_eq!(next(&log), GotExit(Some(first.pid()), boom()));
    for number in 20..40 {
        assert_eq!(next(&log), GotMessage(number));
    }
    // An exit signal from outside may have any reason.
    second.exit(ExitReason::Normal);
    assert_eq!(next(&log), GotExit(None, ExitReason::Normal));
    nothing_more(&log);
}

#[test]
fn a_monitor_fires_once_after_a_flood() {
    let stage = Stage::new();
    let (first, _log) = stage.actor(false);
    let (second, log) = stage.actor(false);
    let monitor = stage.have(second, move |_, cx| cx.monitor(first));
    stage.have(first, move |_, cx| {
        (0..20).for_each(|number| second.send_say(number).unwrap());
        cx.stop(boom());
    });
    for number in 0..20 {
        assert_eq!(next(&log), GotMessage(number));
    }
    assert_eq!(next(&log), GotDown(monitor, first.pid(), boom()));
    let late = stage.have(second, move |_, cx| cx.monitor(first));
    assert_ne!(late, monitor);
    assert_eq!(next(&log), GotDown(late, first.pid(), ExitReason::NoProcess));
    nothing_more(&log);
}

#[test]
fn only_its_own_process_can_remove_a_monitor() {
    let stage = Stage::new();
    let (first, log) = stage.actor(false);
    let (second, _log) = stage.actor(false);
    let (watched, _log) = stage.actor(false);
    let own = stage.have(first, move |_, cx| cx.monitor(watched));
    // Each process numbers its own monitors, so the two references may be equal.
    let others = stage.have(second, move |_, cx| cx.monitor(first));
    stage.have(first, move |_, cx| cx.demonitor(others));
    watched.stop();
    assert_eq!(next(&log), GotDown(own, watched.pid(), ExitReason::Normal));
}

#[test]
fn a_dropped_exited_future_leaves_nothing_behind() {
    let stage = Stage::new();
    let (watched, _log) = stage.actor(false);
    stage.have(watched, |_, _| ());
    let pid = watched.pid();
    let memory =
        || stage.runtime.block_on(async |runtime| runtime.info(pid).await.unwrap().memory_bytes);
    let count = scaled(20_000) as usize;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut watching: Vec<_> = (0..count)
        .map(|_| {
            let mut exited = Box::pin(pid.exited());
            assert!(exited.as_mut().poll(&mut context).is_pending());
            exited
        })
        .collect();
    let all = memory();
    assert!(all > 16 * count as u64, "{all} bytes hold {count} watchers");
    // Drops all futures but ten, at places all over the list.
    let mut number = 0;
    watching.retain(|_| {
        number += 1;
        number % (count / 10).max(1) == 0
    });
    let some = memory();
    assert!(some < 4096, "{some} bytes are left of {all}");
    // A future that was never polled, and a future dropped by a time-out.
    drop(pid.exited());
    let late = stage.runtime.block_on(async |_| {
        tokio::time::timeout(Duration::from_millis(1), pid.exited()).await.is_err()
    });
    assert!(late);
    watched.kill();
    for exited in watching {
        assert_eq!(stage.runtime.block_on(async |_| exited.await), ExitReason::Killed);
    }
}

#[test]
fn exited_futures_dropped_by_many_threads_race_with_the_exit() {
    let stage = Stage::new();
    for _ in 0..scaled(400) {
        let (watched, _log) = stage.actor(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (stage, pid) = (&stage, watched.pid());
                scope.spawn(move || {
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    for _ in 0..thread * 10 {
                        let _ = Box::pin(pid.exited()).as_mut().poll(&mut context);
                    }
                    let reason = stage.ended(pid);
                    assert!(matches!(reason, ExitReason::Killed | ExitReason::NoProcess));
                });
            }
            watched.kill();
        });
    }
}

#[test]
fn the_monitors_of_a_process_end_with_it() {
    let stage = Stage::new();
    let (server, _log) = stage.actor(false);
    for round in 0..scaled(200) {
        let (client, _log) = stage.actor(false);
        stage.have(client, move |_, cx| (0..round % 5).for_each(|_| _ = cx.monitor(server)));
        if round % 2 == 0 {
            client.kill();
        } else {
            client.stop();
        }
    }
    let monitored_by = || {
        let info = stage.runtime.block_on(async |runtime| runtime.info(server).await);
        info.unwrap().monitored_by.len()
    };
    stage.runtime.block_on(async |runtime| eventually(|| runtime.process_count() == 1).await);
    // The server has handled the removal of each monitor before its client was gone.
    assert_eq!(monitored_by(), 0);
}

#[test]
fn only_a_kill_ends_a_process_that_waits_in_its_last_hook() {
    struct Stubborn;
    impl Process for Stubborn {
        async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
            std::future::pending().await
        }
    }
    let stage = Stage::new();
    let stubborn = stage.runtime.spawn(Stubborn).unwrap();
    stubborn.exit(boom());
    let exited = stage.runtime.block_on(async |_| {
        let exited = tokio::spawn(stubborn.pid().exited());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(stubborn.is_alive(), "the process does not wait for its hook");
        stubborn.exit(ExitReason::other("once more"));
        stubborn.kill();
        exited.await.unwrap()
    });
    assert_eq!(exited, ExitReason::Killed);
}

#[test]
fn an_exit_signal_interrupts_a_turn_that_waits() {
    let stage = Stage::new();
    let (actor, log) = stage.actor(false);
    let outcome = stage.runtime.block_on(async |_| {
        let (mut call, mut behind) = (pin!(actor.hang()), pin!(actor.say(1)));
        // Both are sent here, in this order: a task of its own may begin after the exit on a busy machine.
        std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending() && behind.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        actor.exit(ExitReason::Normal);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(actor.is_alive(), "a normal exit signal was not ignored");
        actor.exit(boom());
        (call.await, behind.await)
    });
    assert!(matches!(outcome.0, Err(CallError::Died(reason)) if reason == boom()));
    assert!(matches!(outcome.1, Err(CallError::Died(reason)) if reason == boom()));
    assert_eq!(next(&log), Stopping(boom()));
    nothing_more(&log);
}

#[test]
fn an_exit_signal_overtakes_queued_messages() {
    let stage = Stage::new();
    let (actor, log) = stage.actor(false);
    stage.have(actor, move |_, cx| {
        for number in 0..1000 {
            cx.address().send_say(number).unwrap();
        }
        cx.exit(actor, boom());
    });
    assert_eq!(next(&log), Stopping(boom()));
    nothing_more(&log);
}

/// Sets a receive timeout, which is reported as message 0.
struct Patient(Sender<Event>);
impl Process for Patient {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.receive_timeout(Duration::from_millis(30));
    }
    async fn timeout(&mut self, _: &mut Context<Self>) {
        let _ = self.0.send(GotMessage(0));
    }
}

#[test]
fn a_monitor_and_a_link_hold_whatever_the_other_process_does() {
    let stage = Stage::new();
    let other_runtime = Stage::new();
    let (events, log) = channel();
    let actor = |events: &Sender<Event>| Actor { events: events.clone(), traps: false };
    let idle = stage.runtime.spawn(actor(&events)).unwrap();
    stage.have(idle, |_, _| ());
    let suspended = stage.runtime.spawn(actor(&events)).unwrap();
    suspended.send_hang().unwrap();
    let bounded = MailboxBound::new(2, Overflow::Reject);
    let bounded = stage.runtime.spawner().mailbox(bounded).spawn(actor(&events)).unwrap();
    stage.have(bounded, |_, _| ());
    let patient = stage.runtime.spawn(Patient(events.clone())).unwrap();
    let elsewhere = other_runtime.runtime.spawn(actor(&events)).unwrap();
    let fresh = stage.runtime.spawn(actor(&events)).unwrap();
    let table = [
        ("idle", idle.pid()),
        ("in a suspended turn", suspended.pid()),
        ("bounded", bounded.pid()),
        ("waits with a timeout", patient.pid()),
        ("of another runtime", elsewhere.pid()),
        ("just spawned", fresh.pid()),
    ];
    for (state, target) in table {
        let (watcher, heard) = stage.actor(true);
        let (kept, removed) = stage.have(watcher, move |_, cx| {
            cx.link(target);
            let kept = cx.monitor(target);
            let removed = cx.monitor(target);
            cx.demonitor(removed);
            (kept, removed)
        });
        assert_ne!(kept, removed, "{state}");
        // Its runtime, and not another, shows a process.
        if target != elsewhere.pid() {
            let info = stage.runtime.block_on(async |runtime| runtime.info(target).await).unwrap();
            assert_eq!(info.monitored_by, [watcher.pid()], "{state}");
            assert_eq!(info.links, [watcher.pid()], "{state}");
        }
        if target == patient.pid() {
            assert_eq!(next(&log), GotMessage(0), "signals do not stop the timeout");
        }
        target.kill();
        assert_eq!(next(&heard), GotExit(Some(target), ExitReason::Killed), "{state}");
        assert_eq!(next(&heard), GotDown(kept, target, ExitReason::Killed), "{state}");
        stage.have(watcher, |_, cx| cx.stop(ExitReason::Normal));
        assert_eq!(next(&heard), Stopping(ExitReason::Normal), "{state}");
    }
    nothing_more(&log);
}

#[test]
fn monitors_race_with_messages_and_the_exit_without_loss() {
    let stage = Stage::new();
    for round in 0..scaled(300) {
        let (target, _log) = stage.actor(false);
        let watchers = [(); 3].map(|()| stage.actor(false));
        for (watcher, _) in &watchers {
            // Between two monitors the target is idle, or handles a message of another watcher.
            let set = move |actor: &mut Actor, cx: &mut Context<Actor>| {
                for number in 0..20 {
                    let monitor = cx.monitor(target);
                    if number % 2 == 0 {
                        cx.demonitor(monitor);
                    }
                    if number % 3 == 0 {
                        let _ = target.send_say(number);
                    }
                }
                let _ = actor.events.send(GotMessage(20));
            };
            watcher.send(Do(set)).unwrap();
        }
        if round % 2 == 0 {
            target.stop();
        }
        for (_, heard) in &watchers {
            let mut downs = 0;
            let mut is_set = false;
            while downs < 10 || !is_set {
                match next(heard) {
                    GotDown(_, pid, reason) => {
                        assert_eq!(pid, target.pid());
                        assert!([ExitReason::Normal, ExitReason::NoProcess].contains(&reason));
                        downs += 1;
                    }
                    GotMessage(20) => {
                        is_set = true;
                        target.stop();
                    }
                    other => panic!("{other:?}"),
                }
            }
            nothing_more(heard);
        }
    }
}

#[test]
fn links_and_exits_race_without_loss() {
    let stage = Stage::new();
    for round in 0..scaled(400) {
        let (first, _log) = stage.actor(false);
        let (second, log) = stage.actor(true);
        // The link and the exit race. In either order there is exactly one exit signal.
        second.send(Do(move |_: &mut Actor, cx: &mut Context<Actor>| cx.link(first))).unwrap();
        if round % 2 == 0 {
            first.exit(boom());
        } else {
            first.stop();
        }
        let GotExit(pid, reason) = next(&log) else { panic!("another event") };
        assert_eq!(pid, Some(first.pid()));
        let own = if round % 2 == 0 { boom() } else { ExitReason::Normal };
        assert!(reason == own || reason == ExitReason::NoProcess, "{reason}");
        stage.have(second, |_, cx| cx.stop(ExitReason::Normal));
        assert_eq!(next(&log), Stopping(ExitReason::Normal));
    }
}
