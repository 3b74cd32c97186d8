//! Runtimes in other languages: programs in `bench/peers` that do a workload's steps and print its line.
//!
//! - `bench setup` carries out the steps that `runtimes.toml` lists and leaves a mark for each: a hash of the sources
//!   for files that it has built, the list of packages for packages. A command with `{target}` runs only if the marks
//!   are those of the present sources and lists, so that no run measures an older program.
//! - A command without `{target}` is that of an interpreter, which is searched for in `PATH`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::limits::Limit;
use crate::memory;
use crate::peer::{Peer, Program};
use crate::runtimes::has;
use crate::settings::Settings;
use crate::stores::files_below;
use crate::workloads::served;

/// The environment variable that names another place for `bench/peers/target`.
const TARGET_VARIABLE: &str = "BENCH_PEERS_TARGET";

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The crate whose code is part of each peer in Rust.
const STEPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/steps");

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForeignRuntime {
    pub(crate) name: &'static str,
    pub(crate) folder: &'static str,
    class: &'static str,
    pub(crate) workloads: &'static str,
    pub(crate) setup: Vec<Step>,
    command: Vec<&'static str>,
    #[serde(default)]
    unset: &'static str,
    #[serde(default)]
    env: Environment,
    #[serde(default)]
    words: &'static str,
    #[serde(default)]
    limits: Vec<Limit>,
    /// Rows of the runtime, the default first.
    pub(crate) row: Vec<ForeignRow>,
}

type Environment = BTreeMap<&'static str, &'static str>;

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
    pub(crate) needs: Vec<&'static str>,
    pub(crate) apt: &'static str,
    pub(crate) pip: &'static str,
    pub(crate) npm: &'static str,
    pub(crate) build: Vec<&'static str>,
}

