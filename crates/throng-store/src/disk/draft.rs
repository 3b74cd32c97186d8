//! New stores: made in a draft directory, and given their names when they are complete.
//!
//! ```text
//! draft/data.mdb  draft/log/ ──▶ log/  draft/data.mdb ──▶ log/  data.mdb
//! ```
//!
//! The data file gets its name last, so a directory without it holds no store. If a draft has a data file
//! and no log, only the last step is missing.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::write;
use crate::disk::claim::Claim;
use crate::disk::format::{self, Origin};
use crate::disk::lmdb::{self, Env, Settings};
use crate::disk::settings::tables_of;
use crate::disk::{DATA_FILE, LOG, private, recovery};
use crate::log::files::{self, Files};
use crate::log::{Access, Location, Log, Point, Record, Replay};
use crate::platform::Platform;
use crate::restore::{Restored, Until, time_of};
use crate::{OpenError, Options, RestoreError};

pub(crate) const DRAFT: &str = "draft";

pub(crate) fn make_store(
    claim: &Claim,
    directory: &Path,
    options: &Options,
) -> Result<(), OpenError> {
    let refused = |source| OpenError::from_io(source, directory);
    let draft = claim.path().join(DRAFT);
    let files = &*options.platform.files;
    let has_log = files.exists(&claim.path().join(LOG)).map_err(refused)?;
    if has_log && !draft.join(DATA_FILE).try_exists().map_err(refused)? {
        return Err(OpenError::Corrupt { path: directory.into(), reason: lost() });
    }
    if !has_log {
        clear(files, &draft).map_err(refused)?;
        let settings = Settings { no_sync: false, write_map: false, ..options.settings() };
        let claim = Claim::to_write(&draft)?;
        let (env, _) = Env::open(&claim, &settings)
            .map_err(|error| OpenError::from_engine(error, directory))?;
        let store = format::open_databases(&env, directory, false)?.store;
        let log = log_of(&draft, store, &options.platform);
        Log::create(&log, Point::default()).map_err(refused)?;
    }
    name_store(files, &draft, claim.path()).map_err(refused)
}

/// Error text for a directory that has lost its data file.
pub(crate) fn lost() -> String {
    format!("{DATA_FILE} is missing, and {LOG} is there")
}

/// The records that a copy gets beside the last commit of LMDB.
pub(crate) struct Rest<'r> {
    pub(crate) log: &'r Location,
    pub(crate) access: Access,
    /// The point after which they begin, if it is not the applied point of LMDB, and the time of the change
    /// before.
    pub(crate) after: Option<(Point, u64)>,
    pub(crate) until: Until,
}

/// Copies the last commit of an environment and the records after it into a new store, durably.
pub(crate) fn copy_store(
    env: &Env,
    rest: Rest<'_>,
    settings: &Settings,
    checkpoint_bytes: usize,
    directory: &Path,
) -> Result<Restored, RestoreError> {
    make_in(directory, |draft| fill(draft, env, rest, settings, checkpoint_bytes))
}

/// Makes a store in a directory that holds none, which is created: `fill` makes the data file and the log in a
/// draft, and the log durable. After an error, there is nothing that was not there before.
pub(crate) fn make_in<T, E: From<io::Error>>(
    directory: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<_> = directory.ancestors().take_while(is_missing).collect();
    let made = private::create_directory(directory)
        .map_err(E::from)
        .and_then(|()| make_in_existing(directory, fill));
    if made.is_err() {
        // This error matters, not these.
        let _ = missing.into_iter().try_for_each(fs::remove_dir);
    }
    made
}

fn make_in_existing<T, E: From<io::Error>>(
    directory: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let there = || io::Error::from(io::ErrorKind::AlreadyExists);
    let files = files::system();
    // A store would be renamed, copied and removed along with the one around it.
    if let Some(outer) =
        fs::canonicalize(directory)?.ancestors().skip(1).find(|path| path.join(DATA_FILE).exists())
    {
        let reason =
            format!("it lies within the store in {}; choose a directory outside", outer.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason).into());
    }
    // Two concurrent copies into the same directory would spoil each other.
    let claim = Claim::to_write(directory).map_err(|error| match error {
        OpenError::Io { source, .. } | OpenError::ReadOnly { source, .. } => source,
        OpenError::InUse { .. } => there(),
        other => io::Error::other(other),
    })?;
    let draft = claim.path().join(DRAFT);
    if claim.path().join(DATA_FILE).try_exists()? {
        return Err(there().into());
    }
    if claim.path().join(LOG).try_exists()? {
        // A crash may have come between the last two steps of a copy: undo the first of them.
        if !draft.join(DATA_FILE).try_exists()? {
            return Err(there().into());
        }
        fs::rename(claim.path().join(LOG), draft.join(LOG))?;
    }
    clear(&*files, &draft)?;
    let made =
        fill(&draft).and_then(|made| Ok(name_store(&*files, &draft, claim.path()).map(|()| made)?));
    if made.is_err() {
        // This error matters, not these. A log without a data file is not a store.
        let _ = fs::remove_file(claim.path().join(DATA_FILE));
        let _ = fs::remove_dir_all(claim.path().join(LOG));
        let _ = fs::remove_dir_all(&draft);
    }
    made
}

