//! What `#[process]` makes, used as a user would; and what the compiler says to a wrong use.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]
// What is generated must bring no warning to whoever turns these on.
#![deny(missing_docs, warnings)]
// A test's `pub` reaches nobody, and it writes what it must in more than one way.
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
