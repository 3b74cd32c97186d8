//! [`Cells`]: an entity's keyed values, read individually, written with its state.
//!
//! A read checks the entity's [`Changes`] first and then the store, in which no other code writes these keys.

use std::borrow::Borrow;
use std::collections::btree_map;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng_store::{Codec, CodecError, Range, ReadError};

use crate::catalogue::{Number, Numbered};
use crate::changes::{Changes, OwnWrite};
use crate::durable::{decode_whole, encode_into};
use crate::layout;
use crate::tables::Tables;
use crate::view::View;
use crate::{CELL_KEY_BYTES_MAX, CellError, CommitError, EntityError};

/// A map of an entity's cells, from [`DurableContext::cells`](crate::DurableContext::cells).
///
/// Keys have a [`Codec`], which determines their order: [`Str`](crate::Str) for text,
/// [`U64`](crate::U64) for numbers, [`Bytes`](crate::Bytes), or one of your own. Values are of any
/// type that serde supports. Writes take effect with the turn's commit, together with the state; reads see the
/// turn's own writes.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::prelude::*;
/// use throng_durable::{CellError, Durable, DurableContext, U64};
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "diary")]
/// struct Diary {
///     pages: u64,
/// }
///
/// #[process]
/// impl Diary {
///     #[message]
///     fn write(&mut self, cx: &mut Context<Self>, page: String) {
///         cx.cells::<U64, String>("pages").put(&self.pages, &page);
///         self.pages += 1;
///     }
///
///     #[message]
///     fn latest(&self, cx: &mut Context<Self>) -> Result<Vec<String>, CellError> {
///         let mut pages = cx.cells::<U64, String>("pages");
///         pages.range(..).rev().take(10).map(|page| Ok(page?.1)).collect()
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Cells<'c, K, V> {
    /// The table of all records; `None` when the entity is not active.
    table: Option<&'c Tables>,
    /// Common prefix of the keys in the store.
    prefix: Vec<u8>,
    /// The map's number, and the shapes of its values; `None` if it has no number.
    map: Option<Arc<Numbered>>,
    changes: &'c mut Changes,
    /// The view, taken by the first read.
    view: Option<View>,
    types: PhantomData<fn(K) -> V>,
}

