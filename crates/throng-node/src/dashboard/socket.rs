//! Sockets of dashboards: samples of the node as they are taken, and answers to requests.
//!
//! All messages are JSON objects with a `type`.
//!
//! | from | type | fields |
//! |---|---|---|
//! | client | `hello` | `token`: the admin token |
//! | server | `welcome` | `version`, `interval_seconds` between samples, `request_bounds` of the buckets of `requests` in samples |
//! | server | `sample` | `sample`: see `sampler.rs` |
//! | client | `ask` | `id`, and a request of the admin socket: `get` and its fields |
//! | server | `answer` | `id`, and an answer of the admin socket: `top`, `sums`, `info`, `list`, `tree`, `kinds`, `metrics`, `entity` or `error` |
//!
//! | close code | reason |
//! |---|---|
//! | 1008 | the client sent something else |
//! | 1012 | the node stops |
//! | 1013 | too many dashboards are open |
//! | 4401 | the token is wrong, is missing for too long, or was replaced |
//! | 4429 | too many wrong tokens came from the client's address |
//!
//! Invariants: nothing is sent before the token was checked. A dashboard has one request in progress, and the
//! server reads no further while others wait. The size of an answer has a bound, whatever the names of processes.

use std::pin::Pin;
use std::time::Duration;

use crate::http::{
    ClientAddress, CloseCode, Frames, Outbox, OutboxError, SocketInbox, SocketUpgrade,
};
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::latency::Latency;
use super::sampler::{INTERVAL, Sample};
use super::token::Digest;
use super::{Admin, Denied};
use crate::admin::entities::EntityRequest;
use crate::admin::inspect;
use crate::admin::wire::{Answer, Refusal, RefusalKind, Request};

/// Accepts a socket, and serves it in a task of its own.
pub(super) async fn open(
    State(admin): State<Admin>,
    client: ClientAddress,
    upgrade: SocketUpgrade,
) -> Response {
    let (response, inbox, outbox) = upgrade.accept();
    tokio::spawn(async move {
        let mut inbox = inbox;
        if let Err(Close { code, reason }) = serve(&admin, client, &mut inbox, &outbox).await {
            outbox.close(code, reason);
        }
    });
    response
}

/// Message of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FromClient {
    Hello {
        token: String,
    },
    Ask {
        id: u64,
        #[serde(flatten)]
        request: Request,
    },
}

/// Message to a client.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToClient {
    Welcome {
        version: &'static str,
        interval_seconds: f64,
        request_bounds: Vec<f64>,
    },
    Sample {
        sample: Sample,
    },
    Answer {
        id: u64,
        #[serde(flatten)]
        answer: Answer,
    },
}

