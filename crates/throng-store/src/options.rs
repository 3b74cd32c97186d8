//! [`Options`]: how a store is opened, and the bounds it keeps.

use std::path::Path;

use crate::{OpenError, Store};

/// How to open a [`Store`]; every bound has a default that suits one node.
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
    pub(crate) snapshots_max: u32,
    pub(crate) queue_batches_max: usize,
    pub(crate) queue_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            #[cfg(target_pointer_width = "64")]
            map_bytes: 64 << 30,
            #[cfg(not(target_pointer_width = "64"))]
            map_bytes: 512 << 20,
            snapshots_max: 1024,
            queue_batches_max: 16 << 10,
            queue_bytes_max: 64 << 20,
        }
    }
}

impl Options {
    /// The most the data file may grow to, in bytes; rounded up to 64 KiB. 64 GiB by default.
    ///
    /// This reserves addresses, not memory and not disk, so it may far exceed both.
    #[must_use]
    pub fn map_bytes(mut self, bytes: usize) -> Options {
        self.map_bytes = bytes;
        self
    }

    /// How many snapshots may be alive at once. 1,024 by default, 64 bytes each.
    #[must_use]
    pub fn snapshots_max(mut self, snapshots: u32) -> Options {
        self.snapshots_max = snapshots;
        self
    }

    /// How many batches may wait for the writer. 16,384 by default.
    #[must_use]
    pub fn queue_batches_max(mut self, batches: usize) -> Options {
        self.queue_batches_max = batches;
        self
    }

    /// How many bytes of batches may wait for the writer. 64 MiB by default.
    ///
    /// As many again may be in the commit under way. It also bounds a single batch.
    #[must_use]
    pub fn queue_bytes_max(mut self, bytes: usize) -> Options {
        self.queue_bytes_max = bytes;
        self
    }

    /// Opens the store in the directory `path`, making it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`], sorted by what can be done about it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, OpenError> {
        Store::open_with(path.as_ref(), self)
    }

    /// The map size as the engine wants it: whole pages, of any page size in use.
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
