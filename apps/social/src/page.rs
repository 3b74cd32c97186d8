//! The web page: three embedded files.

use axum::Router;
use axum::routing::get;
use throng_server::page_file;

/// Builds the routes of the page, for a router with any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let file = |media_type, content| get(move || async move { page_file(media_type, content) });
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page/page.js")))
}
