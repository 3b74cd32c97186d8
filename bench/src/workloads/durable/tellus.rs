//! Counters in tellus: an event-sourced actor for each, with the journal in memory that tellus ships.
//!
//! The counters are not durable: the journal is lost with the program, and nothing is written to the disk. The row
//! shows the cost of tellus's persistence without that of a database; tellus's other journal is in PostgreSQL.
//! An event has the added number; there are no snapshots, so an actor that is started again replays its events.
//! The callers are tokio tasks, which await their reply at a oneshot.

use std::convert::Infallible;
use std::str;
use std::sync::{Arc, Mutex, PoisonError};

use bench_steps::Error;
use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use tellus::{
    Actor, ActorContext, ActorRef, ActorSystem, Control, Effect, EventSourced, InMemoryStore,
    Incoming, Nothing, Persistence, PersistenceId, SchemaVersion, Untimed, Versioned,
};
use tokio::sync::oneshot;

use super::{Counters, Home, Tasks, key};

/// The journal.
#[derive(Clone, Default)]
pub(in super::super) struct TellusHome(InMemoryStore);

/// The system whose root starts the counters, and the addresses of all that it has started.
#[derive(Clone)]
pub(in super::super) struct TellusCounters(Arc<Shared>);

struct Shared {
    /// Taken when the counters are closed.
    system: Mutex<Option<ActorSystem<Start>>>,
    root: ActorRef<Start>,
    addresses: Addresses,
}

type Addresses = Arc<DashMap<[u8; 20], ActorRef<Request>>>;

/// The root actor, which starts each counter once.
struct Root {
    store: InMemoryStore,
    addresses: Addresses,
}

/// A request to start a counter, or to find it if it has been started.
struct Start {
    key: [u8; 20],
    address: oneshot::Sender<ActorRef<Request>>,
}

impl Actor for Root {
    type Message = Start;
    type Timers = Untimed;
    type State = ();
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Start>) -> Result<(), Infallible> {
        Ok(())
    }

    fn receive(
        &self,
        context: &ActorContext<Start>,
        incoming: Incoming<Start>,
        (): (),
    ) -> Result<Control<()>, Infallible> {
        if let Incoming::Message(Start { key, address }) = incoming {
            let started = self.addresses.entry(key).or_insert_with(|| {
                context.spawn_event_sourced(Counter(key), Persistence::new(self.store.clone()))
            });
            // The caller may have given up.
            let _ = address.send(started.clone());
        }
        Ok(Control::Continue(()))
    }
}

struct Counter([u8; 20]);

struct Request {
    add: u64,
    reply: oneshot::Sender<u64>,
}

#[derive(Serialize, Deserialize)]
struct Added(u64);

impl Versioned for Added {
    const MANIFEST: &'static str = "added";
    const VERSION: SchemaVersion = SchemaVersion::new(1);
}

impl EventSourced for Counter {
    type Command = Request;
    type Timers = Untimed;
    type Event = Added;
    type State = u64;
    type Snapshot = Nothing;
    type Error = Infallible;

    fn persistence_id(&self) -> PersistenceId {
        let key = str::from_utf8(&self.0).unwrap_or_default();
        match PersistenceId::new("counter", key) {
            Ok(id) => id,
            Err(error) => panic!("twenty digits are a valid segment: {error}"),
        }
    }

    fn init(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn init_from_snapshot(&self, snapshot: Nothing) -> Result<u64, Infallible> {
        match snapshot {}
    }

    fn handle(
        &self,
        _: &ActorContext<Request>,
        incoming: Incoming<Request>,
        _: &u64,
    ) -> Result<Effect<Self>, Infallible> {
        let Incoming::Message(Request { add, reply }) = incoming else { return Ok(Effect::none()) };
        let effect = if add == 0 { Effect::none() } else { Effect::persist(Added(add)) };
        Ok(effect.then(move |value| {
            let _ = reply.send(*value);
        }))
    }

    fn apply(&self, value: u64, Added(number): Added) -> u64 {
        value + number
    }
}

impl Home for TellusHome {
    type Counters = TellusCounters;

    async fn open(&self, _: u64) -> Result<TellusCounters, Error> {
        let addresses = Addresses::default();
        let system = ActorSystem::new(Root { store: self.0.clone(), addresses: addresses.clone() });
        let root = system.root().clone();
        let system = Mutex::new(Some(system));
        Ok(TellusCounters(Arc::new(Shared { system, root, addresses })))
    }
}

impl TellusCounters {
    async fn call(&self, number: u64, add: u64) -> Result<u64, Error> {
        let key = key(number);
        let found = self.0.addresses.get(&key).map(|address| address.clone());
        let counter = match found {
            Some(counter) => counter,
            None => {
                let (address, started) = oneshot::channel();
                self.0.root.tell(Start { key, address });
                started.await?
            }
        };
        let (reply, value) = oneshot::channel();
        counter.tell(Request { add, reply });
        Ok(value.await?)
    }
}

impl Tasks for TellusCounters {}

impl Counters for TellusCounters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.call(number, 1).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        self.call(number, 0).await
    }

    async fn close(self) -> Result<(), Error> {
        let system = self.0.system.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.addresses.clear();
        let Some(system) = system else { return Ok(()) };
        system.stop();
        Ok(system.terminated().await?)
    }
}
