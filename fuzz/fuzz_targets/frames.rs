//! The frames of a WebSocket, in its decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_node::http::fuzzing::frames(data));
