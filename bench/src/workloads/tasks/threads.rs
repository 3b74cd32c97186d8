//! `tasks` with threads: a thread that owns its receiver.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use super::{Item, Task, TaskSteps, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::threads::drive(settings, |_, settings| measure(Threads, settings))
}

struct Threads;

enum Request {
    Go(Sender<Request>),
    Item(Item),
}

impl TaskSteps for Threads {
    type Address = Sender<Request>;

    fn start(&self, task: Task) -> Self::Address {
        let (sender, mailbox) = channel();
        thread::spawn(move || work(task, &mailbox));
        sender
    }

    fn go(&self, task: &Self::Address, next: &Self::Address) {
        // A task that does not send is missing in the counts.
        let _ = task.send(Request::Go(next.clone()));
    }
}

fn work(mut task: Task, mailbox: &Receiver<Request>) {
    task.begin();
    for request in mailbox {
        match request {
            // A message without a receiver is missing in the sum.
            Request::Go(next) => task.send(|item| drop(next.send(Request::Item(item)))),
            Request::Item(item) => task.receive(item),
        }
        if task.waits() {
            break;
        }
    }
    if matches!(mailbox.recv_timeout(receive_timeout()), Err(RecvTimeoutError::Timeout)) {
        task.time_out();
    }
}
