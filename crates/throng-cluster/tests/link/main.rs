//! Links between nodes: whom they trust, what they do to peers that attack, and what becomes of calls.
//!
//! ```text
//!  Node ── link ──▶ Node        calls, and what their callers learn
//!  Raw ─── TLS ───▶ Node        attacks on a node that serves
//!  Node ── link ──▶ Raw         attacks on a node that asks
//! ```
//!
//! A [`Raw`](support::Raw) peer has whatever certificate it is given, and sends whatever bytes.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

mod attacks;
mod calls;
mod ends;
mod joined;
mod support;
mod trust;
