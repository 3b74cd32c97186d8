//! Memory of cells: slots of a few sizes, cut from segments that are never unmapped.
//!
//! An address is a pointer to a slot plus a generation, without a reference count; so a slot that
//! has been handed out stays readable as a cell for good. A runtime that ends puts its segments
//! into a process-wide pool, including their generations, and a later runtime takes them from
//! there: an address of the old runtime finds a different generation, never another process and
//! never unmapped memory.
//!
//! | state of a slot | its mailbox word | its place |
//! |---|---|---|
//! | never cut | zero; no address leads to it | at the end of a segment |
//! | free | `FREE`, generation of the next process | in a magazine |
//! | live | any other | with its process |
//! | used up | `FREE`, last generation | none, for ever |
//!
//! Free slots wait in a cache per worker (see `magazine`), so that spawn and exit take no lock.
//!
//! A segment is aligned to its size and begins with a *head*, which is found from any address
//! without touching its cell. The head's fields are atomics, for stale addresses read them, too.
//! The budget, table and queues that they point to are never freed:
//!
//! | field | set | by |
//! |---|---|---|
//! | budget | as a runtime takes the segment | that runtime, before it cuts a slot |
//! | slot bytes | once, as the segment is given its class | the first runtime |
//! | table of bounded queues | once, for the segment's first bounded process | the first spawner |
//! | a slot's bounded queue, in this table | once, for the slot's first bounded process | its spawner |

use crate::cell::{Cell, CellRef};
use crate::mailbox::Generation;
use crate::mailbox::bounded::BoundedQueue;
use crate::mailbox::budget::Budget;
use crate::memory::magazine::{Cache, Magazine};
use crate::memory::spare_bits::require_spare_bits;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sync::{Mutex, lock};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Slot sizes in bytes. A process whose state does not fit the largest keeps it in a box.
pub(crate) const SLOT_BYTES: [usize; 8] = [64, 128, 192, 256, 384, 512, 1024, 2048];
/// Number of slots in a magazine, by class: a table, because an exit would have to divide for it.
const FULL: [usize; SLOT_BYTES.len()] = {
    let mut full = [0; SLOT_BYTES.len()];
    let mut class = 0;
    while class < full.len() {
        full[class] = Magazine::full(SLOT_BYTES[class]);
        class += 1;
    }
    full
};
const HEAD_BYTES: usize = 64;
/// Size of a segment: large enough that the system's bookkeeping per segment is negligible, small
/// enough that a test with three processes costs little address space. Untouched pages cost no
/// memory.
const SEGMENT_BYTES: usize = if cfg!(miri) { 16 * 1024 } else { 1024 * 1024 };
/// Number of segments taken from the system at once; the space of another is lost to alignment.
const SEGMENTS_PER_CHUNK: usize = if cfg!(miri) { 2 } else { 16 };

/// Slot size of a process: an index into [`SLOT_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotClass(pub(crate) u8);

impl SlotClass {
    /// Returns the smallest class that holds this many bytes, if any does.
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

    pub(crate) const fn bytes(self) -> usize {
        SLOT_BYTES[self.0 as usize]
    }

    const fn slots_per_segment(self) -> usize {
        (SEGMENT_BYTES - HEAD_BYTES) / self.bytes()
    }
}

/// Position of an iteration over the slots of a slab.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SlotPlace {
    class: u8,
    segment: usize,
    slot: usize,
}

/// Caches for all slot sizes, used by one thread at a time.
pub(crate) struct SlotCache([Cache; SLOT_BYTES.len()]);

impl SlotCache {
    pub(crate) const fn new() -> SlotCache {
        SlotCache([const { Cache::new() }; SLOT_BYTES.len()])
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, slab: &Slab, class: SlotClass) -> NonNull<Cell> {
        self.0[class.0 as usize].pop(|| slab.refill(class)).cast()
    }

