//! `churn` with tokio: the task ends when its only sender is dropped.

use std::io;

use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, measure(Tokio, settings.clone()))
}

struct Tokio;

struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Cycle for Tokio {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        let (mailbox, mut requests) = unbounded_channel::<Request>();
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                // A caller that no longer waits misses its own reply.
                let _ = request.reply.send(state.reply(request.value));
            }
        });
        let (reply, answer) = oneshot::channel();
        mailbox.send(Request { value, reply }).ok()?;
        answer.await.ok()
    }
}
