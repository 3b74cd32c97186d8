//! Supervisors: the order in which children are started, stopped and restarted, and the fate of
//! messages to dead children.

use crate::{Add, AddSlowly, Counter, Fail, eventually, runtime, scaled};
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use throng::prelude::*;
use throng::{ChildError, ChildSpec, ChildState, Restart, Supervisor, SupervisorError};

const MINUTE: Duration = Duration::from_secs(60);

/// The events of the children, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: &str, who: &str) {
        self.0.lock().unwrap().push(format!("{what} {who}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns the spec of a child that logs its start and its end.
    fn child(&self, name: &'static str) -> ChildSpec<Noted> {
        self.noted(name, false)
    }

    fn failing(&self, name: &'static str) -> ChildSpec<Noted> {
        self.noted(name, true)
    }

    fn noted(&self, name: &'static str, fails: bool) -> ChildSpec<Noted> {
        let log = self.clone();
        ChildSpec::new(move || Noted { name, log: log.clone(), fails })
    }
}

struct Noted {
    name: &'static str,
    log: Log,
    /// Whether the `started` hook panics.
    fails: bool,
}

#[process]
impl Noted {
    #[hook]
    async fn started(&mut self) {
        // Long enough that a supervisor that does not wait would start the next child first.
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(!self.fails, "on purpose");
        self.log.note("start", self.name);
    }

    #[hook]
    async fn stopping(&mut self) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.log.note("stop", self.name);
    }
}

impl Handle<Fail> for Noted {
    async fn handle(&mut self, Fail(text): Fail, _: &mut Context<Self>) {
        panic!("{text}");
    }
}

/// Has `cause` end a process, and returns its exit reason.
async fn end_of(pid: Pid, cause: impl FnOnce()) -> ExitReason {
    let mut end = pin!(pid.exited());
    // The first poll registers the waker, so that the exit reason is not missed.
    assert!(poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx).is_pending())).await);
    cause();
    end.await
}