    /// Frees a slot whose mailbox is closed, with the generation of the next process; a slot that
    /// is used up is abandoned.
    ///
    /// # Safety
    /// The slot came from `take` with this slab and class, and no thread holds its token.
    #[inline(always)]
    pub(crate) unsafe fn give(
        &mut self,
        slab: &Slab,
        class: SlotClass,
        slot: NonNull<Cell>,
        next: Generation,
    ) {
        if next.is_last() {
            return;
        }
        let full = FULL[class.0 as usize];
        let give_back = |magazine| slab.give_back(class, magazine);
        self.0[class.0 as usize].push(slot.cast(), full, give_back);
    }

    /// Returns all slots to the slab, as the cache's thread ends.
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
    budget: &'static Budget,
    classes: [Mutex<ClassSlab>; SLOT_BYTES.len()],
}

#[derive(Default)]
struct ClassSlab {
    free: Vec<Magazine>,
    segments: Vec<Segment>,
    /// Number of slots that the caches have taken and not given back.
    lent: usize,
}

impl Slab {
    pub(crate) fn new(budget: &'static Budget) -> Slab {
        Slab { budget, classes: Default::default() }
    }

    /// Returns the bytes of the slots that hold processes, and of the free slots in the caches of the threads.
    pub(crate) fn lent_bytes(&self) -> u64 {
        let lent = |(slab, bytes): (&Mutex<ClassSlab>, usize)| (lock(slab).lent * bytes) as u64;
        self.classes.iter().zip(SLOT_BYTES).map(lent).sum()
    }

    /// Calls `visit` with each slot that has ever been used. Slots may change meanwhile.
    pub(crate) fn for_each_slot(&self, mut visit: impl FnMut(CellRef)) {
        for class in (0..SLOT_BYTES.len()).map(|class| SlotClass(class as u8)) {
            let mut index = 0;
            // The lock is held only to look up a segment's address, not while visiting.
            while let Some((start, cut)) = self.segment(class, index) {
                for slot in 0..cut {
                    // SAFETY: `segment` looked in the list of this class, and the slot's index is
                    // below `cut`.
                    visit(unsafe { CellRef::new(slot_at(start, class, slot)) });
                }
                index += 1;
            }
        }
    }

    /// Returns the slot that begins at a memory address, if there is such a slot.
    pub(crate) fn find(&self, address: usize) -> Option<CellRef> {
        (0..SLOT_BYTES.len()).map(|class| SlotClass(class as u8)).find_map(|class| {
            let slab = lock(&self.classes[class.0 as usize]);
            slab.segments.iter().find_map(|segment| {
                let first = segment.slot(class, 0).addr().get();
                let offset = address.checked_sub(first)?;
                let (index, beyond) = (offset / class.bytes(), offset % class.bytes());
                // SAFETY: the segment is in the list of this class, and `index` is below `cut`.
                (beyond == 0 && index < segment.cut)
                    .then(|| unsafe { CellRef::new(segment.slot(class, index)) })
            })
        })
    }

    /// Returns the first slot at or after a place, and the place after that slot.
    pub(crate) fn slot(&self, mut place: SlotPlace) -> Option<(CellRef, SlotPlace)> {
        while (place.class as usize) < SLOT_BYTES.len() {
            let class = SlotClass(place.class);
            match self.segment(class, place.segment) {
                None => place = SlotPlace { class: place.class + 1, segment: 0, slot: 0 },
                Some((_, cut)) if place.slot >= cut => {
                    place = SlotPlace { segment: place.segment + 1, slot: 0, ..place };
                }
                Some((start, _)) => {
                    // SAFETY: `segment` looked in the list of this class, and by the arm above
                    // `place.slot` is below `cut`.
                    let cell = unsafe { CellRef::new(slot_at(start, class, place.slot)) };
                    return Some((cell, SlotPlace { slot: place.slot + 1, ..place }));
                }
            }
        }
        None
    }

    fn segment(&self, class: SlotClass, index: usize) -> Option<(NonNull<Head>, usize)> {
        let slab = lock(&self.classes[class.0 as usize]);
        slab.segments.get(index).map(|segment| (segment.start, segment.cut))
    }

    #[cold]
    fn refill(&self, class: SlotClass) -> Magazine {
        let mut slab = lock(&self.classes[class.0 as usize]);
        let magazine = slab.free.pop().unwrap_or_else(|| self.cut(&mut slab, class));
        slab.lent += magazine.len();
        magazine
    }

