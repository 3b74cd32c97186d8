//! Spans that follow a message, with a subscriber that records spans and events. This test is a program of its
//! own, because the subscriber is global. Each request has an id of its own.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use throng::layer::{Layer, TurnEnd};
use throng::prelude::*;
use throng::{CallError, MailboxBound, Overflow, SendError};
use tracing::field::{Field, Visit};
use tracing::{Event, Instrument, Span, Subscriber, info, info_span, span};
use tracing_subscriber::layer::{Context as Registered, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The record of a request's span.
#[derive(Default)]
struct Request {
    entered: u32,
    closed: bool,
}

#[derive(Default)]
struct Record {
    /// Text of each event, with the request that it belongs to.
    events: Vec<(String, Option<u64>)>,
    requests: HashMap<u64, Request>,
}

static RECORD: Mutex<Option<Record>> = Mutex::new(None);

fn record<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    f(RECORD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

struct Recorder;

/// Fields of a span or event.
#[derive(Default)]
struct Fields {
    id: Option<u64>,
    text: String,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "id" {
            self.id = Some(value);
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{value:?}");
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, of: Registered<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        of.span(id).unwrap().extensions_mut().insert(fields.id.unwrap_or(0));
    }
    fn on_event(&self, event: &Event<'_>, of: Registered<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let request = of.event_span(event).map(|span| *span.extensions().get::<u64>().unwrap());
        record(|record| record.events.push((fields.text, request)));
    }
    fn on_enter(&self, id: &span::Id, of: Registered<'_, S>) {
        let id = *of.span(id).unwrap().extensions().get::<u64>().unwrap();
        record(|record| record.requests.entry(id).or_default().entered += 1);
    }
    fn on_close(&self, id: span::Id, of: Registered<'_, S>) {
        let id = *of.span(&id).unwrap().extensions().get::<u64>().unwrap();
        record(|record| record.requests.entry(id).or_default().closed = true);
    }
}

fn start(workers: usize) -> Runtime {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let recorder = tracing_subscriber::registry().with(Recorder);
        tracing::subscriber::set_global_default(recorder).unwrap();
    });
    Runtime::builder().workers(workers).start().unwrap()
}

/// Returns the span of a new request, and its id.
fn request() -> (Span, u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    (info_span!("request", id), id)
}

/// Returns the texts of a request's events.
fn events(id: u64) -> Vec<String> {
    record(|record| {
        let events = record.events.iter().filter(|(_, request)| *request == Some(id));
        events.map(|(text, _)| text.clone()).collect()
    })
}

/// Returns the requests of the events with this text.
fn requests(text: &str) -> Vec<Option<u64>> {
    record(|record| {
        let events = record.events.iter().filter(|(event, _)| event == text);
        events.map(|(_, request)| *request).collect()
    })
}

fn is_closed(id: u64) -> bool {
    record(|record| record.requests.get(&id).is_some_and(|request| request.closed))
}

#[track_caller]
fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition does not hold in time");
}

/// The last of a chain of processes.
struct Store;

#[process]
impl Store {
    #[message(send)]
    fn put(&mut self, cx: &mut Context<Self>) {
        info!("store");
        let write = async {
            tokio::task::yield_now().await;
            info!("future");
            Written.in_current_span()
        };
        cx.pipe(write.in_current_span()).unwrap();
    }

    #[message(send)]
    fn written(&mut self) {
        info!("written");
    }
}

/// The middle of the chain.
struct Account(Address<Store>);

#[process]
impl Account {
    #[message]
    fn deposit(&mut self) -> u64 {
        info!("account");
        self.0.send(Put.in_current_span()).unwrap();
        7
    }
}

/// The first of the chain.
struct Front(Address<Account>);

#[process]
impl Front {
    #[message]
    async fn serve(&mut self) -> u64 {
        info!("front");
        let deposited = self.0.in_current_span().deposit().await.unwrap();
        info!("served");
        deposited
    }

    /// Serves without taking the span along.
    #[message]
    async fn serve_alone(&mut self) -> u64 {
        info!("alone");
        self.0.deposit().await.unwrap()
    }
}

