//! One socket per client: the changes of the user's timeline, as they happen.
//!
//! ```text
//! client ──hello──► SocketInbox ──attached──► Connection ──watch──► Timeline
//!        ◄──frames── Outbox ◄────────────────────┘ ◄───────news───────┘
//! ```
//!
//! All messages are JSON objects with a `type`.
//!
//! | from | type | fields |
//! |---|---|---|
//! | client | `hello` | `token`, and `last`: the position of an earlier socket, or null |
//! | server | `welcome` | `name`, `position`: the client's position after the missed changes, which follow at once |
//! | server | `post` | `post` |
//! | server | `deleted` | `id` |
//! | server | `reset` | `position`: the client must read its timeline over HTTP, and then has this position |
//!
//! A client that connects again sends its position as `last`, and gets the changes that it has missed, or a `reset`
//! if the timeline does not have them any more. A missed post that was deleted since then comes as `deleted`. Each
//! `post` and `deleted`, also of a missed change, increases the client's `position.sequence` by 1; after the missed
//! changes, the position is equal to that of the `welcome`.
//!
//! Invariants:
//! * A client gets every change once and in order, or a `reset`. If a change finds no room in the client's queue,
//!   the server tries to send a `reset` at intervals until there is room.
//! * A socket shows nothing before its token was checked, and nothing after the token has expired. Revoking the
//!   token does not close an open socket.

use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use throng::Timeout;
use throng::prelude::*;
use throng_server::{
    CloseCode, Outbox, OutboxError, Problem, SocketEnd, SocketInbox, SocketUpgrade, Token,
    Utf8Bytes,
};

use crate::error::{SocialError, unavailable};
use crate::http::{App, PostView};
use crate::ids::PostId;
use crate::live::{Change, News, Position, Published, Watching};
use crate::name::Name;

/// Accepts a socket, and starts the process that serves it.
pub(crate) async fn open(
    State(app): State<App>,
    upgrade: SocketUpgrade,
) -> Result<Response, Problem> {
    let (response, inbox, outbox) = upgrade.accept();
    let runtime = app.social.runtime().clone();
    let connection = Connection {
        app,
        outbox,
        inbox: Some(inbox),
        deadline: Timeout::default(),
        timeline: None,
        position: Position { stream: 0, sequence: 0 },
        is_behind: false,
        retry: Timeout::default(),
    };
    match runtime.spawn(connection) {
        Ok(_) => Ok(response.into_response()),
        Err(error) => Err(unavailable(throng::Error::from(error)).into()),
    }
}

/// Process of a socket.
struct Connection {
    app: App,
    outbox: Outbox,
    /// Messages of the client, until the hook `started` takes them.
    inbox: Option<SocketInbox>,
    /// Timer that closes the socket: before the hello, if none comes; after the hello, when the token expires.
    deadline: Timeout,
    /// Process of the watched timeline; `None` before the hello.
    timeline: Option<Pid>,
    /// Position of the client, if it is not behind.
    position: Position,
    /// Whether a change found no room in the queue, so that the client needs a reset.
    is_behind: bool,
    retry: Timeout,
}

/// Message of a client.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum FromClient {
    Hello { token: String, last: Option<Position> },
}

/// Message to a client.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToClient<'a> {
    Welcome { name: &'a Name, position: Position },
    Post { post: PostView<'a> },
    Deleted { id: PostId },
    Reset { position: Position },
}

impl ToClient<'_> {
    fn frame(&self) -> Utf8Bytes {
        // Encoding cannot fail: a message has no maps with keys other than texts.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Published {
    /// Returns the post's frame, which is encoded once for all sockets.
    fn frame(&self) -> Utf8Bytes {
        let encode = || ToClient::Post { post: PostView::of(&self.post) }.frame();
        self.frame.get_or_init(encode).clone()
    }
}

#[process(client = ConnectionClient)]
impl Connection {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.deadline.set(cx, HELLO, Expire {});
        let Some(inbox) = self.inbox.take() else { return };
        let received = inbox.map(|item| Receive { item });
        if cx.attach(received, |_| Receive { item: Err(SocketEnd::Lost) }).is_err() {
            self.close(cx, CloseCode::TRY_AGAIN_LATER, "the server has no room");
        }
    }

    /// Closes the socket, because the watched timeline has ended: its relay is not running, or building it failed.
    #[hook]
    fn down(&mut self, cx: &mut Context<Self>) {
        self.close(cx, CloseCode::TRY_AGAIN_LATER, "the timeline is being built again");
    }

    /// Handles a message of the client, or the end of the socket.
    #[message(send)]
    async fn receive(&mut self, cx: &mut Context<Self>, item: Result<Utf8Bytes, SocketEnd>) {
        let Ok(text) = item else { return cx.stop(ExitReason::Normal) };
        match serde_json::from_str(text.as_str()) {
            Ok(FromClient::Hello { token, last }) if self.timeline.is_none() => {
                if let Err((code, reason)) = self.greet(cx, &token, last).await {
                    self.close(cx, code, reason);
                }
            }
            Ok(FromClient::Hello { .. }) => self.close(cx, CloseCode::POLICY, "a second hello"),
            Err(_) => self.close(cx, CloseCode::POLICY, "not a message of this protocol"),
        }
    }

    /// Closes the socket, because no hello has come in time or the token has expired.
    #[message(send)]
    fn expire(&mut self, cx: &mut Context<Self>) {
        self.close(cx, UNAUTHORIZED, "no valid token");
    }

    /// Tries again to reset a client that is behind.
    #[message(send)]
    fn catch_up(&mut self, cx: &mut Context<Self>) {
        self.reset(cx);
    }
}

