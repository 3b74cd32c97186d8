//! The web page: three embedded files, and headers that forbid it to load anything else.
//!
//! Invariant: the page runs only its own script and connects only to its own origin. If a post's
//! text were ever parsed as HTML, the policy would keep it from having any effect.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Builds the routes of the page, for a router with any state.
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
