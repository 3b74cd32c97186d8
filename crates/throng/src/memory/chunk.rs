//! Chunks: memory from the system, cut into blocks of one size.
//!
//! ```text
//! ┌──────┬─────────┬─────────┬─────────┬─   a multiple of CHUNK_BYTES
//! │ head │ block 0 │ block 1 │ block 2 │ …
//! └──────┴─────────┴─────────┴─────────┴─
//! ```
//!
//! A chunk is aligned to its size, so the chunk of a block is found by masking the block's address.
//! A block is *parked* while its bit in the head is set; otherwise it is *lent*: in use, in a
//! thread's cache or in a magazine of the depot. The bit is the only record of a parked block.
//!
//! | part | touched by |
//! |---|---|
//! | head, blocks parked | the depot of the chunk, which the depot's lock guards; the owner of a `Chunk` taken out of the depot |
//! | a lent block | its owner; the code here does not touch its memory |
//!
//! Invariants:
//! 1. A chunk with a parked block has one `Chunk`, and a chunk without any has none: the caller of
//!    [`park`] that parks the first block gets it, and [`Chunk::lend`] takes it when the last block
//!    is lent.
//! 2. A block is parked once, by its owner, after its last use.
//! 3. The memory of a parked block has no contents, so its pages may go back to the system at any
//!    time. A chunk whose blocks are all parked has no other user and may be freed.

use crate::memory::magazine::Magazine;
use crate::memory::spare_bits::require_spare_bits;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Size of a chunk. The head is one page of it, so the larger the chunk, the less a queued message
/// takes; pages that were never lent cost no memory, so a class that is hardly used costs two.
pub(crate) const CHUNK_BYTES: usize = if cfg!(miri) { 32 * 1024 } else { 1024 * 1024 };
/// Unit in which the head records memory that the system may take back.
const PAGE_BYTES: usize = 4096;
/// Whole pages, so that blocks of a page or less do not cross into the next page without need.
const HEAD_BYTES: usize = PAGE_BYTES;
const BLOCKS_BYTES: usize = CHUNK_BYTES - HEAD_BYTES;
const PAGES: usize = BLOCKS_BYTES / PAGE_BYTES;
const BLOCK_BYTES_LEAST: usize = 64;
const WORDS: usize = (BLOCKS_BYTES / BLOCK_BYTES_LEAST).div_ceil(64);
const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a chunk has a layout"),
};

/// Head of a chunk, at its beginning.
#[repr(C)]
struct Head {
    block_bytes: usize,
    blocks: usize,
    parked: usize,
    /// Whether a block was parked since pages were last discarded.
    is_changed: bool,
    /// The words of `bits` below this one are zero.
    first: usize,
    /// One bit for each block, set while the block is parked.
    bits: [u64; WORDS],
    /// Whether each page may be resident: a block in it was lent since it was last discarded.
    resident: [bool; PAGES],
}

const _: () = assert!(size_of::<Head>() <= HEAD_BYTES);

/// A chunk with parked blocks; see the file's head.
pub(crate) struct Chunk(NonNull<Head>);

// SAFETY: the value owns the head and all parked blocks (invariant 1).
unsafe impl Send for Chunk {}

impl Chunk {
    /// Takes a chunk from the system and parks all of its blocks. Aborts if the system is out of
    /// memory.
    pub(crate) fn allocate(block_bytes: usize) -> Chunk {
        // SAFETY: the size of a chunk is not zero.
        let memory =
            NonNull::new(unsafe { alloc(LAYOUT) }).unwrap_or_else(|| handle_alloc_error(LAYOUT));
        require_spare_bits(memory, CHUNK_BYTES);
        let blocks = BLOCKS_BYTES / block_bytes;
        let mut bits = [0; WORDS];
        bits[..blocks / 64].fill(u64::MAX);
        if let Some(last) = bits.get_mut(blocks / 64) {
            *last = (1 << (blocks % 64)) - 1;
        }
        let head = Head {
            block_bytes,
            blocks,
            parked: blocks,
            is_changed: false,
            first: 0,
            bits,
            resident: [false; PAGES],
        };
        let chunk = Chunk(memory.cast());
        // SAFETY: the chunk was just allocated, and has room for a head at its beginning.
        unsafe { chunk.0.write(head) };
        chunk
    }

    pub(crate) fn parked(&self) -> usize {
        self.head().parked
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.head().parked == self.head().blocks
    }

    /// Whether a block was parked since pages were last discarded.
    pub(crate) fn is_changed(&self) -> bool {
        self.head().is_changed
    }

