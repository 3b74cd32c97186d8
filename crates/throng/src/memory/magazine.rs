//! Free blocks, held in arrays.
//!
//! A thread takes and frees blocks through a *cache* of its own, without a lock: a stack with room
//! for two *magazines*. Magazines travel between caches through a central *depot*, so that a thread
//! that only frees feeds a thread that only allocates, with a single lock per magazine. After an
//! exchange a cache holds one magazine's blocks, so the next exchange is at least as many steps
//! away, even if the thread takes and frees in turn.
//!
//! The blocks are in arrays, and not linked through their memory, for the sake of such a pair: to
//! follow a link, the allocating core would have to wait, for each block, for the cache line that
//! the freeing core wrote last. With a pointer from an array it writes the new contents without
//! waiting.
//!
//! Invariant: a block is in one magazine, once; the caller that takes it out owns it. The code here
//! does not touch a block's memory.

use std::ptr::NonNull;

const CAPACITY: usize = 64;

/// Up to 64 free blocks of the same size.
pub(crate) struct Magazine {
    blocks: [NonNull<u8>; CAPACITY],
    length: usize,
}

// SAFETY: the magazine owns its blocks, by the invariant of the file's head.
unsafe impl Send for Magazine {}

impl Magazine {
    pub(crate) const fn new() -> Magazine {
        Magazine { blocks: [NonNull::dangling(); CAPACITY], length: 0 }
    }

    /// Returns the number of blocks of this size that fill a magazine: 4 KiB of them, but 8 to 64.
    pub(crate) const fn full(block_bytes: usize) -> usize {
        match 4096 / block_bytes {
            0..8 => 8,
            8..CAPACITY => 4096 / block_bytes,
            _ => CAPACITY,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes a magazine of at most 64 blocks.
    fn of(blocks: &[NonNull<u8>]) -> Magazine {
        let mut magazine = Magazine::new();
        magazine.blocks[..blocks.len()].copy_from_slice(blocks);
        magazine.length = blocks.len();
        magazine
    }

    pub(crate) fn blocks(&self) -> &[NonNull<u8>] {
        &self.blocks[..self.length]
    }

    /// Adds a block, which must not be in use; the magazine must have room.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn push(&mut self, block: NonNull<u8>) {
        self.blocks[self.length] = block;
        self.length += 1;
    }

    /// Takes the block added last.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        self.length = self.length.checked_sub(1)?;
        self.blocks.get(self.length).copied()
    }
}

/// Free blocks of a thread, all of the same size: a stack with room for two magazines.
pub(crate) struct Cache {
    blocks: [NonNull<u8>; 2 * CAPACITY],
    length: usize,
}

// SAFETY: the cache owns its blocks, by the invariant of the file's head.
unsafe impl Send for Cache {}

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache { blocks: [NonNull::dangling(); 2 * CAPACITY], length: 0 }
    }

    /// Takes the block freed last, which is the most likely to be in the processor's cache; calls
    /// `refill` for a magazine if there is none.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn pop(&mut self, refill: impl FnOnce() -> Magazine) -> NonNull<u8> {
        if self.length == 0 {
            self.load(refill);
        }
        self.length -= 1;
        self.blocks[self.length]
    }

    #[cold]
    #[inline(never)]
    fn load(&mut self, refill: impl FnOnce() -> Magazine) {
        let magazine = refill();
        assert!(!magazine.is_empty(), "a refill brings at least one block");
        self.blocks[..magazine.len()].copy_from_slice(magazine.blocks());
        self.length = magazine.len();
    }

    /// Keeps a block that is not in use. If the cache holds two times `full` blocks, the older half
    /// goes to `overflow` before.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn push(
        &mut self,
        block: NonNull<u8>,
        full: usize,
        overflow: impl FnOnce(Magazine),
    ) {
        if self.length >= 2 * full {
            self.unload(full, overflow);
        }
        self.blocks[self.length] = block;
        self.length += 1;
    }

    #[cold]
    #[inline(never)]
    fn unload(&mut self, full: usize, overflow: impl FnOnce(Magazine)) {
        let older = Magazine::of(&self.blocks[..full]);
        self.blocks.copy_within(full..self.length, 0);
        self.length -= full;
        overflow(older);
    }

    /// Empties the cache, and returns its blocks in magazines.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Magazine> {
        let length = std::mem::take(&mut self.length);
        self.blocks[..length].chunks(CAPACITY).map(Magazine::of)
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;

    const FULL: usize = Magazine::full(64);

    /// A depot of small numbers in place of blocks; counts the magazines that it exchanges.
    #[derive(Default)]
    struct Depot {
        magazines: std::cell::RefCell<Vec<Magazine>>,
        made: Cell<usize>,
        exchanged: Cell<usize>,
    }

    impl Depot {
        fn refill(&self) -> Magazine {
            self.exchanged.set(self.exchanged.get() + 1);
            self.magazines.borrow_mut().pop().unwrap_or_else(|| {
                let first = self.made.get() + 1;
                self.made.set(self.made.get() + FULL);
                let block = |number| NonNull::without_provenance(number);
                let numbers = (first..first + FULL).filter_map(std::num::NonZero::new);
                Magazine::of(&numbers.map(block).collect::<Vec<_>>())
            })
        }

        fn pop(&self, cache: &mut Cache) -> NonNull<u8> {
            cache.pop(|| self.refill())
        }

        fn push(&self, cache: &mut Cache, block: NonNull<u8>) {
            cache.push(block, FULL, |magazine| {
                self.exchanged.set(self.exchanged.get() + 1);
                self.magazines.borrow_mut().push(magazine);
            });
        }
    }

    #[test]
    fn each_block_is_in_one_place_and_the_block_freed_last_comes_first() {
        let (depot, mut cache, mut used) = (Depot::default(), Cache::new(), Vec::new());
        for (taken, freed) in [(10, 5), (300, 290), (64, 79), (129, 1), (7, 135)] {
            used.extend((0..taken).map(|_| depot.pop(&mut cache)));
            assert_eq!(used.iter().collect::<HashSet<_>>().len(), used.len(), "taken once");
            for _ in 0..freed {
                depot.push(&mut cache, used.pop().expect("is in use"));
            }
        }
        let last = depot.pop(&mut cache);
        depot.push(&mut cache, last);
        assert_eq!(depot.pop(&mut cache), last);
        assert!(used.is_empty());
        depot.push(&mut cache, last);
        let mut magazines = depot.magazines.take();
        magazines.extend(cache.drain());
        let free: HashSet<_> = magazines.iter().flat_map(Magazine::blocks).copied().collect();
        assert_eq!(free.len(), magazines.iter().map(Magazine::len).sum(), "free once");
        assert_eq!(free.len(), depot.made.get(), "no block is lost");
    }

    #[test]
    fn a_thread_that_takes_and_frees_in_turn_exchanges_no_magazines() {
        let (depot, mut cache) = (Depot::default(), Cache::new());
        let mut used: Vec<_> = (0..3 * FULL).map(|_| depot.pop(&mut cache)).collect();
        while let Some(block) = used.pop() {
            // At any number of free blocks: the exchange that is due, and no other.
            depot.push(&mut cache, block);
            let before = depot.exchanged.get();
            for _ in 0..3 {
                let blocks: Vec<_> = (0..FULL / 2).map(|_| depot.pop(&mut cache)).collect();
                blocks.into_iter().for_each(|block| depot.push(&mut cache, block));
            }
            assert!(depot.exchanged.get() <= before + 1);
        }
    }
}
