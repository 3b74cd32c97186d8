//! The README's session: its commands, run against the real binary, print what it says they print.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::Node;

#[test]
fn the_readme_shows_what_happens() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let steps = steps(transcript(&readme).expect("a marked console block in README.md"));
    assert!(steps.len() >= 5, "{steps:?}");
    assert!(steps.iter().any(|step| step.command.contains("curl")), "{steps:?}");

    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let printed = run(&steps, &node.address);
    for (step, printed) in steps.iter().zip(printed) {
        assert!(
            matches(&step.expected, printed.trim()),
            "$ {}\nexpected: {}\nprinted:  {printed}",
            step.command,
            step.expected,
        );
    }
}

/// Where the README says that the node listens.
const ADDRESS: &str = "127.0.0.1:7070";

/// What goes before the block in the README.
const MARK: &str = "<!-- test:the_readme_shows_what_happens -->";

/// Printed after each command's output.
const END: char = '\u{1e}';

#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    /// What it prints, without surrounding white space; `…` stands for anything.
    expected: String,
}

/// The text of the console block after the mark.
fn transcript(readme: &str) -> Option<&str> {
    let (_, marked) = readme.split_once(MARK)?;
    let block = marked.trim_start().strip_prefix("```console\n")?;
    Some(block.split_once("\n```")?.0)
}

/// Commands begin with `$ ` and go on, before they print anything, on lines that begin with `> `.
fn steps(transcript: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in transcript.lines() {
        match (steps.last_mut(), line.strip_prefix("$ "), line.strip_prefix("> ")) {
            (Some(step), _, Some(more)) if step.expected.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            (_, Some(command), _) => {
                steps.push(Step { command: command.to_owned(), expected: String::new() });
            }
            (Some(step), _, _) => {
                step.expected.push_str(line);
                step.expected.push('\n');
            }
            (None, _, _) => panic!("the transcript begins with output: {line}"),
        }
    }
    for step in &mut steps {
        step.expected = step.expected.trim().to_owned();
    }
    steps
}

/// Runs all commands in one shell, so that what one sets the next can use; returns what each
/// printed.
fn run(steps: &[Step], address: &str) -> Vec<String> {
    let mut shell =
        Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut script = String::new();
    for step in steps {
        script.push_str(&step.command.replace(ADDRESS, address));
        script.push_str(&format!("\nprintf '{END}'\n"));
    }
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<String> = printed.split_terminator(END).map(str::to_owned).collect();
    assert_eq!(printed.len(), steps.len(), "a command broke the shell: {printed:?}");
    printed
}

/// Whether `text` is `pattern`, in which each `…` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, mut pattern)) = pattern.split_once('…') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    while let Some((part, rest)) = pattern.split_once('…') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
        pattern = rest;
    }
    text.ends_with(pattern)
}

#[test]
fn a_transcript_is_read_as_a_person_would() {
    let readme = format!(
        "Try:\n\n{MARK}\n```console\n$ A=1\n$ echo \\\n>   $A\n1\n\n$ printf 'a\\nb'\na\n…\n```\n"
    );
    let step = |command: &str, expected: &str| Step {
        command: command.to_owned(),
        expected: expected.to_owned(),
    };
    let steps = steps(transcript(&readme).unwrap());
    assert_eq!(
        steps,
        [step("A=1", ""), step("echo \\\n  $A", "1"), step("printf 'a\\nb'", "a\n…")]
    );
    let printed = run(&steps, ADDRESS);
    assert!(steps.iter().zip(&printed).all(|(step, text)| matches(&step.expected, text.trim())));
    assert_eq!(transcript("```console\n$ x\n```"), None);

    assert!(matches("a…c…e", "abcde") && matches("…", "") && matches("a…", "a"));
    assert!(!matches("a…c", "acx") && !matches("ab…b", "ab") && !matches("a", "ab"));
    assert!(!matches("a…b…c", "acb"));
}
