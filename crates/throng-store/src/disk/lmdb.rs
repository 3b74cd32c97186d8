//! A safe interface to LMDB: [`Env`], [`ReadTxn`], [`WriteTxn`], their cursors, and [`Error`].
//!
//! The only unsafe code of this crate is in `lmdb/`. The crate has a layer of its own, because
//! group commit and pooled snapshots need operations that wrappers hide: reset and renew, cursors
//! that put with `MDB_APPEND`, and flags for each call.
//!
//! Invariants:
//!
//! 1. An [`Env`] lives as long as any transaction of it: a [`ReadTxn`] and an [`IdleTxn`] hold it
//!    by `Arc`, a [`WriteTxn`] by reference. So the map exists while pointers into it do.
//! 2. The data file changes only through LMDB: an [`Env`] is opened with the claim on its
//!    directory in hand, and without a claim for writing it can only read. Nothing here can keep
//!    another program from changing the file; [`Store`](crate::Store) documents it.
//! 3. Read transactions begin with `MDB_NOTLS`, so they may change threads; they are not `Sync`.
//!    A [`WriteTxn`] holds a lock that belongs to its thread and is not even `Send`.
//! 4. The bytes read in a [`ReadTxn`] belong to a frozen tree, and stay valid until the transaction
//!    is reset or dropped. The bytes read in a [`WriteTxn`] stay valid until its next write, so
//!    reading borrows it shared and writing borrows it exclusively.
//! 5. A table is opened in a write transaction, which excludes all others that open a table, or
//!    under a lock if the environment is read-only; it is never closed. A [`Table`] that a
//!    transaction does not know is an error, not undefined behaviour: LMDB checks the number.
//!
//! LMDB trusts its file, but for its length: an [`Env`] is opened only if the file has all pages in use,
//! because the system ends a process that reads a mapped page behind the end. A page that was damaged on the disk can crash it or worse, so a program
//! that searches a suspect file for damage does so in a separate process.

use crate::table::Table;

mod cursor;
mod env;
mod error;
mod txn;

pub(crate) use cursor::{Cursor, Entry, Move, Put, WriteCursor};
pub(crate) use env::{Closed, Env, Make, Settings, file_bytes_max};
pub(crate) use error::Error;
#[cfg(test)]
pub(crate) use txn::begins;
pub(crate) use txn::{IdleTxn, Order, ReadTxn, WriteTxn};

/// LMDB's own table of the pages that are free: under the number of each commit, the pages that it has freed.
const FREE: Table = Table(0);
pub(crate) const ROOT: Table = Table(1);

/// Length of LMDB's description of a named table, which is the value under its name, in bytes: eight for
/// small numbers, then five words.
pub(crate) const DESCRIPTION_BYTES: usize = 8 + 5 * size_of::<usize>();

/// Returns a pointer to bytes, as LMDB expects it.
fn borrowed(bytes: &[u8]) -> lmdb_master_sys::MDB_val {
    lmdb_master_sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// Returns an empty value for LMDB to fill in.
fn blank() -> lmdb_master_sys::MDB_val {
    lmdb_master_sys::MDB_val { mv_size: 0, mv_data: std::ptr::null_mut() }
}
