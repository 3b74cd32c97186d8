//! `throng store`: inspects, verifies, copies and imports a store.
//!
//! Invariants:
//! * A store is opened read-only, so all commands but `salvage` and `entity forget` work while a node writes to it.
//!   No store is created, except by an import. A store that was not closed cleanly is read as it is, with its log.
//! * Results go to standard output. Progress goes to standard error, only on a terminal.
//! * A damaged file that crashes its reader crashes a child process, and the parent reports it.

mod entity;
mod show;

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::error::ErrorKind;
use clap::{Args, Subcommand};
use entity::EntityArgs;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use show::ByteFormat;
use throng_durable::RecordsError;
use throng_node::http::{KEY_FILE, KeyError, Signer};
use throng_store::{
    Bytes, DATABASES_MAX, Database, DatabaseOptions, DatabaseStat, ImportError, OpenError,
    ReadError, RestoreError, Restored, SalvageError, Salvaged, Scan, Store, Until,
};

/// Arguments of `throng store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Print the size of a store and its databases
    Stat(StatArgs),
    /// Read the whole store and verify all checksums
    Verify(VerifyArgs),
    /// Write a compact, durable copy into a directory, with the key that signs logins if there is one
    Backup(BackupArgs),
    /// Write a new store of a backup and the later changes in a log, up to a position or a time
    Restore(RestoreArgs),
    /// Write everything in a damaged store that can be proved to be whole into a new store, and list the rest
    Salvage(SalvageArgs),
    /// Copy a directory that plain LMDB or a library over it has written into a new store
    Import(ImportArgs),
    /// Print the value or values of a key
    Get(GetArgs),
    /// Print entries in key order, one per line: key, tab, value
    Scan(ScanArgs),
    /// List stored entities, export one as bytes, or remove one that cannot be loaded
    Entity(EntityArgs),
}

#[derive(Debug, Args)]
struct StatArgs {
    /// Directory of the store, such as `throng-data`
    path: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Directory of the store
    path: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Read in this process instead of a child, even if damage may end it
    #[arg(long, hide = true)]
    here: bool,
}

#[derive(Debug, Args)]
struct BackupArgs {
    /// Directory of the store
    path: PathBuf,

    /// Directory for the copy; it must neither contain a store nor lie within one
    to: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restores what a store was at some moment, even if it has changed or is damaged since. The log has the
/// changes since the last checkpoint; with `serve --keep-log`, also those before.
#[derive(Debug, Args)]
struct RestoreArgs {
    /// Directory of the backup
    backup: PathBuf,

    /// Directory `log` of the store of which the backup was made, such as `throng-data/log`
    #[arg(id = "LOG")]
    log: PathBuf,

    /// Directory for the new store; it must not contain a store
    to: PathBuf,

    /// Last position, or last time as in `2026-02-28T13:30:00Z`; by default the end of the log
    #[arg(long, value_name = "POSITION|TIME", value_parser = moment)]
    at: Option<Until>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Salvages a store that no other command can open. The store must not be in use, and is only read. The exit
/// status is 1 if anything is lost or not proved.
#[derive(Debug, Args)]
struct SalvageArgs {
    /// Directory of the damaged store
    from: PathBuf,

    /// Directory for the new store; it must not contain a store
    to: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// Directory with LMDB's `data.mdb`
    from: PathBuf,

    /// Directory for the store; it must not contain a store
    to: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// Directory of the store
    path: PathBuf,

    /// Key; write bytes that cannot be typed as `\xNN`
    key: String,

    /// Name of a database, instead of the default database
    #[arg(long, value_name = "NAME")]
    database: Option<String>,

    #[command(flatten)]
    show: ByteFormat,
}

/// Reads entries in chunks, each a snapshot of its moment, so that a long scan does not make the
/// file of a running node grow.
#[derive(Debug, Args)]
struct ScanArgs {
    /// Directory of the store
    path: PathBuf,

    /// Name of a database, instead of the default database
    #[arg(long, value_name = "NAME")]
    database: Option<String>,

