//! Services in ractor: a call without a timeout. An actor is stopped by a request.

use std::marker::PhantomData;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::{Host, Service};
use crate::runtimes;

#[derive(Clone)]
pub(in super::super) struct Ractor;

/// An actor whose state, in ractor's sense, is the service.
struct Server<S>(PhantomData<fn() -> S>);

pub(in super::super) struct Request {
    value: u64,
    reply: RpcReplyPort<u64>,
}

impl<S: Service> Actor for Server<S> {
    type Msg = Request;
    type State = S;
    type Arguments = S;

    async fn pre_start(&self, _: ActorRef<Request>, service: S) -> Result<S, ActorProcessingErr> {
        Ok(service)
    }

    async fn handle(
        &self,
        _: ActorRef<Request>,
        request: Request,
        service: &mut S,
    ) -> Result<(), ActorProcessingErr> {
        // If the caller has given up, the reply is dropped, and the caller counts it as missing.
        let _ = request.reply.send(service.reply(request.value));
        Ok(())
    }
}

impl Host for Ractor {
    type Address<S: Service> = ActorRef<Request>;

    async fn start<S: Service>(&self, service: S) -> ActorRef<Request> {
        runtimes::ractor::start(Server(PhantomData), service).await
    }

    async fn call<S: Service>(&self, process: &ActorRef<Request>, value: u64) -> Option<u64> {
        let called = process.call(|reply| Request { value, reply }, None).await;
        called.ok()?.success_or(()).ok()
    }

    fn stop<S: Service>(&self, process: ActorRef<Request>) {
        process.stop(None);
    }
}
