//! Services in tokio: a task that owns its receiver. The request carries a oneshot for the reply.
//! The task ends when its last sender is dropped.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::receiver::Latch;
use super::{Host, Service};

/// tokio, with the way in which each task takes messages out of its channel.
#[derive(Clone)]
pub(in super::super) struct Tokio<T>(pub(in super::super) T);

/// The step of a task that follows a message.
#[derive(Clone, Copy)]
pub(in super::super) enum Next {
    /// Take the next message.
    Message,
    /// Take the next message when the latch is open.
    Latch(&'static Latch),
    /// End the task.
    Stop,
}

/// A way to take messages out of a channel.
pub(in super::super) trait Take: Clone + Send + Sync + 'static {
    /// Passes each message to `handle`, until no sender is left or `handle` ends the task.
    fn take_all<M: Send + 'static>(
        inbox: UnboundedReceiver<M>,
        handle: impl FnMut(M) -> Next + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// `recv`: a message at a time.
#[derive(Clone)]
pub(in super::super) struct Recv;

impl Take for Recv {
    async fn take_all<M: Send + 'static>(
        mut inbox: UnboundedReceiver<M>,
        mut handle: impl FnMut(M) -> Next + Send,
    ) {
        while let Some(message) = inbox.recv().await {
            match handle(message) {
                Next::Message => {}
                Next::Latch(latch) => latch.wait().await,
                Next::Stop => return,
            }
        }
    }
}

/// `recv_many`: as many messages as there are, up to [`RecvMany::LIMIT`].
#[derive(Clone)]
pub(in super::super) struct RecvMany;

impl RecvMany {
    /// Number of messages taken at once, at most: half of tokio's budget of operations per poll.
    const LIMIT: usize = 64;
}

impl Take for RecvMany {
    async fn take_all<M: Send + 'static>(
        mut inbox: UnboundedReceiver<M>,
        mut handle: impl FnMut(M) -> Next + Send,
    ) {
        let mut messages = Vec::new();
        while inbox.recv_many(&mut messages, Self::LIMIT).await > 0 {
            for message in messages.drain(..) {
                match handle(message) {
                    Next::Message => {}
                    Next::Latch(latch) => latch.wait().await,
                    Next::Stop => return,
                }
            }
        }
    }
}

pub(in super::super) struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl<T: Take> Host for Tokio<T> {
    type Address<S: Service> = UnboundedSender<Request>;

    async fn start<S: Service>(&self, service: S) -> UnboundedSender<Request> {
        let (mailbox, requests) = unbounded_channel::<Request>();
        tokio::spawn(T::take_all(requests, move |request| {
            // If the caller has given up, the reply is dropped, and the caller counts it as
            // missing.
            let _ = request.reply.send(service.reply(request.value));
            Next::Message
        }));
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
