//! The state of the routes, and the user that makes a request.
//!
//! ```text
//! request ──► admit ──► handler ──► Caller
//!             token?                  the user, or the problem of the token
//! ```
//!
//! Invariant: a token is checked once for a request, and each route takes from a rate before its handler runs.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use throng_node::http::{Bearer, ClientAddress, Problem, Signer, Sockets, Token, bearer_text};

use super::limits::{Class, RateLimits};
use crate::name::Name;
use crate::revoked::Issued;
use crate::service::Social;

/// Settings of the routes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Signer of tokens and cursors.
    pub signer: Signer,
    /// Time for which a token is valid.
    pub token_ttl: Duration,
    /// Limits of the sockets, and the origins of pages that may open them.
    pub sockets: Sockets,
    /// Limits of accounts and client networks.
    pub limits: RateLimits,
}

/// State of the routes. It is cloned several times for each request, so a clone is a single pointer.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub(crate) social: Social,
    pub(crate) settings: Settings,
}

impl App {
    pub(super) fn new(social: Social, settings: Settings) -> App {
        App(Arc::new(AppState { social, settings }))
    }
}

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// User that makes a request, identified by a valid token that was not revoked.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) name: Name,
    pub(super) token: Issued,
}

impl FromRef<App> for Sockets {
    fn from_ref(app: &App) -> Sockets {
        app.settings.sockets.clone()
    }
}

impl FromRef<App> for Signer {
    fn from_ref(app: &App) -> Signer {
        app.settings.signer.clone()
    }
}

/// Owner of the token of a request: `None` without a token.
#[derive(Clone)]
struct Identity(Option<Result<Caller, Problem>>);

/// Identifies the user that makes a request, and admits the request within the user's or the network's rate. Forbids
/// caching the answer, which is for one reader and valid only at that moment; [`Problem`] sets the same header.
pub(super) async fn admit(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let client = ClientAddress::from_request_parts(&mut parts, &app).await?;
    let identity = match bearer_text(&parts.headers) {
        Err(_) if !parts.headers.contains_key(header::AUTHORIZATION) => None,
        _ => Some(app.identify(&mut parts).await),
    };
    let limits = &app.settings.limits;
    match &identity {
        Some(Ok(caller)) => limits.admit(Class::of(&parts.method), &caller.name)?,
        _ => limits.of_network(client.network())?,
    }
    parts.extensions.insert(Identity(identity));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl App {
    /// Checks the token of a request.
    async fn identify(&self, parts: &mut Parts) -> Result<Caller, Problem> {
        let Bearer(Token { subject, issued, expires }) =
            Bearer::from_request_parts(parts, self).await?;
        let name = parse_name(subject)?;
        self.social.check_token(&name, issued).await?;
        Ok(Caller { name, token: Issued { at: issued, expires } })
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, Problem> {
        let identified = match parts.extensions.remove() {
            Some(Identity(Some(identified))) => identified,
            // Without an `Authorization` header, this returns the problem `token-missing`.
            _ => app.identify(parts).await,
        };
        let problem = match identified {
            Ok(caller) => return Ok(caller),
            Err(problem) => problem,
        };
        let has_token = parts.headers.contains_key(header::AUTHORIZATION);
        if has_token && problem.status() == StatusCode::UNAUTHORIZED {
            let client = ClientAddress::from_request_parts(parts, app).await?;
            app.settings.limits.bad_token(client.network())?;
        }
        Err(problem)
    }
}

/// Parses the name in a path or token. No user has an invalid name, so it is answered 404.
pub(super) fn parse_name(name: String) -> Result<Name, Problem> {
    Name::try_from(name).map_err(|_| {
        Problem::new(StatusCode::NOT_FOUND, "no-such-user", "this is not a valid user name")
    })
}
