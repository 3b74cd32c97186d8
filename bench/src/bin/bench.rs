//! `bench` with the system's allocator, which is also the program that users start.

use std::process::ExitCode;

use throng_bench::Allocator;

fn main() -> ExitCode {
    throng_bench::main(Allocator::System)
}
