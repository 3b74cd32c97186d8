//! CPython with asyncio; a process is a task with a queue, on one thread. The row `python-uvloop` has uvloop's
//! event loop, and collects cycles of objects more rarely.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::limits::{COUNT, Limit};
use crate::peer::Class;
use crate::runtimes::{ARTICLE, SHAPES, TIMERS};

pub(crate) const PYTHON: ForeignRuntime = ForeignRuntime {
    name: "python",
    folder: "python",
    workloads: &[SHAPES, ARTICLE, TIMERS],
    setup: &[
        Step::Needs {
            check: &[
                "python3",
                "-c",
                "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))",
            ],
            apt: &["python3-venv"],
        },
        Step::Pip(&["uvloop"]),
    ],
    variants: &[
        ROW,
        Variant {
            row: "python-uvloop",
            command: &["{target}/venv/bin/python", "-E", "-B", "{source}/peer.py"],
            words: &[],
            limits: &[],
            options: uvloop,
            ..ROW
        },
    ],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "python",
    class: Class::StacklessTask,
    part: Part::All,
    words: &[],
    limits: &[
        Limit::of_time(&["spawn"], COUNT, 500_000),
        Limit::of_time(&["call"], "callees", 100_000),
    ],
    // Without Python's variables (-E), and without files of bytecode beside the sources (-B).
    command: &["python3", "-E", "-B", "{source}/peer.py"],
    options: default,
};

fn default(command: &mut Command, _: Load) {
    command.env_remove("UVLOOP");
}

fn uvloop(command: &mut Command, _: Load) {
    command.env("UVLOOP", "1");
}
