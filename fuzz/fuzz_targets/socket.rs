//! The frames of a WebSocket, against the real service.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| social::fuzzing::socket(data));
