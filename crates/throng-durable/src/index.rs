//! Indexes: the entities of a kind by fields of their states.
//!
//! ```text
//!  #[durable(index)] email: String
//!
//!  turn ──▶ state changed? ──▶ keys as before? ──no──▶ claim of a unique key ──▶ one commit: state, old entry deleted,
//!               └─no─┐               └─yes─┐                  └──(taken)──▶ Conflict              new entry
//!                    ▼                     ▼
//!             nothing to do         nothing is written
//!
//!  node.index(User::EMAIL) ──▶ complete? ──▶ view of the entries ──▶ entities, in the order of keys
//!                                 └─no──▶ Building { done, of }
//! ```
//!
//! An entry is a record whose key has the key of the index and that of the entity. The keys of the state as last
//! submitted lie in memory beside the entity, so that a turn compares bytes, and reads nothing.
//!
//! An index is identified by its name, whether it is unique, and the version of the states. Each such triple has a number
//! of its own. So an index that changes, or whose keys a migration may change, is a new one, which is built in the
//! background; the old one goes, and is deleted there. `build.rs` does both.
//!
//! Invariants:
//!
//! - A complete index has one entry for each stored entity whose state has a key that fits, and no other.
//! - While an index is built, each turn that stores a state writes all entries of it, changed or not. So a state that
//!   the builder does not find as it has read it has its entries already.
//! - An index is known to go on the disk no later than with the first state that it does not follow, so that it is
//!   never taken for complete again.
//! - Two turns that are kept never have the same key of a complete unique index for two entities, of which neither has
//!   given it up before; see `claims.rs`.

mod build;
mod claims;
mod key;
mod view;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use throng_store::{Batch, ReadError, Submission};

pub(crate) use self::build::{AnyIndexed, maintain};
pub use self::build::{IndexInfo, IndexState};
use self::claims::{Claim, Claims};
pub use self::key::{IndexField, IndexKey};
pub use self::view::{Found, IndexError, IndexView};
use crate::catalogue::{Number, Numbered};
use crate::directory::Directory;
use crate::due::lock;
use crate::layout::{self, INDEX_ENCODED_BYTES_MAX, own_key};
use crate::node::Inner;
use crate::users::catch;
use crate::view::View;
use crate::{CommitError, Durable, EntityError};

use self::build::Progress;

/// An index of the kind `P` by keys of type `K`, which names it in [`Node::index`](crate::Node::index).
///
/// The derive of [`Durable`](macro@crate::Durable) makes one of each field with `#[durable(index)]`: a constant of the
/// type, with the name of the field in capitals.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Durable, EntityError, Node};
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "user")]
/// struct User {
///     #[durable(index, unique)]
///     email: Option<String>,
///     #[durable(index)]
///     age: u32,
/// }
///
/// #[process]
/// impl User {
///     #[message]
///     fn register(&mut self, email: String, age: u32) {
///         (self.email, self.age) = (Some(email), age);
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let runtime = Runtime::builder().workers(1).start()?;
/// # let node = Node::options(directory.path()).open(&runtime)?;
/// # runtime.block_on(async |_| -> Result<(), Box<dyn std::error::Error>> {
/// node.entity::<User>("1").register("ann@example.org".into(), 41).await?;
/// node.entity::<User>("2").register("bob@example.org".into(), 17).await?;
///
/// let emails = node.index(User::EMAIL)?;
/// assert_eq!(emails.get("ann@example.org")?.unwrap().key(), "1");
/// let adults = node.index(User::AGE)?.range(&18..).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(adults.len(), 1);
///
/// let taken = node.entity::<User>("3").register("ann@example.org".into(), 20).await;
/// assert!(matches!(taken, Err(EntityError::Conflict(conflict)) if conflict.owner == "1"));
/// # node.shutdown().await;
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
///
/// # What an index has
///
/// An entity is in the index from the commit that stores its state until it is [forgotten](crate::Entity::forget). The
/// entry changes in the commit of the state. `None` is not in the index.
///
/// A key of a `unique` index has one entity. A turn that gives an entity the key of another one fails as
/// [`EntityError::Conflict`], and nothing of it is kept. This holds as well if both turns run at the same time; then
/// the other one may be lost after all, and trying again works. A key that a turn gives up is free when that turn is on
/// disk, which its caller has a reply for.
///
/// A text has at most [`INDEX_KEY_BYTES_MAX`](crate::INDEX_KEY_BYTES_MAX) bytes: a turn that sets a longer one fails as
/// [`CommitError::IndexKey`]. Keys are never cut.
///
/// # Change of a type
///
/// A field that gets an index, and an index of states with another [version](Durable::VERSION), is built in the
/// background, 10,000 entities in a second; meanwhile [`Node::index`](crate::Node::index) tells how far it is. If
/// a unique index is built over entities that share a key, all of them are in the index, and
/// [`Node::indexes`](crate::Node::indexes) and the log tell their number; the turns after that are refused as always.
/// An index that is gone from the type is deleted in the background. A field that is renamed keeps its index by
/// `#[durable(index = "earlier_name")]`.
///
/// # Cost
///
/// A turn that leaves the fields alone compares some bytes. A turn that changes a key writes two records beside the
/// state, and searches the store for a unique key. In memory, a live entity has some 250 bytes and its keys more.
pub struct Index<P, K: ?Sized> {
    definition: IndexDefinition<P>,
    key: PhantomData<fn(&K)>,
}

