//! [`Inspection`]: a stored entity for an operator to look at; and its cells, messages, reminders and steps, page by page.
//!
//! Values are shown by their stored shapes. Each page begins behind a cursor, has a bounded number of entries, and each
//! entry has a bounded text, so that the cost of an answer depends neither on the number of entities nor on what one
//! of them has. The only exception is the journal of a workflow, which its run has in memory as well.

use serde::{Deserialize, Serialize};
use throng_store::ReadError;

use super::{Records, RecordsError, number};
use crate::catalogue::Catalogue;
use crate::inbox::list;
use crate::layout::{self, STATE_KEY_BYTES_MAX, Table};
use crate::reminder;
use crate::stored::is_stored;
use crate::view::View;
use crate::workflow;

/// Length of the text of a state, in bytes.
const STATE_TEXT_BYTES_MAX: usize = 64 << 10;

/// Length of any other text, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 10;

/// Entries of a table that are counted.
const COUNT_MAX: u64 = 10_000;

/// A stored entity, from [`Records::inspect`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The entity's key.
    pub key: String,
    /// Whether the entity is in memory; `false` if the store is not that of a running node.
    pub is_live: bool,
    /// Whether the entity is [pinned](crate::Entity::pin).
    pub is_pinned: bool,
    /// The state; `None` if none is stored.
    pub state: Option<Shown>,
    /// Number of cells.
    pub cells: Tally,
    /// Number of durable messages that wait.
    pub waiting: Tally,
    /// Number of durable messages that were parked.
    pub parked: Tally,
    /// Number of reminders.
    pub reminders: Tally,
    /// Number of stored replies.
    pub replies: Tally,
    /// Time of the next reminder, in milliseconds since 1970.
    pub next_reminder_ms: Option<u64>,
    /// The run of a [workflow](crate::Workflow), if the entity is one.
    pub run: Option<ShownRun>,
}

/// Number of entries, counted up to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Number of entries that were counted.
    pub entries: u64,
    /// Whether there are more.
    pub has_more: bool,
}

/// A value, shown by the shape with which it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Shown {
    /// Version of a state; 0 for other values.
    pub version: u16,
    /// Length of the encoded value, in bytes.
    pub bytes: usize,
    /// The value, in a text like JSON; `…` is at the end of a text that is cut. The damage, if the value cannot be read.
    pub text: Result<String, String>,
}

/// A run of a workflow, in an [`Inspection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownRun {
    /// Name of the workflow.
    pub workflow: String,
    /// State of the run: `unborn`, `running`, `stuck`, `stopping`, `done`, `failed` or `cancelled`.
    pub status: String,
    /// The reason, of a run that is stuck, stopping or cancelled, or has failed.
    pub reason: Option<String>,
    /// The input.
    pub input: Option<Shown>,
    /// The result of a run that is done.
    pub result: Option<Shown>,
}

/// A cell, from [`Records::cells`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownCell {
    /// Name of the map.
    pub map: String,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Shown,
    /// Cursor for the cells behind this one.
    pub cursor: Vec<u8>,
}

/// A durable message, from [`Records::messages`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownMessage {
    /// Number of the message, unique among those of the entity.
    pub sequence: u64,
    /// Name of the message; `?` if the store has none.
    pub name: String,
    /// The message.
    pub value: Shown,
    /// Number of attempts to handle the message that have failed.
    pub attempts: u32,
    /// Time of the last of them, in milliseconds since 1970.
    pub failed_ms: Option<u64>,
    /// Reason of its failure.
    pub reason: Option<String>,
    /// File, line and column of its panic.
    pub place: Option<String>,
}

/// A reminder, from [`Records::reminders`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownReminder {
    /// The key of the reminder.
    pub key: String,
    /// Time at which its message comes next, in milliseconds since 1970.
    pub due_ms: u64,
    /// The schedule, as [`Schedule`](crate::Schedule) is displayed; or the reason why this program cannot read it.
    pub schedule: Result<String, String>,
    /// Name of the message.
    pub message: String,
    /// The message.
    pub value: Shown,
}

