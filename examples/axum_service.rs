//! An axum service with one process for each resource, calls with a deadline, and a shutdown that
//! loses no request.
//!
//! ```text
//!  POST   /queues/NAME   body   puts an item in; opens the queue      201, 429 if it is full
//!  DELETE /queues/NAME/head     takes the oldest, and waits if empty, 200, 404, 504
//!         ?wait_ms=…            five seconds at most
//!  GET    /queues/NAME          items and waiting requests            200 JSON, 404
//!
//!  request ─► axum handler ──call, with a deadline──► process "NAME" ─► reply or CallError ─► status
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin axum_service -- 127.0.0.1:8080`, by default on a free
//! port. Ctrl-C stops accepting, lets requests and then processes finish, and prints how many did.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use std::collections::VecDeque;
use std::time::Duration;
use throng::prelude::*;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Longest wait of a request for a process.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most items of a queue.
const ITEMS_MAX: usize = 100;

/// A process for a queue.
#[derive(Default)]
struct Queue {
    items: VecDeque<String>,
    waiting: VecDeque<ReplyTo<String>>,
}

/// Error of a queue that takes no item.
struct Full;

#[derive(serde::Serialize)]
struct Status {
    items: usize,
    waiting: usize,
}

#[derive(serde::Deserialize)]
struct Wait {
    wait_ms: Option<u64>,
}

#[process]
impl Queue {
    #[message]
    fn put(&mut self, mut item: String) -> Result<(), Full> {
        while let Some(reply) = self.waiting.pop_front() {
            match reply.send(item) {
                Ok(()) => return Ok(()),
                // The request's time is up, or its client has gone: the item is handed back.
                Err(back) => item = back,
            }
        }
        if self.items.len() == ITEMS_MAX {
            return Err(Full);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Replies with the oldest item, as soon as the queue has an item.
    #[message]
    fn take(&mut self, reply: ReplyTo<String>) {
        match self.items.pop_front() {
            Some(item) => {
                if let Err(back) = reply.send(item) {
                    self.items.push_front(back);
                }
            }
            None => {
                // Requests whose time is up wait no longer.
                self.waiting.retain(ReplyTo::is_awaited);
                self.waiting.push_back(reply);
            }
        }
    }

    #[message(name = ReadStatus)]
    fn status(&mut self) -> Status {
        self.waiting.retain(ReplyTo::is_awaited);
        Status { items: self.items.len(), waiting: self.waiting.len() }
    }
}

type Failure = (StatusCode, String);

/// Maps a call without a reply to a status by which the client can choose its next step.
fn no_reply<T>(error: CallError<T>) -> Failure {
    let status = match &error {
        // The process has exited: there is no such resource.
        CallError::NoProcess(_) => StatusCode::NOT_FOUND,
        // A full mailbox, or the budget of all mailboxes is used up: try again later.
        CallError::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
        CallError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        // The process failed; the details are not for the client.
        _ => {
            eprintln!("a call failed: {error}");
            return (StatusCode::INTERNAL_SERVER_ERROR, "internal error".to_owned());
        }
    };
    (status, error.to_string())
}

fn find(runtime: &RuntimeHandle, name: &str) -> Result<Address<Queue>, Failure> {
    runtime.whereis(name).ok_or_else(|| (StatusCode::NOT_FOUND, "no such queue".to_owned()))
}

fn find_or_open(runtime: &RuntimeHandle, name: &str) -> Result<Address<Queue>, Failure> {
    if let Ok(queue) = find(runtime, name) {
        return Ok(queue);
    }
    let no_room = |error: SpawnError<Queue>| (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    let queue = runtime.spawn(Queue::default()).map_err(no_room)?;
    match runtime.register(name, queue) {
        Ok(()) => Ok(queue),
        // Another request was faster.
        Err(_) => {
            queue.stop();
            find(runtime, name)
        }
    }
}

async fn put(
    State(runtime): State<RuntimeHandle>,
    Path(name): Path<String>,
    item: String,
) -> Result<StatusCode, Failure> {
    let queue = find_or_open(&runtime, &name)?;
    match queue.put(item).within(DEADLINE).await.map_err(no_reply)? {
        Ok(()) => Ok(StatusCode::CREATED),
        Err(Full) => Err((StatusCode::TOO_MANY_REQUESTS, "the queue is full".to_owned())),
    }
}

async fn take(
    State(runtime): State<RuntimeHandle>,
    Path(name): Path<String>,
    Query(Wait { wait_ms }): Query<Wait>,
) -> Result<String, Failure> {
    let deadline = wait_ms.map_or(DEADLINE, Duration::from_millis).min(DEADLINE);
    find(&runtime, &name)?.take().within(deadline).await.map_err(no_reply)
}

async fn status(
    State(runtime): State<RuntimeHandle>,
    Path(name): Path<String>,
) -> Result<Json<Status>, Failure> {
    find(&runtime, &name)?.status().within(DEADLINE).await.map(Json).map_err(no_reply)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let routes = Router::new()
            .route("/queues/{name}", get(status).post(put))
            .route("/queues/{name}/head", delete(take))
            .with_state(runtime.clone());
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        let interrupted = async move { interrupt.recv().await.unwrap_or_default() };
        axum::serve(listener, routes).with_graceful_shutdown(interrupted).await
    })?;
    println!("{}", runtime.shutdown(Duration::from_secs(5)));
    Ok(())
}
