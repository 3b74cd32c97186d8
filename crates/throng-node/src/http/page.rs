//! Routes of a page that is part of the program: its files, the files that all pages share, and headers that forbid
//! the page to load anything else.
//!
//! | shared file | content |
//! |---|---|
//! | `colours.css` | the colours of both themes |
//! | `make.js` | elements whose texts are never HTML |
//! | `theme.js` | the button with the id `theme`, which chooses a theme |
//!
//! Invariant: the page runs only its own scripts and connects only to its own origin. If a text of a user
//! were ever parsed as HTML, the policy would keep it from having any effect.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Builds the routes of a page, for a router with any state: `index` at `/`, and the style sheets and scripts `files`,
/// by their names, at `prefix`. The files that all pages share are there, too.
///
/// The page may load scripts and styles of its own origin and no other, none of them inline, and may
/// not be shown in a frame. Browsers ask for a file again each time.
///
/// # Panics
/// If two files have the same name.
pub fn page_routes<S: Clone + Send + Sync + 'static>(
    prefix: &str,
    index: &'static str,
    files: &[(&str, &'static str)],
) -> Router<S> {
    let mut router = Router::new().route("/", get(async move || file(HTML, index)));
    for &(name, content) in SHARED.iter().chain(files) {
        let media_type = if name.ends_with(".css") { CSS } else { SCRIPT };
        let answer = async move || file(media_type, content);
        router = router.route(&format!("{prefix}/{name}"), get(answer));
    }
    router
}

fn file(media_type: &'static str, content: &'static str) -> Response {
    let headers = SECURITY_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], headers, content)
        .into_response()
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Names and contents of the files that all pages share.
const SHARED: &[(&str, &str)] = &[
    ("colours.css", include_str!("page/colours.css")),
    ("make.js", include_str!("page/make.js")),
    ("theme.js", include_str!("page/theme.js")),
];

const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-cache"),
];
