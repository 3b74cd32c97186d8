//! The requests of a connection, against the real service.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| social::fuzzing::http(data));
