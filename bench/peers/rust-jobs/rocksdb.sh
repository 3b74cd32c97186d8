#!/bin/sh
# Succeeds if RocksDB's library is installed, and the one by which its client reads the headers.
set -eu
cc -E -include rocksdb/c.h -x c /dev/null > /dev/null
ls /usr/lib/llvm-*/lib/libclang*.so* > /dev/null
