//! Services in kameo: `ask` without a timeout. An actor stops when its last address is dropped.

use std::convert::Infallible;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{Host, Service};
use crate::runtimes;

#[derive(Clone)]
pub(in super::super) struct Kameo;

pub(in super::super) struct Server<S>(S);

impl<S: Service> Actor for Server<S> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(server: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(server)
    }
}

struct Request(u64);

impl<S: Service> Message<Request> for Server<S> {
    type Reply = u64;

    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self, u64>) -> u64 {
        self.0.reply(value)
    }
}

impl Host for Kameo {
    type Address<S: Service> = ActorRef<Server<S>>;

    async fn start<S: Service>(&self, service: S) -> Self::Address<S> {
        runtimes::kameo::start(Server(service))
    }

    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64> {
        process.ask(Request(value)).await.ok()
    }

    fn stop<S: Service>(&self, process: Self::Address<S>) {
        drop(process);
    }
}
