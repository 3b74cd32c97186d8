//! A shape: a workload that is written once for all hosts, in terms of services, receivers, actors and
//! clients, and so needs no file per runtime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::actor::ActorHost;
use super::receiver::ReceiverHost;
use super::service::Host;
use super::service::actix::Actix;
use super::service::kameo::Kameo;
use super::service::ractor::Ractor;
use super::service::smol::Smol;
use super::service::threads::Threads;
use super::service::throng::Throng;
use super::service::tokio::{Recv, RecvMany, Take, Tokio};
use crate::peer::Peer;
use crate::runtimes::{self, Measured, Work};
use crate::settings::Settings;

/// A workload in terms of a [`ShapeHost`].
pub(super) trait Shape {
    /// Whether the workload runs outside of the runtime's processes, as the future of `block_on`,
    /// and not in a process.
    const OUTSIDE: bool = false;

    /// Number of processes that the workload starts, at most.
    fn processes(settings: &Settings) -> u64;

    /// Drives the workload: its order, clocks and checks.
    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work;
}

/// A runtime's means to run shapes.
pub(super) trait ShapeHost: Host + ReceiverHost + ActorHost + Clone {
    /// Runs a client: a future in a process of its own, in a single turn where there are turns.
    fn run(
        &self,
        client: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send;
}

impl ShapeHost for Throng {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        runtimes::throng::run(&self.runtime, client);
    }
}

impl<T: Take> ShapeHost for Tokio<T> {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        ::tokio::spawn(client);
    }
}

impl ShapeHost for Smol {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        runtimes::smol::spawn(client).detach();
    }
}

impl ShapeHost for Actix {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        /// Number of clients run so far.
        static RUN: AtomicUsize = AtomicUsize::new(0);
        runtimes::actix::run(&self.arbiters, RUN.fetch_add(1, Ordering::Relaxed), client);
    }
}

impl ShapeHost for Kameo {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        runtimes::kameo::run(client);
    }
}

impl ShapeHost for Ractor {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        runtimes::ractor::run(client).await;
    }
}

impl ShapeHost for Threads {
    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        let timers = self.timers.clone();
        thread::spawn(move || timers.block_on(client));
    }
}

/// The peers of a shape in this program: every runtime that has a [`ShapeHost`], and actix with several
/// arbiters.
pub(super) const fn peers<S: Shape>() -> [Peer; 10] {
    let [throng, tokio, recv_many, current_thread, actix, kameo, ractor] = rust_peers::<S>();
    let smol = runtimes::smol::peer(|settings| {
        runtimes::smol::drive(settings, |settings| S::measure(Smol, settings))
    });
    let arbiters = runtimes::actix::arbiters_peer(|settings| {
        let measure = |arbiters, settings| S::measure(Actix { arbiters }, settings);
        runtimes::actix::drive_on_arbiters(settings, measure)
    });
    let threads = threads_peer::<S>();
    [throng, tokio, recv_many, current_thread, smol, actix, arbiters, kameo, ractor, threads]
}

/// The peers of a shape whose processes never run out of messages. An actix actor and a task of smol handle
/// messages until their mailbox is empty, so they would keep their thread for ever.
pub(super) const fn yielding_peers<S: Shape>() -> [Peer; 7] {
    let [throng, tokio, recv_many, current_thread, _, kameo, ractor] = rust_peers::<S>();
    [throng, tokio, recv_many, current_thread, kameo, ractor, threads_peer::<S>()]
}

/// The peer of a shape on threads, whose driver is a thread like the others.
const fn threads_peer<S: Shape>() -> Peer {
    runtimes::threads::peer(|settings| {
        runtimes::threads::drive(settings, |timers, settings| {
            S::measure(Threads { timers }, settings)
        })
    })
}

/// The peers of a shape on throng, tokio and the actors on it.
pub(super) const fn rust_peers<S: Shape>() -> [Peer; 7] {
    [
        runtimes::throng::peer(|settings| {
            let processes = S::processes(settings);
            let measure = |runtime, settings| S::measure(Throng { runtime }, settings);
            if S::OUTSIDE {
                runtimes::throng::drive_outside(settings, processes, measure)
            } else {
                runtimes::throng::drive(settings, processes, measure)
            }
        }),
        runtimes::tokio::peer(|settings| on_tokio::<S, _>(Tokio(Recv), settings)),
        runtimes::tokio::peer(|settings| on_tokio::<S, _>(Tokio(RecvMany), settings))
            .named("tokio-recv-many"),
        runtimes::tokio::current_thread_peer(|settings| {
            let measure = |settings| S::measure(Tokio(Recv), settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_current_thread_outside(settings, measure)
            } else {
                runtimes::tokio::drive_current_thread(settings, measure)
            }
        }),
        runtimes::actix::peer(|settings| {
            let measure = |settings| S::measure(Actix::default(), settings);
            if S::OUTSIDE {
                runtimes::actix::drive_outside(settings, measure)
            } else {
                runtimes::actix::drive(settings, measure)
            }
        }),
        runtimes::kameo::peer(|settings| {
            let measure = |settings| S::measure(Kameo, settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_outside(settings, measure)
            } else {
                runtimes::kameo::drive(settings, measure)
            }
        }),
        runtimes::ractor::peer(|settings| {
            let measure = |settings| S::measure(Ractor, settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_outside(settings, measure)
            } else {
                runtimes::ractor::drive(settings, measure)
            }
        }),
    ]
}

fn on_tokio<S: Shape, T: Take>(host: Tokio<T>, settings: &Settings) -> Measured {
    let measure = |settings| S::measure(host, settings);
    if S::OUTSIDE {
        runtimes::tokio::drive_outside(settings, measure)
    } else {
        runtimes::tokio::drive(settings, measure)
    }
}
