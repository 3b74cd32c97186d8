//! The README's first steps, carried out as a new user would: a new project, throng added to it, the
//! programs that stand there run in it. A program is a block of Rust with a `main`.
//!
//! The project lies outside the repository, where cargo finds no workspace around it. It starts with
//! this workspace's lock file, so that nothing is downloaded that the build has not downloaded
//! already.

use crate::steps::{Failure, Tests, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The line before each block of commands.
const MARK: &str = "<!-- test:quickstart -->";

/// Runs the commands of each block, and before every `cargo run` writes the next program of the page.
///
/// # Errors
/// The first command that fails.
pub(crate) fn run() -> Result<Tests, Failure> {
    let text = fs::read_to_string(root().join("README.md"))
        .map_err(|error| Failure(format!("README.md cannot be read: {error}")))?;
    let dir = std::env::temp_dir().join(format!("throng-quickstart-{}", std::process::id()));
    let outcome = create(&dir).and_then(|()| follow(&text, &dir));
    // The directory is a temporary one: the system removes it if this does not.
    let _ = fs::remove_dir_all(&dir);
    outcome
}

/// A directory in which the checkout is called `throng`, as the README has it.
fn create(dir: &Path) -> Result<(), Failure> {
    let link = dir.join("throng");
    fs::create_dir_all(dir)
        .and_then(|()| std::os::unix::fs::symlink(root(), link))
        .map_err(|error| Failure(format!("{} cannot be made: {error}", dir.display())))
}

fn follow(text: &str, dir: &Path) -> Result<Tests, Failure> {
    let page = parse(text, MARK);
    let mut programs = page.programs.iter();
    let mut project = dir.to_path_buf();
    for command in &page.commands {
        println!("    {command}");
        if let Some(line) = command.strip_suffix(" && cd hello") {
            execute(line, &project)?;
            project.push("hello");
            let lock = fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock"));
            lock.map_err(|error| Failure(format!("Cargo.lock cannot be copied: {error}")))?;
            continue;
        }
        if command == "cargo run" {
            let program = programs.next().ok_or_else(|| {
                Failure("README.md has a `cargo run` without a program".to_owned())
            })?;
            fs::write(project.join("src/main.rs"), program)
                .map_err(|error| Failure(format!("src/main.rs cannot be written: {error}")))?;
        }
        execute(command, &project)?;
    }
    if page.commands.is_empty() || programs.next().is_some() {
        return Err(Failure(format!(
            "README.md has a program that no `cargo run` after {MARK} runs"
        )));
    }
    Ok(Tests::one_passed())
}

fn execute(command: &str, dir: &Path) -> Result<(), Failure> {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap_or_default())
        .args(words)
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", root().join("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .status()
        .map_err(|error| Failure(format!("`{command}` cannot be started: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("`{command}` ended with {status}"))) }
}

/// The commands after the marks, and the Rust programs in the order of the page.
pub(crate) struct Page {
    pub(crate) commands: Vec<String>,
    programs: Vec<String>,
}

/// Reads a page of which the lines `mark` stand before blocks of commands.
pub(crate) fn parse(text: &str, mark: &str) -> Page {
    let mut page = Page { commands: Vec::new(), programs: Vec::new() };
    let mut marked = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.strip_prefix("```") {
            Some(language) => {
                let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
                let is_rust = language.split(',').next() == Some("rust");
                if is_rust && block.iter().any(|line| line.starts_with("fn main()")) {
                    page.programs.push(block.join("\n") + "\n");
                } else if marked && !is_rust {
                    let commands = block.iter().filter_map(|line| line.strip_prefix("$ "));
                    page.commands.extend(commands.map(str::to_owned));
                }
                marked = false;
            }
            None if !line.trim().is_empty() => marked = line == mark,
            None => {}
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_marked_commands_and_programs() {
        let page = parse(
            "mark\n```console\n$ cargo new\nout\n```\n```rust\nfn main() {}\n```\n\
             ```rust,ignore\nfn main() { }\n```\n```rust,ignore\nserve();\n```\n```console\n$ no\n```\n",
            "mark",
        );
        assert_eq!(page.commands, ["cargo new"]);
        assert_eq!(page.programs, ["fn main() {}\n", "fn main() { }\n"]);
    }
}
