//! [`Cells`]: an entity's keyed values, read individually, written with its state.
//!
//! [`Changes`] collects the puts and deletes of a turn, and keeps those of earlier turns until the store shows
//! them. A read checks the changes first and then the store, in which no other code writes these keys.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Bound, RangeBounds};

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng_store::{Batch, Range, ReadError, Snapshot, Store, Submission};

use crate::durable::decode_whole;
use crate::gate::{Held, OutputGate};
use crate::layout::KeyPrefix;
use crate::{CELL_KEY_BYTES_MAX, CellError};

/// The cells of an entity, from [`DurableContext::cells`](crate::DurableContext::cells).
///
/// Keys are bytes in byte order, so numbers should be encoded in big endian. Values are of any type
/// that serde supports. Writes take effect with the turn's commit, together with the state; reads
/// see the turn's own writes.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::prelude::*;
/// use throng_durable::{CellError, Durable, DurableContext};
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Diary {
///     pages: u32,
/// }
/// # impl Process for Diary {}
/// # impl Durable for Diary { const KIND: &'static str = "diary"; }
/// # struct Write(String);
/// # impl Message for Write { type Reply = (); }
/// # struct Latest;
/// # impl Message for Latest { type Reply = Result<Vec<String>, CellError>; }
/// impl Handle<Write> for Diary {
///     async fn handle(&mut self, Write(page): Write, cx: &mut Context<Self>) {
///         cx.cells().put(self.pages.to_be_bytes(), &page);
///         self.pages += 1;
///     }
/// }
/// impl Handle<Latest> for Diary {
///     async fn handle(&mut self, _: Latest, cx: &mut Context<Self>) -> Result<Vec<String>, CellError> {
///         cx.cells().range::<String>(..).rev().take(10).map(|entry| Ok(entry?.1)).collect()
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Cells<'c> {
    /// The store; `None` when the entity is not active.
    store: Option<&'c Store>,
    key_prefix: KeyPrefix<'c>,
    changes: &'c mut Changes,
    /// The snapshot, opened by the first read.
    snapshot: Option<Snapshot>,
}

/// Changes of the cells that the store may not show yet; those of the running turn among them.
#[derive(Debug, Default)]
pub(crate) struct Changes(Option<Box<Changed>>);

#[derive(Default)]
struct Changed {
    /// Changed cells by the store's keys.
    cells: BTreeMap<Box<[u8]>, OwnWrite>,
    /// Number of changes of the running turn.
    new: usize,
    /// The first error of a put; it fails the turn's commit.
    fault: Option<CellError>,
    /// Number of cells at which settled ones are removed next.
    trim_at: usize,
    /// Actions that follow the commit of the running turn.
    actions: Vec<Box<dyn Held>>,
}

impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("cells", &self.cells).finish_non_exhaustive()
    }
}

/// A change of a cell.
#[derive(Debug)]
struct OwnWrite {
    /// The encoded value; `None` for a deleted cell.
    value: Option<Box<[u8]>>,
    /// Submission of the change; `None` in the turn that makes it.
    submission: Option<Submission>,
}

/// Least number of cells at which settled ones are removed although others are not settled.
const TRIM_MIN: usize = 64;

impl Changes {
    /// Whether the running turn has changed no cell.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|changed| changed.new == 0 && changed.fault.is_none())
    }

    /// Adds the changes of the running turn to its batch.
    pub(crate) fn add_to(&mut self, mut batch: Batch) -> Result<Batch, CellError> {
        let Some(changed) = &mut self.0 else { return Ok(batch) };
        if let Some(fault) = changed.fault.take() {
            return Err(fault);
        }
        if changed.new > 0 {
            for (key, write) in changed.cells.iter().filter(|(_, own)| own.submission.is_none()) {
                batch = match &write.value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
            }
        }
        Ok(batch)
    }

    /// Notes the submission of the turn's changes.
    pub(crate) fn submitted(&mut self, submission: Submission) {
        if let Some(changed) = &mut self.0
            && mem::take(&mut changed.new) > 0
        {
            for own in changed.cells.values_mut() {
                own.submission.get_or_insert(submission);
            }
        }
    }

    /// Removes changes that the store shows, if there are many.
    pub(crate) fn forget_settled(&mut self, gate: &OutputGate) {
        if let Some(changed) = &mut self.0
            && changed.cells.len() >= changed.trim_at
        {
            changed.cells.retain(|_, own| own.submission.is_none_or(|own| !gate.is_settled(own)));
            changed.trim_at = (2 * changed.cells.len()).max(TRIM_MIN);
        }
    }

    /// Adds an action that follows the commit of the running turn.
    pub(crate) fn add_action(&mut self, action: impl Held + 'static) {
        self.0.get_or_insert_default().actions.push(Box::new(action));
    }

    /// Takes the actions of the running turn.
    pub(crate) fn take_actions(&mut self) -> Vec<Box<dyn Held>> {
        self.0.as_mut().map(|changed| mem::take(&mut changed.actions)).unwrap_or_default()
    }

    fn cells(&self) -> Option<&BTreeMap<Box<[u8]>, OwnWrite>> {
        self.0.as_ref().map(|changed| &changed.cells)
    }
}

