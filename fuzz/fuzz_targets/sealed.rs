//! Tokens and cursors.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_server::fuzzing::sealed(data));
