//! Services in threads: a thread that owns its receiver. The request carries a channel with one place for
//! the reply, at which the caller's thread blocks. The thread ends when its last sender is dropped.

use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

use ::tokio::runtime::Handle;

use super::{Host, Service};

#[derive(Clone)]
pub(in super::super) struct Threads {
    /// The runtime of the driver's timers.
    pub(in super::super) timers: Handle,
}

pub(in super::super) struct Request {
    value: u64,
    reply: SyncSender<u64>,
}

impl Host for Threads {
    type Address<S: Service> = Sender<Request>;

    async fn start<S: Service>(&self, service: S) -> Sender<Request> {
        let (mailbox, requests) = channel::<Request>();
        thread::spawn(move || {
            for request in requests {
                // If the caller has given up, the reply is dropped, and the caller counts it as
                // missing.
                let _ = request.reply.send(service.reply(request.value));
            }
        });
        mailbox
    }

    async fn call<S: Service>(&self, process: &Sender<Request>, value: u64) -> Option<u64> {
        let (reply, answer) = sync_channel(1);
        process.send(Request { value, reply }).ok()?;
        answer.recv().ok()
    }

    fn stop<S: Service>(&self, process: Sender<Request>) {
        drop(process);
    }
}
