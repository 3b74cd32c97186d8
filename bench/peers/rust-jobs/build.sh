#!/bin/sh
# Builds the peer, and puts it into the directory of its runtime. All runtimes of this folder share a build.
set -eu
target=$1
cargo build --release --locked --target-dir "$target/../rust-jobs"
cp "$target/../rust-jobs/release/rust-jobs" "$target/peer"