#[test]
fn a_span_follows_a_request_through_calls_sends_and_piped_futures() {
    let runtime = start(2);
    let store = runtime.spawn(Store).unwrap();
    let front = runtime.spawn(Front(runtime.spawn(Account(store)).unwrap())).unwrap();
    let (span, id) = request();
    let served = runtime.block_on(async |_| front.call(Serve.instrument(span)).await);
    assert_eq!(served.ok(), Some(7));
    eventually(|| is_closed(id));
    let mut seen = events(id);
    seen.sort();
    assert_eq!(seen, ["account", "front", "future", "served", "store", "written"]);

    // A span goes no further by itself, and a message without a span has none.
    let (span, id) = request();
    runtime.block_on(async |_| front.call(ServeAlone.instrument(span)).await).ok().unwrap();
    runtime.block_on(async |_| front.serve().await).ok().unwrap();
    assert!(is_closed(id));
    assert_eq!(events(id), ["alone"]);
    assert!(requests("account").contains(&None) && requests("front").contains(&None));
}

/// A process that a guest runs where it is called from a task.
struct Nimble;

#[process(never_blocks)]
impl Nimble {
    #[message]
    fn nod(&mut self) -> std::thread::ThreadId {
        info!("nod");
        std::thread::current().id()
    }
}

#[test]
fn a_turn_on_the_thread_of_its_caller_is_not_in_the_callers_span() {
    let runtime = start(1);
    let nimble = runtime.spawn(Nimble).unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (span, id) = request();
    let nods = async move {
        info!("asks");
        // Now and then a worker is faster.
        while nimble.nod().await.unwrap() != std::thread::current().id() {}
        nimble.call(Nod {}.instrument(Span::current())).await.unwrap();
    };
    tokio.block_on(async { tokio::spawn(nods.instrument(span)).await.unwrap() });
    eventually(|| events(id) == ["asks", "nod"]);
    assert!(requests("nod").contains(&None));
}

/// A process whose handlers wait.
struct Waits;

#[process]
impl Waits {
    #[message]
    async fn wait(&mut self, times: u32, text: &'static str) {
        for _ in 0..times {
            info!("{text}");
            tokio::task::yield_now().await;
        }
        info!("{text}");
    }

    #[message(send)]
    async fn hang(&mut self) {
        std::future::pending().await
    }

    #[message]
    fn ask_later(&mut self, to: ReplyTo<u64>) {
        info!("asked");
        let _ = to.send(3);
    }

    #[message(send, derive(Clone))]
    fn tick(&mut self) {
        info!("tick");
    }
}

#[test]
fn a_handler_that_waits_enters_its_span_at_each_poll_and_leaves_it_between() {
    let runtime = start(1);
    let (one, other) = (request(), request());
    let ids = (one.1, other.1);
    runtime.block_on(async |runtime| {
        let processes = [(); 3].map(|()| runtime.spawn(Waits).unwrap());
        let wait = |text| Wait { times: 10, text };
        let (one, other, plain) = tokio::join!(
            processes[0].call(wait("interleaved one").instrument(one.0)),
            processes[1].call(wait("interleaved other").instrument(other.0)),
            processes[2].call(wait("interleaved")),
        );
        assert!(one.is_ok() && other.is_ok() && plain.is_ok());
    });
    assert_eq!(events(ids.0), ["interleaved one"; 11]);
    assert_eq!(events(ids.1), ["interleaved other"; 11]);
    assert_eq!(requests("interleaved"), [None; 11]);
    let entered = record(|record| record.requests[&ids.0].entered);
    // The handler is made, polled eleven times and dropped, each in the span.
    assert!(entered >= 13, "{entered}");
    assert!(is_closed(ids.0) && is_closed(ids.1), "a span is open after its turn");
}

#[test]
fn messages_of_different_requests_in_a_mailbox_keep_their_spans() {
    let runtime = start(1);
    let spans: Vec<_> = (0..4).map(|_| request()).collect();
    runtime.block_on(async |runtime| {
        let process = runtime.spawn(Waits).unwrap();
        for (span, _) in &spans {
            process.send(Wait { times: 1, text: "queued" }.instrument(span.clone())).unwrap();
            process.send(Wait { times: 1, text: "queued plain" }).unwrap();
        }
        process.wait(0, "last").await.unwrap();
    });
    for (_, id) in &spans {
        assert_eq!(events(*id), ["queued"; 2]);
    }
    assert_eq!(requests("queued plain"), [None; 8]);
}