    /// Adds blocks to a magazine until it holds `full` of them. Returns the chunk unless its last
    /// block was lent.
    pub(crate) fn lend(mut self, magazine: &mut Magazine, full: usize) -> Option<Chunk> {
        // The blocks' pointers come from the chunk's own, which is valid for the whole chunk.
        let blocks = self.0.cast::<u8>();
        let head = self.head_mut();
        while magazine.len() < full && head.parked > 0 {
            let word = &mut head.bits[head.first];
            if *word == 0 {
                head.first += 1;
                continue;
            }
            let index = head.first * 64 + word.trailing_zeros() as usize;
            *word &= *word - 1;
            head.parked -= 1;
            head.resident[pages(index, head.block_bytes)].fill(true);
            // SAFETY: the index is below the number of blocks, so the block lies in the chunk.
            magazine.push(unsafe { blocks.add(HEAD_BYTES + index * head.block_bytes) });
        }
        (head.parked > 0).then_some(self)
    }

    /// Gives the pages in which all blocks are parked back to the system.
    pub(crate) fn discard_pages(&mut self) {
        let start = self.0.cast::<u8>();
        let head = self.head_mut();
        head.is_changed = false;
        let mut page = 0;
        while page < PAGES {
            let from = page;
            while page < PAGES && head.resident[page] && head.is_parked(page) {
                head.resident[page] = false;
                page += 1;
            }
            if from == page {
                page += 1;
                continue;
            }
            let (from, to) = (HEAD_BYTES + from * PAGE_BYTES, HEAD_BYTES + page * PAGE_BYTES);
            // SAFETY: every block in these pages is parked, so the memory has no contents
            // (invariant 3), and it lies in the chunk.
            unsafe { system::discard(start, from..to) };
        }
    }

    /// Gives the whole chunk back to the system.
    ///
    /// # Panics
    /// If a block is lent.
    pub(crate) fn free(mut self) {
        assert!(self.is_whole(), "a chunk is freed while a block of it is lent");
        // An allocator may keep memory that it gets back, but keeps no pages so.
        self.discard_pages();
        // SAFETY: the chunk came from `alloc` with this layout, and has no other user
        // (invariant 3).
        unsafe { dealloc(self.0.as_ptr().cast(), LAYOUT) };
    }

    fn head(&self) -> &Head {
        // SAFETY: the head was written by `allocate`, and the owner of the `Chunk` is its only user
        // (invariant 1).
        unsafe { self.0.as_ref() }
    }

    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: the same as for `head`, and `self` is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }

    /// Number of bytes that may be resident, without the head.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> usize {
        self.head().resident.iter().filter(|&&resident| resident).count() * PAGE_BYTES
    }
}

impl Head {
    fn is_parked(&self, page: usize) -> bool {
        let first = page * PAGE_BYTES / self.block_bytes;
        let end = ((page + 1) * PAGE_BYTES).div_ceil(self.block_bytes).min(self.blocks);
        let (mut index, mut parked) = (first, true);
        while index < end {
            let (bit, count) = (index % 64, (end - index).min(64 - index % 64));
            let mask = (u64::MAX >> (64 - count)) << bit;
            parked &= self.bits[index / 64] & mask == mask;
            index += count;
        }
        parked
    }
}

fn pages(index: usize, block_bytes: usize) -> Range<usize> {
    let (start, end) = (index * block_bytes, (index + 1) * block_bytes);
    start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)
}

