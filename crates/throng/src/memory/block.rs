//! Memory for messages and for turns under way: pooled blocks in a few sizes.
//!
//! Each thread has a cache of its own; see `magazine`. Blocks are 64-byte aligned, which a mailbox
//! word relies on. The pool belongs to no runtime and outlives them all, as an allocator does. Under
//! Miri each block is an allocation of its own, so that Miri detects a use after free.
//!
//! Blocks that no thread has needed for a few seconds go back to the system; see `depot`. This stays
//! resident:
//!
//! - the blocks of two magazines per class in the cache of each thread, also of a worker that
//!   sleeps: at most 8 KiB of blocks in the classes up to 512 bytes, and 16, 32 and 64 KiB in the
//!   larger three. The blocks may lie in as many pages;
//! - pages in which a block is in use, and one page of head for each chunk with such a page;
//! - after the last runtime of the program, the blocks that were free at its end, for the next one.

use crate::memory::depot::{Depot, Scavenger};
use crate::memory::magazine::{Cache, Magazine};
use crate::memory::spare_bits::{NoSpareBits, check_spare_bits, require_spare_bits};
use crate::sync::{Mutex, lock};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::time::Duration;

/// Pooled block sizes in bytes; larger blocks come from the system. Finer in the range of suspended
/// turns, of which there may be a million; slot sizes are the same there.
const CLASS_BYTES: [usize; 9] = [64, 128, 192, 256, 384, 512, 1024, 2048, 4096];
const CLASSES: usize = CLASS_BYTES.len();
const LARGEST: usize = CLASS_BYTES[CLASSES - 1];
const ALIGNMENT: usize = 64;

const fn class_bytes(class: usize) -> usize {
    CLASS_BYTES[class]
}

/// Class of each size, by the size in units of the alignment. A table, so that a size known at
/// compile time gives a class known at compile time.
const CLASS_BY_UNITS: [u8; LARGEST / ALIGNMENT + 1] = {
    let mut table = [0; LARGEST / ALIGNMENT + 1];
    let (mut units, mut class) = (1, 0);
    while units < table.len() {
        if units * ALIGNMENT > CLASS_BYTES[class] {
            class += 1;
        }
        table[units] = class as u8;
        units += 1;
    }
    table
};

/// Returns the class whose blocks hold `layout`, or `None` if the pool has no such block.
#[cfg_attr(not(debug_assertions), inline(always))]
const fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > ALIGNMENT || layout.size() > LARGEST || cfg!(miri) {
        return None;
    }
    Some(CLASS_BY_UNITS[layout.size().div_ceil(ALIGNMENT)] as usize)
}

pub(crate) const fn bytes(layout: Layout) -> usize {
    match class_of(layout) {
        Some(class) => class_bytes(class),
        None => layout.size().next_multiple_of(ALIGNMENT),
    }
}

/// Returns the layout of a block from the system, for a layout that the pool does not serve.
fn single(layout: Layout) -> Layout {
    // Never fails: these are sizes of real types, which leave room for rounding up.
    layout.align_to(ALIGNMENT).map_or(layout, |aligned| aligned.pad_to_align())
}

/// Whether a block allocated for one layout may be used, and freed, as a block for the other.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) const fn is_same_size(one: Layout, other: Layout) -> bool {
    match (class_of(one), class_of(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Allocates a block with room for `layout`, at least 64-byte aligned. Aborts if the system is out
/// of memory.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    match class_of(layout) {
        Some(class) => allocate_pooled(class),
        None => allocate_single(single(layout)),
    }
}

/// Frees a block.
///
/// # Safety
/// The block came from [`allocate`] with the same layout and is not used any more.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    match class_of(layout) {
        Some(class) => free_pooled(block, class),
        // SAFETY: by the contract the block came from `allocate_single` with this layout.
        None => unsafe { dealloc(block.as_ptr(), single(layout)) },
    }
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn allocate_pooled(class: usize) -> NonNull<u8> {
    CACHES
        .try_with(|caches| {
            // SAFETY: the caches are this thread's alone, and `refill` does not come back here.
            let caches = unsafe { &mut *caches.0.get() };
            caches[class].pop(|| refill(class))
        })
        .unwrap_or_else(|_| allocate_without_cache(class))
}

