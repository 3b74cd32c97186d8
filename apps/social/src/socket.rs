//! Sockets of clients, one for each: the changes of the user's timeline and the news of rooms, as they happen.
//!
//! ```text
//! client ──hello──► SocketInbox ──attached──► Connection ──watch──► Timeline ──news──┐
//!        ◄──frames── Outbox ◄────────────────── │  ▲ ▲ ◄────────────────────────────┘
//!                                       enter, say  └──────news────── relays of the rooms
//! ```
//!
//! The process of a socket is also present in the rooms that its client enters; see `socket/rooms.rs`. The messages
//! are in `socket/protocol.rs`.
//!
//! Invariants:
//! * A client gets every change of its timeline once and in order, or a `reset`. If a change finds no room in the
//!   client's queue, the server tries to send a `reset` at intervals until there is room.
//! * An answer to a message of the client is never dropped. The socket of a client that keeps sending messages without
//!   reading the answers is closed.
//! * A socket shows nothing before its token was checked, and nothing after the token has expired. Revoking the
//!   token closes its sockets.
//! * A message beyond the rate of the user is answered `refused`, and the socket stays open.

mod protocol;
mod rooms;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use throng::Timeout;
use throng::prelude::*;
use throng_node::http::{
    ClientAddress, CloseCode, Frames, Outbox, OutboxError, Problem, SocketEnd, SocketInbox,
    SocketUpgrade, Token, Utf8Bytes,
};

use crate::error::{SocialError, unavailable};
use crate::http::app::App;
use crate::http::limits::{AccountSocket, Class};
use crate::live::{Change, News, Position, Watching};
use crate::name::{Name, RoomName};

use protocol::{FromClient, ToClient};
use rooms::Seat;

/// Accepts a socket, and starts the process that serves it.
pub(crate) async fn open(
    State(app): State<App>,
    client: ClientAddress,
    upgrade: SocketUpgrade,
) -> Result<Response, Problem> {
    let (response, inbox, outbox) = upgrade.accept();
    let runtime = app.social.runtime().clone();
    let connection = Connection {
        app,
        network: client.network(),
        outbox,
        inbox: Some(inbox),
        deadline: Timeout::default(),
        session: None,
        timeline: None,
        position: Position { stream: 0, sequence: 0 },
        is_behind: false,
        rooms: HashMap::new(),
        relay: None,
        answers: VecDeque::new(),
        retry: Timeout::default(),
    };
    match runtime.spawn(connection) {
        Ok(_) => Ok(response.into_response()),
        Err(error) => Err(unavailable(throng::Error::from(error)).into()),
    }
}

/// Decodes a text as a message of a client, for the fuzz target; and puts it into an answer, which must stay JSON with
/// the same text.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_text(text: &str) {
    let _ = serde_json::from_str::<FromClient>(text);
    let (room, key, detail) = (text, Some(text), text.into());
    let refused = ToClient::Refused { room, key, error: "x", detail, retry_after: None };
    let answer: serde_json::Value =
        serde_json::from_str(refused.frame().texts().next().unwrap_or_default())
            .unwrap_or_default();
    assert_eq!([&answer["room"], &answer["key"], &answer["detail"]], [text; 3]);
}

/// Process of a socket.
struct Connection {
    app: App,
    network: IpAddr,
    outbox: Outbox,
    /// Messages of the client, until the hook `started` takes them.
    inbox: Option<SocketInbox>,
    /// Timer that closes the socket: before the hello, if none comes; after the hello, when the token expires.
    deadline: Timeout,
    /// `None` before the hello.
    session: Option<Session>,
    /// Process of the watched timeline.
    timeline: Option<Pid>,
    /// Position of the client, if it is not behind.
    position: Position,
    /// Whether a change found no room in the queue, so that the client needs a reset.
    is_behind: bool,
    rooms: HashMap<RoomName, Seat>,
    /// The monitored relay that sends the news of the rooms.
    relay: Option<Pid>,
    /// Answers that found no room in the queue.
    answers: VecDeque<Frames>,
    retry: Timeout,
}

