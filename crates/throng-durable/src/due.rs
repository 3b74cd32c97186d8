//! [`DueList`]: entities by the time at which something is to be done with them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throng::layer::Instant;

use crate::directory::AnyDirectory;

/// Entities by the time at which something is to be done with them. Each has one valid entry: that of the time which
/// its directory has. Entries of other times are dropped when their time comes.
#[derive(Default)]
pub(crate) struct DueList {
    due: Mutex<BTreeMap<(Instant, u64), Task>>,
    entries: AtomicU64,
}

/// An entity on a list.
pub(crate) struct Task {
    pub(crate) directory: Arc<dyn AnyDirectory>,
    pub(crate) state_key: Box<[u8]>,
}

impl DueList {
    /// Adds an entity for a time.
    pub(crate) fn add(&self, due: Instant, directory: Arc<dyn AnyDirectory>, state_key: &[u8]) {
        let entry = self.entries.fetch_add(1, Ordering::Relaxed);
        lock(&self.due).insert((due, entry), Task { directory, state_key: state_key.into() });
    }

    /// Takes an entity that is due, with its time.
    pub(crate) fn pop(&self, now: Instant) -> Option<(Instant, Task)> {
        let mut due = lock(&self.due);
        let first = due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, _), task) = first.remove_entry();
        Some((at, task))
    }

    pub(crate) fn clear(&self) {
        // Outside of the lock, because a directory may end with its entry.
        let cleared = mem::take(&mut *lock(&self.due));
        drop(cleared);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under the locks, and no step leaves a list half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
