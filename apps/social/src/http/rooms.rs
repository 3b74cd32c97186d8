//! HTTP routes of rooms, which `openapi/operations.rs` lists.
//!
//! Only members say and read messages. Everybody can find a room and see its profile, and everybody whom its owner does
//! not block can join it; its members are listed for every user with a token. A room ends with its last membership. The news of a room come by the socket; see `socket/protocol.rs`.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use serde::{Deserialize, Serialize};
use throng_node::http::{Cursor, Json, Path, Problem, Query};

use super::app::{App, Caller, parse_name};
use super::{
    AfterQuery, ListView, NamesView, PageQuery, SearchQuery, check_limit, idempotency_key, invalid,
    list_of, page_of, parse_after,
};
use crate::name::{Name, RoomName};
use crate::post::Text;
use crate::room::{RoomMessage, RoomProfile};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/rooms", post(create).get(search))
        .route("/api/v1/rooms/{room}", get(profile).delete(end))
        .route("/api/v1/rooms/{room}/members", get(members))
        .route("/api/v1/rooms/{room}/members/{name}", delete(remove_member))
        .route("/api/v1/rooms/{room}/messages", post(say).get(messages))
        .route("/api/v1/rooms/{room}/messages/{number}", delete(unsay))
        .route("/api/v1/memberships", get(memberships))
        .route("/api/v1/memberships/{room}", put(join).delete(leave))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRoom {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    text: String,
}

#[derive(Serialize)]
struct StoredView<'a> {
    room: &'a RoomName,
    #[serde(flatten)]
    message: &'a RoomMessage,
}

#[derive(Serialize)]
struct HistoryView {
    messages: Vec<RoomMessage>,
    next_cursor: Option<String>,
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(NewRoom { name }): Json<NewRoom>,
) -> Result<Response, Problem> {
    let room = RoomName::try_from(name).map_err(invalid("name-invalid"))?;
    app.social.create_room(&room, &caller.name).await?;
    let profile = app.social.room_profile(&room).await?;
    Ok((StatusCode::CREATED, Json(profile)).into_response())
}

async fn search(
    State(app): State<App>,
    Query(SearchQuery { prefix, after, limit }): Query<SearchQuery>,
) -> Result<Json<NamesView<RoomName>>, Problem> {
    let limit = check_limit(limit)?;
    let after = parse_after::<RoomName>(after)?;
    Ok(page_of("rooms", app.social.search_rooms(&prefix, after.as_ref(), limit)?))
}

async fn profile(
    State(app): State<App>,
    Path(room): Path<String>,
) -> Result<Json<RoomProfile>, Problem> {
    Ok(Json(app.social.room_profile(&parse_room(room)?).await?))
}

async fn end(
    State(app): State<App>,
    caller: Caller,
    Path(room): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.end_room(&parse_room(room)?, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_member(
    State(app): State<App>,
    caller: Caller,
    Path((room, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    app.social.remove_member(&parse_room(room)?, &caller.name, &parse_name(name)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unsay(
    State(app): State<App>,
    caller: Caller,
    Path((room, number)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let room = parse_room(room)?;
    let sequence = number.parse::<u64>().ok().filter(|parsed| parsed.to_string() == number);
    let sequence = sequence.ok_or_else(|| {
        let detail = "this is not the number of a message";
        Problem::new(StatusCode::NOT_FOUND, "no-such-message", detail)
    })?;
    app.social.unsay(&room, &caller.name, sequence).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn members(
    State(app): State<App>,
    _: Caller,
    Path(room): Path<String>,
    Query(AfterQuery { after, limit }): Query<AfterQuery>,
) -> Result<Json<NamesView<Name>>, Problem> {
    let limit = check_limit(limit)?;
    let after = parse_after::<Name>(after)?;
    let room = parse_room(room)?;
    Ok(page_of("members", app.social.room_members(&room, after.as_ref(), limit).await?))
}

async fn memberships(
    State(app): State<App>,
    caller: Caller,
) -> Result<ListView<RoomName>, Problem> {
    Ok(list_of("rooms", app.social.memberships(&caller.name).await?))
}

async fn join(
    State(app): State<App>,
    caller: Caller,
    Path(room): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.join_room(&parse_room(room)?, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn leave(
    State(app): State<App>,
    caller: Caller,
    Path(room): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.leave_room(&parse_room(room)?, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn say(
    State(app): State<App>,
    caller: Caller,
    Path(room): Path<String>,
    headers: HeaderMap,
    Json(NewMessage { text }): Json<NewMessage>,
) -> Result<Response, Problem> {
    let room = parse_room(room)?;
    let text = Text::new(text).map_err(invalid("text-length"))?;
    let key = idempotency_key(&headers)?;
    let stored = app.social.say(&room, &caller.name, text, key).await?;
    let status = if stored.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(StoredView { room: &room, message: &stored.message })).into_response())
}

async fn messages(
    State(app): State<App>,
    caller: Caller,
    Path(room): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<HistoryView>, Problem> {
    let room = parse_room(room)?;
    let cursors = format!("room {room}");
    let (cursor, limit) = app.open_page(&cursors, &query)?;
    let before = cursor.map(|cursor| cursor.id);
    let page = app.social.room_messages(&room, &caller.name, before, limit).await?;
    let last = page.messages.last().filter(|_| page.next.is_some());
    let next_cursor = last.map(|message| {
        let cursor = Cursor { time: message.time, id: message.sequence };
        app.settings.signer.seal_cursor(&cursors, cursor)
    });
    Ok(Json(HistoryView { messages: page.messages, next_cursor }))
}

/// Parses the name in a path. No room has an invalid name, so it is answered 404.
fn parse_room(name: String) -> Result<RoomName, Problem> {
    RoomName::try_from(name).map_err(|_| {
        Problem::new(StatusCode::NOT_FOUND, "no-such-room", "this is not a valid room name")
    })
}
