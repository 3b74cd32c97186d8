//! `cargo xtask test`: every test of the repository, with quick and likely failures first.
//!
//! Invariant: each test of the repository runs in exactly one step; tests under Miri run in none.

use crate::quickstart;
use crate::readme;
use crate::steps::{self, Failure, Step, Tests, Tool, program_beside_tests};
use crate::stress;
use std::path::{Path, PathBuf};

/// All steps, in order.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "unit",
        about: "unit, integration and documentation tests of the workspace",
        run: unit,
    },
    Step { name: "models", about: "interleavings of the lock-free parts, under loom", run: models },
    Step { name: "stress", about: "the stress runs, at a small size", run: stress::small },
    Step { name: "costs", about: "the program that measures costs", run: costs },
    Step {
        name: "quickstart",
        about: "the README's first steps, in a project of their own",
        run: quickstart::run,
    },
    Step { name: "readme", about: "the README's command that starts a node", run: readme::run },
    Step { name: "bench", about: "tests of the benchmark harness", run: bench },
    Step { name: "browser", about: "the service as a browser sees it, in Chromium", run: browser },
];

/// Runs the steps named in `names`, or all of them.
///
/// # Errors
/// If a name is unknown, or the first failure of a step.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    steps::run(&chosen(names)?)
}

/// Prints the steps.
pub(crate) fn list() {
    for step in STEPS {
        println!("{:<10} {}", step.name, step.about);
    }
}

/// The steps in `names`, in the order of [`STEPS`], so that early failures stay early.
fn chosen(names: &[String]) -> Result<Vec<Step>, Failure> {
    let known = |name: &String| STEPS.iter().any(|step| step.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(Failure(format!(
            "no test step is called {unknown}; the steps are {}",
            all.join(", ")
        )));
    }
    let wanted = |step: &Step| names.is_empty() || names.iter().any(|name| name == step.name);
    Ok(STEPS.iter().copied().filter(wanted).collect())
}

fn unit() -> Result<Tests, Failure> {
    Tool::new("cargo test --workspace --locked").run_tests()
}

/// Runs the loom models. Loom replaces the atomics if `throng_loom` is set. `cargo rustc` sets it
/// for this crate alone; `RUSTFLAGS` would set it for all crates, and each dependency would be
/// compiled again. The models run a million times, so this crate is optimised.
fn models() -> Result<Tests, Failure> {
    let build = Tool::new("cargo rustc -p throng --lib --profile test --locked")
        .args(&["--config", "profile.dev.package.throng.opt-level=3"])
        .arg("--message-format=json-render-diagnostics")
        .args(&["--", "--cfg", "throng_loom"]);
    let program = build.build("throng")?;
    Tool::program(&program).arg("loom").env("LOOM_MAX_PREEMPTIONS", "3").run_tests()
}

/// Measures little of each row, which is enough: each row checks that it measures its subject.
fn costs() -> Result<Tests, Failure> {
    Tool::program(&program_beside_tests("costs")?).args(&["all", "1000"]).run()?;
    Ok(Tests::one_passed())
}

fn bench() -> Result<Tests, Failure> {
    // Unoptimised: these tests do not measure speed, and the rivals take long to optimise.
    Tool::new("cargo test --manifest-path bench/Cargo.toml --workspace --locked")
        .in_our_directory()
        .run_tests()
}

/// Runs the browser test, with `--workspace` although a single crate has it: the features of the
/// dependencies are then the same as in the step `unit`, and nothing is built twice.
fn browser() -> Result<Tests, Failure> {
    ensure_browser()?;
    let axe = ensure_axe()?;
    Tool::new("cargo test --workspace --locked --tests -- --ignored browser")
        .env("THRONG_AXE", &axe.display().to_string())
        .run_tests()
}

/// Returns the path of axe-core, which checks the accessibility of a page. If it is missing, npm installs it into the
/// target directory; npm itself is installed like Chromium.
fn ensure_axe() -> Result<PathBuf, Failure> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = steps::root().join(target).join("axe");
    let file = folder.join("node_modules/axe-core/axe.min.js");
    if !file.is_file() {
        ensure(&["npm"], &["npm"])?;
        // The version is fixed, because a later one may have further rules.
        Tool::new("npm install --no-save --ignore-scripts --no-audit --no-fund axe-core@4.14.1 --prefix")
            .arg(&folder.display().to_string())
            .run()
            .map_err(|Failure(why)| {
                let file = file.display();
                Failure(format!("the browser test needs axe-core, and npm did not install it ({why}): install npm, or put axe.min.js at {file}"))
            })?;
    }
    Ok(file)
}

/// Installs Chromium and its driver if they are missing and the user has the right to.
fn ensure_browser() -> Result<(), Failure> {
    ensure(&["chromium", "chromedriver"], &["chromium", "chromium-driver"])
}

/// Installs Debian packages if one of their programs is missing and the user has the right to.
fn ensure(programs: &[&'static str], packages: &[&str]) -> Result<(), Failure> {
    let missing = missing_programs(programs, &path_dirs());
    if missing.is_empty() {
        return Ok(());
    }
    let (missing, packages) = (missing.join(" and "), packages.join(" "));
    let how = format!("install the packages {packages}, or put the programs on the PATH");
    let Some(apt_get) = apt_get() else {
        return Err(Failure(format!("the browser test needs {missing}: {how}")));
    };
    let install = format!("{apt_get} install --yes --no-install-recommends {packages}");
    Tool::new(&format!("{apt_get} update"))
        .run()
        .and_then(|()| Tool::new(&install).env("DEBIAN_FRONTEND", "noninteractive").run())
        .map_err(|Failure(why)| {
            Failure(format!(
                "the browser test needs {missing}, and installing them failed ({why}): {how}"
            ))
        })
}

/// The command line that runs `apt-get` with the right to install packages, if there is any.
fn apt_get() -> Option<&'static str> {
    Tool::new("apt-get --version").output()?;
    if Tool::new("id -u").output()?.trim() == "0" {
        return Some("apt-get");
    }
    Tool::new("sudo -n true").output().map(|_| "sudo -n apt-get")
}

fn path_dirs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect()
}

/// The programs that are in none of `dirs`.
fn missing_programs(programs: &[&'static str], dirs: &[PathBuf]) -> Vec<&'static str> {
    let found = |program: &str| dirs.iter().any(|dir| Path::new(dir).join(program).is_file());
    programs.iter().copied().filter(|program| !found(program)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        let chosen_names = |wanted: &[&str]| -> Vec<&str> {
            chosen(&names(wanted)).expect("known steps").iter().map(|step| step.name).collect()
        };
        assert_eq!(chosen_names(&["models", "unit"]), ["unit", "models"]);
        assert_eq!(chosen_names(&[]).len(), STEPS.len());
    }

    #[test]
    fn an_unknown_step_is_an_error_that_lists_the_known_ones() {
        let failure = chosen(&names(&["unit", "nonsense"])).map(|_| ()).expect_err("no such step");
        let sentence = failure.to_string();
        assert!(sentence.contains("nonsense") && sentence.contains("browser"), "{sentence}");
    }

    #[test]
    fn missing_programs_are_named() {
        let programs = ["chromium", "chromedriver"];
        assert_eq!(missing_programs(&programs, &[]), programs);
    }
}