/// An index of a kind without the type of its keys, for [`Durable::INDEXES`].
pub struct IndexDefinition<P> {
    name: &'static str,
    is_unique: bool,
    /// Appends the encoded key of a state, if it has one.
    key: fn(&P, &mut Vec<u8>),
}

impl<P, K: ?Sized> Index<P, K> {
    /// Makes an index; the derive does this.
    #[doc(hidden)]
    pub const fn new(name: &'static str, is_unique: bool, key: fn(&P, &mut Vec<u8>)) -> Self {
        Index { definition: IndexDefinition { name, is_unique, key }, key: PhantomData }
    }

    /// Returns the index for [`Durable::INDEXES`].
    pub const fn definition(self) -> IndexDefinition<P> {
        self.definition
    }

    /// Returns the name of the index.
    pub const fn name(&self) -> &'static str {
        self.definition.name
    }
}

impl<P, K: ?Sized> Copy for Index<P, K> {}
impl<P, K: ?Sized> Clone for Index<P, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for IndexDefinition<P> {}
impl<P> Clone for IndexDefinition<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, K: ?Sized> fmt::Debug for Index<P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.definition.fmt(f)
    }
}

impl<P> fmt::Debug for IndexDefinition<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IndexDefinition { name, is_unique, .. } = self;
        f.debug_struct("Index").field("name", name).field("is_unique", is_unique).finish()
    }
}

impl<P: Durable> IndexDefinition<P> {
    /// Returns the name in the catalogue, which has everything that makes another index of it.
    fn catalogued(&self) -> Vec<u8> {
        [self.name.as_bytes(), &[0, self.is_unique.into()], &P::VERSION.to_be_bytes()].concat()
    }
}

/// The key of a unique index that a turn has set belongs to another entity, from [`EntityError::Conflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// Kind of the entities.
    pub kind: &'static str,
    /// Name of the index.
    pub index: &'static str,
    /// The key, as text.
    pub key: String,
    /// Key of the entity that has it.
    pub owner: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { kind, index, key, owner } = self;
        write!(f, "{key} is taken in the unique index {index} of {kind}: by {owner:?}")
    }
}

/// The indexes of a kind in the store: those of its type, and those that are deleted.
#[derive(Debug)]
pub(crate) struct Indexes {
    pub(crate) own: Box<[StoredIndex]>,
    claims: Arc<Claims>,
    /// Indexes that are not those of the type, until they are deleted.
    gone: Mutex<Vec<Arc<Numbered>>>,
    /// Whether an index is to be built or deleted.
    has_work: AtomicBool,
    /// Whether a record that goes with a state may not be on disk yet.
    has_unstored: AtomicBool,
    /// Whether an index of the type is not complete.
    is_building: AtomicBool,
}

