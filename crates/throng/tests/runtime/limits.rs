//! Limits of the runtime, and layouts of process states.

use crate::{Add, Counter, runtime, scaled, until};
use throng::prelude::*;

#[test]
fn the_process_limit_is_exact_and_hands_the_state_back() {
    let runtime = Runtime::builder().workers(2).process_limit(10).start().unwrap();
    let counters: Vec<_> = (0..10).map(|_| runtime.spawn(Counter::default()).unwrap()).collect();
    for _ in 0..3 {
        match runtime.spawn(Counter { count: 42 }) {
            Err(SpawnError::Limit { limit: 10, process }) => assert_eq!(process.count, 42),
            _ => panic!("the limit was not kept"),
        }
    }
    counters[3].stop();
    until(|| runtime.process_count() <= 9);
    let next = runtime.spawn(Counter { count: 1 }).unwrap();
    assert_eq!(runtime.block_on(async |_| next.call(Add(1)).await).unwrap(), 2);
    assert_ne!(next, counters[3]);
    assert!(!counters[3].is_alive(), "an old address reaches the slot's new owner");
}

#[test]
fn states_of_any_size_and_alignment() {
    #[repr(align(256))]
    struct Aligned(u8);
    struct Sized<const N: usize>([u8; N]);
    impl Process for Aligned {}
    impl<const N: usize> Process for Sized<N> {}
    struct Sum;
    impl Message for Sum {
        type Reply = u64;
    }
    impl Handle<Sum> for Aligned {
        async fn handle(&mut self, _: Sum, _: &mut Context<Self>) -> u64 {
            assert_eq!(std::ptr::from_ref(self).addr() % 256, 0);
            u64::from(self.0)
        }
    }
    impl<const N: usize> Handle<Sum> for Sized<N> {
        async fn handle(&mut self, _: Sum, _: &mut Context<Self>) -> u64 {
            self.0.iter().map(|&byte| u64::from(byte)).sum()
        }
    }
    runtime().block_on(async |runtime| {
        assert_eq!(runtime.spawn(Aligned(9)).unwrap().call(Sum).await.unwrap(), 9);
        assert_eq!(runtime.spawn(Sized([1; 0])).unwrap().call(Sum).await.unwrap(), 0);
        assert_eq!(runtime.spawn(Sized([1; 17])).unwrap().call(Sum).await.unwrap(), 17);
        assert_eq!(runtime.spawn(Sized([1; 300])).unwrap().call(Sum).await.unwrap(), 300);
        assert_eq!(runtime.spawn(Sized([1; 3000])).unwrap().call(Sum).await.unwrap(), 3000);
    });
}

#[test]
fn addresses_of_a_runtime_that_is_over_are_harmless() {
    let mut old = Vec::new();
    for _ in 0..3 {
        let runtime = runtime();
        let counters: Vec<_> =
            (0..scaled(1_000)).map(|_| runtime.spawn(Counter::default()).unwrap()).collect();
        for address in &old {
            let address: &Address<Counter> = address;
            assert!(address.send(Add(1)).is_err());
        }
        runtime.block_on(async |_| {
            for counter in &counters {
                assert_eq!(counter.call(Add(1)).await.unwrap(), 1);
            }
        });
        old.extend(counters);
    }
}
