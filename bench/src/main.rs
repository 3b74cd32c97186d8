//! `bench`: measures throng beside other runtimes doing the same work.
//!
//! ```text
//! cli ── run ─→ harness ─ one child process per run ─→ peer ─→ workloads/W/R.rs (bench peer W R)
//!                  │                                      └──→ peers/…          (another language)
//!                  └─→ report (a table, or a JSON line per runtime)
//! ```
//!
//! - `workloads/W.rs` defines a workload: its work, its metrics and its checks. `workloads/W/R.rs`
//!   implements the workload's steps on runtime R; `runtimes/R.rs` starts that runtime;
//!   `stores/S.rs` adapts a store.
//! - Every measured run is a fresh process that prints one line of JSON; the harness cannot tell a
//!   peer compiled into this program from a script in another language.
//! - A runtime never reports its own success: the workload does, from its own counts.

#![deny(unsafe_code)] // opening LMDB is unsafe, in `stores/heed.rs` and nowhere else

mod cli;
mod harness;
mod memory;
mod origin;
mod outcome;
mod peer;
mod report;
mod runtimes;
mod settings;
mod stores;
mod usage;
mod workloads;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
