//! [`List`]: the reminders of an entity, as its activation knows them; and their records.
//!
//! ```text
//!  record of a reminder:  T entity key         → schedule, due, message      one for each
//!  record of the entity:  U clock due entity   → nothing                     one for each clock, at the earliest due
//! ```
//!
//! Invariant: a list is read when no turn of the activation has changed a reminder yet, and all changes are made to it
//! as well. So it is the truth of the running turn. It is dropped with the activation if a turn fails.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use throng_store::ReadError;

use super::schedule::{Clock, Schedule};
use crate::catalogue::Catalogue;
use crate::layout::{self, Table};
use crate::view::View;
use crate::{EntityError, inbox};

/// A reminder that an entity has set, from [`DurableContext::reminders`](crate::DurableContext::reminders) or
/// [`Entity::reminders`](crate::Entity::reminders).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reminder {
    /// The key under which the entity has set it.
    pub key: String,
    /// Time at which the message comes next. By the clock of the [`Schedule`], which may differ from the system's.
    pub due: SystemTime,
    /// The schedule, of which a time `after` or `at` is over once the reminder is set.
    pub schedule: Schedule,
    /// Name of the message.
    pub message: String,
}

/// A record of a change: key, and value unless the record is deleted.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

/// The reminders of an entity; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct List {
    reminders: BTreeMap<Arc<str>, Entry>,
    /// The same by time, for each clock.
    due: [BTreeSet<(u64, Arc<str>)>; 2],
    /// Time at which the store has the entity, for each clock.
    indexed: [Option<u64>; 2],
    /// The occurrence whose message is in the mailbox or is handled, unless its reminder was set anew or cancelled.
    firing: Option<Firing>,
    /// Number of occurrences that were fired.
    fired: u32,
    /// Time of the occurrence whose turn runs.
    pub(super) running: Option<u64>,
    /// Reasons why reminders in the store cannot be read.
    unreadable: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    due: u64,
    schedule: Schedule,
    /// Number of the message's name.
    message: Option<u16>,
}

/// An occurrence whose message is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Firing {
    pub(super) key: Arc<str>,
    pub(super) due: u64,
    number: u32,
}

/// The parts of a reminder's record.
pub(super) struct Record<'r> {
    pub(super) due: u64,
    pub(super) schedule: Schedule,
    /// The message, as in an inbox.
    pub(super) message: &'r [u8],
}

/// Returns the record of a reminder.
pub(super) fn encode(due: u64, schedule: &Schedule, message: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(message.len() + 8);
    schedule.encode(&mut record);
    // A number is always encoded.
    record.extend(postcard::to_stdvec(&due).unwrap_or_default());
    record.extend_from_slice(message);
    record
}

/// Decodes the record of a reminder.
pub(super) fn decode(record: &[u8]) -> Result<Record<'_>, String> {
    let (schedule, rest) = Schedule::take_from(record)?;
    let (due, message) =
        postcard::take_from_bytes(rest).map_err(|error| format!("its time is damaged: {error}"))?;
    Ok(Record { due, schedule, message })
}

/// Reads the reminders of an entity for somebody who wants to see them.
///
/// # Errors
///
/// The store cannot be read, or has a reminder that this program cannot read.
pub(crate) fn read(
    view: &View,
    catalogue: &Catalogue,
    kind: &str,
    state_key: &[u8],
) -> Result<Vec<Reminder>, EntityError> {
    List::load(view, state_key)?.describe(catalogue, kind)
}

/// Splits the record of a reminder into its time, its schedule for people, and its message.
pub(crate) fn split(record: &[u8]) -> Result<(u64, String, &[u8]), String> {
    let Record { due, schedule, message } = decode(record)?;
    Ok((due, schedule.to_string(), message))
}

