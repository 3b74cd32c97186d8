//! Errors of the service as problems: each has a status and a name.

use std::error::Error as _;

use axum::http::{HeaderValue, StatusCode, header};
use throng_node::http::Problem;

use crate::error::SocialError;

/// Returns the status and the name of the problem of an error, and logs errors of the service.
fn problem_of(error: &SocialError) -> (StatusCode, &'static str) {
    use SocialError as E;
    let (status, name) = match error {
        E::NameTaken(_) => (StatusCode::CONFLICT, "name-taken"),
        E::NoSuchUser(_) => (StatusCode::NOT_FOUND, "no-such-user"),
        E::NoSuchPost(_) => (StatusCode::NOT_FOUND, "no-such-post"),
        E::WrongCredentials => (StatusCode::UNAUTHORIZED, "wrong-credentials"),
        E::SelfFollow => (StatusCode::UNPROCESSABLE_ENTITY, "follows-oneself"),
        E::SelfBlock => (StatusCode::UNPROCESSABLE_ENTITY, "blocks-oneself"),
        E::BlocksFull => (StatusCode::UNPROCESSABLE_ENTITY, "blocks-full"),
        E::Blocking(_) => (StatusCode::CONFLICT, "blocking"),
        E::Blocked(_) => (StatusCode::FORBIDDEN, "blocked"),
        E::RoomTaken(_) => (StatusCode::CONFLICT, "room-taken"),
        E::NoSuchRoom(_) => (StatusCode::NOT_FOUND, "no-such-room"),
        E::NotMember(_) => (StatusCode::FORBIDDEN, "not-a-member"),
        E::NotOwner(_) => (StatusCode::FORBIDDEN, "not-the-owner"),
        E::NoSuchMessage(_) => (StatusCode::NOT_FOUND, "no-such-message"),
        E::RoomFull(_) => (StatusCode::UNPROCESSABLE_ENTITY, "room-full"),
        E::MembershipsFull => (StatusCode::UNPROCESSABLE_ENTITY, "memberships-full"),
        E::InterestsFull => (StatusCode::UNPROCESSABLE_ENTITY, "interests-full"),
        E::VisitOver => (StatusCode::GONE, "visit-over"),
        E::TokenRevoked => (StatusCode::UNAUTHORIZED, "token-revoked"),
        E::PostDeleted => (StatusCode::GONE, "post-deleted"),
        E::FollowingFull => (StatusCode::UNPROCESSABLE_ENTITY, "following-full"),
        E::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused"),
        E::TooManyLogins => (StatusCode::TOO_MANY_REQUESTS, "too-many-logins"),
        E::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        E::Uncertain(_) => (StatusCode::SERVICE_UNAVAILABLE, "uncertain"),
        E::Broken(_) => (StatusCode::INTERNAL_SERVER_ERROR, "broken"),
    };
    if status.is_server_error() {
        tracing::error!(reason = error.source(), "{error}");
    }
    (status, name)
}

/// Returns the name of the problem of an error, for a client that is not answered by HTTP.
pub(crate) fn slug(error: &SocialError) -> &'static str {
    problem_of(error).1
}

impl From<SocialError> for Problem {
    fn from(error: SocialError) -> Problem {
        let (status, name) = problem_of(&error);
        let problem = Problem::new(status, name, error.to_string());
        match status {
            // Every 401 needs a challenge.
            StatusCode::UNAUTHORIZED => {
                problem.with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            // By then most of the waiting requests are served.
            StatusCode::TOO_MANY_REQUESTS => {
                problem.with_header(header::RETRY_AFTER, HeaderValue::from_static("3"))
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                problem.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
            }
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_refusal_has_the_header_of_its_status() {
        for (error, status, name, value) in [
            (SocialError::TooManyLogins, 429, header::RETRY_AFTER, "3"),
            (SocialError::TokenRevoked, 401, header::WWW_AUTHENTICATE, "Bearer"),
        ] {
            let response = Problem::from(error).into_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[name], value);
        }
    }
}
