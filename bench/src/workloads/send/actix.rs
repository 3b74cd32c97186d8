//! `send` with actix: `do_send`, which ignores the mailbox's capacity. The senders share the
//! receiver's thread.

use std::io;

use actix::{Actor, Addr, Context, Handler, Message};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, move |settings| async move {
        measure(Actix { receiver: Receiver { sum: 0 }.start() }, settings).await
    })
}

struct Actix {
    receiver: Addr<Receiver>,
}

struct Receiver {
    sum: u64,
}

impl Actor for Receiver {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Add(u64);

impl Handler<Add> for Receiver {
    type Result = ();

    fn handle(&mut self, Add(value): Add, _: &mut Context<Self>) {
        self.sum = self.sum.wrapping_add(value);
    }
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Sum;

impl Handler<Sum> for Receiver {
    type Result = u64;

    fn handle(&mut self, _: Sum, _: &mut Context<Self>) -> u64 {
        self.sum
    }
}

struct Sender {
    receiver: Addr<Receiver>,
}

impl Actor for Sender {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Go(Share);

impl Handler<Go> for Sender {
    type Result = ();

    fn handle(&mut self, Go(share): Go, _: &mut Context<Self>) {
        share.send_all(|value| self.receiver.do_send(Add(value)));
    }
}

impl SendSteps for Actix {
    async fn start_sender(&self, share: Share) {
        Sender { receiver: self.receiver.clone() }.start().do_send(Go(share));
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.send(Sum).await.ok()
    }
}
