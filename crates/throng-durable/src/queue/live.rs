//! [`Starts`] and [`Known`]: the jobs of a queue that an activation has started, and those that it starts next. Pure.
//!
//! ```text
//!  a turn starts jobs ──▶ cell n: (job, attempt) … ──(half of them have ended)──▶ a shorter list ──▶ deleted
//! ```
//!
//! A start is an entry of a list, so that the job is not written again. Invariants: a job that was started by a list has
//! an entry in the store until its end is stored; all lists are at most twice as long as the number of these jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::JobId;
use super::line::Stored;

/// Most jobs that are kept in memory until they start.
const KNOWN_JOBS_MAX: usize = 1_000;
/// Bytes of the values of these jobs at most.
const KNOWN_BYTES_MAX: usize = 1 << 20;

/// Jobs with the numbers of their attempts, as a cell lists them.
pub(super) type List = Vec<(u64, u32)>;

/// The stored lists of jobs that were started, by the numbers of their cells.
#[derive(Debug, Default)]
pub(super) struct Starts {
    lists: HashMap<u64, Listed>,
    /// List of each job.
    list_of: HashMap<JobId, u64>,
    /// Lists that are new in this turn, and those with jobs that have ended in it.
    changed: BTreeSet<u64>,
}

#[derive(Debug)]
struct Listed {
    /// Number of jobs in the store's list; 0 until it is stored.
    stored: usize,
    left: BTreeMap<JobId, u32>,
}

impl Starts {
    /// Adds a list.
    pub(super) fn begin(&mut self, number: u64, list: &List) {
        let left: BTreeMap<_, _> =
            list.iter().map(|(id, attempt)| (JobId(*id), *attempt)).collect();
        self.list_of.extend(left.keys().map(|id| (*id, number)));
        self.lists.insert(number, Listed { stored: 0, left });
        self.changed.insert(number);
    }

    /// Notes that the end of a job's attempt is stored in this turn.
    pub(super) fn ended(&mut self, id: JobId) {
        let Some(number) = self.list_of.remove(&id) else { return };
        if let Some(list) = self.lists.get_mut(&number) {
            list.left.remove(&id);
            self.changed.insert(number);
        }
    }

    /// Returns the lists that this turn stores anew, or deletes if nothing is left of them.
    pub(super) fn changes(&mut self) -> Vec<(u64, Option<List>)> {
        let mut changes = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let Some(list) = self.lists.get_mut(&number) else { continue };
            if list.left.is_empty() {
                self.lists.remove(&number);
                changes.push((number, None));
            } else if list.stored == 0 || list.left.len() * 2 <= list.stored {
                list.stored = list.left.len();
                let left = list.left.iter().map(|(id, attempt)| (id.0, *attempt));
                changes.push((number, Some(left.collect())));
            }
        }
        changes
    }
}

/// Jobs that are ready, as they are stored: those that start next, as far as there is room.
#[derive(Debug, Default)]
pub(super) struct Known {
    jobs: BTreeMap<JobId, Stored>,
    bytes: usize,
}

impl Known {
    pub(super) fn insert(&mut self, id: JobId, stored: Stored) {
        self.take(id);
        self.bytes += stored.job.value.len();
        self.jobs.insert(id, stored);
        while self.jobs.len() > KNOWN_JOBS_MAX || self.bytes > KNOWN_BYTES_MAX {
            let Some(last) = self.jobs.keys().next_back().copied() else { break };
            self.take(last);
        }
    }

    pub(super) fn take(&mut self, id: JobId) -> Option<Stored> {
        let stored = self.jobs.remove(&id)?;
        self.bytes -= stored.job.value.len();
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::NewJob;

    proptest! {
        #[test]
        fn a_job_is_listed_until_it_ends(
            turns in prop::collection::vec(
                (0..9u64, prop::collection::vec(any::<prop::sample::Index>(), 0..9)),
                1..60,
            ),
        ) {
            let (mut starts, mut lists, mut running) = (Starts::default(), HashMap::new(), Vec::new());
            let mut last = 0;
            for (number, (started, ended)) in turns.into_iter().enumerate() {
                for index in ended {
                    if !running.is_empty() {
                        starts.ended(JobId(running.swap_remove(index.index(running.len()))));
                    }
                }
                let list: List = (last..last + started).map(|id| (id, 1)).collect();
                last += started;
                if !list.is_empty() {
                    running.extend(list.iter().map(|(id, _)| *id));
                    starts.begin(number as u64, &list);
                }
                for (number, list) in starts.changes() {
                    match list {
                        Some(list) => _ = lists.insert(number, list),
                        None => _ = lists.remove(&number),
                    }
                }
                let listed: BTreeSet<u64> = lists.values().flatten().map(|(id, _)| *id).collect();
                prop_assert!(running.iter().all(|id| listed.contains(id)));
                prop_assert!(listed.len() <= 2 * running.len());
            }
        }
    }

    #[test]
    fn jobs_that_start_last_leave_for_want_of_room() {
        let job = |bytes| Stored::new(NewJob { value: vec![0; bytes], ..NewJob::default() });
        let mut known = Known::default();
        (0..3).for_each(|id| known.insert(JobId(id), job(KNOWN_BYTES_MAX / 2)));
        assert!(known.take(JobId(2)).is_none());
        known.insert(JobId(0), job(1));
        assert_eq!(known.take(JobId(0)).unwrap().job.value.len(), 1);
        assert!(known.take(JobId(1)).is_some());
        assert_eq!(known.bytes, 0);
        (0..=KNOWN_JOBS_MAX as u64).for_each(|id| known.insert(JobId(id), job(1)));
        assert_eq!(known.jobs.len(), KNOWN_JOBS_MAX);
    }
}
