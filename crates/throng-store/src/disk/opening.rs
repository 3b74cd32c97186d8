//! Opening a data directory: the claim, the data file, and LMDB with its tables.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::claim::Claim;
use crate::disk::damage::Damage;
use crate::disk::format::{self, Databases};
use crate::disk::lmdb::{self, Closed, Env, Settings};
use crate::disk::{DATA_FILE, LOG, draft, pages, private};
use crate::log::{Access, Location, Replay};
use crate::{CheckReport, OpenError, Options};

/// The engine and the databases of a directory that was opened.
pub(crate) struct Opened {
    pub(crate) env: Arc<Env>,
    pub(crate) closed: Closed,
    pub(crate) databases: Databases,
}

pub(crate) fn enter(directory: &Path, options: &Options) -> Result<Claim, OpenError> {
    let refused = |source| OpenError::Io { path: directory.into(), source };
    match options {
        Options { read_only: false, .. } => {
            private::create_directory(directory)
                .map_err(|source| OpenError::from_io(source, directory))?;
            Claim::to_write(directory)
        }
        Options { check, .. } => {
            // The engine would create its table of readers before it found that there is no data.
            fs::metadata(directory.join(DATA_FILE)).map_err(|error| {
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                match is_missing && directory.join(LOG).exists() {
                    true => OpenError::Corrupt { path: directory.into(), reason: draft::lost() },
                    false => refused(error),
                }
            })?;
            // Pages written during the check would look damaged.
            if *check { Claim::to_read_alone(directory) } else { Claim::to_read(directory) }
        }
    }
}

/// Claims the directory, makes the store if there is none, and checks its data file if the options say so.
pub(crate) fn prepare(directory: &Path, options: &Options) -> Result<Claim, OpenError> {
    let mut claim = enter(directory, options)?;
    let data_file = claim.path().join(DATA_FILE);
    match fs::metadata(&data_file) {
        Ok(metadata) if metadata.len() == 0 => {
            // The engine would treat an empty file as a new store, but a new data file has
            // content before it has its name.
            let reason = "it is empty".into();
            return Err(OpenError::Corrupt { path: directory.into(), reason });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && !options.read_only => {
            draft::make_store(&claim, directory, options)?;
        }
        Err(source) => return Err(OpenError::Io { path: directory.into(), source }),
    }
    if options.check {
        pages::check(&data_file).map_err(|damage| damage.into_open_error(directory))?;
        claim.share();
    }
    Ok(claim)
}

pub(crate) fn open_engine(
    claim: &Claim,
    settings: &Settings,
    directory: &Path,
) -> Result<Opened, OpenError> {
    let engine = |error| match error {
        lmdb::Error::Io(source) if claim.is_read_only() => {
            OpenError::Io { path: directory.into(), source }
        }
        error => OpenError::from_engine(error, directory),
    };
    let (env, closed) = Env::open(claim, settings).map_err(engine)?;
    // The slots of killed readers would pin old pages for ever. An environment on a read-only
    // file system has no slots.
    if !claim.is_read_only() {
        env.clear_stale_readers().map_err(engine)?;
    }
    let databases = format::open_databases(&env, directory, claim.is_read_only())?;
    Ok(Opened { env, closed, databases })
}

/// Puts the meta pages on the disk as they are seen. The page of a commit that failed may be on the disk only, and
/// the next transaction writes over pages of that commit.
pub(crate) fn settle_meta(env: &Env, directory: &Path) -> io::Result<()> {
    pages::rewrite_metas(&directory.join(DATA_FILE), env.page_bytes())?;
    env.sync().map_err(lmdb::Error::into_io)
}

/// Checks the files in `directory` without opening the store.
pub(crate) fn check(directory: &Path) -> Result<CheckReport, OpenError> {
    let damaged = |damage: Damage| damage.into_open_error(directory);
    let options = Options { read_only: true, check: true, ..Options::default() };
    let claim = enter(directory, &options)?;
    let checked = pages::check(&claim.path().join(DATA_FILE)).map_err(damaged)?;
    let (report, store, applied) = checked;
    let directory = claim.path().join(LOG);
    let platform = options.platform;
    let location = Location { directory, platform, store, is_durable: false, is_kept: false };
    let mut replay = Replay::open(&location, applied, Access::ReadAll).map_err(damaged)?;
    while let Some(_record) =
        replay.next(applied.position).map_err(|error| damaged(error.into_damage()))?
    {}
    Ok(report)
}