impl<'c, K: Codec, V: Serialize + DeserializeOwned + 'static> Cells<'c, K, V> {
    /// Creates the map with this name of the entity whose state has this key.
    pub(crate) fn new(
        table: Option<&'c Tables>,
        map: Result<Arc<Numbered>, CellError>,
        state_key: &[u8],
        changes: &'c mut Changes,
    ) -> Self {
        let number = map.as_ref().map_or(0, |map| map.number());
        let prefix = layout::map(state_key, number);
        let mut cells = Cells { table, prefix, map: None, changes, view: None, types: PhantomData };
        match map {
            Ok(map) => cells.map = Some(map),
            Err(error) => cells.fail(error),
        }
        cells
    }

    /// Sets the cell `key` to `value`.
    ///
    /// A key longer than [`CELL_KEY_BYTES_MAX`] or a key or value that cannot be encoded fails the whole
    /// turn: none of its changes is committed, and its caller gets
    /// [`EntityError::NotCommitted`](crate::EntityError::NotCommitted).
    pub fn put<T: Serialize + ?Sized>(&mut self, key: &K::Item, value: &T)
    where
        V: Borrow<T>,
    {
        // A map without a number has failed the turn already.
        let Some(map) = &self.map else { return };
        let mut record = Vec::new();
        let encoded = map.shape_of::<V>(0).map_err(String::from).and_then(|shaped| {
            encode_into(value, shaped, &mut record)?;
            Ok(shaped.unstored())
        });
        match encoded {
            Ok(shape) => self.change(key, Some(record.into()), shape),
            Err(reason) => self.fail(CellError::Encode(reason)),
        }
    }

    /// Removes the cell `key`, if it exists. The same keys as in [`put`](Cells::put) fail the turn.
    pub fn delete(&mut self, key: &K::Item) {
        self.change(key, None, None);
    }

    /// Returns the value of the cell `key`. The writes of this turn are included.
    ///
    /// # Errors
    ///
    /// [`CellError::Decode`] if the value is not a `V`, [`CellError::Encode`] if the key has no encoding,
    /// [`CellError::Read`] if the store fails.
    pub fn get(&mut self, key: &K::Item) -> Result<Option<V>, CellError> {
        self.look_up(key, |map, record| record.map(|record| decode(map, record)).transpose())
    }

    /// Whether there is a cell `key`. The writes of this turn are included.
    ///
    /// # Errors
    ///
    /// As [`get`](Cells::get), without `Decode`.
    pub fn contains(&mut self, key: &K::Item) -> Result<bool, CellError> {
        self.look_up(key, |_, record| Ok(record.is_some()))
    }

    fn look_up<R>(
        &mut self,
        key: &K::Item,
        found: impl FnOnce(Option<&Numbered>, Option<&[u8]>) -> Result<R, CellError>,
    ) -> Result<R, CellError> {
        let key = self.stored_key(key)?;
        if let Some(own) = self.changes.cells().and_then(|cells| cells.get(key.as_slice())) {
            return found(self.map.as_deref(), own.value.as_deref());
        }
        let record = view(self.table, &mut self.view)?.get(&key)?;
        found(self.map.as_deref(), record)
    }

    /// Iterates over the cells with keys within `bounds`, in the order of their keys, from either
    /// end. The writes of this turn are included.
    ///
    /// The iterator cannot be held across an `await`: collect the entries instead.
    pub fn range<'k>(&mut self, bounds: impl RangeBounds<&'k K::Item>) -> CellRange<'_, K, V>
    where
        K::Item: 'k,
    {
        let encode = |bound: Bound<&&K::Item>| {
            Ok(match bound {
                Bound::Included(key) => Bound::Included(self.stored_key(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.stored_key(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        match (encode(bounds.start_bound()), encode(bounds.end_bound())) {
            (Ok(start), Ok(end)) => self.between(start, end),
            (Err(error), _) | (_, Err(error)) => CellRange::failed(error),
        }
    }

    /// Iterates over the cells whose encoded keys begin with `prefix`, like [`range`](Cells::range).
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> CellRange<'_, K, V> {
        let start = [&self.prefix, prefix.as_ref()].concat();
        let end = layout::after(&start);
        self.between(Bound::Included(start), Bound::Excluded(end))
    }

    fn between(&mut self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> CellRange<'_, K, V> {
        let start = match start {
            Bound::Unbounded => Bound::Included(self.prefix.clone()),
            start => start,
        };
        let end = match end {
            Bound::Unbounded => Bound::Excluded(layout::after(&self.prefix)),
            end => end,
        };
        let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        if is_empty(bounds) {
            return CellRange::empty();
        }
        match view(self.table, &mut self.view) {
            Ok(view) => CellRange {
                map: self.map.as_deref(),
                prefix_bytes: self.prefix.len(),
                stored: Some(Ends::new(view.range(bounds))),
                own: self.changes.cells().map(|cells| Ends::new(cells.range::<[u8], _>(bounds))),
                failed: None,
                types: PhantomData,
            },
            Err(error) => CellRange::failed(error),
        }
    }

    /// Returns the store's key of a cell.
    fn stored_key(&self, key: &K::Item) -> Result<Vec<u8>, CellError> {
        let encoded = K::encode(key, |encoded| [&self.prefix, encoded].concat());
        encoded.map_err(|error| CellError::Encode(error.to_string()))
    }

    /// Notes a change, and the number of the value's shape if it may have no record yet.
    fn change(&mut self, key: &K::Item, value: Option<Box<[u8]>>, shape: Option<Arc<Number>>) {
        let key = match self.stored_key(key) {
            Ok(key) => key,
            Err(error) => return self.fail(error),
        };
        let bytes = key.len() - self.prefix.len();
        if bytes > CELL_KEY_BYTES_MAX {
            return self.fail(CellError::KeyTooLong { bytes });
        }
        let map = self.map.as_ref().and_then(|map| map.unstored());
        self.changes.set_own(key, value, map.into_iter().chain(shape));
    }

    fn fail(&mut self, error: CellError) {
        self.changes.fail(EntityError::NotCommitted(CommitError::Cell(error)));
    }
}

/// Returns the store's keys of all cells of an entity, removed ones among them. The values, which may be damaged, are
/// not read.
pub(crate) fn stored_keys(
    view: &View,
    state_key: &[u8],
    changes: &Changes,
) -> Result<Vec<Box<[u8]>>, ReadError> {
    let mut stored = view.prefix(&layout::cells(state_key));
    let keys = std::iter::from_fn(|| stored.next_key());
    let mut keys = keys.map(|key| Ok(key?.into())).collect::<Result<Vec<_>, ReadError>>()?;
    keys.extend(changes.cells().into_iter().flat_map(|cells| cells.keys().cloned()));
    Ok(keys)
}

/// Returns the view in `slot`, and takes it first if there is none.
fn view<'s>(table: Option<&Tables>, slot: &'s mut Option<View>) -> Result<&'s View, CellError> {
    match slot {
        Some(view) => Ok(view),
        None => Ok(slot.insert(View::of(table.ok_or(CellError::Inactive)?)?)),
    }
}

/// Decodes the value of a cell.
fn decode<V: Serialize + DeserializeOwned + 'static>(
    map: Option<&Numbered>,
    record: &[u8],
) -> Result<V, CellError> {
    // Without a number, the map has no cells.
    let map = map.ok_or(CellError::Inactive)?;
    let own = map.shape_of::<V>(0).map_err(|reason| CellError::Decode(reason.into()))?;
    let (stored, encoded) = own.split(map, record).map_err(CellError::Decode)?;
    let decoded = match own.agrees(&stored) {
        true => decode_whole(encoded),
        false => stored.shape().read(encoded),
    };
    decoded.map_err(CellError::Decode)
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
/// Yields `Err` for a cell that cannot be read, or whose key or value is of another type.
#[must_use = "iterators do nothing unless they are advanced"]
#[derive(Debug)]
pub struct CellRange<'c, K, V> {
    map: Option<&'c Numbered>,
    /// Length of the part of the store's keys before the cells' own keys.
    prefix_bytes: usize,
    stored: Option<Ends<Range<'c>>>,
    own: Option<Ends<OwnWrites<'c>>>,
    failed: Option<CellError>,
    types: PhantomData<fn(K) -> V>,
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

impl<'c, K: Codec, V: Serialize + DeserializeOwned + 'static> CellRange<'c, K, V> {
    fn empty() -> Self {
        CellRange {
            map: None,
            prefix_bytes: 0,
            stored: None,
            own: None,
            failed: None,
            types: PhantomData,
        }
    }

    fn failed(error: CellError) -> Self {
        CellRange { failed: Some(error), ..CellRange::empty() }
    }

    /// Returns the next cell from the end `from`: the first of the store's and the turn's own
    /// cells. A cell in both is the turn's own.
    fn step(&mut self, from: End) -> Option<Result<(K::Decoded<'c>, V), CellError>> {
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

    fn read(
        &self,
        entry: Result<(&'c [u8], &'c [u8]), ReadError>,
    ) -> Result<(K::Decoded<'c>, V), CellError> {
        let (key, value) = entry?;
        let key = K::decode(&key[self.prefix_bytes..]);
        let key = key.map_err(|error: CodecError| CellError::Decode(error.to_string()))?;
        Ok((key, decode(self.map, value)?))
    }
}

impl<'c, K: Codec, V: Serialize + DeserializeOwned + 'static> Iterator for CellRange<'c, K, V> {
    type Item = Result<(K::Decoded<'c>, V), CellError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl<K: Codec, V: Serialize + DeserializeOwned + 'static> DoubleEndedIterator
    for CellRange<'_, K, V>
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::collections::BTreeMap;

    use throng_store::{Batch, Bytes, Store, Submission};

    use super::*;
    use crate::catalogue::Catalogue;
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

    struct Owner;
    impl throng::Process for Owner {}

    fn name(key: &str) -> Name<Owner> {
        Name::new(1, key).unwrap()
    }

    /// Returns the map `a` of the entity.
    fn cells<'c, V: Serialize + DeserializeOwned + 'static>(
        table: Option<&'c Tables>,
        key: &str,
        changes: &'c mut Changes,
    ) -> Cells<'c, Bytes, V> {
        let map = Catalogue::default().map("kind", "a").unwrap();
        Cells::new(table, Ok(map), name(key).state_key(), changes)
    }

    fn apply(
        cells: &mut Cells<'_, Bytes, u32>,
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
            let table = Tables::open(&store).unwrap();
            let put = |batch: Batch, key: &[u8], value| batch.put(table.at(key), key, value);
            let mut batch = put(Batch::new(), name("key").state_key(), b"state");
            for neighbour in ["kex", "kez", "kfy"].map(name) {
                batch = put(batch, neighbour.state_key(), b"state");
                batch = put(batch, &layout::map(neighbour.state_key(), 1), b"cell");
            }
            for map in [0, 2] {
                let key = layout::map(name("key").state_key(), map);
                batch = put(batch, &key, b"cell of another map");
            }
            let (mut model, mut changes) = (BTreeMap::new(), Changes::default());
            apply(&mut cells(Some(&table), "key", &mut changes), &mut model, committed);
            let mut batch = changes.add_to(batch, &table, &store.outcomes()).unwrap();
            let submission = store.submit(&mut batch, Submission::START).unwrap();
            changes.submitted(submission);
            prop_assert!(changes.is_empty());
            if is_settled {
                // The store shows the changes; otherwise only the entity itself sees them.
                store.settled(submission).wait().unwrap();
                changes = Changes::default();
            }
            apply(&mut cells(Some(&table), "key", &mut changes), &mut model, own);

            let mut cells = cells(Some(&table), "key", &mut changes);
            for (key, value) in &model {
                prop_assert_eq!(cells.get(key).unwrap(), Some(*value));
                prop_assert!(cells.contains(key).unwrap());
            }
            let entry = |entry: Result<(&[u8], u32), CellError>| {
                entry.map(|(key, value)| (key.to_vec(), value)).unwrap()
            };
            let found: Vec<_> = cells.prefix(&prefix).map(entry).collect();
            let expected = model.clone().into_iter().filter(|(key, _)| key.starts_with(&prefix));
            prop_assert_eq!(found, expected.collect::<Vec<(Key, u32)>>());

            for (start, end) in &ranges {
                let bounds = || (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
                let within = |(key, _): &(Key, u32)| RangeBounds::<[u8]>::contains(&bounds(), key.as_slice());
                let expected: Vec<(Key, u32)> = model.clone().into_iter().filter(within).collect();

                let forward: Vec<_> = cells.range(bounds()).map(entry).collect();
                prop_assert_eq!(&forward, &expected);
                let mut backward: Vec<_> = cells.range(bounds()).rev().map(entry).collect();
                backward.reverse();
                prop_assert_eq!(&backward, &expected);

                let mut range = cells.range(bounds());
                let mut expected = expected.into_iter();
                for step in steps.iter().cycle().take(expected.len() + 3) {
                    let (found, expected) = if *step {
                        (range.next(), expected.next())
                    } else {
                        (range.next_back(), expected.next_back())
                    };
                    prop_assert_eq!(found.map(entry), expected);
                }
            }
        }
    }

    #[test]
    fn a_put_that_fails_fails_the_commit() {
        let mut changes = Changes::default();
        let mut cells = cells::<String>(None, "key", &mut changes);
        cells.put(&[0; CELL_KEY_BYTES_MAX], "fits");
        cells.put(&[0; CELL_KEY_BYTES_MAX + 1], "does not");
        assert!(matches!(cells.get(b"other"), Err(CellError::Inactive)));
        let Err(EntityError::NotCommitted(CommitError::Cell(fault))) = changes.check() else {
            panic!("the put has not failed")
        };
        assert!(matches!(fault, CellError::KeyTooLong { bytes: 251 }));
    }

    #[test]
    fn a_cell_of_another_type_is_read_if_it_fits_and_refused_otherwise() {
        let mut changes = Changes::default();
        let map = Catalogue::default().map("kind", "a").unwrap();
        macro_rules! cells {
            ($value:ty) => {
                Cells::<Bytes, $value>::new(
                    None,
                    Ok(map.clone()),
                    name("key").state_key(),
                    &mut changes,
                )
            };
        }
        cells!(u64).put(b"number", &300);
        let pair = cells!((u64, u64)).get(b"number");
        assert!(matches!(pair, Err(CellError::Decode(_))), "{pair:?}");
        assert!(matches!(cells!(()).get(b"number"), Err(CellError::Decode(_))));
        assert!(matches!(cells!(u8).get(b"number"), Err(CellError::Decode(_))));
        assert_eq!(cells!(i64).get(b"number").unwrap(), Some(300));
        assert_eq!(cells!(u64).get(b"number").unwrap(), Some(300));
        assert_eq!(
            *changes.cells().unwrap().values().next().unwrap().value.as_deref().unwrap(),
            [1, 172, 2]
        );
    }
}
