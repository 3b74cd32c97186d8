//! Libraries of WebSockets in other languages, for `chat` only. Their programs are servers that start the client
//! themselves: see `workloads/served.rs`.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::peer::Class;
use crate::runtimes::CHAT;

/// `ws` on Node.js, as npm installs it by the lock file; a single thread.
pub(crate) const NODE_WS: ForeignRuntime = ForeignRuntime {
    name: "node-ws",
    folder: "node-ws",
    workloads: &[CHAT],
    setup: &[
        Step::Needs { check: &["node", "--version"], apt: &["nodejs"] },
        Step::Needs { check: &["npm", "--version"], apt: &["npm"] },
        Step::Build(&["sh", "{source}/build.sh", "{target}"]),
    ],
    variants: &[Variant {
        row: "node-ws",
        class: Class::StacklessTask,
        part: Part::All,
        words: &[],
        limits: &[],
        command: &["node", "{target}/server.mjs"],
        options: default,
    }],
};

/// `github.com/coder/websocket`, in the version of `go.mod` and `go.sum`.
pub(crate) const GO_WS: ForeignRuntime = ForeignRuntime {
    name: "go-ws",
    folder: "go-ws",
    workloads: &[CHAT],
    setup: &[
        Step::Needs { check: &["go", "version"], apt: &["golang-go"] },
        Step::Build(&["go", "build", "-o", "{target}/server", "."]),
    ],
    variants: &[Variant {
        row: "go-ws",
        class: Class::GreenThread,
        part: Part::All,
        words: &[],
        limits: &[],
        // The server itself sets GOMAXPROCS to the number of workers.
        command: &["{target}/server"],
        options: default,
    }],
};

fn default(command: &mut Command, _: Load) {
    // A row states what it ran with, so it takes nothing from the user's environment.
    for variable in ["NODE_OPTIONS", "GOGC", "GOMEMLIMIT", "GODEBUG"] {
        command.env_remove(variable);
    }
}