    fn cut(&self, slab: &mut ClassSlab, class: SlotClass) -> Magazine {
        loop {
            if let Some(segment) = slab.segments.last_mut() {
                let magazine = segment.cut(class);
                if !magazine.is_empty() {
                    return magazine;
                }
            }
            let pooled = lock(&POOL[class.0 as usize]).pop();
            let segment = pooled.unwrap_or_else(|| Segment::allocate(class));
            segment.head().budget.store(ptr::from_ref(self.budget).cast_mut(), Ordering::Release);
            slab.segments.push(segment);
        }
    }

    fn give_back(&self, class: SlotClass, magazine: Magazine) {
        let mut slab = lock(&self.classes[class.0 as usize]);
        // A slot that is used up never comes back, so no more slots come back than were lent.
        slab.lent -= magazine.len();
        slab.free.push(magazine);
    }
}

impl Drop for Slab {
    /// Puts the segments into the pool. A segment in which a process is still alive is never used
    /// again.
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

/// Memory for segments that have no class yet.
static UNUSED: Mutex<Vec<Unused>> = Mutex::new(Vec::new());

/// Zeroed memory for one segment.
struct Unused(NonNull<Head>);

// SAFETY: the value owns its memory: `Unused::allocate` makes one for each piece.
unsafe impl Send for Unused {}

/// Head of a segment, at its beginning; see the file's head.
#[repr(C)]
struct Head {
    budget: AtomicPtr<Budget>,
    bounded_queues: AtomicPtr<AtomicPtr<BoundedQueue>>,
    slot_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Head>() <= HEAD_BYTES);

#[inline(always)]
fn head_of(cell: CellRef) -> &'static Head {
    let cell = cell.as_ptr().as_ptr();
    let head = cell.wrapping_byte_sub(cell.addr() & (SEGMENT_BYTES - 1));
    // SAFETY: a slot's pointer is valid for its whole segment, which is never unmapped, aligned to
    // its size, and begins with a head, whose fields are atomics.
    unsafe { &*head.cast::<Head>() }
}

#[inline(always)]
pub(crate) fn budget_of(cell: CellRef) -> &'static Budget {
    // Acquires the budget's contents, for a stale address may see a budget that was just set.
    // SAFETY: the budget was set before the slot was cut, and budgets are never freed.
    unsafe { &*head_of(cell).budget.load(Ordering::Acquire) }
}

/// Returns the bounded queue of a slot, if the slot ever had a bounded process.
pub(crate) fn bounded_queue_of(cell: CellRef) -> Option<&'static BoundedQueue> {
    // Both loads acquire the contents that `bounded_queue_for` released.
    let bounded_queues = NonNull::new(head_of(cell).bounded_queues.load(Ordering::Acquire))?;
    // SAFETY: the table has an entry for each slot of the segment; tables and bounded queues are
    // never freed.
    unsafe { bounded_queues.add(slot_index(cell)).as_ref().load(Ordering::Acquire).as_ref() }
}

/// Returns the bounded queue of a slot that is about to get a bounded process, and makes the queue
/// if there is none. The caller, the slot's spawner, is the only thread that may do so.
pub(crate) fn bounded_queue_for(cell: CellRef) -> &'static BoundedQueue {
    if let Some(queue) = bounded_queue_of(cell) {
        return queue;
    }
    let head = head_of(cell);
    let bounded_queues = match NonNull::new(head.bounded_queues.load(Ordering::Acquire)) {
        Some(bounded_queues) => bounded_queues,
        None => make_bounded_queues(head),
    };
    let queue: &'static BoundedQueue = Box::leak(Box::new(BoundedQueue::new()));
    // SAFETY: the table has an entry for each slot of the segment, and is never freed.
    let place = unsafe { bounded_queues.add(slot_index(cell)).as_ref() };
    place.store(ptr::from_ref(queue).cast_mut(), Ordering::Release);
    queue
}

