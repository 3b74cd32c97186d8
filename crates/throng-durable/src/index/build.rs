//! Building and deleting indexes in the background, in steps of the sweeper.
//!
//! ```text
//!  states of a view ──▶ decode ──▶ keys ──▶ one commit: for each state that is still as it was read: its entry
//!       ▲                                                progress: the last key, and the numbers
//!       └─────────────────── next chunk ◀── durable ◀────────┘
//! ```
//!
//! The commit runs where the store's batches are put in order, and compares the state there with the one that was read.
//! A state that differs was stored by a turn of this program, which has written its entries. So no entity is activated
//! or made to wait, and the progress lies beside what was built.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use throng_store::{Batch, ReadError, Update, UpdateError};

use super::{Indexes, Keys, StoredIndex, has_entry};
use crate::activation::Failure;
use crate::catalogue::Numbered;
use crate::directory::AnyDirectory;
use crate::due::lock;
use crate::layout::{self, own_key};
use crate::node::Inner;
use crate::stored;
use crate::tables::Tables;
use crate::view::View;
use crate::{EntityError, Node};

/// States in a step, and their bytes, at most.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;

/// The directory of a kind, for its indexes.
pub(crate) trait AnyIndexed {
    /// Returns the indexes of the kind.
    fn indexes(&self) -> &Indexes;

    /// Returns the keys of a stored state. Runs user code.
    fn keys_of(&self, record: &[u8]) -> Result<Keys, Failure>;
}

/// An index, from [`Node::indexes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexInfo {
    /// Kind of the entities.
    pub kind: &'static str,
    /// Name of the index.
    pub name: String,
    /// Whether a key has one entity.
    pub is_unique: bool,
    /// State of the index: complete, being built, or being removed.
    pub state: IndexState,
    /// Number of entities that are not in the index because their states cannot be read, or their keys are too long.
    /// They come into the index with the next change of their state.
    pub skipped: u64,
    /// Number of entities of a unique index that have the key of another one since before the index was built.
    pub conflicts: u64,
}

/// State of an index, from [`IndexInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexState {
    /// The index has all entities.
    Complete,
    /// The index is built.
    Building {
        /// Number of entities that the builder has passed.
        done: u64,
        /// Number of entities.
        of: u64,
    },
    /// The index is gone from the type, and is deleted.
    Removing,
}

/// Progress of the building of an index, as it is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) is_complete: bool,
    pub(super) done: u64,
    pub(super) skipped: u64,
    pub(super) conflicts: u64,
    /// Key of the last state.
    pub(super) through: Vec<u8>,
}

