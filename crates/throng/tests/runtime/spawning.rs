//! Every kind of spawn, with every tie and with a bound.

use crate::{Counter, Fail, eventually, runtime};
use std::sync::{Arc, Mutex};
use throng::prelude::*;
use throng::{AsyncProcess, MailboxBound, Overflow, Spawner};

const BOUND: MailboxBound = MailboxBound::new(1, Overflow::Reject);

/// Spawns children, and records their exit reasons.
#[derive(Default)]
struct Parent {
    ends: Arc<Mutex<Vec<(Pid, ExitReason)>>>,
}
#[process]
impl Parent {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        cx.trap_exits(true);
    }
    #[hook]
    fn down(&mut self, down: Down) {
        self.ends.lock().unwrap().push((down.pid, down.reason));
    }
    #[hook]
    fn exit(&mut self, exit: Exit) {
        let pid = exit.pid.expect("from a process");
        self.ends.lock().unwrap().push((pid, exit.reason));
    }
    #[message]
    fn spawn(&mut self, tie: Tie, cx: &mut Context<Self>) -> Children {
        fn spawner(tie: Tie, cx: &mut Context<Parent>) -> Spawner<'_> {
            match tie {
                Tie::Linked => cx.linked().mailbox(BOUND),
                Tie::Monitored => cx.monitored().mailbox(BOUND),
            }
        }
        let one = spawner(tie, cx).spawn(Counter::default()).unwrap();
        let many = spawner(tie, cx).spawn_many((0..3).map(|count| Counter { count })).unwrap();
        let loops = spawner(tie, cx).spawn_async(|_: Inbox<Line>| std::future::pending::<()>());
        Children { one, many, loops: loops.unwrap() }
    }
    /// Spawns two processes that fail at once, and waits in the same turn until both are dead.
    #[message]
    async fn spawn_and_wait(&mut self, cx: &mut Context<Self>) -> Vec<Pid> {
        struct Fails;
        impl Process for Fails {
            async fn started(&mut self, _: &mut Context<Self>) {
                panic!("at once");
            }
        }
        let one = cx.monitored().spawn(Fails).unwrap();
        let other = cx.monitored().spawn(Fails).unwrap();
        one.pid().exited().await;
        other.pid().exited().await;
        vec![one.pid(), other.pid()]
    }
}

#[derive(Clone, Copy)]
enum Tie {
    Linked,
    Monitored,
}

/// The children spawned by each of the three methods.
#[derive(Clone)]
struct Children {
    one: Address<Counter>,
    many: Vec<Address<Counter>>,
    loops: Address<AsyncProcess<Line>>,
}

struct Line;
impl Message for Line {
    type Reply = ();
}

#[test]
fn ties_and_bounds_apply_to_every_kind_of_spawn() {
    runtime().block_on(async |runtime| {
        for tie in [Tie::Linked, Tie::Monitored] {
            let parent = Parent::default();
            let ends = parent.ends.clone();
            let parent = runtime.spawn(parent).unwrap();
            let Children { one, many, loops } = parent.spawn(tie).await.unwrap();
            let mut pids = vec![one.pid(), loops.pid()];
            pids.extend(many.iter().map(|child| child.pid()));
            for &pid in &pids {
                assert_eq!(runtime.info(pid).await.unwrap().parent, Some(parent.pid()));
            }
            // The process receives nothing, so the second message finds no room.
            loops.send(Line).unwrap();
            assert!(matches!(loops.send(Line), Err(SendError::Overloaded(Line))));
            pids.iter().for_each(|pid| pid.kill());
            eventually(|| ends.lock().unwrap().len() == pids.len()).await;
            let mut notices = ends.lock().unwrap().clone();
            notices.sort_by_key(|(pid, _)| *pid);
            pids.sort();
            assert!(notices.iter().map(|(pid, _)| pid).eq(&pids));
            assert!(notices.iter().all(|(_, reason)| *reason == ExitReason::Killed));
            assert!(parent.is_alive());
            parent.kill();
        }
    });
}

#[test]
fn a_monitor_reports_the_exit_reason_of_a_child_however_soon_it_ends() {
    runtime().block_on(async |runtime| {
        let parent = Parent::default();
        let ends = parent.ends.clone();
        let parent = runtime.spawn(parent).unwrap();
        let pids = parent.spawn_and_wait().await.unwrap();
        eventually(|| ends.lock().unwrap().len() == 2).await;
        let mut notices = ends.lock().unwrap().clone();
        notices.sort_by_key(|(pid, _)| pids.iter().position(|other| other == pid));
        let panicked = ExitReason::Panicked("at once".into());
        assert_eq!(notices, [(pids[0], panicked.clone()), (pids[1], panicked)]);
    });
}

#[test]
fn a_supervised_child_has_its_bound_after_a_restart_too() {
    runtime().block_on(async |runtime| {
        let child = ChildSpec::from_async(|_: Inbox<Line>| std::future::pending::<()>());
        let child = child.mailbox(BOUND);
        let handle = child.handle();
        Supervisor::one_for_one().child("loop", child).start_async(runtime).await.unwrap();
        let first = handle.address().unwrap();
        for _ in 0..2 {
            eventually(|| handle.address().is_some()).await;
            handle.send(Line).unwrap();
            assert!(matches!(handle.send(Line), Err(SendError::Overloaded(Line))));
            handle.address().unwrap().kill();
            eventually(|| handle.address() != Some(first)).await;
        }
    });
}

#[test]
fn many_processes_spawned_from_outside_have_a_bound() {
    runtime().block_on(async |runtime| {
        let counters = runtime.spawner().mailbox(BOUND);
        let counters = counters.spawn_many((0..5).map(|count| Counter { count })).unwrap();
        assert_eq!(counters.len(), 5);
        for counter in counters {
            counter.deliver(Fail("on purpose")).await.unwrap();
            let reason = counter.pid().exited().await;
            assert!(matches!(reason, ExitReason::Panicked(_) | ExitReason::NoProcess));
        }
    });
}
