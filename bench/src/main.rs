//! `bench`: measures throng beside other runtimes doing the same work.
//!
//! ```text
//! cli ── run ─→ harness ─ one child process per run ─→ peer ─→ workloads/W/R.rs (bench peer W R)
//!                  │                                      └──→ peers/…          (another language)
//!                  └─→ report (a table, or a JSON line per runtime)
//! ```
//!
//! - A workload is what is done, measured and checked: `workloads/W.rs`. How a runtime does it:
//!   `workloads/W/R.rs`. How that runtime is started: `runtimes/R.rs`. How a store is used:
//!   `stores/S.rs`.
//! - Every measured run is a fresh process that prints one line of JSON; the harness cannot tell a
//!   peer compiled into this program from one written in another language.
//! - A runtime never states its own success: the workload does, from what it counted.

#![deny(unsafe_code)] // opening LMDB is unsafe, in `stores/heed.rs` and nowhere else

mod cli;
mod harness;
mod memory;
mod outcome;
mod peer;
mod report;
mod runtimes;
mod settings;
mod stores;
mod workloads;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
