//! `bench setup`: installs and builds the runtimes in other languages, and says for each what it did.
//!
//! ```text
//! runtimes.toml ─ plan ─→ commands that are still needed ─ carry out ─→ marks ─ try each row ─→ a line
//!                                 └─ print (--dry-run)
//! ```
//!
//! - A plan depends on what is there: the checks of its needs run, and marks are read. Nothing is changed
//!   or downloaded by a plan.
//! - Only package managers download: apt as root, pip into a virtual environment, npm into a directory,
//!   and those that a build command calls. None of them asks a question.
//! - A runtime is ready if its first workload runs and is verified. Its version is that of this run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::foreign::{Absence, ForeignRuntime, Step};
use crate::peer::RunError;
use crate::settings::Settings;
use crate::workloads;

const TRIAL_COUNT: u64 = 100;

#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("`{check}` does not work, and {obstacle}; its Debian packages are {packages}")]
    NoPackageManager { check: String, obstacle: &'static str, packages: String },
    #[error("its sources cannot be read: {0}")]
    Sources(#[source] io::Error),
    #[error("`{command}` could not be started: {error}")]
    Start { command: String, error: io::Error },
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: ExitStatus },
    #[error("`{mark}` could not be written: {error}")]
    Mark { mark: String, error: io::Error },
}

/// A command of a plan, and the mark that it leaves when it has succeeded.
struct Action {
    command: Vec<String>,
    directory: PathBuf,
    mark: Option<(PathBuf, String)>,
}

/// Sets up some runtimes, one after the other, and prints a line for each; returns whether all of them
/// are ready. A dry run prints the commands instead.
pub(crate) fn run(runtimes: &[&'static ForeignRuntime], dry: bool) -> bool {
    let mut all_ready = true;
    let mut updated = false;
    for runtime in runtimes {
        let (line, ready) = match plan(runtime, &mut updated) {
            Ok(actions) if dry => (foretold(&actions), true),
            Ok(actions) => match carry_out(runtime.name, &actions) {
                Ok(()) => tried(runtime, &actions),
                Err(error) => (format!("absent: {error}"), false),
            },
            Err(error) if dry => (format!("would stay absent: {error}"), false),
            Err(error) => (format!("absent: {error}"), false),
        };
        println!("{}: {line}", runtime.name);
        all_ready &= ready;
    }
    all_ready
}

/// The commands that a runtime still needs, in order. `updated` says whether an earlier plan has updated
/// apt's lists.
fn plan(runtime: &ForeignRuntime, updated: &mut bool) -> Result<Vec<Action>, SetupError> {
    let mut actions = Vec::new();
    let expanded = |command: &[&str]| -> Vec<String> {
        command.iter().map(|part| runtime.expanded(part)).collect()
    };
    for step in &runtime.setup {
        let mark = runtime.mark(step).map_err(SetupError::Sources)?;
        let is_done = match &mark {
            Some((mark, text)) => fs::read_to_string(mark).is_ok_and(|found| found == *text),
            None => succeeds(&expanded(&step.needs)),
        };
        if is_done {
            continue;
        }
        let commands = match step {
            Step { apt, needs, .. } if !apt.is_empty() => {
                apt_commands(&expanded(needs), apt, updated)?
            }
            Step { pip, .. } if !pip.is_empty() => {
                pip_commands(&runtime.target().join("venv"), pip)
            }
            Step { npm, .. } if !npm.is_empty() => vec![npm_command(&runtime.target(), npm)],
            Step { build, .. } => vec![expanded(build)],
        };
        let last = commands.len();
        actions.extend(commands.into_iter().enumerate().map(|(index, command)| Action {
            command,
            directory: runtime.source(),
            mark: mark.clone().filter(|_| index + 1 == last),
        }));
    }
    Ok(actions)
}

fn apt_commands(
    check: &[String],
    packages: &str,
    updated: &mut bool,
) -> Result<Vec<Vec<String>>, SetupError> {
    let obstacle = if !succeeds(&words("apt-get --version")) {
        Some("there is no apt-get to install it")
    } else if !rustix::process::geteuid().is_root() {
        Some("apt-get needs root to install it")
    } else {
        None
    };
    if let Some(obstacle) = obstacle {
        let (check, packages) = (check.join(" "), packages.replace(' ', ", "));
        return Err(SetupError::NoPackageManager { check, obstacle, packages });
    }
    let mut commands = Vec::new();
    if !std::mem::replace(updated, true) {
        commands.push(words("apt-get --quiet update"));
    }
    let mut install = words("env DEBIAN_FRONTEND=noninteractive");
    install.extend(words("apt-get --quiet --yes --no-install-recommends install"));
    install.extend(words(packages));
    commands.push(install);
    Ok(commands)
}

fn pip_commands(environment: &Path, packages: &str) -> Vec<Vec<String>> {
    let mut create = words("python3 -m venv");
    create.push(environment.to_string_lossy().into_owned());
    let mut install = vec![environment.join("bin/python").to_string_lossy().into_owned()];
    install.extend(words("-m pip install --quiet --no-input"));
    install.extend(words(packages));
    vec![create, install]
}

fn npm_command(target: &Path, packages: &str) -> Vec<String> {
    let mut install = words("npm install --no-audit --no-fund --prefix");
    install.push(target.to_string_lossy().into_owned());
    install.extend(words(packages));
    install
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn succeeds(command: &[String]) -> bool {
    let mut check = Command::new(&command[0]);
    check.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    check.status().is_ok_and(|status| status.success())
}

fn foretold(actions: &[Action]) -> String {
    let commands: Vec<String> =
        actions.iter().map(|action| format!("`{}`", action.command.join(" "))).collect();
    match &commands[..] {
        [] => "nothing to do".to_owned(),
        _ => format!("would run {}", commands.join(", then ")),
    }
}

fn carry_out(name: &str, actions: &[Action]) -> Result<(), SetupError> {
    for Action { command, directory, mark } in actions {
        let text = command.join(" ");
        eprintln!("{name}: running `{text}`");
        if let Some((mark, _)) = mark {
            // A compiler does not create the directory of its output.
            fs::create_dir_all(mark.parent().unwrap_or(mark)).map_err(unwritten(mark))?;
        }
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).current_dir(directory);
        process.stdin(Stdio::null()).stdout(io::stderr());
        match process.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(SetupError::Failed { command: text, status }),
            Err(error) => return Err(SetupError::Start { command: text, error }),
        }
        if let Some((mark, text)) = mark {
            fs::write(mark, text).map_err(unwritten(mark))?;
        }
    }
    Ok(())
}

