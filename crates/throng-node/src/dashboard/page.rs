//! The files of the page, which are part of the program.

use crate::http::page_routes;
use axum::Router;

/// Builds the routes of the page, for a router with any state.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    page_routes("", include_str!("page/index.html"), FILES)
}

/// Names and contents of the scripts and the style sheet.
const FILES: &[(&str, &str)] = &[
    ("page.css", include_str!("page/page.css")),
    ("main.js", include_str!("page/main.js")),
    ("charts.js", include_str!("page/charts.js")),
    ("connection.js", include_str!("page/connection.js")),
    ("elements.js", include_str!("page/elements.js")),
    ("entities.js", include_str!("page/entities.js")),
    ("figures.js", include_str!("page/figures.js")),
    ("history.js", include_str!("page/history.js")),
    ("inspector.js", include_str!("page/inspector.js")),
    ("overview.js", include_str!("page/overview.js")),
];
