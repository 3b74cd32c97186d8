//! Bounded runs of the fuzz targets on a stable compiler. `cargo xtask stress fuzz` runs the same bodies under
//! libFuzzer.
//!
//! ```text
//! fuzz/seeds/TARGET ──changes──► input ──► body in the module `fuzzing` of a crate ◄── fuzz/fuzz_targets/TARGET.rs
//! ```
//!
//! The changes are drawn from a fixed seed, so each run has the same inputs. `THRONG_FUZZ_INPUTS` multiplies their
//! number. An input that fails is printed; put it into `fuzz/seeds/TARGET`, so that it is tried first from then on.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

mod mutations;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mutations::Mutations;

/// Prints the input under test if the test fails.
struct Shown<'i>(&'i [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing input: b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Runs a target on its seeds, and on a number of changed seeds.
fn run(target: &str, check: fn(&[u8]), inputs: usize) {
    let times = std::env::var("THRONG_FUZZ_INPUTS").map_or(1, |times| times.parse().unwrap());
    let mut mutations = Mutations::of(target);
    for seed in mutations.seeds() {
        let _shown = Shown(seed);
        check(seed);
    }
    for _ in 0..inputs * times {
        let input = mutations.next();
        let _shown = Shown(&input);
        check(&input);
    }
}

macro_rules! targets {
    ($($name:literal, $check:path, $inputs:literal, $property:ident;)*) => {
        $(
            #[test]
            fn $property() {
                run($name, $check, $inputs);
            }
        )*

        const NAMES: &[&str] = &[$($name),*];
    };
}

targets! {
    "http", social::fuzzing::http, 1500, any_bytes_of_a_connection_get_well_formed_answers_and_no_error_of_the_server;
    "socket", social::fuzzing::socket, 1500, any_bytes_of_a_socket_get_well_formed_frames;
    "inputs", social::fuzzing::inputs, 5_000, texts_of_clients_keep_their_rules;
    "states", social::fuzzing::states, 20_000, records_of_processes_are_decoded_or_refused;
    "heads", throng_node::http::fuzzing::heads, 10_000, requests_are_the_same_however_their_stream_is_cut;
    "frames", throng_node::http::fuzzing::frames, 20_000, messages_are_the_same_however_their_stream_is_cut;
    "forwarded", throng_node::http::fuzzing::forwarded, 5000, no_client_names_itself_through_a_proxy;
    "sealed", throng_node::http::fuzzing::sealed, 500, no_text_opens_that_was_not_sealed;
    "log", throng_store::fuzzing::log, 150, a_damaged_log_returns_only_records_that_were_written;
    "forged_log", throng_store::fuzzing::forged_log, 300, a_forged_log_is_read_to_an_end;
    "changes", throng_store::fuzzing::changes, 20_000, decoded_changes_have_the_same_encoding;
    "pages", throng_store::fuzzing::pages, 150, a_damaged_data_file_is_checked_without_a_panic;
    "tails", throng_cluster::fuzzing::tails, 2_000, readers_of_any_log_agree_which_records_count;
    "formats", throng_store::fuzzing::formats, 20_000, values_of_the_store_are_decoded_or_refused;
}

#[test]
fn every_target_has_a_program_for_the_fuzzer() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = fs::read_dir(programs).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_owned());
    let names: BTreeSet<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(names, NAMES.iter().map(|name| String::from(*name)).collect());
}
