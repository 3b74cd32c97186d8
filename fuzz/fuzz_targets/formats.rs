//! Values of a store's own table.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| throng_store::fuzzing::formats(data));
