//! [`Options`]: configuration of a store, and the limits it keeps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::platform::Platform;
use crate::write::sequencer::Sequencer;

/// Configuration for opening a [`Store`](crate::Store). Every limit has a default that suits a single node.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let store = throng_store::Store::options().map_bytes(1 << 30).queue_bytes_max(8 << 20).open(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) map_bytes: usize,
    pub(crate) databases_max: u32,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_bytes: usize,
    pub(crate) keep_log: bool,
    pub(crate) on_recovery: OnRecovery,
    pub(crate) write_map: bool,
    pub(crate) read_ahead: bool,
    pub(crate) read_only: bool,
    pub(crate) verify_reads: bool,
    pub(crate) check: bool,
    pub(crate) snapshots_max: u32,
    pub(crate) snapshot_age_max: Duration,
    pub(crate) queue_batches_max: usize,
    pub(crate) queue_bytes_max: usize,
    pub(crate) sequencer: Option<Arc<dyn Sequencer>>,
    pub(crate) platform: Arc<Platform>,
}

/// Progress of a recovery, for the function of [`Options::on_recovery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Number of changes that were replayed.
    pub changes: u64,
    /// Number of changes that the log has, as far as it is known.
    pub total: u64,
}

#[derive(Clone, Default)]
pub(crate) struct OnRecovery(Option<Arc<dyn Fn(Recovery) + Send + Sync>>);

impl OnRecovery {
    pub(crate) fn report(&self, recovery: Recovery) {
        if let Some(report) = &self.0 {
            report(recovery);
        }
    }
}

impl fmt::Debug for OnRecovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "set" } else { "not set" })
    }
}

/// Guarantee behind a ticket that resolves to `Ok`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The write is on the disk: it survives a power failure. A group of writes costs one flush of
    /// the log; the directory `log` belongs to the data file.
    #[default]
    Durable,
    /// The write has reached the operating system: it survives the end of this process, however it
    /// ends. **If the machine goes down, the whole store may be damaged**, not only the last
    /// writes, because pages reach the disk in any order; [`Store::sync`](crate::Store::sync) is the only safe point,
    /// and only until the next commit. Use it for data that can be regenerated. LMDB calls it
    /// `MDB_NOSYNC` and `MDB_NOMETASYNC`.
    Volatile,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            #[cfg(target_pointer_width = "64")]
            map_bytes: 1 << 40,
            #[cfg(not(target_pointer_width = "64"))]
            map_bytes: 512 << 20,
            databases_max: 128,
            durability: Durability::Durable,
            checkpoint_bytes: 128 << 20,
            keep_log: false,
            on_recovery: OnRecovery::default(),
            write_map: false,
            read_ahead: true,
            read_only: false,
            verify_reads: true,
            check: false,
            snapshots_max: 1024,
            snapshot_age_max: Duration::from_secs(600),
            queue_batches_max: 16 << 10,
            queue_bytes_max: 64 << 20,
            sequencer: None,
            platform: Arc::default(),
        }
    }
}

impl Options {
    /// Sets the maximum size of the data file, in bytes, rounded up to 64 KiB. 1 TiB by default.
    ///
    /// The file grows on demand up to this size. A write that needs more fails with
    /// [`WriteError::Full`](crate::WriteError::Full). The option reserves address space, not memory
    /// and not disk, so it may far exceed both. If the address space of the process is limited (`ulimit
    /// -v`), the map takes half of what is left at most. If the operating system does not grant that much
    /// address space, the store tries half of it, and so on. [`Stat::map_bytes`](crate::Stat::map_bytes) is
    /// the result. A map is never smaller than the data file.
    #[must_use]
    pub fn map_bytes(mut self, bytes: usize) -> Options {
        self.map_bytes = bytes;
        self
    }

    /// Sets the maximum number of named databases. 128 by default, and never more than
    /// [`DATABASES_MAX`](crate::DATABASES_MAX).
    ///
    /// Each database within the maximum, opened or not, costs about a hundred bytes in every
    /// snapshot.
    #[must_use]
    pub fn databases_max(mut self, databases: u32) -> Options {
        self.databases_max = databases;
        self
    }

