//! A host: a runtime's means to run the processes of workloads that are written once for all runtimes.
//!
//! ```text
//! workload ─ Receiver, Service, Timed, Actor ─→ Host, ActorHost ─→ runtimes/R.rs
//! ```
//!
//! - A [`Receiver`] takes messages of one type. A [`Service`] is called with a number and replies with a number. A
//!   [`Timed`] process takes messages and at last waits with a time-out. An [`Actor`] also knows its own address, and
//!   starts other actors.
//! - Every call between a process and its host is dispatched statically, and a message carries nothing that the
//!   runtime does not need: a row is the program that a user of the runtime would write.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use ::tokio::sync::Semaphore;

use crate::runtimes::actix::Actix;
use crate::runtimes::kameo::Kameo;
use crate::runtimes::ractor::Ractor;
use crate::runtimes::smol::Smol;
use crate::runtimes::tellus::Tellus;
use crate::runtimes::threads::Threads;
use crate::runtimes::throng::Throng;
use crate::runtimes::tokio::{EACH, Futures, Kanal, MANY, OfTokio};
use crate::runtimes::xtra::Xtra;
use crate::runtimes::{self, Measured, Work};
use crate::settings::Settings;

/// The state and the handler of a process that receives messages.
pub(crate) trait Receiver: Send + Unpin + 'static {
    type Message: Send + Unpin + 'static;
    type Pause: Pause;

    fn receive(&mut self, message: Self::Message) -> Next<Self::Pause>;
}

/// The step of a process that follows a message.
pub(crate) enum Next<P = Infallible> {
    Message,
    /// Take the next message after a pause.
    Wait(P),
    Stop,
}

/// A pause of a process between two messages.
pub(crate) trait Pause: Send + Unpin + 'static {
    fn wait(self) -> impl Future<Output = ()> + Send;
}

/// The pause of processes that have none.
impl Pause for Infallible {
    async fn wait(self) {
        match self {}
    }
}

/// A gate: each permit lets a process go on, and all go on once it is closed.
impl Pause for &'static Semaphore {
    async fn wait(self) {
        if let Ok(permit) = self.acquire().await {
            permit.forget();
        }
    }
}

/// The state and the reply function of a process that can be called.
pub(crate) trait Service: Send + Sync + Unpin + 'static {
    fn reply(&self, value: u64) -> u64;
}

/// A service without state, whose reply is the number plus one.
#[derive(Clone)]
pub(crate) struct Successor;

impl Service for Successor {
    fn reply(&self, value: u64) -> u64 {
        value.wrapping_add(1)
    }
}

/// The state of a process that handles messages and at last waits for another with a time-out.
pub(crate) trait Timed: Send + Sync + Unpin + 'static {
    type Message: Send + Unpin + 'static;

    /// Runs before the first message.
    fn begin(&self) {}

    fn receive(&mut self, message: Self::Message);

    /// The time-out of the last receive, once everything else is done; called after the start and after each message.
    fn waits(&mut self) -> Option<Duration>;

    /// Runs when the last receive has timed out, before the process exits.
    fn time_out(&self);
}

/// The state and the handlers of a process on a host.
pub(crate) trait Actor<H: ActorHost>: Sized + Send + Unpin + 'static {
    type Message: Send + 'static;

    /// Runs before the first message.
    fn started(&mut self, _: &mut impl ActorContext<H, Self>) {}

    fn handle(&mut self, message: Self::Message, context: &mut impl ActorContext<H, Self>);
}

/// An actor's view of its own process.
pub(crate) trait ActorContext<H: ActorHost, A: Actor<H>> {
    fn address(&self) -> H::ActorAddress<A>;

    fn tell_self(&mut self, message: A::Message);

    fn start<B: Actor<H>>(&mut self, actor: B) -> H::ActorAddress<B>;

    fn stop(&mut self);
}

/// A runtime's means to run processes; used in a process of the runtime, or outside where the workload says so.
///
/// A message that is not accepted, or a process that is not started, is missing in the counts that workloads check.
pub(crate) trait Host: Clone + Send + Sync + 'static {
    type Address<R: Receiver>: Clone + Send + Sync + Unpin + 'static;
    type ServiceAddress<S: Service>: Clone + Send + Sync + 'static;
    type TimedAddress<T: Timed>: Clone + Send + Sync + Unpin + 'static;

    /// Whether the runtime itself refuses a process beyond its limit.
    const LIMITS_PROCESSES: bool = false;

    fn start<R: Receiver>(
        &self,
        receiver: R,
    ) -> impl Future<Output = io::Result<Self::Address<R>>> + Send;

    /// Starts a receiver that is one of several, of which those that follow each other talk the most.
    fn start_part<R: Receiver>(
        &self,
        _index: u64,
        _of: u64,
        receiver: R,
    ) -> impl Future<Output = io::Result<Self::Address<R>>> + Send {
        self.start(receiver)
    }

    /// Sends a message to a receiver, without waiting.
    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message);

    /// Makes a receiver exit, without waiting for the exit.
    fn stop<R: Receiver>(address: Self::Address<R>) {
        drop(address);
    }

    fn serve<S: Service>(&self, service: S)
    -> impl Future<Output = Self::ServiceAddress<S>> + Send;

    /// Calls a service and awaits its reply; returns `None` if no reply came.
    fn call<S: Service>(
        &self,
        service: &Self::ServiceAddress<S>,
        value: u64,
    ) -> impl Future<Output = Option<u64>> + Send;

    /// Makes a service exit, without waiting for the exit.
    fn dismiss<S: Service>(&self, service: Self::ServiceAddress<S>) {
        drop(service);
    }

    fn start_timed<T: Timed>(&self, timed: T)
    -> impl Future<Output = Self::TimedAddress<T>> + Send;

    /// Sends a message to a timed process, without waiting.
    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message);
}