/// Parks a block. Returns its chunk if it is the first parked block of the chunk.
///
/// # Safety
/// The block was lent by a chunk, the caller owns it and does not use it again. No other thread
/// touches the chunk's head during the call, and no reference to it exists.
pub(crate) unsafe fn park(block: NonNull<u8>) -> Option<Chunk> {
    let offset = block.addr().get() % CHUNK_BYTES;
    // SAFETY: a chunk is aligned to its size, so its head is this far below each of its blocks. By
    // the contract, the head is the caller's during the call.
    let mut chunk = unsafe { Chunk(block.byte_sub(offset).cast()) };
    let head = chunk.head_mut();
    let index = (offset - HEAD_BYTES) / head.block_bytes;
    debug_assert_eq!(head.bits[index / 64] >> (index % 64) & 1, 0, "a block is parked twice");
    head.bits[index / 64] |= 1 << (index % 64);
    head.first = head.first.min(index / 64);
    head.parked += 1;
    head.is_changed = true;
    (head.parked == 1).then_some(chunk)
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use rustix::mm::{Advice, madvise};
    use rustix::param::page_size;
    use std::ops::Range;
    use std::ptr::NonNull;

    /// Gives the whole pages in a range of bytes back to the system. Without effect if the system
    /// refuses, for example because the program has locked its memory.
    ///
    /// # Safety
    /// The range lies in an allocation that begins at `start`, aligned to all sizes of pages up to
    /// its own size; its memory has no contents.
    pub(super) unsafe fn discard(start: NonNull<u8>, range: Range<usize>) {
        // The system's pages may be larger than ours, and it would round the range up.
        let from = range.start.next_multiple_of(page_size());
        let to = range.end - range.end % page_size();
        if from < to {
            // SAFETY: by the contract, the memory is the caller's and has no contents.
            let _ = unsafe {
                madvise(start.add(from).as_ptr().cast(), to - from, Advice::LinuxDontNeed)
            };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::ops::Range;
    use std::ptr::NonNull;

    /// Without effect: only whole chunks go back to this system.
    pub(super) unsafe fn discard(_: NonNull<u8>, _: Range<usize>) {}
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use std::collections::BTreeSet;

    fn lend_all(chunk: Chunk) -> Vec<NonNull<u8>> {
        let (mut chunk, mut blocks) = (Some(chunk), Vec::new());
        while let Some(some) = chunk {
            let mut magazine = Magazine::new();
            chunk = some.lend(&mut magazine, 8);
            blocks.extend(std::iter::from_fn(|| magazine.pop()));
        }
        blocks.sort_unstable();
        blocks
    }

    /// Parks blocks that are lent, and returns their chunk if it had no parked block before.
    fn park_all(blocks: impl IntoIterator<Item = NonNull<u8>>) -> Option<Chunk> {
        let mut chunk = None;
        for block in blocks {
            // SAFETY: the test owns the block and the only `Chunk`, which it does not use meanwhile.
            if let Some(first) = unsafe { park(block) } {
                assert!(chunk.replace(first).is_none(), "a chunk has a single owner");
            }
        }
        chunk
    }

    #[test]
    fn every_block_is_lent_once_and_parked_blocks_make_the_chunk_whole() {
        for bytes in [64, 192, 384, 1024, 4096] {
            let chunk = Chunk::allocate(bytes);
            assert!(chunk.is_whole() && !chunk.is_changed());
            let start = chunk.0.addr().get();
            let blocks = lend_all(chunk);
            assert_eq!(blocks.len(), BLOCKS_BYTES / bytes);
            let mut free_from = start + HEAD_BYTES;
            for block in &blocks {
                let address = block.addr().get();
                assert!(address.is_multiple_of(64) && address >= free_from);
                free_from = address + bytes;
                // SAFETY: the block is lent to this test and so many bytes long.
                unsafe { block.write_bytes(1, bytes) };
            }
            assert!(free_from <= start + CHUNK_BYTES);
            let odd = blocks.iter().skip(1).step_by(2);
            let chunk = park_all(blocks.iter().step_by(2).chain(odd).copied()).expect("is new");
            assert!(chunk.is_whole() && chunk.is_changed());
            chunk.free();
        }
    }

    #[test]
    fn only_pages_in_which_all_blocks_are_parked_are_discarded() {
        for bytes in [64, 192, 384, 1024, 2048, 4096] {
            let blocks = lend_all(Chunk::allocate(bytes));
            for (stamp, block) in blocks.iter().enumerate() {
                // SAFETY: the block is lent to this test and so many bytes long.
                unsafe { block.write_bytes(stamp as u8, bytes) };
            }
            let all = || blocks.iter().copied().enumerate();
            let is_kept = |index| index % 130 == 7;
            let mut chunk =
                park_all(all().filter(|&(index, _)| !is_kept(index)).map(|(_, block)| block))
                    .expect("is new");
            assert!(chunk.resident_bytes() >= BLOCKS_BYTES - PAGE_BYTES, "all pages were lent");
            chunk.discard_pages();
            let kept = || all().filter(|&(index, _)| is_kept(index));
            let pages: BTreeSet<_> = kept().flat_map(|(index, _)| pages(index, bytes)).collect();
            assert_eq!(chunk.resident_bytes(), pages.len() * PAGE_BYTES);
            for (stamp, block) in kept() {
                // SAFETY: the block is still lent to this test, which wrote all of its bytes.
                let (first, last) = unsafe { (block.read(), block.add(bytes - 1).read()) };
                assert_eq!((first, last), (stamp as u8, stamp as u8));
            }
            assert!(park_all(kept().map(|(_, block)| block)).is_none());
            chunk.free();
        }
    }

    #[test]
    #[should_panic(expected = "a block of it is lent")]
    #[cfg_attr(miri, ignore = "leaks the chunk")]
    fn a_chunk_with_a_lent_block_is_not_freed() {
        let mut magazine = Magazine::new();
        let chunk = Chunk::allocate(64).lend(&mut magazine, 1).expect("has more blocks");
        chunk.free();
    }
}
