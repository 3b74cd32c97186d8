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
//!
//! A segment is aligned to its size and begins with a *head*, which any address so leads to without
//! touching its cell. The head's fields are atomics, for stale addresses read them too, and what
//! they point to is never freed:
//!
//! | field | set | by |
//! |---|---|---|
//! | budget | as a runtime takes the segment | that runtime, before it cuts a slot |
//! | slot bytes | once, as the segment is given its class | the first runtime |
//! | bounded queues | once, as the first bounded process comes | whoever is first |
//! | a slot's bounded queue, in the table of these | once, as the slot's first bounded process comes | its spawner |

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
const HEAD_BYTES: usize = 64;
/// Large enough that the system's bookkeeping per segment is nothing, small enough that a test
/// with three processes costs little address space. Untouched pages cost no memory.
const SEGMENT_BYTES: usize = if cfg!(miri) { 16 * 1024 } else { 1024 * 1024 };
/// How many segments are got from the system at once, with one more lost to their alignment.
const SEGMENTS_PER_CHUNK: usize = if cfg!(miri) { 2 } else { 16 };

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

    pub(crate) const fn bytes(self) -> usize {
        SLOT_BYTES[self.0 as usize]
    }

    const fn slots_per_segment(self) -> usize {
        (SEGMENT_BYTES - HEAD_BYTES) / self.bytes()
    }
}

/// Where somebody is who looks at one slot after the other.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SlotPlace {
    class: u8,
    segment: usize,
    slot: usize,
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
        if generation.is_last() {
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
    /// Where the messages of the processes in these slots are counted.
    budget: &'static Budget,
    classes: [Mutex<ClassSlab>; SLOT_BYTES.len()],
}

struct ClassSlab {
    free: Vec<Magazine>,
    segments: Vec<Segment>,
}

impl Slab {
    pub(crate) fn new(budget: &'static Budget) -> Slab {
        Slab {
            budget,
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
                    // SAFETY: of this class, and cut.
                    visit(unsafe { CellRef::new(slot_at(start, class, slot)) });
                }
                index += 1;
            }
        }
    }

    /// The slot that lies at an address of memory, if one does.
    pub(crate) fn find(&self, address: usize) -> Option<CellRef> {
        (0..SLOT_BYTES.len()).map(|class| SlotClass(class as u8)).find_map(|class| {
            let slab = lock(&self.classes[class.0 as usize]);
            slab.segments.iter().find_map(|segment| {
                let first = segment.slot(class, 0).addr().get();
                let offset = address.checked_sub(first)?;
                let (index, beyond) = (offset / class.bytes(), offset % class.bytes());
                // SAFETY: of this class, and cut.
                (beyond == 0 && index < segment.cut)
                    .then(|| unsafe { CellRef::new(segment.slot(class, index)) })
            })
        })
    }

    /// The slot at a place, and the place of the next; places without a slot are passed over.
    pub(crate) fn slot(&self, mut place: SlotPlace) -> Option<(CellRef, SlotPlace)> {
        while (place.class as usize) < SLOT_BYTES.len() {
            let class = SlotClass(place.class);
            match self.segment(class, place.segment) {
                None => place = SlotPlace { class: place.class + 1, segment: 0, slot: 0 },
                Some((_, cut)) if place.slot >= cut => {
                    place = SlotPlace { segment: place.segment + 1, slot: 0, ..place };
                }
                Some((start, _)) => {
                    // SAFETY: of this class, and cut.
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
            let pooled = lock(&POOL[class.0 as usize]).pop();
            let segment = pooled.unwrap_or_else(|| Segment::allocate(class));
            segment.head().budget.store(ptr::from_ref(self.budget).cast_mut(), Ordering::Release);
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

/// Memory for segments that have no class yet.
static UNUSED: Mutex<Vec<Unused>> = Mutex::new(Vec::new());

/// Zeroed memory for one segment.
struct Unused(NonNull<Head>);

// SAFETY: nobody else has it.
unsafe impl Send for Unused {}

/// How a segment begins. See the file's head.
#[repr(C)]
struct Head {
    budget: AtomicPtr<Budget>,
    bounded_queues: AtomicPtr<AtomicPtr<BoundedQueue>>,
    slot_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Head>() <= HEAD_BYTES);

/// The head of the segment that a slot is in.
#[inline(always)]
fn head_of(cell: CellRef) -> &'static Head {
    let head = cell.as_ptr().as_ptr().map_addr(|address| address & !(SEGMENT_BYTES - 1));
    // SAFETY: a slot's pointer is good for its whole segment, which is aligned to its size and
    // begins with a head, of which all that changes is atomic.
    unsafe { &*head.cast::<Head>() }
}

/// Where what is sent to a slot's process is counted.
#[inline(always)]
pub(crate) fn budget_of(cell: CellRef) -> &'static Budget {
    // Acquires the budget's contents, for a stale address may see one that was set just now.
    // SAFETY: set before the slot was cut, and never freed.
    unsafe { &*head_of(cell).budget.load(Ordering::Acquire) }
}

/// The bounded queue of a slot, if it ever had a bounded process.
pub(crate) fn bounded_queue_of(cell: CellRef) -> Option<&'static BoundedQueue> {
    // Both acquire the contents, from `bounded_queue_for`.
    let bounded_queues = NonNull::new(head_of(cell).bounded_queues.load(Ordering::Acquire))?;
    // SAFETY: a place in the table is that of a slot of this segment; bounded queues are never
    // freed.
    unsafe { bounded_queues.add(slot_index(cell)).as_ref().load(Ordering::Acquire).as_ref() }
}

/// The bounded queue of a slot that is about to have a bounded process, and so nobody else's to
/// give one.
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
    // SAFETY: as in `bounded_queue_of`.
    let place = unsafe { bounded_queues.add(slot_index(cell)).as_ref() };
    place.store(ptr::from_ref(queue).cast_mut(), Ordering::Release);
    queue
}

