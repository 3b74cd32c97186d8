//! [`Children`] and [`Matches`]: keys read as paths, without visiting the keys below each child.
//!
//! A key such as `users/ada/name` is a path whose parts are divided by separators. The keys below a
//! path are consecutive, so a cursor that has seen any of them can seek past all of them: the cost
//! of a listing depends on the number of children, not on the number of keys below them.
//!
//! A path that is a key itself need not be adjacent to the keys below it: `ada`, `ada-b`,
//! `ada/name` are in order. Such a child is yielded at its own key; so where keys below a path are
//! found, a lookup checks whether the child is yielded elsewhere.

use std::fmt;

use crate::disk::lmdb::Move;
use crate::read::merge;
use crate::read::range::beyond;
use crate::table::{Kind, TableRef};
use crate::{Codec, Database, KEY_BYTES_MAX, ReadError, Snapshot};

/// Iterator over the direct children of a path among the encoded keys of a database: each child once,
/// from either end.
///
/// Children are in the order of the keys: a child that is a key itself is yielded at that key, any
/// other child at the first key below it. Costs a seek for each child, and a lookup for each child
/// that has keys below it, whatever their number.
///
/// ```
/// # use throng_store::{Batch, ReadError, Store, Str, elmdb::Children};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let tree = store.database::<Str, Str>("tree")?;
/// let keys = ["users/ada", "users/ada/born", "users/ada/name", "users/alan/name", "zoo"];
/// store.write(keys.iter().fold(Batch::new(), |batch, key| batch.put(&tree, key, "…"))).wait()?;
/// let snapshot = store.snapshot()?;
/// let names = |prefix: &[u8]| {
///     let children = Children::new(&tree, &snapshot, prefix, b'/');
///     children.map(|child| Ok(child?.name)).collect::<Result<Vec<_>, ReadError>>()
/// };
/// assert_eq!(names(b"")?, [&b"users"[..], b"zoo"]);
/// assert_eq!(names(b"users/")?, [&b"ada"[..], b"alan"]);
/// assert_eq!(names(b"users/ada/")?, [b"born", b"name"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Children<'s> {
    snapshot: &'s Snapshot,
    table_ref: TableRef,
    separator: u8,
    /// Length of the parent's path.
    prefix: usize,
    /// Remaining keys: from the first bound, and below the second if it is given. `None` at the
    /// end.
    left: Option<(From, Option<Vec<u8>>)>,
    /// An error to yield first.
    failed: Option<ReadError>,
    cursor: Option<merge::Cursor<'s>>,
}

/// First bound of the remaining keys.
enum From {
    At(Vec<u8>),
    Behind(Vec<u8>),
}

/// A single item of [`Children`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Child<'s> {
    /// Path of the child: the parent's path and the name after it.
    pub path: &'s [u8],
    /// Name of the child: the bytes between the parent's path and the next separator or the end of
    /// the key.
    pub name: &'s [u8],
    /// Whether the path is a key itself. If not, only keys below it exist.
    pub is_key: bool,
}

