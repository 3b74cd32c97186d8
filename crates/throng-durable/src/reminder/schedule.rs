//! [`Schedule`]: when the message of a reminder comes, as pure functions of time.
//!
//! ```text
//!  set at now ──first──▶ due ──(its time comes)──▶ occurrence(due, now) ──▶ runs or is skipped, and the next due
//! ```
//!
//! Times are milliseconds since 1970, by the clock of the schedule. Invariants: the next occurrence is later than the
//! one before, also if the clock was set back; unless all occurrences are wanted, the next one is later than now.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Time after which an occurrence is missed, in milliseconds.
const GRACE: u64 = 60_000;

/// When a [reminder](crate::DurableContext::remind) is due: once, or again and again.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use throng_durable::{Missed, Schedule};
///
/// let soon = Schedule::after(Duration::from_secs(30));
/// let at_a_time = Schedule::at(SystemTime::now() + Duration::from_secs(86_400));
/// let each_minute = Schedule::every(Duration::from_secs(60)).missed(Missed::Skip);
/// let on_weekdays = Schedule::cron("30 9 * * MON-FRI", "Europe/Berlin")?;
/// # Ok::<(), throng_durable::CronError>(())
/// ```
///
/// | schedule | clock |
/// |---|---|
/// | `after`, `every` | one that goes on steadily while the node is open, whatever the system's clock is set to; over the time in which the node was not open the system's clock decides |
/// | `at`, `cron` | the system's clock; an occurrence that has passed is not repeated when the clock is set back |
#[derive(Clone, PartialEq, Eq)]
pub struct Schedule {
    when: When,
    missed: Missed,
}

#[derive(Clone, PartialEq, Eq)]
enum When {
    /// Milliseconds from the turn that sets the reminder.
    After(u64),
    At(u64),
    Every(NonZeroU64),
    Cron(Cron),
}

#[derive(Clone, PartialEq, Eq)]
struct Cron(Arc<Parsed>);

#[derive(PartialEq, Eq)]
struct Parsed {
    expression: Box<str>,
    zone_name: Box<str>,
    cron: croner::Cron,
    zone: TimeZone,
}

/// Policy of a [`Schedule`] for occurrences that have passed while nobody could handle them, as while the node was not
/// open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// The first one comes late, and stands for all others that have passed.
    #[default]
    Once,
    /// Each comes late, one after the other.
    All,
    /// An occurrence does not come if it is late by more than a minute; [`NodeStat::reminders_skipped`] counts it. One
    /// that is late by less comes, and stands for all others that have passed.
    ///
    /// [`NodeStat::reminders_skipped`]: crate::NodeStat::reminders_skipped
    Skip,
}

/// Error of [`Schedule::cron`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schedule {expression:?} in the zone {zone:?} is not valid: {reason}")]
pub struct CronError {
    expression: String,
    zone: String,
    reason: String,
}

/// The clock of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// One that no setting of the system's clock moves while the node is open.
    Steady,
    /// The system's clock.
    Wall,
}

impl Clock {
    pub(crate) const ALL: [Clock; 2] = [Clock::Steady, Clock::Wall];

    /// Returns the byte of the clock in the store's keys.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Clock::Steady => b's',
            Clock::Wall => b'w',
        }
    }
}

/// The end of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// Whether the message comes.
    pub(super) runs: bool,
    /// The next time.
    pub(super) next: Option<u64>,
}

impl Schedule {
    /// Returns the schedule that is due once, so long after the turn that sets the reminder is handled.
    pub fn after(time: Duration) -> Schedule {
        Schedule { when: When::After(milliseconds(time)), missed: Missed::Once }
    }

    /// Returns the schedule that is due once at this time, or at once if the time has passed.
    pub fn at(time: SystemTime) -> Schedule {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Schedule { when: When::At(milliseconds(since)), missed: Missed::Once }
    }

    /// Returns the schedule that is due each time that such a period has passed, a millisecond at least.
    pub fn every(period: Duration) -> Schedule {
        let period = NonZeroU64::new(milliseconds(period)).unwrap_or(NonZeroU64::MIN);
        Schedule { when: When::Every(period), missed: Missed::Once }
    }

    /// Returns the schedule of a cron expression in a time zone: minute, hour, day of the month, month and day of the
    /// week, as in `"30 9 * * MON-FRI"`. A sixth field before these is for seconds, and a seventh behind them for years.
    ///
    /// An occurrence in a gap that the clocks of the zone skip comes after the gap, and one at a time that they show twice
    /// comes the first time. An expression with `*` for the hour or the minute goes on through both.
    ///
    /// # Errors
    ///
    /// The expression is not valid, or has no occurrence, or the zone is not known.
    pub fn cron(expression: &str, zone: &str) -> Result<Schedule, CronError> {
        let failed =
            |reason: String| CronError { expression: expression.into(), zone: zone.into(), reason };
        let cron = expression
            .parse()
            .map_err(|error: croner::errors::CronError| failed(error.to_string()))?;
        let parsed = Parsed {
            expression: expression.into(),
            zone_name: zone.into(),
            cron,
            zone: TimeZone::get(zone).map_err(|error| failed(error.to_string()))?,
        };
        let cron = Cron(Arc::new(parsed));
        if cron.after(0).is_none() {
            return Err(failed("it has no occurrence".into()));
        }
        Ok(Schedule { when: When::Cron(cron), missed: Missed::Once })
    }

