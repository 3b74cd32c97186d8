//! Runtimes in other languages: programs in `bench/peers` that do a workload's steps and print its line.
//!
//! ```text
//! runtimes/R.rs    declares a ForeignRuntime: its class, workloads, steps of setup, rows
//! peers/FOLDER     its sources                                 {source} in its commands
//! peers/target/R   its built files and installed packages      {target} in its commands
//! ```
//!
//! - `bench setup` carries out the steps and leaves a mark for each: a hash of the sources for files that
//!   it has built, the list of packages for packages. A command with `{target}` runs only if the marks are
//!   those of the present sources and lists, so that no run measures an older program.
//! - A command without `{target}` is that of an interpreter, which is searched for in `PATH`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::limits::Limit;
use crate::peer::{Class, Peer, Program};
use crate::workloads::{Workload, served};

/// The environment variable that names another place for `bench/peers/target`.
const TARGET_VARIABLE: &str = "BENCH_PEERS_TARGET";

/// A runtime in another language.
#[derive(Debug)]
pub(crate) struct ForeignRuntime {
    /// Name of the runtime for `bench setup`, and of its folder in `bench/peers/target`.
    pub(crate) name: &'static str,
    /// Folder of its sources in `bench/peers`.
    pub(crate) folder: &'static str,
    /// Names of the workloads that it implements, in lists that runtimes share; `bench setup` tries the
    /// first.
    pub(crate) workloads: &'static [&'static [&'static str]],
    /// Steps that make it ready to run, in order.
    pub(crate) setup: &'static [Step],
    /// Rows of the runtime, the default first.
    pub(crate) variants: &'static [Variant],
}

/// A step that makes a runtime ready to run.
#[derive(Debug)]
pub(crate) enum Step {
    /// Needs something that is installed if the command `check` succeeds; otherwise `apt` lists the
    /// Debian packages that have it.
    Needs { check: &'static [&'static str], apt: &'static [&'static str] },
    /// Needs something that is installed if the command `check` succeeds; otherwise pip installs packages that
    /// have it into the virtual environment `{target}/venv`.
    NeedsOrPip { check: &'static [&'static str], pip: &'static [&'static str] },
    /// Installs packages by pip into the virtual environment `{target}/venv`.
    Pip(&'static [&'static str]),
    /// Installs packages by npm into `{target}/node_modules`.
    Npm(&'static [&'static str]),
    /// Builds files in `{target}` from those in `{source}`, where it runs. It may run again.
    Build(&'static [&'static str]),
}

/// A row of a runtime: its default or other settings of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// Name of the row.
    pub(crate) row: &'static str,
    pub(crate) class: Class,
    /// The workloads of the runtime that this row has.
    pub(crate) part: Part,
    /// The values of word keys that the row supports besides each key's default.
    pub(crate) words: &'static [&'static str],
    pub(crate) limits: &'static [Limit],
    /// The program and its arguments, before those that every peer takes.
    pub(crate) command: &'static [&'static str],
    /// Adds options and environment variables; the options come before the command's arguments.
    pub(crate) options: fn(&mut Command, Load),
}

/// The workloads of a runtime that a row has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    All,
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

impl Part {
    fn has(self, workload: &str) -> bool {
        match self {
            Part::All => true,
            Part::AllBut(names) => !names.contains(&workload),
            Part::Only(names) => names.contains(&workload),
        }
    }
}

/// The size of a run, for settings that depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workers: usize,
    /// Number of processes that the workload starts, at most.
    pub(crate) processes: u64,
}

/// The reason why a runtime cannot run on this machine.
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
    /// Whether the runtime implements a workload.
    fn has(&self, workload: &str) -> bool {
        self.workloads.iter().any(|list| list.contains(&workload))
    }
}

/// The foreign peers of a workload, in the order of `runtimes::FOREIGN`.
pub(crate) fn peers(workload: &Workload) -> impl Iterator<Item = Peer> + use<> {
    let (name, processes) = (workload.name, workload.processes);
    let runtimes = crate::runtimes::FOREIGN.iter().copied();
    let having = runtimes.filter(move |runtime| runtime.has(name));
    having.flat_map(move |runtime| {
        let having = runtime.variants.iter().filter(move |variant| variant.part.has(name));
        having.map(move |variant| Peer {
            runtime: variant.row,
            class: variant.class,
            program: Program::Foreign { runtime, variant, processes },
            words: variant.words,
            limits: variant.limits,
        })
    })
}