/// A runtime's means to run actors and clients.
pub(crate) trait ActorHost: Host {
    type ActorAddress<A: Actor<Self>>: Clone + Send + Sync + Unpin + 'static;

    /// Starts an actor; used by the driver.
    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Self::ActorAddress<A>;

    /// Sends a message to an actor, without waiting.
    fn tell<A: Actor<Self>>(to: &Self::ActorAddress<A>, message: A::Message);

    /// Runs a client: a future in a process of its own, in a single turn where there are turns.
    fn run(
        &self,
        client: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send;
}

/// A workload in terms of a [`Host`].
pub(crate) trait OnHost: 'static {
    fn measure<H: Host>(host: H, settings: Settings) -> impl Work;
}

/// A workload in terms of an [`ActorHost`].
pub(crate) trait OnActors: 'static {
    /// Whether the workload runs outside of the runtime's processes, as the future of `block_on`, and not in a process.
    const OUTSIDE: bool = false;

    fn measure<H: ActorHost>(host: H, settings: Settings) -> impl Work;
}

/// Runs a row of a workload on its host.
pub(crate) fn on_host<W: OnHost>(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => runtimes::throng::drive(settings, false, W::measure::<Throng>),
        "tokio" | "tokio-current-thread" => {
            runtimes::tokio::drive_host(row, OfTokio::<EACH>, settings, false, W::measure)
        }
        "tokio-cores" => runtimes::tokio::drive_cores(settings, W::measure),
        "tokio-kanal" => runtimes::tokio::drive_host(row, Kanal, settings, false, W::measure),
        "tokio-futures" | "tokio-futures-current-thread" => {
            runtimes::tokio::drive_host(row, Futures, settings, false, W::measure)
        }
        "smol" => runtimes::smol::drive(settings, W::measure::<Smol>),
        "actix" => runtimes::actix::drive(settings, 1, false, W::measure::<Actix>),
        "kameo" => runtimes::kameo::drive(settings, W::measure::<Kameo>),
        "ractor" => runtimes::ractor::drive(settings, W::measure::<Ractor>),
        "tellus" => runtimes::tellus::drive(settings, W::measure::<Tellus>),
        "xtra" => runtimes::xtra::drive(settings, W::measure::<Xtra>),
        "threads" => runtimes::threads::drive(settings, W::measure::<Threads>),
        _ => Err(runtimes::no_row(row)),
    }
}

pub(crate) fn on_actors<W: OnActors>(row: &str, settings: &Settings) -> Measured {
    let outside = W::OUTSIDE;
    match row {
        "throng" => runtimes::throng::drive(settings, outside, W::measure::<Throng>),
        "tokio" | "tokio-current-thread" => {
            runtimes::tokio::drive_host(row, OfTokio::<EACH>, settings, outside, W::measure)
        }
        "tokio-recv-many" => {
            runtimes::tokio::drive_host(row, OfTokio::<MANY>, settings, outside, W::measure)
        }
        "tokio-cores" => runtimes::tokio::drive_cores(settings, W::measure),
        "tokio-kanal" => runtimes::tokio::drive_host(row, Kanal, settings, outside, W::measure),
        "tokio-futures" | "tokio-futures-current-thread" => {
            runtimes::tokio::drive_host(row, Futures, settings, outside, W::measure)
        }
        "smol" => runtimes::smol::drive(settings, W::measure::<Smol>),
        "actix" => runtimes::actix::drive(settings, 1, outside, W::measure::<Actix>),
        "actix-arbiters" => {
            runtimes::actix::drive(settings, settings.workers, outside, W::measure::<Actix>)
        }
        // Outside of its actors kameo is tokio, as is ractor.
        "kameo" if outside => runtimes::tokio::drive(settings, true, |of| W::measure(Kameo, of)),
        "kameo" => runtimes::kameo::drive(settings, W::measure::<Kameo>),
        "ractor" if outside => runtimes::tokio::drive(settings, true, |of| W::measure(Ractor, of)),
        "ractor" => runtimes::ractor::drive(settings, W::measure::<Ractor>),
        // The driver is a thread like the others.
        "threads" => runtimes::threads::drive(settings, W::measure::<Threads>),
        _ => Err(runtimes::no_row(row)),
    }
}
