//! Services in smol: a task that owns its receiver. The request carries a oneshot for the reply, from
//! `futures-channel`, because smol has none. The task ends when its last sender is dropped.

use futures_channel::oneshot;
use smol::channel::{Sender, unbounded};

use super::{Host, Service};
use crate::runtimes;

#[derive(Clone)]
pub(in super::super) struct Smol;

pub(in super::super) struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Host for Smol {
    type Address<S: Service> = Sender<Request>;

    async fn start<S: Service>(&self, service: S) -> Sender<Request> {
        let (mailbox, requests) = unbounded::<Request>();
        let process = runtimes::smol::spawn(async move {
            while let Ok(request) = requests.recv().await {
                // If the caller has given up, the reply is dropped, and the caller counts it as
                // missing.
                let _ = request.reply.send(service.reply(request.value));
            }
        });
        process.detach();
        mailbox
    }

    async fn call<S: Service>(&self, process: &Sender<Request>, value: u64) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        process.try_send(Request { value, reply }).ok()?;
        answer.await.ok()
    }

    fn stop<S: Service>(&self, process: Sender<Request>) {
        drop(process);
    }
}