#[test]
fn a_message_that_is_not_handled_is_handed_back_or_dropped_in_its_span() {
    /// Reports its drop.
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            info!("dropped");
        }
    }
    impl Message for Loud {
        type Reply = ();
    }
    impl Handle<Loud> for Waits {
        async fn handle(&mut self, _: Loud, _: &mut Context<Self>) {}
    }

    let runtime = start(1);
    let process = runtime.spawn(Waits).unwrap();
    let bound = MailboxBound::new(1, Overflow::Reject);
    let bounded = runtime.spawner().mailbox(bound).spawn(Waits).unwrap();
    let (span, id) = request();
    runtime.block_on(async |_| {
        bounded.send(Hang).unwrap();
        let mut waiting = 0;
        let overloaded = loop {
            match bounded.send(Loud.instrument(span.clone())) {
                Err(SendError::Overloaded(message)) if waiting > 0 => break message,
                Ok(()) => waiting += 1,
                // The turn has not begun.
                Err(unsent) => std::mem::forget(unsent.into_message().into_inner()),
            }
        };
        assert_eq!(overloaded.span().id(), span.id());
        // The message comes back, and can be sent again.
        process.call(overloaded).await.ok().unwrap();
        bounded.kill();
        process.kill();
        process.pid().exited().await;
        let Err(CallError::NoProcess(message)) = process.call(Loud.instrument(span)).await else {
            panic!("the process lives");
        };
        std::mem::forget(message.into_inner());
    });
    drop(runtime);
    assert!(is_closed(id));
    assert_eq!(events(id), ["dropped"; 2]);
    assert!(!requests("dropped").contains(&None));
}

#[test]
fn timers_and_the_typed_client_take_a_span_along() {
    let runtime = start(1);
    let (span, id) = request();
    runtime.block_on(async |runtime| {
        let process = runtime.spawn(Waits).unwrap();
        let within = async {
            let traced = process.in_current_span();
            assert_eq!(traced.ask_later().await.unwrap(), 3);
            traced.send_wait(0, "sent").unwrap();
            traced.tick().unwrap();
            traced.wait(0, "called").within(Duration::from_secs(60)).await.unwrap();
            runtime.send_after(process, Duration::ZERO, Tick.in_current_span());
            runtime.send_every(process, Duration::from_millis(1), Tick.in_current_span())
        };
        let every = within.instrument(span).await;
        while events(id).len() < 7 {
            tokio::task::yield_now().await;
        }
        assert!(!is_closed(id), "the timer keeps the span");
        every.cancel();
        process.stop();
        process.pid().exited().await;
    });
    drop(runtime);
    assert!(is_closed(id));
    let seen = events(id);
    assert_eq!(seen[..4], ["asked", "sent", "tick", "called"]);
    assert!(seen[4..].iter().all(|event| event == "tick"), "{seen:?}");
}

#[test]
fn a_layer_runs_outside_of_the_span() {
    struct Outside;
    impl Layer<Waits> for Outside {
        fn begin(_: &mut Context<Waits>) -> Result<(), ExitReason> {
            info!("begins");
            Ok(())
        }
        fn end(
            _: &mut Waits,
            _: &mut Context<Waits>,
            _: Result<(), &ExitReason>,
            _: bool,
        ) -> TurnEnd {
            info!("ends");
            TurnEnd::Settle
        }
        async fn settle(_: &mut Waits, _: &mut Context<Waits>) -> Result<(), ExitReason> {
            info!("settles");
            Ok(())
        }
    }

    let runtime = start(1);
    let first = Wait { times: 0, text: "first" };
    let process = runtime.spawn_layered(Waits, Outside, first).ok().unwrap();
    let (span, id) = request();
    let layered = Wait { times: 1, text: "layered" };
    runtime.block_on(async |_| process.call(layered.instrument(span)).await).ok().unwrap();
    assert_eq!(events(id), ["layered"; 2]);
    for text in ["begins", "ends", "settles"] {
        let requests = requests(text);
        assert!(!requests.is_empty() && requests.iter().all(Option::is_none), "{text}");
    }
}
