//! [`Sequence`]: the sequence numbers of stored messages, each given out once in the life of a store.
//!
//! ```text
//!  numbers:  0 … 1,048,575 │ 1,048,576 … 2,097,151 │ …
//!  records:  Q 0           │ Q 1                   │      a start goes on behind the last block that has one
//! ```
//!
//! The record of a block is a part of each batch that has a number of the block, until one of these batches is known to
//! be on disk. So a number in the store is in a block with a record, and is not given out again after a restart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use throng_store::ReadError;

use crate::catalogue::Number;
use crate::layout;
use crate::view::View;

const BLOCK: u64 = 1 << 20;

/// Returns the block of a sequence number.
pub(crate) fn block_of(sequence: u64) -> u64 {
    sequence / BLOCK
}

/// The source of the sequence numbers of a node; see the file's head.
#[derive(Debug)]
pub(crate) struct Sequence {
    next: AtomicU64,
    /// The latest block whose record is known to be on disk, plus one.
    stored: AtomicU64,
    /// The latest block, and its record.
    block: Mutex<Option<(u64, Arc<Number>)>>,
}

impl Sequence {
    /// Begins behind all numbers of a store.
    pub(crate) fn read(view: &View) -> Result<Sequence, ReadError> {
        let last = view.prefix(layout::BLOCKS).next_key_back().transpose()?;
        let last = last.and_then(|record| record.strip_prefix(layout::BLOCKS)?.try_into().ok());
        let first = last.map_or(0, |last| u64::from_be_bytes(last).saturating_add(1));
        Ok(Sequence {
            next: AtomicU64::new(first.saturating_mul(BLOCK)),
            stored: AtomicU64::new(0),
            block: Mutex::default(),
        })
    }

    /// Returns the next number, and the record of its block unless that is known to be on disk.
    pub(crate) fn draw(&self) -> (u64, Option<Arc<Number>>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let own = block_of(number);
        if self.stored.load(Ordering::Relaxed) == own + 1 {
            return (number, None);
        }
        let record = || Arc::new(Number::marker(&layout::block(own), Vec::new()));
        let mut latest = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            // Another thread has drawn from the next block already.
            Some((block, _)) if *block > own => (number, Some(record())),
            Some((block, known)) if *block == own => {
                if known.is_stored() {
                    self.stored.store(own + 1, Ordering::Relaxed);
                }
                (number, Some(known.clone()))
            }
            _ => {
                let new = record();
                *latest = Some((own, new.clone()));
                (number, Some(new))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_store::{Batch, Store, Submission};

    use crate::tables::Tables;

    use super::*;

    #[test]
    fn no_number_that_is_stored_is_given_out_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::options().map_bytes(1 << 24).open(directory.path()).unwrap();
        let table = Tables::open(&store).unwrap();
        let mut least = 0;
        for round in 1..5 {
            let sequence = Sequence::read(&View::of(&table).unwrap()).unwrap();
            // The last number of a block, and the first of the next one.
            sequence.next.fetch_max(2 * round * BLOCK - 1, Ordering::Relaxed);
            for _ in 0..2 {
                let (number, record) = sequence.draw();
                assert!(number >= least, "{number} again");
                least = number + 1;
                let record = record.unwrap();
                let mut batch = record.add_to(Batch::new(), &table, &store.outcomes());
                let submission = store.submit(&mut batch, Submission::START).unwrap();
                record.submitted(submission);
                store.settled(submission).wait().unwrap();
                record.add_to(Batch::new(), &table, &store.outcomes());
            }
            assert_eq!(sequence.draw().0, least);
            assert!(sequence.draw().1.is_none(), "the record of the block is on disk");
            least += 2;
        }
    }
}
