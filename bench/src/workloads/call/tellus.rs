//! `call` with tellus: the request carries the caller's address, and the reply is a message to it.
//! `ask` is for code outside of actors, and has a timer besides.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes::{self, tellus::Step};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::tellus::drive(settings, |desk| async move {
        let mut callees = Vec::new();
        for _ in 0..settings_inside.get("callees") {
            callees.push(desk.spawn(Callee).await);
        }
        measure(Tellus { desk, callees }, settings_inside).await
    })
}

struct Tellus {
    desk: runtimes::tellus::Desk,
    callees: Vec<ActorRef<Request>>,
}

struct Callee;

struct Request {
    value: u64,
    caller: ActorRef<Step>,
}

impl Actor for Callee {
    type Message = Request;
    type Timers = Untimed;
    type State = ();
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Request>) -> Result<(), Infallible> {
        Ok(())
    }

    fn receive(
        &self,
        _: &ActorContext<Request>,
        incoming: Incoming<Request>,
        (): (),
    ) -> Result<Control<()>, Infallible> {
        if let Incoming::Message(Request { value, caller }) = incoming {
            caller.tell(Step::Reply(reply(value)));
        }
        Ok(Control::Continue(()))
    }
}

impl Callees for Tellus {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].tell(Request { value, caller: self.desk.driver() });
        Some(self.desk.reply().await)
    }
}
