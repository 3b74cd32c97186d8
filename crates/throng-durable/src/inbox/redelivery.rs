//! [`Redelivery`]: has entities recheck their inboxes, of whose messages a copy was lost.
//!
//! ```text
//!  start: the store is searched, oldest messages first ──┐
//!  a copy was lost ──────────────────────────────────────┼──▶ due ──▶ entity activated, Recheck sent
//!  a failed message's pause ─────────────────────────────┘
//! ```
//!
//! The sweeper's task has those rechecked that are due, some at each of its steps.

use std::collections::BinaryHeap;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::layer::Instant;
use throng_store::{ReadError, Submission};

use crate::directory::AnyDirectory;
use crate::due::{DueList, Task, lock};
use crate::layout::{self, Table};
use crate::node::Inner;
use crate::tables::Tables;
use crate::view::View;

/// Time after which an entity is rechecked that could not be reached.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Most entities that a search of the store puts on the list.
const FOUND_MAX: usize = 10_000;

/// The entities that are to be rechecked; see the file's head.
#[derive(Default)]
pub(crate) struct Redelivery {
    pub(crate) due: DueList,
    /// Number of these entities.
    pub(crate) entities: AtomicUsize,
    searches: Mutex<Vec<Search>>,
    parked: AtomicU64,
    stops: AtomicU64,
    /// The last loss of which entities were told.
    lost: Mutex<Submission>,
}

/// A search of the inboxes of a kind for messages that were in the store at the start.
struct Search {
    kind: u16,
    directory: Arc<dyn AnyDirectory>,
    /// The last entity that was found, by its first message; two may have one of the same number, if one was imported.
    after: Option<(u64, Vec<u8>)>,
}

impl Redelivery {
    /// Has the inboxes of a kind searched that were in the store at the start.
    pub(crate) fn search(&self, kind: u16, directory: Arc<dyn AnyDirectory>) {
        lock(&self.searches).push(Search { kind, directory, after: None });
    }

    /// Counts a message that was parked.
    pub(crate) fn count_parked(&self) {
        self.parked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entity that takes no message until somebody acts.
    pub(crate) fn count_stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of messages that were parked since the start, and of entities that were stopped.
    pub(crate) fn parked_and_stopped(&self) -> (u64, u64) {
        (self.parked.load(Ordering::Relaxed), self.stops.load(Ordering::Relaxed))
    }

    /// Has entities rechecked that are due, so many at most.
    pub(crate) async fn run(&self, node: &Arc<Inner>, most: usize) {
        let now = Instant::now();
        for _ in 0..most {
            let Some((at, Task { directory, state_key })) = self.due.pop(now) else {
                // Nothing is due, so there is room on the list. Entities of a kind without dependencies wait for these.
                let search = {
                    let mut searches = lock(&self.searches);
                    let ready = searches.iter().position(|search| search.directory.is_registered());
                    ready.map(|ready| searches.swap_remove(ready))
                };
                if let Some(search) = search {
                    self.find(node, search).await;
                }
                return;
            };
            directory.recheck(node, &state_key, at);
        }
    }

    /// Puts the entities on the list whose messages have waited longest, of those that were not found yet.
    async fn find(&self, node: &Arc<Inner>, search: Search) {
        let Search { kind, directory, after } = search;
        let table = node.tables.clone();
        let from = after.clone();
        let found =
            node.loader.run(move || oldest(&View::of(&table)?, kind, from, FOUND_MAX)).await;
        let after = match found {
            Some(Ok(found)) => {
                for (_, state_key) in &found {
                    directory.clone().recheck_found(node, state_key);
                }
                match found.len() {
                    FOUND_MAX => found.into_iter().last(),
                    _ => return,
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the inboxes of a kind could not be searched");
                after
            }
            // The runtime ends.
            None => return,
        };
        lock(&self.searches).push(Search { kind, directory, after });
    }

    /// Whether a submission was lost since the last call. The turn of a stored message may be among what was lost, and
    /// nobody waits for it.
    pub(crate) fn is_new_loss(&self, lost: Submission) -> bool {
        mem::replace(&mut *lock(&self.lost), lost) < lost
    }

    pub(crate) fn clear(&self) {
        self.due.clear();
        let cleared = mem::take(&mut *lock(&self.searches));
        drop(cleared);
    }
}

/// Whether messages wait for any entity of a kind. If the store cannot be read, its own errors tell.
pub(crate) fn waits(tables: &Tables, kind: u16) -> bool {
    let prefix = layout::table_of_kind(Table::Inbox, kind);
    View::of(tables).is_ok_and(|view| view.prefix(&prefix).next_key().is_some())
}

/// Returns the entities of a kind whose first message has the lowest sequence number, behind the last one that was
/// found, in this order. Costs a search for each entity that has messages.
fn oldest(
    view: &View,
    kind: u16,
    after: Option<(u64, Vec<u8>)>,
    most: usize,
) -> Result<Vec<(u64, Vec<u8>)>, ReadError> {
    let prefix = layout::table_of_kind(Table::Inbox, kind);
    let end = layout::after(&prefix);
    let mut start = prefix.to_vec();
    let mut oldest = BinaryHeap::new();
    while let Some(first) = view.range(&start[..]..&end[..]).next_key() {
        let first = first?;
        let Some((state_key, sequence)) = layout::state_key_of_entry(first) else {
            tracing::error!(record = %first.escape_ascii(), "a message has no valid key, and is ignored");
            start = [first, &[0]].concat();
            continue;
        };
        start = layout::after(&layout::table_of(Table::Inbox, &state_key));
        let found = (sequence, state_key);
        if after.as_ref().is_none_or(|after| found > *after) {
            oldest.push(found);
        }
        if oldest.len() > most {
            oldest.pop();
        }
    }
    Ok(oldest.into_sorted_vec())
}
