//! Messages to durable entities that carry a `tracing` span, and events of the node. These tests are a program of their
//! own, because the subscriber is global.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, Entity, EntityError, Node};
use tracing::field::{Field, Visit};
use tracing::{Event, Instrument, Subscriber, info, info_span};
use tracing_subscriber::layer::{Context as Registered, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Each event with the name of its span.
static EVENTS: Mutex<Vec<(String, Option<&str>)>> = Mutex::new(Vec::new());

struct Recorder;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, of: Registered<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let span = of.event_span(event).map(|span| span.name());
        EVENTS.lock().unwrap_or_else(PoisonError::into_inner).push((text.0, span));
    }
}

fn record() {
    static RECORDING: Once = Once::new();
    RECORDING.call_once(|| {
        let recorder = tracing_subscriber::registry().with(Recorder);
        tracing::subscriber::set_global_default(recorder).unwrap();
    });
}

/// Returns the names of the spans of an event, once for each time that it came.
fn spans_of(text: &str) -> Vec<Option<&'static str>> {
    let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    events.iter().filter(|(event, _)| event == text).map(|(_, span)| *span).collect()
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

#[process]
impl Account {
    #[message]
    async fn deposit(&mut self, amount: u64) -> u64 {
        tokio::task::yield_now().await;
        info!("deposit of {amount}");
        self.balance += amount;
        self.balance
    }

    #[message]
    fn balance(&self) -> u64 {
        info!("balance of {}", self.balance);
        self.balance
    }

    #[message]
    fn fail(&mut self) {
        self.balance = 0;
        panic!("fails");
    }
}

#[test]
fn a_handler_of_an_entity_runs_in_the_span_of_its_message() {
    record();
    let place = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let node = Node::options(place.path()).open(&runtime).unwrap();
    let account: Entity<Account> = node.entity("alice");
    runtime.block_on(async |_| {
        // The first message activates the entity.
        let first = Deposit { amount: 5 }.instrument(info_span!("first"));
        assert_eq!(account.call(first).await.unwrap(), 5);
        account.send(Deposit { amount: 2 }.instrument(info_span!("second"))).unwrap();
        assert_eq!(account.deposit(1).await.unwrap(), 8);
        let third = async || account.call(Balance {}.in_current_span()).await;
        assert_eq!(third().instrument(info_span!("third")).await.unwrap(), 8);
        // A panic rejects the change of an instrumented message as of any other.
        let of_client = account.clone().instrument(info_span!("client"));
        of_client.send_deposit(4).unwrap();
        assert_eq!(of_client.balance().await.unwrap(), 12);
        let failed = account.call(Fail {}.instrument(info_span!("fourth"))).await;
        assert!(matches!(failed, Err(EntityError::Panicked(_))), "{failed:?}");
        assert_eq!(account.balance().await.unwrap(), 12);
        // The activation that has failed hands the message behind it to the next one, with its span.
        account.send(Fail {}.in_current_span()).unwrap();
        account.send(Deposit { amount: 9 }.instrument(info_span!("behind"))).unwrap();
        assert_eq!(account.balance().await.unwrap(), 21);
        node.shutdown().await;
        let refused =
            account.send(Deposit { amount: 3 }.instrument(info_span!("fifth"))).unwrap_err();
        assert_eq!(refused.message.into_inner().amount, 3);
    });
    assert_eq!(spans_of("deposit of 5"), [Some("first")]);
    assert_eq!(spans_of("deposit of 2"), [Some("second")]);
    assert_eq!(spans_of("deposit of 1"), [None]);
    assert_eq!(spans_of("balance of 8"), [Some("third")]);
    assert_eq!(spans_of("deposit of 4"), [Some("client")]);
    assert_eq!(spans_of("deposit of 9"), [Some("behind")]);
    assert_eq!(spans_of("balance of 12"), [Some("client"), None]);
}

#[test]
fn entities_of_a_renamed_kind_are_listed_and_reported() {
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "ledger")]
    struct Renamed(u64);
    impl Process for Renamed {}

    record();
    let place = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    for is_renamed in [false, true] {
        let node = Node::options(place.path()).idle_after(Duration::from_millis(4));
        let node = node.open(&runtime).unwrap();
        runtime.block_on(async |_| {
            match is_renamed {
                false => drop(node.entity::<Account>("ann").deposit(77).await.unwrap()),
                true => drop(node.entity::<Renamed>("ann")),
            }
            let unclaimed = node.stat().unwrap().unclaimed;
            let expected: &[(String, u64)] = &[("account".to_owned(), 1)];
            assert_eq!(unclaimed.into_iter().collect::<Vec<_>>(), expected[..is_renamed.into()]);
            assert_eq!(node.stat().unwrap().stored["account"], 1);
            let reports = || {
                let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
                events.iter().filter(|(event, _)| event.contains("if the kind was renamed")).count()
            };
            while is_renamed && reports() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            node.shutdown().await;
        });
    }
}
