//! Metrics by kind of process.

use crate::{Actor, Add, Await, Counter, Fail, eventually, quiet};
use std::time::Duration;
use throng::KindMetrics;
use throng::prelude::*;

fn start(kind_metrics: bool) -> Runtime {
    quiet();
    Runtime::builder().workers(2).kind_metrics(kind_metrics).start().expect("starts")
}

/// Returns the metrics of the processes of type `P`.
fn kind<P>(runtime: &RuntimeHandle) -> KindMetrics {
    let name = std::any::type_name::<P>();
    runtime.metrics().kinds.into_iter().find(|kind| kind.process == name).unwrap_or_default()
}

/// Counts its hooks as turns.
struct Hooked;
impl Process for Hooked {
    async fn started(&mut self, _: &mut Context<Self>) {
        tokio::task::yield_now().await;
    }
    async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {}
}

/// Blocks its worker.
struct Slow;
#[process]
impl Slow {
    #[message]
    fn block(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[test]
fn processes_and_turns_are_counted_by_kind() {
    let runtime = start(true);
    runtime.block_on(async |runtime| {
        assert!(runtime.metrics().kinds.is_empty());
        // Spawned and called from outside, sent to by other processes, flooded.
        let counters: Vec<_> =
            (0..10).map(|_| runtime.spawn(Counter::default()).unwrap()).collect();
        for counter in &counters {
            for number in 0..100 {
                counter.send(Add(number)).unwrap();
            }
            counter.call(Add(1)).await.unwrap();
        }
        let hooked = runtime.spawn(Hooked).unwrap();
        eventually(|| kind::<Counter>(runtime).turns == 1010).await;
        let counts = kind::<Counter>(runtime);
        assert_eq!((counts.processes, counts.spawned, counts.exited), (10, 10, 0));

        counters[0].send(Fail("on purpose")).unwrap();
        counters[1].stop();
        counters[2].kill();
        hooked.stop();
        eventually(|| runtime.process_count() == 7).await;
        eventually(|| kind::<Counter>(runtime).exited == 3).await;
        let counts = kind::<Counter>(runtime);
        assert_eq!((counts.processes, counts.spawned, counts.panicked), (7, 10, 1));
        eventually(|| kind::<Hooked>(runtime).exited == 1).await;
        let hooked = kind::<Hooked>(runtime);
        assert_eq!((hooked.processes, hooked.spawned, hooked.panicked), (0, 1, 0));

        let metrics = runtime.metrics();
        let names: Vec<_> = metrics.kinds.iter().map(|kind| kind.process).collect();
        assert!(names.is_sorted(), "{names:?}");
        let label = format!("{{process=\"{}\"}}", std::any::type_name::<Counter>());
        let text = metrics.to_prometheus();
        assert!(text.contains(&format!("\nthrong_kind_processes{label} 7\n")), "{text}");
        let sum = |count: fn(&KindMetrics) -> u64| metrics.kinds.iter().map(count).sum::<u64>();
        assert_eq!((sum(|kind| kind.processes), metrics.processes), (7, 7));
        assert_eq!(sum(|kind| kind.panicked), metrics.panicked);
        assert_eq!(metrics.workers.iter().filter(|worker| !worker.guest).count(), 2);
        assert!(metrics.uptime > Duration::ZERO);
        assert_eq!(sum(|kind| kind.spawned), metrics.spawned);
        assert_eq!(sum(|kind| kind.exited), metrics.exited);
    });
}

#[test]
fn all_turns_of_the_workers_and_guests_are_those_of_a_kind() {
    async fn have_a_child(runtime: RuntimeHandle) -> u64 {
        let child = runtime.spawn(Counter::default()).unwrap();
        for _ in 0..9 {
            child.send(Add(1)).unwrap();
        }
        let count = child.call(Add(1)).await.unwrap();
        child.stop();
        count
    }

    let runtime = start(true);
    runtime.block_on(async |runtime| {
        let parent = runtime.spawn(Actor).unwrap();
        for _ in 0..20 {
            assert_eq!(parent.call(Await(have_a_child(runtime.clone()))).await.unwrap(), 10);
        }
        eventually(|| runtime.process_count() == 1).await;
        eventually(|| {
            let metrics = runtime.metrics();
            let by_worker: u64 = metrics.workers.iter().map(|worker| worker.turns).sum();
            metrics.kinds.iter().map(|kind| kind.turns).sum::<u64>() == by_worker
        })
        .await;
        let (parent, child) = (kind::<Actor>(runtime), kind::<Counter>(runtime));
        assert_eq!((parent.turns, parent.processes), (20, 1));
        assert_eq!((child.spawned, child.exited), (20, 20));
        // Ten messages each; a request to stop may count as one, and so may the exit.
        assert!((200..=240).contains(&child.turns), "{}", child.turns);
    });
}

#[test]
fn the_time_of_long_turns_is_known() {
    let runtime = start(true);
    runtime.block_on(async |runtime| {
        let slow = runtime.spawn(Slow).unwrap();
        for _ in 0..10 {
            slow.block(Duration::from_millis(30)).await.unwrap();
        }
        eventually(|| kind::<Slow>(runtime).turns == 10).await;
        let busy = kind::<Slow>(runtime).busy;
        // The coarse clock errs by a few milliseconds.
        assert!(busy >= Duration::from_millis(250) && busy < Duration::from_secs(30), "{busy:?}");
    });
}

#[test]
fn a_runtime_that_does_not_count_kinds_reports_none() {
    let runtime = start(false);
    runtime.spawn(Slow).unwrap();
    assert!(runtime.metrics().kinds.is_empty());
    assert!(!runtime.metrics().to_prometheus().contains("throng_kind_"));
}