impl Handle<News> for Connection {
    async fn handle(&mut self, news: News, cx: &mut Context<Self>) {
        match news {
            News::Reset(position) => {
                self.position = position;
                self.reset(cx);
            }
            News::Change(change) => {
                self.position.sequence += 1;
                self.show(cx, &change);
            }
        }
    }
}

impl Connection {
    /// Checks the token and begins to watch the timeline.
    async fn greet(
        &mut self,
        cx: &mut Context<Self>,
        token: &str,
        last: Option<Position>,
    ) -> Result<(), (CloseCode, &'static str)> {
        let no_token = (UNAUTHORIZED, "no valid token");
        let checked = self.app.settings.signer.check_token(token);
        let Token { subject, issued, expires } = checked.map_err(|_| no_token)?;
        let name = Name::try_from(subject).map_err(|_| no_token)?;
        let social = &self.app.social;
        social.check_token(&name, issued).await.map_err(|error| match error {
            SocialError::TokenRevoked => no_token,
            _ => (CloseCode::TRY_AGAIN_LATER, "the service is unavailable"),
        })?;
        let watching = social.watch(&name, cx.address().recipient(), last).await;
        let Watching { timeline, position, missed } =
            watching.map_err(|_| (CloseCode::TRY_AGAIN_LATER, "the timeline is unavailable"))?;
        cx.monitor(timeline);
        self.timeline = Some(timeline);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.deadline.set(cx, Duration::from_millis(expires).saturating_sub(now), Expire {});
        self.send(cx, ToClient::Welcome { name: &name, position }.frame());
        self.position = position;
        match missed {
            Some(changes) => changes.iter().for_each(|change| self.show(cx, change)),
            None => self.reset(cx),
        }
        Ok(())
    }

    /// Sends a change to the client, unless the client needs a reset first.
    fn show(&mut self, cx: &mut Context<Self>, change: &Change) {
        if !self.is_behind {
            let frame = match change {
                Change::Posted(published) => published.frame(),
                Change::Deleted(id) => ToClient::Deleted { id: *id }.frame(),
            };
            self.send(cx, frame);
        }
    }

    /// Sends a `reset`, so that the client reads its timeline. Without room in the queue, tries again later.
    fn reset(&mut self, cx: &mut Context<Self>) {
        self.is_behind = false;
        self.send(cx, ToClient::Reset { position: self.position }.frame());
    }

    fn send(&mut self, cx: &mut Context<Self>, frame: Utf8Bytes) {
        match self.outbox.send(frame) {
            Ok(()) => {}
            Err(OutboxError::Full(_)) => {
                self.is_behind = true;
                self.retry.set(cx, RETRY, CatchUp {});
            }
            Err(OutboxError::TooLarge(_) | OutboxError::Closed(_)) => cx.stop(ExitReason::Normal),
        }
    }

    fn close(&mut self, cx: &mut Context<Self>, code: CloseCode, reason: &str) {
        self.outbox.close(code, reason);
        cx.stop(ExitReason::Normal);
    }
}

/// Maximum time from the opening of a socket to the client's hello.
const HELLO: Duration = Duration::from_secs(10);

/// Time until the server tries again to reset a client whose queue was full.
const RETRY: Duration = Duration::from_millis(200);

/// Close code for a client without a valid token, which must log in before it connects again.
const UNAUTHORIZED: CloseCode = match CloseCode::application(4401) {
    Some(code) => code,
    None => CloseCode::POLICY,
};