/// An index of a type, in the store.
#[derive(Debug)]
pub(crate) struct StoredIndex {
    name: &'static str,
    is_unique: bool,
    numbered: Arc<Numbered>,
    /// The record that tells of a complete index that has begun with its kind.
    begun_complete: Option<Number>,
    is_complete: AtomicBool,
    progress: Mutex<Progress>,
}

impl Indexes {
    /// Finds the indexes of a kind. Panics if the store has no number left for one of them.
    pub(crate) fn open<P: Durable>(node: &Inner, kind: u16) -> Indexes {
        let names: Vec<_> = P::INDEXES.iter().map(IndexDefinition::catalogued).collect();
        for known in node.catalogue.indexes(P::KIND) {
            if !names.contains(&known) {
                node.catalogue.index_goes(P::KIND, &known);
            }
        }
        // If the store cannot be read, the builder tries again.
        let view = if names.is_empty() { None } else { View::of(&node.tables).ok() };
        let own: Box<[_]> = P::INDEXES
            .iter()
            .zip(&names)
            .map(|(index, name)| {
                let Some(numbered) = node.catalogue.index(P::KIND, name) else {
                    panic!("the store has no number left for the index {:?}", index.name);
                };
                StoredIndex::open(index.name, index.is_unique, numbered, kind, view.as_ref())
            })
            .collect();
        let gone = node.catalogue.gone_indexes(P::KIND);
        let is_building = own.iter().any(|index| !index.is_complete());
        Indexes {
            has_work: (is_building || !gone.is_empty()).into(),
            has_unstored: (!own.is_empty() || !gone.is_empty()).into(),
            is_building: is_building.into(),
            claims: Arc::default(),
            own,
            gone: gone.into(),
        }
    }

    /// Adds the records to a batch that stores or removes a state, unless they are known to be on disk.
    pub(crate) fn add_to(&self, mut batch: Batch, node: &Inner) -> Batch {
        if !self.has_unstored.load(Ordering::Relaxed) {
            return batch;
        }
        let outcomes = node.gate.outcomes();
        let mut is_stored = true;
        self.for_each_number(|number| {
            batch = number.add_to(std::mem::take(&mut batch), &node.tables, outcomes);
            is_stored &= number.is_stored();
        });
        if is_stored {
            self.has_unstored.store(false, Ordering::Relaxed);
        }
        batch
    }

    /// Notes that a batch with a state was submitted.
    pub(crate) fn submitted(&self, submission: Submission) {
        if self.has_unstored.load(Ordering::Relaxed) {
            self.for_each_number(|number| number.submitted(submission));
        }
    }

    fn for_each_number(&self, mut f: impl FnMut(&Number)) {
        for index in &self.own {
            f(&index.numbered);
            index.begun_complete.iter().for_each(&mut f);
        }
        lock(&self.gone).iter().for_each(|gone| f(gone));
    }
}

impl StoredIndex {
    fn open(
        name: &'static str,
        is_unique: bool,
        numbered: Arc<Numbered>,
        kind: u16,
        view: Option<&View>,
    ) -> StoredIndex {
        let record = layout::built(kind, numbered.number());
        let found = view.and_then(|view| Progress::read(view, &record).ok());
        let has_states =
            view.is_none_or(|view| view.prefix(&layout::states(kind)).next_key().is_some());
        let mut progress = found.unwrap_or_default();
        let mut begun_complete = None;
        if !has_states && !progress.is_complete {
            progress = Progress { is_complete: true, ..Progress::default() };
            begun_complete = Some(Number::marker(&record, progress.encode()));
        }
        let is_complete = progress.is_complete.into();
        let progress = Mutex::new(progress);
        StoredIndex { name, is_unique, numbered, begun_complete, is_complete, progress }
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }
}

