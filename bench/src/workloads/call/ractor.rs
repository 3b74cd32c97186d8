//! `call` with ractor: a call without a timeout.

use std::io;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::ractor::drive(settings, async {
        let mut callees = Vec::new();
        for _ in 0..settings_inside.get("callees") {
            callees.push(runtimes::ractor::start(Callee, ()).await);
        }
        measure(Ractor { callees }, settings_inside).await
    })
}

struct Ractor {
    callees: Vec<ActorRef<Request>>,
}

struct Callee;

struct Request {
    value: u64,
    reply: RpcReplyPort<u64>,
}

impl Actor for Callee {
    type Msg = Request;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Request>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Request>,
        request: Request,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        // A caller that no longer waits misses its own reply.
        let _ = request.reply.send(reply(request.value));
        Ok(())
    }
}

impl Callees for Ractor {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        let called = self.callees[callee].call(|reply| Request { value, reply }, None).await;
        called.ok()?.success_or(()).ok()
    }
}
