//! Names, keys, ids and messages of clients.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| social::fuzzing::inputs(data));
