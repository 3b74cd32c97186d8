//! Free blocks, held in arrays.
//!
//! A thread takes and frees blocks through a *cache* of its own, without a lock. The cache has two
//! magazines, so that a thread that alternates between taking and freeing at the border between
//! full and empty does not exchange magazines at each step. Full magazines travel between caches
//! through a central *depot*, so that a thread that only frees feeds a thread that only allocates,
//! with a single lock per magazine.
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

    #[cfg(test)]
    pub(crate) fn blocks(&self) -> impl Iterator<Item = NonNull<u8>> {
        self.blocks[..self.length].iter().copied()
    }

    /// Adds a block, which must not be in use; the magazine must have room.
    #[inline(always)]
    pub(crate) fn push(&mut self, block: NonNull<u8>) {
        self.blocks[self.length] = block;
        self.length += 1;
    }

    /// Takes the block freed last, which is the most likely to be in the processor's cache.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        self.length = self.length.checked_sub(1)?;
        self.blocks.get(self.length).copied()
    }
}

/// Magazines of a thread, for blocks of the same size.
pub(crate) struct Cache {
    active: Magazine,
    spare: Magazine,
}

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache { active: Magazine::new(), spare: Magazine::new() }
    }

    /// Takes a block; calls `refill` for a magazine if both magazines are empty.
    #[inline(always)]
    pub(crate) fn pop(&mut self, refill: impl FnOnce() -> Magazine) -> NonNull<u8> {
        match self.active.pop() {
            Some(block) => block,
            None => self.pop_slow(refill),
        }
    }

    #[cold]
    fn pop_slow(&mut self, refill: impl FnOnce() -> Magazine) -> NonNull<u8> {
        if self.spare.is_empty() {
            self.active = refill();
        } else {
            std::mem::swap(&mut self.active, &mut self.spare);
        }
        self.active.pop().expect("a refill brings at least one block")
    }

    /// Keeps a block that is not in use; passes a magazine to `overflow` if both hold `full`
    /// blocks.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        block: NonNull<u8>,
        full: usize,
        overflow: impl FnOnce(Magazine),
    ) {
        if self.active.length >= full {
            self.push_slow(overflow);
        }
        self.active.push(block);
    }

    #[cold]
    fn push_slow(&mut self, overflow: impl FnOnce(Magazine)) {
        std::mem::swap(&mut self.active, &mut self.spare);
        if !self.active.is_empty() {
            overflow(std::mem::replace(&mut self.active, Magazine::new()));
        }
    }

    /// Empties the cache, and returns the magazines that hold blocks.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Magazine> {
        let Cache { active, spare } = std::mem::replace(self, Cache::new());
        [active, spare].into_iter().filter(|magazine| !magazine.is_empty())
    }
}
