//! Runs of workflows and their journals as they are stored, for people.

use throng_store::ReadError;

use super::journal::{Entry, State};
use super::run::{Phase, Run, STEPS};
use crate::Durable;
use crate::catalogue::{Catalogue, Numbered};
use crate::layout;
use crate::records::{Shown, ShownRun, ShownStep, cut};
use crate::values::{read, read_record};
use crate::view::View;

/// Kind of the entities that are runs.
pub(crate) const KIND: &str = Run::KIND;

/// Shows a run by the record of its state; `None` if the record is none of a run.
pub(crate) fn show_run(
    catalogue: &Catalogue,
    record: &[u8],
    text_bytes_max: usize,
) -> Option<ShownRun> {
    let run: Run = read(&*catalogue.kind(KIND)?, record).ok()?;
    let values = catalogue.message(KIND, "")?;
    let value = |record: &[u8]| value(&values, record, text_bytes_max);
    let (status, reason, result) = match (run.phase, run.stuck) {
        (Phase::Unborn, _) => ("unborn", None, None),
        (Phase::Running | Phase::Stopping { .. }, Some((reason, _))) => {
            ("stuck", Some(reason), None)
        }
        (Phase::Running, None) => ("running", None, None),
        (Phase::Stopping { reason, .. }, None) => ("stopping", Some(reason), None),
        (Phase::Done(result), _) => ("done", None, value(&result)),
        (Phase::Failed(reason), _) => ("failed", Some(reason), None),
        (Phase::Cancelled(reason), _) => ("cancelled", Some(reason), None),
    };
    let (status, reason) = (status.into(), reason.map(|reason| cut(&reason)));
    Some(ShownRun { workflow: run.name, status, reason, input: value(&run.input), result })
}

/// Shows the steps of a run, in the order in which they were begun, behind the step with a number. One that cannot be
/// read has the damage for its result, and comes last.
pub(crate) fn show_steps(
    view: &View,
    catalogue: &Catalogue,
    state_key: &[u8],
    after: Option<u32>,
    limit: usize,
    text_bytes_max: usize,
) -> Result<Vec<ShownStep>, ReadError> {
    let Some(steps) = catalogue.known_map(KIND, STEPS) else { return Ok(Vec::new()) };
    let prefix = layout::map(state_key, steps.number());
    let mut journal = Vec::new();
    let mut keys = view.prefix(&prefix);
    while let Some(key) = keys.next_key() {
        let key = key?;
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        let record = view.get(key).map(Option::unwrap_or_default);
        let entry = read_record::<Entry>(&steps, record)?;
        journal.push((name, entry));
    }
    let order = |entry: &Result<Entry, String>| entry.as_ref().map_or(u32::MAX, |own| own.order);
    journal.sort_by_cached_key(|(name, entry)| (order(entry), name.clone()));
    let behind =
        journal.into_iter().filter(|(_, own)| after.is_none_or(|after| order(own) > after));
    let values = catalogue.message(KIND, "");
    let show = |(name, entry)| show_step(name, entry, values.as_deref(), text_bytes_max);
    Ok(behind.take(limit).map(show).collect())
}

fn show_step(
    name: String,
    entry: Result<Entry, String>,
    values: Option<&Numbered>,
    text_bytes_max: usize,
) -> ShownStep {
    let Entry { order, kind, state } = match entry {
        Ok(entry) => entry,
        Err(damage) => {
            let (kind, status) = ("?".into(), "?".into());
            let result = Shown::of(Err(ReadError::Corrupt(damage))).ok();
            let order = u32::MAX;
            return ShownStep { order, name, kind, status, attempts: 0, reason: None, result };
        }
    };
    let (status, attempts, reason, result) = match state {
        State::Waits => ("waits", 0, None, None),
        State::Fails { attempts, reason } => ("fails", attempts, Some(reason), None),
        State::Again { attempts } => ("again", attempts, None, None),
        State::Done(result) => {
            let shown = values.and_then(|values| value(values, &result, text_bytes_max));
            ("done", 0, None, shown)
        }
        State::TimedOut => ("timed out", 0, None, None),
        State::Failed(reason) => ("failed", 0, Some(reason), None),
    };
    let (kind, status) = (kind.name().into(), status.into());
    let reason = reason.map(|reason| cut(&reason));
    ShownStep { order, name, kind, status, attempts, reason, result }
}

/// Shows an input or a result; `None` for a step without one.
fn value(values: &Numbered, record: &[u8], text_bytes_max: usize) -> Option<Shown> {
    (!record.is_empty()).then(|| Shown::of(Ok(values.show(record, text_bytes_max))).ok()).flatten()
}
