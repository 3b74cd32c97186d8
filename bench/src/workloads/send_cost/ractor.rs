//! `send-cost` with ractor: an actor whose handler may wait.

use std::io;
use std::marker::PhantomData;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Account, Entry, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, |settings| async move {
        match settings.get(PAYLOAD) {
            0 => measure(Ractor::<u64>::start().await, settings).await,
            _ => measure(Ractor::<Vec<u8>>::start().await, settings).await,
        }
    })
}

struct Ractor<P> {
    receiver: ActorRef<Entry<P>>,
}

impl<P: Payload> Ractor<P> {
    async fn start() -> Self {
        Self { receiver: runtimes::ractor::start(Receiver(PhantomData), ()).await }
    }
}

struct Receiver<P>(PhantomData<fn(P)>);

impl<P: Payload> Actor for Receiver<P> {
    type Msg = Entry<P>;
    type State = Account;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<Entry<P>>,
        (): (),
    ) -> Result<Account, ActorProcessingErr> {
        Ok(Account::default())
    }

    async fn handle(
        &self,
        _: ActorRef<Entry<P>>,
        entry: Entry<P>,
        account: &mut Account,
    ) -> Result<(), ActorProcessingErr> {
        match entry {
            Entry::Item(payload) => account.receive(&payload),
            Entry::Suspend => Account::suspended().await,
            Entry::Confirm => account.confirm(),
        }
        Ok(())
    }
}

impl<P: Payload> SendCostSteps<P> for Ractor<P> {
    fn send(&self, payload: P) {
        // A message without a receiver is missing in the count.
        let _ = self.receiver.send_message(Entry::Item(payload));
    }

    fn suspend(&self) {
        let _ = self.receiver.send_message(Entry::Suspend);
    }

    fn confirm(&self) {
        let _ = self.receiver.send_message(Entry::Confirm);
    }
}