#[cold]
fn make_bounded_queues(head: &Head) -> NonNull<AtomicPtr<BoundedQueue>> {
    let slots = SEGMENT_BYTES / head.slot_bytes.load(Ordering::Relaxed) as usize;
    // Never fails: a pointer for each slot of a segment takes little memory.
    let layout = Layout::array::<AtomicPtr<BoundedQueue>>(slots).unwrap_or(Layout::new::<usize>());
    // SAFETY: the size is not zero; zeroed memory is a table of null pointers.
    let made = NonNull::new(unsafe { alloc_zeroed(layout) })
        .unwrap_or_else(|| handle_alloc_error(layout))
        .cast::<AtomicPtr<BoundedQueue>>();
    let none = ptr::null_mut();
    // Releases the zeroes to the threads that acquire the pointer.
    match head.bounded_queues.compare_exchange(
        none,
        made.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => made,
        Err(others) => {
            // SAFETY: the table was made above with this layout, and no other thread has seen it.
            unsafe { dealloc(made.as_ptr().cast(), layout) };
            NonNull::new(others).expect("the exchange failed because a table is there")
        }
    }
}

fn slot_index(cell: CellRef) -> usize {
    let offset = cell.as_ptr().as_ptr().addr() % SEGMENT_BYTES - HEAD_BYTES;
    // Written once, before the first slot was cut.
    offset / head_of(cell).slot_bytes.load(Ordering::Relaxed) as usize
}

/// Returns the slot with this index.
///
/// # Safety
/// `start` is a segment of this class, which has more than `index` slots.
unsafe fn slot_at(start: NonNull<Head>, class: SlotClass, index: usize) -> NonNull<Cell> {
    // SAFETY: by the contract, the slot lies inside the segment.
    unsafe { start.byte_add(HEAD_BYTES + index * class.bytes()).cast() }
}

struct Segment {
    start: NonNull<Head>,
    /// Number of slots that this runtime has handed out at least once.
    cut: usize,
    /// Number of slots that hold a generation left by an earlier runtime.
    used: usize,
}

// SAFETY: a segment owns its memory, and the cells in it may be shared between threads.
unsafe impl Send for Segment {}

impl Segment {
    fn allocate(class: SlotClass) -> Segment {
        let mut unused = lock(&UNUSED);
        if unused.is_empty() {
            unused.extend(Unused::allocate());
        }
        let Unused(start) = unused.pop().expect("a chunk has segments");
        let segment = Segment { start, cut: 0, used: 0 };
        segment.head().slot_bytes.store(class.bytes() as u32, Ordering::Relaxed);
        segment
    }

    fn head(&self) -> &Head {
        // SAFETY: zeroed memory is a head, whose fields are atomics; segments are never unmapped.
        unsafe { self.start.as_ref() }
    }

    fn slot(&self, class: SlotClass, index: usize) -> NonNull<Cell> {
        // SAFETY: the segment is of this class; callers pass indices below its slot count.
        unsafe { slot_at(self.start, class, index) }
    }

    /// Cuts the next slots; returns none if the segment is used up.
    fn cut(&mut self, class: SlotClass) -> Magazine {
        let mut magazine = Magazine::new();
        let slots = class.slots_per_segment();
        let end = (self.cut + FULL[class.0 as usize]).min(slots);
        for index in (self.cut..end).rev() {
            let slot = self.slot(class, index);
            // SAFETY: the slot is in this segment, because `end` is at most `slots`; its memory is
            // a cell from the start, for zeroed memory is the header of a cell before its first
            // process.
            let mailbox = unsafe { &slot.as_ref().mailbox };
            if index >= self.used {
                mailbox.set_free(Generation::FIRST);
            } else if mailbox.peek().0.is_last() {
                continue;
            }
            magazine.push(slot.cast());
        }
        self.cut = end;
        if magazine.is_empty() && end < slots {
            return self.cut(class);
        }
        magazine
    }

    fn is_free(&self, class: SlotClass) -> bool {
        (0..self.cut).all(|index| {
            // SAFETY: the slot has been cut, so it is a cell.
            !unsafe { self.slot(class, index).as_ref() }.mailbox.peek().1
        })
    }
}

