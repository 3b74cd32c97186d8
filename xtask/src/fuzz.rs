//! `cargo xtask stress fuzz`: each fuzz target under libFuzzer, for a number of seconds.
//!
//! ```text
//! fuzz/seeds/TARGET   committed; tried first, also by the test `fuzz` of social
//! fuzz/words/TARGET   words that libFuzzer inserts, if the file is there
//! fuzz/corpus/TARGET  inputs that libFuzzer has kept; not committed
//! ```

use std::fs;
use std::path::Path;

use crate::nightly::nightly;
use crate::steps::{Failure, Tool, root};

/// Seconds for each target.
const SECONDS: u64 = 60;

/// Runs each target for `seconds`.
///
/// # Errors
/// If the nightly tool chain or cargo-fuzz is missing, or a target fails. libFuzzer then prints the failing input
/// and the file in which it is.
pub(crate) fn run(seconds: Option<u64>) -> Result<(), Failure> {
    ensure("nightly tool chain", nightly("rustc -V"), "rustup toolchain install nightly")?;
    ensure("program cargo-fuzz", nightly("cargo fuzz --version"), "cargo install cargo-fuzz")?;
    let folder = root().join("fuzz");
    let seconds = format!("-max_total_time={}", seconds.unwrap_or(SECONDS));
    for target in targets(&folder)? {
        // Both must exist; libFuzzer writes to the first one.
        let [kept, seeds] = ["corpus", "seeds"].map(|name| folder.join(name).join(&target));
        fs::create_dir_all(&kept)
            .map_err(|error| Failure(format!("cannot create {}: {error}", kept.display())))?;
        let words = folder.join("words").join(&target);
        let words = words.is_file().then(|| format!("-dict={}", words.display()));
        let mut run = nightly("cargo fuzz run").args(&[
            &target,
            &kept.display().to_string(),
            &seeds.display().to_string(),
            "--",
            &seconds,
            "-max_len=4096",
            // A server in the program keeps memory until the program ends.
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
        ]);
        if let Some(words) = words {
            run = run.arg(&words);
        }
        // The runtime keeps its memory for ever, on purpose.
        run.env("ASAN_OPTIONS", "detect_leaks=0").run()?;
    }
    Ok(())
}

/// Fails if the command `check` does, with a sentence on how to install its program.
///
/// # Errors
/// If the program is missing.
pub(crate) fn ensure(what: &str, check: Tool, how: &str) -> Result<(), Failure> {
    match check.output() {
        Some(_) => Ok(()),
        None => Err(Failure(format!("this run needs the {what}: install it by `{how}`"))),
    }
}

/// Returns the names of all targets, in order.
fn targets(folder: &Path) -> Result<Vec<String>, Failure> {
    let listed = fs::read_dir(folder.join("fuzz_targets"));
    let files = listed.map_err(|error| Failure(format!("cannot list the targets: {error}")))?;
    let name = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<_> = files.filter_map(|file| name(&file.ok()?.path())).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_an_error_that_names_its_installation() {
        let check = Tool::new("no-such-program-is-installed --version");
        let failure = ensure("program", check, "cargo install it").expect_err("it is missing");
        assert!(failure.to_string().ends_with("install it by `cargo install it`"), "{failure}");
    }

    #[test]
    fn every_target_has_seeds() {
        let folder = root().join("fuzz");
        let targets = targets(&folder).expect("targets");
        assert!(targets.len() > 5, "{targets:?}");
        for target in targets {
            let seeds = fs::read_dir(folder.join("seeds").join(&target));
            assert!(seeds.is_ok_and(|mut seeds| seeds.next().is_some()), "{target}");
        }
    }
}
