//! Services in tellus: the request carries the caller's address, and the reply is a message to that
//! address; `ask` is meant for code outside of actors and also starts a timer. An actor stops
//! itself on a request. The service is part of the actor's value, because each start creates the
//! state, in tellus's sense, again.

use std::convert::Infallible;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};

use super::{Host, Service};
use crate::runtimes::tellus::{DriverHandle, DriverMessage};

pub(in super::super) struct Tellus {
    pub(in super::super) driver: DriverHandle,
}

struct Server<S>(S);

pub(in super::super) enum Request {
    Call { value: u64, caller: ActorRef<DriverMessage> },
    Stop,
}

impl<S: Service> Actor for Server<S> {
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
        match incoming {
            Incoming::Message(Request::Call { value, caller }) => {
                caller.tell(DriverMessage::Reply(self.0.reply(value)));
            }
            Incoming::Message(Request::Stop) => return Ok(Control::Stop),
            Incoming::Terminated(_) => {}
        }
        Ok(Control::Continue(()))
    }
}

impl Host for Tellus {
    type Address<S: Service> = ActorRef<Request>;

    async fn start<S: Service>(&self, service: S) -> ActorRef<Request> {
        self.driver.spawn(Server(service)).await
    }

    async fn call<S: Service>(&self, process: &ActorRef<Request>, value: u64) -> Option<u64> {
        process.tell(Request::Call { value, caller: self.driver.address() });
        Some(self.driver.reply().await)
    }

    fn stop<S: Service>(&self, process: ActorRef<Request>) {
        process.tell(Request::Stop);
    }
}
