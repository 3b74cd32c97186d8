//! Services in throng: `Address::call` with its default deadline. A process is stopped by a
//! request.

use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::{Host, Service};
use crate::runtimes;

#[derive(Clone)]
pub(in super::super) struct Throng {
    pub(in super::super) runtime: RuntimeHandle,
}

pub(in super::super) struct Server<S>(pub(in super::super) S);

impl<S: Service> Process for Server<S> {
    // As tokio expects of the rivals' tasks; the service only computes.
    const NEVER_BLOCKS: bool = true;
}

pub(in super::super) struct Request(pub(in super::super) u64);

impl Message for Request {
    type Reply = u64;
}

impl<S: Service> Handle<Request> for Server<S> {
    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.0.reply(value)
    }
}

impl Host for Throng {
    type Address<S: Service> = Address<Server<S>>;

    async fn start<S: Service>(&self, service: S) -> Self::Address<S> {
        runtimes::throng::start(&self.runtime, Server(service))
    }

    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64> {
        process.call(Request(value)).await.ok()
    }

    fn stop<S: Service>(&self, process: Self::Address<S>) {
        process.stop();
    }
}