#[test]
fn a_child_that_does_not_start_stops_earlier_children_and_start_returns_the_reason() {
    let runtime = runtime();
    let log = Log::default();
    let spec = || {
        let spec = Supervisor::one_for_one().child("a", log.child("a")).child("b", log.child("b"));
        spec.child("c", log.failing("c")).child("d", log.child("d"))
    };
    let failed = SupervisorError::Child {
        id: "c".into(),
        reason: ExitReason::Panicked("on purpose".into()),
    };
    assert_eq!(spec().start(&runtime), Err(failed.clone()));
    assert_eq!(log.take(), ["start a", "start b", "stop c", "stop b", "stop a"]);
    runtime.block_on(async |runtime| {
        assert_eq!(spec().start_async(runtime).await, Err(failed));
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn a_closure_that_fails_or_panics_is_a_start_that_failed() {
    let runtime = runtime();
    let refuses = ChildSpec::fallible(|| Err::<Counter, _>("no such file"));
    let error = Supervisor::one_for_one().child("a", refuses).start(&runtime).unwrap_err();
    let reason = ExitReason::other("no such file");
    assert_eq!(error, SupervisorError::Child { id: "a".into(), reason });
    // This panic is printed, because the quiet panic hook suppresses only panics on workers.
    let panics = || -> Counter { panic!("in the closure") };
    let error = Supervisor::one_for_one().child("b", panics).start(&runtime).unwrap_err();
    let reason = ExitReason::Panicked("in the closure".into());
    assert_eq!(error, SupervisorError::Child { id: "b".into(), reason });
}

#[test]
fn two_children_cannot_have_one_id() {
    let runtime = runtime();
    let spec = Supervisor::one_for_one().child("a", Counter::default).child("a", Counter::default);
    assert_eq!(spec.start(&runtime), Err(SupervisorError::DuplicateId { id: "a".into() }));
    runtime.block_on(async |runtime| eventually(|| runtime.process_count() == 0).await);
}

#[test]
fn messages_queued_at_a_crash_are_dropped_and_later_ones_reach_the_next_incarnation() {
    let runtime = runtime();
    let child = ChildSpec::new(Counter::default);
    let handle = child.handle();
    let supervisor = Supervisor::one_for_one().child("counter", child).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        let first = handle.address().unwrap();
        // All messages are queued behind a slow call.
        let slow = AddSlowly(1, Duration::from_millis(20));
        let (slow, cast, fail, call) = tokio::join!(
            handle.call(slow),
            async { handle.send(Add(100)) },
            handle.call(Fail("on purpose")),
            handle.call(Add(1_000)),
        );
        assert_eq!(slow.unwrap(), 1);
        assert!(cast.is_ok(), "queued");
        let panicked = ExitReason::Panicked("on purpose".into());
        assert!(matches!(fail, Err(CallError::Died(reason)) if reason == panicked));
        assert!(matches!(call, Err(CallError::Died(reason)) if reason == panicked));
        eventually(|| handle.address().is_some_and(|address| address != first)).await;
        assert!(matches!(first.send(Add(1)), Err(SendError::NoProcess(Add(1)))));
        assert_eq!(
            handle.call(Add(1)).await.unwrap(),
            1,
            "the state is not fresh, or a queued message was kept"
        );

        // While no incarnation runs, all messages are handed back.
        supervisor.terminate_child("counter").await.unwrap();
        assert!(matches!(handle.send(Add(7)), Err(SendError::NoProcess(Add(7)))));
        assert!(matches!(handle.call(Add(8)).await, Err(CallError::NoProcess(Add(8)))));
        supervisor.restart_child("counter").await.unwrap();
        assert_eq!(handle.call(Add(2)).await.unwrap(), 2);
    });
}

#[test]
fn a_child_written_as_a_future_is_restarted_when_it_ends() {
    struct Note(u64);
    impl Message for Note {
        type Reply = ();
    }
    let runtime = runtime();
    let sum = Arc::new(AtomicU64::new(0));
    let child = ChildSpec::from_async({
        let sum = sum.clone();
        move |mut inbox: Inbox<Note>| {
            let sum = sum.clone();
            async move {
                sum.fetch_add(1_000, Ordering::SeqCst);
                match inbox.recv().await {
                    Note(0) => panic!("on purpose"),
                    Note(number) => sum.fetch_add(number, Ordering::SeqCst),
                };
                Err::<(), _>("this was all")
            }
        }
    });
    let handle = child.handle();
    let child = child.restart(Restart::Transient);
    let spec = Supervisor::one_for_one().intensity(2, MINUTE).child("future", child);
    let supervisor = spec.start(&runtime).unwrap();
    runtime.block_on(async |_| {
        for note in [5, 0] {
            let address = handle.address().unwrap();
            handle.send(Note(note)).unwrap();
            eventually(|| handle.address().is_some_and(|it| it != address)).await;
        }
        let reason = end_of(supervisor.pid(), || handle.send(Note(7)).unwrap()).await;
        assert_eq!(reason, ExitReason::Shutdown);
        assert_eq!(sum.load(Ordering::SeqCst), 3_012);
    });
}

#[test]
fn an_inner_supervisor_that_gives_up_is_restarted_by_the_outer_and_handles_follow() {
    let runtime = runtime();
    let leaf = ChildSpec::new(Counter::default);
    let handle = leaf.handle();
    let inner = Supervisor::one_for_one().intensity(0, MINUTE).child("leaf", leaf);
    let outer = Supervisor::one_for_one().intensity(1, MINUTE).child("inner", inner);
    let outer = outer.start(&runtime).unwrap();
    runtime.block_on(async |runtime| {
        let inner = outer.child::<Supervisor>("inner").await.unwrap();
        let first = inner.address().unwrap();
        assert_eq!(handle.call(Add(3)).await.unwrap(), 3);
        handle.send(Fail("on purpose")).unwrap();
        first.pid().exited().await;
        eventually(|| inner.address().is_some() && handle.address().is_some()).await;
        assert_eq!(handle.call(Add(1)).await.unwrap(), 1);
        assert_eq!(inner.address().unwrap().count_children().await.unwrap(), 1);
        assert_eq!(outer.count_children().await.unwrap(), 1);
        assert!(outer.which_children().await.unwrap()[0].is_supervisor);
        // The next crash ends the outer supervisor too.
        handle.send(Fail("on purpose")).unwrap();
        outer.pid().exited().await;
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn an_inner_supervisor_that_does_not_start_is_a_child_that_does_not_start() {
    let runtime = runtime();
    let log = Log::default();
    let inner = Supervisor::one_for_one().child("b", log.child("b")).child("c", log.failing("c"));
    let outer = Supervisor::one_for_one().child("a", log.child("a")).child("inner", inner);
    let error = outer.start(&runtime).unwrap_err();
    let SupervisorError::Child { id, reason } = error else { panic!("{error}") };
    assert_eq!(&*id, "inner");
    let reason = reason.to_string();
    assert!(reason.starts_with("the child c did not start: panicked"), "{reason}");
    assert!(reason.ends_with(": on purpose"), "{reason}");
    assert_eq!(log.take(), ["start a", "start b", "stop c", "stop b", "stop a"]);
    runtime.block_on(async |runtime| eventually(|| runtime.process_count() == 0).await);
}

#[test]
fn children_are_managed_while_the_supervisor_runs() {
    let runtime = runtime();
    let supervisor =
        Supervisor::one_for_one().child("a", Counter::default).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        let a = supervisor.child::<Counter>("a").await.unwrap();
        let running = a.address().unwrap().pid();
        let other = supervisor.child::<Noted>("a").await;
        assert!(matches!(other, Err(ChildError::OtherProcess(name)) if name.contains("Counter")));
        let again = supervisor.start_child("a", Counter::default).await;
        assert!(matches!(again, Err(ChildError::Running(pid)) if pid == running));
        assert_eq!(supervisor.restart_child("a").await, Err(ChildError::Running(running)));
        assert_eq!(supervisor.delete_child("a").await, Err(ChildError::Running(running)));
        assert_eq!(supervisor.terminate_child("b").await, Err(ChildError::NoChild));

        let b = supervisor.start_child("b", Counter::default).await.unwrap();
        let nameless = supervisor.spawn_child(Counter::default).await.unwrap();
        assert_eq!(supervisor.count_children().await.unwrap(), 3);
        supervisor.terminate_child(&nameless).await.unwrap();
        assert_eq!(supervisor.terminate_child(&nameless).await, Err(ChildError::NoChild));
        supervisor.terminate_child(b.address().unwrap()).await.unwrap();
        let again = supervisor.start_child("b", Counter::default).await;
        assert!(matches!(again, Err(ChildError::Stopped)));

        let children = supervisor.which_children().await.unwrap();
        let seen: Vec<_> =
            children.iter().map(|it| (it.id.as_deref().unwrap(), it.state)).collect();
        assert_eq!(seen, [("a", ChildState::Running(running)), ("b", ChildState::Stopped)]);
        supervisor.delete_child("b").await.unwrap();
        assert_eq!(supervisor.restart_child("b").await, Err(ChildError::NoChild));
        let failed =
            supervisor.start_child("c", ChildSpec::fallible(|| Err::<Counter, _>("no"))).await;
        assert!(
            matches!(failed, Err(ChildError::Failed(reason)) if reason == ExitReason::other("no"))
        );
        assert_eq!(supervisor.which_children().await.unwrap().len(), 1);

        supervisor.stop();
        supervisor.pid().exited().await;
        let gone = supervisor.count_children().await;
        assert!(matches!(gone, Err(ChildError::Unanswered(_))));
    });
}

#[test]
fn a_name_goes_with_the_child_to_its_next_incarnation() {
    let runtime = runtime();
    let child = ChildSpec::new(Counter::default).register("counter");
    let handle = child.handle();
    let supervisor = Supervisor::one_for_one()
        .intensity(u32::MAX, MINUTE)
        .child("counter", child)
        .start(&runtime)
        .unwrap();
    runtime.block_on(async |runtime| {
        for _ in 0..scaled(1_000) {
            let address = runtime.whereis::<Counter>("counter").unwrap();
            address.send(Fail("on purpose")).unwrap();
            eventually(|| runtime.whereis::<Counter>("counter").is_some_and(|it| it != address))
                .await;
            assert!(!address.is_alive());
        }
        eventually(|| handle.address() == runtime.whereis::<Counter>("counter")).await;
        let taken = ChildSpec::new(Counter::default).register("counter");
        let failed = supervisor.start_child("other", taken).await;
        assert!(matches!(failed, Err(ChildError::Failed(_))));
        assert!(handle.address().is_some(), "the holder of the name has gone");
    });
}

/// Starts a supervisor from within a process.
struct Owner {
    log: Log,
}
#[process]
impl Owner {
    #[message]
    async fn start_linked(
        &mut self,
        failing: bool,
        cx: &mut Context<Self>,
    ) -> Result<Address<Supervisor>, SupervisorError> {
        let blocking = Supervisor::one_for_one().start(cx.runtime());
        assert_eq!(blocking, Err(SupervisorError::WouldBlock));
        let last = if failing { self.log.failing("b") } else { self.log.child("b") };
        let spec = Supervisor::one_for_one().child("a", self.log.child("a")).child("b", last);
        spec.start_linked(cx).await
    }
}

#[test]
fn a_supervisor_started_in_a_process_ends_with_it_and_its_failure_to_start_does_not_end_the_process()
 {
    let runtime = runtime();
    let log = Log::default();
    let owner = runtime.spawn(Owner { log: log.clone() }).unwrap();
    runtime.block_on(async |runtime| {
        let failed = owner.start_linked(true).await.unwrap();
        assert!(matches!(failed, Err(SupervisorError::Child { .. })));
        eventually(|| runtime.process_count() == 1).await;
        assert!(owner.is_alive());
        log.take();
        let supervisor = owner.start_linked(false).await.unwrap().unwrap();
        let why = ExitReason::other("enough");
        assert_eq!(end_of(supervisor.pid(), || owner.exit(why.clone())).await, why);
        assert_eq!(log.take(), ["start a", "start b", "stop b", "stop a"]);
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn many_dynamic_children_restart_and_stop() {
    let runtime = runtime();
    let children = scaled(4_000);
    let sessions = Supervisor::dynamic().intensity(u32::MAX, MINUTE).start(&runtime).unwrap();
    runtime.block_on(async |runtime| {
        let mut handles = Vec::new();
        for _ in 0..children {
            handles.push(sessions.spawn_child(Counter::default).await.unwrap());
        }
        for round in 0..3 {
            let before: HashSet<_> = handles.iter().map(|it| it.address().unwrap()).collect();
            assert_eq!(before.len() as u64, children);
            handles.iter().for_each(|handle| handle.send(Fail("on purpose")).unwrap());
            for handle in &handles {
                eventually(|| handle.address().is_some_and(|it| !before.contains(&it))).await;
                assert_eq!(handle.call(Add(round)).await.unwrap(), round, "the state is not fresh");
            }
        }
        assert_eq!(sessions.which_children().await.unwrap().len() as u64, children);
        assert_eq!(sessions.count_children().await.unwrap() as u64, children);
        sessions.stop();
        sessions.pid().exited().await;
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn a_shutdown_lets_supervised_children_handle_queued_messages() {
    struct Recorder(Arc<AtomicU64>);
    impl Process for Recorder {}
    impl Handle<Add> for Recorder {
        async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.0.fetch_add(number, Ordering::SeqCst)
        }
    }
    let runtime = runtime();
    let sum = Arc::new(AtomicU64::new(0));
    let recorder = ChildSpec::new({
        let sum = sum.clone();
        move || Recorder(sum.clone())
    });
    let handle = recorder.handle();
    let recorder = recorder.shutdown(Duration::ZERO);
    Supervisor::one_for_one().child("recorder", recorder).start(&runtime).unwrap();
    for _ in 0..50 {
        handle.send(Add(1)).unwrap();
    }
    assert_eq!(runtime.shutdown(MINUTE).abandoned, 0);
    assert_eq!(sum.load(Ordering::SeqCst), 50);
}

#[test]
fn restarts_do_not_delay_the_shutdown() {
    let runtime = runtime();
    let spec = (0..10)
        .fold(Supervisor::one_for_one().intensity(u32::MAX, MINUTE), |spec, index| {
            spec.child(format!("child {index}"), Counter::default)
        });
    let outer = Supervisor::one_for_one().intensity(u32::MAX, MINUTE).child("inner", spec);
    outer.start(&runtime).unwrap();
    assert_eq!(runtime.shutdown(MINUTE).abandoned, 0);
}

#[test]
fn many_children_start_in_one_message_all_or_none() {
    runtime().block_on(async |runtime| {
        let log = Log::default();
        let supervisor = Supervisor::dynamic().start_async(runtime).await.unwrap();
        let children = supervisor.spawn_children(["a", "b", "c"].map(|name| log.child(name)));
        let children = children.await.unwrap();
        assert_eq!(log.take(), ["start a", "start b", "start c"]);
        assert!(children.iter().all(|child| child.address().is_some()));

        let specs = [log.child("d"), log.child("e"), log.failing("f"), log.child("g")];
        let failed = supervisor.spawn_children(specs).await;
        assert!(matches!(failed, Err(ChildError::Failed(ExitReason::Panicked(_)))), "{failed:?}");
        assert_eq!(log.take(), ["start d", "start e", "stop f", "stop e", "stop d"]);
        assert_eq!(supervisor.which_children().await.unwrap().len(), 3);

        assert!(
            supervisor.spawn_children(Vec::<ChildSpec<Noted>>::new()).await.unwrap().is_empty()
        );
        let many = (0..scaled(10_000)).map(|_| Counter::default);
        let many = supervisor.spawn_children(many).await.unwrap();
        assert_eq!(many.len() as u64, scaled(10_000));
        assert_eq!(many[7].call(Add(7)).await.unwrap(), 7);
        supervisor.kill();
        supervisor.pid().exited().await;
        let dead = supervisor.spawn_children([log.child("h")]).await;
        assert!(matches!(dead, Err(ChildError::Unanswered(_))));
    });
}
