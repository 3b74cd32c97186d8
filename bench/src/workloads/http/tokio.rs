//! `http` with a tokio task for each user, on the server's runtime: the handler sends a request with a
//! oneshot for the reply.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::Users;
use crate::workloads::prelude::*;

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::tokio::drive(settings, true, async |settings| {
        let start = |_| {
            let (mailbox, requests) = unbounded_channel();
            tokio::spawn(count(requests));
            mailbox
        };
        let users = (0..settings.get("users")).map(start).collect();
        super::measure(Tasks(users), settings).await
    })
}

enum Request {
    Visit(oneshot::Sender<u64>),
    Visits(oneshot::Sender<u64>),
}

/// The task of a user.
async fn count(mut requests: UnboundedReceiver<Request>) {
    let mut visits = 0;
    while let Some(request) = requests.recv().await {
        let reply = match request {
            Request::Visit(reply) => {
                visits += 1;
                reply
            }
            Request::Visits(reply) => reply,
        };
        // A reply without a receiver is missing in the client's answers.
        let _ = reply.send(visits);
    }
}

/// The mailbox of each user's task.
#[derive(Clone)]
struct Tasks(Arc<[UnboundedSender<Request>]>);

impl Tasks {
    /// Sends a request to a task and awaits its reply; returns `None` if no reply came.
    async fn call(
        user: &UnboundedSender<Request>,
        request: fn(oneshot::Sender<u64>) -> Request,
    ) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        user.send(request(reply)).ok()?;
        answer.await.ok()
    }
}

impl Users for Tasks {
    async fn visit(&self, user: u64) -> Result<u64, StatusCode> {
        let user = self.0.get(user as usize).ok_or(StatusCode::NOT_FOUND)?;
        Self::call(user, Request::Visit).await.ok_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    async fn visits(&self) -> u64 {
        let mut sum = 0;
        for user in &*self.0 {
            sum += Self::call(user, Request::Visits).await.unwrap_or(0);
        }
        sum
    }
}
