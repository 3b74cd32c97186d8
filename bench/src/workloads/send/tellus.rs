//! `send` with tellus: each sender sends its whole share in a single handler.

use std::convert::Infallible;
use std::io;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes::{self, tellus::DriverMessage};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, move |driver, settings| async move {
        let receiver = driver.spawn(Receiver).await;
        measure(Tellus { driver, receiver }, settings).await
    })
}

struct Tellus {
    driver: runtimes::tellus::DriverHandle,
    receiver: ActorRef<Entry>,
}

struct Receiver;

enum Entry {
    Add(u64),
    Sum(ActorRef<DriverMessage>),
}

impl Actor for Receiver {
    type Message = Entry;
    type Timers = Untimed;
    type State = u64;
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Entry>) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn receive(
        &self,
        _: &ActorContext<Entry>,
        incoming: Incoming<Entry>,
        mut sum: u64,
    ) -> Result<Control<u64>, Infallible> {
        match incoming {
            Incoming::Message(Entry::Add(value)) => sum = sum.wrapping_add(value),
            Incoming::Message(Entry::Sum(asker)) => asker.tell(DriverMessage::Reply(sum)),
            Incoming::Terminated(_) => {}
        }
        Ok(Control::Continue(sum))
    }
}

struct Sender {
    receiver: ActorRef<Entry>,
}

struct Go(Share);

impl Actor for Sender {
    type Message = Go;
    type Timers = Untimed;
    type State = ();
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Go>) -> Result<(), Infallible> {
        Ok(())
    }

    fn receive(
        &self,
        _: &ActorContext<Go>,
        incoming: Incoming<Go>,
        (): (),
    ) -> Result<Control<()>, Infallible> {
        if let Incoming::Message(Go(share)) = incoming {
            share.send_all(|value| self.receiver.tell(Entry::Add(value)));
        }
        Ok(Control::Continue(()))
    }
}

impl SendSteps for Tellus {
    async fn start_sender(&self, share: Share) {
        self.driver.spawn(Sender { receiver: self.receiver.clone() }).await.tell(Go(share));
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.tell(Entry::Sum(self.driver.address()));
        Some(self.driver.reply().await)
    }
}