impl Unused {
    fn allocate() -> impl Iterator<Item = Unused> {
        // The system hands out zeroed pages without touching them, but only at its own alignment;
        // so the segments are aligned by hand.
        const LAYOUT: Layout =
            match Layout::from_size_align((SEGMENTS_PER_CHUNK + 1) * SEGMENT_BYTES, 16) {
                Ok(layout) => layout,
                Err(_) => panic!("a chunk has a layout"),
            };
        // SAFETY: the size of `LAYOUT` is at least two segments, not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(LAYOUT) })
            .unwrap_or_else(|| handle_alloc_error(LAYOUT));
        require_spare_bits(memory, LAYOUT.size());
        let padding = memory.as_ptr().addr().wrapping_neg() % SEGMENT_BYTES;
        (0..SEGMENTS_PER_CHUNK).map(move |index| {
            // SAFETY: the padding is less than a segment, so this segment ends inside the chunk.
            Unused(unsafe { memory.add(padding + index * SEGMENT_BYTES) }.cast())
        })
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use crate::events::Events;
    use crate::mailbox::bound::{MailboxBound, Overflow};
    use crate::mailbox::budget::OwnBudget;
    use std::collections::HashSet;

    #[test]
    fn slots_are_distinct_and_freed_slots_come_back_first() {
        let slab = Slab::new(OwnBudget::new(0, Events::new()).get());
        let mut cache = SlotCache::new();
        let class = SlotClass::fitting(100).expect("small");
        let count = 3 * class.slots_per_segment() / 2;
        let slots: Vec<_> = (0..count).map(|_| cache.take(&slab, class)).collect();
        assert_eq!(slots.iter().collect::<HashSet<_>>().len(), count);
        let mut seen = 0;
        slab.for_each_slot(|_| seen += 1);
        assert!(seen >= count);
        for &slot in &slots {
            // SAFETY: the slot was taken above and never opened.
            unsafe { cache.give(&slab, class, slot, Generation::FIRST) };
        }
        let again: HashSet<_> = (0..count).map(|_| cache.take(&slab, class)).collect();
        assert_eq!(again, slots.into_iter().collect());
        for slot in again {
            // SAFETY: the slot was taken above and never opened.
            unsafe { cache.give(&slab, class, slot, Generation::FIRST) };
        }
        cache.drain(&slab);
    }

    #[test]
    fn a_used_up_slot_is_never_handed_out_again() {
        let slab = Slab::new(OwnBudget::new(0, Events::new()).get());
        let mut cache = SlotCache::new();
        let class = SlotClass::fitting(64).expect("small");
        let slot = cache.take(&slab, class);
        // SAFETY: the slot was taken above and never opened.
        unsafe {
            slot.as_ref().mailbox.set_free(Generation::LAST);
            cache.give(&slab, class, slot, Generation::LAST);
        }
        let others: Vec<_> = (0..200).map(|_| cache.take(&slab, class)).collect();
        assert!(!others.contains(&slot));
    }

    #[test]
    fn each_slot_finds_its_segments_head_and_a_bounded_queue_of_its_own() {
        let budget = OwnBudget::new(7, Events::new());
        let slab = Slab::new(budget.get());
        let mut cache = SlotCache::new();
        let mut bounded_queues = HashSet::new();
        for class in [0, 2, 7].map(SlotClass) {
            let count = class.slots_per_segment().min(300) + 1;
            for _ in 0..count {
                let slot = cache.take(&slab, class);
                // SAFETY: the slot was just cut from the slab, and its pointer is valid for the
                // whole segment.
                let cell = unsafe { CellRef::new(slot) };
                assert_eq!(budget_of(cell).limit(), 7);
                let queue = bounded_queue_for(cell);
                assert!(
                    bounded_queues.insert(ptr::from_ref(queue)),
                    "two slots share a bounded queue"
                );
                assert!(bounded_queue_of(cell).is_some_and(|found| ptr::eq(found, queue)));
                queue.open(
                    Generation::FIRST.with_bounded(true),
                    MailboxBound::new(1, Overflow::Wait),
                );
                assert!(queue.close_if_empty(|| true));
            }
        }
    }
}
