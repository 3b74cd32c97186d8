//! Forged files of a log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_store::fuzzing::forged_log(data));
