//! throng against Erlang/OTP: scripts that both carry out, with the events recorded on OTP.
//!
//! ```text
//! scenarios/*.scn   scripts, and OTP's events below each step        script.rs
//! erlang/           carries them out on OTP, and writes the events   cargo xtask conformance --record
//! driver.rs         carries them out on throng, and compares
//!   ├ tree.rs         supervisors
//!   ├ actor.rs        processes that take commands from the script
//!   ├ inbox.rs        the same, as async processes
//!   └ world.rs        names, and the log
//! ```
//!
//! Invariant: no event here was written by hand or by throng.
//!
//! Where throng departs from OTP on purpose, both interpreters leave the difference out:
//!
//! | | OTP | throng |
//! |---|---|---|
//! | `terminate`, `stopping` | not after a failed `init`, nor when a signal ends a process that does not trap exits | in both cases |
//! | a link to a dead process | raises `noproc` if exits are not trapped | is an exit signal in any case |
//! | a call whose handler exits | fails | is answered, if the handler was left by [`stop`](throng::Context::stop) |
//! | a supervisor that did not start | exits with `{shutdown, Why}` | exits with a text |
//! | a message to a dead process | vanishes | is handed back |
//! | names | a single name for a process | any number |

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

mod actor;
mod driver;
mod inbox;
mod script;
mod tree;
mod world;

use std::collections::BTreeSet;

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            #[cfg_attr(miri, ignore = "hundreds of runtimes, and timers")]
            fn $name() {
                driver::check(concat!("scenarios/", stringify!($name), ".scn"), include_str!(
                    concat!("scenarios/", stringify!($name), ".scn")
                ));
            }
        )*
    };
}

suite!(
    auto_shutdown,
    children,
    exits,
    groups,
    intensity,
    links,
    messages,
    monitors,
    names,
    restarts,
    shutdown,
    timers,
);

#[test]
#[cfg_attr(miri, ignore = "reads a directory")]
fn every_file_of_scenarios_is_carried_out() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let names = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let known = FILES.iter().map(|name| (*name).to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}
