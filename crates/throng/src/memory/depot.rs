//! The depot of free blocks of one size, and the scavenger that gives unneeded memory back.
//!
//! ```text
//! thread's cache ◀─ magazine ─▶ depot: magazines, last in first out
//!                                  │ unused since the last pass: parked by the scavenger
//!                                  ▼
//!                               chunks with parked blocks ──▶ pages and whole chunks to the system
//! ```
//!
//! Threads take the newest magazine and bring magazines back, and neither side touches a chunk. The
//! magazines at the bottom that no thread has reached since the last pass of the scavenger are
//! surplus: the next pass *parks* their blocks in the chunks (see `chunk`) and gives back the pages
//! that hold parked blocks only. A thread that finds no magazine takes parked blocks, from the
//! chunk that has the fewest, so that the other chunks become whole.
//!
//! A pass runs on the clock thread of any runtime, in steps, because it delays the clock. It ends
//! with no surplus; an idle program has no magazines after two passes, and no third pass is due.
//!
//! Invariant: at the end of each step, the depot or the pass owns each chunk that has parked
//! blocks, and nothing is parked while a pass owns a chunk.

use crate::memory::chunk::{self, Chunk};
use crate::memory::magazine::Magazine;
use crate::sync::{Epoch, Mutex, lock};
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two passes of the scavenger. Memory goes back after one to two periods without
/// use, so at most 3 seconds after the end of a burst: soon for its users, and so seldom that a
/// burst each second costs no page faults.
const PERIOD: Duration = Duration::from_millis(1500);
/// Maximum number of magazines parked in a step, while the depot is locked: about 50 µs.
const MAGAZINES_PER_STEP: usize = 128;

/// Free blocks of one size; see the file's head.
pub(crate) struct Depot {
    magazines: VecDeque<Magazine>,
    /// Number of magazines, at the front, that no thread has taken since the last pass.
    unused: usize,
    /// Chunks with parked blocks. The fewest parked blocks are in the last, except during a pass.
    chunks: Vec<Chunk>,
    /// Number of blocks that the threads have taken and not brought back.
    lent: usize,
}

impl Depot {
    pub(crate) const fn new() -> Depot {
        Depot { magazines: VecDeque::new(), unused: 0, chunks: Vec::new(), lent: 0 }
    }

    /// Returns a magazine with at least one block, of the depot's size.
    pub(crate) fn refill(&mut self, block_bytes: usize) -> Magazine {
        let magazine = self.take(block_bytes);
        self.lent += magazine.len();
        magazine
    }

    /// Returns the number of blocks that are in use, or free in the cache of a thread.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    fn take(&mut self, block_bytes: usize) -> Magazine {
        if let Some(magazine) = self.magazines.pop_back() {
            self.unused = self.unused.min(self.magazines.len());
            return magazine;
        }
        let mut magazine = Magazine::new();
        let full = Magazine::full(block_bytes);
        while magazine.len() < full {
            let chunk = self.chunks.pop().unwrap_or_else(|| Chunk::allocate(block_bytes));
            self.chunks.extend(chunk.lend(&mut magazine, full));
        }
        magazine
    }

    pub(crate) fn give_back(&mut self, magazine: Magazine) {
        self.lent -= magazine.len();
        if !magazine.is_empty() {
            self.magazines.push_back(magazine);
        }
    }

    /// Begins a pass: returns the number of magazines that were not used since the last.
    fn begin_pass(&mut self) -> usize {
        std::mem::replace(&mut self.unused, self.magazines.len())
    }

    /// Parks the blocks of magazines, at most `most` of those that are not used yet; returns how
    /// many.
    fn park(&mut self, most: usize) -> usize {
        let count = most.min(MAGAZINES_PER_STEP).min(self.unused);
        for mut magazine in self.magazines.drain(..count) {
            while let Some(block) = magazine.pop() {
                // SAFETY: each block came from a chunk of this depot and is its magazine's alone.
                // The depot is borrowed exclusively, and no pass owns a chunk (invariant).
                self.chunks.extend(unsafe { chunk::park(block) });
            }
        }
        self.unused -= count;
        if self.magazines.len() < self.magazines.capacity() / 8 {
            self.magazines.shrink_to(self.magazines.len() * 2);
        }
        count
    }

    /// Takes out the chunks in which blocks were parked.
    fn take_changed(&mut self) -> Vec<Chunk> {
        let chunks = std::mem::take(&mut self.chunks);
        let (changed, rest) = chunks.into_iter().partition(Chunk::is_changed);
        self.chunks = rest;
        changed
    }

    /// Puts a chunk back.
    fn put(&mut self, chunk: Chunk) {
        let place = self.chunks.partition_point(|other| other.parked() > chunk.parked());
        self.chunks.insert(place, chunk);
    }
}