fn fill(
    draft: &Path,
    env: &Env,
    Rest { log, access, after, until }: Rest<'_>,
    settings: &Settings,
    checkpoint_bytes: usize,
) -> Result<Restored, RestoreError> {
    let file = private::create_file(&draft.join(DATA_FILE))?;
    env.copy_to(&file, true).map_err(lmdb::Error::into_io)?;
    let copied = settings.platform.clock.since_1970().as_millis() as u64;
    file.sync_all()?;
    let claim = Claim::to_write(draft).map_err(io::Error::other)?;
    let settings = Settings { no_sync: false, write_map: false, ..settings.clone() };
    let (env, _) = Env::open(&claim, &settings).map_err(lmdb::Error::into_io)?;
    let format = format::open_databases(&env, draft, true).map_err(io::Error::other)?.format;
    let txn = env.begin_read().map_err(lmdb::Error::into_io)?;
    let applied = format::applied(&txn, format).map_err(lmdb::Error::into_io)?;
    drop(txn);
    let (after, mut time) = after.unwrap_or((applied, copied));
    let mut restored = Restored { position: after.position, time: None };
    let mut replay = Replay::open(log, after, access)
        .map_err(|damage| RestoreError::of_log(damage, after.position))?;
    // Whatever LMDB had when it was copied, perhaps a part of an unfinished checkpoint, is not above the mark
    // of now, nor behind a gap: LMDB had everything before a gap when it got the changes of the gap.
    let (lmdb, tables) = ((&*env, format, after), tables_of(&settings));
    let mut is_cut = false;
    let takes = |record: &Record<'_>| {
        is_cut = !until.includes(record);
        if !is_cut {
            restored = Restored { position: record.last(), time: Some(time_of(record.time)) };
            time = record.time;
        }
        !is_cut
    };
    let last = until.position();
    let replayed = recovery::replay(&mut replay, lmdb, tables, checkpoint_bytes, last, takes);
    let (rest, at) = replayed.map_err(|damage| RestoreError::of_log(damage, restored.position))?;
    if matches!(until, Until::Position(_)) && !is_cut && at.position < last {
        return Err(RestoreError::Short { position: at.position });
    }
    write::write(&env, format, Arc::new(rest), at, true, |_| {}).map_err(lmdb::Error::into_io)?;
    let origin = Origin { store: log.store, point: at, time };
    let own = format::make_own(&env, format, origin).map_err(lmdb::Error::into_io)?;
    Log::create(&log_of(draft, own.0, &Arc::default()), own.1)?;
    Ok(restored)
}

pub(crate) fn log_of(draft: &Path, store: u64, platform: &Arc<Platform>) -> Location {
    let (directory, platform) = (draft.join(LOG), platform.clone());
    Location { directory, platform, store, is_durable: true, is_kept: false }
}

/// Makes an empty draft directory; a crash may have left one.
fn clear(files: &dyn Files, draft: &Path) -> io::Result<()> {
    for removed in [files.remove_directory(&draft.join(LOG)), fs::remove_dir_all(draft)] {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    private::create_directory(draft)
}

fn name_store(files: &dyn Files, draft: &Path, directory: &Path) -> io::Result<()> {
    let data_file = draft.join(DATA_FILE);
    File::open(&data_file)?.sync_all()?;
    files.flush_names(draft)?;
    files.flush_names(directory)?;
    if !files.exists(&directory.join(LOG))? {
        files.rename(&draft.join(LOG), &directory.join(LOG))?;
        files.flush_names(directory)?;
        files.flush_names(draft)?;
    }
    fs::rename(&data_file, directory.join(DATA_FILE))?;
    files.flush_names(directory)?;
    // The directory is reached through its handle, which is in no parent.
    files.flush_names(&directory.join(".."))?;
    fs::remove_dir_all(draft)
}
