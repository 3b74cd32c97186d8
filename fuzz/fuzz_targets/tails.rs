//! Readers of a replicated log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_cluster::fuzzing::tails(data));
