//! `timers` with tokio: a task for each timer, which sleeps and then sends a message, and is aborted.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Owner, Timers, fire, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| {
        let start = async || {
            let (sender, mailbox) = unbounded_channel();
            // A process that does not begin is missing in the checks.
            let _ = sender.send(Request::Slice);
            tokio::spawn(live(Owner::new(), Own(sender), mailbox));
        };
        measure(start, settings)
    })
}

enum Request {
    Slice,
    Fire(u64),
}

async fn live(
    mut owner: Owner<JoinHandle<()>>,
    mut timers: Own,
    mut mailbox: UnboundedReceiver<Request>,
) {
    while let Some(request) = mailbox.recv().await {
        match request {
            Request::Fire(number) => fire(number),
            Request::Slice => {
                if owner.slice(&mut timers) {
                    let _ = timers.0.send(Request::Slice);
                }
            }
        }
    }
}

struct Own(UnboundedSender<Request>);

impl Timers for Own {
    type Timer = JoinHandle<()>;

    fn start(&mut self, delay: Duration, number: u64) -> JoinHandle<()> {
        let myself = self.0.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            // A timer whose message has no receiver is missing in the count.
            let _ = myself.send(Request::Fire(number));
        })
    }

    fn cancel(&mut self, timer: JoinHandle<()>) -> bool {
        timer.abort();
        true
    }
}
