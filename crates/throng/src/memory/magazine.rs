//! Free blocks, held in arrays.
//!
//! A thread takes and frees blocks through a *cache* of its own, without a lock: two magazines, so
//! that one who stands at the border between full and empty does not change them at each step.
//! Full ones travel between caches through a central *depot*, so that a thread that only frees
//! feeds one that only allocates, at one lock for a whole magazine.
//!
//! Arrays, and not links inside the blocks, for the sake of just that pair: to follow a link the
//! allocating core would have to wait for the line that the freeing core has written last, once
//! for each block. A pointer from an array lets it write the new contents without waiting.
//!
//! Invariant: a block is in one magazine, once; whoever takes it out owns it. Nothing in here
//! touches a block's memory.

use std::ptr::NonNull;

const CAPACITY: usize = 64;

/// Up to 64 free blocks of one size.
pub(crate) struct Magazine {
    blocks: [NonNull<u8>; CAPACITY],
    length: usize,
}

// SAFETY: the magazine owns its blocks; see the invariant.
unsafe impl Send for Magazine {}

impl Magazine {
    pub(crate) const fn new() -> Magazine {
        Magazine { blocks: [NonNull::dangling(); CAPACITY], length: 0 }
    }

    /// How many blocks of this size make a magazine full: 4 KiB's worth, 8 to 64.
    pub(crate) const fn full(block_bytes: usize) -> usize {
        match 4096 / block_bytes {
            0..8 => 8,
            8..CAPACITY => 4096 / block_bytes,
            _ => CAPACITY,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds a block, which must not be in use. There must be room.
    #[inline(always)]
    pub(crate) fn push(&mut self, block: NonNull<u8>) {
        self.blocks[self.length] = block;
        self.length += 1;
    }

    /// Takes the block freed last: the one most likely still in the processor's cache.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        self.length = self.length.checked_sub(1)?;
        self.blocks.get(self.length).copied()
    }
}

/// The magazines of one thread, for blocks of one size.
pub(crate) struct Cache {
    active: Magazine,
    spare: Magazine,
}

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache { active: Magazine::new(), spare: Magazine::new() }
    }

    /// A block, with `refill` asked for a magazine when both are empty.
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

    /// Keeps a block that is not in use, with `overflow` given a magazine when both hold `full`.
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

    /// Gives up what is in both.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Magazine> {
        let Cache { active, spare } = std::mem::replace(self, Cache::new());
        [active, spare].into_iter().filter(|magazine| !magazine.is_empty())
    }
}
