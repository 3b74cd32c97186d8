//! Where cells live: slots of a few sizes, cut from segments that are never unmapped.
//!
//! An address is a pointer to a slot plus a generation, with nothing that counts it; so a slot,
//! once it has been one, stays readable as a cell for good. A runtime that ends puts its segments
//! into a process-wide pool, generations and all, and a later runtime takes them from there: an
//! address of the old one finds a generation that has passed, never a stranger and never a hole.
//!
//! | state of a slot | its mailbox word | where it is |
//! |---|---|---|
//! | never cut | zero; nobody has its address | at the end of a segment |
//! | free | `FREE`, generation of the next life | in a magazine |
//! | live | anything else | with its process |
//! | used up | `FREE`, last generation | nowhere, for ever |
//!
//! Free slots wait in a cache per worker (see `magazine`), so that spawn and exit take no lock.

use crate::cell::{Cell, CellRef};
use crate::magazine::{Cache, Magazine};
use crate::mailbox::Generation;
use crate::sync::{Mutex, lock};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;

/// Slot sizes in bytes. A process whose state does not fit the largest keeps it in a box.
pub(crate) const SLOT_BYTES: [usize; 8] = [64, 128, 192, 256, 384, 512, 1024, 2048];
const SLOT_ALIGNMENT: usize = 64;
/// Large enough that the system's bookkeeping per segment is nothing, small enough that a test
/// with three processes costs little address space. Untouched pages cost no memory.
const SEGMENT_BYTES: usize = if cfg!(miri) { 16 * 1024 } else { 1024 * 1024 };

/// Which of [`SLOT_BYTES`] a process takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotClass(pub(crate) u8);

impl SlotClass {
    /// The smallest class that holds so much, if any does.
    pub(crate) const fn fitting(bytes: usize) -> Option<SlotClass> {
        let mut class = 0;
        while class < SLOT_BYTES.len() {
            if bytes <= SLOT_BYTES[class] {
                return Some(SlotClass(class as u8));
            }
            class += 1;
        }
        None
    }

    const fn bytes(self) -> usize {
        SLOT_BYTES[self.0 as usize]
    }
}

/// Caches for all slot sizes, for one thread at a time.
pub(crate) struct SlotCache([Cache; SLOT_BYTES.len()]);

impl SlotCache {
    pub(crate) const fn new() -> SlotCache {
        SlotCache([const { Cache::new() }; SLOT_BYTES.len()])
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, slab: &Slab, class: SlotClass) -> NonNull<Cell> {
        self.0[class.0 as usize].pop(|| slab.refill(class)).cast()
    }

    /// Frees a slot whose mailbox is closed; one that is used up is let go.
    ///
    /// # Safety
    /// The slot came from `take` of this slab and class, and nobody holds its token.
    #[inline(always)]
    pub(crate) unsafe fn give(&mut self, slab: &Slab, class: SlotClass, slot: NonNull<Cell>) {
        // SAFETY: slots stay readable.
        let (generation, live) = unsafe { slot.as_ref() }.mailbox.peek();
        debug_assert!(!live);
        if generation == Generation::LAST {
            return;
        }
        let full = Magazine::full(class.bytes());
        let give_back = |magazine| slab.give_back(class, magazine);
        self.0[class.0 as usize].push(slot.cast(), full, give_back);
    }

    /// Returns everything to the slab, as the cache's thread ends.
    pub(crate) fn drain(&mut self, slab: &Slab) {
        for (class, cache) in self.0.iter_mut().enumerate() {
            for magazine in cache.drain() {
                slab.give_back(SlotClass(class as u8), magazine);
            }
        }
    }
}

/// All slots of one runtime.
pub(crate) struct Slab {
    classes: [Mutex<ClassSlab>; SLOT_BYTES.len()],
}

struct ClassSlab {
    free: Vec<Magazine>,
    segments: Vec<Segment>,
}

impl Slab {
    pub(crate) fn new() -> Slab {
        Slab {
            classes: [const { Mutex::new(ClassSlab { free: Vec::new(), segments: Vec::new() }) };
                SLOT_BYTES.len()],
        }
    }

    /// Calls `visit` with each slot that has ever been used. Slots may change meanwhile.
    pub(crate) fn for_each_slot(&self, mut visit: impl FnMut(CellRef)) {
        for class in (0..SLOT_BYTES.len()).map(|class| SlotClass(class as u8)) {
            let mut index = 0;
            // The lock is held only to look up where a segment is, not while visiting.
            while let Some((start, cut)) = self.segment(class, index) {
                for slot in 0..cut {
                    // SAFETY: inside the segment, and cut.
                    visit(unsafe { CellRef::new(start.byte_add(slot * class.bytes())) });
                }
                index += 1;
            }
        }
    }

    fn segment(&self, class: SlotClass, index: usize) -> Option<(NonNull<Cell>, usize)> {
        let slab = lock(&self.classes[class.0 as usize]);
        slab.segments.get(index).map(|segment| (segment.start, segment.cut))
    }

