//! The path of a write: from the caller's thread to the writer thread, and in a group to the disk.
//!
//! ```text
//! Batch, Update ─► queue ─► writer ─► planner ─► commit ─► log, memtable
//!      ▲                      │ group_delay, backoff
//!      └─────── Ticket ◄──────┘
//! ```
//!
//! In a store that is a copy of a shared log, `copy.rs` stands in the place of the commit.

pub(crate) mod backoff;
pub(crate) mod batch;
pub(crate) mod block;
pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod error;
pub(crate) mod foreign;
pub(crate) mod group_delay;
pub(crate) mod load;
pub(crate) mod planner;
pub(crate) mod queue;
pub(crate) mod sequencer;
pub(crate) mod submission;
pub(crate) mod ticket;
pub(crate) mod update;
pub(crate) mod updating;
pub(crate) mod writer;
