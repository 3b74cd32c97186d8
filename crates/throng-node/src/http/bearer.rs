//! Authentication of a request by its `Authorization: Bearer …` header.
//!
//! Each failure has its own problem type (`token-missing`, `token-malformed`, `token-forged`,
//! `token-expired`). All are 401 with `WWW-Authenticate`, so a client can tell whether to log in
//! again or to fix its code.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::http::Problem;
use crate::http::sign::{Signer, Token, TokenError};

/// Extracts the request's token; the router's state must provide a [`Signer`].
#[derive(Clone, Debug)]
pub struct Bearer(pub Token);

impl<S> FromRequestParts<S> for Bearer
where
    S: Send + Sync,
    Signer: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let token = Signer::from_ref(state).check_token(bearer_text(&parts.headers)?);
        token.map(Bearer).map_err(|error| match error {
            TokenError::Malformed => malformed(),
            TokenError::Forged => {
                unauthorized("token-forged", "the token's signature is invalid; log in again")
            }
            TokenError::Expired => {
                unauthorized("token-expired", "the token has expired; log in again")
            }
        })
    }
}

/// Returns the text behind `Bearer` in the `Authorization` header, for a service whose tokens are not a
/// [`Signer`]'s.
///
/// # Errors
/// `token-missing` without the header, and `token-malformed` for another scheme.
pub fn bearer_text(headers: &HeaderMap) -> Result<&str, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let detail = "this path requires an Authorization header with a bearer token";
        return Err(challenge("token-missing", detail, "Bearer"));
    };
    let token = value.to_str().ok().and_then(|value| value.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    token.map(|(_, token)| token.trim()).ok_or_else(malformed)
}

/// Creates the problem of a token that was sent but is invalid: 401 with the challenge of RFC 6750.
pub fn unauthorized(name: &'static str, detail: &'static str) -> Problem {
    challenge(name, detail, "Bearer error=\"invalid_token\"")
}

fn malformed() -> Problem {
    unauthorized("token-malformed", "the Authorization header has no bearer token of this service")
}

fn challenge(name: &'static str, detail: &'static str, challenge: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, name, detail)
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}
