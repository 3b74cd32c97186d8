//! Services in tokio: a task that owns its receiver. The request carries a oneshot for the reply.
//! The task ends when its last sender is dropped.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Host, Service};

pub(in super::super) struct Tokio;

pub(in super::super) struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Host for Tokio {
    type Address<S: Service> = UnboundedSender<Request>;

    async fn start<S: Service>(&self, service: S) -> UnboundedSender<Request> {
        let (mailbox, mut requests) = unbounded_channel::<Request>();
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                // If the caller has given up, the reply is dropped, and the caller counts it as
                // missing.
                let _ = request.reply.send(service.reply(request.value));
            }
        });
        mailbox
    }

    async fn call<S: Service>(
        &self,
        process: &UnboundedSender<Request>,
        value: u64,
    ) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        process.send(Request { value, reply }).ok()?;
        answer.await.ok()
    }

    fn stop<S: Service>(&self, process: UnboundedSender<Request>) {
        drop(process);
    }
}
