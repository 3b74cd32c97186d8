//! Salvage: a new store of everything in a damaged one that can be proved.
//!
//! ```text
//! data.mdb ── walk: survey, then again ──▶ entries ─┐
//!             ✗ page, entry                         ├──▶ draft ──▶ TO
//! log, log/kept ── records after the applied point ─┘
//!                  ✗ from the first invalid one on
//! ```
//!
//! The data file is read without LMDB (`disk/pages.rs`), and FROM is never written. A first walk finds the pages
//! that fit in two places or are listed as free: a wrong number may lead to an entry of another database, or of
//! an earlier time. The second walk writes the entries of all other pages.
//!
//! A commit of LMDB writes no page of the commit before it: pages that a commit frees are used again by the
//! second one after it at the earliest. So both meta pages of a durable store are roots of whole trees. With the
//! log, the older tree gives the same state as the newer one, except for commits that have no record: a
//! load, a new database, a group that the log had no room for. The commit is taken with which the fewest entries
//! and changes are lost. If the newer meta page may be the invalid one, this is [unproved](Loss::Unproved): a
//! commit without a record leaves no trace outside of it.
//!
//! The result is the state at a position if no page is lost, and if the log has all changes up to its mark or
//! the commit stored the applied point. Otherwise the commit is one in the middle of a checkpoint, and has an unknown
//! part of the later changes.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::checkpoint::write::{self, UNBOUNDED};
use crate::database::DatabaseOptions;
use crate::disk::claim::Claim;
use crate::disk::damage::{Damage, found};
use crate::disk::lmdb::{self, Env, Settings};
use crate::disk::pages::{self, Meta, Names, Visitor, Walk};
use crate::disk::settings::tables_of;
use crate::disk::{DATA_FILE, LOG, draft, format, opening, recovery};
use crate::log::{self, Access, Location, Log, Point, Replay};
use crate::memtable::Memtable;
use crate::memtable::change::{self, Change, Operation};
use crate::restore::time_of;
use crate::table::{Kind, Table, TableRef};
use crate::{OpenError, Options, Store};

/// Outcome of [`Store::salvage`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// Position of the last change of the new store; 0 if it cannot be read.
    pub position: u64,
    /// Time at which the last change was written; `None` if it comes from the data file.
    pub time: Option<SystemTime>,
    /// Whether the new store is exactly the state that the damaged one had at this position.
    pub is_exact: bool,
    /// Databases of the new store: the default database, then the others.
    pub databases: Vec<SalvagedDatabase>,
    /// Losses, in the order in which they were found: the first 10,000.
    pub losses: Vec<Loss>,
    /// Number of losses after these.
    pub losses_more: u64,
}

/// Database of a salvaged store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SalvagedDatabase {
    /// Name of the database; `None` for the default database.
    pub name: Option<String>,
    /// Options of the database. Without checksums, only the structure of its pages shows that its entries are
    /// whole.
    pub options: DatabaseOptions,
    /// Number of entries in the new store; each of several values under a key counts.
    pub entries: u64,
    /// Number of entries of the data file that are lost, as far as it is known. The log may have later values
    /// of their keys.
    pub entries_lost: u64,
}

/// Part of a damaged store that is not in the new one, or not for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Entries are lost.
    Entries {
        /// Stored name of the database: `entries`, or its name after `+`, `-` without checksums, or `*`
        /// with several values under a key; `None` for databases whose names are lost.
        database: Option<String>,
        /// First key; `None` for the beginning of the database.
        from: Option<Vec<u8>>,
        /// Key before which the lost entries end, or the same as `from` if it is a single key, in which the damage
        /// may be; `None` for the end of the database.
        to: Option<Vec<u8>>,
        /// Description of the damage.
        reason: String,
    },
    /// All changes after the position of the new store are lost.
    Changes {
        /// Last position that is known; `None` if none is.
        last: Option<u64>,
        /// Description of the damage, with the file and the byte.
        reason: String,
    },
    /// Everything that is known is there, but there may have been more, or of later times.
    Unproved {
        /// Description of the doubt.
        reason: String,
    },
}

