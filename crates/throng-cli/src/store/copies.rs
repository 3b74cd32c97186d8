//! Copies of a store: backup, restore, salvage and import, each into a directory without one.
//!
//! Invariant: what is refused leaves nothing behind, above all no copy of the key that signs logins.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use clap::Args;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;
use throng_node::http::{KEY_FILE, KeyError, Signer};
use throng_store::{DATABASES_MAX, RestoreError, Restored, Salvaged, Store, Until};

use super::{
    BYTES_BAR, DATA_FILE, PROGRESS_INTERVAL, StoreError, bar, name, name_width, open, print, values,
};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
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
pub(super) struct RestoreArgs {
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
pub(super) struct SalvageArgs {
    /// Directory of the damaged store
    from: PathBuf,

    /// Directory for the new store; it must not contain a store
    to: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Directory with LMDB's `data.mdb`
    from: PathBuf,

    /// Directory for the store; it must not contain a store
    to: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BackupArgs {
    pub(super) fn run(self) -> Result<(), StoreError> {
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
pub(crate) fn moment(text: &str) -> Result<Until, &'static str> {
    if let Ok(position) = text.parse() {
        return Ok(Until::Position(position));
    }
    let time = humantime::parse_rfc3339(text).map(Until::Time);
    time.map_err(|_| "a moment is a position, or a time such as 2026-02-28T13:30:00Z")
}

impl RestoreArgs {
    pub(super) fn run(self) -> Result<(), StoreError> {
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
    pub(super) fn run(self) -> Result<ExitCode, StoreError> {
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
    pub(super) fn run(self) -> Result<(), StoreError> {
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
pub(super) fn incomplete(left: Option<&Path>) -> String {
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
