//! The guarantees of the runtime, tested through the public API alone.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

mod attach;
mod blocking;
mod bounded;
mod calls;
mod cycles;
mod durations;
mod exits;
mod fairness;
mod groups;
mod guests;
mod inbox;
mod inspect;
mod kept;
mod kinds;
mod layer;
mod lent;
mod limits;
mod order;
mod pools;
mod recipients;
mod registries;
mod registry;
mod replies;
mod room;
mod shutdowns;
mod signals;
mod spawning;
mod stress;
mod supervisors;
mod timers;
mod topics;
mod work;

use throng::prelude::*;

/// A process that counts.
pub(crate) struct Counter {
    pub(crate) count: u64,
}

impl Process for Counter {}

#[derive(Clone)]
pub(crate) struct Add(pub(crate) u64);
impl Message for Add {
    type Reply = u64;
}
impl Handle<Add> for Counter {
    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
        self.count += number;
        self.count
    }
}

pub(crate) struct Fail(pub(crate) &'static str);
impl Message for Fail {
    type Reply = ();
}
impl Handle<Fail> for Counter {
    async fn handle(&mut self, Fail(text): Fail, _: &mut Context<Self>) {
        panic!("{text}");
    }
}

/// Adds after a delay, during which other messages must wait.
pub(crate) struct AddSlowly(pub(crate) u64, pub(crate) std::time::Duration);
impl Message for AddSlowly {
    type Reply = u64;
}
impl Handle<AddSlowly> for Counter {
    async fn handle(&mut self, AddSlowly(number, time): AddSlowly, _: &mut Context<Self>) -> u64 {
        let before = self.count;
        tokio::time::sleep(time).await;
        self.count = before + number;
        self.count
    }
}

/// Returns the number of repetitions of a test: `number`, but far fewer under Miri, which is slow.
pub(crate) fn scaled(number: u64) -> u64 {
    if cfg!(miri) { (number / 200).clamp(2, 50) } else { number }
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within about a minute.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        for _ in 0..100 {
            if holds() {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("the condition does not hold in time");
}

/// Waits until a condition holds, on a thread without tokio.
///
/// # Panics
/// If it does not within two minutes.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 120, "the condition does not hold in time");
        std::thread::yield_now();
    }
}

pub(crate) fn runtime() -> Runtime {
    // Intended panics would drown all other output.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("throng-")) {
                default(info);
            }
        }));
    });
    Runtime::builder().workers(2).start().expect("starts")
}
