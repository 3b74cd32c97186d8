//! [`Bucket`]: the alarms in one slot of a wheel.
//!
//! A list of short lists in place of one long list: half a million entries never move to grow, and
//! memory freed by entries taken out serves entries inserted elsewhere. So a million alarms that
//! come up together take little more than their own size even while they move down the wheel.
//!
//! Invariant: all chunks but the last are full, and none is empty.

use std::collections::VecDeque;
use std::vec;

/// Entries in a chunk: a kilobyte of alarms.
const CHUNK: usize = 64;
/// Number of empty chunks that a wheel keeps: timers that come and go need no memory of the allocator's.
const SPARE_MOST: usize = 8;

/// Empty chunks of a wheel, each with room for `CHUNK` entries.
pub(super) struct Spare<E>(Vec<Vec<E>>);

impl<E> Spare<E> {
    pub(super) const fn new() -> Self {
        Spare(Vec::new())
    }

    fn put(&mut self, chunk: Vec<E>) {
        if chunk.capacity() == CHUNK && self.0.len() < SPARE_MOST {
            self.0.push(chunk);
        }
    }
}

/// Alarms in one slot of a wheel; see the file's head.
pub(super) struct Bucket<E> {
    chunks: Vec<Vec<E>>,
}

impl<E> Bucket<E> {
    pub(super) const fn new() -> Self {
        Bucket { chunks: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    pub(super) fn push(&mut self, entry: E, spare: &mut Spare<E>) {
        if let Some(chunk) = self.chunks.last_mut()
            && chunk.len() < CHUNK
        {
            return chunk.push(entry);
        }
        let mut chunk = match spare.0.pop() {
            Some(chunk) => chunk,
            // A bucket with a single entry, the usual case of a quiet wheel, is small.
            None => Vec::with_capacity(if self.chunks.is_empty() { 1 } else { CHUNK }),
        };
        chunk.push(entry);
        self.chunks.push(chunk);
    }

    pub(super) fn get(&self, index: usize) -> Option<&E> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// Takes an entry out and puts the last entry in its place.
    ///
    /// # Panics
    /// If there is no entry at the index.
    pub(super) fn swap_remove(&mut self, index: usize, spare: &mut Spare<E>) -> E {
        let last_chunk = self.chunks.last_mut().expect("there is an entry");
        let last = last_chunk.pop().expect("no chunk is empty");
        if last_chunk.is_empty() {
            self.chunks.pop().into_iter().for_each(|chunk| spare.put(chunk));
        }
        match self.chunks.get_mut(index / CHUNK).and_then(|chunk| chunk.get_mut(index % CHUNK)) {
            Some(entry) => std::mem::replace(entry, last),
            None => last,
        }
    }
}

/// Entries taken from buckets, to be handed over in the order of insertion.
pub(super) struct Outlet<E> {
    chunks: VecDeque<vec::IntoIter<E>>,
}

impl<E> Outlet<E> {
    pub(super) const fn new() -> Self {
        Outlet { chunks: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn extend(&mut self, bucket: Bucket<E>) {
        self.chunks.extend(bucket.chunks.into_iter().map(Vec::into_iter));
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        let chunk = self.chunks.front_mut()?;
        let entry = chunk.next();
        if chunk.len() == 0 {
            self.chunks.pop_front();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_in_order_of_insertion_without_the_removed() {
        for count in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3] {
            for removed in [0, CHUNK / 2, CHUNK, count.saturating_sub(1)] {
                let (mut bucket, mut spare) = (Bucket::new(), Spare::new());
                (0..count).for_each(|entry| bucket.push(entry, &mut spare));
                let mut expected: Vec<_> = (0..count).collect();
                assert!((0..count).all(|index| bucket.get(index) == Some(&index)));
                assert_eq!((bucket.get(count), bucket.len()), (None, count));
                if removed < count {
                    let taken = bucket.swap_remove(removed, &mut spare);
                    assert_eq!(taken, expected.swap_remove(removed));
                }
                assert_eq!(bucket.is_empty(), expected.is_empty());
                let mut outlet = Outlet::new();
                outlet.extend(bucket);
                assert_eq!(outlet.is_empty(), expected.is_empty());
                assert_eq!(std::iter::from_fn(|| outlet.pop()).collect::<Vec<_>>(), expected);
                assert!(outlet.is_empty());
            }
        }
    }

    #[test]
    fn chunks_are_used_again_and_few_are_kept() {
        let (mut bucket, mut spare) = (Bucket::new(), Spare::new());
        for _ in 0..2 {
            (0..100 * CHUNK).for_each(|entry| bucket.push(entry, &mut spare));
            assert_eq!((bucket.len(), spare.0.len()), (100 * CHUNK, 0));
            while !bucket.is_empty() {
                bucket.swap_remove(0, &mut spare);
            }
            assert_eq!((bucket.len(), spare.0.len()), (0, SPARE_MOST));
            assert!(spare.0.iter().all(|chunk| chunk.is_empty() && chunk.capacity() == CHUNK));
        }
    }
}
