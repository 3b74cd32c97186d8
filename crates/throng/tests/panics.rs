//! The places of panics. This test is a program of its own, because the panic hook and the subscriber are
//! global: its tests run one after the other, in the order in which they change the hook.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use throng::prelude::*;
use throng::{BlockingError, CallError, Panic};
use tokio_stream::StreamExt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context as Registered, Layer, SubscriberExt};

/// Runs a closure as a turn.
struct Run<F>(F);
impl<P: Process, R: Send + 'static, F: FnOnce(&mut Context<P>) -> R + Send + 'static> Turn<P>
    for Run<F>
{
    type Reply = R;
    async fn run(self, _: &mut P, cx: &mut Context<P>) -> R {
        (self.0)(cx)
    }
}

struct Room;
#[process]
impl Room {
    /// Panics in a poll after the first.
    #[message]
    async fn late(&mut self) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        panic!("late");
    }
    /// The end of a stream.
    #[message]
    fn ended(&mut self, reason: ExitReason, tell: Sender<ExitReason>) {
        tell.send(reason).unwrap();
    }
}

/// Panics in a hook.
struct Hooked;
impl Process for Hooked {
    async fn started(&mut self, _: &mut Context<Self>) {
        tokio::task::yield_now().await;
        panic!("in a hook");
    }
}

/// Panics when it is dropped.
struct Drops;
impl Drop for Drops {
    fn drop(&mut self) {
        panic!("in a drop");
    }
}

/// Catches a panic of its own when it is dropped.
struct Catches;
impl Drop for Catches {
    fn drop(&mut self) {
        let caught = catch_unwind(|| panic!("caught in a drop"));
        assert_eq!(Panic::from_payload(caught.unwrap_err()).message(), "caught in a drop");
    }
}

/// Sends the exit reason of a process on.
struct Watches(Pid, Sender<ExitReason>);
impl Process for Watches {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.monitor(self.0);
    }
    async fn down(&mut self, down: throng::Down, _: &mut Context<Self>) {
        self.1.send(down.reason).unwrap();
    }
}

/// Returns the panic that a turn ends with.
async fn panic_of<R: Send + 'static>(
    runtime: &RuntimeHandle,
    turn: impl FnOnce(&mut Context<Room>) -> R + Send + 'static,
) -> Panic {
    match runtime.spawn(Room).unwrap().call(Run(turn)).await {
        Err(CallError::Died(ExitReason::Panicked(panic))) => panic,
        _ => panic!("the turn did not panic"),
    }
}

/// Asserts that a panic was raised in a line of this file.
#[track_caller]
fn assert_place(panic: &Panic, message: &str, line: u32) {
    let place = panic.place().unwrap_or_else(|| panic!("{panic:?} has no place"));
    assert_eq!((panic.message(), &*place.file, place.line), (message, file!(), line));
    let text = format!("panicked at {}:{}:{}: {message}", file!(), line, place.column);
    assert_eq!(ExitReason::Panicked(panic.clone()).to_string(), text);
}

/// Returns the first line of this file that contains a text.
fn line_of(text: &str) -> u32 {
    let source = include_str!("panics.rs");
    let found = source.lines().zip(1..).find(|(line, _)| line.contains(text));
    found.unwrap().1
}

/// Fields `place` of the events about panicked processes.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;
struct Place(Option<String>);
impl Visit for Place {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "place" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}
impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Registered<'_, S>) {
        if event.metadata().target() == "throng::worker" {
            let mut place = Place(None);
            event.record(&mut place);
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).extend(place.0);
        }
    }
}

#[test]
fn a_panic_has_the_place_where_it_was_raised_and_no_other() {
    std::panic::set_hook(Box::new(|_| {}));
    let recorder = tracing_subscriber::registry().with(Recorder);
    tracing::subscriber::set_global_default(recorder).unwrap();
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        everywhere(runtime).await;
        of_another_panic(runtime).await;
    });
    let line = line_of("\"in a turn\"");
    runtime.shutdown(std::time::Duration::from_secs(20));
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    let place = format!("{}:{line}:", file!());
    assert!(seen.iter().any(|seen| seen.starts_with(&place)), "{seen:?}");

    // A second runtime does not install the hook again.
    hooks();
}