/// A row of a runtime: its default or other settings of it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForeignRow {
    pub(crate) name: &'static str,
    #[serde(default)]
    about: &'static str,
    class: Option<&'static str>,
    only: Option<&'static str>,
    but: Option<&'static str>,
    command: Option<Vec<&'static str>>,
    #[serde(default)]
    env: Environment,
    words: Option<&'static str>,
    limits: Option<Vec<Limit>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Absence {
    #[error("`{program}` is not installed; `bench setup {runtime}` installs it where it can")]
    NotInstalled { program: &'static str, runtime: &'static str },
    #[error("it is not built; `bench setup {runtime}` builds it")]
    NotBuilt { runtime: &'static str },
    #[error("it was built from other sources; `bench setup {runtime}` builds it again")]
    Stale { runtime: &'static str },
    #[error("the version that `bench setup {runtime}` found has not all that this row needs")]
    Incapable { runtime: &'static str },
}

impl ForeignRuntime {
    pub(crate) fn peers(&'static self, workload: &str) -> impl Iterator<Item = Peer> {
        let having = self.row.iter().filter(move |row| {
            has(self.workloads, workload)
                && row.only.is_none_or(|only| has(only, workload))
                && row.but.is_none_or(|but| !has(but, workload))
        });
        having.map(move |row| Peer {
            runtime: row.name,
            about: row.about,
            class: row.class.unwrap_or(self.class),
            program: Program::Foreign { runtime: self, row },
            words: row.words.unwrap_or(self.words),
            limits: row.limits.as_ref().unwrap_or(&self.limits),
        })
    }

    fn parts(&'static self, row: &'static ForeignRow) -> &'static [&'static str] {
        row.command.as_ref().unwrap_or(&self.command)
    }

    pub(crate) fn command(
        &'static self,
        row: &'static ForeignRow,
        settings: &Settings,
    ) -> Result<Command, Absence> {
        let parts = self.parts(row);
        if parts.iter().any(|part| part.contains("{target}")) {
            self.check_marks()?;
        }
        let mut parts = parts.iter().map(|part| self.expanded(part));
        let mut command = Command::new(parts.next().unwrap_or_default());
        self.unset.split(' ').filter(|name| !name.is_empty()).for_each(|name| {
            command.env_remove(name);
        });
        let workers = settings.workers.to_string();
        // The largest limit that the emulator of Erlang accepts.
        let processes = settings.processes().saturating_add(1024).min(134_217_727).to_string();
        // Where the kernel does not tell how much is available, a limit that any machine has.
        let half = memory::available_bytes().unwrap_or(2 << 30) / 2;
        for (name, value) in self.env.iter().chain(&row.env) {
            let value = value.replace("{workers}", &workers).replace("{process_limit}", &processes);
            command.env(name, value.replace("{half_of_memory}", &half.to_string()));
        }
        if let Ok(bench) = env::current_exe() {
            command.env(served::CLIENT_VARIABLE, bench);
        }
        command.args(parts);
        Ok(command)
    }

    /// The reason why the program of a row was not found.
    pub(crate) fn absence(&'static self, row: &'static ForeignRow) -> Absence {
        match self.parts(row) {
            [program, ..] if !program.contains("{target}") => {
                Absence::NotInstalled { program, runtime: self.name }
            }
            // Setup leaves a program out if the version that it found cannot run it.
            _ if self.check_marks().is_ok() => Absence::Incapable { runtime: self.name },
            _ => Absence::NotBuilt { runtime: self.name },
        }
    }

    /// The file that marks a step as done, and its text; `None` if the step leaves nothing in `{target}`.
    pub(crate) fn mark(&self, step: &Step) -> io::Result<Option<(PathBuf, String)>> {
        let (name, text) = match step {
            Step { needs, .. } if !needs.is_empty() => return Ok(None),
            Step { pip, .. } if !pip.is_empty() => ("pip", (*pip).to_owned()),
            Step { npm, .. } if !npm.is_empty() => ("npm", (*npm).to_owned()),
            _ => ("built", self.hash()?),
        };
        Ok(Some((self.target().join(name), text)))
    }

    pub(crate) fn target(&self) -> PathBuf {
        let of_all = env::var_os(TARGET_VARIABLE)
            .map_or_else(|| Path::new(PEERS).join("target"), PathBuf::from);
        of_all.join(self.name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        Path::new(PEERS).join(self.folder)
    }

    /// A part of a command with the directories in place of their names.
    pub(crate) fn expanded(&self, part: &str) -> String {
        part.replace("{source}", &self.source().to_string_lossy())
            .replace("{target}", &self.target().to_string_lossy())
    }

    fn check_marks(&self) -> Result<(), Absence> {
        let runtime = self.name;
        for step in &self.setup {
            match self.mark(step) {
                Ok(None) => {}
                Ok(Some((mark, text))) => match fs::read_to_string(mark) {
                    Ok(found) if found == text => {}
                    Ok(_) => return Err(Absence::Stale { runtime }),
                    Err(_) => return Err(Absence::NotBuilt { runtime }),
                },
                Err(_) => return Err(Absence::NotBuilt { runtime }),
            }
        }
        Ok(())
    }

    /// A hash of the steps and of the names and contents of the sources.
    fn hash(&self) -> io::Result<String> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.setup).hash(&mut hasher);
        let mut sources = files(&self.source())?;
        if self.source().join("Cargo.toml").exists() {
            sources.append(&mut files(Path::new(STEPS))?);
        }
        for (path, content) in sources {
            (path, content).hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

fn files(directory: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    files_below(directory)?.into_iter().map(|path| Ok((path.clone(), fs::read(path)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;

    #[test]
    fn every_foreign_runtime_has_its_folder_and_rows_of_its_workloads() {
        for runtime in runtimes::foreign() {
            assert!(runtime.source().is_dir(), "{}", runtime.name);
            assert!(runtime.row[0].name.starts_with(runtime.name), "{}", runtime.name);
            for names in runtime.row.iter().flat_map(|row| row.only.iter().chain(&row.but)) {
                assert!(names.split(' ').all(|name| has(runtime.workloads, name)), "{names}");
            }
        }
    }

    #[test]
    fn a_hash_is_of_the_names_and_the_contents_of_all_files() {
        let place = tempfile::tempdir().expect("there is room for a directory");
        fs::create_dir(place.path().join("inner")).expect("there is room");
        fs::write(place.path().join("inner/a.txt"), "1").expect("there is room");
        let found = files(place.path()).expect("the directory is there");
        assert_eq!(found.into_values().collect::<Vec<_>>(), [b"1"]);
    }
}
