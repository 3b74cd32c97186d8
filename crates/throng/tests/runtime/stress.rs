//! Many processes, messages, exits and panics, on all workers, with checked sums.

use crate::{Add, Counter, eventually, in_turn, runtime, scaled};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use throng::prelude::*;

/// Passes a message round a ring of processes.
struct Ring {
    next: Option<Address<Ring>>,
    passed: Arc<AtomicU64>,
}
#[process]
impl Ring {
    #[message(send)]
    fn pass(&mut self, left: u64) {
        self.passed.fetch_add(1, Ordering::Relaxed);
        if left > 0
            && let Some(next) = self.next
        {
            next.pass(left - 1).unwrap();
        }
    }
    #[message]
    fn join(&mut self, next: Address<Ring>) {
        self.next = Some(next);
    }
}

#[test]
fn rings_pass_every_message_on() {
    let runtime = runtime();
    let passed = Arc::new(AtomicU64::new(0));
    let (rings, size, hops) = (scaled(20), scaled(50), scaled(5_000));
    runtime.block_on(async |runtime| {
        for _ in 0..rings {
            let members: Vec<_> = (0..size)
                .map(|_| runtime.spawn(Ring { next: None, passed: passed.clone() }).unwrap())
                .collect();
            for (index, member) in members.iter().enumerate() {
                member.join(members[(index + 1) % members.len()]).await.unwrap();
            }
            members[0].pass(hops - 1).unwrap();
        }
        eventually(|| passed.load(Ordering::Relaxed) >= rings * hops).await;
    });
    drop(runtime);
    assert_eq!(passed.load(Ordering::Relaxed), rings * hops);
}

#[test]
fn spawn_call_and_exit_from_many_threads_reuse_slots_without_mixing_up() {
    async fn breed(runtime: RuntimeHandle, count: u64) -> u64 {
        let mut sum = 0;
        let mut former: Option<Address<Counter>> = None;
        for number in 0..count {
            let child = runtime.spawn(Counter { count: number }).unwrap();
            sum += child.call(Add(1)).await.unwrap();
            if let Some(former) = former.replace(child) {
                assert_ne!(former, child);
                // The old child may still be stopping, but its address never reaches the new child.
                let _ = former.send(Add(1_000_000));
            }
            child.stop();
        }
        sum
    }
    runtime().block_on(async |runtime| {
        let children = scaled(5_000);
        let parents = [(); 8].map(|()| {
            let runtime = runtime.clone();
            tokio::spawn(async move { in_turn(&runtime, breed(runtime.clone(), children)).await })
        });
        for parent in parents {
            assert_eq!(parent.await.unwrap(), (1..=children).sum::<u64>());
        }
        eventually(|| runtime.process_count() == 0).await;
    });
}

/// Processes that keep each other awake, and wake a third process each time, must not starve it.
#[test]
fn busy_pairs_do_not_starve_other_processes() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let most = runtime.block_on(async |runtime| {
        let own = runtime.clone();
        let churn = async move {
            let mut most = 0;
            for _ in 0..scaled(50_000) {
                let child = own.spawn(Counter::default()).unwrap();
                child.call(Add(1)).await.unwrap();
                child.stop();
                most = most.max(own.process_count());
            }
            most
        };
        in_turn(runtime, churn).await
    });
    assert!(most < 1_000, "{most} stopped processes were waiting for their last turn");
}