impl<'c> Cells<'c> {
    pub(crate) fn new(
        store: Option<&'c Store>,
        key_prefix: KeyPrefix<'c>,
        changes: &'c mut Changes,
    ) -> Self {
        Cells { store, key_prefix, changes, snapshot: None }
    }

    /// Sets the cell `key` to `value`.
    ///
    /// A key longer than [`CELL_KEY_BYTES_MAX`] or a value that cannot be encoded fails the whole
    /// turn: none of its changes is committed, and its caller gets
    /// [`EntityError::NotCommitted`](crate::EntityError::NotCommitted).
    pub fn put<T: Serialize + ?Sized>(&mut self, key: impl AsRef<[u8]>, value: &T) {
        match postcard::to_allocvec(value) {
            Ok(encoded) => self.change(key.as_ref(), Some(encoded.into())),
            Err(error) => self.fail(CellError::Encode(error.to_string())),
        }
    }

    /// Removes the cell `key`, if it exists.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.change(key.as_ref(), None);
    }

    /// Returns the value of the cell `key`. The writes of this turn are included.
    ///
    /// # Errors
    ///
    /// [`CellError::Decode`] if the value is not a `T`, [`CellError::Read`] if the store fails.
    pub fn get<T: DeserializeOwned>(
        &mut self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<T>, CellError> {
        let key = self.key_prefix.cell(key.as_ref());
        if let Some(own) = self.changes.cells().and_then(|cells| cells.get(key.as_slice())) {
            return own.value.as_deref().map(decode).transpose();
        }
        let snapshot = snapshot(self.store, &mut self.snapshot)?;
        snapshot.get(&key)?.map(decode).transpose()
    }

    /// Iterates over the cells with keys within `bounds`, in the order of their keys, from either
    /// end. The writes of this turn are included.
    ///
    /// The iterator cannot be held across an `await`: collect the entries instead.
    pub fn range<'k, T: DeserializeOwned>(
        &mut self,
        bounds: impl RangeBounds<&'k [u8]>,
    ) -> CellRange<'_, T> {
        let (start, end) = self.key_prefix.cells(&bounds);
        self.between(start, end)
    }

    /// Iterates over the cells with keys that begin with `prefix`, like [`range`](Cells::range).
    pub fn prefix<T: DeserializeOwned>(&mut self, prefix: impl AsRef<[u8]>) -> CellRange<'_, T> {
        let start = self.key_prefix.cell(prefix.as_ref());
        // The first key after the prefix: trailing 0xff bytes are cut off and the last byte is
        // incremented. That byte exists, because the part before the cell's key has a byte other
        // than 0xff.
        let mut end = start.clone();
        while end.pop_if(|last| *last == 0xff).is_some() {}
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        self.between(Bound::Included(start), Bound::Excluded(end))
    }

    /// Returns the store's keys of all cells, removed ones among them.
    pub(crate) fn stored_keys(&mut self) -> Result<Vec<Box<[u8]>>, CellError> {
        let (start, end) = self.key_prefix.cells(&(..));
        let snapshot = snapshot(self.store, &mut self.snapshot)?;
        let stored =
            snapshot.range((start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice)));
        let mut keys =
            stored.map(|entry| Ok(entry?.0.into())).collect::<Result<Vec<_>, ReadError>>()?;
        keys.extend(self.changes.cells().into_iter().flat_map(|cells| cells.keys().cloned()));
        Ok(keys)
    }

    fn between<T>(&mut self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> CellRange<'_, T> {
        let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let mut range = CellRange {
            key_prefix: self.key_prefix,
            stored: None,
            own: None,
            failed: None,
            value: PhantomData,
        };
        if !is_empty(bounds) {
            match snapshot(self.store, &mut self.snapshot) {
                Ok(snapshot) => {
                    range.stored = Some(Ends::new(snapshot.range(bounds)));
                    let own = self.changes.cells().map(|cells| cells.range::<[u8], _>(bounds));
                    range.own = own.map(Ends::new);
                }
                Err(error) => range.failed = Some(error),
            }
        }
        range
    }

    fn change(&mut self, key: &[u8], value: Option<Box<[u8]>>) {
        let bytes = key.len();
        if bytes > CELL_KEY_BYTES_MAX {
            return self.fail(CellError::KeyTooLong { bytes });
        }
        let changed = self.changes.0.get_or_insert_default();
        let write = OwnWrite { value, submission: None };
        changed.cells.insert(self.key_prefix.cell(key).into(), write);
        changed.new += 1;
    }

    fn fail(&mut self, error: CellError) {
        self.changes.0.get_or_insert_default().fault.get_or_insert(error);
    }
}