    #[cold]
    fn refill(&self, class: SlotClass) -> Magazine {
        let mut slab = lock(&self.classes[class.0 as usize]);
        if let Some(magazine) = slab.free.pop() {
            return magazine;
        }
        loop {
            if let Some(segment) = slab.segments.last_mut() {
                let magazine = segment.cut(class);
                if !magazine.is_empty() {
                    return magazine;
                }
            }
            let segment = lock(&POOL[class.0 as usize]).pop().unwrap_or_else(Segment::allocate);
            slab.segments.push(segment);
        }
    }

    fn give_back(&self, class: SlotClass, magazine: Magazine) {
        lock(&self.classes[class.0 as usize]).free.push(magazine);
    }
}

impl Drop for Slab {
    /// Passes the segments on. One in which a process was abandoned alive is never used again.
    fn drop(&mut self) {
        for (class, slab) in self.classes.iter_mut().enumerate() {
            let slab = slab.get_mut().unwrap_or_else(crate::sync::PoisonError::into_inner);
            for mut segment in slab.segments.drain(..) {
                if segment.is_free(SlotClass(class as u8)) {
                    segment.used = segment.used.max(segment.cut);
                    segment.cut = 0;
                    lock(&POOL[class]).push(segment);
                }
            }
        }
    }
}

/// Segments that no runtime uses at present, by slot class.
static POOL: [Mutex<Vec<Segment>>; SLOT_BYTES.len()] =
    [const { Mutex::new(Vec::new()) }; SLOT_BYTES.len()];

struct Segment {
    start: NonNull<Cell>,
    /// How many slots this runtime has handed out at least once.
    cut: usize,
    /// How many slots hold a generation that an earlier runtime has left there.
    used: usize,
}

// SAFETY: a segment owns its memory; the cells in it are made to be shared.
unsafe impl Send for Segment {}

impl Segment {
    fn allocate() -> Segment {
        // The system hands out zeroed pages without touching them, but only for an alignment it
        // gives anyway; so align by hand.
        const LAYOUT: Layout = match Layout::from_size_align(SEGMENT_BYTES + SLOT_ALIGNMENT, 16) {
            Ok(layout) => layout,
            Err(_) => panic!("a segment has a layout"),
        };
        // SAFETY: not zero-sized.
        let memory = NonNull::new(unsafe { alloc_zeroed(LAYOUT) })
            .unwrap_or_else(|| handle_alloc_error(LAYOUT));
        // SAFETY: fewer than SLOT_ALIGNMENT bytes on, inside the allocation.
        let start = unsafe { memory.add(memory.as_ptr().align_offset(SLOT_ALIGNMENT)) };
        Segment { start: start.cast(), cut: 0, used: 0 }
    }

    fn slot(&self, class: SlotClass, index: usize) -> NonNull<Cell> {
        // SAFETY: indices are below the segment's slot count.
        unsafe { self.start.byte_add(index * class.bytes()) }
    }

    /// Hands out the next slots; none when the segment is used up.
    fn cut(&mut self, class: SlotClass) -> Magazine {
        let mut magazine = Magazine::new();
        let end = (self.cut + Magazine::full(class.bytes())).min(SEGMENT_BYTES / class.bytes());
        for index in (self.cut..end).rev() {
            let slot = self.slot(class, index);
            // SAFETY: zeroed memory is a cell's header before its first life.
            let mailbox = unsafe { &slot.as_ref().mailbox };
            if index >= self.used {
                mailbox.set_free(Generation::FIRST);
            } else if mailbox.peek().0 == Generation::LAST {
                continue;
            }
            magazine.push(slot.cast());
        }
        self.cut = end;
        if magazine.is_empty() && end < SEGMENT_BYTES / class.bytes() {
            return self.cut(class);
        }
        magazine
    }

    fn is_free(&self, class: SlotClass) -> bool {
        (0..self.cut).all(|index| {
            // SAFETY: cut slots are cells.
            !unsafe { self.slot(class, index).as_ref() }.mailbox.peek().1
        })
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slots_are_distinct_and_freed_ones_come_back_first() {
        let slab = Slab::new();
        let mut cache = SlotCache::new();
        let class = SlotClass::fitting(100).expect("small");
        let count = 3 * SEGMENT_BYTES / class.bytes() / 2;
        let slots: Vec<_> = (0..count).map(|_| cache.take(&slab, class)).collect();
        assert_eq!(slots.iter().collect::<HashSet<_>>().len(), count);
        let mut seen = 0;
        slab.for_each_slot(|_| seen += 1);
        assert!(seen >= count);
        for &slot in &slots {
            // SAFETY: taken above, never opened.
            unsafe { cache.give(&slab, class, slot) };
        }
        let again: HashSet<_> = (0..count).map(|_| cache.take(&slab, class)).collect();
        assert_eq!(again, slots.into_iter().collect());
        for slot in again {
            // SAFETY: as above.
            unsafe { cache.give(&slab, class, slot) };
        }
        cache.drain(&slab);
    }

    #[test]
    fn a_used_up_slot_is_never_handed_out_again() {
        let slab = Slab::new();
        let mut cache = SlotCache::new();
        let class = SlotClass::fitting(64).expect("small");
        let slot = cache.take(&slab, class);
        // SAFETY: ours.
        unsafe {
            slot.as_ref().mailbox.set_free(Generation::LAST);
            cache.give(&slab, class, slot);
        }
        let others: Vec<_> = (0..200).map(|_| cache.take(&slab, class)).collect();
        assert!(!others.contains(&slot));
    }
}
