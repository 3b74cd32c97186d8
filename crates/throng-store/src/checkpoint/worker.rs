//! The checkpoint thread, and its steps.

use std::time::Duration;

use crate::disk::environment::Environment;
use crate::heap;

/// Time between two polls while the thread waits for snapshots to end, so that it can reopen the engine.
const REOPEN_INTERVAL: Duration = Duration::from_millis(20);

/// The checkpoints between two steps.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Position of the store at the last step.
    seen: u64,
    /// Whether the store was idle between the last two steps.
    is_idle: bool,
    /// Memory of the memtables that were written and not returned to the system, in bytes.
    freed: usize,
}

impl Progress {
    pub(crate) fn at(position: u64) -> Progress {
        Progress { seen: position, ..Progress::default() }
    }
}

/// Least memory that is returned to the system: the search for it stops threads that allocate for milliseconds.
const RETURNED_BYTES_MIN: usize = 16 << 20;

/// Runs on the checkpoint thread until the store ends.
pub(crate) fn run(environment: &Environment) {
    // If this thread unwinds, no writer keeps waiting.
    struct End<'e>(&'e Environment);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.checkpoints().end();
        }
    }
    let _end = End(environment);
    let mut progress = Progress::at(environment.view().position());
    while environment.checkpoints().sleep() {
        step(environment, &mut progress);
        if progress.is_idle && progress.freed >= RETURNED_BYTES_MIN {
            // A store in use would need the memory again at once.
            heap::trim();
            progress.freed = 0;
        }
        if environment.engine().is_broken() {
            environment.reopen(REOPEN_INTERVAL, || !environment.checkpoints().is_ended());
        }
    }
}

/// Writes the frozen memtable to LMDB; before that, freezes the active one if the store has been idle since the
/// last step.
pub(crate) fn step(environment: &Environment, progress: &mut Progress) {
    // The writer holds its lock only while it commits, and then the store is not idle.
    let position = environment.view().position();
    progress.is_idle = position == progress.seen;
    if progress.is_idle && environment.view().frozen().is_none() {
        environment.freeze_if_free();
    }
    progress.seen = position;
    let bytes = environment.view().frozen().map_or(0, |(memtable, _)| memtable.bytes());
    let outcome = environment.checkpoint();
    if outcome.is_ok() {
        progress.freed += bytes;
    }
    environment.checkpoints().report(outcome.is_ok());
}
