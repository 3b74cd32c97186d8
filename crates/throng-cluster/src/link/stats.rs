//! [`Stats`]: numbers of calls, requests and connections, and of all that was refused or dropped.
//!
//! ```text
//!  calls ──▶ calls_replied, calls_unreachable, …            each call ends in one of these
//!  requests ─▶ requests_busy, requests_expired, …           at the node that serves
//!  dials, accepts ─▶ handshakes_…, connections_…            each connection that ends badly, by its reason
//! ```
//!
//! Invariant: a counter only rises, but `connections_open`.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the links of a node since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Connections that are open or being dialed.
            pub connections_open: u64,
        }

        #[derive(Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn read(&self, connections_open: u64) -> Stats {
                // Relaxed: each number stands for itself, and nothing is published by it.
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* connections_open }
            }
        }
    };
}

counters! {
    /// Calls of this node.
    calls,
    /// Calls with a reply.
    calls_replied,
    /// Calls that found no node, and have not happened.
    calls_unreachable,
    /// Calls that found another incarnation at the address.
    calls_wrong_node,
    /// Calls that were one too many here or at the other node.
    calls_busy,
    /// Calls whose request was too long.
    calls_too_large,
    /// Calls whose time was over before the request was sent.
    calls_expired,
    /// Calls that the other node's service has refused.
    calls_refused,
    /// Calls whose fate is unknown.
    calls_unknown,
    /// Calls that were dropped by their callers after the request was sent.
    calls_cancelled,
    /// Replies and refusals to calls that nobody waits for any more.
    answers_late,
    /// Requests of other nodes.
    requests,
    /// Requests that were one too many.
    requests_busy,
    /// Requests that came while this node was ending.
    requests_leaving,
    /// Requests whose time was over before the service began.
    requests_expired,
    /// Requests that were cancelled before their reply.
    requests_cancelled,
    /// Requests in which the service panicked.
    requests_failed,
    /// Requests whose reply was not there, or not written, when the time was over.
    replies_late,
    /// Replies that were longer than this node sends or the other takes.
    replies_too_large,
    /// Connections that this node has tried to make.
    dials,
    /// Dials that did not lead to the node.
    dials_failed,
    /// Connections that were accepted from the network.
    accepts,
    /// Errors of the system in accepting a connection.
    accepts_failed,
    /// Accepted connections that were closed because too many others were open or in a handshake.
    connections_refused,
    /// Accepted connections without a valid certificate, without TLS, or with an unfit HELLO.
    handshakes_failed,
    /// Accepted connections that have not introduced themselves in time.
    handshakes_slow,
    /// Connections cut because the peer has sent what is no frame, or none that it may send.
    connections_malformed,
    /// Connections cut because a frame did not arrive as a whole in time.
    connections_slow,
    /// Connections cut because the peer gave no sign of life.
    connections_silent,
    /// Connections cut because the peer did not read.
    connections_stalled,
}

pub(super) fn count(counter: &AtomicU64) {
    // Relaxed: nothing is published by a counter.
    counter.fetch_add(1, Ordering::Relaxed);
}
