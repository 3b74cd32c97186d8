//! Node.js in `PATH`, and Bun as npm installs it; a process is an async function with a mailbox, on one
//! thread. Both run the same program.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::peer::Class;
use crate::runtimes::{ARTICLE, SHAPES, TIMERS};

pub(crate) const NODE: ForeignRuntime = ForeignRuntime {
    name: "node",
    folder: "node",
    workloads: &[SHAPES, ARTICLE, TIMERS],
    setup: &[Step::Needs { check: &["node", "--version"], apt: &["nodejs"] }],
    variants: &[ROW],
};

pub(crate) const BUN: ForeignRuntime = ForeignRuntime {
    name: "bun",
    folder: "node",
    workloads: &[SHAPES, ARTICLE, TIMERS],
    setup: &[Step::Needs { check: &["npm", "--version"], apt: &["npm"] }, Step::Npm(&["bun"])],
    variants: &[Variant {
        row: "bun",
        command: &["{target}/node_modules/.bin/bun", "{source}/peer.mjs"],
        ..ROW
    }],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "node",
    class: Class::StacklessTask,
    part: Part::All,
    words: &[],
    limits: &[],
    command: &["node", "{source}/peer.mjs"],
    options: default,
};

fn default(command: &mut Command, _: Load) {
    // A row states what it ran with, so it takes nothing from the user's environment.
    for variable in ["NODE_OPTIONS", "BUN_OPTIONS"] {
        command.env_remove(variable);
    }
}