impl ToClient {
    pub(super) fn frame(&self) -> Frames {
        // Encoding cannot fail: a message has no maps with keys other than texts.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

/// Reason of the server for ending a socket.
struct Close {
    code: CloseCode,
    reason: &'static str,
}

const fn close<T>(code: CloseCode, reason: &'static str) -> Result<T, Close> {
    Err(Close { code, reason })
}

/// Serves a socket until it ends. An `Ok` means that it has ended already.
async fn serve(
    admin: &Admin,
    client: ClientAddress,
    inbox: &mut SocketInbox,
    outbox: &Outbox,
) -> Result<(), Close> {
    let token = match timeout(HELLO, inbox.next()).await {
        Ok(Some(Ok(text))) => match serde_json::from_str(text.as_str()) {
            Ok(FromClient::Hello { token }) => token,
            _ => return close(CloseCode::POLICY, "the first message must be a hello"),
        },
        Ok(_) => return Ok(()),
        Err(_) => return close(UNAUTHORIZED, "no token came"),
    };
    let digest = match admin.check(client, &token).await {
        Ok(digest) => digest,
        Err(Denied::Wrong) => return close(UNAUTHORIZED, "not the admin token"),
        Err(Denied::Limited(_)) => return close(TOO_MANY_ATTEMPTS, "too many wrong tokens"),
    };
    let Ok(_permit) = admin.0.dashboards.clone().try_acquire_owned() else {
        return close(CloseCode::TRY_AGAIN_LATER, TOO_MANY_DASHBOARDS);
    };
    let welcome = ToClient::Welcome {
        version: env!("CARGO_PKG_VERSION"),
        interval_seconds: INTERVAL.as_secs_f64(),
        request_bounds: Latency::bounds(),
    };
    send(outbox, welcome.frame())?;
    watch(admin, digest, inbox, outbox).await
}

/// Sends samples and answers until the socket ends.
async fn watch(
    admin: &Admin,
    digest: Digest,
    inbox: &mut SocketInbox,
    outbox: &Outbox,
) -> Result<(), Close> {
    let mut samples = admin.0.sampler.subscribe();
    // The sample of another dashboard's second, if there is one.
    samples.mark_changed();
    let mut asking: Option<Pin<Box<dyn Future<Output = Frames> + Send + '_>>> = None;
    loop {
        tokio::select! {
            Ok(()) = samples.changed() => {
                let Some(sampled) = samples.borrow_and_update().clone() else { continue };
                let opens = |token: Option<Digest>| token.is_some_and(|token| token.equals(&digest));
                // The sample may be older than the token.
                if !opens(sampled.token) && !opens(admin.0.token.read().await) {
                    return close(UNAUTHORIZED, "the admin token was replaced");
                }
                send(outbox, sampled.frame)?;
            }
            frame = async { asking.as_mut()?.await.into() }, if asking.is_some() => {
                asking = None;
                if let Some(frame) = frame {
                    send(outbox, frame)?;
                }
            }
            item = inbox.next(), if asking.is_none() => {
                let Some(Ok(text)) = item else { return Ok(()) };
                match serde_json::from_str(text.as_str()) {
                    Ok(FromClient::Ask { id, request }) => {
                        asking = Some(Box::pin(answer(admin, id, request)));
                    }
                    Ok(FromClient::Hello { .. }) => return close(CloseCode::POLICY, "a second hello"),
                    Err(_) => return close(CloseCode::POLICY, "not a message of this protocol"),
                }
            }
        }
    }
}

async fn answer(admin: &Admin, id: u64, request: Request) -> Frames {
    // The semaphore is never closed.
    let _permit = admin.0.surveys.acquire().await;
    let mut answer = match request {
        Request::Entity(EntityRequest::Forget { .. }) => {
            let detail = "an entity is forgotten by `throng entity forget`".into();
            Answer::Error(Refusal { kind: RefusalKind::Unable, detail })
        }
        Request::Entity(EntityRequest::ChangeQueue { .. }) => {
            let detail = "a queue is changed by `throng queue`".into();
            Answer::Error(Refusal { kind: RefusalKind::Unable, detail })
        }
        request => inspect(request, &admin.0.inspected, ROWS_MAX).await,
    };
    answer.clip(TEXT_BYTES_MAX, LIST_MAX);
    ToClient::Answer { id, answer }.frame()
}

/// Queues a frame. A client that reads too slowly misses it: the next sample replaces this one, and the page asks
/// again.
fn send(outbox: &Outbox, frame: Frames) -> Result<(), Close> {
    match outbox.send(frame) {
        // The inbox tells that the socket is closed.
        Ok(()) | Err(OutboxError::Full(_) | OutboxError::Closed(_)) => Ok(()),
        Err(OutboxError::TooLarge(_)) => close(CloseCode::ERROR, "an answer was too large"),
    }
}

/// Maximum time from the opening of a socket to the client's hello.
const HELLO: Duration = Duration::from_secs(10);

/// Maximum number of rows in an answer: more than a person reads.
pub(super) const ROWS_MAX: usize = 500;

/// Maximum bytes of a name in an answer. Names of generic types are long.
const TEXT_BYTES_MAX: usize = 160;

/// Maximum number of links, monitors or names of a process in an answer.
const LIST_MAX: usize = 50;

const TOO_MANY_DASHBOARDS: &str = "the maximum number of dashboards is open";

/// Close code for a client without the admin token.
const UNAUTHORIZED: CloseCode = application(4401);

/// Close code for a client that has sent too many wrong tokens.
const TOO_MANY_ATTEMPTS: CloseCode = application(4429);

const fn application(code: u16) -> CloseCode {
    match CloseCode::application(code) {
        Some(code) => code,
        None => CloseCode::POLICY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::wire::{Order, Process, TreeRow};

    #[test]
    fn messages_look_as_documented() {
        let ask: FromClient =
            serde_json::from_str(r#"{"type":"ask","id":7,"get":"top","by":"turns","limit":3}"#)
                .unwrap();
        let FromClient::Ask { id: 7, request } = ask else { panic!("{ask:?}") };
        let top = Request::Top { by: Order::Turns, limit: 3, offset: 0, filter: String::new() };
        assert_eq!(request, top);
        let frame = ToClient::Answer { id: 7, answer: Answer::Top(Vec::new()) }.frame();
        assert!(frame.texts().eq([r#"{"type":"answer","id":7,"top":[]}"#]));
    }

    #[test]
    fn the_largest_answer_fits_into_the_queue_of_a_socket() {
        let name = "\u{1}".repeat(10_000);
        let process = Process {
            pid: "0".repeat(16),
            kind: Some(name.clone()),
            r#type: Some(name.clone()),
            label: Some(name.clone()),
            handler: Some(name.clone()),
            names: vec![name.clone(); 1000],
            links: vec!["0".repeat(16); 1000],
            monitors: vec!["0".repeat(16); 1000],
            monitored_by: vec!["0".repeat(16); 1000],
            ..Process::default()
        };
        let row = TreeRow {
            kind: Some(name.clone()),
            label: Some(name.clone()),
            names: vec![name; 1000],
            ..TreeRow::default()
        };
        for mut answer in [
            Answer::Top(vec![process.clone(); ROWS_MAX]),
            Answer::Tree(vec![row; ROWS_MAX]),
            Answer::Info(process),
        ] {
            answer.clip(TEXT_BYTES_MAX, LIST_MAX);
            let bytes = ToClient::Answer { id: u64::MAX, answer }.frame().len();
            assert!(bytes < super::super::OUTBOX_BYTES_MAX, "{bytes}");
        }
    }
}
