//! Bytes that a server has written, as the kernel counts them.
//!
//! The kernel adds the bytes of a process to those of its parent when the parent has awaited its end. Those of a server
//! and its processes are therefore added while it runs, and are this program's own when it has ended.

use std::fs;
use std::io;

use bench_steps::disk::written_bytes;

use crate::server::Server;

/// Bytes by this program and by a server of its that runs.
pub(super) fn written_with(server: &Server) -> io::Result<u64> {
    Ok(written_bytes("self")? + by_tree(&server.id().to_string())?)
}

/// Bytes by a process and those that descend from it.
fn by_tree(id: &str) -> io::Result<u64> {
    let mut bytes = written_bytes(id)?;
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    for child in children.split_whitespace() {
        // A child that has ended meanwhile counts as its parent's.
        bytes += by_tree(child).unwrap_or(0);
    }
    Ok(bytes)
}
