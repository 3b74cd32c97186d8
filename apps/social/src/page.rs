//! The web page: embedded files, without a build step and without anything from other origins.
//!
//! ```text
//! index.html ─► theme, colours (of all pages)
//!            ─► main.js ─► views: entry, feed (for_you), people, account, rooms, room ─► listing, room_log, outbox
//!                       └► shared by the views: store, socket, api, elements ─► make (of all pages)
//! ```
//!
//! The page shows the texts of users as text nodes, and never as HTML.

use axum::Router;
use throng_node::http::page_routes;

/// Builds the routes of the page, for a router with any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    page_routes("/page", include_str!("page/index.html"), FILES)
}

/// Names and contents of the scripts and style sheets.
const FILES: &[(&str, &str)] = &[
    ("account.js", include_str!("page/account.js")),
    ("api.js", include_str!("page/api.js")),
    ("base.css", include_str!("page/base.css")),
    ("beside.js", include_str!("page/beside.js")),
    ("elements.js", include_str!("page/elements.js")),
    ("entry.js", include_str!("page/entry.js")),
    ("feed.js", include_str!("page/feed.js")),
    ("for_you.js", include_str!("page/for_you.js")),
    ("listing.js", include_str!("page/listing.js")),
    ("main.js", include_str!("page/main.js")),
    ("outbox.js", include_str!("page/outbox.js")),
    ("people.js", include_str!("page/people.js")),
    ("room.js", include_str!("page/room.js")),
    ("room_log.js", include_str!("page/room_log.js")),
    ("rooms.js", include_str!("page/rooms.js")),
    ("socket.js", include_str!("page/socket.js")),
    ("store.js", include_str!("page/store.js")),
    ("views.css", include_str!("page/views.css")),
];
