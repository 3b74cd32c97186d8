//! `call` with tokio: the request carries a oneshot for the reply.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::tokio::drive(settings, async {
        let callees = (0..settings_inside.get("callees")).map(|_| start_callee()).collect();
        measure(Tokio { callees }, settings_inside).await
    })
}

struct Tokio {
    callees: Vec<UnboundedSender<Request>>,
}

struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

fn start_callee() -> UnboundedSender<Request> {
    let (mailbox, mut requests) = unbounded_channel::<Request>();
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            // A caller that no longer waits misses its own reply.
            let _ = request.reply.send(reply(request.value));
        }
    });
    mailbox
}

impl Callees for Tokio {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        self.callees[callee].send(Request { value, reply }).ok()?;
        answer.await.ok()
    }
}
