//! Go, in the release that `go build` found; a process is a goroutine with a channel of its own. The row
//! `go-tuned` sets the garbage collector as "A Guide to the Go Garbage Collector" of Go's documentation
//! advises for a program that has its machine to itself: no collections by growth (`GOGC=off`), but a limit
//! of memory (`GOMEMLIMIT`), here half of the memory that is available. In the row `go-syncmap` the tasks of
//! `tasks` share a `sync.Map` instead of maps under mutexes.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::limits::Limit;
use crate::memory;
use crate::peer::Class;
use crate::runtimes::{ARTICLE, FAIRNESS, MONITORS, SAVINA, SHAPES, SOURCES, TIMERS};

pub(crate) const GO: ForeignRuntime = ForeignRuntime {
    name: "go",
    folder: "go",
    workloads: &[SHAPES, ARTICLE, FAIRNESS, SOURCES, SAVINA, MONITORS, TIMERS],
    setup: &[
        Step::Needs { check: &["go", "version"], apt: &["golang-go"] },
        Step::Build(&["go", "build", "-o", "{target}/peer", "."]),
    ],
    variants: &[
        ROW,
        Variant { row: "go-tuned", options: tuned, ..ROW },
        Variant {
            row: "go-syncmap",
            // No other workload has a map.
            part: Part::Only(&["tasks"]),
            words: &[],
            limits: &[],
            options: sync_map,
            ..ROW
        },
    ],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "go",
    class: Class::GreenThread,
    part: Part::All,
    words: &[],
    limits: &[
        Limit::of_time(&["fairness"], "flooders", 1000),
        Limit::of_memory(&["processes"], 3000),
    ],
    // The peer itself sets GOMAXPROCS to the number of workers.
    command: &["{target}/peer"],
    options: default,
};

/// Limit of memory where the kernel does not tell how much is available.
const LIMIT_BYTES: u64 = 1 << 30;

fn default(command: &mut Command, _: Load) {
    // A row states what it ran with, so it takes nothing from the user's environment.
    for variable in ["GOGC", "GOMEMLIMIT", "GODEBUG", "TASKS_MAP"] {
        command.env_remove(variable);
    }
}

fn sync_map(command: &mut Command, load: Load) {
    default(command, load);
    command.env("TASKS_MAP", "sync.Map");
}

fn tuned(command: &mut Command, load: Load) {
    default(command, load);
    let limit = memory::available_bytes().map_or(LIMIT_BYTES, |bytes| bytes / 2);
    command.env("GOGC", "off").env("GOMEMLIMIT", limit.to_string());
}
