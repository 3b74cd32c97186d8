//! `sleep` with kameo: an actor whose `next` waits for its mailbox with a time-out.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::mailbox::{MailboxReceiver, Signal};
use tokio::time::timeout;

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, |settings| measure(Kameo, settings))
}

struct Kameo;

impl Actor for State {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        Ok(match timeout(receive_timeout(), mailbox.recv()).await {
            Ok(signal) => signal,
            Err(_) => {
                self.time_out();
                // `None` stops the actor.
                None
            }
        })
    }
}

impl SleepSteps for Kameo {
    type Kept = Vec<ActorRef<State>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(runtimes::kameo::start).collect()
    }
}
