//! [`Store`]: the handle that everything else hangs on.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::environment::Environment;
use crate::queue::{Queue, Room};
use crate::writer::{self, Counters};
use crate::{Batch, OpenError, Options, ReadError, Snapshot, Ticket};

/// An open data directory. Cheap to clone; all clones are the same store.
///
/// When the last clone is dropped, or at [`close`](Store::close), everything queued is committed
/// and the writer thread joined. The directory is free again once the snapshots are dropped too.
///
/// The data file is mapped into memory: nothing else may change it while it is open, and it must
/// lie on a local disk, not on a network share.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    environment: Arc<Environment>,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    /// Taken by whoever joins it.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A store in numbers, from [`Store::stat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Keys in the store.
    pub entries: u64,
    /// The size of the data file.
    pub file_bytes: u64,
    /// What the data file may grow to.
    pub map_bytes: u64,
    /// Batches made durable since the store was opened.
    pub batches: u64,
    /// Transactions, each with its own disk flush, that this took.
    pub commits: u64,
    /// As [`Store::is_writable`] says.
    pub writable: bool,
}

impl Stat {
    /// How many batches shared one disk flush on average; 0 before the first.
    pub fn batches_per_commit(&self) -> f64 {
        if self.commits == 0 { 0.0 } else { self.batches as f64 / self.commits as f64 }
    }
}

