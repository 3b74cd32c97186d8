//! Damage of a log's files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_store::fuzzing::log(data));
