//! The console sessions of the pages: their commands, run against the real binary, print the output that the pages
//! show.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::Node;

#[test]
fn the_page_shows_what_happens() {
    let steps = service();
    assert!(steps.len() >= 5, "{steps:?}");
    assert_prints(&steps, &["curl"]);
}

#[test]
fn the_page_shows_how_to_configure_a_node() {
    assert_prints(&operation("configure_a_node"), &["--print-config"]);
}

#[test]
fn the_page_shows_how_to_look_into_a_node() {
    // A reader of this section and the next two has already run the session with the service.
    let steps = [service(), operation("look_into_a_node")].concat();
    assert_prints(&steps, &["top --once", "/metrics"]);
}

#[test]
fn the_page_shows_how_to_look_into_entities() {
    let steps = [service(), operation("look_into_entities")].concat();
    let commands = ["list", "show", "inbox", "reminders", "export", "forget", "import"];
    assert_prints(&steps, &commands.map(|command| format!("entity {command}")));
}

#[test]
fn the_page_shows_how_to_look_into_a_store() {
    let steps = [service(), operation("look_into_a_store")].concat();
    let commands = ["stat", "verify", "backup", "get", "scan"];
    assert_prints(&steps, &commands.map(|command| format!("store {command} {DATA}")));
}

#[test]
fn the_page_shows_how_to_load_a_node() {
    assert_prints(&operation("load_a_node"), &["load http://"]);
}

/// A demo runs until it is stopped, so its command is no step of a session.
#[tokio::test]
async fn the_page_shows_a_demo() {
    let steps = steps_after(SERVICE_PAGE, "<!-- test:the_page_shows_a_demo -->");
    let [Step { command, expected }] = &steps[..] else { panic!("{steps:?}") };
    let flags = command.strip_prefix(BINARY).unwrap().split_whitespace();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_social"));
    demo.args(flags);
    let node = Node::spawn(demo);
    // The ports of the page are not always free.
    let expected = expected.replace(":7070/", ":…/").replace(":7071/", ":…/");
    assert!(matches(&expected, node.greeting.trim()), "{expected}\n{}", node.greeting);
    node.signal("INT").await;
    assert_eq!(node.wait().status.code(), Some(0));
}

/// Returns the steps of the session with the service.
fn service() -> Vec<Step> {
    steps_after(SERVICE_PAGE, "<!-- test:the_page_shows_what_happens -->")
}

/// Returns the steps of a section for the operator.
fn operation(section: &str) -> Vec<Step> {
    steps_after(OPERATION_PAGE, &format!("<!-- test:the_page_shows_how_to_{section} -->"))
}

fn steps_after(page: &str, mark: &str) -> Vec<Step> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let transcript = transcript(&text, mark);
    steps(transcript.unwrap_or_else(|| panic!("{page} has no console block after {mark}")))
}

/// Runs the steps, which must have certain commands, against a new node, and compares the output.
fn assert_prints(steps: &[Step], commands: &[impl AsRef<str>]) {
    for command in commands.iter().map(AsRef::as_ref) {
        assert!(steps.iter().any(|step| step.command.contains(command)), "{command}: {steps:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let node = Node::start(&data, &[]);
    let printed = run(steps, &node.address, &data);
    for (step, printed) in steps.iter().zip(printed) {
        assert!(
            matches(&step.expected.replace(DATA, &data.display().to_string()), printed.trim()),
            "$ {}\nexpected: {}\nprinted:  {printed}",
            step.command,
            step.expected,
        );
    }
}

/// Page of the service.
const SERVICE_PAGE: &str = "README.md";

/// Page for the operator of a node.
const OPERATION_PAGE: &str = "../../docs/operate.md";

/// Address of the node on the pages.
const ADDRESS: &str = "127.0.0.1:7070";

/// Path of the data on the pages.
const DATA: &str = "throng-data";

/// Command by which the pages start the binary; the environment points to the data.
const BINARY: &str = "cargo run --release --";

/// Marker printed after the output of each command.
const END: char = '\u{1e}';

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    command: String,
    /// Expected output, without surrounding white space; `…` stands for any text.
    expected: String,
}

/// Returns the text of the console block after the mark.
fn transcript<'a>(page: &'a str, mark: &str) -> Option<&'a str> {
    let (_, marked) = page.split_once(mark)?;
    let block = marked.trim_start().strip_prefix("```console\n")?;
    Some(block.split_once("\n```")?.0)
}

/// Splits a block into steps. A command begins with `$ ` and continues, before its output, on lines
/// that begin with `> `.
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

/// Runs all commands in one shell, so that later commands see earlier variables; returns the output
/// of each command.
fn run(steps: &[Step], address: &str, data: &Path) -> Vec<String> {
    let mut shell = Command::new("sh")
        .env("THRONG_DATA", data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = String::new();
    for step in steps {
        let command = step.command.replace(ADDRESS, address);
        let command = command.replace(BINARY, env!("CARGO_BIN_EXE_social"));
        let command = command.replace(DATA, &data.display().to_string());
        script.push_str(&command);
        script.push_str(&format!("\nprintf '{END}'\n"));
    }
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<String> = printed.split_terminator(END).map(str::to_owned).collect();
    assert_eq!(printed.len(), steps.len(), "a command broke the shell: {printed:?}");
    printed
}

/// Returns whether `text` matches `pattern`, in which each `…` stands for any text.
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
    const MARK: &str = "<!-- test:this -->";
    let page = format!(
        "Try:\n\n{MARK}\n```console\n$ A=1\n$ echo \\\n>   $A\n1\n\n$ printf 'a\\nb'\na\n…\n```\n"
    );
    let step = |command: &str, expected: &str| Step {
        command: command.to_owned(),
        expected: expected.to_owned(),
    };
    let steps = steps(transcript(&page, MARK).unwrap());
    assert_eq!(
        steps,
        [step("A=1", ""), step("echo \\\n  $A", "1"), step("printf 'a\\nb'", "a\n…")]
    );
    let printed = run(&steps, ADDRESS, Path::new("."));
    assert!(steps.iter().zip(&printed).all(|(step, text)| matches(&step.expected, text.trim())));
    assert_eq!(transcript("```console\n$ x\n```", MARK), None);

    assert!(matches("a…c…e", "abcde") && matches("…", "") && matches("a…", "a"));
    assert!(!matches("a…c", "acx") && !matches("ab…b", "ab") && !matches("a", "ab"));
    assert!(!matches("a…b…c", "acb"));
}