/// Error of a salvage. No store was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The damaged store is open, missing, of another version or of another program, or cannot be read.
    #[error(transparent)]
    From(OpenError),
    /// Nothing can be read: restore a backup.
    #[error("nothing of the store in {} can be read: {reason}; restore a backup", path.display())]
    Nothing {
        /// Directory of the damaged store.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// The operating system refused; `AlreadyExists` if there is a store in the target directory, and
    /// `InvalidInput` if that lies within the directory of one.
    #[error("cannot write the salvaged store: {0}")]
    Write(#[from] io::Error),
}

impl Store {
    /// Makes a store in the directory `to` of everything in the damaged store in the directory `from` that can be
    /// proved to be whole, and returns a list of the rest. `from` is only read, without LMDB, and `to` must not
    /// hold a store.
    ///
    /// The entries of each whole page of the data file are proved by their checksums, in databases that have
    /// them. The changes in the log follow, up to the first that is damaged or missing; segments in
    /// `log/kept` replace missing ones. Reads the data file two to four times, at the speed of the disk, and
    /// takes memory as [`check`](Store::check) and a recovery do.
    ///
    /// ```
    /// # use throng_store::{Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = |name: &str| directory.path().join(name);
    /// let store = Store::open(path("data"))?;
    /// store.default_database::<Str, U64>().put("ada", &1815).wait()?;
    /// drop(store);
    /// std::fs::remove_dir_all(path("data").join("log"))?;
    /// assert!(Store::open(path("data")).is_err());
    ///
    /// let salvaged = Store::salvage(path("data"), path("salvaged"))?;
    /// assert!(salvaged.is_exact);
    /// // Nobody knows whether the log had more.
    /// assert_eq!(salvaged.losses.len(), 1);
    /// assert_eq!(Store::open(path("salvaged"))?.stat()?.entries, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SalvageError`], with a variant for each remedy.
    pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Salvaged, SalvageError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let options = Options { read_only: true, check: true, ..Options::default() };
        let claim = opening::enter(from, &options).map_err(|error| match error {
            OpenError::Corrupt { path, reason } => SalvageError::Nothing { path, reason },
            other => SalvageError::From(other),
        })?;
        if to.join(DATA_FILE).try_exists()? {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
        }
        let (base, losses, is_exact) = choose(claim.path(), from)?;
        draft::make_in(to, |draft| base.fill(draft, losses, is_exact))
    }
}

/// A commit of the data file, and the log after it.
struct Base {
    walk: Walk<Salvager>,
    log: Location,
    /// Names of the named databases in the order of their numbers, proved by their checksum.
    listed: Option<Vec<String>>,
    /// The applied point, if the log can be joined to it.
    applied: Option<Point>,
    reached: u64,
    time: Option<SystemTime>,
    /// Point up to which the log is known to go.
    mark: Option<Point>,
    /// Reason why the log ends at the position reached, if that is not its end.
    log_damage: Option<String>,
}

