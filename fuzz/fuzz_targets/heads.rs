//! The framing of requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_node::http::fuzzing::heads(data));
