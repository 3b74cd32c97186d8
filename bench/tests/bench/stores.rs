//! The store workloads, on every store.

use crate::{STORES, bench, check_on, json_rows, output, status, stderr};

/// Runs a store workload on every store, and checks each row's form and verification.
#[track_caller]
fn check_stores(workload: &str, settings: &[&str], metrics: &[(&str, &str)]) {
    check_on(&STORES, "2", workload, settings, metrics);
}

/// The names and units of the percentile metrics for each prefix.
fn percentiles(of: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    let name = |text: String| -> &'static str { text.leak() };
    of.iter()
        .flat_map(|of| ["p50", "p99", "p999"].map(|at| (name(format!("{of}_{at}_ns")), "ns")))
        .collect()
}

#[test]
fn store_mega_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("puts_per_s", "1/s")];
    metrics.extend(percentiles(&["put"]));
    metrics.extend([("gets_per_s", "1/s"), ("hits_per_s", "1/s"), ("misses_per_s", "1/s")]);
    metrics.extend(percentiles(&["hit", "miss"]));
    metrics.push(("rows_per_s", "1/s"));
    metrics.extend(percentiles(&["pass"]));
    metrics.extend(
        ["puts", "gets", "rows", "combined"]
            .map(|of| (&*format!("original_{of}_per_s").leak(), "1/s")),
    );
    check_stores("store-mega", &["--count", "200"], &metrics);
    let durable = ["--count", "50", "--set", "durability=durable", "--set", "inflight=7"];
    check_stores("store-mega", &durable, &metrics);
    let whole = ["--count", "100", "--set", "values=premade", "--set", "roles=whole"];
    check_stores("store-mega", &[&whole[..], &["--set", "checksums=off"]].concat(), &metrics);
}

#[test]
fn store_put_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("puts_per_s", "1/s")];
    metrics.extend(percentiles(&["put"]));
    check_stores("store-put", &["--count", "10000"], &metrics);
    // Shares of different sizes, processes with an empty share, and a single put in flight.
    let odd = ["--count", "99", "--set", "processes=70", "--set", "inflight=1"];
    check_stores("store-put", &[&odd[..], &["--set", "durability=volatile"]].concat(), &metrics);
}

#[test]
fn store_get_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("gets_per_s", "1/s")];
    metrics.extend([("hits_per_s", "1/s"), ("misses_per_s", "1/s")]);
    metrics.extend(percentiles(&["hit", "miss"]));
    metrics.push(("puts_meanwhile_per_s", "1/s"));
    let small = ["--count", "3000", "--set", "gets=2000", "--set", "samples=500"];
    check_stores("store-get", &small, &metrics);
    let beside = ["--set", "writers=16", "--set", "checksums=off"];
    check_stores("store-get", &[&small[..], &beside].concat(), &metrics);
}

#[test]
fn store_scan_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("rows_per_s", "1/s")];
    metrics.extend(percentiles(&["pass"]));
    metrics.push(("puts_meanwhile_per_s", "1/s"));
    check_stores("store-scan", &["--count", "3000", "--set", "passes=3"], &metrics);
    let beside = ["--set", "writers=16", "--set", "durability=volatile"];
    check_stores("store-scan", &[&["--count", "3000"][..], &beside].concat(), &metrics);
}

#[test]
fn store_rest_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("loads_per_s", "1/s"), ("bytes_per_entry", "bytes")];
    metrics.extend([("anonymous_bytes", "bytes"), ("anonymous_peak_bytes", "bytes")]);
    metrics.push(("gets_per_s", "1/s"));
    metrics.extend(percentiles(&["get"]));
    let small = ["--count", "25000", "--set", "gets=1000", "--set", "checksums=off"];
    check_stores("store-rest", &small, &metrics);
    // More updates than entries, so that some have several.
    let random = ["--set", "order=random", "--set", "updates=30000"];
    check_stores("store-rest", &[&small[..], &random].concat(), &metrics);
}

#[test]
fn store_update_is_verified_on_each_store() {
    let mut metrics = vec![("wall_s", "s"), ("puts_per_s", "1/s")];
    metrics.extend(percentiles(&["put"]));
    metrics.extend([("written_bytes_per_put", "bytes"), ("bytes_per_entry", "bytes")]);
    // With few keys a key has several puts in a transaction.
    check_stores("store-update", &["--count", "20000", "--set", "keys=500"], &metrics);
}

#[test]
fn store_recover_is_verified_on_each_store_that_recovers() {
    let metrics = [("open_s", "s"), ("entries_per_s", "1/s"), ("anonymous_peak_bytes", "bytes")];
    let metrics = [&metrics[..], &[("read_bytes", "bytes")]].concat();
    let check = |settings: &[&str]| {
        check_on(&["throng", "redb", "fjall"], "2", "store-recover", settings, &metrics);
    };
    check(&["--count", "20000", "--set", "checksums=off"]);
    // throng's opening writes most entries to its tree.
    let bounded = ["--count", "60000", "--set", "memory=1", "--set", "order=sorted"];
    check(&[&bounded[..], &["--set", "batch=7000", "--set", "value=100"]].concat());
    let volatile = ["--count", "20000", "--set", "durability=volatile"];
    check_on(&["throng", "fjall"], "2", "store-recover", &volatile, &metrics);
}

#[test]
fn a_store_is_in_the_given_directory_and_removed_afterwards() {
    let place = tempfile::tempdir().expect("there is room for a directory");
    let dir = format!("dir={}", place.path().display());
    let arguments = ["run", "store-put", "--count", "100", "--runs", "1", "--json", "--set", &dir];
    let output = output(bench(&arguments));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(json_rows(&output)[0]["params"]["dir"], place.path().to_str().expect("is text"));
    assert_eq!(std::fs::read_dir(place.path()).expect("it is there").count(), 0);

    let nowhere = ["run", "store-put", "--count", "100", "--runs", "1", "--set", "dir=/nowhere/at"];
    assert_eq!(status(&self::output(bench(&nowhere))), 1);
}