/// Surveys the commits of the data file, and returns the one with which the least is lost; also returns the
/// losses that are known, and whether the result is exact if no page of the commit is lost.
fn choose(directory: &Path, from: &Path) -> Result<(Base, Losses, bool), SalvageError> {
    let nothing = |reason: &str| SalvageError::Nothing { path: from.into(), reason: reason.into() };
    let refused = |source| SalvageError::From(OpenError::Io { path: from.into(), source });
    let path = directory.join(DATA_FILE);
    let (metas, mut is_doubtful) = pages::metas(&File::open(&path).map_err(refused)?);
    let (mut bases, mut reason) = (Vec::new(), "both its meta pages are damaged".to_owned());
    for meta in metas {
        match Base::survey(&path, meta, &directory.join(LOG)) {
            Ok(base) => bases.push(base),
            Err(damage) => (reason, is_doubtful) = (damage.into_io().to_string(), true),
        }
        if bases.first().is_some_and(Base::is_whole) {
            break;
        }
    }
    let positions =
        bases.iter().flat_map(|base| [base.proved(), base.mark.map_or(0, |mark| mark.position)]);
    let last = positions.max().unwrap_or(0);
    let costs = bases.iter().map(|base| base.cost(last)).enumerate();
    let Some((chosen, _)) = costs.min_by_key(|(_, cost)| *cost) else {
        return Err(nothing(&reason));
    };
    // A commit that leaves the format alone is one of a checkpoint, before its last.
    let is_settled = chosen == 0
        && !is_doubtful
        && bases.get(1).is_some_and(|before| {
            before.walk.losses == 0 && before.walk.format_root != bases[0].walk.format_root
        });
    let is_newest_known = !is_doubtful && (chosen == 0 || bases[0].is_joined());
    let base = bases.swap_remove(chosen);
    if base.walk.names.is_empty() {
        return Err(nothing("it has no databases"));
    }
    if let Some(found) = version(&base.walk).filter(|found| *found != format::VERSION) {
        let (path, known) = (from.into(), format::VERSION);
        return Err(SalvageError::From(OpenError::Format { path, found, known }));
    }
    let mut losses = Losses::default();
    if !is_newest_known {
        let commit = base.walk.commit();
        let reason = format!(
            "data.mdb is read as of commit {commit}, and there may have been a later one: a load, a new \
             database, or a group that the log had no room for"
        );
        losses.add(Loss::Unproved { reason });
    }
    if !base.walk.is_free_whole {
        let reason = "the free pages are not known, so a page may be of an earlier time".into();
        losses.add(Loss::Unproved { reason });
    }
    if base.listed.is_none() {
        losses.add(Loss::Unproved { reason: format::entries::NAMES_DAMAGED.into() });
    }
    let is_behind = base.reached < last;
    if base.log_damage.is_some() || is_behind {
        let last = is_behind.then_some(last);
        let reason = base.log_damage.clone();
        let reason =
            reason.unwrap_or_else(|| "its records do not reach data.mdb's last commit".into());
        losses.add(Loss::Changes { last, reason });
    }
    let is_complete = base.log_damage.is_none() && !is_behind;
    let is_known = base.applied.is_some_and(|_| base.proved() == base.reached)
        && base.listed.is_some()
        && base.walk.is_free_whole;
    let is_exact = is_known && (is_complete || is_settled);
    Ok((base, losses, is_exact))
}

impl Base {
    fn survey(path: &Path, meta: Meta, log: &Path) -> Result<Base, Damage> {
        let survey = |renamed| {
            let mut walk = Walk::new(File::open(path)?, meta, Salvager(None))?;
            walk.renamed = renamed;
            walk.all().map(|_| walk)
        };
        let mut walk = survey(None)?;
        let list = walk.stored(format::entries::TABLES_KEY).unwrap_or_default();
        let proved = format::entries::proved(list, walk.stored(format::entries::NAMES_KEY));
        let proved = proved.filter(|_| version(&walk) == Some(format::VERSION));
        if let Some((_, names)) = &proved
            && *names != walk.names
        {
            // The list tells the names and their order. If none is missing, a different name is damaged.
            let found = if names.len() == walk.names.len() { &walk.names } else { names };
            let renamed: Names = found.iter().cloned().zip(names.iter().cloned()).collect();
            walk = survey(Some(renamed))?;
        }
        let store = format::entries::parse_store(walk.stored(format::entries::STORE_KEY));
        let applied = format::entries::parse_applied(walk.stored(format::entries::APPLIED_KEY));
        let reached = applied.map_or(0, |applied| applied.position);
        let (directory, platform) = (log.into(), Arc::default());
        let log = Location { directory, platform, store: 0, is_durable: false, is_kept: false };
        let listed = proved.map(|(listed, _)| listed);
        let (time, mark, log_damage) = (None, None, Some(UNJOINED.to_owned()));
        let mut base = Base { walk, log, listed, applied, reached, time, mark, log_damage };
        if let (Some(store), Some(applied), Some(_)) = (store, applied, &base.listed) {
            base.log.store = store;
            base.mark = log::marked(&base.log).ok();
            base.log_damage =
                base.read_log(applied).err().map(|damage| damage.into_io().to_string());
        }
        Ok(base)
    }