/// A step of a workflow's run, from [`Records::steps`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownStep {
    /// Number of steps before this one.
    pub order: u32,
    /// Name of the step, with `#2` and so on for later steps of the same name.
    pub name: String,
    /// What the step does, as in [`StepInfo::kind`](crate::StepInfo::kind).
    pub kind: String,
    /// State of the step: `waits`, `fails`, `again`, `done`, `timed out` or `failed`.
    pub status: String,
    /// Number of attempts that have failed.
    pub attempts: u32,
    /// The last failure.
    pub reason: Option<String>,
    /// The result of a step that is done, if it has one.
    pub result: Option<Shown>,
}

/// Table of an entity's durable messages, and of its reminders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    /// Messages that wait.
    Waiting,
    /// Messages that were parked.
    Parked,
    /// Reminders.
    Reminders,
}

impl Pending {
    fn table(self) -> Table {
        match self {
            Pending::Waiting => Table::Inbox,
            Pending::Parked => Table::Parked,
            Pending::Reminders => Table::Reminders,
        }
    }
}

/// An entity in a view of the store.
pub(crate) struct Subject<'k> {
    pub(crate) view: View,
    pub(crate) catalogue: Catalogue,
    kind: &'k str,
    pub(crate) state_key: Vec<u8>,
}

