//! Ids of requests, which tie an answer to the lines of the log about it.
//!
//! ```text
//! X-Request-Id of the client, if it is short and well-formed ─┐
//! otherwise a drawn id ───────────────────────────────────────┴─► span ─► header of the answer
//! ```
//!
//! Invariants: an id is 1 to 64 letters, digits, `-`, `_` and `.`, so that no client can write a line
//! of the log or a header of its own. Ids that one process of the system draws are distinct. A
//! client may choose the id of another request; an id is no proof of anything.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Header of the id, in requests and in answers.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum number of bytes in a client's id; longer ids are replaced. A UUID has 36.
const BYTES_MAX: usize = 64;

/// Returns the client's id of a request, or draws one.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    let mut sent = headers.get_all(HEADER).iter();
    match (sent.next(), sent.next()) {
        (Some(id), None) if is_well_formed(id.as_bytes()) => id.clone(),
        _ => draw(),
    }
}

fn is_well_formed(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=BYTES_MAX).contains(&id.len()) && id.iter().all(is_allowed)
}

/// Draws an id of 16 hexadecimal digits. A counter with a start from the system costs no system call
/// for each request.
fn draw() -> HeaderValue {
    static START: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Without randomness, ids are still distinct until the process ends.
    let start = *START.get_or_init(|| getrandom::u64().unwrap_or(0));
    let count = COUNT.fetch_add(1, Ordering::Relaxed); // Relaxed: the count guards no other data.
    // An odd factor and a shift are bijections, so distinct counts have distinct ids.
    let mixed = start.wrapping_add(count).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = mixed ^ (mixed >> 32);
    let mut digits = [0; 16];
    for (at, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(mixed >> (60 - 4 * at)) as usize & 0xf];
    }
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(sent: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in sent {
            headers.append(HEADER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        of(&headers).to_str().unwrap().to_owned()
    }

    #[test]
    fn a_short_and_well_formed_id_is_kept_and_any_other_is_replaced() {
        let longest = "x".repeat(BYTES_MAX);
        for kept in ["a", "0", "3f2b-4c_d.e", &*longest] {
            assert_eq!(id(&[kept]), kept);
        }
        let too_long = "x".repeat(BYTES_MAX + 1);
        for replaced in [
            &[][..],
            &[""],
            &["a b"],
            &["a\tb"],
            &["é"],
            &["a\"b"],
            &["a=b"],
            &[&*too_long],
            &["a", "a"],
        ] {
            let id = id(replaced);
            assert!(is_well_formed(id.as_bytes()) && id.len() == 16, "{replaced:?}: {id}");
        }
    }

    #[test]
    fn drawn_ids_are_distinct() {
        let ids: HashSet<String> = (0..10_000).map(|_| id(&[])).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