    /// Print only keys that begin with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "below"])]
    prefix: Option<String>,

    /// Print only keys from this key on, including it
    #[arg(long, value_name = "KEY")]
    from: Option<String>,

    /// Print only keys below this key
    #[arg(long, value_name = "KEY")]
    below: Option<String>,

    /// Print from the last key to the first
    #[arg(long)]
    reverse: bool,

    /// Maximum number of entries to print
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,

    /// Write to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    show: ByteFormat,
}

/// Error of a `throng store` command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("there is no store in {}", .0.display())]
    NoStore(PathBuf),
    #[error(transparent)]
    Open(OpenError),
    #[error("there is no database named {name:?}; the store has: {there}")]
    NoDatabase { name: String, there: String },
    #[error("there is no key {0}")]
    NoKey(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("nothing is stored of the {kind} {key:?}")]
    NoEntity { kind: String, key: String },
    #[error(
        "the data file in {} is damaged: the process that read it crashed ({status})",
        path.display()
    )]
    Fatal { path: PathBuf, status: std::process::ExitStatus },
    #[error("cannot start a child process to read the store")]
    Child(#[source] io::Error),
    #[error("cannot write the copy into {}", path.display())]
    Backup { path: PathBuf, source: io::Error },
    #[error("{} contains a store already", .0.display())]
    IsStore(PathBuf),
    #[error("nothing was restored")]
    Restore(#[from] RestoreError),
    #[error(
        "nothing was restored: the backup was made later, at {}; use an older backup",
        humantime::format_rfc3339_millis(*.0)
    )]
    LaterBackup(SystemTime),
    #[error("nothing was salvaged")]
    Salvage(#[from] SalvageError),
    #[error("{source}{}", incomplete(left.as_deref()))]
    Import { left: Option<PathBuf>, source: Box<ImportError> },
    #[error("cannot copy the key that signs logins; no copy was made")]
    Key(#[from] KeyError),
    #[error("cannot write {}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

impl StoreArgs {
    /// Runs the command, and returns the exit status.
    ///
    /// # Errors
    /// There is no store, or no such entry; the store is damaged; or a copy cannot be written.
    pub(crate) fn run(self) -> Result<ExitCode, StoreError> {
        match self.command {
            StoreCommand::Stat(stat) => stat.run()?,
            StoreCommand::Verify(verify) => return verify.run(),
            StoreCommand::Backup(backup) => backup.run()?,
            StoreCommand::Restore(restore) => restore.run()?,
            StoreCommand::Salvage(salvage) => return salvage.run(),
            StoreCommand::Import(import) => import.run()?,
            StoreCommand::Get(get) => get.run()?,
            StoreCommand::Scan(walk) => walk.run()?,
            StoreCommand::Entity(entity) => entity.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl StatArgs {
    fn run(self) -> Result<(), StoreError> {
        let store = open(&self.path)?;
        let stat = store.stat()?;
        let databases = store.stat_databases()?;
        if self.json {
            let databases: Vec<_> = databases.iter().map(database_json).collect();
            return print(&format!(
                "{}\n",
                json!({
                    "file_bytes": stat.file_bytes,
                    "used_bytes": stat.used_bytes,
                    "log_bytes": stat.log_bytes,
                    "memory_bytes": stat.memory_bytes,
                    "snapshot_lag_commits": stat.snapshot_lag_commits,
                    "databases": databases,
                })
            ));
        }
        let mut text = format!(
            "file  {} ({} of it ever in use), log {}\n\
             oldest snapshot  {} commits behind\n\n",
            HumanBytes(stat.file_bytes),
            HumanBytes(stat.used_bytes),
            HumanBytes(stat.log_bytes),
            stat.snapshot_lag_commits
        );
        let width = name_width(databases.iter().map(|database| &database.name));
        text += &format!("{:width$}  {:>12}  {:>12}  VALUES\n", "DATABASE", "ENTRIES", "BYTES");
        for database in &databases {
            text += &format!(
                "{:width$}  {:>12}  {:>12}  {}\n",
                name(&database.name),
                database.entries,
                HumanBytes(database.bytes).to_string(),
                values(&database.options),
            );
        }
        print(&text)
    }
}

/// Returns a database's name on one line.
fn name(name: &Option<String>) -> String {
    name.as_ref().map_or_else(|| "(default)".into(), |name| name.escape_debug().to_string())
}

/// Returns the width of a column of names.
fn name_width<'n>(names: impl Iterator<Item = &'n Option<String>>) -> usize {
    names.map(|stored| name(stored).len()).max().unwrap_or(0).max(8)
}

/// Describes the values of a database.
fn values(options: &DatabaseOptions) -> &'static str {
    match options {
        options if options.has_duplicates() => "several per key",
        options if options.has_checksums() => "with checksums",
        _ => "without checksums",
    }
}

fn database_json(database: &DatabaseStat) -> serde_json::Value {
    json!({
        "name": database.name,
        "entries": database.entries,
        "bytes": database.bytes,
        "checksums": database.options.has_checksums(),
        "duplicates": database.options.has_duplicates(),
    })
}

impl VerifyArgs {
    /// Verifies the store in a child process, because damage may crash the reader.
    fn run(self) -> Result<ExitCode, StoreError> {
        if self.here {
            return self.verify();
        }
        let program = std::env::current_exe().map_err(StoreError::Child)?;
        let status = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .arg("--here")
            .status()
            .map_err(StoreError::Child)?;
        match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => Ok(ExitCode::from(code)),
            None if self.json => {
                let damage = format!("the process that read the data file crashed ({status})");
                print(&format!("{}\n", json!({ "sound": false, "damage": damage })))?;
                Ok(ExitCode::FAILURE)
            }
            None => Err(StoreError::Fatal { path: self.path, status }),
        }
    }

    fn verify(self) -> Result<ExitCode, StoreError> {
        let outcome = open(&self.path).and_then(|store| {
            let entries = store.stat_databases()?.iter().map(|database| database.entries).sum();
            let bar = entries_bar(Some(entries));
            let verified = store.verify_with(|entries| bar.set_position(entries));
            bar.finish_and_clear();
            Ok(verified?)
        });
        let damage = match &outcome {
            Ok(entries) if self.json => {
                print(&format!("{}\n", json!({ "sound": true, "entries": entries })))?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(entries) => {
                print(&format!("sound: {entries} entries verified\n"))?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(StoreError::Read(ReadError::Corrupt(damage))) => damage,
            Err(StoreError::Open(OpenError::Corrupt { reason, .. })) => reason,
            Err(_) => return outcome.map(|_| ExitCode::FAILURE),
        };
        if self.json {
            print(&format!("{}\n", json!({ "sound": false, "damage": damage })))?;
            return Ok(ExitCode::FAILURE);
        }
        outcome.map(|_| ExitCode::FAILURE)
    }
}

impl BackupArgs {
    fn run(self) -> Result<(), StoreError> {
        let store = open(&self.path)?;
        let bar = bar(ProgressBar::new(store.stat()?.used_bytes), BYTES_BAR);
        let copy = self.to.join(DATA_FILE);
        // The key comes first, so that a copy with a data file also has its key.
        let key = copy_key(&self.path, &self.to)?;
        let refused = |source| StoreError::Backup { path: self.to.clone(), source };
        while_growing(&copy, &bar, || store.backup(&self.to)).map_err(refused)?;
        let with_key = key.keep();
        let written = fs::metadata(&copy).map_err(refused)?;
        if self.json {
            let copied = json!({ "file_bytes": written.len(), "signing_key": with_key });
            return print(&format!("{copied}\n"));
        }
        let key = if with_key { ", with the key that signs logins" } else { "" };
        print(&format!("copied into {}: {}{key}\n", self.to.display(), HumanBytes(written.len())))
    }
}

/// Copy of the key that signs logins, which is removed when dropped, with the directories made for it.
#[derive(Default)]
struct KeyCopy {
    is_there: bool,
    to: PathBuf,
    made: Vec<PathBuf>,
}

impl KeyCopy {
    /// Keeps the key, beside the store that was copied. Returns whether there is a key.
    fn keep(mut self) -> bool {
        self.made.clear();
        self.is_there
    }
}

impl Drop for KeyCopy {
    fn drop(&mut self) {
        // Another copy into the same directory has the same key.
        let is_used = |file: &str| self.to.join(file).exists();
        if is_used(DATA_FILE) || is_used("draft") {
            return;
        }
        for path in &self.made {
            // The error of the copy matters, not these.
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
}

/// Copies the key that signs logins, if the store is a node's and the copy can be kept private.
fn copy_key(from: &Path, to: &Path) -> Result<KeyCopy, StoreError> {
    let key = from.join(KEY_FILE);
    let mut copied = KeyCopy { is_there: false, to: to.into(), made: Vec::new() };
    if !key.exists() {
        return Ok(copied);
    }
    let copy = to.join(KEY_FILE);
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    copied.made.extend(copy.ancestors().take_while(is_missing).map(Path::to_owned));
    let refused = |source| StoreError::Backup { path: to.into(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(refused)?;
    // An existing store has its own key, or none.
    if to.join(DATA_FILE).exists() {
        return Err(refused(io::ErrorKind::AlreadyExists.into()));
    }
    match Signer::copy_key(&key, &copy) {
        Err(KeyError::Exposed { path }) if path == copy && !copy.exists() => {
            tracing::warn!(
                path = %path.display(),
                "the key that signs logins was not copied: the file system cannot keep it private"
            );
        }
        outcome => {
            outcome?;
            copied.is_there = true;
        }
    }
    Ok(copied)
}

/// Parses the moment up to which a store is restored.
fn moment(text: &str) -> Result<Until, &'static str> {
    if let Ok(position) = text.parse() {
        return Ok(Until::Position(position));
    }
    let time = humantime::parse_rfc3339(text).map(Until::Time);
    time.map_err(|_| "a moment is a position, or a time such as 2026-02-28T13:30:00Z")
}

impl RestoreArgs {
    fn run(self) -> Result<(), StoreError> {
        if !self.backup.join(DATA_FILE).exists() {
            return Err(StoreError::NoStore(self.backup));
        }
        let file = self.to.join(DATA_FILE);
        if file.exists() {
            return Err(StoreError::IsStore(self.to));
        }
        let bytes = fs::metadata(self.backup.join(DATA_FILE)).map_or(0, |backup| backup.len());
        let bar = bar(ProgressBar::new(bytes), BYTES_BAR);
        // The key comes first, so that a store with a data file also has its key.
        let key = copy_key(&self.backup, &self.to)?;
        let until = self.at.unwrap_or(Until::End);
        let restore = || Store::restore(&self.backup, &self.log, &self.to, until);
        let restored = while_growing(&self.to.join("draft").join(DATA_FILE), &bar, restore);
        let restored = restored.map_err(|error| match error {
            RestoreError::Later { time, .. } if matches!(until, Until::Time(_)) => {
                StoreError::LaterBackup(time)
            }
            error => error.into(),
        })?;
        let with_key = key.keep();
        let Restored { position, time, .. } = restored;
        let time = time.map(|time| humantime::format_rfc3339_millis(time).to_string());
        if self.json {
            let restored = json!({ "position": position, "time": time, "signing_key": with_key });
            return print(&format!("{restored}\n"));
        }
        let time = time.unwrap_or_else(|| "the time of the backup".into());
        print(&format!("restored into {}: position {position}, {time}\n", self.to.display()))
    }
}

impl SalvageArgs {
    fn run(self) -> Result<ExitCode, StoreError> {
        if !self.from.exists() {
            return Err(StoreError::NoStore(self.from));
        }
        let file = self.to.join(DATA_FILE);
        if file.exists() {
            return Err(StoreError::IsStore(self.to));
        }
        let bytes = fs::metadata(self.from.join(DATA_FILE)).map_or(0, |from| from.len());
        let bar = bar(ProgressBar::new(bytes), BYTES_BAR);
        // The key comes first, so that a store with a data file also has its key. A damaged key must not keep
        // the rest from being used.
        let key = copy_key(&self.from, &self.to).unwrap_or_else(|error| {
            tracing::warn!(%error, "the key that signs logins was not copied");
            KeyCopy::default()
        });
        let salvage = || Store::salvage(&self.from, &self.to);
        let salvaged = while_growing(&self.to.join("draft").join(DATA_FILE), &bar, salvage)?;
        let with_key = key.keep();
        print(&if self.json { self.json(&salvaged, with_key) } else { self.text(&salvaged) })?;
        let is_whole = salvaged.losses.is_empty();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn json(&self, salvaged: &Salvaged, with_key: bool) -> String {
        let databases: Vec<_> = salvaged
            .databases
            .iter()
            .map(|database| {
                json!({
                    "name": database.name,
                    "entries": database.entries,
                    "entries_lost": database.entries_lost,
                    "checksums": database.options.has_checksums(),
                })
            })
            .collect();
        let losses: Vec<_> = salvaged.losses.iter().map(ToString::to_string).collect();
        let salvaged = json!({
            "position": salvaged.position,
            "time": salvaged.time.map(|time| humantime::format_rfc3339_millis(time).to_string()),
            "exact": salvaged.is_exact,
            "databases": databases,
            "losses": losses,
            "losses_more": salvaged.losses_more,
            "signing_key": with_key,
        });
        format!("{salvaged}\n")
    }

    fn text(&self, salvaged: &Salvaged) -> String {
        let Salvaged { position, databases, losses, .. } = salvaged;
        let state = if salvaged.is_exact { "exactly the state at" } else { "the rest, up to" };
        let mut text = format!("salvaged into {}: {state} position {position}", self.to.display());
        if let Some(time) = salvaged.time {
            text += &format!(", {}", humantime::format_rfc3339_millis(time));
        }
        let width = name_width(databases.iter().map(|database| &database.name));
        text += &format!("\n\n{:width$}  {:>12}  {:>12}  VALUES\n", "DATABASE", "ENTRIES", "LOST");
        for database in databases {
            text += &format!(
                "{:width$}  {:>12}  {:>12}  {}\n",
                name(&database.name),
                database.entries,
                database.entries_lost,
                values(&database.options),
            );
        }
        if !losses.is_empty() {
            text += "\nlost or not proved:\n";
        }
        losses.iter().take(LOSSES_MAX).for_each(|loss| text += &format!("{loss}\n"));
        let more = losses.len().saturating_sub(LOSSES_MAX) as u64 + salvaged.losses_more;
        if more > 0 {
            text += &format!("… and {more} more; `--json` lists the first 10,000\n");
        }
        text
    }
}

/// Number of losses that are printed.
const LOSSES_MAX: usize = 50;

impl ImportArgs {
    fn run(self) -> Result<(), StoreError> {
        let file = self.to.join(DATA_FILE);
        if file.exists() {
            return Err(StoreError::IsStore(self.to));
        }
        let bytes = fs::metadata(self.from.join(DATA_FILE)).map_or(0, |from| from.len());
        let was_there = self.to.exists();
        let options = Store::options().databases_max(DATABASES_MAX);
        let store = options.open(&self.to).map_err(StoreError::Open)?;
        let bar = bar(ProgressBar::new(bytes), BYTES_BAR);
        let imported = while_growing(&file, &bar, || store.import(&self.from));
        drop(store);
        let databases = imported.map_err(|source| {
            // Part of the entries are of no use. If they cannot be removed, the error says where they are.
            let is_gone = !was_there && fs::remove_dir_all(&self.to).is_ok();
            StoreError::Import { left: (!is_gone).then_some(self.to), source: source.into() }
        })?;
        if self.json {
            let databases: Vec<_> = databases
                .iter()
                .map(|database| json!({ "name": database.name, "entries": database.entries }))
                .collect();
            return print(&format!("{}\n", json!({ "databases": databases })));
        }
        let lines = databases.iter().map(|database| {
            let name = database.name.as_deref().unwrap_or("(default)");
            format!("{}: {} entries\n", name.escape_debug(), database.entries)
        });
        print(&lines.collect::<String>())
    }
}

/// Describes what an import that failed has left.
fn incomplete(left: Option<&Path>) -> String {
    left.map_or(String::new(), |left| {
        format!("; the store in {} is incomplete, so remove it", left.display())
    })
}

/// Runs `work` on a thread of its own, and shows meanwhile how the file grows, the only measure of its
/// progress.
fn while_growing<T: Send>(file: &Path, bar: &ProgressBar, work: impl FnOnce() -> T + Send) -> T {
    let result = thread::scope(|scope| {
        let (done, wait) = mpsc::channel::<()>();
        let working = scope.spawn(|| {
            let result = work();
            drop(done);
            result
        });
        while wait.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            bar.set_position(fs::metadata(file).map_or(0, |file| file.len()));
        }
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    bar.finish_and_clear();
    result
}

impl GetArgs {
    fn run(self) -> Result<(), StoreError> {
        let key = parse(self.show, &self.key);
        let store = open(&self.path)?;
        let (database, _) = open_database(&store, self.database.as_deref())?;
        let snapshot = store.snapshot()?;
        let entries = database.values(&snapshot, &key);
        let mut found = false;
        let mut out = BufWriter::new(io::stdout().lock());
        for entry in entries {
            let (key, value) = entry?;
            found = true;
            write_entry(&mut out, self.show, key, value, false).map_err(StoreError::Print)?;
        }
        out.flush().map_err(StoreError::Print)?;
        if found { Ok(()) } else { Err(StoreError::NoKey(self.show.text(&key))) }
    }
}

impl ScanArgs {
    fn run(self) -> Result<(), StoreError> {
        let typed = |typed: &Option<String>| typed.as_ref().map(|typed| parse(self.show, typed));
        let (prefix, from, below) = (typed(&self.prefix), typed(&self.from), typed(&self.below));
        let store = open(&self.path)?;
        let (database, stat) = open_database(&store, self.database.as_deref())?;
        let bounds = (
            from.as_deref().map_or(Bound::Unbounded, Bound::Included),
            below.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        let scan = match &prefix {
            Some(prefix) => database.scan_prefix(prefix),
            None => database.scan(bounds),
        };
        let scan = if self.reverse { scan.backward() } else { scan };
        let Some(path) = &self.output else {
            let out = BufWriter::new(io::stdout().lock());
            return match self.write(scan, out, &ProgressBar::hidden()) {
                // The reader of the output has closed it.
                Err(ScanError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                Err(ScanError::Write(error)) => Err(StoreError::Print(error)),
                Err(ScanError::Read(error)) => Err(error.into()),
                Ok(_) => Ok(()),
            };
        };
        let entries = stat.entries;
        let all = prefix.is_none() && from.is_none() && below.is_none();
        let bar = entries_bar(self.limit.or(all.then_some(entries)).map(|most| most.min(entries)));
        let output = |source| StoreError::Output { path: path.clone(), source };
        let mut options = OpenOptions::new();
        // Entries are as private as their store.
        let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(output)?;
        let written = self.write(scan, BufWriter::new(file), &bar);
        bar.finish_and_clear();
        match written {
            Ok(entries) => print(&format!("{entries} entries in {}\n", path.display())),
            Err(ScanError::Read(error)) => Err(error.into()),
            Err(ScanError::Write(source)) => Err(output(source)),
        }
    }

    /// Writes the entries, and returns their number.
    fn write(&self, scan: Scan, mut out: impl Write, bar: &ProgressBar) -> Result<u64, ScanError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let mut entries = 0;
        // Chunks hold at most `limit` entries, so that no entry is read for nothing.
        for chunk in scan.chunk(usize::try_from(limit.min(CHUNK_ENTRIES)).unwrap_or(1)) {
            let chunk = chunk.map_err(ScanError::Read)?;
            for entry in &chunk {
                if entries == limit {
                    break;
                }
                let (key, value) = entry.map_err(ScanError::Read)?;
                write_entry(&mut out, self.show, key, value, true).map_err(ScanError::Write)?;
                entries += 1;
            }
            bar.set_position(entries);
            if entries == limit {
                break;
            }
        }
        out.flush().map_err(ScanError::Write)?;
        Ok(entries)
    }
}

/// Reason for the end of a scan.
enum ScanError {
    Read(ReadError),
    Write(io::Error),
}

/// Maximum number of entries per chunk.
const CHUNK_ENTRIES: u64 = 1_000;

/// Interval between updates of the progress of a copy.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Name of a store's data file.
pub(crate) const DATA_FILE: &str = "data.mdb";

fn open(path: &Path) -> Result<throng_store::Store, StoreError> {
    if !path.join(DATA_FILE).exists() {
        return Err(StoreError::NoStore(path.into()));
    }
    let options = throng_store::Store::options().databases_max(DATABASES_MAX);
    options.read_only(true).open(path).map_err(StoreError::Open)
}

/// Opens the database `name`, with the options that it was created with; without a name, the default
/// database.
fn open_database(
    store: &throng_store::Store,
    name: Option<&str>,
) -> Result<(Database<Bytes, Bytes>, DatabaseStat), StoreError> {
    let stats = store.stat_databases()?;
    let missing = || {
        let there: Vec<_> = stats.iter().filter_map(|stat| stat.name.as_deref()).collect();
        let there = if there.is_empty() { "none".into() } else { there.join(", ") };
        StoreError::NoDatabase { name: name.unwrap_or_default().into(), there }
    };
    let stat = stats.iter().find(|stat| stat.name.as_deref() == name).ok_or_else(missing)?;
    let database = match name {
        Some(name) => store.database_with(name, &stat.options).map_err(|_| missing())?,
        None => store.default_database(),
    };
    Ok((database, stat.clone()))
}

/// Parses a key from the command line; exits with a usage error if it is malformed.
fn parse(show: ByteFormat, typed: &str) -> Vec<u8> {
    show.parse(typed).unwrap_or_else(|wrong| {
        clap::Error::raw(ErrorKind::ValueValidation, format!("{wrong}\n")).exit()
    })
}

/// Writes an entry on a line: the value, and the key if `with_key`.
fn write_entry(
    out: &mut impl Write,
    show: ByteFormat,
    key: &[u8],
    value: &[u8],
    with_key: bool,
) -> io::Result<()> {
    if show.json {
        return writeln!(out, "{}", json!({ "key": show.text(key), "value": show.text(value) }));
    }
    if with_key {
        out.write_all(&show.bytes(key))?;
        out.write_all(b"\t")?;
    }
    out.write_all(&show.bytes(value))?;
    out.write_all(b"\n")
}

/// Creates a progress bar by entries; without a total it is a spinner.
fn entries_bar(entries: Option<u64>) -> ProgressBar {
    match entries {
        Some(entries) => bar(ProgressBar::new(entries), ENTRIES_BAR),
        None => bar(ProgressBar::new_spinner(), ENTRIES_SPINNER),
    }
}

/// Returns a bar for the changes of a recovery.
const ENTRIES_BAR: &str = "{bar:40} {human_pos} of {human_len} entries, {eta} to go";
const ENTRIES_SPINNER: &str = "{spinner} {human_pos} entries";
const BYTES_BAR: &str = "{bar:40} {bytes} of at most {total_bytes}, {bytes_per_sec}";

/// Styles a progress bar, which is drawn on standard error if that is a terminal.
fn bar(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(text: &str) -> Result<(), StoreError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(StoreError::Print(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_templates_are_templates() {
        for template in [ENTRIES_BAR, ENTRIES_SPINNER, BYTES_BAR] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