    /// Sets the guarantee behind a ticket that resolves to `Ok`. [`Durability::Durable`] by
    /// default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Sets the bytes of memory after which the changes in memory are written to the data file, in the
    /// background. 128 MiB by default, and never more than a quarter of [`map_bytes`](Options::map_bytes).
    ///
    /// While a checkpoint is in progress, writes go on in memory: at full speed until they take a quarter
    /// as much again, and from then on no faster than the checkpoint makes room. So a store takes twice this memory at
    /// most, and the records of a group of writes. The log takes as much room on the disk for them, and once more
    /// or twice for the segment in use and those kept for reuse; writes that each make a group of their own take at
    /// least 512 bytes of it each. A larger value means less work for the disk, if the same keys or neighbours change again and again,
    /// and a longer recovery when a store that was not closed is opened: about a second for a million
    /// changes.
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: usize) -> Options {
        self.checkpoint_bytes = bytes;
        self
    }

    /// Sets whether the log is kept for [`Store::restore`](crate::Store::restore). Off by default.
    ///
    /// Files of the log whose changes are in the data file then move into the directory `log/kept` instead
    /// of being removed. They take as much room as all changes together, so move or remove those that
    /// precede the oldest backup that is to be restored from.
    #[must_use]
    pub fn keep_log(mut self, keep: bool) -> Options {
        self.keep_log = keep;
        self
    }

    /// Sets a function that gets the progress of a recovery, at most ten times a second and at its end.
    ///
    /// The thread that opens the store calls it while it replays the log of a store that was not closed. If
    /// there is nothing to replay, the function is not called.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let options = throng_store::Store::options()
    ///     .on_recovery(|recovery| eprintln!("{} of {}", recovery.changes, recovery.total));
    /// let store = options.open(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_recovery(mut self, report: impl Fn(Recovery) + Send + Sync + 'static) -> Options {
        self.on_recovery = OnRecovery(Some(Arc::new(report)));
        self
    }

    /// Sets whether the engine writes through the memory map instead of by system calls. Off by
    /// default. Only a [volatile](Durability::Volatile) store uses it; a durable store ignores it.
    /// LMDB calls it `MDB_WRITEMAP`.
    ///
    /// Writing through the map is faster, but a stray write anywhere in this process can damage the
    /// data, and a full disk ends the process by a signal instead of failing a write. The file
    /// takes the size of the map at once, as a sparse file; so set
    /// [`map_bytes`](Options::map_bytes).
    #[must_use]
    pub fn write_map(mut self, write_map: bool) -> Options {
        self.write_map = write_map;
        self
    }

    /// Sets whether the operating system reads ahead in the data file. On by default; off is better
    /// for random reads of a file larger than memory. LMDB calls it `MDB_NORDAHEAD`.
    #[must_use]
    pub fn read_ahead(mut self, read_ahead: bool) -> Options {
        self.read_ahead = read_ahead;
        self
    }

    /// Sets whether the store is opened for reading only, even while another process has it open
    /// for writing. The store must exist. Off by default.
    ///
    /// Reading beside a process that writes needs permission to write `lock.mdb`, in which readers register.
    /// Without it, the store opens if no process writes, and none can until the store is dropped.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Sets whether each read verifies the checksum of the value. On by default.
    ///
    /// Verification costs about ten nanoseconds for a small value, and a nanosecond for each ten to
    /// twenty bytes. [`Store::verify`](crate::Store::verify) verifies the checksums in any case.
    #[must_use]
    pub fn verify_reads(mut self, verify_reads: bool) -> Options {
        self.verify_reads = verify_reads;
        self
    }

    /// Sets whether the data file is checked, as by [`Store::check`](crate::Store::check), before the engine opens it.
    /// Off by default.
    ///
    /// The engine trusts its file: damaged pages can make it crash the process. So check a file
    /// that was copied or restored, or that lies on a doubtful disk. The check takes the time to
    /// read the file.
    #[must_use]
    pub fn check(mut self, check: bool) -> Options {
        self.check = check;
        self
    }

    /// Sets the age at which a snapshot expires; ten minutes by default.
    ///
    /// Reads of an expired snapshot fail with [`ReadError::Expired`](crate::ReadError::Expired), so
    /// that a forgotten reader does not retain old pages for ever. Without commits no pages are
    /// retained, so nothing expires. A store that is [opened read-only](Options::read_only) has a
    /// limit of its own, and notices the commits of the process that writes: a snapshot expires at
    /// that age if it does not show the last commit.
    ///
    /// A snapshot that is held but not read, expired or not, retains its pages until it is dropped;
    /// [`Stat::snapshot_lag_commits`](crate::Stat::snapshot_lag_commits) shows it.
    #[must_use]
    pub fn snapshot_age_max(mut self, age: Duration) -> Options {
        self.snapshot_age_max = age;
        self
    }

    /// Sets the maximum number of live snapshots. 1,024 by default, and never more than 1,048,576; each takes
    /// 64 bytes. While a store is open, another opening does not change it.
    #[must_use]
    pub fn snapshots_max(mut self, snapshots: u32) -> Options {
        self.snapshots_max = snapshots;
        self
    }

    /// Sets the maximum number of batches in the writer's queue, at least one. 16,384 by default.
    #[must_use]
    pub fn queue_batches_max(mut self, batches: usize) -> Options {
        self.queue_batches_max = batches;
        self
    }

    /// Sets the maximum bytes of all batches in the writer's queue together. 64 MiB by default.
    ///
    /// The commit in progress may hold as many bytes again. The limit also bounds a single batch.
    #[must_use]
    pub fn queue_bytes_max(mut self, bytes: usize) -> Options {
        self.queue_bytes_max = bytes;
        self
    }

    /// Makes the store a copy of a log that several machines share: the sequencer appends its groups to that log. The
    /// directory must be empty, or hold such a copy. Not set by default.
    ///
    /// A copy opens as a standby: it refuses writes until it [leads](crate::Store::lead). It goes on at the state of
    /// the log that [`Store::stamp`](crate::Store::stamp) returns, which is that of its last checkpoint. After a crash it
    /// may show a part of later changes until it has caught up with what it had then, so read it only when it has.
    #[must_use]
    pub fn sequencer(mut self, sequencer: Arc<dyn Sequencer>) -> Options {
        self.sequencer = Some(sequencer);
        self
    }

    /// Returns the size of a memtable after which a checkpoint begins.
    pub(crate) fn checkpoint_bytes_bounded(&self) -> usize {
        self.checkpoint_bytes.min(self.map_bytes_rounded() / 4)
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durability == Durability::Durable
    }

    /// Returns the map size that the engine accepts: whole pages, for any page size in use.
    pub(crate) fn map_bytes_rounded(&self) -> usize {
        const UNIT: usize = 64 << 10;
        self.map_bytes.max(UNIT).checked_next_multiple_of(UNIT).unwrap_or(usize::MAX / UNIT * UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_map_size_becomes_whole_pages() {
        for bytes in [0, 1, 65_536, 65_537, usize::MAX] {
            let rounded = Options::default().map_bytes(bytes).map_bytes_rounded();
            assert!(rounded > 0 && rounded.is_multiple_of(65_536), "{bytes} became {rounded}");
        }
    }
}