impl ForeignRuntime {
    /// Creates the command that runs a row.
    ///
    /// # Errors
    /// If files that the command names are not there, or were built from other sources.
    pub(crate) fn command(&self, variant: &Variant, load: Load) -> Result<Command, Absence> {
        if variant.command.iter().any(|part| part.contains("{target}")) {
            self.check_marks()?;
        }
        let mut parts = variant.command.iter().map(|part| self.expanded(part));
        let mut command = Command::new(parts.next().unwrap_or_default());
        (variant.options)(&mut command, load);
        if let Ok(bench) = env::current_exe() {
            command.env(served::CLIENT_VARIABLE, bench);
        }
        command.args(parts);
        Ok(command)
    }

    /// The reason why the program of a row was not found.
    pub(crate) fn absence(&self, variant: &Variant) -> Absence {
        match variant.command {
            [program, ..] if !program.contains("{target}") => {
                Absence::NotInstalled { program, runtime: self.name }
            }
            // Setup leaves a program out if the version that it found cannot run it.
            _ if self.check_marks().is_ok() => Absence::Incapable { runtime: self.name },
            _ => Absence::NotBuilt { runtime: self.name },
        }
    }

    /// The marks of all steps, each with the text that it must have.
    ///
    /// # Errors
    /// If the sources cannot be read.
    pub(crate) fn marks(&self) -> io::Result<BTreeMap<PathBuf, String>> {
        let mut marks = BTreeMap::new();
        for step in self.setup {
            if let Some(mark) = self.mark(step) {
                let text = match step {
                    Step::Pip(packages) | Step::Npm(packages) => packages.join("\n"),
                    Step::Build(_) | Step::Needs { .. } | Step::NeedsOrPip { .. } => self.hash()?,
                };
                marks.insert(mark, text);
            }
        }
        Ok(marks)
    }

    /// The file that marks a step as done; `None` if the step leaves nothing in `{target}`.
    pub(crate) fn mark(&self, step: &Step) -> Option<PathBuf> {
        let name = match step {
            Step::Needs { .. } | Step::NeedsOrPip { .. } => return None,
            Step::Pip(_) => "pip",
            Step::Npm(_) => "npm",
            Step::Build(_) => "built",
        };
        Some(self.target().join(name))
    }

    /// The directory of the runtime's built files and packages.
    pub(crate) fn target(&self) -> PathBuf {
        let of_all = env::var_os(TARGET_VARIABLE)
            .map_or_else(|| Path::new(PEERS).join("target"), PathBuf::from);
        of_all.join(self.name)
    }

    /// The directory of the runtime's sources.
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
        let marks = self.marks().map_err(|_| Absence::NotBuilt { runtime })?;
        for (mark, text) in marks {
            match fs::read_to_string(mark) {
                Ok(found) if found == text => {}
                Ok(_) => return Err(Absence::Stale { runtime }),
                Err(_) => return Err(Absence::NotBuilt { runtime }),
            }
        }
        Ok(())
    }

    /// A hash of the steps and of the names and contents of the sources.
    fn hash(&self) -> io::Result<String> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.setup).hash(&mut hasher);
        for (path, content) in files(&self.source())? {
            (path, content).hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

/// The folder of the sources of all foreign peers.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// All files in a directory and below, in the order of their paths.
fn files(directory: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut files(&path)?);
        } else {
            found.insert(path.clone(), fs::read(path)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::runtimes::FOREIGN;
    use crate::workloads;

    #[test]
    fn every_foreign_runtime_names_its_folder_and_known_workloads() {
        for runtime in FOREIGN {
            assert!(runtime.source().is_dir(), "{}", runtime.name);
            assert!(!runtime.workloads.is_empty(), "{}", runtime.name);
            for workload in runtime.workloads.iter().copied().flatten() {
                assert!(workloads::find(workload).is_some(), "{}: {workload}", runtime.name);
            }
            let default = runtime.variants.first().expect("there is a row");
            assert!(default.row.starts_with(runtime.name), "{}", runtime.name);
            for variant in runtime.variants {
                let (Part::AllBut(names) | Part::Only(names)) = variant.part else { continue };
                assert!(names.iter().all(|name| runtime.has(name)));
            }
        }
    }

    #[test]
    fn every_row_of_a_workload_has_a_name_of_its_own() {
        for workload in workloads::ALL {
            let mut seen = HashSet::new();
            for peer in workload.all_peers() {
                assert!(seen.insert(peer.runtime), "{}: {}", workload.name, peer.runtime);
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