impl Records {
    /// Returns what is stored of an entity, for people; `None` if nothing is. The entity is not activated.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// #[process]
    /// impl Account {
    ///     #[message]
    ///     fn deposit(&mut self, amount: u64) {
    ///         self.balance += amount;
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let node = Node::options(path).open(&runtime)?;
    /// runtime.block_on(async |_| node.entity::<Account>("ada").deposit(5).await)?;
    /// let ada = node.records().inspect("account", "ada")?.ok_or("nothing is stored")?;
    /// assert!(ada.is_live);
    /// assert_eq!(ada.state.ok_or("no state")?.text?, r#"{"balance": 5}"#);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: a read of the catalogue and of the state, and a count of what the entity has, up to 10,000 in each table.
    ///
    /// # Errors
    ///
    /// [`RecordsError::NoKind`], [`RecordsError::Key`], [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn inspect(&self, kind: &str, key: &str) -> Result<Option<Inspection>, RecordsError> {
        let own = self.subject(kind, key)?;
        let tally = |prefix: &[u8]| tally(&own.view, prefix);
        let of = |table| tally(&layout::table_of(table, &own.state_key));
        let is_pinned = is_stored(&own.view, &layout::pin(&own.state_key))?;
        let has_state = is_stored(&own.view, &own.state_key)?;
        let cells = tally(&layout::cells(&own.state_key))?;
        let [waiting, parked] = [of(Table::Inbox)?, of(Table::Parked)?];
        let [reminders, replies] = [of(Table::Reminders)?, of(Table::Replies)?];
        let all = [cells, waiting, parked, reminders, replies];
        if !has_state && !is_pinned && all.iter().all(|own| own.entries == 0) {
            return Ok(None);
        }
        let record = has_state.then(|| own.view.get(&own.state_key));
        let record = record.map(|record| record.map(Option::unwrap_or_default));
        let run = match &record {
            Some(Ok(record)) if workflow::KIND == kind => {
                workflow::show_run(&own.catalogue, record, TEXT_BYTES_MAX)
            }
            _ => None,
        };
        let numbered = own.catalogue.kind(kind);
        let state = record.map(|record| {
            Shown::of(record.map(|record| match &numbered {
                Some(numbered) => numbered.show(record, STATE_TEXT_BYTES_MAX),
                None => Err("its kind has no number".into()),
            }))
        });
        Ok(Some(Inspection {
            key: key.into(),
            is_live: self.is_live(&own.state_key),
            is_pinned,
            state: state.transpose()?,
            next_reminder_ms: reminder::next_due(&own.view, &own.state_key, COUNT_MAX)?,
            cells,
            waiting,
            parked,
            reminders,
            replies,
            run,
        }))
    }

    /// Returns at most `limit` cells of an entity behind a [cursor](ShownCell::cursor), by their maps and in the order
    /// of their keys.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Records::inspect).
    pub fn cells(
        &self,
        kind: &str,
        key: &str,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<ShownCell>, RecordsError> {
        let own = self.subject(kind, key)?;
        let maps = own.catalogue.maps(kind);
        let show = |cursor: &[u8], record: Result<&[u8], ReadError>| {
            let Some((map, key)) = cursor.split_first_chunk() else { return Ok(None) };
            let number = u16::from_be_bytes(*map);
            let name = maps.iter().find(|(_, known)| *known == number).map(|(name, _)| name);
            let map = name.and_then(|name| own.catalogue.map(kind, name));
            let value = Shown::of(record.map(|record| match &map {
                Some(map) => map.show(record, TEXT_BYTES_MAX),
                None => Err(format!("the store has no map {number}")),
            }))?;
            let map = name.cloned().unwrap_or_else(|| format!("map {number}"));
            Ok(Some(ShownCell { map, key: key.into(), value, cursor: cursor.into() }))
        };
        Ok(own.view.page(&layout::cells(&own.state_key), after, limit, show)?)
    }

    /// Returns at most `limit` durable messages of an entity that wait or were parked, in the order of their sequence
    /// numbers, behind one of these. Of [`Pending::Reminders`] there are none: see [`reminders`](Records::reminders).
    ///
    /// # Errors
    ///
    /// As [`inspect`](Records::inspect).
    pub fn messages(
        &self,
        kind: &str,
        key: &str,
        which: Pending,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<ShownMessage>, RecordsError> {
        if which == Pending::Reminders {
            return Ok(Vec::new());
        }
        let own = self.subject(kind, key)?;
        let after = after.map(u64::to_be_bytes);
        let prefix = layout::table_of(which.table(), &own.state_key);
        let show = |sequence: &[u8], record: Result<&[u8], ReadError>| {
            let Ok(sequence) = sequence.try_into().map(u64::from_be_bytes) else { return Ok(None) };
            let attempts = list::attempts_of(&own.view, &own.state_key, sequence);
            let (record, failure) = match record {
                Ok(record) if which == Pending::Parked => match list::split_parked(record) {
                    Some((failure, message)) => (Ok(message), Some(failure)),
                    None => (Ok(record), None),
                },
                record => (record, attempts.unwrap_or_default()),
            };
            let (name, value) = own.message(record)?;
            let (attempts, failed_ms) = match &failure {
                Some(failure) => (failure.attempts, Some(failure.at_ms)),
                None => (0, None),
            };
            let place = failure.as_ref().and_then(|failure| failure.place.as_deref().map(cut));
            let reason = failure.map(|failure| cut(&failure.reason));
            let shown = ShownMessage { sequence, name, value, attempts, failed_ms, reason, place };
            Ok(Some(shown))
        };
        Ok(own.view.page(&prefix, after.as_ref().map(|after| &after[..]), limit, show)?)
    }

    /// Returns at most `limit` reminders of an entity behind a key, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Records::inspect).
    pub fn reminders(
        &self,
        kind: &str,
        key: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ShownReminder>, RecordsError> {
        let own = self.subject(kind, key)?;
        let prefix = layout::table_of(Table::Reminders, &own.state_key);
        let show = |key: &[u8], record: Result<&[u8], ReadError>| {
            let (due_ms, schedule, message) = match record.map(reminder::split) {
                Ok(Ok((due, schedule, message))) => (due, Ok(schedule), Ok(message)),
                Ok(Err(reason)) => (0, Err(cut(&reason)), Ok(&[][..])),
                Err(error) => (0, Err(error.to_string()), Err(error)),
            };
            let (message, value) = own.message(message)?;
            let key = String::from_utf8_lossy(key).into_owned();
            Ok(Some(ShownReminder { key, due_ms, schedule, message, value }))
        };
        Ok(own.view.page(&prefix, after.map(str::as_bytes), limit, show)?)
    }

    /// Returns at most `limit` steps of a workflow's run behind a [step](ShownStep::order), in the order in which they
    /// were begun; none if the entity is no run. Reads the whole journal.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Records::inspect).
    pub fn steps(
        &self,
        kind: &str,
        key: &str,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ShownStep>, RecordsError> {
        let own = self.subject(kind, key)?;
        match kind == workflow::KIND {
            true => workflow::show_steps(
                &own.view,
                &own.catalogue,
                &own.state_key,
                after,
                limit,
                TEXT_BYTES_MAX,
            )
            .map_err(RecordsError::from),
            false => Ok(Vec::new()),
        }
    }

    /// Returns at most `limit` entities of a kind that have messages or reminders, behind one of them. They are in the
    /// order of the lengths of their keys, and then of the keys: an entity may have messages without ever having been
    /// stored. Costs a search for each of them.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Records::inspect).
    pub fn pending(
        &self,
        kind: &str,
        which: Pending,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let kind = number(&catalogue, kind)?;
        let prefix = layout::table_of_kind(which.table(), kind);
        let end = layout::after(&prefix);
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let mut start = match after {
            Some(after) => {
                let state_key = layout::state_key(kind, after, &mut buffer)?;
                layout::after(&layout::table_of(which.table(), state_key))
            }
            None => prefix.to_vec(),
        };
        let mut keys = Vec::new();
        while keys.len() < limit
            && let Some(first) = view.range(&start[..]..&end[..]).next_key()
        {
            let first = first?;
            let Some(own) = layout::key_of_record(first) else {
                start = [first, &[0]].concat();
                continue;
            };
            keys.push(String::from_utf8_lossy(own).into_owned());
            start = layout::after(&first[..prefix.len() + 1 + own.len()]);
        }
        Ok(keys)
    }

    pub(crate) fn subject<'k>(
        &self,
        kind: &'k str,
        key: &str,
    ) -> Result<Subject<'k>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let number = number(&catalogue, kind)?;
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = layout::state_key(number, key, &mut buffer)?.to_vec();
        Ok(Subject { view, catalogue, kind, state_key })
    }
}

impl Subject<'_> {
    /// Shows a stored message with its name.
    fn message(&self, record: Result<&[u8], ReadError>) -> Result<(String, Shown), ReadError> {
        let mut name = "?".to_owned();
        let shown = Shown::of(record.map(|record| {
            let (number, encoded) = postcard::take_from_bytes::<u16>(record)
                .map_err(|error| format!("it has no number of a message: {error}"))?;
            let names = self.catalogue.messages(self.kind);
            let known = names.into_iter().find(|(_, known)| *known == number);
            let (known, _) = known.ok_or_else(|| format!("the store has no message {number}"))?;
            name.clone_from(&known);
            let numbered = self.catalogue.message(self.kind, &known);
            numbered.ok_or("it has no number")?.show(encoded, TEXT_BYTES_MAX)
        }))?;
        Ok((name, shown))
    }
}

impl Shown {
    /// Shows a value, or its damage.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub(crate) fn of(
        shown: Result<Result<(u16, usize, String), String>, ReadError>,
    ) -> Result<Shown, ReadError> {
        let damage = |damage| Shown { version: 0, bytes: 0, text: Err(damage) };
        match shown {
            Ok(Ok((version, bytes, text))) => Ok(Shown { version, bytes, text: Ok(text) }),
            Ok(Err(reason)) => Ok(damage(cut(&reason))),
            Err(ReadError::Corrupt(reason)) => Ok(damage(reason)),
            Err(error) => Err(error),
        }
    }
}

/// Cuts the text of a program's error.
pub(crate) fn cut(text: &str) -> String {
    match text.floor_char_boundary(TEXT_BYTES_MAX) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.into(),
    }
}

fn tally(view: &View, prefix: &[u8]) -> Result<Tally, ReadError> {
    let (mut range, mut entries) = (view.prefix(prefix), 0);
    while let Some(key) = range.next_key() {
        key?;
        if entries == COUNT_MAX {
            return Ok(Tally { entries, has_more: true });
        }
        entries += 1;
    }
    Ok(Tally { entries, has_more: false })
}