    /// Sets what happens to occurrences that were missed; [`Missed::Once`] by default.
    #[must_use]
    pub fn missed(self, missed: Missed) -> Schedule {
        Schedule { missed, ..self }
    }

    pub(crate) fn clock(&self) -> Clock {
        match self.when {
            When::After(_) | When::Every(_) => Clock::Steady,
            When::At(_) | When::Cron(_) => Clock::Wall,
        }
    }

    /// Returns the first time at which a reminder is due that is set now; `None` if there is none.
    pub(super) fn first(&self, now: u64) -> Option<u64> {
        match &self.when {
            When::After(time) => Some(now.saturating_add(*time)),
            When::At(time) => Some(*time),
            When::Every(period) => Some(now.saturating_add(period.get())),
            When::Cron(cron) => cron.after(now),
        }
    }

    /// Returns what becomes of the occurrence that was due at a time that has come.
    pub(super) fn occurrence(&self, due: u64, now: u64) -> Occurrence {
        let (runs, from) = match self.missed {
            Missed::All => (true, due),
            Missed::Once => (true, due.max(now)),
            Missed::Skip => (now.saturating_sub(due) <= GRACE, due.max(now)),
        };
        let next = match &self.when {
            When::After(_) | When::At(_) => None,
            When::Every(period) => {
                let periods = (from - due) / period.get() + 1;
                period.get().checked_mul(periods).and_then(|passed| due.checked_add(passed))
            }
            When::Cron(cron) => cron.after(from),
        };
        Occurrence { runs, next }
    }

    /// Appends the schedule to a record.
    pub(super) fn encode(&self, record: &mut Vec<u8>) {
        let missed = match self.missed {
            Missed::Once => 0,
            Missed::All => 1,
            Missed::Skip => 2,
        };
        let tag = VERSION << 6 | missed << 4;
        // Numbers and texts are always encoded.
        match &self.when {
            When::After(_) => record.push(tag | AFTER),
            When::At(_) => record.push(tag | AT),
            When::Every(period) => {
                record.push(tag | EVERY);
                record.extend(postcard::to_stdvec(period).unwrap_or_default());
            }
            When::Cron(cron) => {
                record.push(tag | CRON);
                let Parsed { expression, zone_name, .. } = &*cron.0;
                record.extend(postcard::to_stdvec(&(expression, zone_name)).unwrap_or_default());
            }
        }
    }

    /// Decodes the schedule at the begin of a record; returns the rest as well.
    pub(super) fn take_from(record: &[u8]) -> Result<(Schedule, &[u8]), String> {
        let damaged = |error: postcard::Error| format!("its schedule is damaged: {error}");
        let (&tag, rest) = record.split_first().ok_or("it has no schedule")?;
        if tag >> 6 != VERSION {
            return Err(format!("its schedule has version {}, and not {VERSION}", tag >> 6));
        }
        let missed = match tag >> 4 & 3 {
            0 => Missed::Once,
            1 => Missed::All,
            2 => Missed::Skip,
            missed => return Err(format!("its schedule has a policy {missed}")),
        };
        let (when, rest) = match tag & 15 {
            // Their times do not matter once a reminder is set.
            AFTER => (When::After(0), rest),
            AT => (When::At(0), rest),
            EVERY => {
                let (period, rest) = postcard::take_from_bytes(rest).map_err(damaged)?;
                (When::Every(period), rest)
            }
            CRON => {
                let ((expression, zone), rest) =
                    postcard::take_from_bytes(rest).map_err(damaged)?;
                let cron = Schedule::cron(expression, zone).map_err(|error| error.to_string())?;
                (cron.when, rest)
            }
            when => return Err(format!("its schedule is of a kind {when}")),
        };
        Ok((Schedule { when, missed }, rest))
    }
}

/// Version of an encoded schedule.
const VERSION: u8 = 1;

const AFTER: u8 = 0;
const AT: u8 = 1;
const EVERY: u8 = 2;
const CRON: u8 = 3;

