//! Files of a page that is part of the program, with headers that forbid the page to load anything else.
//!
//! Invariant: the page runs only its own scripts and connects only to its own origin. If a text of a user
//! were ever parsed as HTML, the policy would keep it from having any effect.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Returns the answer to a request for a file of a page: `content`, of the type `media_type`.
///
/// The page may load scripts and styles of its own origin and no other, none of them inline, and may
/// not be shown in a frame. Browsers ask for the file again each time.
pub fn page_file(media_type: &'static str, content: &'static str) -> Response {
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
