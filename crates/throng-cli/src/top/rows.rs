//! Processes as rows of text, for the live view and for `--once`.

use super::client::Rows;
use super::figures;
use throng_node::admin::wire::{KindSums, Process, TreeRow};

/// Column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Width in characters; a width of zero takes the remaining space.
    pub(crate) width: u16,
    pub(crate) is_number: bool,
    /// Rank among the columns for which a narrow screen has room: those of the lowest rank stay.
    rank: u8,
}

const fn text(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, is_number: false, rank }
}

const fn number(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, is_number: true, rank }
}

/// Columns of the process table.
pub(crate) const TOP: &[Column] = &[
    text("PID", 14, 5),
    text("KIND", 0, 0),
    text("STATE", 9, 3),
    number("MAILBOX", 8, 1),
    number("BYTES", 10, 6),
    number("MEMORY", 10, 2),
    number("TURNS", 8, 4),
    number("LONGEST", 8, 7),
];

/// Columns of the sums of each kind.
const SUMS: &[Column] = &[
    text("KIND", 0, 0),
    number("PROCESSES", 9, 1),
    number("MAILBOX", 8, 2),
    number("BYTES", 10, 5),
    number("MEMORY", 10, 3),
    number("TURNS", 8, 4),
    number("LONGEST", 8, 6),
];

/// Columns of the tree.
const TREE: &[Column] = &[text("PROCESS", 0, 0), number("CHILDREN", 9, 1), text("PID", 14, 2)];

/// Returns the columns of the rows.
pub(crate) fn columns(rows: &Rows) -> &'static [Column] {
    match rows {
        Rows::Top(_) => TOP,
        Rows::Sums(_) => SUMS,
        Rows::Tree(_) => TREE,
    }
}

/// Returns whether a screen of so many characters has room for each of the columns. A column is left out rather than
/// cut, because a number without its first digits is another number. The sorted column stays.
pub(crate) fn fitting(columns: &[Column], width: u16, sorted_by: Option<&str>) -> Vec<bool> {
    let rank = |column: &Column| if Some(column.name) == sorted_by { 0 } else { column.rank };
    let room = |column: &Column| if column.width == 0 { TITLE_WIDTH } else { column.width } + 1;
    let fits = |column: &&Column| {
        let kept = columns.iter().filter(|other| rank(other) <= rank(column));
        kept.map(room).sum::<u16>() <= width + 1
    };
    match columns.iter().filter(fits).map(rank).max() {
        Some(last) => columns.iter().map(|column| rank(column) <= last).collect(),
        // A title may be cut.
        None => columns.iter().map(|column| column.width == 0).collect(),
    }
}

/// Width that the title of a process has at least.
const TITLE_WIDTH: u16 = 12;

/// Returns the rows, each with a text for each column.
pub(crate) fn of(rows: &Rows) -> Vec<Vec<String>> {
    match rows {
        Rows::Top(processes) => processes.iter().map(process).collect(),
        Rows::Sums(kinds) => kinds.iter().map(sums).collect(),
        Rows::Tree(branches) => branches.iter().map(branch).collect(),
    }
}

fn process(process: &Process) -> Vec<String> {
    vec![
        process.pid.clone(),
        titled(process.kind.as_deref(), &process.names, process.label.as_deref()),
        process.state.name().to_owned(),
        figures::count(process.mailbox_len as f64),
        figures::bytes(process.mailbox_bytes),
        figures::bytes(process.memory_bytes),
        process.turns.map_or(UNKNOWN.to_owned(), |turns| figures::count(turns as f64)),
        process.longest_turn_seconds.map_or(UNKNOWN.to_owned(), figures::short),
    ]
}

fn sums(sums: &KindSums) -> Vec<String> {
    vec![
        sums.kind.clone().unwrap_or_else(|| "?".to_owned()),
        figures::count(sums.processes as f64),
        figures::count(sums.mailbox_len as f64),
        figures::bytes(sums.mailbox_bytes),
        figures::bytes(sums.memory_bytes),
        figures::count(sums.turns as f64),
        sums.longest_turn_seconds.map_or(UNKNOWN.to_owned(), figures::short),
    ]
}

fn branch(branch: &TreeRow) -> Vec<String> {
    let indent = "  ".repeat(branch.depth.min(DEPTH_MAX));
    vec![
        format!(
            "{indent}{}",
            titled(branch.kind.as_deref(), &branch.names, branch.label.as_deref())
        ),
        if branch.children == 0 { String::new() } else { branch.children.to_string() },
        branch.pid.clone(),
    ]
}

/// Returns the title of a process: its names and its label, and its type.
fn titled(kind: Option<&str>, names: &[String], label: Option<&str>) -> String {
    let kind = kind.unwrap_or("?");
    let own: Vec<&str> = names.iter().map(String::as_str).chain(label).collect();
    if own.is_empty() { kind.to_owned() } else { format!("{} ({kind})", own.join(", ")) }
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
                .r#type
                .clone()
                .unwrap_or_else(|| "unknown: the process did not answer".to_owned()),
        ),
        ("label", process.label.clone().unwrap_or("none".to_owned())),
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