impl Progress {
    pub(super) fn read(view: &View, record: &[u8]) -> Result<Progress, ReadError> {
        let stored = view.get(record)?;
        // One that cannot be read begins again.
        Ok(stored.and_then(|stored| postcard::from_bytes(stored).ok()).unwrap_or_default())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Its parts always have an encoding.
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// Builds and deletes indexes, so many records at most.
pub(crate) async fn maintain(node: &Arc<Inner>, most: usize) {
    let directories: Vec<_> = node.shared_directories().cloned().collect();
    for directory in directories {
        let mut left = most;
        while left > 0 && directory.indexes().has_work.load(Ordering::Relaxed) && !node.is_closed()
        {
            let step = match directory.indexes().next_building() {
                Some(number) => build(node, &directory, number).await,
                None => delete(node, &directory, left.min(CHUNK)).await,
            };
            match step {
                Ok(records) => left = left.saturating_sub(records.max(1)),
                Err(error) => {
                    let kind = directory.kind_name();
                    tracing::warn!(kind, %error, "an index could not be built or deleted further; it is tried again");
                    break;
                }
            }
        }
    }
}

impl Indexes {
    fn next_building(&self) -> Option<usize> {
        self.own.iter().position(|index| !index.is_complete())
    }

    /// Notes what is left to do.
    fn settle(&self) {
        let is_building = self.next_building().is_some();
        self.is_building.store(is_building, Ordering::Relaxed);
        self.has_work.store(is_building || !lock(&self.gone).is_empty(), Ordering::Relaxed);
    }
}

/// States that were read, with their entries.
struct Chunk {
    states: Vec<ReadState>,
    /// The progress with them.
    progress: Progress,
}

struct ReadState {
    state_key: Box<[u8]>,
    record: Box<[u8]>,
    entry: Box<[u8]>,
}

/// Puts the next entities into an index. Returns their number.
async fn build(
    node: &Arc<Inner>,
    directory: &Arc<dyn AnyDirectory>,
    number: usize,
) -> Result<usize, String> {
    let (sender, chunk) = tokio::sync::oneshot::channel();
    let reading = {
        let (node, directory) = (node.clone(), directory.clone());
        move || drop(sender.send(Chunk::read(&node, &*directory, number)))
    };
    node.runtime.run_blocking(reading).await;
    let Ok(chunk) = chunk.await else { return Err("the runtime ends".to_owned()) };
    let (chunk, records) = chunk.map_err(|error| error.to_string())?;
    let index = &directory.indexes().own[number];
    let (tables, numbered) = (node.tables.clone(), index.numbered.clone());
    let built = layout::built(directory.kind_number(), numbered.number());
    let is_unique = index.is_unique;
    let written = node.store.update(move |update| {
        let mut progress = chunk.progress.clone();
        for state in &chunk.states {
            progress.conflicts += state.add_to(update, &tables, is_unique)?;
        }
        let (record, number) = numbered.record();
        update.put(tables.at(record), record, number);
        update.put(tables.at(&built), &built, &progress.encode());
        Ok::<_, ReadError>(progress)
    });
    let progress = written.await.map_err(|error: UpdateError<ReadError>| error.to_string())?;
    if progress.is_complete {
        let (kind, name) = (directory.kind_name(), index.name);
        let Progress { done, skipped, conflicts, .. } = progress;
        tracing::info!(kind, index = name, done, skipped, conflicts, "an index is complete");
    }
    index.advance(progress);
    directory.indexes().settle();
    Ok(records)
}

impl StoredIndex {
    fn advance(&self, progress: Progress) {
        let is_complete = progress.is_complete;
        *lock(&self.progress) = progress;
        self.is_complete.store(is_complete, Ordering::Relaxed);
    }
}

impl Chunk {
    /// Reads the next states; returns their number, too.
    fn read(
        node: &Inner,
        directory: &dyn AnyDirectory,
        number: usize,
    ) -> Result<(Chunk, usize), ReadError> {
        let view = View::of(&node.tables)?;
        let (kind, index) = (directory.kind_number(), &directory.indexes().own[number]);
        let mut progress = Progress::read(&view, &layout::built(kind, index.numbered.number()))?;
        let mut states = Vec::new();
        if progress.is_complete {
            return Ok((Chunk { states, progress }, 0));
        }
        let entries = layout::entries(kind, index.numbered.number());
        let prefix = layout::states(kind);
        let end = layout::after(&prefix);
        let through = std::mem::take(&mut progress.through);
        let begin = if through.is_empty() { &prefix[..] } else { &through };
        let mut range = view.range((Bound::Excluded(begin), Bound::Excluded(&end[..])));
        let (mut records, mut bytes) = (0, 0);
        let last = loop {
            let Some(state_key) = range.next_key().transpose()? else { break None };
            let read = view.get(state_key).map_err(|error| Failure::Load(Arc::new(error)));
            let record = read.map(Option::unwrap_or_default);
            let keys = record.and_then(|record| Ok((record, directory.keys_of(record)?)));
            match keys {
                Ok((record, keys)) => {
                    let key = keys.each().nth(number).unwrap_or_default();
                    if has_entry(key) {
                        let entry = [&entries, key, own_key(state_key)].concat().into();
                        let (state_key, record) = (state_key.into(), record.into());
                        states.push(ReadState { state_key, record, entry });
                        bytes += record_bytes(&states);
                    } else {
                        progress.skipped += u64::from(!key.is_empty());
                    }
                }
                Err(failure) => {
                    let is_lasting = failure.is_lasting();
                    let error = EntityError::from(failure);
                    if !is_lasting {
                        return Err(ReadError::Io(std::io::Error::other(error.to_string())));
                    }
                    progress.skipped += 1;
                    let key = String::from_utf8_lossy(own_key(state_key)).into_owned();
                    let (kind, index) = (directory.kind_name(), index.name);
                    tracing::warn!(kind, key, index, %error, "an entity that cannot be loaded is left out of an index");
                }
            }
            (progress.done, records) = (progress.done + 1, records + 1);
            if records == CHUNK || bytes >= CHUNK_BYTES {
                break Some(state_key);
            }
        };
        progress.is_complete = last.is_none();
        progress.through = last.unwrap_or_default().to_vec();
        Ok((Chunk { states, progress }, records))
    }
}

fn record_bytes(states: &[ReadState]) -> usize {
    states.last().map_or(0, |state| state.record.len())
}

impl ReadState {
    /// Puts the entry, unless the state is another one by now. Returns 1 if the key has another entity.
    fn add_to(
        &self,
        update: &mut Update<'_>,
        tables: &Tables,
        is_unique: bool,
    ) -> Result<u64, ReadError> {
        if update.get(tables.at(&self.state_key), &self.state_key)? != Some(&*self.record) {
            return Ok(0);
        }
        let key = &self.entry[..self.entry.len() - own_key(&self.state_key).len()];
        let others = if is_unique { update.prefix(tables.at(key), key).next_key() } else { None };
        let has_other = others.transpose()?.is_some_and(|other| *other != *self.entry);
        if has_other {
            let key = String::from_utf8_lossy(own_key(&self.state_key)).into_owned();
            tracing::warn!(key, "an entity has the key of another one in a unique index");
        }
        update.put(tables.at(&self.entry), &self.entry, &[]);
        Ok(has_other.into())
    }
}

/// Deletes records of an index that is gone. Returns their number.
async fn delete(
    node: &Arc<Inner>,
    directory: &Arc<dyn AnyDirectory>,
    most: usize,
) -> Result<usize, String> {
    let indexes = directory.indexes();
    let Some(gone) = lock(&indexes.gone).first().cloned() else {
        indexes.settle();
        return Ok(0);
    };
    let (batch, records) =
        deletion(node, &**directory, &gone, most).map_err(|error| error.to_string())?;
    node.store.write(batch).await.map_err(|error| error.to_string())?;
    if records == 0 {
        lock(&indexes.gone).retain(|own| own.number() != gone.number());
        indexes.settle();
    }
    Ok(records)
}

/// Returns the next deletion of an index that is gone, and the number of its entries.
fn deletion(
    node: &Inner,
    directory: &dyn AnyDirectory,
    gone: &Numbered,
    most: usize,
) -> Result<(Batch, usize), ReadError> {
    let (tables, kind) = (&node.tables, directory.kind_number());
    let view = View::of(tables)?;
    let mut entries = view.prefix(&layout::entries(kind, gone.number()));
    let mut batch = gone.add_to(Batch::new(), tables, node.gate.outcomes());
    let mut records = 0;
    while records < most
        && let Some(entry) = entries.next_key()
    {
        let entry = entry?;
        batch = batch.delete(tables.at(entry), entry);
        records += 1;
    }
    if records == 0 {
        let built = layout::built(kind, gone.number());
        batch = batch.delete(tables.at(&built), &built);
        batch = node.catalogue.add_gone(gone, batch, tables);
    }
    Ok((batch, records))
}

impl Node {
    /// Returns the indexes of the kinds that the program has used: those of their types, and those that are gone from
    /// them and not deleted yet.
    ///
    /// ```
    /// use throng_durable::{IndexState, Node, ReadError};
    ///
    /// fn report(node: &Node) -> Result<(), ReadError> {
    ///     for index in node.indexes()? {
    ///         if let IndexState::Building { done, of } = index.state {
    ///             eprintln!("{} by {}: {done} of {of}", index.kind, index.name);
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn indexes(&self) -> Result<Vec<IndexInfo>, ReadError> {
        let node = self.inner();
        let view = View::of(&node.tables)?;
        let mut infos = Vec::new();
        for directory in node.directories() {
            let of = stored::count(&view, directory.kind_number())?.unwrap_or_default();
            let own = directory.indexes().own.iter();
            infos.extend(own.map(|index| index.info(directory.kind_name(), of)));
            let gone = lock(&directory.indexes().gone);
            infos.extend(gone.iter().filter_map(|gone| gone_info(directory.kind_name(), gone)));
        }
        Ok(infos)
    }
}

impl StoredIndex {
    /// Returns how far the index is, among so many entities.
    pub(super) fn state(&self, of: u64) -> IndexState {
        let Progress { done, is_complete, .. } = *lock(&self.progress);
        match is_complete {
            true => IndexState::Complete,
            // Entities may have been forgotten meanwhile.
            false => IndexState::Building { done: done.min(of), of },
        }
    }

    fn info(&self, kind: &'static str, of: u64) -> IndexInfo {
        let Progress { skipped, conflicts, .. } = *lock(&self.progress);
        let (name, is_unique) = (self.name.to_owned(), self.is_unique);
        IndexInfo { kind, name, is_unique, state: self.state(of), skipped, conflicts }
    }
}

fn gone_info(kind: &'static str, gone: &Numbered) -> Option<IndexInfo> {
    let [.., 0, is_unique, _, _] = *gone.record().0 else { return None };
    // Behind the name of the kind are a zero and the number, and behind that of the index its own zero.
    let name = gone.record().0.get(1 + kind.len() + 3..)?;
    let name = String::from_utf8_lossy(name.get(..name.len().checked_sub(4)?)?).into_owned();
    let (state, is_unique) = (IndexState::Removing, is_unique == 1);
    Some(IndexInfo { kind, name, is_unique, state, skipped: 0, conflicts: 0 })
}
