//! `tasks` with smol: a task that owns its receiver.

use std::io;

use smol::Timer;
use smol::channel::{Receiver, Sender, unbounded};
use smol::future::or;

use super::{Item, Task, TaskSteps, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::smol::drive(settings, |settings| measure(Smol, settings))
}

struct Smol;

enum Request {
    Go(Sender<Request>),
    Item(Item),
}

impl TaskSteps for Smol {
    type Address = Sender<Request>;

    fn start(&self, task: Task) -> Self::Address {
        let (sender, mailbox) = unbounded();
        runtimes::smol::spawn(work(task, mailbox)).detach();
        sender
    }

    fn go(&self, task: &Self::Address, next: &Self::Address) {
        // A task that does not send is missing in the counts.
        let _ = task.try_send(Request::Go(next.clone()));
    }
}

async fn work(mut task: Task, mailbox: Receiver<Request>) {
    task.begin();
    while let Ok(request) = mailbox.recv().await {
        match request {
            // A message without a receiver is missing in the sum.
            Request::Go(next) => task.send(|item| drop(next.try_send(Request::Item(item)))),
            Request::Item(item) => task.receive(item),
        }
        if task.waits() {
            break;
        }
    }
    let message = async { mailbox.recv().await.ok() };
    let timeout = async {
        Timer::after(receive_timeout()).await;
        None
    };
    if or(message, timeout).await.is_none() {
        task.time_out();
    }
}
