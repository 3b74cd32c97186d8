//! Extractors for handlers; every rejection is a [`Problem`].
//!
//! Statuses: bytes that are not JSON get 400, because no JSON client produces them. JSON that does
//! not fit the handler's type gets 422, because the request is well-formed and a program can act on
//! the name of the wrong field.

use std::error::Error;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::Problem;

/// JSON body, extracted from a request or returned as a response.
///
/// Rejections: 415 for another content type, 413 beyond the server's body limit, 400 for bytes that
/// are not JSON, 422 for JSON of another shape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

/// Parts of the path, decoded into texts; 400 if one is not UTF-8.
#[derive(Clone, Debug, Default)]
pub struct Path<T>(pub T);

/// Query string, decoded into a struct; 400 if it does not fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "wrong-content-type",
                "this path accepts only application/json",
            ));
        }
        let body = match request.into_body().collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) if is_length_limit(&error) => return Err(body_too_large()),
            Err(_) => {
                return Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    "body-incomplete",
                    "the connection ended before the whole body arrived",
                ));
            }
        };
        serde_json::from_slice(&body).map(Json).map_err(|error| {
            if error.is_data() {
                let detail = error.to_string();
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", detail)
            } else {
                let detail = format!("the body is not valid JSON: {error}");
                Problem::new(StatusCode::BAD_REQUEST, "malformed-json", detail)
            }
        })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let json = HeaderValue::from_static("application/json");
                ([(header::CONTENT_TYPE, json)], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "cannot serialise a response as JSON");
                let detail = "the response could not be serialised as JSON";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
            }
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(Path(path)),
            Err(rejection) => {
                let detail =
                    "a part of the path is not UTF-8; encode it as UTF-8 before its %-escapes";
                tracing::debug!(%rejection, "a path does not fit");
                Err(Problem::new(rejection.status(), "malformed-path", detail))
            }
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Query(query)),
            Err(rejection) => {
                // The rejection's own message is generic; its source names the field at fault.
                let detail = match rejection.source() {
                    Some(source) => source.to_string(),
                    None => rejection.to_string(),
                };
                Err(Problem::new(StatusCode::BAD_REQUEST, "malformed-query", detail))
            }
        }
    }
}

/// Returns the problem for a body beyond the server's limit. Also used before a body is read, if
/// the declared length is too large.
pub(crate) fn body_too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body-too-large",
        "the body is larger than this server accepts",
    )
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Returns whether the server's body limit is among the causes of the error.
fn is_length_limit(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}
