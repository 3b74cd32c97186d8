//! `churn` with tellus: the actor stops itself once it has replied and is told to.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes::{self, tellus::Step};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::tellus::drive(settings, |desk| measure(Tellus { desk }, settings_inside))
}

struct Tellus {
    desk: runtimes::tellus::Desk,
}

pub(super) enum Request {
    Call { value: u64, caller: ActorRef<Step> },
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
        match incoming {
            Incoming::Message(Request::Call { value, caller }) => {
                caller.tell(Step::Reply(self.reply(value)));
            }
            Incoming::Message(Request::Stop) => return Ok(Control::Stop),
            Incoming::Terminated(_) => {}
        }
        Ok(Control::Continue(()))
    }
}

impl Cycle for Tellus {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        let guest = self.desk.spawn(state).await;
        guest.tell(Request::Call { value, caller: self.desk.driver() });
        let reply = self.desk.reply().await;
        guest.tell(Request::Stop);
        Some(reply)
    }
}
