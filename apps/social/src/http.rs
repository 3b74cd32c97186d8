//! HTTP routes of the service: each handler parses a request, calls [`Social`], and encodes the outcome.
//!
//! ```text
//! request ──► app::admit ──► handler ──► Social
//!             token, rate      └─► JSON, or problem JSON
//! ```
//!
//! The routes with their parameters, bodies and answers are listed in `openapi/operations.rs`, and the shapes of JSON in
//! `openapi/schemas.rs`. A test compares both with what a node answers.
//!
//! Times are milliseconds since 1970, and ids are decimal strings. `next_cursor` is null at the end
//! of a listing; otherwise it is opaque, and valid only for the same listing. A limit is 1 to 100,
//! by default 20. A page holds at most 256 KiB of text (or one post), so it may have fewer posts
//! than the limit although another page follows. A user's id is the name. Errors are problem JSON. Requests beyond a
//! rate are answered 429 (see `http/limits.rs`).
//!
//! A client that has lost an answer may repeat any request:
//!
//! | request | repeated |
//! |---|---|
//! | PUT and DELETE of follows, blocks, likes, interests, memberships and messages | changes nothing, 204: they name the state that is wanted |
//! | DELETE of a post or a room | 404: the first has had its effect |
//! | GET of a page with a cursor | the same page, as its data is by then |
//! | POST of a post | makes no second post, if both have the same `Idempotency-Key` |
//! | registration | within 24 h and with the same password: 201 with another token; otherwise 409 |
//! | login | 201 with another token; tokens are not stored |
//! | logout | 401 `token-revoked`: the first has had its effect |
//! | deletion of an account | 401 `token-revoked`: the first has had its effect |
//! | new password | 401 `token-revoked`: the first has had its effect, and a login with the new password succeeds |

pub(crate) mod app;
mod for_you;
mod likes;
pub(crate) mod limits;
mod rooms;

use std::collections::BTreeMap;
use std::fmt::Display;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use serde::{Deserialize, Serialize};
use throng_node::http::{ClientAddress, Cursor, Json, Path, Problem, Query, Token};

use crate::error::SocialError;
use crate::http::app::{App, Caller, parse_name};
use crate::idempotency::IdempotencyKey;
use crate::ids::PostId;
use crate::listing::{LIMIT_DEFAULT, LIMIT_MAX, ListingName};
use crate::name::Name;
use crate::openapi;
use crate::page;
use crate::password::Password;
use crate::post::{PostView, Text};
use crate::service::{Health, Registration, Social, Status};
use crate::socket;
use crate::user::Profile;

pub use app::Settings;
pub use limits::{RateLimits, Rates};

/// Builds the routes of the service, for a [`Server`](throng_node::http::Server).
pub fn routes(social: Social, settings: Settings) -> Router {
    let app = App::new(social, settings);
    let api = Router::new()
        .route("/api/v1/users", post(register).get(search))
        .route("/api/v1/sessions", post(log_in).delete(log_out_everywhere))
        .route("/api/v1/sessions/current", delete(log_out))
        .route("/api/v1/password", put(change_password))
        .route("/api/v1/account", delete(delete_account))
        .route("/api/v1/users/{name}", get(profile))
        .route("/api/v1/users/{name}/posts", get(posts))
        .route("/api/v1/users/{name}/followers", get(followers))
        .route("/api/v1/following", get(following))
        .route("/api/v1/following/{name}", put(follow).delete(unfollow))
        .route("/api/v1/blocks", get(blocks))
        .route("/api/v1/blocks/{name}", put(block).delete(unblock))
        .route("/api/v1/posts", post(publish))
        .route("/api/v1/posts/{id}", delete(delete_post))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/socket", get(socket::open))
        .route("/api/v1/health", get(health))
        .merge(for_you::routes())
        .merge(likes::routes())
        .merge(rooms::routes())
        .merge(openapi::routes())
        // A further layer or a nested router would box and move every request once more.
        .route_layer(from_fn_with_state(app.clone(), app::admit));
    api.merge(page::routes()).with_state(app)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    name: String,
    password: String,
}

#[derive(Serialize)]
struct SessionView<'a> {
    id: &'a str,
    name: &'a str,
    token: String,
    expires_at: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPost {
    text: String,
}

/// List in JSON, under its name.
type ListView<T> = Json<BTreeMap<&'static str, Vec<T>>>;

