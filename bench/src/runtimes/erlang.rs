//! Erlang/OTP, in the release that `erl` starts; a process is an Erlang process. The row
//! `erlang-tuned` runs the emulator as operators of busy nodes often do: a scheduler without work sleeps
//! at once, and a receiver keeps its queue of messages off its heap. The row `erlang-central` has another design of
//! `social`.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::limits::Limit;
use crate::peer::Class;
use crate::runtimes::{ARTICLE, FAIRNESS, MONITORS, SAVINA, SHAPES, SOCIAL, SOURCES, TIMERS};

pub(crate) const ERLANG: ForeignRuntime = ForeignRuntime {
    name: "erlang",
    folder: "erlang",
    workloads: &[SHAPES, ARTICLE, FAIRNESS, SOURCES, SAVINA, MONITORS, TIMERS, SOCIAL],
    setup: &[
        Step::Needs { check: &["erl", "-noshell", "-eval", "halt()."], apt: &["erlang-base"] },
        Step::Build(&["sh", "{source}/build.sh", "{target}"]),
    ],
    variants: &[
        ROW,
        Variant { row: "erlang-tuned", options: tuned, ..ROW },
        Variant {
            row: "erlang-central",
            part: Part::Only(SOCIAL),
            // A post is received by nobody before a timeline is read.
            words: &["timelines", "profiles", "zipf", "ring"],
            limits: &[],
            options: central,
            ..ROW
        },
    ],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "erlang",
    class: Class::IsolatedProcess,
    part: Part::All,
    words: &["deliveries", "timelines", "profiles", "zipf", "ring"],
    limits: &[Limit::of_memory(&["processes"], 3000)],
    // All after `-extra` are the peer's arguments.
    command: &["erl", "-noinput", "-pa", "{target}/ebin", "-s", "bench", "main", "-extra"],
    options: default,
};

/// Sets the emulator's flags; the rows of Elixir have the same.
pub(super) fn default(command: &mut Command, load: Load) {
    command.env("ERL_FLAGS", flags(load));
}

/// Sets the emulator's flags for a busy node, and asks for queues off the heaps.
pub(super) fn tuned(command: &mut Command, load: Load) {
    command.env("ERL_FLAGS", flags(load) + " +sbwt none +sbwtdcpu none +sbwtdio none");
    // The peer reads this variable, and starts receivers accordingly.
    command.env("MESSAGE_QUEUE_DATA", "off_heap");
}

/// Sets the emulator's flags, and asks for the design of `social` in which one process holds all users.
fn central(command: &mut Command, load: Load) {
    default(command, load);
    command.env("SOCIAL_DESIGN", "central");
}

/// The emulator's flags: a process limit that is just above the number of processes, since the
/// process table counts as the emulator's memory; and as many schedulers as workers.
fn flags(Load { workers, processes }: Load) -> String {
    let limit = processes.saturating_add(1024).min(MAX_PROCESSES);
    format!("+P {limit} +S {workers}:{workers}")
}

/// The largest process limit that the emulator accepts.
const MAX_PROCESSES: u64 = 134_217_727;
