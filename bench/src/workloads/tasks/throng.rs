//! `tasks` with throng: the state is the process, and its receive times out.

use std::io;

use throng::{Address, Context, ExitReason, Handle, Message, Process, RuntimeHandle};

use super::{Item, Task, TaskSteps, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, settings.count, |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for Task {
    async fn started(&mut self, _: &mut Context<Self>) {
        self.begin();
    }

    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.time_out();
        cx.stop(ExitReason::Normal);
    }
}

struct Go(Address<Task>);

impl Message for Go {
    type Reply = ();
}

impl Handle<Go> for Task {
    async fn handle(&mut self, Go(next): Go, cx: &mut Context<Self>) {
        // A message without a receiver is missing in the sum.
        self.send(|item| drop(next.send(item)));
        if self.waits() {
            cx.receive_timeout(receive_timeout());
        }
    }
}

impl Message for Item {
    type Reply = ();
}

impl Handle<Item> for Task {
    async fn handle(&mut self, item: Item, cx: &mut Context<Self>) {
        self.receive(item);
        if self.waits() {
            cx.receive_timeout(receive_timeout());
        }
    }
}

impl TaskSteps for Throng {
    type Address = Address<Task>;

    fn start(&self, task: Task) -> Self::Address {
        runtimes::throng::start(&self.runtime, task)
    }

    fn go(&self, task: &Self::Address, next: &Self::Address) {
        // A task that does not send is missing in the counts.
        let _ = task.send(Go(*next));
    }
}
