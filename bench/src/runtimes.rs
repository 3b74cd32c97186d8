//! The runtimes: each file starts a runtime and runs the workload's driver as a process of it, or declares a
//! runtime in another language, whose program in `bench/peers` does so.

pub(crate) mod actix;
pub(crate) mod caf;
pub(crate) mod elixir;
pub(crate) mod erlang;
pub(crate) mod go;
pub(crate) mod java;
pub(crate) mod kameo;
pub(crate) mod node;
pub(crate) mod pekko;
pub(crate) mod python;
pub(crate) mod ractor;
pub(crate) mod smol;
pub(crate) mod sockets;
pub(crate) mod tellus;
pub(crate) mod threads;
pub(crate) mod throng;
pub(crate) mod tokio;

use std::io;
use std::pin::Pin;

use crate::foreign::ForeignRuntime;
use crate::outcome::Outcome;

/// Workloads that every runtime in another language has.
const SHAPES: &[&str] = &[
    "spawn", "send", "call", "churn", "sleep", "pairs", "ring", "calls", "fan", "burst", "skynet",
];

/// The workload of an article on Elixir.
const ARTICLE: &[&str] = &["send-cost"];

/// The workload that ends only if a process that floods itself leaves its thread to others.
const FAIRNESS: &[&str] = &["fairness"];

/// The workload that needs processes of which others can be told that they ended.
const MONITORS: &[&str] = &["monitors"];

/// The workload of timers that are started and cancelled.
const TIMERS: &[&str] = &["timers"];

/// The workload of a microblog, whose source is in Erlang.
const SOCIAL: &[&str] = &["social"];

/// Workloads as their sources have them.
const SOURCES: &[&str] = &["processes", "tasks"];

/// Workloads of the Savina suite.
const SAVINA: &[&str] = &[
    "chameneos",
    "big",
    "dictionary",
    "buffer",
    "philosophers",
    "barber",
    "smokers",
    "banking",
    "sieve",
    "queens",
];

/// The workload of WebSockets.
const CHAT: &[&str] = &["chat"];

/// All runtimes in other languages, in the order of their rows.
pub(crate) const FOREIGN: &[&ForeignRuntime] = &[
    &erlang::ERLANG,
    &elixir::ELIXIR,
    &go::GO,
    &java::JAVA,
    &pekko::PEKKO,
    &caf::CAF,
    &node::NODE,
    &node::BUN,
    &python::PYTHON,
    &sockets::NODE_WS,
    &sockets::GO_WS,
];

/// The outcome of a workload, or the error that prevented it.
pub(crate) type Measured = io::Result<Outcome>;

/// A workload's driver, as a future.
pub(crate) trait Work: Future<Output = Measured> + Send + 'static {}

impl<F: Future<Output = Measured> + Send + 'static> Work for F {}

/// A driver without its type. The compiler then makes one copy of a runtime's start for all workloads: with a copy
/// for each, the library took a third longer to compile.
pub(crate) type AnyWork = Pin<Box<dyn Work>>;
