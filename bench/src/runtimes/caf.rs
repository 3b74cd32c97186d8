//! CAF, the C++ Actor Framework, in the release 0.17 that Debian has; a process is an event-based actor. The row
//! `caf-max-throughput` runs `fairness` with the setting `scheduler.max-throughput`: by default it has no limit, and
//! an actor handles messages until its mailbox is empty.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::limits::{COUNT, Limit};
use crate::peer::Class;
use crate::runtimes::{FAIRNESS, SHAPES};

pub(crate) const CAF: ForeignRuntime = ForeignRuntime {
    name: "caf",
    folder: "caf",
    workloads: &[SHAPES, FAIRNESS],
    setup: &[
        Step::Needs {
            // Succeeds if the compiler finds CAF's headers.
            check: &["g++", "-E", "-include", "caf/config.hpp", "-x", "c++", "/dev/null"],
            apt: &["g++", "libcaf-dev"],
        },
        Step::Build(&[
            "g++",
            "-std=c++17",
            "-O3",
            "-DNDEBUG",
            "-o",
            "{target}/peer",
            "main.cpp",
            "-lcaf_core",
            "-pthread",
        ]),
    ],
    variants: &[
        ROW,
        Variant {
            row: "caf-max-throughput",
            words: &[],
            limits: &[],
            part: Part::Only(FAIRNESS),
            options: limited,
            ..ROW
        },
    ],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "caf",
    class: Class::Actor,
    part: Part::AllBut(FAIRNESS),
    words: &[],
    limits: LIMITS,
    command: &["{target}/peer"],
    options: default,
};

const LIMITS: &[Limit] = &[Limit::of_time(&["sleep"], COUNT, 100_000)];

fn default(command: &mut Command, _: Load) {
    command.env_remove("MAX_THROUGHPUT");
}

fn limited(command: &mut Command, _: Load) {
    command.env("MAX_THROUGHPUT", "300");
}