impl Store {
    /// Opens the store in the directory `path` with the default [`Options`], making it if need be.
    ///
    /// # Errors
    ///
    /// [`OpenError`], sorted by what can be done about it.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
        Options::default().open(path)
    }

    /// The options to open a store with.
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Store, OpenError> {
        let environment = Arc::new(Environment::open(path, options)?);
        let queue = Arc::new(Queue::new(options));
        let counters = Arc::new(Counters::default());
        let writer = thread::Builder::new()
            .name("throng-store".into())
            .spawn({
                let (environment, queue, counters) =
                    (environment.clone(), queue.clone(), counters.clone());
                move || writer::run(&environment, &queue, &counters)
            })
            .map_err(|source| OpenError::Io { path: path.into(), source })?;
        let writer = Mutex::new(Some(writer));
        Ok(Store(Arc::new(Shared { environment, queue, counters, writer })))
    }

    /// Queues a batch for the next commit. Never waits: neither for the disk nor for room.
    ///
    /// Batches are committed in the order in which they were queued. The ticket resolves when this
    /// one is durable, or to a [`WriteError`](crate::WriteError) that hands it back.
    pub fn write(&self, batch: Batch) -> Ticket {
        self.0.queue.push(batch)
    }

    /// Waits for room in the queue, for those who would rather wait than be handed
    /// [`WriteError::Overloaded`].
    ///
    /// Nothing is reserved: another may take the room first, so try in a loop. Also resolves once
    /// the store takes no more writes.
    ///
    /// ```
    /// # use throng_store::{Batch, Store, WriteError};
    /// async fn write_patiently(store: &Store, mut batch: Batch) -> Result<(), WriteError> {
    ///     loop {
    ///         match store.write(batch).await {
    ///             Err(WriteError::Overloaded(handed_back)) => batch = handed_back,
    ///             outcome => return outcome,
    ///         }
    ///         store.room_for(&batch).await;
    ///     }
    /// }
    /// ```
    ///
    /// [`WriteError::Overloaded`]: crate::WriteError::Overloaded
    pub fn room_for(&self, batch: &Batch) -> Room {
        self.0.queue.room_for(batch)
    }

    /// Whether writes are taken: not after a commit that broke off, nor once it is closed.
    ///
    /// Costs a lock. Unlike [`stat`](Store::stat) it answers also after a commit that broke off,
    /// when nothing can be read any more.
    pub fn is_writable(&self) -> bool {
        self.0.queue.is_open()
    }

    /// A frozen view of everything committed so far.
    ///
    /// Costs under a microsecond. Pages that a snapshot can see are not reused while it lives, so
    /// one that is kept for long makes the file grow under writes.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooManySnapshots`] beyond [`Options::snapshots_max`], and
    /// [`ReadError::BrokenOff`] after a commit that broke off.
    pub fn snapshot(&self) -> Result<Snapshot, ReadError> {
        Snapshot::begin(&self.0.environment)
    }

    /// The store in numbers.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Store::snapshot).
    pub fn stat(&self) -> Result<Stat, ReadError> {
        let Shared { environment, counters, .. } = &*self.0;
        Ok(Stat {
            entries: self.snapshot()?.len()?,
            file_bytes: environment.file_bytes()?,
            map_bytes: environment.map_bytes(),
            batches: counters.batches.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            writable: self.is_writable(),
        })
    }

    /// Reads everything and compares it with its checksums; returns how many entries there are.
    ///
    /// Goes at the speed of the disk, or of memory for what is cached. Writers are not held up.
    ///
    /// # Errors
    ///
    /// [`ReadError::Corrupt`] with the first damaged entry.
    pub fn verify(&self) -> Result<u64, ReadError> {
        let snapshot = self.snapshot()?;
        let mut entries = 0;
        for entry in snapshot.range(..) {
            entry?;
            entries += 1;
        }
        Ok(entries)
    }

    /// Writes a copy of everything committed so far into the directory `path`, which is made and
    /// must not hold a store yet. The copy is compact, and opens as a store.
    ///
    /// Goes at the speed of the disk. Writers are not held up, but the file grows under them as
    /// under a [`snapshot`](Store::snapshot) held for as long.
    ///
    /// # Errors
    ///
    /// The operating system's; `AlreadyExists` if there is a store. An unfinished copy is removed.
    pub fn backup(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.environment.copy_to(path.as_ref())
    }

    /// Commits what is queued and ends the writer thread; blocks until that is done.
    ///
    /// Further writes through any clone are refused with [`WriteError::Closed`]; reads go on.
    ///
    /// [`WriteError::Closed`]: crate::WriteError::Closed
    pub fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        // Held while joining, so that a second closer also returns only when all is written.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // A waker may drop the last store on the writer thread itself, which cannot join itself
        // and ends by itself.
        if writer.as_ref().is_some_and(|writer| writer.thread().id() == thread::current().id()) {
            return;
        }
        if let Some(writer) = writer.take() {
            // It died of a panic at worst; its tickets have been told.
            let _ = writer.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::mem;

    use super::*;
    use crate::WriteError;

    #[test]
    fn after_a_commit_that_broke_off_only_old_snapshots_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.write(Batch::new().put("key", "value")).wait().unwrap();
        let before = store.snapshot().unwrap();
        assert!(store.is_writable());

        // The engine gives up for good as after a failed commit, here because a thread ended within
        // its transaction, which it notices by the lock left behind.
        let environment = store.0.environment.clone();
        let leave = thread::spawn(move || mem::forget(environment.begin_write().unwrap()));
        leave.join().unwrap();
        assert!(store.0.environment.has_broken_off());
        store.0.queue.break_off();

        assert!(!store.is_writable());
        let batch = Batch::new().put("late", "value");
        let refused = store.write(batch.clone()).wait();
        assert!(matches!(refused, Err(WriteError::BrokenOff(handed)) if handed == batch));
        assert!(matches!(store.snapshot(), Err(ReadError::BrokenOff)));
        assert!(matches!(store.stat(), Err(ReadError::BrokenOff)));
        assert_eq!(before.get(b"key").unwrap(), Some(&b"value"[..]));

        drop((before, store));
        let store = Store::open(directory.path()).unwrap();
        assert!(store.is_writable());
        assert_eq!(store.snapshot().unwrap().get(b"key").unwrap(), Some(&b"value"[..]));
        store.write(batch).wait().unwrap();
    }
}
