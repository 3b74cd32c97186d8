//! `sleep` with tellus: an actor with a timer, which is what it has for a receive with a time-out.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Timed};

use super::{Sleepers, State, measure, patience};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, |desk, settings| measure(Tellus { desk }, settings))
}

struct Tellus {
    desk: runtimes::tellus::Desk,
}

pub(super) struct TimeOut;

impl Actor for State {
    type Message = TimeOut;
    type Timers = Timed;
    type State = ();
    type Error = Infallible;

    fn init(&self, context: &ActorContext<TimeOut, Timed>) -> Result<(), Infallible> {
        context.start_timer("patience", TimeOut, patience());
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

impl Sleepers for Tellus {
    type Kept = Vec<ActorRef<TimeOut>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        let mut addresses = Vec::new();
        for state in states {
            addresses.push(self.desk.spawn(state).await);
        }
        addresses
    }
}
