//! Route of the followers of a user.
//!
//! ```text
//! GET    /api/v1/users/NAME/followers    ?after &limit    200 {users: [NAME], next_after}
//! ```
//!
//! Followers are in alphabetical order, and public, as their number in the profile is. A follow or its end shows up
//! when the target's process has handled it, usually within milliseconds.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use throng_node::http::{Json, Path, Problem, Query};

use super::{AfterQuery, App, NamesView, check_limit, page_of, parse_after, parse_name};
use crate::name::Name;

/// Builds the routes of followers.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/api/v1/users/{name}/followers", get(followers))
}

async fn followers(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(AfterQuery { after, limit }): Query<AfterQuery>,
) -> Result<Json<NamesView<Name>>, Problem> {
    let (name, limit, after) = (parse_name(name)?, check_limit(limit)?, parse_after(after)?);
    Ok(page_of("users", app.social.followers(&name, after.as_ref(), limit).await?))
}
