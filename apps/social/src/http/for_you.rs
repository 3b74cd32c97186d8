//! HTTP routes of tags, interests and For you, which `openapi/operations.rs` lists.
//!
//! In the text of a post, a tag is a `#` at the start or after white space, and 1 to 32 letters, digits or `_`; the first
//! 5 different tags of a post count. In a path, a tag is given without `#`, in either case; a text that is no tag is
//! answered 400 `tag-invalid`. PUT and DELETE are idempotent. A user has at most 10 interests. `/tags` has the 50 most
//! active tags.
//!
//! A reason is `following`, `popular` or `tag:rust`. The first page of For you begins a visit; its cursors are
//! answered 410 `visit-over` when two later visits have begun, after five minutes without a page, or after a restart.
//! A page may be empty although another follows. With `tag`, For you has the posts with this tag alone, those of the
//! reader among them.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde::{Deserialize, Serialize};
use throng_node::http::{Cursor, Json, Path, Problem, Query};

use super::app::{App, Caller};
use super::likes::LikedPostView;
use super::{ListView, PageQuery, list_of};
use crate::for_you::VisitPosition;
use crate::for_you::score::Reason;
use crate::tags::{Tag, TagError};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/for-you", get(for_you))
        .route("/api/v1/tags", get(tags))
        .route("/api/v1/interests", get(interests))
        .route("/api/v1/interests/{tag}", put(add_interest).delete(remove_interest))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForYouQuery {
    tag: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct ForYouView<'a> {
    posts: Vec<ForYouPostView<'a>>,
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct ForYouPostView<'a> {
    #[serde(flatten)]
    liked: LikedPostView<'a>,
    reason: &'a Reason,
}

async fn for_you(
    State(app): State<App>,
    caller: Caller,
    Query(ForYouQuery { tag, cursor, limit }): Query<ForYouQuery>,
) -> Result<Response, Problem> {
    let tag = tag.as_deref().map(parse_tag).transpose()?;
    let cursors = match &tag {
        Some(tag) => format!("for-you {} {tag}", caller.name),
        None => format!("for-you {}", caller.name),
    };
    let (cursor, limit) = app.open_page(&cursors, &PageQuery { cursor, limit })?;
    let position = cursor.map(|Cursor { time, id }| VisitPosition { visit: time, offset: id });
    let page = match &tag {
        Some(tag) => app.social.posts_with_tag(&caller.name, tag, position, limit).await?,
        None => app.social.for_you(&caller.name, position, limit).await?,
    };
    let next_cursor = page.next.map(|VisitPosition { visit, offset }| {
        app.settings.signer.seal_cursor(&cursors, Cursor { time: visit, id: offset })
    });
    let posts = page
        .posts
        .iter()
        .map(|post| ForYouPostView { liked: LikedPostView::of(&post.liked), reason: &post.reason });
    Ok(Json(ForYouView { posts: posts.collect(), next_cursor }).into_response())
}

async fn tags(State(app): State<App>) -> Result<ListView<Tag>, Problem> {
    Ok(list_of("tags", app.social.tags().await?))
}

async fn interests(State(app): State<App>, caller: Caller) -> Result<ListView<Tag>, Problem> {
    Ok(list_of("tags", app.social.interests(&caller.name).await?))
}

async fn add_interest(
    State(app): State<App>,
    caller: Caller,
    Path(tag): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.add_interest(&caller.name, &parse_tag(&tag)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_interest(
    State(app): State<App>,
    caller: Caller,
    Path(tag): Path<String>,
) -> Result<StatusCode, Problem> {
    app.social.remove_interest(&caller.name, &parse_tag(&tag)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_tag(tag: &str) -> Result<Tag, Problem> {
    tag.parse().map_err(|error: TagError| {
        Problem::new(StatusCode::BAD_REQUEST, "tag-invalid", error.to_string())
    })
}