/// Returns the snapshot in `slot`, and opens it first if there is none.
fn snapshot<'s>(
    store: Option<&Store>,
    slot: &'s mut Option<Snapshot>,
) -> Result<&'s Snapshot, CellError> {
    match slot {
        Some(snapshot) => Ok(snapshot),
        None => Ok(slot.insert(store.ok_or(CellError::Inactive)?.snapshot()?)),
    }
}

fn decode<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, CellError> {
    decode_whole(encoded).map_err(CellError::Decode)
}

/// Whether no key can lie within the bounds. The check also keeps `BTreeMap::range` from panicking.
fn is_empty(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) => start >= end,
        _ => false,
    }
}

/// Iterator over cells in the order of their keys; `.rev()` reverses it.
///
/// Yields `Err` for a cell that cannot be read or is not a `T`.
#[must_use = "iterators do nothing unless they are advanced"]
#[derive(Debug)]
pub struct CellRange<'c, T> {
    key_prefix: KeyPrefix<'c>,
    stored: Option<Ends<Range<'c>>>,
    own: Option<Ends<OwnWrites<'c>>>,
    failed: Option<CellError>,
    value: PhantomData<fn() -> T>,
}

type OwnWrites<'c> = btree_map::Range<'c, Box<[u8]>, OwnWrite>;

/// A double-ended iterator that can be peeked at both ends.
#[derive(Debug)]
struct Ends<I: Iterator> {
    between: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

impl<I: DoubleEndedIterator> Ends<I> {
    fn new(between: I) -> Self {
        Ends { between, front: None, back: None }
    }

    fn peek(&mut self, from: End) -> Option<&I::Item> {
        let Ends { between, front, back } = self;
        match from {
            End::Front => {
                *front = front.take().or_else(|| between.next()).or_else(|| back.take());
                front.as_ref()
            }
            End::Back => {
                *back = back.take().or_else(|| between.next_back()).or_else(|| front.take());
                back.as_ref()
            }
        }
    }

    fn take(&mut self, from: End) -> Option<I::Item> {
        self.peek(from);
        match from {
            End::Front => self.front.take(),
            End::Back => self.back.take(),
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl<T: DeserializeOwned> CellRange<'_, T> {
    /// Returns the next cell from the end `from`: the first of the store's and the turn's own
    /// cells. A cell in both is the turn's own.
    fn step(&mut self, from: End) -> Option<Result<(Vec<u8>, T), CellError>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let stored = self.stored.as_mut()?;
        loop {
            let own = self.own.as_mut().and_then(|own| own.peek(from));
            let order = match (stored.peek(from), own) {
                (None, None) => return None,
                (Some(Err(_)), _) | (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(Ok((stored, _))), Some((own, _))) => match from {
                    End::Front => (*stored).cmp(own),
                    End::Back => (***own).cmp(stored),
                },
            };
            let entry = if order.is_lt() {
                stored.take(from)?
            } else {
                if order.is_eq() {
                    stored.take(from);
                }
                match self.own.as_mut()?.take(from)? {
                    (key, OwnWrite { value: Some(value), .. }) => Ok((&**key, &**value)),
                    (_, OwnWrite { value: None, .. }) => continue,
                }
            };
            return Some(self.read(entry));
        }
    }

    fn read(&self, entry: Result<(&[u8], &[u8]), ReadError>) -> Result<(Vec<u8>, T), CellError> {
        let (key, value) = entry?;
        Ok((self.key_prefix.cell_of(key).to_vec(), decode(value)?))
    }
}

impl<T: DeserializeOwned> Iterator for CellRange<'_, T> {
    type Item = Result<(Vec<u8>, T), CellError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl<T: DeserializeOwned> DoubleEndedIterator for CellRange<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::Name;

    type Key = Vec<u8>;

