//! `tasks` with tokio: a task that owns its receiver.

use std::io;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::{Item, Task, TaskSteps, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio, settings))
}

struct Tokio;

enum Request {
    Go(UnboundedSender<Request>),
    Item(Item),
}

impl TaskSteps for Tokio {
    type Address = UnboundedSender<Request>;

    fn start(&self, task: Task) -> Self::Address {
        let (sender, mailbox) = unbounded_channel();
        tokio::spawn(work(task, mailbox));
        sender
    }

    fn go(&self, task: &Self::Address, next: &Self::Address) {
        // A task that does not send is missing in the counts.
        let _ = task.send(Request::Go(next.clone()));
    }
}

async fn work(mut task: Task, mut mailbox: UnboundedReceiver<Request>) {
    task.begin();
    while let Some(request) = mailbox.recv().await {
        match request {
            // A message without a receiver is missing in the sum.
            Request::Go(next) => task.send(|item| drop(next.send(Request::Item(item)))),
            Request::Item(item) => task.receive(item),
        }
        if task.waits() {
            break;
        }
    }
    if timeout(receive_timeout(), mailbox.recv()).await.is_err() {
        task.time_out();
    }
}
