//! The origin of a row: the commit and the machine that it was measured on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

/// The commit and the machine of all rows of a request.
pub(crate) struct Origin {
    pub(crate) commit: Option<String>,
    pub(crate) machine: String,
}

impl Origin {
    pub(crate) fn here() -> Origin {
        Origin { commit: commit(), machine: machine() }
    }
}

/// The commit that is checked out where this program was built, with `-dirty` appended if files
/// differ from it; `None` without git.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=12"]);
    // No tag may match: the name of a tag would stand in place of the commit.
    let output = git.args(["--exclude", "*"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !commit.trim().is_empty()).then(|| commit.trim().to_owned())
}

/// Number of commits since another one, in the repository of a directory; `None` if git does not know it.
pub(crate) fn age(root: &Path, commit: &str) -> Option<u64> {
    let range = format!("{}..HEAD", commit.trim_end_matches("-dirty"));
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(root).args(["rev-list", "--count", &range]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// The processor, the number of cores that this program may use, and the kernel.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim())
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (model, kernel) = (model.unwrap_or(std::env::consts::ARCH), kernel.trim());
    format!("{model}, {cores} cores, {} {kernel}", std::env::consts::OS).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_commit_is_counted_in_commits() {
        let age = |commit| age(Path::new(env!("CARGO_MANIFEST_DIR")), commit);
        // There is no repository where only the sources were unpacked.
        assert_eq!(age("HEAD-dirty").unwrap_or_default(), 0);
        assert_eq!(age("0000000"), None);
    }

    #[test]
    fn the_machine_is_named_with_its_cores() {
        assert!(machine().contains(" cores, "), "{}", machine());
    }
}
