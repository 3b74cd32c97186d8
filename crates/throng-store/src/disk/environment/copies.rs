//! Copies of a store: backups, and restores from them.

use std::io;
use std::path::Path;

use super::Environment;
use crate::disk::draft::{self, Rest};
use crate::disk::{format, lmdb};
use crate::log::{Access, Location};
use crate::restore::{Restored, Until, time_of};
use crate::{ReadError, RestoreError};

impl Environment {
    /// Copies the current state into a new store in `directory`, durably.
    pub(crate) fn copy_to(&self, directory: &Path) -> io::Result<()> {
        let (_retention, access) = match &self.log {
            Some((_, archive)) => (Some(archive.hold()), Access::Read),
            None if self.engine().claim().is_written()? => (None, Access::Read),
            None => (None, Access::ReadAll),
        };
        // The copy is compact if LMDB has everything; otherwise the log has the rest.
        let _ = self.checkpoint();
        self.freeze_if_free();
        let _ = self.checkpoint();
        let recovering = || io::Error::other(ReadError::Recovering.to_string());
        let env = self.env().ok_or_else(recovering)?;
        let log = self.location();
        let rest = Rest { log: &log, access, after: None, until: Until::End };
        draft::copy_store(&env, rest, self.engine().settings(), self.checkpoint_bytes, directory)
            .map_err(RestoreError::into_io)?;
        Ok(())
    }

    /// Copies this store, which is a backup, into a new store in `directory`, with the changes that a log
    /// has after it, up to a moment.
    pub(crate) fn restore_to(
        &self,
        directory: &Path,
        log: &Path,
        until: Until,
    ) -> Result<Restored, RestoreError> {
        let (txn, layers) = self.readers.begin()?;
        let refused = |error: lmdb::Error| RestoreError::Io(error.into_io());
        let applied = format::applied(&txn, self.format).map_err(refused)?;
        let origin = format::origin(&txn, self.format).map_err(refused)?;
        let path = || self.engine().claim().shown().into();
        let origin = origin.ok_or_else(|| RestoreError::NotACopy { path: path() })?;
        let format::Origin { store, point: after, time } = origin;
        if applied.position != after.position || layers.upto != after.position {
            return Err(RestoreError::Changed { path: path() });
        }
        let is_later = match until {
            Until::End => false,
            Until::Position(until) => until < after.position,
            Until::Time(until) => until < time_of(time),
        };
        if is_later {
            return Err(RestoreError::Later { position: after.position, time: time_of(time) });
        }
        let (source, platform) = (log.into(), self.engine().settings().platform.clone());
        let log =
            Location { directory: source, platform, store, is_durable: false, is_kept: false };
        let rest = Rest { log: &log, access: Access::Kept, after: Some((after, time)), until };
        let env = txn.env();
        draft::copy_store(env, rest, self.engine().settings(), self.checkpoint_bytes, directory)
    }
}