/// Allocates a block for a thread that is ending and whose cache has been dropped.
#[cold]
fn allocate_without_cache(class: usize) -> NonNull<u8> {
    let mut magazine = refill(class);
    let block = magazine.pop().expect("a refill brings at least one block");
    give_back(class, [magazine]);
    block
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn free_pooled(block: NonNull<u8>, class: usize) {
    let kept = CACHES.try_with(|caches| {
        // SAFETY: the caches are this thread's alone, and `give_back` does not come back here.
        let caches = unsafe { &mut *caches.0.get() };
        let full = Magazine::full(class_bytes(class));
        caches[class].push(block, full, |magazine| give_back(class, [magazine]));
    });
    if kept.is_err() {
        let mut magazine = Magazine::new();
        magazine.push(block);
        give_back(class, [magazine]);
    }
}

fn give_back(class: usize, magazines: impl IntoIterator<Item = Magazine>) {
    let mut depot = lock(&DEPOTS[class]);
    magazines.into_iter().for_each(|magazine| depot.give_back(magazine));
}

struct Caches(UnsafeCell<[Cache; CLASSES]>);

impl Drop for Caches {
    fn drop(&mut self) {
        for (class, cache) in self.0.get_mut().iter_mut().enumerate() {
            give_back(class, cache.drain());
        }
    }
}

thread_local! {
    static CACHES: Caches = const { Caches(UnsafeCell::new([const { Cache::new() }; CLASSES])) };
}

static DEPOTS: [Mutex<Depot>; CLASSES] = [const { Mutex::new(Depot::new()) }; CLASSES];

static SCAVENGER: Mutex<Scavenger> = Mutex::new(Scavenger::new());

#[cold]
fn refill(class: usize) -> Magazine {
    lock(&DEPOTS[class]).refill(class_bytes(class))
}

/// Returns the bytes of the pooled blocks that are in use, or free in the cache of a thread.
pub(crate) fn lent_bytes() -> u64 {
    let lent = |(depot, bytes): (&Mutex<Depot>, usize)| (lock(depot).lent() * bytes) as u64;
    DEPOTS.iter().zip(CLASS_BYTES).map(lent).sum()
}

/// Does a step of giving unneeded memory back to the system; false if there is nothing to do at
/// present. For the clock threads, while anything is awake.
pub(crate) fn scavenge() -> bool {
    lock(&SCAVENGER).advance(&DEPOTS)
}

/// Returns the time until a clock thread should call [`scavenge`] again although all workers sleep;
/// `None` if there is no need.
pub(crate) fn scavenge_in() -> Option<Duration> {
    lock(&SCAVENGER).due(&DEPOTS)
}

fn allocate_single(layout: Layout) -> NonNull<u8> {
    // SAFETY: the size is not zero, because messages, turns and timers begin with a header.
    let block =
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    require_spare_bits(block, layout.size());
    block
}

/// Takes a piece of memory from the system to check whether mailboxes can point to it.
///
/// # Errors
/// [`NoSpareBits`] if they cannot.
pub(crate) fn probe() -> Result<(), NoSpareBits> {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the size is not zero.
    let block =
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    let checked = check_spare_bits(block.as_ptr(), layout.size());
    // SAFETY: the block was allocated above with the same layout.
    unsafe { dealloc(block.as_ptr(), layout) };
    checked
}

#[cfg(test)]
mod tests_miri {
    use super::*;

    #[test]
    fn classes_are_the_smallest_that_fit() {
        if cfg!(miri) {
            return;
        }
        let class = |bytes| class_of(Layout::from_size_align(bytes, 8).expect("small"));
        assert_eq!([1, 64, 65, 128, 129, 257, 4096].map(class), [0, 0, 1, 1, 2, 4, 8].map(Some));
        assert!(CLASS_BYTES.is_sorted() && CLASS_BYTES.iter().all(|bytes| bytes % ALIGNMENT == 0));
        assert_eq!(class(4097), None);
    }

    #[test]
    fn blocks_are_distinct_aligned_and_writable_to_the_end() {
        for bytes in [16, 64, 100, 192, 300, 4096, 5000] {
            let layout = Layout::from_size_align(bytes, 16).expect("small");
            let blocks: Vec<_> = (0..200_u8)
                .map(|fill| {
                    let block = allocate(layout);
                    assert_eq!(block.as_ptr().addr() % ALIGNMENT, 0);
                    // SAFETY: the block was just allocated and is `bytes` long.
                    unsafe { block.write_bytes(fill, bytes) };
                    block
                })
                .collect();
            for (fill, block) in (0..).zip(blocks) {
                // SAFETY: the block was allocated and written above, and is freed once.
                unsafe {
                    assert_eq!((block.read(), block.add(bytes - 1).read()), (fill, fill));
                    free(block, layout);
                }
            }
        }
    }

    #[test]
    fn blocks_freed_elsewhere_come_back_through_the_depot() {
        let layout = Layout::from_size_align(64, 8).expect("small");
        struct Owned(NonNull<u8>);
        // SAFETY: the value owns its block.
        unsafe impl Send for Owned {}
        let blocks: Vec<_> = (0..1000).map(|_| Owned(allocate(layout))).collect();
        std::thread::spawn(move || {
            for block in blocks {
                let Owned(block) = block;
                // SAFETY: the other thread allocated the block with this layout and handed it over.
                unsafe { free(block, layout) };
            }
        })
        .join()
        .expect("frees");
    }
}
