//! Events of the runtime, with a subscriber that blocks and panics. This test is a program of its
//! own, because the subscriber is global.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use throng::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context as Registered, Layer, SubscriberExt};

/// Subscriber that blocks in each event while [`Control::blocks`] is set, and panics in the events of
/// panicked processes.
struct Hostile;

#[derive(Default)]
struct Control {
    blocks: bool,
    /// Target and text of all events that the subscriber was called with.
    seen: Vec<(&'static str, String)>,
}

static CONTROL: Mutex<Control> = Mutex::new(Control { blocks: false, seen: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn control<R>(f: impl FnOnce(&mut Control) -> R) -> R {
    let result = f(&mut CONTROL.lock().unwrap_or_else(PoisonError::into_inner));
    CHANGED.notify_all();
    result
}

/// Waits for an event whose text starts with `text`, and returns its target.
fn until_seen(text: &str) -> &'static str {
    let mut control = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some((target, _)) = control.seen.iter().find(|(_, seen)| seen.starts_with(text)) {
            return target;
        }
        let waited = CHANGED.wait_timeout(control, Duration::from_secs(60)).unwrap();
        assert!(!waited.1.timed_out(), "no event says {text}: {:?}", waited.0.seen);
        control = waited.0;
    }
}

struct Text(String);
impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            assert!(self.0.is_empty(), "two fields are called message");
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Hostile {
    fn on_event(&self, event: &Event<'_>, _: Registered<'_, S>) {
        if !event.metadata().target().starts_with("throng") {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        control(|control| control.seen.push((event.metadata().target(), text.0.clone())));
        let mut control = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        while control.blocks {
            control = CHANGED.wait(control).unwrap_or_else(PoisonError::into_inner);
        }
        drop(control);
        assert!(!text.0.starts_with("a process panicked"), "the subscriber panics on purpose");
    }
}

struct Room;
#[process]
impl Room {
    /// Blocks its thread until the test lets it go.
    #[message(send)]
    fn block(&mut self, until: std::sync::mpsc::Receiver<()>) {
        let _ = until.recv();
    }
    #[message]
    fn panic(&mut self) {
        panic!("the handler panics on purpose");
    }
    /// Never answers in time.
    #[message]
    async fn wait(&mut self) {
        std::future::pending().await
    }
}

/// Calls a room that never answers.
struct Patient;
#[process]
impl Patient {
    #[message]
    async fn call_for(&mut self, room: Address<Room>, time: Duration) -> bool {
        matches!(room.wait().within(time).await, Err(CallError::TimedOut { .. }))
    }
}

/// Unblocks the subscriber when dropped, also if an assertion fails.
struct Unblock;
impl Drop for Unblock {
    fn drop(&mut self) {
        control(|control| control.blocks = false);
    }
}

#[test]
fn a_subscriber_that_blocks_or_panics_delays_nothing_in_the_runtime() {
    let hostile = tracing_subscriber::registry().with(Hostile);
    tracing::subscriber::set_global_default(hostile).unwrap();
    let builder = Runtime::builder().workers(1).stuck_after(Duration::from_millis(10));
    let runtime = builder.mailbox_budget(64 * 1024).start().unwrap();
    let (let_go, until) = std::sync::mpsc::channel();
    runtime.block_on(async |runtime| {
        // The event of a blocked turn blocks the subscriber.
        let _unblocked_at_the_end = Unblock;
        control(|control| control.blocks = true);
        let first = runtime.spawn(Room).unwrap();
        first.block(until).unwrap();
        assert_eq!(until_seen("a turn blocks its worker"), "throng::watch");

        // The clock thread still runs: a spare worker keeps deadlines.
        let (patient, mute) = (runtime.spawn(Patient).unwrap(), runtime.spawn(Room).unwrap());
        assert!(patient.call_for(mute, Duration::from_millis(20)).await.unwrap());

        // The watchdog still runs: it counts a second blocked turn, and starts a second spare worker.
        let (let_second_go, until) = std::sync::mpsc::channel();
        let second = runtime.spawn(Room).unwrap();
        second.block(until).unwrap();
        let stuck =
            || -> u64 { runtime.metrics().workers.iter().map(|worker| worker.stuck_turns).sum() };
        while stuck() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(patient.call_for(mute, Duration::from_millis(20)).await.unwrap());

        // The budget is still enforced.
        let error = loop {
            if let Err(error) = mute.block(std::sync::mpsc::channel().1) {
                break error;
            }
        };
        assert!(matches!(error, SendError::Overloaded(_)));

        // Processes still exit. Their events are queued behind the blocked event.
        mute.pid().kill();
        let reason = mute.pid().exited().await;
        assert!(matches!(reason, ExitReason::Killed | ExitReason::NoProcess), "{reason}");
        let_second_go.send(()).unwrap();
        let_go.send(()).unwrap();
    });
    assert_eq!(until_seen("the mailbox budget is reached"), "throng::budget");

    assert_eq!(until_seen("there is mailbox budget again"), "throng::budget");

    // The subscriber is called on no worker, so its panics end none.
    runtime.block_on(async |runtime| {
        for _ in 0..3 {
            let panics = runtime.spawn(Room).unwrap();
            let died = panics.panic().await;
            let Err(CallError::Died(ExitReason::Panicked(panic))) = died else {
                panic!(
                    "the handler did not panic: {:?}",
                    died.err().map(|error| error.to_string())
                );
            };
            assert!(panic.message().contains("handler"), "{panic}");
        }
        assert_eq!(until_seen("a process panicked"), "throng::worker");
    });
    runtime.shutdown(Duration::from_secs(20));
    let panicked = control(|control| {
        control.seen.iter().filter(|(_, text)| text.starts_with("a process panicked")).count()
    });
    assert_eq!(panicked, 3, "an event was lost, or the shutdown did not wait for the last");
}
