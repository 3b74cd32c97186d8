//! Memory for messages and for turns under way: pooled blocks in a few sizes.
//!
//! Each thread has a cache of its own; see `magazine`. Blocks are 64-byte aligned, which a
//! mailbox word relies on, and are never given back to the system: what a burst of messages took
//! serves the next burst. The pool is the one thing here that outlives every runtime, for it is
//! an allocator and not a part of any of them. Under Miri each block is an allocation of its own,
//! so that a use after free is seen.

use crate::memory::magazine::{Cache, Magazine};
use crate::memory::spare_bits::{NoSpareBits, check_spare_bits, require_spare_bits};
use crate::sync::{Mutex, lock};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// The sizes that are pooled; larger blocks go to the system. Finer where a million suspended turns
/// lie, as slots are.
const CLASS_BYTES: [usize; 9] = [64, 128, 192, 256, 384, 512, 1024, 2048, 4096];
const CLASSES: usize = CLASS_BYTES.len();
const LARGEST: usize = CLASS_BYTES[CLASSES - 1];
const ALIGNMENT: usize = 64;
/// What a class takes from the system at once. A multiple of a page, and small enough that nine
/// sizes cost an idle program nothing worth counting. Where a size does not divide it, less than a
/// block is left over.
const CHUNK_BYTES: usize = 64 * 1024;

const fn class_bytes(class: usize) -> usize {
    CLASS_BYTES[class]
}

/// The class for a size, by how many times the alignment it is. A table, so that a size known to the
/// compiler is a class known to it.
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

/// The class whose blocks hold `layout`, or `None` if that is more than the pool has.
#[inline(always)]
const fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > ALIGNMENT || layout.size() > LARGEST || cfg!(miri) {
        return None;
    }
    Some(CLASS_BY_UNITS[layout.size().div_ceil(ALIGNMENT)] as usize)
}

/// What a block for `layout` takes.
pub(crate) const fn bytes(layout: Layout) -> usize {
    match class_of(layout) {
        Some(class) => class_bytes(class),
        None => layout.size().next_multiple_of(ALIGNMENT),
    }
}

/// The layout of a block from the system for what the pool does not serve.
fn single(layout: Layout) -> Layout {
    // Never fails: sizes here are those of real types, which leave room for rounding up.
    layout.align_to(ALIGNMENT).map_or(layout, |aligned| aligned.pad_to_align())
}

/// A block with room for `layout`, at least 64-byte aligned. Aborts when memory is out.
#[inline(always)]
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    match class_of(layout) {
        Some(class) => allocate_pooled(class),
        None => allocate_single(single(layout)),
    }
}

/// # Safety
/// The block came from [`allocate`] with this very layout and is not used any more.
#[inline(always)]
pub(crate) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    match class_of(layout) {
        Some(class) => free_pooled(block, class),
        // SAFETY: passed on.
        None => unsafe { dealloc(block.as_ptr(), single(layout)) },
    }
}

#[inline(always)]
fn allocate_pooled(class: usize) -> NonNull<u8> {
    CACHES
        .try_with(|caches| {
            // SAFETY: this thread's alone, and nothing below comes back here.
            let caches = unsafe { &mut *caches.0.get() };
            caches[class].pop(|| refill(class))
        })
        .unwrap_or_else(|_| allocate_without_cache(class))
}

/// For a thread that is ending and has no cache any more.
#[cold]
fn allocate_without_cache(class: usize) -> NonNull<u8> {
    let mut magazine = refill(class);
    let block = magazine.pop().expect("a refill brings at least one block");
    give_back(class, [magazine]);
    block
}

#[inline(always)]
fn free_pooled(block: NonNull<u8>, class: usize) {
    let kept = CACHES.try_with(|caches| {
        // SAFETY: this thread's alone, and nothing below comes back here.
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
    depot.magazines.extend(magazines.into_iter().filter(|magazine| !magazine.is_empty()));
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

struct Depot {
    magazines: Vec<Magazine>,
    /// The rest of the chunk being cut up.
    uncut: Option<NonNull<u8>>,
    uncut_bytes: usize,
}

// SAFETY: the depot owns what it points to.
unsafe impl Send for Depot {}

static DEPOTS: [Mutex<Depot>; CLASSES] =
    [const { Mutex::new(Depot { magazines: Vec::new(), uncut: None, uncut_bytes: 0 }) }; CLASSES];

#[cold]
fn refill(class: usize) -> Magazine {
    let bytes = class_bytes(class);
    let mut depot = lock(&DEPOTS[class]);
    if let Some(magazine) = depot.magazines.pop() {
        return magazine;
    }
    let mut magazine = Magazine::new();
    for _ in 0..Magazine::full(bytes) {
        let block = match depot.uncut {
            Some(block) if depot.uncut_bytes >= bytes => block,
            _ => {
                depot.uncut_bytes = CHUNK_BYTES;
                // SAFETY: neither zero-sized nor misaligned; never freed.
                allocate_single(unsafe {
                    Layout::from_size_align_unchecked(CHUNK_BYTES, ALIGNMENT)
                })
            }
        };
        depot.uncut_bytes -= bytes;
        // SAFETY: inside the chunk, or one past its end and then not used.
        depot.uncut = Some(unsafe { block.add(bytes) });
        magazine.push(block);
    }
    magazine
}

fn allocate_single(layout: Layout) -> NonNull<u8> {
    // SAFETY: no block is zero-sized, for `single` pads to the alignment and messages have heads.
    let block =
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    require_spare_bits(block, layout.size());
    block
}

/// Takes a piece of memory from the system to see whether mailboxes can point to it.
///
/// # Errors
/// They cannot.
pub(crate) fn probe() -> Result<(), NoSpareBits> {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: not zero-sized; freed below, with the same layout.
    let block =
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    let checked = check_spare_bits(block.as_ptr(), layout.size());
    // SAFETY: allocated above.
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
                    // SAFETY: ours, `bytes` long.
                    unsafe { block.write_bytes(fill, bytes) };
                    block
                })
                .collect();
            for (fill, block) in (0..).zip(blocks) {
                // SAFETY: ours, written above, freed once.
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
        // SAFETY: a block belongs to whoever holds it.
        unsafe impl Send for Owned {}
        let blocks: Vec<_> = (0..1000).map(|_| Owned(allocate(layout))).collect();
        std::thread::spawn(move || {
            for block in blocks {
                let Owned(block) = block;
                // SAFETY: handed over by the other thread.
                unsafe { free(block, layout) };
            }
        })
        .join()
        .expect("frees");
    }
}
