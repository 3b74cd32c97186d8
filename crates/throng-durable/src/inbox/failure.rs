//! Messages whose handling fails: attempts, pauses between them, and parking.
//!
//! ```text
//!  failed ──▶ attempts < most: a pause, then again ──▶ handled
//!         └─▶ attempts = most ──▶ Park: moved out of the way; the entity goes on with the next message
//!                              └▶ Stop: the entity takes no stored message until somebody retries or skips this one
//! ```
//!
//! Meanwhile the entity answers calls as usual. An attempt that the disk or the end of the program has failed does not
//! count.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Context;
use throng_store::{Batch, SubmitError};

use super::{Entry, redelivery};
use crate::activation::{Activation, discard};
use crate::catalogue::Number;
use crate::layout::{self, Table};
use crate::node::Inner;
use crate::view::View;
use crate::{CommitError, Durable, EntityError};

/// Policy of a kind for [durable messages](crate::DurableMessage) whose handler panics, or whose turn cannot be
/// committed; see [`Durable::ON_FAILURE`].
///
/// ```
/// use std::time::Duration;
/// use throng_durable::OnFailure;
///
/// // Ten attempts, with pauses of one second at first, and of ten minutes at most.
/// const PATIENT: OnFailure =
///     OnFailure::park_after(10).pauses(Duration::from_secs(1), Duration::from_secs(600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnFailure {
    attempts: u32,
    first: Duration,
    longest: Duration,
    is_parked: bool,
}

impl OnFailure {
    /// Returns the policy that parks a message after so many attempts, one at least, and goes on with the next one. The
    /// pauses are a tenth of a second at first, and double up to a minute.
    pub const fn park_after(attempts: u32) -> OnFailure {
        OnFailure {
            attempts,
            first: Duration::from_millis(100),
            longest: Duration::from_secs(60),
            is_parked: true,
        }
    }

    /// Returns the policy by which the entity handles no further durable message after so many attempts, until
    /// somebody [retries](crate::Entity::retry_message) or [skips](crate::Entity::skip_message) the one that fails.
    pub const fn stop_after(attempts: u32) -> OnFailure {
        OnFailure { is_parked: false, ..OnFailure::park_after(attempts) }
    }

    /// Sets the first and the longest pause between two attempts. Each is cut by up to a half, at random.
    #[must_use]
    pub const fn pauses(self, first: Duration, longest: Duration) -> OnFailure {
        OnFailure { first, longest, ..self }
    }

    /// Whether a message that has failed so often is to be parked.
    fn parks(&self, failures: u32) -> bool {
        self.is_parked && failures >= self.attempts
    }

    /// Whether a message that has failed so often stops its entity.
    pub(super) fn stops(&self, failures: u32) -> bool {
        !self.is_parked && failures >= self.attempts
    }

    /// Returns the pause after so many failures. `hash` is a random number.
    pub(crate) fn pause(&self, failures: u32, hash: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(31));
        // Between half of it and the whole, so that entities that failed together do not come together again.
        doubled.min(self.longest).mul_f64(0.5 + (hash % 1024) as f64 / 2048.0)
    }
}

/// The failed attempts to handle a message, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    pub(crate) failures: u32,
    /// Time of the last one, in milliseconds since 1970.
    pub(crate) failed_ms: u64,
    /// Milliseconds from then to the next attempt.
    pub(crate) pause_ms: u64,
    pub(crate) reason: String,
    /// File and line of a panic.
    pub(crate) place: Option<String>,
}

/// Version of the record of attempts.
const VERSION: u8 = 1;

impl Attempts {
    fn of(node: &Inner, failures: u32, pause: Duration, error: &EntityError) -> Attempts {
        let place = match error {
            EntityError::Panicked(panic) => panic.place().map(ToString::to_string),
            _ => None,
        };
        Attempts {
            failures,
            failed_ms: milliseconds(node.store.since_1970()),
            pause_ms: milliseconds(pause),
            reason: error.to_string(),
            place,
        }
    }

