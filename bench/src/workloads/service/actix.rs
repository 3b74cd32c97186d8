//! Services in actix: `Addr::send`, awaited. An actor stops when its last address is dropped. Where
//! there are several arbiters, each service is on the next.

use std::sync::atomic::{AtomicUsize, Ordering};

use actix::{Actor, Addr, Context, Handler, Message};

use super::{Host, Service};
use crate::runtimes::actix::Arbiters;

/// actix, with the arbiters among which it spreads actors.
#[derive(Clone, Default)]
pub(in super::super) struct Actix {
    pub(in super::super) arbiters: Arbiters,
}

/// Number of services started so far.
static STARTED: AtomicUsize = AtomicUsize::new(0);

pub(in super::super) struct Server<S>(S);

impl<S: Service> Actor for Server<S> {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Request(u64);

impl<S: Service> Handler<Request> for Server<S> {
    type Result = u64;

    fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.0.reply(value)
    }
}

impl Host for Actix {
    type Address<S: Service> = Addr<Server<S>>;

    async fn start<S: Service>(&self, service: S) -> Self::Address<S> {
        self.arbiters.start(STARTED.fetch_add(1, Ordering::Relaxed), Server(service))
    }

    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64> {
        process.send(Request(value)).await.ok()
    }

    fn stop<S: Service>(&self, process: Self::Address<S>) {
        drop(process);
    }
}
