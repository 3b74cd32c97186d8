//! Services in actix: `Addr::send`, awaited. An actor stops when its last address is dropped.

use actix::{Actor, Addr, Context, Handler, Message};

use super::{Host, Service};

#[derive(Clone)]
pub(in super::super) struct Actix;

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
        Server(service).start()
    }

    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64> {
        process.send(Request(value)).await.ok()
    }

    fn stop<S: Service>(&self, process: Self::Address<S>) {
        drop(process);
    }
}