    fn encode(&self) -> Vec<u8> {
        // Numbers and texts are always encoded.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Decodes the attempts at the begin of a record; returns the rest as well.
    pub(crate) fn take_from(record: &[u8]) -> Option<(Attempts, &[u8])> {
        postcard::take_from_bytes(record.strip_prefix(&[VERSION])?).ok()
    }

    /// Returns the time until the next attempt.
    pub(super) fn left(&self, now: Duration) -> Duration {
        // A clock that was set back would make the pause longer than it is.
        let since = milliseconds(now).checked_sub(self.failed_ms);
        Duration::from_millis(since.map_or(0, |since| self.pause_ms.saturating_sub(since)))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A message that has failed for the first time, and comes into the inbox with its failure.
pub(crate) struct Failed {
    /// Records of the message.
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Record of the block of its sequence number.
    pub(crate) block: Option<Arc<Number>>,
    /// Time to the next attempt.
    pub(crate) pause: Duration,
    sequence: u64,
    attempts: Attempts,
    is_parked: bool,
}

impl Failed {
    /// Prepares the records of a message, which is parked at once if no further attempt can succeed.
    pub(crate) fn new<P: Durable>(
        node: &Inner,
        state_key: &[u8],
        message: &[u8],
        error: &EntityError,
        is_lasting: bool,
    ) -> Failed {
        let (sequence, block) = node.sequence.draw();
        let [inbox, attempted, parked] = [Table::Inbox, Table::Attempts, Table::Parked]
            .map(|table| layout::entry(table, state_key, sequence));
        let is_parked = is_lasting || P::ON_FAILURE.parks(1);
        let pause = P::ON_FAILURE.pause(1, node.hash(&attempted));
        let attempts = Attempts::of(node, 1, pause, error);
        let records = match is_parked {
            true => vec![(parked, [&attempts.encode(), message].concat())],
            false => vec![(inbox, message.to_vec()), (attempted, attempts.encode())],
        };
        Failed { records, block, pause, sequence, attempts, is_parked }
    }

    /// Tells of the failure once the records are submitted.
    pub(crate) fn report<P: Durable>(&self, node: &Inner, key: &str, message: &str) {
        match self.is_parked {
            true => report_parked::<P>(node, key, message, self.sequence, &self.attempts),
            false if P::ON_FAILURE.stops(1) => {
                report_stop::<P>(node, key, message, self.sequence);
            }
            false => {}
        }
    }
}

fn report_parked<P: Durable>(
    node: &Inner,
    key: &str,
    message: &str,
    sequence: u64,
    Attempts { failures, reason, .. }: &Attempts,
) {
    node.redelivery.count_parked();
    let kind = P::KIND;
    tracing::error!(kind, key, message, sequence, failures, reason, "a message was parked");
}

fn report_stop<P: Durable>(node: &Inner, key: &str, message: &str, sequence: u64) {
    node.redelivery.count_stop();
    let kind = P::KIND;
    tracing::error!(
        kind,
        key,
        message,
        sequence,
        "an entity takes no durable message until this one is retried or skipped"
    );
}

/// Notes that the handling of a message has failed, and gives up the activation.
pub(super) async fn note<P: Durable>(
    cx: &mut Context<P>,
    entry: &Entry,
    error: &EntityError,
    message: &'static str,
) {
    let Some(own) = Activation::of(cx) else { return };
    own.drop_changes();
    let (node, name) = (own.node().clone(), own.name().clone());
    let mut pause = redelivery::PAUSE;
    if is_of_message(error) {
        let failures = entry.failures.saturating_add(1);
        let attempted = layout::entry(Table::Attempts, name.state_key(), entry.sequence);
        pause = P::ON_FAILURE.pause(failures, node.hash(&attempted).wrapping_add(failures.into()));
        let attempts = Attempts::of(&node, failures, pause, error);
        let noted = match P::ON_FAILURE.parks(failures) {
            true => park(cx, entry.sequence, &attempts, message).await,
            false => {
                let batch =
                    Batch::new().put(node.tables.at(&attempted), &attempted, &attempts.encode());
                submit(cx, batch).await
            }
        };
        if P::ON_FAILURE.stops(failures) {
            report_stop::<P>(&node, name.key(), message, entry.sequence);
        }
        if let Err(error) = noted {
            let (kind, key) = (P::KIND, name.key());
            tracing::error!(kind, key, message, %error, "a failed attempt was not noted");
        }
    }
    discard(cx, error);
    node.directory::<P>().recheck_later(&node, name.state_key(), pause);
}

/// Moves a message that this program cannot decode to the parked ones.
pub(super) async fn park_undecodable<P: Durable>(
    cx: &mut Context<P>,
    sequence: u64,
    error: &EntityError,
    message: &str,
) -> Result<(), EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(()) };
    let attempts = Attempts::of(own.node(), 1, Duration::ZERO, error);
    park(cx, sequence, &attempts, message).await
}

async fn park<P: Durable>(
    cx: &mut Context<P>,
    sequence: u64,
    attempts: &Attempts,
    message: &str,
) -> Result<(), EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(()) };
    let (node, name, last) = (own.node().clone(), own.name().clone(), own.last());
    // The message may not be in the store yet.
    node.gate.settled(last).await?;
    let view = View::of(&node.tables)?;
    let [inbox, attempted, parked] = [Table::Inbox, Table::Attempts, Table::Parked]
        .map(|table| layout::entry(table, name.state_key(), sequence));
    let Some(record) = view.get(&inbox)? else { return Ok(()) };
    let record = [&attempts.encode(), record].concat();
    let batch = Batch::new()
        .delete(node.tables.at(&inbox), &inbox)
        .delete(node.tables.at(&attempted), &attempted);
    submit(cx, batch.put(node.tables.at(&parked), &parked, &record)).await?;
    report_parked::<P>(&node, name.key(), message, sequence, attempts);
    Ok(())
}

