//! The program `bench`, which measures throng beside other runtimes doing the same work.
//!
//! ```text
//! cli ── run ─→ harness ─ one child process per run ─→ peer ─→ workloads/W.rs (bench peer W R)
//!  │               │                                      └──→ peers/…          (another language)
//!  │               └─→ table, or row (a line of JSON) ─→ results (a directory per run of the suite)
//!  └─ compare, report, claims ◀────────────────────────────────┘
//!  └─ setup ─→ setup ─→ peers/target (what `foreign` declares is installed and built)
//! ```
//!
//! - `workloads.toml`, `runtimes.toml` and `suite.toml` have the workloads, the rows and the measurements as data.
//! - `workloads/W.rs` has a workload's order of work, clocks and checks, mostly in terms of a host (`host.rs`);
//!   `runtimes/R.rs` starts a runtime and is its host; `stores/S.rs` adapts a store.
//! - The crate `steps` has the durable workloads that a peer in Rust does as well, and the outcome of a run.
//! - Every measured run is a fresh process that prints one line of JSON; the harness cannot tell a
//!   peer compiled into this program from a program in another language.
//! - The allocator belongs to the whole program, so there are two programs with all peers: `bench` has
//!   the system's, `bench-mimalloc` has mimalloc, and `bench` starts it for runs with that allocator.
//! - A runtime never reports its own success: the workload does, from its own counts.

#![deny(unsafe_code)] // opening LMDB is unsafe, in `stores/heed.rs` and nowhere else

mod claims;
mod cli;
mod compare;
mod cores;
mod counter;
mod foreign;
mod harness;
mod host;
mod limits;
mod memory;
mod origin;
mod originals;
mod peer;
mod report;
mod results;
mod row;
mod runtimes;
mod settings;
mod setup;
mod stores;
mod suite;
mod table;
mod usage;
mod workloads;

use bench_steps::outcome;

pub use cli::main;
pub use settings::Allocator;