/// Returns the time of an entity's earliest reminder, of so many that are read at most.
pub(crate) fn next_due(view: &View, state_key: &[u8], most: u64) -> Result<Option<u64>, ReadError> {
    let records = view.prefix(&layout::table_of(Table::Reminders, state_key));
    let mut next = None;
    for (record, _) in records.zip(0..most) {
        // One that is damaged or of a later program does not come.
        let due = match record {
            Ok((_, record)) => decode(record).ok().map(|record| record.due),
            Err(ReadError::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        next = next.into_iter().chain(due).min();
    }
    Ok(next)
}

/// Returns the keys of the records of an entity that has these reminders, by their keys and records.
pub(crate) fn index_of<'r>(
    reminders: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
    state_key: &[u8],
) -> Vec<Box<[u8]>> {
    let mut list = List::default();
    for (key, record) in reminders {
        if let Ok(Record { due, schedule, message }) = decode(record) {
            list.insert(String::from_utf8_lossy(key).into(), due, schedule, message);
        }
    }
    list.indexed = Clock::ALL.map(|clock| list.earliest(clock));
    list.index_keys(state_key).collect()
}

/// Returns the keys of all records of an entity's reminders.
pub(crate) fn keys(view: &View, state_key: &[u8]) -> Result<Vec<Box<[u8]>>, ReadError> {
    let mut keys = inbox::list::keys(view, Table::Reminders, state_key)?;
    keys.extend(List::load(view, state_key)?.index_keys(state_key));
    Ok(keys)
}

impl List {
    /// Reads the reminders of an entity. One that this program cannot read stays in the store.
    pub(super) fn load(view: &View, state_key: &[u8]) -> Result<List, ReadError> {
        let prefix = layout::table_of(Table::Reminders, state_key);
        let mut list = List::default();
        for record in view.prefix(&prefix) {
            let (key, record) = record?;
            let key = String::from_utf8_lossy(&key[prefix.len()..]);
            match decode(record) {
                Ok(Record { due, schedule, message }) => {
                    list.insert((*key).into(), due, schedule, message);
                }
                Err(reason) => list.unreadable.push(format!("{key:?} cannot be read: {reason}")),
            }
        }
        list.indexed = Clock::ALL.map(|clock| list.earliest(clock));
        Ok(list)
    }

    /// Logs the reminders that cannot be read.
    pub(super) fn report_unreadable(&self, kind: &str, key: &str) {
        for reason in &self.unreadable {
            tracing::error!(kind, key, reason, "a reminder does not come");
        }
    }

    /// Returns the reminders in the order of their keys.
    pub(super) fn describe(
        &self,
        catalogue: &Catalogue,
        kind: &str,
    ) -> Result<Vec<Reminder>, EntityError> {
        if let Some(reason) = self.unreadable.first() {
            return Err(EntityError::Reminder(reason.clone()));
        }
        let names = catalogue.messages(kind);
        let describe = |(key, own): (&Arc<str>, &Entry)| {
            let name = names.iter().find(|(_, known)| Some(*known) == own.message);
            Reminder {
                key: (**key).into(),
                due: SystemTime::UNIX_EPOCH + Duration::from_millis(own.due),
                schedule: own.schedule.clone(),
                message: name.map_or_else(|| "?".to_owned(), |(name, _)| name.clone()),
            }
        };
        Ok(self.reminders.iter().map(describe).collect())
    }

    /// Returns the keys of all reminders.
    pub(super) fn keys(&self) -> Vec<Arc<str>> {
        self.reminders.keys().cloned().collect()
    }

    /// Returns the time of the earliest reminder by a clock.
    pub(super) fn earliest(&self, clock: Clock) -> Option<u64> {
        self.due[clock as usize].first().map(|(due, _)| *due)
    }

    /// Returns the earliest reminder by a clock if its time has come.
    pub(super) fn due(&self, clock: Clock, now: u64) -> Option<(Arc<str>, u64)> {
        let (due, key) = self.due[clock as usize].first().filter(|(due, _)| *due <= now)?;
        Some((key.clone(), *due))
    }

    /// Sets a reminder.
    pub(super) fn insert(&mut self, key: Arc<str>, due: u64, schedule: Schedule, message: &[u8]) {
        self.remove(&key);
        self.due[schedule.clock() as usize].insert((due, key.clone()));
        let message = postcard::take_from_bytes(message).map(|(number, _)| number).ok();
        self.reminders.insert(key, Entry { due, schedule, message });
    }

    /// Removes a reminder; returns false if there is none with this key. A message of it that is on its way is not
    /// handled, and a turn that runs leaves alone what is set from here on.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        if self.firing.as_ref().is_some_and(|own| &*own.key == key) {
            self.firing = None;
        }
        let Some((key, own)) = self.reminders.remove_entry(key) else { return false };
        self.due[own.schedule.clock() as usize].remove(&(own.due, key));
        true
    }

    /// Notes that the message of an occurrence is on its way.
    pub(super) fn fire(&mut self, key: Arc<str>, due: u64) -> Firing {
        self.fired = self.fired.wrapping_add(1);
        let firing = Firing { key, due, number: self.fired };
        self.firing = Some(firing.clone());
        firing
    }

    /// Takes back [`fire`](List::fire).
    pub(super) fn unfire(&mut self) {
        self.firing = None;
    }

    pub(super) fn is_firing(&self) -> bool {
        self.firing.is_some()
    }

    /// Begins the turn of an occurrence; returns false if it is not the one on its way.
    pub(super) fn begin(&mut self, firing: &Firing) -> bool {
        let is_current = self.is_current(firing);
        self.running = is_current.then_some(firing.due);
        is_current
    }

    /// Ends the turn of an occurrence.
    pub(super) fn end(&mut self) {
        self.running = None;
    }

    /// Whether an occurrence is the one on its way: its reminder was neither set anew nor cancelled.
    pub(super) fn is_current(&self, firing: &Firing) -> bool {
        self.firing.as_ref().is_some_and(|own| own.number == firing.number)
    }

    /// Returns the time of the occurrence after one that ends; `None` if it is the last.
    pub(super) fn next(&self, key: &str, now: u64) -> Option<u64> {
        self.reminders.get(key).and_then(|own| own.schedule.occurrence(own.due, now).next)
    }

    /// Sets a reminder for its next time. Returns its record, with the message.
    pub(super) fn set_next(&mut self, key: &str, next: u64, message: &[u8]) -> Option<Box<[u8]>> {
        let schedule = self.reminders.get(key)?.schedule.clone();
        let record = encode(next, &schedule, message);
        self.insert(key.into(), next, schedule, message);
        Some(record.into())
    }

    /// Whether the occurrence of a reminder that is due comes.
    pub(super) fn runs(&self, key: &str, now: u64) -> bool {
        self.reminders.get(key).is_some_and(|own| own.schedule.occurrence(own.due, now).runs)
    }

    /// Returns the clock of a reminder.
    pub(super) fn clock(&self, key: &str) -> Option<Clock> {
        self.reminders.get(key).map(|own| own.schedule.clock())
    }

    /// Returns the changes that bring the records of the entity up to date, by clock and with its earliest time.
    pub(super) fn index(&mut self, state_key: &[u8]) -> Vec<(Clock, Option<u64>, Vec<Change>)> {
        let mut changed = Vec::new();
        for clock in Clock::ALL {
            let earliest = self.earliest(clock);
            let before = mem::replace(&mut self.indexed[clock as usize], earliest);
            if before != earliest {
                let key = |due| layout::due(state_key, clock.byte(), due);
                let removed = before.map(|due| (key(due), None));
                let added = earliest.map(|due| (key(due), Some(Vec::new())));
                changed.push((clock, earliest, removed.into_iter().chain(added).collect()));
            }
        }
        changed
    }

    /// Whether the store has the entity at this time.
    pub(super) fn is_indexed(&self, clock: Clock, due: u64) -> bool {
        self.indexed[clock as usize] == Some(due)
    }

    /// Returns the keys of the records of the entity.
    pub(super) fn index_keys(&self, state_key: &[u8]) -> impl Iterator<Item = Box<[u8]>> {
        let key = |clock: Clock| {
            let due = self.indexed[clock as usize]?;
            Some(layout::due(state_key, clock.byte(), due).into())
        };
        Clock::ALL.into_iter().filter_map(key)
    }
}
