//! Scenario files: scripts, and under each step the events recorded when Erlang/OTP carried it out.
//!
//! ```text
//! # A comment.
//! == the property that the scenario shows
//! driver: spawn a b
//! a: trap_exits on ; link b
//! b: die boom
//!     a: EXIT b boom
//!     b: ended boom
//! ```
//!
//! A step is a line with the process that carries it out, or `driver`, and commands with ` ; `
//! between them, which a process carries out in a single turn. The indented lines below it are its
//! events: `PROCESS: EVENT`, where `c#2` is the second process of the name `c`. Children of a
//! supervisor are written `ID(RESTART,SHUTDOWN,FLAG...)`, each part with a default.

/// The words of a command.
pub(crate) type Command = Vec<String>;

/// A script with its events.
pub(crate) struct Scenario {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

/// Commands that the driver or a process carries out at once.
pub(crate) struct Step {
    /// Line number in the file, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) who: String,
    pub(crate) commands: Vec<Command>,
    /// The expected events, in the order of the log.
    pub(crate) events: Vec<String>,
}

/// Parses a file.
///
/// # Panics
/// If a line is neither a comment, a title, a step nor an event.
pub(crate) fn scenarios(text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            scenarios.push(Scenario { title: title.to_owned(), steps: Vec::new() });
            continue;
        }
        let steps = &mut scenarios.last_mut().expect("a title comes before the first step").steps;
        if let Some(event) = line.strip_prefix("    ") {
            let step = steps.last_mut().expect("a step comes before its events");
            step.events.push(event.to_owned());
        } else {
            steps.push(step(index + 1, line));
        }
    }
    scenarios
}

fn step(line: usize, text: &str) -> Step {
    let (who, what) = text.split_once(": ").unwrap_or_else(|| panic!("line {line}: {text}"));
    Step {
        line,
        text: text.to_owned(),
        who: who.to_owned(),
        commands: what.split(" ; ").map(words).collect(),
        events: Vec::new(),
    }
}

fn words(command: &str) -> Command {
    command.split(' ').map(str::to_owned).collect()
}