impl<'s> Children<'s> {
    /// Iterates over the children of the path `prefix`, where keys are paths whose parts are divided by
    /// separators. The prefix ends with its separator, or is empty for the outermost parts.
    pub fn new<K: Codec, V: Codec>(
        database: &Database<K, V>,
        snapshot: &'s Snapshot,
        prefix: &[u8],
        separator: u8,
    ) -> Children<'s> {
        let failed = database.check(snapshot).err();
        // A longer prefix has no children, because no key is as long.
        let left = (failed.is_none() && prefix.len() <= KEY_BYTES_MAX)
            .then(|| (From::At(prefix.to_vec()), beyond(prefix.to_vec())));
        let (prefix, table_ref) = (prefix.len(), database.table_ref());
        Children { snapshot, table_ref, separator, prefix, left, failed, cursor: None }
    }

    /// Keeps the children that match all `patterns`. A pattern is a field and a value: a child with the
    /// path `p` matches it if the key made of `p`, the separator and the field has that value, or that value
    /// among several. Without patterns, every child matches.
    ///
    /// The search visits each child once, by a seek past the child's other fields; see [`Matches`] for the
    /// cost. If there are many more children than matches, keep an index: a database with [several
    /// values](crate::DatabaseOptions::duplicates) under a key, from field and value to path.
    ///
    /// ```
    /// # use throng_store::{Batch, Store, Str, elmdb::Children};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let posts = store.database::<Str, Str>("posts")?;
    /// let batch = Batch::new()
    ///     .put(&posts, "1/author", "ada")
    ///     .put(&posts, "1/tag", "engines")
    ///     .put(&posts, "2/author", "ada")
    ///     .put(&posts, "2/tag", "poems");
    /// store.write(batch).wait()?;
    /// let snapshot = store.snapshot()?;
    /// let found = Children::new(&posts, &snapshot, b"", b'/')
    ///     .matching(&[(b"tag", b"engines"), (b"author", b"ada")]);
    /// assert_eq!(found.collect::<Result<Vec<_>, _>>()?, [b"1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matching(self, patterns: &[(&[u8], &[u8])]) -> Matches<'s> {
        let patterns = patterns
            .iter()
            .map(|(field, value)| ([&[self.separator], *field].concat(), value.to_vec()))
            .collect();
        Matches { children: self, patterns }
    }

    /// Returns the next child from an end. Skips keys below a child that is yielded elsewhere.
    fn step(&mut self, forward: bool) -> Result<Option<Child<'s>>, ReadError> {
        loop {
            let Some(key) = self.outermost(forward)? else {
                self.left = None;
                return Ok(None);
            };
            let rest = &key[self.prefix..];
            let Some(end) = rest.iter().position(|byte| *byte == self.separator) else {
                self.exclude(key.to_vec(), forward);
                return Ok(Some(Child { path: key, name: rest, is_key: true }));
            };
            let path = &key[..self.prefix + end];
            let below = key[..=self.prefix + end].to_vec();
            if forward {
                let end = self.left.take().and_then(|(_, end)| end);
                self.left = beyond(below).map(|from| (From::At(from), end));
            } else {
                self.exclude(below, false);
            }
            if !self.snapshot.has_in(self.table_ref, path)? {
                return Ok(Some(Child { path, name: &rest[..end], is_key: false }));
            }
        }
    }

    /// Returns the first or the last of the remaining keys.
    fn outermost(&mut self, forward: bool) -> Result<Option<&'s [u8]>, ReadError> {
        let Some((from, below)) = &self.left else { return Ok(None) };
        self.snapshot.check()?;
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            empty => empty.insert(self.snapshot.cursor_in(self.table_ref)?),
        };
        let found = if forward {
            match from {
                From::At(key) => cursor.seek_range(key),
                From::Behind(key) => match cursor.seek_range(key) {
                    Ok(Some((found, _))) if found == key.as_slice() => cursor.step(Move::NextKey),
                    other => other,
                },
            }
        } else {
            match below {
                None => cursor.step(Move::Last),
                Some(key) => match cursor.seek_range(key) {
                    Ok(Some(_)) => cursor.step(Move::PrevKey),
                    Ok(None) => cursor.step(Move::Last),
                    Err(error) => Err(error),
                },
            }
        };
        let key = found.map_err(ReadError::from_engine)?.map(|(key, _)| key);
        Ok(key.filter(|key| {
            below.as_ref().is_none_or(|below| *key < below.as_slice())
                && match from {
                    From::At(from) => *key >= from.as_slice(),
                    From::Behind(from) => *key > from.as_slice(),
                }
        }))
    }

    /// Excludes the keys up to and including this key if `forward`; otherwise the keys from this
    /// key on.
    fn exclude(&mut self, key: Vec<u8>, forward: bool) {
        if let Some((from, below)) = &mut self.left {
            if forward {
                *from = From::Behind(key);
            } else {
                *below = Some(key);
            }
        }
    }

    fn yielded(&mut self, forward: bool) -> Option<Result<Child<'s>, ReadError>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let step = self.step(forward);
        if step.is_err() {
            self.left = None;
        }
        step.transpose()
    }
}

impl<'s> Iterator for Children<'s> {
    type Item = Result<Child<'s>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.yielded(true)
    }
}

impl DoubleEndedIterator for Children<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.yielded(false)
    }
}

impl fmt::Debug for Children<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = char::from(self.separator);
        f.debug_struct("Children").field("separator", &separator).finish_non_exhaustive()
    }
}

/// Iterator over the children of a path that have given values in given fields, from
/// [`Children::matching`].
///
/// Yields the paths of the matches, in the order of [`Children`]. Costs the iteration over the
/// children, plus lookups for each child up to the first pattern that does not match; so put the
/// rarest pattern first.
#[must_use = "iterators do nothing unless they are advanced"]
#[derive(Debug)]
pub struct Matches<'s> {
    children: Children<'s>,
    /// Patterns: the suffix to add to a child's path, and the value expected there.
    patterns: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'s> Matches<'s> {
    fn matches(&mut self, path: &[u8]) -> Result<bool, ReadError> {
        let Children { snapshot, table_ref, cursor, .. } = &mut self.children;
        let mut key = path.to_vec();
        for (field, value) in &self.patterns {
            key.truncate(path.len());
            key.extend_from_slice(field);
            let holds = match cursor {
                // Any of the values may match.
                Some(cursor) if table_ref.kind == Kind::Duplicates => {
                    key.len() <= KEY_BYTES_MAX
                        && value.len() <= KEY_BYTES_MAX
                        && cursor.seek_pair(&key, value).map_err(ReadError::from_engine)?
                }
                _ => snapshot.get_in(*table_ref, &key)? == Some(value),
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn yielded(&mut self, forward: bool) -> Option<Result<&'s [u8], ReadError>> {
        loop {
            let child = match self.children.yielded(forward)? {
                Ok(child) => child,
                Err(error) => return Some(Err(error)),
            };
            match self.matches(child.path) {
                Ok(true) => return Some(Ok(child.path)),
                Ok(false) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<'s> Iterator for Matches<'s> {
    type Item = Result<&'s [u8], ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.yielded(true)
    }
}

impl DoubleEndedIterator for Matches<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.yielded(false)
    }
}
