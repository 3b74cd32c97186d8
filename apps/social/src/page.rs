//! The page for people: three embedded files, and headers that let it load nothing else.
//!
//! Invariant: the page runs its own script and talks to its own origin, nothing more; should a
//! post's text ever be taken for HTML, the policy keeps it from doing anything.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The routes of the page, for a router of any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| asset("text/html; charset=utf-8", include_str!("page/index.html"))))
        .route("/page.css", get(|| asset("text/css; charset=utf-8", include_str!("page/page.css"))))
        .route(
            "/page.js",
            get(|| asset("text/javascript; charset=utf-8", include_str!("page/page.js"))),
        )
}

async fn asset(media_type: &'static str, content: &'static str) -> Response {
    let headers = SECURITY_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], headers, content)
        .into_response()
}

const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-cache"),
];
