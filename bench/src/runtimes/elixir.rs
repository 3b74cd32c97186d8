//! Elixir, in the release that `elixir` starts; a process is an Erlang process, mostly behind one of Elixir's
//! behaviours. The flags of both rows are those of [`erlang`].

use crate::foreign::{ForeignRuntime, Part, Step, Variant};
use crate::limits::{COUNT, Limit};
use crate::peer::Class;
use crate::runtimes::{ARTICLE, FAIRNESS, MONITORS, SHAPES, TIMERS, erlang};

pub(crate) const ELIXIR: ForeignRuntime = ForeignRuntime {
    name: "elixir",
    folder: "elixir",
    workloads: &[SHAPES, ARTICLE, FAIRNESS, MONITORS, TIMERS],
    setup: &[Step::Needs { check: &["elixir", "--version"], apt: &["elixir"] }],
    variants: &[ROW, Variant { row: "elixir-tuned", options: erlang::tuned, ..ROW }],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "elixir",
    class: Class::IsolatedProcess,
    part: Part::All,
    words: &[],
    limits: &[
        Limit::of_time(&["fairness"], "flooders", 1000),
        Limit::of_time(&["skynet"], COUNT, 100_000),
    ],
    command: &["elixir", "{source}/peer.exs"],
    options: erlang::default,
};