/// Submits a batch that has none of a turn's changes.
async fn submit<P: Durable>(cx: &mut Context<P>, mut batch: Batch) -> Result<(), EntityError> {
    loop {
        let Some(own) = Activation::of(cx) else { return Ok(()) };
        let node = own.node().clone();
        if node.is_fenced() {
            return Err(EntityError::ShutDown);
        }
        match node.store.submit(&mut batch, own.last()) {
            Ok(submission) => return own.build_on(submission).map_err(EntityError::from),
            Err(SubmitError::Overloaded) => node.store.room_for(&batch).await,
            Err(error) => return Err(EntityError::NotCommitted(CommitError::Refused(error))),
        }
    }
}

/// Whether a further attempt would fail by the message or its handler, and not by the disk.
pub(crate) fn is_of_message(error: &EntityError) -> bool {
    match error {
        EntityError::NotCommitted(CommitError::Refused(error)) => {
            matches!(error, SubmitError::Rejected(_))
        }
        EntityError::NotCommitted(CommitError::Lost(_))
        | EntityError::Unknown(_)
        | EntityError::ShutDown => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let policy =
            OnFailure::park_after(9).pauses(Duration::from_secs(1), Duration::from_secs(7));
        for (failures, whole) in [(1, 1), (2, 2), (3, 4), (4, 7), (99, 7)] {
            let whole = Duration::from_secs(whole);
            let [shortest, longest] = [0, 1023].map(|hash| policy.pause(failures, hash));
            assert_eq!(shortest, whole / 2);
            assert!(longest > whole.mul_f64(0.99) && longest < whole, "{longest:?}");
        }
    }

    fn attempts() -> Attempts {
        let (reason, place) = ("out of paper".into(), Some("a.rs:1:2".into()));
        Attempts { failures: 3, failed_ms: 10_000, pause_ms: 500, reason, place }
    }

    #[test]
    fn a_clock_that_is_set_makes_no_pause_longer() {
        let times = [(10_000, 500), (10_400, 100), (10_501, 0), (9_999, 0), (99_999_999, 0)];
        for (now, left) in times.map(|(now, left)| (now, Duration::from_millis(left))) {
            assert_eq!(attempts().left(Duration::from_millis(now)), left, "{now}");
        }
    }

    #[test]
    fn attempts_come_back_with_what_follows_them() {
        let record = [&attempts().encode()[..], b"rest"].concat();
        assert_eq!(Attempts::take_from(&record), Some((attempts(), &b"rest"[..])));
        assert_eq!(Attempts::take_from(b"\x02"), None);
    }
}