/// Page of names in JSON, with the name after which the next page begins.
#[derive(Serialize)]
struct NamesView<N> {
    #[serde(flatten)]
    names: BTreeMap<&'static str, Vec<N>>,
    next_after: Option<N>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    old: String,
    new: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deletion {
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AfterQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn register(
    State(app): State<App>,
    client: ClientAddress,
    Json(Credentials { name, password }): Json<Credentials>,
) -> Result<Response, Problem> {
    let name = Name::try_from(name).map_err(invalid("name-invalid"))?;
    let password = Password::new(password).map_err(invalid("password-length"))?;
    let attempt = app.settings.limits.registration(client.network())?;
    let outcome = app.social.on_behalf_of(client.0).register(&name, password).await;
    // A name that is taken counts, because its registration checks the password.
    if !matches!(outcome, Ok(Registration::New { .. }) | Err(SocialError::NameTaken(_))) {
        attempt.give_back();
    }
    Ok(app.session(&name, outcome?.since()))
}

async fn log_in(
    State(app): State<App>,
    client: ClientAddress,
    Json(Credentials { name, password }): Json<Credentials>,
) -> Result<Response, Problem> {
    let attempt = app.settings.limits.login(client.network())?;
    let social = app.social.on_behalf_of(client.0);
    match Name::try_from(name) {
        Ok(name) => {
            let since = attempt.until(social.log_in(&name, password)).await?;
            Ok(app.session(&name, since))
        }
        Err(_) => {
            attempt.until(social.log_in_invalid_name(password)).await?;
            Err(SocialError::WrongCredentials.into())
        }
    }
}

async fn log_out(State(app): State<App>, caller: Caller) -> Result<StatusCode, Problem> {
    app.social.log_out(&caller.name, Some(caller.token)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn log_out_everywhere(State(app): State<App>, caller: Caller) -> Result<StatusCode, Problem> {
    app.social.log_out(&caller.name, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change_password(
    State(app): State<App>,
    client: ClientAddress,
    caller: Caller,
    Json(NewPassword { old, new }): Json<NewPassword>,
) -> Result<StatusCode, Problem> {
    let new = Password::new(new).map_err(invalid("password-length"))?;
    let attempt = app.settings.limits.login(client.network())?;
    let social = app.social.on_behalf_of(client.0);
    attempt.until(social.change_password(&caller.name, old, new)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_account(
    State(app): State<App>,
    client: ClientAddress,
    caller: Caller,
    Json(Deletion { password }): Json<Deletion>,
) -> Result<StatusCode, Problem> {
    let attempt = app.settings.limits.login(client.network())?;
    let social = app.social.on_behalf_of(client.0);
    attempt.until(social.delete_account(&caller.name, password)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn search(
    State(app): State<App>,
    Query(SearchQuery { prefix, after, limit }): Query<SearchQuery>,
) -> Result<Json<NamesView<Name>>, Problem> {
    let limit = check_limit(limit)?;
    let after = parse_after::<Name>(after)?;
    Ok(page_of("users", app.social.search(&prefix, after.as_ref(), limit)?))
}

async fn profile(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<Profile>, Problem> {
    Ok(Json(app.social.profile(&parse_name(name)?).await?))
}

/// Lists the followers of a user. They are public, as their number in the profile is.
async fn followers(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(AfterQuery { after, limit }): Query<AfterQuery>,
) -> Result<Json<NamesView<Name>>, Problem> {
    let (name, limit, after) = (parse_name(name)?, check_limit(limit)?, parse_after(after)?);
    Ok(page_of("users", app.social.followers(&name, after.as_ref(), limit).await?))
}

async fn posts(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let name = parse_name(name)?;
    let (before, limit) = app.page(ListingName::posts(&name), &query)?;
    Ok(listing(app.social.posts_body(&name, before, limit, &app.settings.signer).await?))
}

async fn timeline(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let reader = caller.name;
    let (before, limit) = app.page(ListingName::timeline(&reader), &query)?;
    Ok(listing(app.social.timeline_body(&reader, before, limit, &app.settings.signer).await?))
}

async fn following(State(app): State<App>, caller: Caller) -> Result<ListView<Name>, Problem> {
    Ok(list_of("following", app.social.following(&caller.name).await?))
}

async fn follow(
    State(app): State<App>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.follow(&caller.name, &parse_name(target)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unfollow(
    State(app): State<App>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.unfollow(&caller.name, &parse_name(target)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn blocks(State(app): State<App>, caller: Caller) -> Result<ListView<Name>, Problem> {
    Ok(list_of("blocks", app.social.blocked(&caller.name).await?))
}

async fn block(
    State(app): State<App>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.block(&caller.name, &parse_name(target)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unblock(
    State(app): State<App>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.unblock(&caller.name, &parse_name(target)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_post(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.delete_post(&caller.name, likes::existing(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn publish(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Json(NewPost { text }): Json<NewPost>,
) -> Result<Response, Problem> {
    let text = Text::new(text).map_err(invalid("text-length"))?;
    let key = idempotency_key(&headers)?;
    let posted = app.social.post(&caller.name, text, key).await?;
    let status = if posted.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(PostView::of(&posted.post))).into_response())
}

async fn health(State(app): State<App>) -> Result<Response, Problem> {
    Ok(health_view(&app.social.health()?))
}

/// Builds the health response; load balancers check only its status.
fn health_view(health: &Health) -> Response {
    let code = match health.status {
        Status::Ok => StatusCode::OK,
        Status::ReadOnly => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(health)).into_response()
}

impl App {
    /// Begins a session whose token is as old as the check of the password.
    fn session(&self, name: &Name, since: u64) -> Response {
        let Settings { signer, token_ttl, .. } = &self.settings;
        let (token, Token { expires, .. }) =
            signer.issue_token_at(name.as_str(), since, *token_ttl);
        let session =
            SessionView { id: name.as_str(), name: name.as_str(), token, expires_at: expires };
        (StatusCode::CREATED, Json(session)).into_response()
    }

    /// Returns the start of a page and its limit.
    fn page(
        &self,
        cursors: ListingName<'_>,
        query: &PageQuery,
    ) -> Result<(Option<PostId>, usize), Problem> {
        let (cursor, limit) = self.open_page(cursors, query)?;
        Ok((cursor.map(|cursor| PostId::new(cursor.id)), limit))
    }

    /// Returns the cursor of a page and its limit.
    fn open_page(
        &self,
        cursors: impl Display,
        query: &PageQuery,
    ) -> Result<(Option<Cursor>, usize), Problem> {
        let limit = check_limit(query.limit)?;
        let Some(sealed) = &query.cursor else { return Ok((None, limit)) };
        let cursor =
            self.settings.signer.open_cursor(&cursors.to_string(), sealed).map_err(|_| {
                let detail = "cursor must be an unmodified next_cursor of this same listing";
                Problem::new(StatusCode::BAD_REQUEST, "cursor-invalid", detail)
            })?;
        Ok((Some(cursor), limit))
    }
}

fn list_of<T>(name: &'static str, entries: Vec<T>) -> ListView<T> {
    Json(BTreeMap::from([(name, entries)]))
}

/// Builds a page of names; `more` says that there are names after the last.
fn page_of<N: Clone>(name: &'static str, (names, more): (Vec<N>, bool)) -> Json<NamesView<N>> {
    let next_after = if more { names.last().cloned() } else { None };
    Json(NamesView { names: BTreeMap::from([(name, names)]), next_after })
}

/// Builds the response with the encoded page of a listing.
fn listing(body: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
}

/// Converts the error of an invalid field into the problem `name`.
fn invalid<E: ToString>(name: &'static str) -> impl Fn(E) -> Problem {
    move |error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, name, error.to_string())
}

fn parse_after<N: TryFrom<String>>(after: Option<String>) -> Result<Option<N>, Problem> {
    after.map(N::try_from).transpose().map_err(|_| {
        let detail = "after must be the next_after of a page";
        Problem::new(StatusCode::BAD_REQUEST, "after-invalid", detail)
    })
}

/// Parses the id of a post in a path. An id has one spelling, and a text that is no id names no post.
fn parse_id(id: &str) -> Option<PostId> {
    id.parse::<PostId>().ok().filter(|parsed| parsed.to_string() == id)
}

/// Returns the number of entries that a page may have.
fn check_limit(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit must be 1 to {LIMIT_MAX}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "limit-invalid", detail));
    }
    Ok(limit)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str().ok().and_then(IdempotencyKey::new) {
        Some(key) if values.next().is_none() => Ok(Some(key)),
        _ => {
            let detail =
                "send at most one Idempotency-Key header, of 1 to 128 visible ASCII characters";
            Err(Problem::new(StatusCode::BAD_REQUEST, "idempotency-key-invalid", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_cannot_write_is_not_called_healthy() {
        let mut health = Health {
            status: Status::Ok,
            processes: 0,
            process_limit: 0,
            live_entities: 0,
            records: None,
            file_bytes: None,
        };
        assert_eq!(health_view(&health).status(), StatusCode::OK);
        health.status = Status::ReadOnly;
        assert_eq!(health_view(&health).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
