//! Damage of a data file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_store::fuzzing::pages(data));