fn unwritten(mark: &Path) -> impl FnOnce(io::Error) -> SetupError {
    let mark = mark.to_string_lossy().into_owned();
    |error| SetupError::Mark { mark, error }
}

/// Tries the first workload on each row; returns the line about the runtime, and whether all are ready.
fn tried(runtime: &'static ForeignRuntime, actions: &[Action]) -> (String, bool) {
    let workload =
        workloads::all().iter().find(|workload| runtime.peers(workload.name).next().is_some());
    let Some(workload) = workload else { return ("absent: it has no workload".to_owned(), false) };
    let settings = Settings::new(workload, TRIAL_COUNT, 1);
    let mut parts: Vec<String> = Vec::new();
    let mut all_ready = true;
    for peer in runtime.peers(workload.name) {
        let part = match peer.run(&settings) {
            Ok((line, _)) if line.failures.is_empty() => format!("ready, {}", line.version),
            Ok((line, _)) => not_ready(&mut all_ready, &line.failures.join(", ")),
            // Setup cannot do more about it, and the other rows are ready.
            Err(error @ (RunError::Absent(Absence::Incapable { .. }) | RunError::Beyond(_))) => {
                error.to_string()
            }
            Err(error @ (RunError::Absent(_) | RunError::NotBuilt)) => {
                not_ready(&mut all_ready, &error.to_string())
            }
            Err(error) => not_ready(&mut all_ready, &format!("unusable: {error}")),
        };
        // The rows of a runtime mostly share their program, so that only differences are stated.
        if parts.first() != Some(&part) {
            let of = if parts.is_empty() { String::new() } else { format!("{}: ", peer.runtime) };
            parts.push(format!("{of}{part}"));
        }
    }
    let did: Vec<String> =
        actions.iter().map(|action| format!("`{}`", action.command.join(" "))).collect();
    if !did.is_empty() {
        parts.push(format!("did {}", did.join(", then ")));
    }
    (parts.join("; "), all_ready)
}

fn not_ready(all_ready: &mut bool, reason: &str) -> String {
    *all_ready = false;
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;

    const UNHEARD_OF: &str = r#"
        name = "unheard-of"
        folder = "erlang"
        class = "OS thread"
        workloads = "send"
        setup = [
            { needs = ["true"], apt = "never-asked-for" },
            { needs = ["true"], pip = "never-asked-for" },
            { pip = "some-wheel" },
            { npm = "some-package other" },
            { build = ["cp", "{source}/build.sh", "{target}/copy"] },
        ]
        command = ["{target}/copy"]
        row = [{ name = "unheard-of" }]
    "#;

    #[test]
    fn a_plan_has_the_commands_of_each_step_that_is_not_done() {
        let runtime: ForeignRuntime = runtimes::parse("a runtime", UNHEARD_OF);
        let actions = plan(&runtime, &mut false).expect("nothing is in its way");
        let target = runtime.target().to_string_lossy().into_owned();
        let commands: Vec<String> = actions.iter().map(|action| action.command.join(" ")).collect();
        let expected = [
            format!("python3 -m venv {target}/venv"),
            format!("{target}/venv/bin/python -m pip install --quiet --no-input some-wheel"),
            format!("npm install --no-audit --no-fund --prefix {target} some-package other"),
            format!("cp {}/build.sh {target}/copy", runtime.source().to_string_lossy()),
        ];
        assert_eq!(commands, expected);
        let marks: Vec<_> = actions.iter().filter_map(|action| action.mark.as_ref()).collect();
        assert_eq!(marks.len(), 3, "the environment of pip alone is no step");
        assert!(marks.iter().any(|(mark, text)| mark.ends_with("pip") && text == "some-wheel"));
    }

    #[test]
    fn lists_of_apt_are_updated_once() {
        let check = words("false");
        let Ok(first) = apt_commands(&check, "a b", &mut false) else {
            return println!("skipped: there is no apt-get, or no root to run it");
        };
        assert!(first[0].ends_with(&["update".to_owned()]), "{first:?}");
        assert!(first[1].ends_with(&["a".to_owned(), "b".to_owned()]), "{first:?}");
        let second = apt_commands(&check, "c", &mut true).expect("apt-get is still there");
        assert_eq!(second.len(), 1, "{second:?}");
    }
}
