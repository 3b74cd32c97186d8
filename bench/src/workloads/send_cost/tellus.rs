//! `send-cost` with tellus: a handler is a plain function, so a suspended actor blocks its thread, for which
//! tokio starts another.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;

use tellus::{Actor, ActorContext, ActorRef, Control, Incoming, Untimed};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::{Account, Entry, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes::{self, tellus::DriverHandle};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, |driver, settings| async move {
        match settings.get(PAYLOAD) {
            0 => measure(Tellus::<u64>::start(&driver).await, settings).await,
            _ => measure(Tellus::<Vec<u8>>::start(&driver).await, settings).await,
        }
    })
}

struct Tellus<P> {
    receiver: ActorRef<Entry<P>>,
}

impl<P: Payload> Tellus<P> {
    async fn start(driver: &DriverHandle) -> Self {
        Self { receiver: driver.spawn(Receiver(PhantomData)).await }
    }
}

struct Receiver<P>(PhantomData<fn(P)>);

impl<P: Payload> Actor for Receiver<P> {
    type Message = Entry<P>;
    type Timers = Untimed;
    type State = Account;
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Entry<P>>) -> Result<Account, Infallible> {
        Ok(Account::default())
    }

    fn receive(
        &self,
        _: &ActorContext<Entry<P>>,
        incoming: Incoming<Entry<P>>,
        mut account: Account,
    ) -> Result<Control<Account>, Infallible> {
        match incoming {
            Incoming::Message(Entry::Item(payload)) => account.receive(&payload),
            Incoming::Message(Entry::Suspend) => {
                block_in_place(|| Handle::current().block_on(Account::suspended()));
            }
            Incoming::Message(Entry::Confirm) => account.confirm(),
            Incoming::Terminated(_) => {}
        }
        Ok(Control::Continue(account))
    }
}

impl<P: Payload> SendCostSteps<P> for Tellus<P> {
    fn send(&self, payload: P) {
        self.receiver.tell(Entry::Item(payload));
    }

    fn suspend(&self) {
        self.receiver.tell(Entry::Suspend);
    }

    fn confirm(&self) {
        self.receiver.tell(Entry::Confirm);
    }
}
