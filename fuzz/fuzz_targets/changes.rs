//! The changes of a record of the log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_store::fuzzing::changes(data));