/// The encoded keys of a state in the indexes of its type, each behind its length (`u32`), which is 0 without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    encoded: Box<[u8]>,
    /// Whether the state is stored in another form, and was perhaps not readable before: then its entries may be
    /// missing.
    is_unsure: bool,
}

/// Iterates over encoded keys; those that are missing are empty, as are all of an entity that is not stored.
fn keys(mut encoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let key = encoded
            .split_first_chunk()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let (key, rest) = key.unwrap_or_default();
        encoded = rest;
        Some(key)
    })
}

impl Keys {
    /// Returns the keys of a state. Runs user code.
    pub(crate) fn of<P: Durable>(state: &P, is_unsure: bool) -> Result<Keys, throng::Panic> {
        let mut encoded = Vec::new();
        catch(|| encode_keys(state, &mut encoded))?;
        Ok(Keys { encoded: encoded.into(), is_unsure })
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        keys(&self.encoded)
    }
}

fn encode_keys<P: Durable>(state: &P, encoded: &mut Vec<u8>) {
    for index in P::INDEXES {
        let begin = encoded.len();
        encoded.extend_from_slice(&[0; 4]);
        (index.key)(state, encoded);
        // A key is in memory, and is refused if it is long.
        let length = u32::try_from(encoded.len() - begin - 4).unwrap_or(u32::MAX);
        encoded[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Bytes beyond which the memory for keys is not kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Memory for the keys of the turns of a thread.
    static KEYS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The change of a turn in its kind's indexes, until it is submitted.
#[derive(Debug)]
pub(crate) struct Changed {
    keys: Keys,
    claims: Vec<Claim>,
}

impl Changed {
    /// Notes that the turn is submitted, and returns the keys.
    pub(crate) fn submitted(self, submission: Submission) -> Keys {
        self.claims.into_iter().for_each(|claim| claim.submitted(submission));
        self.keys
    }
}

/// Adds the entries of a state that is to be stored to its batch. `before` are the keys of the state that was submitted
/// last, if there is one.
pub(crate) fn add_to<P: Durable>(
    process: &P,
    (node, directory, state_key): (&Inner, &Directory<P>, &[u8]),
    before: Option<&Keys>,
    batch: Batch,
) -> Result<(Batch, Option<Box<Changed>>), EntityError> {
    let indexes = directory.indexes();
    let batch = indexes.add_to(batch, node);
    if const { P::INDEXES.is_empty() } {
        return Ok((batch, None));
    }
    KEYS.with_borrow_mut(|after| {
        after.clear();
        after.shrink_to(KEPT_BYTES_MAX);
        catch(|| encode_keys(process, after)).map_err(EntityError::Panicked)?;
        let writes_all = indexes.is_building.load(Ordering::Relaxed)
            || before.is_some_and(|keys| keys.is_unsure);
        if !writes_all && before.is_some_and(|before| *before.encoded == **after) {
            return Ok((batch, None));
        }
        let keys = Keys { encoded: after[..].into(), is_unsure: false };
        let unknown = Keys::default();
        let mut turn = Turn { node, indexes, state_key, writes_all, batch, claims: Vec::new() };
        let before = before.unwrap_or(&unknown).each();
        for ((index, before), after) in indexes.own.iter().zip(before).zip(keys.each()) {
            turn.change::<P>(index, before, after)?;
        }
        let Turn { batch, claims, .. } = turn;
        Ok((batch, Some(Box::new(Changed { keys, claims }))))
    })
}

/// A turn that changes entries.
struct Turn<'t> {
    node: &'t Inner,
    indexes: &'t Indexes,
    state_key: &'t [u8],
    /// Whether it writes entries that have not changed.
    writes_all: bool,
    batch: Batch,
    claims: Vec<Claim>,
}

impl Turn<'_> {
    /// Replaces the entry of the entity in an index.
    fn change<P: Durable>(
        &mut self,
        index: &StoredIndex,
        before: &[u8],
        after: &[u8],
    ) -> Result<(), EntityError> {
        let is_changed = before != after;
        if !is_changed && !self.writes_all {
            return Ok(());
        }
        let entries = layout::entries(layout::kind_of(self.state_key), index.numbered.number());
        let entry = |key: &[u8]| [&entries, key, own_key(self.state_key)].concat();
        let tables = &self.node.tables;
        if is_changed && has_entry(before) {
            let entry = entry(before);
            self.batch = std::mem::take(&mut self.batch).delete(tables.at(&entry), &entry);
        }
        if after.len() > INDEX_ENCODED_BYTES_MAX && is_changed {
            let (index, bytes) = (index.name, after.len());
            return Err(EntityError::NotCommitted(CommitError::IndexKey { index, bytes }));
        }
        if !has_entry(after) {
            return Ok(());
        }
        if index.is_unique && is_changed {
            let claim =
                self.claim(&[&entries, after].concat()).map_err(|refused| match refused {
                    Refused::Taken(owner) => EntityError::Conflict(Box::new(Conflict {
                        kind: P::KIND,
                        index: index.name,
                        key: key::describe(after),
                        owner: String::from_utf8_lossy(&owner).into_owned(),
                    })),
                    Refused::Unread(error) => {
                        EntityError::NotCommitted(CommitError::Cell(error.into()))
                    }
                })?;
            self.claims.push(claim);
        }
        let entry = entry(after);
        self.batch = std::mem::take(&mut self.batch).put(tables.at(&entry), &entry, &[]);
        Ok(())
    }

    /// Claims a key of a unique index, by the common prefix of its entries.
    fn claim(&self, key: &[u8]) -> Result<Claim, Refused> {
        let owner = own_key(self.state_key);
        let outcomes = self.node.gate.outcomes();
        let claim = self.indexes.claims.claim(key, owner, outcomes).map_err(Refused::Taken)?;
        // After the claim, so that the entry of a turn whose claim is over is seen.
        let view = View::of(&self.node.tables).map_err(Refused::Unread)?;
        let mut entries = view.prefix(key);
        while let Some(entry) = entries.next_key() {
            let other = &entry.map_err(Refused::Unread)?[key.len()..];
            if other != owner {
                return Err(Refused::Taken(other.into()));
            }
        }
        Ok(claim)
    }
}

/// Reason why a key is not claimed.
enum Refused {
    /// The key belongs to another entity.
    Taken(Box<[u8]>),
    Unread(ReadError),
}

/// Whether a key has an entry. One that was too long before the field had an index has none.
fn has_entry(key: &[u8]) -> bool {
    (1..=INDEX_ENCODED_BYTES_MAX).contains(&key.len())
}

/// Returns the entries of an entity whose state has these keys.
pub(crate) fn entries_of(indexes: &Indexes, state_key: &[u8], keys: &Keys) -> Vec<Box<[u8]>> {
    let kind = layout::kind_of(state_key);
    let entries = indexes.own.iter().zip(keys.each()).filter(|(_, key)| has_entry(key));
    let entries = entries.map(|(index, key)| {
        let entries = layout::entries(kind, index.numbered.number());
        [&entries, key, own_key(state_key)].concat().into()
    });
    entries.collect()
}

/// Searches all indexes of a kind for the entries of an entity whose state cannot be read.
pub(crate) fn search_entries(view: &View, state_key: &[u8]) -> Result<Vec<Box<[u8]>>, ReadError> {
    let mut entries = view.prefix(&layout::entries_of_kind(layout::kind_of(state_key)));
    let mut found = Vec::new();
    while let Some(entry) = entries.next_key() {
        let entry = entry?;
        let split = key::split(layout::keys_of_index_entry(entry));
        if split.is_some_and(|(_, owner)| owner == own_key(state_key)) {
            found.push(entry.into());
        }
    }
    Ok(found)
}
