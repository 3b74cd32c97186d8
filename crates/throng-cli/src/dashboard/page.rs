//! The files of the page, which are part of the program.

use axum::Router;
use axum::routing::get;
use throng_server::page_file;

/// Builds the routes of the page, for a router with any state.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for (path, media_type, content) in FILES {
        router = router.route(path, get(move || async move { page_file(media_type, content) }));
    }
    router
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, media type and content of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/connection.js", SCRIPT, include_str!("page/connection.js")),
    ("/elements.js", SCRIPT, include_str!("page/elements.js")),
    ("/figures.js", SCRIPT, include_str!("page/figures.js")),
    ("/history.js", SCRIPT, include_str!("page/history.js")),
    ("/inspector.js", SCRIPT, include_str!("page/inspector.js")),
    ("/overview.js", SCRIPT, include_str!("page/overview.js")),
    ("/theme.js", SCRIPT, include_str!("page/theme.js")),
];
