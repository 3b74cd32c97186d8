//! The settings of LMDB that the [`Options`] of a store ask for.

use crate::disk::format::OWN_TABLES;
use crate::disk::lmdb::Settings;
use crate::{DATABASES_MAX, Options};

/// Number of reader slots that are reserved for the writer.
pub(crate) const RESERVED: u32 = 1;

/// Most live snapshots, whatever the options say.
const SNAPSHOTS_MAX: u32 = 1 << 20;

impl Options {
    pub(crate) fn settings(&self) -> Settings {
        let volatile = !self.is_durable();
        Settings {
            map_bytes: self.map_bytes_rounded(),
            readers_max: self.snapshots_max.min(SNAPSHOTS_MAX) + RESERVED,
            // LMDB computes sizes from the number, and does not check whether they overflow.
            tables_max: self.databases_max.min(DATABASES_MAX) + OWN_TABLES,
            no_sync: volatile,
            write_map: volatile && self.write_map,
            no_read_ahead: !self.read_ahead,
            is_foreign: false,
            platform: self.platform.clone(),
        }
    }
}

/// Returns a number above all numbers of tables: LMDB has two of its own.
pub(crate) fn tables_of(settings: &Settings) -> usize {
    settings.tables_max as usize + 2
}
