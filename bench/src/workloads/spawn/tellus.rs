//! `spawn` with tellus: an actor stops itself on a request. The counted state is part of the
//! actor's value, because each start creates the state, in tellus's sense, again.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, |driver, settings| measure(Tellus { driver }, settings))
}

struct Tellus {
    driver: runtimes::tellus::DriverHandle,
}

pub(super) enum Request {
    Count,
    Stop,
}

impl Actor for State {
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
        Ok(match incoming {
            Incoming::Message(Request::Count) => {
                self.count();
                Control::Continue(())
            }
            Incoming::Message(Request::Stop) => Control::Stop,
            Incoming::Terminated(_) => Control::Continue(()),
        })
    }
}

impl SpawnSteps for Tellus {
    type Address = ActorRef<Request>;

    async fn spawn(&self, state: State) -> Self::Address {
        self.driver.spawn(state).await
    }

    fn count(&self, process: &Self::Address) {
        process.tell(Request::Count);
    }

    fn stop(&self, process: Self::Address) {
        process.tell(Request::Stop);
    }
}
