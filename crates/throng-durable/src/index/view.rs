//! [`IndexView`]: the entities in an index, as of one moment. [`Found`]: those with keys in a range.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use throng_store::{Range, ReadError};

use super::{Index, IndexKey, IndexState, StoredIndex, key};
use crate::name::Name;
use crate::view::View;
use crate::{Durable, Entity, Node, layout, stored};

/// Error of [`Node::index`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The index does not have all entities yet: try again later.
    #[error("the index {index} is built: {done} of {of} entities")]
    Building {
        /// Name of the index.
        index: &'static str,
        /// Number of entities that are in the index, or need not be.
        done: u64,
        /// Number of entities.
        of: u64,
    },
    /// The index is not one of [`Durable::INDEXES`] of the kind.
    #[error("the kind {kind} has no index {index}")]
    NoIndex {
        /// The kind.
        kind: &'static str,
        /// Name of the index.
        index: &'static str,
    },
    /// The store cannot be read; trying again may work.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The entities in an index, as of one moment; from [`Node::index`].
///
/// The view shows what is on disk. A turn whose reply has come is: an entity is found by what it has replied. Changes
/// that are not on disk yet are not a part of the view, and later ones neither; while the view exists, the store keeps
/// the data of its moment.
pub struct IndexView<P, K: ?Sized> {
    node: Node,
    view: View,
    kind: u16,
    /// Number of the index.
    number: u16,
    types: PhantomData<fn(&K) -> P>,
}

impl Node {
    /// Returns a view of an index: the entities of the kind `P` by a field of their states.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, Entity, IndexError, Node};
    ///
    /// #[derive(Durable, Default, Serialize, Deserialize)]
    /// #[durable(kind = "user")]
    /// struct User {
    ///     #[durable(index, unique)]
    ///     email: Option<String>,
    /// }
    /// # impl Process for User {}
    ///
    /// fn find(node: &Node, email: &str) -> Result<Option<Entity<User>>, IndexError> {
    ///     Ok(node.index(User::EMAIL)?.get(email)?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`IndexError`]
    ///
    /// # Panics
    ///
    /// If another type of this node has the same [`KIND`](Durable::KIND).
    pub fn index<P: Durable, K: IndexKey + ?Sized>(
        &self,
        index: Index<P, K>,
    ) -> Result<IndexView<P, K>, IndexError> {
        let directory = self.inner().directory::<P>();
        let kind = directory.kind().number();
        let mut own = P::INDEXES.iter().zip(&directory.indexes().own);
        let own: Option<&StoredIndex> =
            own.find_map(|(known, own)| (known.name == index.name()).then_some(own));
        let Some(own) = own else {
            return Err(IndexError::NoIndex { kind: P::KIND, index: index.name() });
        };
        let view = View::of(&self.inner().tables)?;
        if !own.is_complete() {
            let of = stored::count(&view, kind)?.unwrap_or_default();
            let IndexState::Building { done, of } = own.state(of) else {
                // It was completed meanwhile, and the view may be older.
                return self.index(index);
            };
            return Err(IndexError::Building { index: index.name(), done, of });
        }
        let number = own.numbered.number();
        Ok(IndexView { node: self.clone(), view, kind, number, types: PhantomData })
    }
}

impl<P: Durable, K: IndexKey + ?Sized> IndexView<P, K> {
    /// Returns the entity with this key; the first one by its own key, if the index is not unique.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn get(&self, key: &K) -> Result<Option<Entity<P>>, ReadError> {
        self.find(key).next().transpose()
    }

    /// Iterates over the entities with this key, in the order of their own keys.
    pub fn find(&self, key: &K) -> Found<'_, P> {
        let start = self.entries(key);
        let end = layout::after(&start);
        self.between(start, end)
    }

    /// Iterates over all entities in the index, in the order of the index, and of their own keys behind that.
    pub fn iter(&self) -> Found<'_, P> {
        let start = layout::entries(self.kind, self.number).to_vec();
        let end = layout::after(&start);
        self.between(start, end)
    }

    /// Iterates over the entities with keys within `bounds`, like [`iter`](IndexView::iter).
    ///
    /// Text is in the order of its bytes.
    pub fn range<'k>(&self, bounds: impl RangeBounds<&'k K>) -> Found<'_, P>
    where
        K: 'k,
    {
        let all = self.iter();
        let start = match bounds.start_bound() {
            Bound::Included(key) => self.entries(key),
            Bound::Excluded(key) => layout::after(&self.entries(key)),
            Bound::Unbounded => all.start,
        };
        let end = match bounds.end_bound() {
            Bound::Included(key) => layout::after(&self.entries(key)),
            Bound::Excluded(key) => self.entries(key),
            Bound::Unbounded => all.end,
        };
        self.between(start, end)
    }

    /// Iterates over the entities whose keys, text or bytes, begin with `prefix`, like [`iter`](IndexView::iter).
    pub fn prefix(&self, prefix: &K) -> Found<'_, P>
    where
        K: AsRef<[u8]>,
    {
        let mut start = layout::entries(self.kind, self.number).to_vec();
        key::encode_prefix(prefix.as_ref(), &mut start);
        let end = layout::after(&start);
        self.between(start, end)
    }

    /// Returns the common prefix of the entries with a key.
    fn entries(&self, key: &K) -> Vec<u8> {
        let mut entries = layout::entries(self.kind, self.number).to_vec();
        key.encode(&mut entries);
        entries
    }

    fn between(&self, start: Vec<u8>, end: Vec<u8>) -> Found<'_, P> {
        Found::new(&self.node, &self.view, start, end)
    }
}

