//! HTTP routes of a single post and its likes, which `openapi/operations.rs` lists.
//!
//! Both writes are idempotent: a user likes a post or does not. DELETE is answered 204 for a post that does not exist,
//! too.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde::Serialize;
use throng_node::http::{Json, Path, Problem};

use super::app::{App, Caller, parse_name};
use super::parse_id;
use crate::ids::PostId;
use crate::post::{LikedPost, PostView};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/users/{name}/posts/{id}", get(find))
        .route("/api/v1/users/{name}/posts/{id}/like", put(like).delete(unlike))
}

#[derive(Serialize)]
pub(super) struct LikedPostView<'a> {
    #[serde(flatten)]
    post: PostView<'a>,
    likes: u64,
}

impl LikedPostView<'_> {
    pub(super) fn of(liked: &LikedPost) -> LikedPostView<'_> {
        LikedPostView { post: PostView::of(&liked.post), likes: liked.likes }
    }
}

async fn find(
    State(app): State<App>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (author, id) = (parse_name(name)?, existing(&id)?);
    let found = app.social.find_post(&author, id).await?;
    Ok(Json(LikedPostView::of(&found)).into_response())
}

async fn like(
    State(app): State<App>,
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (author, id) = (parse_name(name)?, existing(&id)?);
    app.social.like(&caller.name, &author, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unlike(
    State(app): State<App>,
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let author = parse_name(name)?;
    // A text that is no id names no post, and neither does the id 0.
    let id = parse_id(&id).unwrap_or(PostId::new(0));
    app.social.unlike(&caller.name, &author, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Parses the id of a post that must exist.
pub(super) fn existing(id: &str) -> Result<PostId, Problem> {
    parse_id(id).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "no-such-post", "this is not the id of a post")
    })
}
