//! Work that several programs of the benchmarks do: `bench` itself, and `peers/rust-jobs`, whose libraries the ordinary
//! build lacks.
//!
//! ```text
//! turns, queue, workflow ─→ Home, Counters, Queue, Engine ◀─ bench/src/workloads, peers/rust-jobs
//!     │                         └─→ Tasks
//!     └─→ counters, latency, disk ─→ outcome (the line of JSON)
//! ```
//!
//! A workload's order of work, its clocks and its checks are here once; each program adds the runtimes and databases.

pub mod counters;
pub mod disk;
pub mod latency;
pub mod numbers;
pub mod outcome;
pub mod queue;
pub mod tasks;
pub mod turns;
pub mod workflow;

/// An error of a run, whichever library it comes from.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
