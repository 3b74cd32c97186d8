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
use crate::runtimes::{self, Measured, Work};
use crate::settings::Settings;

/// A workload in terms of a [`ShapeHost`].
pub(super) trait Shape {
    /// Whether the workload runs outside of the runtime's processes, as the future of `block_on`,
    /// and not in a process.
    const OUTSIDE: bool = false;

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

/// Runs a row of a shape.
pub(super) fn run<S: Shape>(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => {
            let processes = settings.processes();
            let measure = |runtime, settings| S::measure(Throng { runtime }, settings);
            if S::OUTSIDE {
                runtimes::throng::drive_outside(settings, processes, measure)
            } else {
                runtimes::throng::drive(settings, processes, measure)
            }
        }
        "tokio" => on_tokio::<S, _>(Tokio(Recv), settings),
        "tokio-recv-many" => on_tokio::<S, _>(Tokio(RecvMany), settings),
        "tokio-current-thread" => {
            let measure = |settings| S::measure(Tokio(Recv), settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_current_thread_outside(settings, measure)
            } else {
                runtimes::tokio::drive_current_thread(settings, measure)
            }
        }
        "smol" => runtimes::smol::drive(settings, |settings| S::measure(Smol, settings)),
        "actix" => {
            let measure = |settings| S::measure(Actix::default(), settings);
            if S::OUTSIDE {
                runtimes::actix::drive_outside(settings, measure)
            } else {
                runtimes::actix::drive(settings, measure)
            }
        }
        "actix-arbiters" => {
            let measure = |arbiters, settings| S::measure(Actix { arbiters }, settings);
            runtimes::actix::drive_on_arbiters(settings, measure)
        }
        "kameo" => {
            let measure = |settings| S::measure(Kameo, settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_outside(settings, measure)
            } else {
                runtimes::kameo::drive(settings, measure)
            }
        }
        "ractor" => {
            let measure = |settings| S::measure(Ractor, settings);
            if S::OUTSIDE {
                runtimes::tokio::drive_outside(settings, measure)
            } else {
                runtimes::ractor::drive(settings, measure)
            }
        }
        // The driver is a thread like the others.
        "threads" => runtimes::threads::drive(settings, |timers, settings| {
            S::measure(Threads { timers }, settings)
        }),
        _ => Err(runtimes::no_row(row)),
    }
}

fn on_tokio<S: Shape, T: Take>(host: Tokio<T>, settings: &Settings) -> Measured {
    let measure = |settings| S::measure(host, settings);
    if S::OUTSIDE {
        runtimes::tokio::drive_outside(settings, measure)
    } else {
        runtimes::tokio::drive(settings, measure)
    }
}
