#!/bin/sh
# Builds the peer, and puts it into the directory of its runtime. All runtimes of this folder share a build, but for the
# rows whose libraries are no part of it: their features follow the directory.
set -eu
target=$1
shift
# RocksDB takes many minutes to compile, so its client takes the library and the headers of the system.
library=$(cc -print-file-name=librocksdb.so)
export ROCKSDB_LIB_DIR="${library%/*}" ROCKSDB_INCLUDE_DIR=/usr/include
# As SQLite recommends: its allocations are not counted. `fdatasync` is there on any Linux.
export LIBSQLITE3_FLAGS="-DSQLITE_DEFAULT_MEMSTATUS=0 -DHAVE_FDATASYNC=1"
cargo build --release --locked --target-dir "$target/../rust-jobs" --features "$*"
cp "$target/../rust-jobs/release/rust-jobs" "$target/peer"