/// Gives memory back that the depots do not need; see the file's head.
pub(crate) struct Scavenger {
    last: Option<Epoch>,
    pass: Option<Pass>,
}

/// Pass over all depots, one after the other.
struct Pass {
    /// Index of the depot that the pass has come to.
    depot: usize,
    /// Number of magazines in it that are still to be parked.
    surplus: usize,
    /// Chunks taken out of the depot, pages of which go back to the system.
    changed: Vec<Chunk>,
}

impl Scavenger {
    pub(crate) const fn new() -> Scavenger {
        Scavenger { last: None, pass: None }
    }

    /// Begins a pass if a pass is due, and does a step of the pass under way; false if there is
    /// none.
    pub(crate) fn advance(&mut self, depots: &[Mutex<Depot>]) -> bool {
        if self.pass.is_none() && self.last.is_none_or(|last| last.elapsed() >= PERIOD) {
            self.last = Some(Epoch::now());
            self.pass = Some(Pass::begin(depots));
        }
        self.pass = self.pass.take().and_then(|pass| pass.step(depots));
        self.pass.is_some()
    }

    /// Returns the time until the next pass; `None` if that would find no surplus.
    pub(crate) fn due(&self, depots: &[Mutex<Depot>]) -> Option<Duration> {
        let since = self.last.map_or(PERIOD, Epoch::elapsed);
        let is_used = depots.iter().any(|depot| !lock(depot).magazines.is_empty());
        is_used.then(|| PERIOD.saturating_sub(since))
    }
}

impl Pass {
    fn begin(depots: &[Mutex<Depot>]) -> Pass {
        Pass { depot: 0, surplus: lock(&depots[0]).begin_pass(), changed: Vec::new() }
    }

