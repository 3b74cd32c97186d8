//! The web page: embedded files, without a build step and without anything from elsewhere.
//!
//! ```text
//! index.html ─► theme.js
//!            ─► main.js ─► views: entry, feed (for_you), people, rooms, room ─► listing, room_log, outbox
//!                       └► shared by the views: store, socket, api, elements
//! ```
//!
//! The page keeps what users have written as text. It is shown by text nodes, and never as HTML.

use axum::Router;
use axum::routing::get;
use throng_server::page_file;

/// Builds the routes of the page, for a router with any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let routes = FILES.iter().fold(Router::new(), |routes, &(path, content)| {
        routes.route(path, get(move || async move { page_file(media_type(path), content) }))
    });
    routes.route("/", get(async || page_file(HTML, include_str!("page/index.html"))))
}

/// Returns the media type of a file by its extension.
fn media_type(path: &str) -> &'static str {
    if path.ends_with(".css") {
        "text/css; charset=utf-8"
    } else {
        "text/javascript; charset=utf-8"
    }
}

const HTML: &str = "text/html; charset=utf-8";

/// Paths and contents of the scripts and style sheets.
const FILES: [(&str, &str); 18] = [
    ("/page/api.js", include_str!("page/api.js")),
    ("/page/base.css", include_str!("page/base.css")),
    ("/page/beside.js", include_str!("page/beside.js")),
    ("/page/elements.js", include_str!("page/elements.js")),
    ("/page/entry.js", include_str!("page/entry.js")),
    ("/page/feed.js", include_str!("page/feed.js")),
    ("/page/for_you.js", include_str!("page/for_you.js")),
    ("/page/listing.js", include_str!("page/listing.js")),
    ("/page/main.js", include_str!("page/main.js")),
    ("/page/outbox.js", include_str!("page/outbox.js")),
    ("/page/people.js", include_str!("page/people.js")),
    ("/page/room.js", include_str!("page/room.js")),
    ("/page/room_log.js", include_str!("page/room_log.js")),
    ("/page/rooms.js", include_str!("page/rooms.js")),
    ("/page/socket.js", include_str!("page/socket.js")),
    ("/page/store.js", include_str!("page/store.js")),
    ("/page/theme.js", include_str!("page/theme.js")),
    ("/page/views.css", include_str!("page/views.css")),
];