    /// Reads the log after the applied point, as far as it is valid.
    fn read_log(&mut self, applied: Point) -> Result<(), Damage> {
        let mut replay = Replay::open(&self.log, applied, Access::Salvage)?;
        while let Some(record) =
            replay.next(applied.position).map_err(|error| error.into_damage())?
        {
            (self.reached, self.time) = (record.last(), Some(time_of(record.time)));
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.walk.losses == 0 && self.log_damage.is_none()
    }

    /// Whether the log shows that the applied point is right.
    fn is_joined(&self) -> bool {
        self.time.is_some() || self.log_damage.is_none()
    }

    /// Position up to which the changes are there. An applied point that no record follows and that is not the mark's
    /// must not lie above the mark: its bytes have no checksum, and no state may seem to be newer by its damage.
    fn proved(&self) -> u64 {
        let is_above = |mark: Point| {
            self.applied.is_some_and(|at| at.position > mark.position && at.chain != mark.chain)
        };
        if !self.is_joined() && self.mark.is_some_and(is_above) { 0 } else { self.reached }
    }

    /// Number of databases that are lost, then of entries and changes, if the store had changes up to the position
    /// `last`, then of damaged places.
    fn cost(&self, last: u64) -> (usize, u64, u64) {
        let changes = last.saturating_sub(self.proved());
        let entries = self.walk.entries_lost.saturating_add(changes);
        let places = self.walk.losses + u64::from(self.log_damage.is_some());
        (self.walk.databases_lost(), entries, places)
    }

    /// Makes the data file and the log of the new store.
    fn fill(
        mut self,
        draft: &Path,
        losses: Losses,
        is_exact: bool,
    ) -> Result<Salvaged, SalvageError> {
        let refused = lmdb::Error::into_io;
        let is_named = |stored: &&String| Kind::of(stored).is_some();
        let found = || self.walk.names.iter().filter(is_named).cloned().collect();
        // In this order, the databases have the numbers by which the log names them.
        let names: Vec<String> = self.listed.clone().unwrap_or_else(found);
        let claim = Claim::to_write(draft).map_err(io::Error::other)?;
        let options = Options::default().databases_max(names.len() as u32);
        // The file is flushed as a whole before it gets its name.
        let settings = Settings { no_sync: true, ..options.settings() };
        let (env, _) = Env::open(&claim, &settings).map_err(refused)?;
        let made = format::open_databases(&env, draft, false).map_err(io::Error::other)?;
        let mut tables = vec![(format::ENTRIES.to_owned(), made.entries)];
        for stored in names {
            let Some((kind, name)) = Kind::of(&stored) else { continue };
            let at = Point::default();
            let table_ref = format::make_database(&env, made.format, name, kind, at);
            tables.push((stored, table_ref.map_err(refused)?));
        }
        let target =
            Target { tables: tables.iter().cloned().collect(), losses, ..Target::new(&env) };
        self.walk.visitor = Salvager(Some(target));
        let walked = self.walk.again();
        let Walk { visitor: Salvager(Some(mut target)), losses: walk_losses, .. } = self.walk
        else {
            return Err(io::Error::other("the walk has lost its target").into());
        };
        if let Some(failed) = target.failed {
            return Err(failed.into());
        }
        walked.map_err(Damage::into_io)?;
        for (stored, _) in &tables {
            if !target.lost.contains_key(stored) {
                let reason = "its name is missing".to_owned();
                let database = Some(stored.clone());
                target.losses.add(Loss::Entries { database, from: None, to: None, reason });
            }
        }

        let mut rest = Memtable::new(tables_of(&settings), 0);
        if let Some(applied) = self.applied
            && self.reached > applied.position
        {
            let mut replay =
                Replay::open(&self.log, applied, Access::Salvage).map_err(Damage::into_io)?;
            let lmdb = (&*env, made.format, applied);
            let (number, bytes) = (tables_of(&settings), options.checkpoint_bytes_bounded());
            let replayed =
                recovery::replay(&mut replay, lmdb, number, bytes, self.reached, |_| true);
            rest = replayed.map_err(Damage::into_io)?.0;
        }
        let at = Point { position: self.reached, chain: 0 };
        write::write(&env, made.format, Arc::new(rest), at, true, |_| {}).map_err(refused)?;
        Log::create(&draft::log_of(draft, made.store, &Arc::default()), at)?;
        let txn = env.begin_read().map_err(refused)?;
        let database = |(stored, table_ref): &(String, TableRef)| {
            Ok(SalvagedDatabase {
                name: Kind::of(stored).map(|(_, name)| name.into()),
                options: DatabaseOptions::of(table_ref.kind),
                entries: txn.len(table_ref.table)?,
                entries_lost: target.lost.get(stored).copied().unwrap_or(0),
            })
        };
        let databases: Result<Vec<_>, _> = tables.iter().map(database).collect();
        Ok(Salvaged {
            position: self.reached,
            time: self.time,
            is_exact: is_exact && walk_losses == 0 && target.lost.len() == tables.len(),
            databases: databases.map_err(refused)?,
            losses: target.losses.first,
            losses_more: target.losses.more,
        })
    }
}

/// Reason why no record of the log is applied.
const UNJOINED: &str = "it cannot be joined to data.mdb, which has lost its id, its point of the log or the \
                        list of its databases";
const LOSSES_MAX: usize = 10_000;
const CHUNK_BYTES: usize = 8 << 20;

fn version(walk: &Walk<Salvager>) -> Option<u32> {
    walk.stored(format::entries::VERSION_KEY)?.try_into().ok().map(u32::from_le_bytes)
}

#[derive(Debug, Default)]
struct Losses {
    first: Vec<Loss>,
    more: u64,
}

impl Losses {
    fn add(&mut self, loss: Loss) {
        if self.first.len() < LOSSES_MAX {
            self.first.push(loss);
        } else {
            self.more += 1;
        }
    }
}

/// Goes on after damage, and writes the entries into a new store, except for a survey.
struct Salvager(Option<Target>);

struct Target {
    env: Arc<Env>,
    /// Databases by their stored names.
    tables: BTreeMap<String, TableRef>,
    current: Option<(String, TableRef)>,
    chunk: Vec<u8>,
    losses: Losses,
    /// Number of lost entries of each database that was found.
    lost: BTreeMap<String, u64>,
    /// The error of the new store that ends the walk.
    failed: Option<io::Error>,
}

impl Target {
    fn new(env: &Arc<Env>) -> Target {
        Target {
            env: env.clone(),
            tables: BTreeMap::new(),
            current: None,
            chunk: Vec::new(),
            losses: Losses::default(),
            lost: BTreeMap::new(),
            failed: None,
        }
    }