    /// Does a step: parks some magazines, or gives memory of a chunk back. Returns the pass unless
    /// it is over.
    fn step(mut self, depots: &[Mutex<Depot>]) -> Option<Pass> {
        if let Some(mut chunk) = self.changed.pop() {
            // The depot is not locked meanwhile, because the system takes some time.
            if chunk.is_whole() {
                chunk.free();
            } else {
                chunk.discard_pages();
                lock(&depots[self.depot]).put(chunk);
            }
        } else if self.surplus > 0 {
            let mut depot = lock(&depots[self.depot]);
            let parked = depot.park(self.surplus);
            self.surplus = if parked > 0 { self.surplus - parked } else { 0 };
            if self.surplus == 0 {
                self.changed = depot.take_changed();
            }
        }
        while self.surplus == 0 && self.changed.is_empty() {
            self.depot += 1;
            self.surplus = lock(depots.get(self.depot)?).begin_pass();
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests_miri {
    use super::*;
    use crate::memory::chunk::CHUNK_BYTES;
    use std::ptr::NonNull;

    fn depots<const N: usize>() -> [Mutex<Depot>; N] {
        [const { Mutex::new(Depot::new()) }; N]
    }

    fn pass(depots: &[Mutex<Depot>]) {
        let mut pass = Some(Pass::begin(depots));
        while let Some(under_way) = pass {
            pass = under_way.step(depots);
        }
    }

    fn lend(depot: &Mutex<Depot>, bytes: usize, magazines: usize) -> Vec<Magazine> {
        (0..magazines).map(|_| lock(depot).refill(bytes)).collect()
    }

    fn give_back(depot: &Mutex<Depot>, magazines: impl IntoIterator<Item = Magazine>) {
        magazines.into_iter().for_each(|magazine| lock(depot).give_back(magazine));
    }

    fn single(block: NonNull<u8>) -> Magazine {
        let mut magazine = Magazine::new();
        magazine.push(block);
        magazine
    }

    fn magazines(depot: &Mutex<Depot>) -> usize {
        lock(depot).magazines.len()
    }

    fn chunks(depot: &Mutex<Depot>) -> usize {
        lock(depot).chunks.len()
    }

    /// Gives the last magazines back, and then all memory of the depots to the system.
    fn free_all(depots: &[Mutex<Depot>], index: usize, last: Vec<Magazine>) {
        give_back(&depots[index], last);
        pass(depots);
        pass(depots);
        assert_eq!((magazines(&depots[index]), chunks(&depots[index])), (0, 0));
    }

    /// Number of magazines that hold more blocks than two chunks.
    fn in_three_chunks(bytes: usize) -> usize {
        2 * CHUNK_BYTES / bytes / Magazine::full(bytes) + 1
    }

    #[test]
    fn chunks_unused_between_two_passes_go_back_to_the_system() {
        for bytes in [64, 384, 4096] {
            let depots = depots::<2>();
            let lent = lend(&depots[1], bytes, in_three_chunks(bytes));
            pass(&depots);
            give_back(&depots[1], lent);
            pass(&depots);
            assert_eq!(magazines(&depots[1]), in_three_chunks(bytes), "used in this period");
            pass(&depots);
            assert_eq!((magazines(&depots[1]), chunks(&depots[1])), (0, 0));
            let lent = lend(&depots[1], bytes, 1);
            assert_eq!(lent[0].len(), Magazine::full(bytes));
            free_all(&depots, 1, lent);
        }
    }

    #[test]
    fn magazines_that_threads_use_stay_in_the_depot() {
        let depots = depots::<1>();
        let lent = lend(&depots[0], 256, 10);
        give_back(&depots[0], lent);
        pass(&depots);
        for _ in 0..3 {
            let lent = lend(&depots[0], 256, 4);
            give_back(&depots[0], lent);
            pass(&depots);
            assert_eq!(magazines(&depots[0]), 4);
        }
        pass(&depots);
        assert_eq!(magazines(&depots[0]), 0);
    }

    #[test]
    fn a_chunk_stays_while_a_block_of_it_is_lent_and_lends_the_next_blocks() {
        let depots = depots::<1>();
        let mut lent = lend(&depots[0], 1024, in_three_chunks(1024));
        let block = lent[0].pop().expect("a refill brings blocks");
        // SAFETY: the block is lent to this test and 1024 bytes long.
        unsafe { block.write_bytes(7, 1024) };
        give_back(&depots[0], lent);
        pass(&depots);
        pass(&depots);
        assert_eq!(chunks(&depots[0]), 1);
        let resident = lock(&depots[0]).chunks[0].resident_bytes();
        assert_eq!(resident, 4096, "the page of the lent block");
        // SAFETY: the block is still lent to this test.
        unsafe { assert_eq!((block.read(), block.add(1023).read()), (7, 7)) };
        let more = lend(&depots[0], 1024, 1);
        assert_eq!(chunks(&depots[0]), 1, "blocks come from the chunk that is there");
        give_back(&depots[0], more);
        give_back(&depots[0], [single(block)]);
        pass(&depots);
        pass(&depots);
        assert_eq!(chunks(&depots[0]), 0);
    }

    #[test]
    fn the_chunk_with_the_fewest_parked_blocks_is_last() {
        let depots = depots::<1>();
        let mut lent = lend(&depots[0], 4096, in_three_chunks(4096));
        let first = lent[0].pop().expect("a refill brings blocks");
        let last = lent.pop().expect("there are several magazines");
        give_back(&depots[0], lent);
        pass(&depots);
        pass(&depots);
        let parked: Vec<_> = lock(&depots[0]).chunks.iter().map(Chunk::parked).collect();
        assert!(parked.len() >= 2 && parked.is_sorted_by(|more, less| more >= less), "{parked:?}");
        give_back(&depots[0], [last, single(first)]);
        pass(&depots);
        pass(&depots);
        assert_eq!(chunks(&depots[0]), 0);
    }

    #[test]
    fn a_pass_is_due_only_while_a_depot_holds_magazines() {
        let depots = depots::<2>();
        let mut scavenger = Scavenger::new();
        assert_eq!(scavenger.due(&depots), None);
        let lent = lend(&depots[1], 128, 1);
        give_back(&depots[1], lent);
        assert_eq!(scavenger.due(&depots), Some(Duration::ZERO));
        while scavenger.advance(&depots) {}
        assert!(scavenger.due(&depots).is_some_and(|time| time <= PERIOD));
        scavenger.last = None;
        while scavenger.advance(&depots) {}
        assert_eq!(scavenger.due(&depots), None, "all blocks are parked");
    }

    #[test]
    fn blocks_keep_their_contents_while_passes_run() {
        const BYTES: usize = 192;
        let depots = depots::<1>();
        let rounds: u64 = if cfg!(miri) { 3 } else { 300 };
        let work = |thread: u64| {
            for round in 0..rounds {
                let stamp = thread << 32 | round;
                let used = lend(&depots[0], BYTES, (round % 7 * 5 + 1) as usize);
                let blocks =
                    || used.iter().flat_map(Magazine::blocks).map(|block| block.cast::<u64>());
                // SAFETY: the blocks are lent to this thread.
                blocks().for_each(|block| unsafe { block.write(stamp) });
                std::thread::yield_now();
                // SAFETY: the blocks are lent to this thread, which wrote them above.
                blocks().for_each(|block| assert_eq!(unsafe { block.read() }, stamp));
                give_back(&depots[0], used);
            }
        };
        std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| scope.spawn(move || work(thread)));
            while threads.iter().any(|thread| !thread.is_finished()) {
                pass(&depots);
            }
        });
        pass(&depots);
        pass(&depots);
        assert_eq!((magazines(&depots[0]), chunks(&depots[0])), (0, 0));
    }
}
