//! `send-cost` with actix: `do_send`, which ignores the mailbox's capacity. Sender and receiver share a
//! thread. A suspended actor's context waits, so that the actor takes no message.

use std::io;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, WrapFuture};

use super::{Account, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, |settings| async move {
        let actix = Actix { receiver: Account::default().start() };
        match settings.get(PAYLOAD) {
            0 => measure::<u64, _>(actix, settings).await,
            _ => measure::<Vec<u8>, _>(actix, settings).await,
        }
    })
}

struct Actix {
    receiver: Addr<Account>,
}

impl Actor for Account {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Item<P>(P);

impl<P: Payload> Handler<Item<P>> for Account {
    type Result = ();

    fn handle(&mut self, Item(payload): Item<P>, _: &mut Context<Self>) {
        self.receive(&payload);
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Suspend;

impl Handler<Suspend> for Account {
    type Result = ();

    fn handle(&mut self, _: Suspend, context: &mut Context<Self>) {
        context.wait(Account::suspended().into_actor(self));
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Confirm;

impl Handler<Confirm> for Account {
    type Result = ();

    fn handle(&mut self, _: Confirm, _: &mut Context<Self>) {
        self.confirm();
    }
}

impl<P: Payload> SendCostSteps<P> for Actix {
    fn send(&self, payload: P) {
        self.receiver.do_send(Item(payload));
    }

    fn suspend(&self) {
        self.receiver.do_send(Suspend);
    }

    fn confirm(&self) {
        self.receiver.do_send(Confirm);
    }
}