    fn key() -> impl Strategy<Value = Key> {
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff)], 0..3)
    }

    fn bound() -> impl Strategy<Value = Bound<Key>> {
        prop_oneof![
            Just(Bound::Unbounded),
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
        ]
    }

    fn changes() -> impl Strategy<Value = Vec<(Key, Option<u32>)>> {
        prop::collection::vec((key(), prop::option::weighted(0.6, any::<u32>())), 0..12)
    }

    fn apply(
        cells: &mut Cells<'_>,
        model: &mut BTreeMap<Key, u32>,
        changes: Vec<(Key, Option<u32>)>,
    ) {
        for (key, value) in changes {
            match value {
                Some(value) => {
                    cells.put(&key, &value);
                    model.insert(key, value);
                }
                None => {
                    cells.delete(&key);
                    model.remove(&key);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn reads_see_the_store_and_the_turns_own_writes(
            committed in changes(),
            own in changes(),
            ranges in prop::collection::vec((bound(), bound()), 1..6),
            prefix in key(),
            steps in prop::collection::vec(any::<bool>(), 1..6),
            is_settled in any::<bool>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::options().map_bytes(1 << 24).open(directory.path()).unwrap();
            let name = Name::new("kind", "key").unwrap();
            let neighbours = ["kex", "kez", "kfy"].map(|key| Name::new("kind", key).unwrap());
            let mut batch = Batch::new().put(name.state_key(), "state");
            for neighbour in &neighbours {
                batch = batch.put(neighbour.state_key(), "state");
                batch = batch.put(neighbour.prefix().cell(&[1]), "cell");
            }
            let (mut model, mut changes) = (BTreeMap::new(), Changes::default());
            apply(&mut Cells::new(Some(&store), name.prefix(), &mut changes), &mut model, committed);
            let mut batch = changes.add_to(batch).unwrap();
            let submission = store.submit(&mut batch, Submission::START).unwrap();
            changes.submitted(submission);
            prop_assert!(changes.is_empty());
            if is_settled {
                // The store shows the changes; otherwise only the entity itself sees them.
                store.settled(submission).wait().unwrap();
                changes = Changes::default();
            }
            apply(&mut Cells::new(Some(&store), name.prefix(), &mut changes), &mut model, own);

            let mut cells = Cells::new(Some(&store), name.prefix(), &mut changes);
            for (key, value) in &model {
                prop_assert_eq!(cells.get(key).unwrap(), Some(*value));
            }
            let found: Vec<_> = cells.prefix(&prefix).map(|entry| entry.unwrap()).collect();
            let expected = model.clone().into_iter().filter(|(key, _)| key.starts_with(&prefix));
            prop_assert_eq!(found, expected.collect::<Vec<(Key, u32)>>());

            for (start, end) in &ranges {
                let within = |key: &Key| {
                    (match start {
                        Bound::Included(start) => key >= start,
                        Bound::Excluded(start) => key > start,
                        Bound::Unbounded => true,
                    }) && (match end {
                        Bound::Included(end) => key <= end,
                        Bound::Excluded(end) => key < end,
                        Bound::Unbounded => true,
                    })
                };
                let expected: Vec<(Key, u32)> =
                    model.clone().into_iter().filter(|(key, _)| within(key)).collect();
                let bounds = || (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));

                let forward: Vec<_> = cells.range(bounds()).map(|entry| entry.unwrap()).collect();
                prop_assert_eq!(&forward, &expected);
                let mut backward: Vec<_> =
                    cells.range(bounds()).rev().map(|entry| entry.unwrap()).collect();
                backward.reverse();
                prop_assert_eq!(&backward, &expected);

                let mut range = cells.range::<u32>(bounds());
                let mut expected = expected.into_iter();
                for step in steps.iter().cycle().take(expected.len() + 3) {
                    let (entry, expected) = if *step {
                        (range.next(), expected.next())
                    } else {
                        (range.next_back(), expected.next_back())
                    };
                    prop_assert_eq!(entry.map(|entry| entry.unwrap()), expected);
                }
            }
        }
    }

    #[test]
    fn a_put_that_fails_fails_the_commit() {
        let name = Name::new("kind", "key").unwrap();
        let mut changes = Changes::default();
        let mut cells = Cells::new(None, name.prefix(), &mut changes);
        cells.put([0; CELL_KEY_BYTES_MAX], "fits");
        cells.put([0; CELL_KEY_BYTES_MAX + 1], "does not");
        assert!(matches!(cells.get::<String>(b"other"), Err(CellError::Inactive)));
        let fault = changes.add_to(Batch::new());
        assert!(matches!(fault, Err(CellError::KeyTooLong { bytes }) if bytes == 190));
    }

    #[test]
    fn a_cell_of_another_type_is_an_error() {
        let name = Name::new("kind", "key").unwrap();
        let mut changes = Changes::default();
        let mut cells = Cells::new(None, name.prefix(), &mut changes);
        cells.put("number", &7u64);
        assert!(matches!(cells.get::<(u64, u64)>("number"), Err(CellError::Decode(_))));
        assert!(matches!(cells.get::<()>("number"), Err(CellError::Decode(_))));
        assert_eq!(cells.get::<u64>("number").unwrap(), Some(7));
    }
}