#[cold]
fn make_bounded_queues(head: &Head) -> NonNull<AtomicPtr<BoundedQueue>> {
    let slots = SEGMENT_BYTES / head.slot_bytes.load(Ordering::Relaxed) as usize;
    // Never fails: a segment's worth of pointers is small.
    let layout = Layout::array::<AtomicPtr<BoundedQueue>>(slots).unwrap_or(Layout::new::<usize>());
    // SAFETY: not zero-sized; zeroed memory is a table of null pointers.
    let made = NonNull::new(unsafe { alloc_zeroed(layout) })
        .unwrap_or_else(|| handle_alloc_error(layout))
        .cast::<AtomicPtr<BoundedQueue>>();
    let none = ptr::null_mut();
    // Releases the zeroes to whoever acquires the pointer.
    match head.bounded_queues.compare_exchange(
        none,
        made.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => made,
        Err(others) => {
            // SAFETY: made above, and seen by nobody.
            unsafe { dealloc(made.as_ptr().cast(), layout) };
            NonNull::new(others).expect("the exchange failed because a table is there")
        }
    }
}

fn slot_index(cell: CellRef) -> usize {
    let offset = cell.as_ptr().as_ptr().addr() % SEGMENT_BYTES - HEAD_BYTES;
    // Written before the first slot was cut, and not again.
    offset / head_of(cell).slot_bytes.load(Ordering::Relaxed) as usize
}

/// The slot with this index.
///
/// # Safety
/// The segment is one of this class, and has so many slots.
unsafe fn slot_at(start: NonNull<Head>, class: SlotClass, index: usize) -> NonNull<Cell> {
    // SAFETY: inside the segment.
    unsafe { start.byte_add(HEAD_BYTES + index * class.bytes()).cast() }
}

struct Segment {
    start: NonNull<Head>,
    /// How many slots this runtime has handed out at least once.
    cut: usize,
    /// How many slots hold a generation that an earlier runtime has left there.
    used: usize,
}

// SAFETY: a segment owns its memory; the cells in it are made to be shared.
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
        // SAFETY: zeroed memory is a head; all that changes in it is atomic.
        unsafe { self.start.as_ref() }
    }

    fn slot(&self, class: SlotClass, index: usize) -> NonNull<Cell> {
        // SAFETY: indices are below the segment's slot count.
        unsafe { slot_at(self.start, class, index) }
    }

    /// Hands out the next slots; none when the segment is used up.
    fn cut(&mut self, class: SlotClass) -> Magazine {
        let mut magazine = Magazine::new();
        let slots = class.slots_per_segment();
        let end = (self.cut + Magazine::full(class.bytes())).min(slots);
        for index in (self.cut..end).rev() {
            let slot = self.slot(class, index);
            // SAFETY: zeroed memory is a cell's header before its first life.
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
            // SAFETY: cut slots are cells.
            !unsafe { self.slot(class, index).as_ref() }.mailbox.peek().1
        })
    }
}

impl Unused {
    fn allocate() -> impl Iterator<Item = Unused> {
        // The system hands out zeroed pages without touching them, but only for an alignment it
        // gives anyway; so align by hand.
        const LAYOUT: Layout =
            match Layout::from_size_align((SEGMENTS_PER_CHUNK + 1) * SEGMENT_BYTES, 16) {
                Ok(layout) => layout,
                Err(_) => panic!("a chunk has a layout"),
            };
        // SAFETY: not zero-sized.
        let memory = NonNull::new(unsafe { alloc_zeroed(LAYOUT) })
            .unwrap_or_else(|| handle_alloc_error(LAYOUT));
        require_spare_bits(memory, LAYOUT.size());
        let padding = memory.as_ptr().addr().wrapping_neg() % SEGMENT_BYTES;
        (0..SEGMENTS_PER_CHUNK).map(move |index| {
            // SAFETY: the padding is less than a segment, so this one ends inside the chunk.
            Unused(unsafe { memory.add(padding + index * SEGMENT_BYTES) }.cast())
        })
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use crate::mailbox::bound::{MailboxBound, Overflow};
    use crate::mailbox::budget::OwnBudget;
    use crate::runtime::events::Events;
    use std::collections::HashSet;

    #[test]
    fn slots_are_distinct_and_freed_ones_come_back_first() {
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
        let slab = Slab::new(OwnBudget::new(0, Events::new()).get());
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

    #[test]
    fn each_slot_finds_its_segments_head_and_a_lobby_of_its_own() {
        let budget = OwnBudget::new(7, Events::new());
        let slab = Slab::new(budget.get());
        let mut cache = SlotCache::new();
        let mut bounded_queues = HashSet::new();
        for class in [0, 2, 7].map(SlotClass) {
            let count = class.slots_per_segment().min(300) + 1;
            for _ in 0..count {
                let slot = cache.take(&slab, class);
                // SAFETY: a slot of the slab, with all it may be used for.
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
