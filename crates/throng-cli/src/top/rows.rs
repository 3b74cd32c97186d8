//! Processes as rows of text, for the live view and for `--once`.

use super::client::Rows;
use super::figures;
use crate::admin::wire::{Process, TreeRow};

/// Column of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Width in characters; a width of zero takes the remaining space.
    pub(crate) width: u16,
    pub(crate) is_number: bool,
}

const fn text(name: &'static str, width: u16) -> Column {
    Column { name, width, is_number: false }
}

const fn number(name: &'static str, width: u16) -> Column {
    Column { name, width, is_number: true }
}

/// Columns of the process table.
pub(crate) const TOP: &[Column] = &[
    text("PID", 14),
    text("KIND", 0),
    text("STATE", 9),
    number("MAILBOX", 8),
    number("BYTES", 10),
    number("MEMORY", 10),
    number("TURNS", 8),
    number("LONGEST", 8),
];

/// Columns of the tree.
pub(crate) const TREE: &[Column] = &[text("PROCESS", 0), number("CHILDREN", 9), text("PID", 14)];

/// Returns the rows, each with a text for each column.
pub(crate) fn of(rows: &Rows) -> Vec<Vec<String>> {
    match rows {
        Rows::Top(processes) => processes.iter().map(process).collect(),
        Rows::Tree(branches) => branches.iter().map(branch).collect(),
    }
}

fn process(process: &Process) -> Vec<String> {
    vec![
        process.pid.clone(),
        titled(process.kind.as_deref(), &process.names),
        process.state.name().to_owned(),
        figures::count(process.mailbox_len as f64),
        figures::bytes(process.mailbox_bytes),
        figures::bytes(process.memory_bytes),
        process.turns.map_or(UNKNOWN.to_owned(), |turns| figures::count(turns as f64)),
        process.longest_turn_seconds.map_or(UNKNOWN.to_owned(), figures::short),
    ]
}

fn branch(branch: &TreeRow) -> Vec<String> {
    let indent = "  ".repeat(branch.depth.min(DEPTH_MAX));
    vec![
        format!("{indent}{}", titled(branch.kind.as_deref(), &branch.names)),
        if branch.children == 0 { String::new() } else { branch.children.to_string() },
        branch.pid.clone(),
    ]
}

/// Returns the title of a process: its names, and its type.
fn titled(kind: Option<&str>, names: &[String]) -> String {
    let kind = kind.map_or_else(|| "?".to_owned(), figures::short_type);
    if names.is_empty() { kind } else { format!("{} ({kind})", names.join(", ")) }
}

/// Returns the details of a process, as pairs of name and value.
pub(crate) fn facts(process: &Process) -> Vec<(&'static str, String)> {
    let list = |pids: &[String]| match pids.len() {
        0 => "none".to_owned(),
        count if count > LISTED_MAX => {
            format!("{} and {} more", pids[..LISTED_MAX].join(" "), count - LISTED_MAX)
        }
        _ => pids.join(" "),
    };
    let state = match &process.handler {
        Some(handler) => format!("{} in {handler}", process.state.name()),
        None => process.state.name().to_owned(),
    };
    let turns = match (process.turns, process.longest_turn_seconds) {
        (Some(turns), Some(longest)) => format!("{turns}, longest {}", figures::short(longest)),
        (Some(turns), None) => turns.to_string(),
        _ => "not counted".to_owned(),
    };
    let mailbox =
        format!("{} messages, {}", process.mailbox_len, figures::bytes(process.mailbox_bytes));
    vec![
        (
            "kind",
            process
                .kind
                .clone()
                .unwrap_or_else(|| "unknown: the process did not answer".to_owned()),
        ),
        ("names", list(&process.names)),
        ("state", state),
        ("mailbox", mailbox),
        ("memory", figures::bytes(process.memory_bytes)),
        ("turns", turns),
        ("parent", process.parent.clone().unwrap_or("none".to_owned())),
        ("links", list(&process.links)),
        ("monitors", list(&process.monitors)),
        ("monitored by", list(&process.monitored_by)),
        ("traps exits", if process.traps_exits { "yes" } else { "no" }.to_owned()),
    ]
}

/// Text for values that are not counted.
const UNKNOWN: &str = "–";

/// Maximum indentation; deeper processes are not indented further.
const DEPTH_MAX: usize = 20;

/// Maximum number of pids that are listed in a value.
const LISTED_MAX: usize = 8;