    fn commit(&mut self, table: Table) -> Result<(), Damage> {
        let (env, mut changes) = (&self.env, &*self.chunk);
        let committed = env.begin_write().and_then(|mut txn| {
            let next = || Change::take(&mut changes);
            write::apply(&mut txn, table, next, &mut { UNBOUNDED })?;
            txn.commit()
        });
        self.chunk.clear();
        committed.map_err(|error| {
            self.failed = Some(error.into_io());
            found("the new store cannot be written")
        })
    }
}

impl Visitor for Salvager {
    fn lose(
        &mut self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        damage: Damage,
    ) -> Result<(), Damage> {
        let Some(target) = &mut self.0 else { return Ok(()) };
        if target.failed.is_some() {
            return Err(damage);
        }
        let database = target.current.as_ref().map(|(stored, _)| stored.clone());
        let [from, to] = [from, to].map(|key| key.map(<[u8]>::to_vec));
        let reason = damage.into_io().to_string();
        target.losses.add(Loss::Entries { database, from, to, reason });
        Ok(())
    }

    fn begin(&mut self, stored: &str) {
        if let Some(target) = &mut self.0 {
            let table_ref = target.tables.get(stored);
            target.current = table_ref.map(|table_ref| (stored.to_owned(), *table_ref));
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        let Some(target) = &mut self.0 else { return Ok(()) };
        let Some((_, TableRef { table, kind })) = target.current else {
            return Err(found(format::entries::LIST_DAMAGED));
        };
        let is_several = kind == Kind::Duplicates;
        let operation = if is_several { Operation::PutValue } else { Operation::Put };
        change::write(&mut target.chunk, operation, table, key, [value, &[]]);
        if target.chunk.len() >= CHUNK_BYTES { target.commit(table) } else { Ok(()) }
    }

    fn end(&mut self, lost: u64) -> Result<(), Damage> {
        let Some(target) = &mut self.0 else { return Ok(()) };
        let Some((stored, table_ref)) = target.current.take() else { return Ok(()) };
        target.lost.insert(stored, lost);
        target.commit(table_ref.table)
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Entries { database, from, to, reason } => {
                match database.as_deref().map(|stored| (stored, Kind::of(stored))) {
                    None => write!(f, "the databases")?,
                    Some((_, None)) => write!(f, "the default database")?,
                    Some((_, Some((_, name)))) => write!(f, "the database {name:?}")?,
                }
                match (from, to) {
                    (Some(from), Some(to)) if from == to => {
                        write!(f, ", key \"{}\"", from.escape_ascii())?;
                    }
                    _ => {
                        for (word, key) in [("from", from), ("below", to)] {
                            if let Some(key) = key {
                                write!(f, ", {word} \"{}\"", key.escape_ascii())?;
                            }
                        }
                    }
                }
                write!(f, ": {reason}")
            }
            Loss::Changes { last: Some(last), reason } => {
                write!(f, "the changes after it, up to position {last}: {reason}")
            }
            Loss::Changes { last: None, reason } => write!(f, "any later changes: {reason}"),
            Loss::Unproved { reason } => write!(f, "not proved: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::disk::lmdb::Put;
    use crate::disk::record;

    #[test]
    fn a_commit_in_the_middle_of_a_checkpoint_is_exact_only_with_its_log() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let store = Store::open(path("data")).unwrap();
        store.default_database::<Bytes, Bytes>().put(b"key", b"value").wait().unwrap();
        drop(store);
        let is_exact = |to: &str| Store::salvage(path("data"), path(to)).unwrap().is_exact;
        let log = path("data").join("log");
        let without_log = |to: &str| {
            std::fs::rename(&log, path("log")).unwrap();
            let is_exact = is_exact(to);
            std::fs::rename(path("log"), &log).unwrap();
            is_exact
        };
        assert!(is_exact("whole") && without_log("settled"));
        // A commit without the applied point, as all of a checkpoint's but the last.
        let claim = Claim::to_write(&path("data")).unwrap();
        let (env, _) = Env::open(&claim, &Options::default().settings()).unwrap();
        let entries = env.open_table(format::ENTRIES).unwrap().unwrap();
        let mut txn = env.begin_write().unwrap();
        let stored = [&*record::header(b"later", b"1"), b"1"].concat();
        txn.cursor_mut(entries).unwrap().put(b"later", &stored, Put::Over).unwrap();
        txn.commit().unwrap();
        drop((env, claim));
        assert!(is_exact("with log") && !without_log("without"));
    }
}