/// The place is known wherever the runtime catches a panic.
async fn everywhere(runtime: &RuntimeHandle) {
    let panic = panic_of(runtime, |_| panic!("in a turn")).await;
    assert_place(&panic, "in a turn", line!() - 1);
    let panic = panic_of(runtime, |_| panic!("formatted {}", 7)).await;
    assert_place(&panic, "formatted 7", line!() - 1);
    let panic = panic_of(runtime, |_| std::panic::panic_any(7)).await;
    assert_place(&panic, "a panic without a message", line!() - 1);
    let panic = panic_of(runtime, |_| Vec::<u8>::new()[1]).await;
    assert_eq!(panic.place().map(|place| place.line), Some(line!() - 1));

    let died = runtime.spawn(Room).unwrap().late().await;
    let Err(CallError::Died(ExitReason::Panicked(panic))) = died else { panic!("did not panic") };
    assert_place(&panic, "late", line_of("panic!(\"late\")"));

    // A reply's drop panics in the process, if nobody waits for the reply.
    let panic = panic_of(runtime, |_| drop(Drops)).await;
    assert_place(&panic, "in a drop", line_of("panic!(\"in a drop\")"));

    let (tell, told) = channel();
    let hooked = runtime.spawn(Hooked).unwrap();
    runtime.spawn(Watches(hooked.pid(), tell)).unwrap();
    if let ExitReason::Panicked(panic) = told.recv().unwrap() {
        assert_place(&panic, "in a hook", line_of("panic!(\"in a hook\")"));
    }

    let (tell, told) = channel();
    let attach = move |cx: &mut Context<Room>| {
        let torn = tokio_stream::iter([()]).map(|()| -> Ended { panic!("torn") });
        cx.attach(torn, |reason| Ended { reason, tell }).map(drop).map_err(drop)
    };
    let room = runtime.spawn(Room).unwrap();
    room.call(Run(attach)).await.unwrap().unwrap();
    let ExitReason::Panicked(panic) = told.recv().unwrap() else { panic!("the stream has ended") };
    assert_place(&panic, "torn", line_of("panic!(\"torn\")"));

    let (tell, told) = channel();
    let block = move |cx: &mut Context<Room>| {
        let blocking = cx.blocking(|| -> () { panic!("in a closure") });
        cx.pipe(async move {
            let result = blocking.await;
            Run(move |_: &mut Context<Room>| tell.send(result).unwrap())
        })
        .map(drop)
        .map_err(drop)
    };
    room.call(Run(block)).await.unwrap().unwrap();
    let Err(BlockingError::Panicked(panic)) = told.recv().unwrap() else { panic!("no panic") };
    assert_place(&panic, "in a closure", line_of("panic!(\"in a closure\")"));
    assert!(BlockingError::<()>::Panicked(panic).to_string().contains("closure panicked at "));
}

/// A panic never has the place of another.
async fn of_another_panic(runtime: &RuntimeHandle) {
    let resume = |payload: Box<dyn Any + Send>| move |_: &mut Context<Room>| resume_unwind(payload);
    let panic = panic_of(runtime, resume(Box::new("no hook runs"))).await;
    assert_eq!((panic.message(), panic.place()), ("no hook runs", None));

    // Handlers catch panics themselves, so nobody takes the notes; all threads have notes then.
    for _ in 0..100 {
        let caught = |_: &mut Context<Room>| drop(catch_unwind(|| panic!("caught")));
        runtime.spawn(Room).unwrap().call(Run(caught)).await.unwrap();
    }
    let panic = panic_of(runtime, resume(Box::new("caught"))).await;
    assert_eq!((panic.message(), panic.place()), ("caught", None));
    let panic = panic_of(runtime, |_| {
        drop(catch_unwind(|| panic!("caught")));
        resume_unwind(Box::new("another"))
    });
    assert_eq!(panic.await.place(), None);

    // A payload that is caught and raised again keeps its place.
    let panic = panic_of(runtime, |_| {
        let payload = catch_unwind(|| panic!("raised again")).unwrap_err();
        resume_unwind(payload)
    });
    assert_place(&panic.await, "raised again", line!() - 3);

    // A panic that is caught while another unwinds.
    let panic = panic_of(runtime, |_| {
        let _catches = Catches;
        panic!("around the other")
    });
    assert_place(&panic.await, "around the other", line!() - 2);
}

/// The hook is one of a chain, which the program may change.
fn hooks() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let panic = || runtime.block_on(async |runtime| panic_of(runtime, |_| panic!("hooks")).await);
    assert!(panic().place().is_some());

    // A hook that calls the one before it.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| before(info)));
    assert!(panic().place().is_some());

    // A hook that does not.
    std::panic::set_hook(Box::new(|_| {}));
    assert_eq!((panic().message(), panic().place()), ("hooks", None));
    assert_eq!(ExitReason::Panicked(panic()), ExitReason::Panicked("hooks".into()));
    assert_eq!(ExitReason::Panicked(panic()).to_string(), "panicked: hooks");

    // A thread that unwinds must not change the hook, and the runtime starts anyway.
    struct Starts;
    impl Drop for Starts {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            let runtime = Runtime::builder().workers(1).start().unwrap();
            drop(runtime);
        }
    }
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _starts = Starts;
        panic!("unwinds");
    }));
    assert!(unwound.is_err());
}