/// Iterator over the entities in an index, from [`IndexView`]; `.rev()` reverses it.
///
/// A page of a list is `take`, and the next one begins after a [`cursor`](Found::cursor):
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::prelude::*;
/// use throng_durable::{Durable, IndexError, Node};
///
/// # #[derive(Durable, Default, Serialize, Deserialize)]
/// # #[durable(kind = "user")]
/// # struct User { #[durable(index)] age: u32 }
/// # impl Process for User {}
/// /// Returns the keys of 20 users from the youngest on, and the cursor for the next page.
/// fn page(node: &Node, cursor: &[u8]) -> Result<(Vec<String>, Vec<u8>), IndexError> {
///     let ages = node.index(User::AGE)?;
///     let mut found = ages.iter().after(cursor);
///     let users = found.by_ref().take(20).map(|user| Ok(user?.key().to_owned()));
///     let users = users.collect::<Result<_, IndexError>>()?;
///     Ok((users, found.cursor().to_vec()))
/// }
/// ```
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Found<'v, P> {
    node: &'v Node,
    view: &'v View,
    start: Vec<u8>,
    end: Vec<u8>,
    range: Range<'v>,
    /// Key of the last entry that was returned.
    last: &'v [u8],
    process: PhantomData<fn() -> P>,
}

impl<'v, P: Durable> Found<'v, P> {
    fn new(node: &'v Node, view: &'v View, start: Vec<u8>, end: Vec<u8>) -> Found<'v, P> {
        // Such bounds have nothing between them.
        let end = end.max(start.clone());
        let range = view.range((Bound::Included(&start[..]), Bound::Excluded(&end[..])));
        Found { node, view, start, end, range, last: &[], process: PhantomData }
    }

    /// Leaves out the entities up to a [`cursor`](Found::cursor), that one included. The iterator begins again. An empty
    /// cursor leaves out none.
    pub fn after(self, cursor: &[u8]) -> Found<'v, P> {
        let index = self.start.get(..layout::entries(0, 0).len()).unwrap_or_default();
        let after = [index, cursor, &[0]].concat();
        let start = if cursor.is_empty() { self.start } else { after.max(self.start) };
        Found::new(self.node, self.view, start, self.end)
    }

    /// Returns the place in the index of the entity that was returned last, for [`after`](Found::after) of another
    /// view; empty before the first one.
    ///
    /// The cursor has the key in the index and that of the entity; anybody who has it can read both.
    pub fn cursor(&self) -> &'v [u8] {
        layout::keys_of_index_entry(self.last)
    }

    /// Returns the number of entities that are left. Costs a step for each of them.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn total(mut self) -> Result<u64, ReadError> {
        let mut entities = 0;
        while let Some(entry) = self.range.next_key() {
            entry?;
            entities += 1;
        }
        Ok(entities)
    }

    fn read(&mut self, entry: Result<&'v [u8], ReadError>) -> Result<Entity<P>, ReadError> {
        let entry = entry?;
        self.last = entry;
        let corrupt = || ReadError::Corrupt("an entry of an index has no valid keys".to_owned());
        let (_, owner) = key::split(layout::keys_of_index_entry(entry)).ok_or_else(corrupt)?;
        let owner = std::str::from_utf8(owner).map_err(|_| corrupt())?;
        let name = Name::new(layout::kind_of(entry), owner).map_err(|_| corrupt())?;
        Ok(Entity::from_parts(self.node.clone(), Ok(name)))
    }
}

impl<P: Durable> Iterator for Found<'_, P> {
    type Item = Result<Entity<P>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_key()?;
        Some(self.read(entry))
    }
}

impl<P: Durable> DoubleEndedIterator for Found<'_, P> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_key_back()?;
        Some(self.read(entry))
    }
}

impl<P, K: ?Sized> fmt::Debug for IndexView<P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexView").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for Found<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { start, end, .. } = self;
        f.debug_struct("Found").field("start", start).field("end", end).finish_non_exhaustive()
    }
}
