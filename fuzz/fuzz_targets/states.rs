//! Records of durable processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| social::fuzzing::states(data));
