//! `bench` with mimalloc, started by `bench` for each run with `--set allocator=mimalloc`.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use throng_bench::Allocator;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    throng_bench::main(Allocator::Mimalloc)
}
