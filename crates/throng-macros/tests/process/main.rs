//! The items that `#[process]` generates, in use; and the compiler's errors for a wrong use.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]
// Generated code must not warn in a crate that turns these lints on.
#![deny(missing_docs, warnings)]
// A `pub` in a test is unreachable, and tests spell the same thing in several ways.
#![allow(unreachable_pub, clippy::multiple_bound_locations)]
#![allow(clippy::needless_arbitrary_self_type, clippy::needless_lifetimes)]

mod children;
mod generics;
mod hooks;
mod messages;
mod refusals;
mod visibility;

use throng::prelude::*;

fn runtime() -> Runtime {
    Runtime::builder().workers(1).start().unwrap()
}
