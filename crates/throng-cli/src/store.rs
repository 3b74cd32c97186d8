//! `throng store`: inspects, verifies, copies and imports a store.
//!
//! Invariants:
//! * A store is opened read-only, so all commands but `salvage` work while a node writes to it.
//!   No store is created, except by an import. A store that was not closed cleanly is read as it is, with its log.
//! * Results go to standard output. Progress goes to standard error, only on a terminal.
//! * A damaged file that crashes its reader crashes a child process, and the parent reports it.

mod copies;
mod show;

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::error::ErrorKind;
use clap::{Args, Subcommand};
pub(crate) use copies::moment;
use copies::{BackupArgs, ImportArgs, RestoreArgs, SalvageArgs, incomplete};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use show::ByteFormat;
pub(crate) use show::parse_hex;
use throng_node::http::KeyError;
use throng_store::{
    Bytes, DATABASES_MAX, Database, DatabaseOptions, DatabaseStat, ImportError, OpenError,
    ReadError, RestoreError, SalvageError, Scan,
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

impl GetArgs {
    fn run(self) -> Result<(), StoreError> {
        let key = parse(self.show, &self.key);
        let store = open(&self.path)?;
        let database = open_database(&store, self.database.as_deref())?;
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
        let database = open_database(&store, self.database.as_deref())?;
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
        let entries = database.len(&store.snapshot()?)?;
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
) -> Result<Database<Bytes, Bytes>, StoreError> {
    let Some(name) = name else { return Ok(store.default_database()) };
    let stats = store.stat_databases()?;
    let missing = || {
        let there: Vec<_> = stats.iter().filter_map(|stat| stat.name.as_deref()).collect();
        let there = if there.is_empty() { "none".into() } else { there.join(", ") };
        StoreError::NoDatabase { name: name.into(), there }
    };
    let stat = stats.iter().find(|stat| stat.name.as_deref() == Some(name)).ok_or_else(missing)?;
    store.database_with(name, &stat.options).map_err(|_| missing())
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
