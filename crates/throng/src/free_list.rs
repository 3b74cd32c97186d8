//! Free blocks, chained through their second word.
//!
//! The first word stays as it is: a free cell keeps its mailbox word there, and with it the
//! generation that makes old addresses fail. Two of these lists make a *cache* that a thread uses
//! without a lock; full lists travel between caches through a central *depot*, so that a thread
//! that only frees feeds one that only allocates at one lock per [`FreeList::full`] blocks.
//!
//! Invariant: a block is in one list, and nobody but the list's owner reads or writes its second
//! word meanwhile.

use std::ptr::{self, NonNull};

/// The shape of a free block.
#[repr(C)]
struct Free {
    kept: *mut (),
    next: *mut Free,
}

/// A counted stack of free blocks.
pub(crate) struct FreeList {
    head: *mut Free,
    length: usize,
}

// SAFETY: the list owns its blocks; see the invariant.
unsafe impl Send for FreeList {}

impl FreeList {
    pub(crate) const fn new() -> FreeList {
        FreeList { head: ptr::null_mut(), length: 0 }
    }

    /// How many blocks of this size a list holds before it travels: 4 KiB's worth, 8 to 64.
    pub(crate) const fn full(block_bytes: usize) -> usize {
        match 4096 / block_bytes {
            0..8 => 8,
            more => more,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// # Safety
    /// The caller gives away a block of at least 16 bytes whose second word nobody else uses.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, block: NonNull<u8>) {
        let free = block.as_ptr().cast::<Free>();
        // SAFETY: given to us.
        unsafe { (&raw mut (*free).next).write(self.head) };
        self.head = free;
        self.length += 1;
    }

    /// Takes the block freed last: the one most likely still in the cache.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.head)?;
        // SAFETY: in the list, so ours to read.
        self.head = unsafe { (&raw const (*free.as_ptr()).next).read() };
        self.length -= 1;
        Some(free.cast())
    }
}

/// Two lists, so that a thread at the border between full and empty does not go to the depot at
/// each step.
pub(crate) struct Cache {
    active: FreeList,
    spare: FreeList,
}

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache { active: FreeList::new(), spare: FreeList::new() }
    }

    /// A block, with `refill` asked for another list when both are empty.
    #[inline(always)]
    pub(crate) fn pop(&mut self, refill: impl FnOnce() -> FreeList) -> NonNull<u8> {
        if let Some(block) = self.active.pop() {
            return block;
        }
        self.pop_slow(refill)
    }

    #[cold]
    fn pop_slow(&mut self, refill: impl FnOnce() -> FreeList) -> NonNull<u8> {
        std::mem::swap(&mut self.active, &mut self.spare);
        if self.active.len() == 0 {
            self.active = refill();
        }
        self.active.pop().expect("a refill brings at least one block")
    }

    /// Keeps a block, with `overflow` given a full list when both are.
    ///
    /// # Safety
    /// As [`FreeList::push`].
    #[inline(always)]
    pub(crate) unsafe fn push(
        &mut self,
        block: NonNull<u8>,
        full: usize,
        overflow: impl FnOnce(FreeList),
    ) {
        if self.active.len() >= full {
            let older = std::mem::replace(&mut self.spare, FreeList::new());
            self.spare = std::mem::replace(&mut self.active, FreeList::new());
            if older.len() > 0 {
                overflow(older);
            }
        }
        // SAFETY: passed on.
        unsafe { self.active.push(block) };
    }

    /// Gives up both lists.
    pub(crate) fn drain(&mut self) -> [FreeList; 2] {
        let empty = Cache::new();
        let Cache { active, spare } = std::mem::replace(self, empty);
        [active, spare]
    }
}
