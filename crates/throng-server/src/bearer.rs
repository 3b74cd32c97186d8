//! Authentication of a request by its `Authorization: Bearer …` header.
//!
//! Each failure has its own problem type (`token-missing`, `token-malformed`, `token-forged`,
//! `token-expired`). All are 401 with `WWW-Authenticate`, so a client can tell whether to log in
//! again or to fix its code.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};

use crate::Problem;
use crate::sign::{Signer, Token, TokenError};

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
        let Some(value) = parts.headers.get(header::AUTHORIZATION) else {
            return Err(unauthorized(
                "token-missing",
                "this path requires an Authorization header with a bearer token",
                "Bearer",
            ));
        };
        let token = value
            .to_str()
            .ok()
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .ok_or(TokenError::Malformed)
            .and_then(|(_, token)| Signer::from_ref(state).check_token(token.trim()));
        token.map(Bearer).map_err(|error| match error {
            TokenError::Malformed => unauthorized(
                "token-malformed",
                "the Authorization header has no bearer token of this service",
                INVALID,
            ),
            TokenError::Forged => unauthorized(
                "token-forged",
                "the token's signature is invalid; log in again",
                INVALID,
            ),
            TokenError::Expired => {
                unauthorized("token-expired", "the token has expired; log in again", INVALID)
            }
        })
    }
}

/// Challenge for a token that was sent but is invalid, as defined by RFC 6750.
const INVALID: &str = "Bearer error=\"invalid_token\"";

fn unauthorized(name: &'static str, detail: &'static str, challenge: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, name, detail)
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}
