//! The log on standard error, and the lines of it that are no events: the message of a panic, and the error that
//! ends the program.
//!
//! ```text
//! events ─────────────► tracing_subscriber ─┐
//! panic ─► panic hook ─► JSON: write_line ──┼──► standard error
//! error that ends the program ─► complain ──┘
//! ```
//!
//! Invariants: with [`Format::Json`], each line on standard error is an object of JSON from the moment at which the
//! settings are read. A log that cannot be written changes nothing else.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::io::{self, IsTerminal, Write as _};
use std::panic::PanicHookInfo;
use std::thread;
use std::time::SystemTime;

use serde_json::{Value, json};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// Lines for people
    #[default]
    Text,
    /// An object of JSON in each line
    Json,
}

/// Starts to log the events that pass `filter`, and each answered request if `access_log` is set. From then on, the
/// messages of panics are lines of the log, too.
///
/// A program that has a subscriber of its own leaves this out.
///
/// # Panics
/// If the program has a subscriber already.
pub fn start(filter: Targets, format: Format, access_log: bool) {
    let filter = if access_log {
        // The events of the server for each answered request.
        filter.with_target("throng_node::access", LevelFilter::DEBUG)
    } else {
        filter
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        Format::Json => {
            std::panic::set_hook(Box::new(|info| write_line(&panic_line(info))));
            lines.json().flatten_event(true).boxed()
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Writes an error that ends `program` to standard error.
pub fn complain(program: &str, format: Format, error: &dyn Error) {
    let text = error_chain(error);
    match format {
        Format::Text => write_line(&format!("{program}: {text}")),
        Format::Json => write_line(&line(program, &text, Value::Null).to_string()),
    }
}

/// Returns an error and its sources on one line.
///
/// ```
/// let error = std::io::Error::other("the disk is gone");
/// assert_eq!(throng_node::log::error_chain(&error), "the disk is gone");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let reason = source.to_string();
        // Some errors include the text of their source.
        if !text.ends_with(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        next = source.source();
    }
    text
}

/// Writes a line to standard error. Nobody can be told that it is closed.
fn write_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Returns the line for a panic.
///
/// The subscriber is left out, because it may be the code that panics.
fn panic_line(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("a panic without a message");
    let backtrace = Backtrace::capture();
    let has_backtrace = backtrace.status() == BacktraceStatus::Captured;
    let fields = json!({
        "place": info.location().map(ToString::to_string),
        "thread": thread::current().name(),
        "backtrace": has_backtrace.then(|| backtrace.to_string()),
    });
    line("throng::panic", &format!("panicked: {message}"), fields).to_string()
}

/// Returns a line with the fields that the lines of events have, and others that are not null.
fn line(target: &str, message: &str, fields: Value) -> Value {
    let mut line = json!({
        "timestamp": humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
        "level": "ERROR",
        "message": message,
        "target": target,
    });
    if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
        line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::panic::{set_hook, take_hook};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_message_of_a_panic_is_one_line_of_json_with_its_place_and_thread() {
        let (lines, heard) = mpsc::channel();
        let before = take_hook();
        set_hook(Box::new(move |info| drop(lines.send(panic_line(info)))));
        let panicked = thread::Builder::new()
            .name("unlucky".to_owned())
            .spawn(|| panic!("two\nlines with \"quotes\""))
            .unwrap()
            .join();
        set_hook(before);
        assert!(panicked.is_err());
        // Other tests may panic meanwhile.
        let parsed = heard.iter().map(|text| (serde_json::from_str::<Value>(&text).unwrap(), text));
        let (line, text) =
            parsed.into_iter().find(|(line, _)| line["thread"] == "unlucky").unwrap();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(line["message"], "panicked: two\nlines with \"quotes\"");
        assert_eq!((&line["level"], &line["target"]), (&json!("ERROR"), &json!("throng::panic")));
        assert!(line["place"].as_str().unwrap().contains("log.rs:"), "{text}");
        let time = line["timestamp"].as_str().unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    }
}
