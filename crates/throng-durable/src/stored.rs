//! [`Stored`]: the entities of a kind on the disk, as of one moment.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use throng_store::{Range, ReadError};

use crate::activation::read;
use crate::catalogue::Numbered;
use crate::layout::{self, STATE_KEY_BYTES_MAX};
use crate::users::drop_user_value;
use crate::view::View;
use crate::{Durable, EntityError};

/// The stored entities of kind `P`, as of one moment; from [`Node::stored`](crate::Node::stored).
///
/// An entity is stored from the first commit of a turn that has changed it until it is
/// [forgotten](crate::Entity::forget), whether it is in memory or not. Changes that are not on disk yet are not
/// a part of the view.
///
/// While the view exists, the store keeps the data of its moment: for paging, take a new one for each page.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::prelude::*;
/// use throng_durable::{Durable, Node, ReadError};
///
/// # #[derive(Durable, Default, Serialize, Deserialize)]
/// # #[durable(kind = "account")]
/// # struct Account { balance: u64 }
/// # impl Process for Account {}
/// /// Returns the next accounts whose names begin with `prefix`, in the order of their names.
/// fn page(node: &Node, prefix: &str, last: Option<&str>) -> Result<Vec<String>, ReadError> {
///     let accounts = node.stored::<Account>()?;
///     let names = accounts.prefix(prefix).after(last.unwrap_or("")).take(20);
///     names.map(|name| Ok(name?.to_owned())).collect()
/// }
/// ```
pub struct Stored<P> {
    view: View,
    /// Number of the kind.
    kind: u16,
    numbered: Arc<Numbered>,
    process: PhantomData<fn() -> P>,
}

/// A stored entity that cannot be loaded, from [`Stored::unreadable`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Unreadable {
    /// The entity's key.
    pub key: String,
    /// The error that its callers get.
    pub error: EntityError,
}

impl<P: Durable> Stored<P> {
    /// Iterates over the entities whose states cannot be loaded, in the order of their keys: the record is damaged,
    /// newer than the program, of a version without a migration, or not of the type; or its decoding panics.
    ///
    /// [`Records::export`](crate::Records::export) returns the records of such an entity, and
    /// [`Node::forget_unreadable`](crate::Node::forget_unreadable) removes it.
    ///
    /// Cost: reads and decodes all states of the kind, on this thread.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, Node, ReadError};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// # impl Process for Account {}
    /// fn report(node: &Node) -> Result<(), ReadError> {
    ///     for unreadable in node.stored::<Account>()?.unreadable() {
    ///         let unreadable = unreadable?;
    ///         eprintln!("{}: {}", unreadable.key, unreadable.error);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn unreadable(&self) -> impl Iterator<Item = Result<Unreadable, ReadError>> + '_ {
        self.keys().filter_map(|key| {
            let key = match key {
                Ok(key) => key,
                Err(error) => return Some(Err(error)),
            };
            let mut buffer = [0; STATE_KEY_BYTES_MAX];
            // Every stored key is valid.
            let state_key = layout::state_key(self.kind, key, &mut buffer).ok()?;
            match read::<P>(&self.view, &self.numbered, state_key) {
                Ok(state) => {
                    drop_user_value(state);
                    None
                }
                Err(failure) if failure.is_lasting() => {
                    Some(Ok(Unreadable { key: key.to_owned(), error: failure.into() }))
                }
                Err(failure) => match failure.into() {
                    EntityError::Load(error) => Some(Err(error)),
                    error => Some(Ok(Unreadable { key: key.to_owned(), error })),
                },
            }
        })
    }
}

impl<P> Stored<P> {
    pub(crate) fn new(view: View, numbered: Arc<Numbered>) -> Stored<P> {
        Stored { view, kind: numbered.number(), numbered, process: PhantomData }
    }

    /// Number of the entities. Cost: one read, because the number is stored.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn count(&self) -> Result<u64, ReadError> {
        count(&self.view, self.kind).map(Option::unwrap_or_default)
    }

    /// Whether the entity is stored.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn contains(&self, key: &str) -> Result<bool, ReadError> {
        match layout::state_key(self.kind, key, &mut [0; STATE_KEY_BYTES_MAX]) {
            Ok(state_key) => is_stored(&self.view, state_key),
            // No entity has an invalid key.
            Err(_) => Ok(false),
        }
    }

    /// Iterates over the keys of all entities, in the order of their bytes; `.rev()` reverses it.
    pub fn keys(&self) -> Keys<'_> {
        self.prefix("")
    }

    /// Iterates over the keys that begin with `prefix`.
    pub fn prefix(&self, prefix: &str) -> Keys<'_> {
        let start = [&layout::states(self.kind), prefix.as_bytes()].concat();
        let end = layout::after(&start);
        Keys::new(&self.view, self.kind, Bound::Included(start), Bound::Excluded(end))
    }
}

/// Whether there is a state under this key. The state, which may be damaged, is not read.
pub(crate) fn is_stored(view: &View, state_key: &[u8]) -> Result<bool, ReadError> {
    let first = view.range(state_key..=state_key).next_key();
    Ok(first.transpose()?.is_some())
}

/// Returns the stored number of entities of a kind; `None` if none was ever stored.
pub(crate) fn count(view: &View, kind: u16) -> Result<Option<u64>, ReadError> {
    let count = view.get(&layout::count(kind))?;
    Ok(count.map(|count| count.try_into().map_or(0, u64::from_le_bytes)))
}

/// Iterator over the keys of stored entities, from [`Stored`].
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Keys<'s> {
    view: &'s View,
    kind: u16,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    range: Range<'s>,
}

impl<'s> Keys<'s> {
    fn new(view: &'s View, kind: u16, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let range = view.range(bounds);
        Keys { view, kind, start, end, range }
    }

    /// Leaves out the keys up to `key`, that one included. The iterator begins again.
    pub fn after(self, key: &str) -> Keys<'s> {
        let key = [&layout::states(self.kind), key.as_bytes()].concat();
        let start = match self.start {
            Bound::Included(start) | Bound::Excluded(start) if start > key => {
                Bound::Included(start)
            }
            _ => Bound::Excluded(key),
        };
        Keys::new(self.view, self.kind, start, self.end)
    }

    /// Leaves out the keys from `key` on. The iterator begins again.
    pub fn before(self, key: &str) -> Keys<'s> {
        let key = [&layout::states(self.kind), key.as_bytes()].concat();
        let end = match self.end {
            Bound::Included(end) | Bound::Excluded(end) if end < key => Bound::Excluded(end),
            _ => Bound::Excluded(key),
        };
        Keys::new(self.view, self.kind, self.start, end)
    }
}

fn key_of(state_key: Result<&[u8], ReadError>) -> Result<&str, ReadError> {
    std::str::from_utf8(layout::own_key(state_key?))
        .map_err(|error| ReadError::Corrupt(format!("the key of an entity is no text: {error}")))
}

impl<'s> Iterator for Keys<'s> {
    type Item = Result<&'s str, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next_key().map(key_of)
    }
}

impl DoubleEndedIterator for Keys<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_key_back().map(key_of)
    }
}

impl<P> fmt::Debug for Stored<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Keys { start, end, .. } = self;
        f.debug_struct("Keys").field("start", start).field("end", end).finish_non_exhaustive()
    }
}
