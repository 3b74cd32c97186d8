//! `throng entity export`, `import` and `restore`: an entity as lines of JSON, and back.
//!
//! ```text
//! {"entity":{"format":1,"kind":"note","key":"ann"}}
//! {"table":"K","key":"006d61726b73","value":"0100"}      bytes in hexadecimal: see docs/durable.md, Records
//! {"table":"S","key":"","value":"010568656c6c6f"}
//! {"end":2}                                              number of the records
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use throng_durable::{ExportedRecord, ReadError, Records, RecordsError};
use throng_store::{RestoreError, Store, Until};

use super::{EntityCommandError, Named, Out, Result, read_only, writable};
use crate::store::{StoreError, moment, parse_hex};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    pub(super) name: Named,

    /// Export the bytes that are left of damaged records, without verifying checksums
    #[arg(long)]
    damaged: bool,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// File with an export
    file: PathBuf,

    /// Key of the entity, instead of the one that was exported
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
}

/// Restores what an entity was in a backup, or at a moment after it, beside what it is. Messages, reminders and the pin
/// are left out, because a copy with them would act a second time.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// Directory of the backup
    backup: PathBuf,

    #[command(flatten)]
    pub(super) name: Named,

    /// Key of the copy
    pub(super) new_key: String,

    /// Directory `log` of the store of which the backup was made, with the later changes
    #[arg(long, value_name = "DIRECTORY")]
    log_dir: Option<PathBuf>,

    /// Last position, or last time as in `2026-02-28T13:30:00Z`; by default the end of the log
    #[arg(long, value_name = "POSITION|TIME", value_parser = moment, requires = "log_dir")]
    at: Option<Until>,

    /// Take messages, reminders and the pin as well
    #[arg(long)]
    all: bool,
}

/// A line of an export.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Head { entity: Head },
    Record { table: char, key: String, value: String },
    End { end: u64 },
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    kind: String,
    key: String,
}

const FORMAT: u32 = 1;

impl ExportArgs {
    pub(super) fn run(&self, data: &Path, out: &mut Out<impl Write>) -> Result<()> {
        let Named { kind, key } = &self.name;
        let export = read_only(data, !self.damaged)?.export(kind, key)?;
        let export =
            export.ok_or_else(|| EntityCommandError::NoEntity(Box::new(self.name.clone())))?;
        out.is_json = true;
        let entity = Head { format: FORMAT, kind: kind.clone(), key: key.clone() };
        out.line(&Line::Head { entity }, format_args!(""))?;
        let mut end = 0;
        for record in export {
            let ExportedRecord { table, key, value, .. } = record.map_err(RecordsError::from)?;
            let value = value.map_err(|error| match error {
                ReadError::Corrupt(damage) => EntityCommandError::Damaged(damage),
                error => RecordsError::from(error).into(),
            })?;
            let line = Line::Record { table, key: hex(&key), value: hex(&value) };
            out.line(&line, format_args!(""))?;
            end += 1;
        }
        out.line(&Line::End { end }, format_args!(""))
    }
}

impl ImportArgs {
    pub(super) fn run(&self, data: &Path, out: &mut Out<impl Write>) -> Result<()> {
        // Read to its end before anything is written.
        let (mut head, mut records, mut end) = (None, 0, None);
        self.lines(|at, line| {
            match line {
                Line::Head { entity } if at == 1 && entity.format == FORMAT => head = Some(entity),
                Line::Record { key, value, .. } if head.is_some() && end.is_none() => {
                    parse_hex(&key)?;
                    parse_hex(&value)?;
                    records += 1;
                }
                Line::End { end: written } if written == records && end.is_none() => end = Some(()),
                _ => return Err("it does not belong there, or is of a later version".into()),
            }
            Ok(())
        })?;
        let (Some(Head { kind, key, .. }), Some(())) = (head, end) else {
            let (path, reason) = (self.file.clone(), "the export ends before its last line".into());
            return Err(EntityCommandError::Line { path, line: records as usize + 1, reason });
        };
        let key = self.key.clone().unwrap_or(key);
        let records = self.open()?.lines().map(|line| line.map_err(ReadError::Io));
        let records = records.filter_map(|line| line.map(|line| record(&line)).transpose());
        let written = writable(data)?.import(&kind, &key, records)?;
        told(&kind, &key, written, out)
    }

    fn open(&self) -> Result<BufReader<File>> {
        let failed = |source| EntityCommandError::File { path: self.file.clone(), source };
        Ok(BufReader::new(File::open(&self.file).map_err(failed)?))
    }

    fn lines(
        &self,
        mut each: impl FnMut(usize, Line) -> std::result::Result<(), String>,
    ) -> Result<()> {
        for (at, line) in self.open()?.lines().enumerate() {
            let path = || self.file.clone();
            let line = line.map_err(|source| EntityCommandError::File { path: path(), source })?;
            let parsed = serde_json::from_str(&line).map_err(|error| error.to_string());
            let taken = parsed.and_then(|parsed| each(at + 1, parsed));
            taken.map_err(|reason| EntityCommandError::Line {
                path: path(),
                line: at + 1,
                reason,
            })?;
        }
        Ok(())
    }
}

/// Parses a line that was checked; `None` if it has no record.
fn record(line: &str) -> Option<ExportedRecord> {
    match serde_json::from_str(line).ok()? {
        Line::Record { table, key, value } => {
            Some(ExportedRecord::new(table, parse_hex(&key).ok()?, parse_hex(&value).ok()?))
        }
        _ => None,
    }
}

/// Private directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory beside the data, on the same disk.
    fn beside(data: &Path) -> Result<Scratch> {
        let failed = |source| StoreError::Backup { path: data.into(), source };
        let mut name = data.canonicalize().map_err(failed)?.into_os_string();
        name.push(format!(".restore-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&name).map_err(failed)?;
        Ok(Scratch(name.into()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "a restored copy could not be removed");
        }
    }
}

impl RestoreArgs {
    pub(super) fn run(&self, data: &Path, out: &mut Out<impl Write>) -> Result<()> {
        // Opened first, because a running node refuses it.
        let live = writable(data)?;
        let Some(log) = &self.log_dir else {
            return self.copy(&read_only(&self.backup, true)?, &live, out);
        };
        let scratch = Scratch::beside(data)?;
        let until = self.at.unwrap_or(Until::End);
        let restored = Store::restore(&self.backup, log, &scratch.0, until);
        restored.map_err(|error| match error {
            RestoreError::Later { time, .. } if matches!(until, Until::Time(_)) => {
                StoreError::LaterBackup(time)
            }
            error => error.into(),
        })?;
        self.copy(&read_only(&scratch.0, true)?, &live, out)
    }

    fn copy(&self, from: &Records, to: &Records, out: &mut Out<impl Write>) -> Result<()> {
        let Named { kind, key } = &self.name;
        let export = from.export(kind, key)?;
        let export =
            export.ok_or_else(|| EntityCommandError::NoEntity(Box::new(self.name.clone())))?;
        let acts = |own: &ExportedRecord| ['P', 'I', 'A', 'X', 'T'].contains(&own.table);
        let records = export.filter(|own| self.all || !own.as_ref().is_ok_and(acts));
        told(kind, &self.new_key, to.import(kind, &self.new_key, records)?, out)
    }
}

fn told(kind: &str, key: &str, records: u64, out: &mut Out<impl Write>) -> Result<()> {
    let json = serde_json::json!({ "kind": kind, "key": key, "records": records });
    out.line(&json, format_args!("imported: {kind} {}, {records} records", key.escape_debug()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