impl Cron {
    /// Returns the first occurrence after a time.
    fn after(&self, time: u64) -> Option<u64> {
        let time = Timestamp::from_millisecond(time.try_into().ok()?).ok()?;
        let time = time.to_zoned(self.0.zone.clone());
        let next = self.0.cron.find_next_occurrence(&time, false).ok()?;
        next.timestamp().as_millisecond().try_into().ok()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

/// The schedule as text: `once`, `every 60s`, or a cron expression with its zone.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.when {
            When::After(_) | When::At(_) => f.write_str("once"),
            When::Every(period) => write!(f, "every {:?}", Duration::from_millis(period.get())),
            When::Cron(cron) => write!(f, "{} {}", cron.0.expression, cron.0.zone_name),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Milliseconds since 1970 of a time.
    fn at(time: &str) -> u64 {
        let time: Timestamp = time.parse().unwrap();
        time.as_millisecond().try_into().unwrap()
    }

    #[test]
    fn cron_follows_the_clocks_of_its_zone() {
        let morning = Schedule::cron("30 9 * * MON-FRI", "Europe/Berlin").unwrap();
        // A Friday, and the Monday after a Sunday on which clocks are set forward.
        let friday = morning.first(at("2026-03-27T00:00:00Z")).unwrap();
        assert_eq!(friday, at("2026-03-27T08:30:00Z"));
        let monday = morning.occurrence(friday, friday + 5).next.unwrap();
        assert_eq!(monday, at("2026-03-30T07:30:00Z"));
    }

    #[test]
    fn a_time_that_clocks_skip_or_show_twice_is_due_once() {
        let times = |expression: &str, from: &str, count: usize| {
            let schedule = Schedule::cron(expression, "Europe/Berlin").unwrap();
            let next = |due: &u64| schedule.occurrence(*due, *due).next;
            std::iter::successors(schedule.first(at(from)), next).take(count).collect::<Vec<_>>()
        };
        let night = "30 2 * * *";
        let spring = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(times(night, "2026-03-28T00:00:00Z", 3), spring.map(at));
        let autumn = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
        assert_eq!(times(night, "2026-10-24T00:00:00Z", 3), autumn.map(at));
        let hourly = times("0 * * * *", "2026-10-24T22:30:00Z", 5);
        assert!(hourly.windows(2).all(|pair| pair[1] - pair[0] == 3_600_000), "{hourly:?}");
    }

    #[test]
    fn expressions_that_are_not_valid_tell_why() {
        let table = [
            ("", "UTC", "empty"),
            ("61 * * * *", "UTC", "61"),
            ("* * * *", "UTC", "fields"),
            ("* * * * *", "Europe/Nowhere", "Europe/Nowhere"),
            ("0 0 30 FEB *", "UTC", "no occurrence"),
        ];
        for (expression, zone, part) in table {
            let error = Schedule::cron(expression, zone).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    fn schedules() -> impl Strategy<Value = Schedule> {
        let when = prop_oneof![
            Just(Schedule::after(Duration::ZERO)),
            Just(Schedule::every(Duration::ZERO)),
            (1u64..100_000).prop_map(|period| Schedule::every(Duration::from_millis(period))),
            Just(Schedule::cron("*/7 * * * *", "UTC").unwrap()),
        ];
        let missed = prop_oneof![Just(Missed::Once), Just(Missed::All), Just(Missed::Skip)];
        (when, missed).prop_map(|(schedule, missed)| schedule.missed(missed))
    }

    /// The occurrences from a due time on, counted one by one.
    fn model(schedule: &Schedule, due: u64, now: u64) -> Occurrence {
        let one_by_one = schedule.clone().missed(Missed::All);
        let mut next = one_by_one.occurrence(due, due).next;
        if schedule.missed != Missed::All {
            while let Some(passed) = next.filter(|next| *next <= now) {
                next = one_by_one.occurrence(passed, passed).next;
            }
        }
        Occurrence { runs: schedule.missed != Missed::Skip || now <= due + GRACE, next }
    }

    proptest! {
        #[test]
        fn an_occurrence_is_that_of_the_model(
            schedule in schedules(),
            due in 1_700_000_000_000u64..1_700_000_100_000,
            late in prop_oneof![0u64..200_000, Just(GRACE), Just(GRACE + 1)],
            is_set_back in any::<bool>(),
        ) {
            let now = if is_set_back { due - late } else { due + late };
            let occurrence = schedule.occurrence(due, now);
            prop_assert_eq!(occurrence, model(&schedule, due, now));
            prop_assert!(occurrence.next.is_none_or(|next| next > due));
        }

        #[test]
        fn a_record_is_read_as_it_was_written(schedule in schedules(), due: u64, rest: Vec<u8>) {
            let mut record = Vec::new();
            schedule.encode(&mut record);
            record.extend_from_slice(&rest);
            let (read, left) = Schedule::take_from(&record).unwrap();
            prop_assert_eq!(left, &rest[..]);
            prop_assert_eq!((read.clock(), read.missed, read.occurrence(due, due)),
                (schedule.clock(), schedule.missed, schedule.occurrence(due, due)));
        }

        #[test]
        fn a_record_of_another_kind_is_refused(record: Vec<u8>) {
            // No panic, whatever it holds.
            let _ = Schedule::take_from(&record);
        }
    }
}
