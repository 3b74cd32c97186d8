//! Tokens and cursors.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_node::http::fuzzing::sealed(data));
