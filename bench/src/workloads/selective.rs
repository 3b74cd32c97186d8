//! `selective`: a process asks another one and waits for its answer, while other messages wait in its mailbox.
//!
//! ```text
//! driver    `depth` items, `Go` │                   wait                    │
//! asker                         │ (ask, wait for the answer) × M │ receive the items
//! server                        │ answer, answer, …              │
//!                               ├──────── round_trip_ns ─────────┤ item_ns ─┤
//! ```
//!
//! - An answer comes as a message to the asker's mailbox, behind the items, which the asker receives last, in their order.
//! - throng has a selective receive, `recv_match`. In `throng-call` the question is a call, whose reply passes no mailbox.
//! - A task of tokio puts messages that it does not want yet into a queue of its own.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ::throng::{Address, AsyncProcess, Context, Handle, Inbox, Message, Process};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::prelude::*;
use super::relay::Order;
use super::tally::{Tally, sum_below};
use crate::host::Successor;
use crate::runtimes::throng::{Request, Server, Throng};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => runtimes::throng::drive(settings, false, on_throng::<false>),
        "throng-call" => runtimes::throng::drive(settings, false, on_throng::<true>),
        "tokio" | "tokio-current-thread" => {
            runtimes::tokio::drive_row(row, settings, false, on_tokio)
        }
        _ => Err(runtimes::no_row(row)),
    }
}

/// Messages to the asker.
enum Mail {
    Item(u64),
    Go,
    Answer(u64),
}

static ASKED_NS: AtomicU64 = AtomicU64::new(0);
static RECEIVED_NS: AtomicU64 = AtomicU64::new(0);
/// The asker when it is done, and the sum of its answers.
static DONE: Tally = Tally::new();

/// The asker's mailbox, and its way to the server.
trait Mailbox: Send {
    fn go(&mut self) -> impl Future<Output = ()> + Send;

    fn ask(&mut self, value: u64) -> impl Future<Output = Option<u64>> + Send;

    fn item(&mut self) -> impl Future<Output = Option<u64>> + Send;
}

async fn work(mut mailbox: impl Mailbox, count: u64, depth: u64) {
    mailbox.go().await;
    let clock = Instant::now();
    let mut sum = 0_u64;
    for value in 0..count {
        sum = sum.wrapping_add(mailbox.ask(value).await.unwrap_or_default());
    }
    ASKED_NS.store(clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
    let clock = Instant::now();
    let mut order = Order::new(0, 1);
    for _ in 0..depth {
        order.note(mailbox.item().await.unwrap_or(u64::MAX));
    }
    RECEIVED_NS.store(clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
    DONE.add(sum);
}

/// Fills the mailbox of the asker, which runs, and lets it go.
async fn measure(settings: &Settings, send: impl Fn(Mail)) -> Measured {
    let (count, depth) = (settings.count, settings.get("depth"));
    DONE.arm(1);
    (0..depth).for_each(|number| send(Mail::Item(number)));
    send(Mail::Go);
    DONE.complete().await;
    let each = |time: &AtomicU64, of| time.load(Ordering::Relaxed) as f64 / of as f64;
    let mut outcome = Outcome::default();
    outcome.metric("round_trip_ns", each(&ASKED_NS, count));
    outcome.metric("item_ns", each(&RECEIVED_NS, depth));
    outcome.check("askers that finished", DONE.count(), 1);
    outcome.check("the sum of the answers", DONE.sum(), sum_below(count + 1));
    Order::check(&mut outcome);
    Ok(outcome)
}

impl Message for Mail {
    type Reply = ();
}

struct Answerer;

impl Process for Answerer {}

struct Question(u64, Address<AsyncProcess<Mail>>);

impl Message for Question {
    type Reply = ();
}

impl Handle<Question> for Answerer {
    async fn handle(&mut self, Question(value, from): Question, _: &mut Context<Self>) {
        let _ = from.send(Mail::Answer(value + 1));
    }
}

struct OnThrong<const CALLS: bool> {
    inbox: Inbox<Mail>,
    answerer: Address<Answerer>,
    server: Address<Server<Successor>>,
}

impl<const CALLS: bool> Mailbox for OnThrong<CALLS> {
    async fn go(&mut self) {
        self.inbox.recv_match(|mail| matches!(mail, Mail::Go)).await;
    }

    async fn ask(&mut self, value: u64) -> Option<u64> {
        if CALLS {
            return self.server.call(Request(value)).await.ok();
        }
        self.answerer.send(Question(value, self.inbox.address())).ok()?;
        match self.inbox.recv_match(|mail| matches!(mail, Mail::Answer(_))).await {
            Mail::Answer(value) => Some(value),
            _ => None,
        }
    }

    async fn item(&mut self) -> Option<u64> {
        match self.inbox.recv().await {
            Mail::Item(number) => Some(number),
            _ => None,
        }
    }
}

async fn on_throng<const CALLS: bool>(host: Throng, settings: Settings) -> Measured {
    let answerer = runtimes::throng::start(&host.runtime, Answerer);
    let server = runtimes::throng::start(&host.runtime, Server(Successor));
    let (count, depth) = (settings.count, settings.get("depth"));
    let begin = async move |inbox| {
        work(OnThrong::<CALLS> { inbox, answerer, server }, count, depth).await;
    };
    let asker = host.runtime.spawner().spawn_async(begin).map_err(|error| error.to_string())?;
    measure(&settings, move |mail| drop(asker.send(mail))).await
}

struct OnTokio {
    inbox: UnboundedReceiver<Mail>,
    /// Items that were received while another message was awaited.
    kept: VecDeque<u64>,
    questions: UnboundedSender<u64>,
}

impl OnTokio {
    /// Receives the next message that is no item.
    async fn receive(&mut self) -> Option<Mail> {
        loop {
            match self.inbox.recv().await? {
                Mail::Item(number) => self.kept.push_back(number),
                mail => return Some(mail),
            }
        }
    }
}

impl Mailbox for OnTokio {
    async fn go(&mut self) {
        self.receive().await;
    }

    async fn ask(&mut self, value: u64) -> Option<u64> {
        self.questions.send(value).ok()?;
        match self.receive().await? {
            Mail::Answer(value) => Some(value),
            _ => None,
        }
    }

    async fn item(&mut self) -> Option<u64> {
        self.kept.pop_front()
    }
}

async fn on_tokio(settings: Settings) -> Measured {
    let (mailbox, inbox) = unbounded_channel();
    let (questions, mut asked) = unbounded_channel();
    let answers = mailbox.clone();
    tokio::spawn(async move {
        while let Some(value) = asked.recv().await {
            let _ = answers.send(Mail::Answer(value + 1));
        }
    });
    let asker = OnTokio { inbox, kept: VecDeque::new(), questions };
    tokio::spawn(work(asker, settings.count, settings.get("depth")));
    measure(&settings, move |mail| drop(mailbox.send(mail))).await
}
