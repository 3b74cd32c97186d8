//! `sleep` with tellus: an actor with a timer, the nearest equivalent of a receive with a time-out.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Timed};

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, |driver, settings| measure(Tellus { driver }, settings))
}

struct Tellus {
    driver: runtimes::tellus::DriverHandle,
}

pub(super) struct TimeOut;

impl Actor for State {
    type Message = TimeOut;
    type Timers = Timed;
    type State = ();
    type Error = Infallible;

    fn init(&self, context: &ActorContext<TimeOut, Timed>) -> Result<(), Infallible> {
        context.start_timer("timeout", TimeOut, receive_timeout());
        Ok(())
    }

    fn receive(
        &self,
        _: &ActorContext<TimeOut, Timed>,
        incoming: Incoming<TimeOut>,
        (): (),
    ) -> Result<Control<()>, Infallible> {
        if let Incoming::Message(TimeOut) = incoming {
            self.time_out();
        }
        Ok(Control::Stop)
    }
}

impl SleepSteps for Tellus {
    type Kept = Vec<ActorRef<TimeOut>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        let mut addresses = Vec::new();
        for state in states {
            addresses.push(self.driver.spawn(state).await);
        }
        addresses
    }
}
