//! `cargo xtask stress`: properties under a load that takes too long for the tests. The runs
//! themselves are the program `stress/`, tests of store
//! and service, requests that are drawn from the OpenAPI document, the fuzz targets, and cargo-deny.

use crate::steps::{Failure, Tests, Tool, program_beside_tests};
use crate::{deny, fuzz, openapi};

/// Every run of the program, at a size that takes about a second, for the ordinary tests.
pub(crate) const SMALL: &[(&str, u64)] = &[
    ("spawn-exit", 50_000),
    ("monitors", 10_000),
    ("panics", 20_000),
    ("blocking", 300),
    ("flood", 2),
    ("trees", 2_000),
];

/// Runs that measure so closely how much memory stays resident that they cannot run under a
/// sanitizer, at sizes that take a few seconds.
const RESIDENT: &[(&str, u64)] = &[("burst", 500_000)];

/// Runs that are tests, which the ordinary tests run at a smaller size: the name of the run, the
/// arguments that select the test, and the variable that holds the full size.
const LONGER: &[(&str, &str, &str, u64)] = &[
    ("store-kill", "throng-store --test store killed_writers", "THRONG_STORE_KILLS", 300),
    ("store-power", "throng-store --test power a_power_cut", "THRONG_STORE_CUTS", 50_000),
    ("store-faults", "throng-store --test power an_operation", "THRONG_STORE_FAULTS", 1_000),
    ("store-damage", "throng-store --test store a_damaged_byte", "THRONG_STORE_FLIP_STRIDE", 1),
    ("store-salvage", "throng-store --test store a_salvage_loses", "THRONG_SALVAGE_STRIDE", 61),
    ("service-kill", "social --test node timelines_are_whole", "THRONG_POPULATION_USERS", 1000),
    ("bank-kill", "throng-durable --test durable killed_banks", "THRONG_BANK_KILLS", 100),
    ("inbox-kill", "throng-durable --test durable a_killed_program_has", "THRONG_INBOX_KILLS", 100),
    ("inbox-sim", "throng-durable --test durable simulated_payments", "THRONG_INBOX_SEEDS", 10_000),
    ("queue-sim", "throng-durable --test durable simulated_jobs", "THRONG_QUEUE_SEEDS", 5_000),
    ("feed-sim", "throng-durable --test durable simulated_followers", "THRONG_FEED_SEEDS", 5_000),
    ("index-sim", "throng-durable --test durable simulated_members", "THRONG_INDEX_SEEDS", 5_000),
    (
        "reminder-sim",
        "throng-durable --test durable simulated_reminders",
        "THRONG_REMINDER_SEEDS",
        5_000,
    ),
    (
        "workflow-sim",
        "throng-durable --test durable simulated_orders",
        "THRONG_WORKFLOW_SEEDS",
        1_000,
    ),
    (
        "workflow-steps",
        "throng-durable --test durable a_journal_may_have",
        "THRONG_WORKFLOW_STEPS",
        100_000,
    ),
    ("once-sim", "throng-durable --test durable simulated_calls", "THRONG_ONCE_SEEDS", 5_000),
    ("bank-sim", "throng-durable --test durable simulated_bank", "THRONG_BANK_SEEDS", 10_000),
    ("replica-sim", "throng-cluster --lib what_is_published", "THRONG_REPLICA_SEEDS", 10_000),
    ("control-sim", "throng-cluster --lib no_node_believes", "THRONG_CONTROL_SEEDS", 2_000),
    ("cluster-turns", "throng-nats --test nats turns_of", "THRONG_CLUSTER_TURNS", 300_000),
    ("cluster-kill", "throng-nats --test nats each_ack", "THRONG_CLUSTER_ROUNDS", 200),
    ("shard-chaos", "throng-cluster --test cluster what_is", "THRONG_SHARD_SEEDS", 1_000),
    ("store-copies", "throng-store --test store copies_agree", "THRONG_STORE_COPIES", 1_000),
    ("service-model", "social --test model", "THRONG_SOCIAL_SEEDS", 1_000),
    ("room-model", "social --test rooms rooms_have", "THRONG_SOCIAL_SEEDS", 1_000),
    ("store-sim", "throng-store --test store a_simulated_power_cut", "THRONG_STORE_SIM", 100),
    ("connections", "social --test node thousands_of_connections", "THRONG_CONNECTIONS", 20_000),
];

/// A run that is neither a test nor a part of the program; its argument is the size, if it has one.
type Other = fn(Option<u64>) -> Result<(), Failure>;

/// Runs the named stress run, or all of them, optimised.
///
/// # Errors
/// If a property was violated.
pub(crate) fn run(name: Option<String>, size: Option<u64>) -> Result<(), Failure> {
    for &(longer, test, variable, full) in LONGER {
        if name.as_deref().is_none_or(|name| name == longer) {
            let line = format!("cargo test --release --locked -p {test} -- --nocapture");
            // The link of all crates as one would take longer than most runs.
            Tool::new(&line)
                .env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
                .env(variable, &size.unwrap_or(full).to_string())
                .run_tests()?;
            if name.is_some() {
                return Ok(());
            }
        }
    }
    let others: &[(&str, Other)] =
        &[("openapi", openapi::run), ("fuzz", fuzz::run), ("deny", deny::all)];
    for &(other, run) in others {
        if name.as_deref().is_none_or(|name| name == other) {
            run(size)?;
            if name.is_some() {
                return Ok(());
            }
        }
    }
    let mut line = String::from("cargo run --release --locked -p throng-stress --");
    for argument in name.into_iter().chain(size.map(|size| size.to_string())) {
        line.push(' ');
        line.push_str(&argument);
    }
    Tool::new(&line).run()
}

/// Runs [`SMALL`] and [`RESIDENT`]. The runs that are tests are part of the step `unit`, at a small size.
pub(crate) fn small() -> Result<Tests, Failure> {
    let program = program_beside_tests("throng-stress")?;
    for &(name, size) in SMALL.iter().chain(RESIDENT) {
        Tool::program(&program).args(&[name, &size.to_string()]).run()?;
    }
    Ok(Tests::one_passed())
}
