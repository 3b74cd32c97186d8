//! Results on the disk: a directory per run of the suite, with one file of rows.
//!
//! Rows are appended as they are measured, so an interrupted run loses none; `--continue` goes on with
//! the first measurement that has no row.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use crate::row::Row;

const ROWS: &str = "rows.jsonl";

/// A directory of results that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResultsError {
    #[error("{} has results; `--continue` adds the missing ones, `--output` names another directory", path.display())]
    Exists { path: PathBuf },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}, line {line}: no row of this version of bench", path.display())]
    Garbled { path: PathBuf, line: usize, source: serde_json::Error },
}

pub(crate) struct Results {
    path: PathBuf,
    file: File,
    /// Names of the measurements that had rows before.
    measured: HashSet<String>,
}

impl Results {
    /// Opens a directory to add rows; creates it if there is none.
    pub(crate) fn open(directory: &Path, continues: bool) -> Result<Results, ResultsError> {
        let path = directory.join(ROWS);
        let failed = |source| ResultsError::Io { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let before = if path.exists() { read(directory)? } else { Vec::new() };
        if !before.is_empty() && !continues {
            return Err(ResultsError::Exists { path: directory.to_owned() });
        }
        let measured = before.into_iter().filter_map(|row| row.measurement).collect();
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        Ok(Results { path, file, measured })
    }

    /// Whether the directory had rows of a measurement when it was opened.
    pub(crate) fn has(&self, measurement: &str) -> bool {
        self.measured.contains(measurement)
    }

    pub(crate) fn add(&mut self, rows: &[Row]) -> Result<(), ResultsError> {
        let lines: String = rows.iter().map(|row| row.line() + "\n").collect();
        let failed = |source| ResultsError::Io { path: self.path.clone(), source };
        self.file.write_all(lines.as_bytes()).map_err(failed)
    }
}

pub(crate) fn read(directory: &Path) -> Result<Vec<Row>, ResultsError> {
    let path = directory.join(ROWS);
    let failed = |source| ResultsError::Io { path: path.clone(), source };
    let text = fs::read_to_string(&path).map_err(failed)?;
    let rows = text.lines().enumerate().map(|(index, line)| {
        let garbled =
            |source| ResultsError::Garbled { path: path.clone(), line: index + 1, source };
        serde_json::from_str(line).map_err(garbled)
    });
    rows.collect()
}

/// The directory in `bench/results` whose name sorts last, so the one with the newest date.
pub(crate) fn newest_directory() -> Option<PathBuf> {
    let directories = fs::read_dir(usual_parent()).ok()?.flatten().map(|entry| entry.path());
    directories.filter(|directory| directory.join(ROWS).exists()).max()
}

fn usual_parent() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// The usual directory for results of this machine that are measured today: `DATE-MACHINE` in
/// `bench/results`.
pub(crate) fn usual_directory(machine: &str) -> PathBuf {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
    let name = format!("{}-{}", now.strftime("%Y-%m-%d"), short(machine));
    usual_parent().join(name)
}

/// A machine's name as part of a file name: the processor and the number of cores, without the kernel.
fn short(machine: &str) -> String {
    let parts = machine.split(", ").take(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words = parts.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_gives_a_file_name() {
        let machine = "AMD EPYC (Zen 5) Processor @ 2.1GHz, 2 cores, linux 6.18.0";
        assert_eq!(short(machine), "amd-epyc-zen-5-processor-2-1ghz-2-cores");
    }

    #[test]
    fn rows_come_back_and_are_not_overwritten() {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let row = Row::with(serde_json::json!({}));
        let mut results = Results::open(directory.path(), false).expect("it is empty");
        assert!(!results.has("send"));
        results.add(std::slice::from_ref(&row)).expect("it can be written");
        let read = read(directory.path()).expect("it can be read");
        assert_eq!(read.iter().map(Row::line).collect::<Vec<_>>(), [row.line()]);
        assert_eq!(read[0].median("send_ns"), Some(1.5));
        let again = Results::open(directory.path(), false);
        assert!(matches!(again, Err(ResultsError::Exists { .. })));
        assert!(Results::open(directory.path(), true).is_ok_and(|results| results.has("send")));
    }
}
