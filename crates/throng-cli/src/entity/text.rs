//! Lines about entities. Everything that a user has stored is escaped, so that a line stays a line and a terminal gets
//! no commands.

use std::io::Write;
use std::time::{Duration, SystemTime};

use throng_durable::{
    Inspection, Pending, Record, Shown, ShownCell, ShownJob, ShownMessage, ShownQueue,
    ShownReminder, ShownStep, Tally,
};

use super::{Out, Result};

/// Prints `KEY`, tab, place, tab, version of the state, tab, its length in bytes; or the damage.
pub(super) fn record(record: &Record, is_node: bool, out: &mut Out<impl Write>) -> Result<()> {
    let (key, place) = (record.key.escape_debug(), place(record.is_live, is_node));
    match &record.state {
        Ok((version, bytes)) => {
            out.line(record, format_args!("{key}\t{place}\t{version}\t{bytes}"))
        }
        Err(damage) => out.line(record, format_args!("{key}\t{place}\t{}", one_line(damage))),
    }
}

fn place(is_live: bool, is_node: bool) -> &'static str {
    match (is_node, is_live) {
        (false, _) => "stored",
        (true, false) => "at rest",
        (true, true) => "live",
    }
}

pub(super) fn inspection(
    found: &Inspection,
    is_node: bool,
    out: &mut Out<impl Write>,
) -> Result<()> {
    let pinned = if found.is_pinned { ", pinned" } else { "" };
    let mut text =
        format!("{}: {}{pinned}", found.key.escape_debug(), place(found.is_live, is_node));
    let mut fact = |name: &str, value: String| text += &format!("\n{name:<14}{value}");
    if let Some(own) = &found.state {
        fact("state", value(own));
        fact("version", format!("{}, {} bytes", own.version, own.bytes));
    }
    for (name, count) in [
        ("cells", found.cells),
        ("waiting", found.waiting),
        ("parked", found.parked),
        ("reminders", found.reminders),
        ("replies", found.replies),
    ] {
        fact(name, tally(count));
    }
    if let Some(next) = found.next_reminder_ms {
        fact("next reminder", time(next));
    }
    if let Some(run) = &found.run {
        let reason =
            run.reason.as_ref().map_or(String::new(), |own| format!(": {}", one_line(own)));
        fact("workflow", format!("{}, {}{reason}", run.workflow.escape_debug(), run.status));
        run.input.iter().for_each(|own| fact("input", value(own)));
        run.result.iter().for_each(|own| fact("result", value(own)));
    }
    out.line(found, format_args!("{text}"))
}

pub(super) fn cell(cell: &ShownCell, out: &mut Out<impl Write>) -> Result<()> {
    let (map, key) = (cell.map.escape_debug(), cell.key.escape_ascii());
    out.line(cell, format_args!("cell\t{map}\t{key}\t{}", value(&cell.value)))
}

pub(super) fn message(
    message: &ShownMessage,
    which: Pending,
    out: &mut Out<impl Write>,
) -> Result<()> {
    let is_parked = which == Pending::Parked;
    let place = if is_parked { "parked" } else { "waiting" };
    let (sequence, name) = (message.sequence, message.name.escape_debug());
    let mut text = format!("{place}\t{sequence}\t{name}\t{}", value(&message.value));
    if let Some(reason) = &message.reason {
        let failed = message.failed_ms.map_or(String::new(), time);
        text += &format!("\tattempts {}, {failed}: {}", message.attempts, one_line(reason));
        text +=
            &message.place.as_ref().map_or(String::new(), |own| format!(" at {}", one_line(own)));
    }
    let json = serde_json::json!({ "parked": is_parked, "message": message });
    out.line(&json, format_args!("{text}"))
}

pub(super) fn reminder(reminder: &ShownReminder, out: &mut Out<impl Write>) -> Result<()> {
    let (key, message) = (reminder.key.escape_debug(), reminder.message.escape_debug());
    let text = match &reminder.schedule {
        Ok(schedule) => format!("{}\t{schedule}", time(reminder.due_ms)),
        Err(reason) => format!("unreadable: {}", one_line(reason)),
    };
    out.line(reminder, format_args!("{key}\t{text}\t{message}\t{}", value(&reminder.value)))
}

pub(super) fn step(step: &ShownStep, out: &mut Out<impl Write>) -> Result<()> {
    let (name, kind, status) = (step.name.escape_debug(), &step.kind, &step.status);
    let mut text = format!("{name}\t{kind}\t{status}");
    text += &step.result.as_ref().map_or(String::new(), |own| format!("\t{}", value(own)));
    if let Some(reason) = &step.reason {
        text += &format!("\tattempts {}: {}", step.attempts, one_line(reason));
    }
    out.line(step, format_args!("{text}"))
}

/// Prints `NAME`, tab, whether it is paused, and the numbers of its jobs; or the damage.
pub(crate) fn queue(queue: &ShownQueue, out: &mut Out<impl Write>) -> Result<()> {
    let name = queue.name.escape_debug();
    let ShownQueue { ready, later, dead, .. } = queue;
    let state = if queue.is_paused { "paused" } else { "runs" };
    match &queue.damage {
        None => out.line(
            queue,
            format_args!("{name}\t{state}\tready {ready}\tlater {later}\tdead {dead}"),
        ),
        Some(damage) => out.line(queue, format_args!("{name}\tunreadable: {}", one_line(damage))),
    }
}

pub(crate) fn job(job: &ShownJob, out: &mut Out<impl Write>) -> Result<()> {
    let mut text = format!("{}\t{}", job.id, value(&job.value));
    let names = [("key", &job.key), ("unique", &job.unique)];
    for (what, name) in names.into_iter().filter_map(|(what, name)| Some((what, name.as_ref()?))) {
        text += &format!("\t{what} {}", name.escape_debug());
    }
    text += &job.due_ms.map_or(String::new(), |due| format!("\tdue {}", time(due)));
    if let Some(reason) = &job.reason {
        text += &format!("\tfailures {}: {}", job.failures, one_line(reason));
    }
    out.line(job, format_args!("{text}"))
}

fn value(shown: &Shown) -> String {
    match &shown.text {
        // Texts within it are escaped by the node.
        Ok(text) => text.clone(),
        Err(damage) => format!("unreadable: {}", one_line(damage)),
    }
}

fn tally(tally: Tally) -> String {
    format!("{}{}", tally.entries, if tally.has_more { " or more" } else { "" })
}

fn one_line(text: &str) -> String {
    text.escape_debug().to_string()
}

fn time(ms: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    // A later time than the year 9999 has no such text.
    let time = time.filter(|_| ms < 253_402_300_800_000);
    time.map_or_else(
        || format!("{ms} ms"),
        |time| humantime::format_rfc3339_millis(time).to_string(),
    )
}