/// User of a socket, known by a valid token.
struct Session {
    name: Name,
    /// Time of the token's issue, in milliseconds since 1970.
    issued: u64,
    /// Place among the sockets of the user, once the token was checked.
    place: Option<AccountSocket>,
}

#[process(never_blocks, client = ConnectionClient)]
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

    /// Enters the rooms again, because their relay has ended. Closes the socket if the watched timeline has ended: its
    /// relay is not running, or building it failed.
    #[hook]
    async fn down(&mut self, cx: &mut Context<Self>, down: Down) {
        if self.relay == Some(down.pid) {
            self.enter_all_again(cx).await;
        } else if self.timeline == Some(down.pid) {
            self.close(cx, CloseCode::TRY_AGAIN_LATER, "the timeline is being built again");
        }
    }

    /// Handles a message of the client, or the end of the socket.
    #[message(send)]
    async fn receive(&mut self, cx: &mut Context<Self>, item: Result<Utf8Bytes, SocketEnd>) {
        let Ok(text) = item else { return cx.stop(ExitReason::Normal) };
        let Ok(message) = serde_json::from_str(text.as_str()) else {
            return self.close(cx, CloseCode::POLICY, "not a message of this protocol");
        };
        match message {
            FromClient::Hello { token, last } if self.session.is_none() => {
                if let Err((code, reason)) = self.greet(cx, &token, last).await {
                    self.refuse_hello(cx, code, reason);
                }
            }
            FromClient::Hello { .. } => self.close(cx, CloseCode::POLICY, "a second hello"),
            _ if self.session.is_none() => self.close(cx, CloseCode::POLICY, "no hello"),
            FromClient::Enter { room, last } => {
                if self.admit(cx, Class::Read, &room, None) {
                    self.enter(cx, &room, last).await;
                }
            }
            // A socket is in no room with an invalid name.
            FromClient::Exit { room } => drop(room.parse().map(|room| self.exit(cx, &room))),
            FromClient::Say { room, text, key } => {
                if self.admit(cx, Class::Write, &room, key.as_deref()) {
                    self.say(cx, &room, text, key.as_deref()).await;
                }
            }
            FromClient::Ping {} => self.answer(cx, ToClient::Pong {}.frame()),
            FromClient::Typing { room } => drop(room.parse().map(|room| self.typing(cx, &room))),
        }
    }

    /// Closes the socket, because no hello has come in time or the token has expired.
    #[message(send)]
    fn expire(&mut self, cx: &mut Context<Self>) {
        let (code, reason) = NO_TOKEN;
        self.close(cx, code, reason);
    }

    /// Tries again to send what found no room in the queue, and to enter rooms.
    #[message(send)]
    async fn catch_up(&mut self, cx: &mut Context<Self>) {
        while let Some(answer) = self.answers.pop_front() {
            if let Err(OutboxError::Full(answer)) = self.outbox.send(answer) {
                self.answers.push_front(answer);
                return self.retry.set(cx, RETRY, CatchUp {});
            }
        }
        // A client that reads slowly would otherwise be behind again with the next change, and get reset after reset.
        if self.outbox.queued() > RESET_BELOW {
            return self.retry.set(cx, RETRY, CatchUp {});
        }
        if self.is_behind {
            self.reset(cx);
        }
        self.catch_up_rooms(cx).await;
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
            News::Revoked => {
                if let Err((code, reason)) = self.check_session().await {
                    self.close(cx, code, reason);
                }
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
        let checked = self.app.settings.signer.check_token(token);
        let Token { subject, issued, expires } = checked.map_err(|_| NO_TOKEN)?;
        let name = Name::try_from(subject).map_err(|_| NO_TOKEN)?;
        let watching = self.app.social.watch(&name, cx.address().recipient(), last).await;
        let Watching { timeline, position, missed } = watching.map_err(|error| match error {
            SocialError::NoSuchUser(_) => NO_TOKEN,
            _ => (CloseCode::TRY_AGAIN_LATER, "the timeline is unavailable"),
        })?;
        cx.monitor(timeline);
        self.timeline = Some(timeline);
        self.session = Some(Session { name: name.clone(), issued, place: None });
        // A revocation from here on comes as news.
        self.check_session().await?;
        // The check comes first, so that a revoked token takes no place among the user's sockets.
        let place = self.app.settings.limits.socket(&name).ok_or(TOO_MANY_SOCKETS)?;
        if let Some(session) = &mut self.session {
            session.place = Some(place);
        }
        cx.set_label(name.as_str());
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

    /// Closes a socket whose hello failed. A network that has sent too many invalid tokens gets another code.
    fn refuse_hello(&mut self, cx: &mut Context<Self>, code: CloseCode, reason: &str) {
        if code != UNAUTHORIZED {
            return self.close(cx, code, reason);
        }
        match self.app.settings.limits.bad_token(self.network) {
            Ok(()) => self.close(cx, code, reason),
            Err(limited) => self.close(cx, RATE_LIMITED, &limited.to_string()),
        }
    }

    async fn check_session(&self) -> Result<(), (CloseCode, &'static str)> {
        let Some(Session { name, issued, .. }) = &self.session else { return Err(NO_TOKEN) };
        self.app.social.check_token(name, *issued).await.map_err(|error| match error {
            SocialError::TokenRevoked => NO_TOKEN,
            _ => (CloseCode::TRY_AGAIN_LATER, "the service is unavailable"),
        })
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

    fn send(&mut self, cx: &mut Context<Self>, frame: Frames) {
        if !self.offer(cx, frame) {
            self.is_behind = true;
        }
    }

    /// Sends an answer to a message of the client, later if the queue has no room for it.
    fn answer(&mut self, cx: &mut Context<Self>, frame: Frames) {
        if self.answers.is_empty() && self.offer(cx, frame.clone()) {
            return;
        }
        self.answers.push_back(frame);
        if self.answers.len() > ANSWERS_MAX {
            self.close(cx, CloseCode::TRY_AGAIN_LATER, "the client does not read its answers");
        }
    }

    /// Puts a frame into the queue. Returns false if there is no room; then `catch_up` comes after a while.
    fn offer(&mut self, cx: &mut Context<Self>, frame: Frames) -> bool {
        match self.outbox.send(frame) {
            Ok(()) => return true,
            Err(OutboxError::Full(_)) => self.retry.set(cx, RETRY, CatchUp {}),
            Err(OutboxError::TooLarge(_) | OutboxError::Closed(_)) => cx.stop(ExitReason::Normal),
        }
        false
    }

    fn close(&mut self, cx: &mut Context<Self>, code: CloseCode, reason: &str) {
        self.outbox.close(code, reason);
        cx.stop(ExitReason::Normal);
    }
}

/// Maximum number of answers that wait for room in the queue: as many as the messages of a client that the server
/// reads ahead, several times over.
const ANSWERS_MAX: usize = 64;

/// Maximum number of frames that may wait for a client that is behind when it is reset.
const RESET_BELOW: usize = 4;

const TOO_MANY_SOCKETS: (CloseCode, &str) =
    (CloseCode::TRY_AGAIN_LATER, "the user has the maximum number of sockets");

const NO_TOKEN: (CloseCode, &str) = (UNAUTHORIZED, "no valid token");

/// Maximum time from the opening of a socket to the client's hello.
const HELLO: Duration = Duration::from_secs(10);

/// Time until the server tries again to reset a client whose queue was full.
const RETRY: Duration = Duration::from_millis(200);

/// Close code for a client without a valid token, which must log in before it connects again.
const UNAUTHORIZED: CloseCode = application(4401);

/// Close code for a client without a valid token, from a network that has sent too many.
const RATE_LIMITED: CloseCode = application(4429);

const fn application(code: u16) -> CloseCode {
    match CloseCode::application(code) {
        Some(code) => code,
        None => CloseCode::POLICY,
    }
}
