//! [`Batch`]: a list of changes that becomes durable as one.
//!
//! Keys and values are copied into one buffer, so a batch costs two allocations however many
//! operations it holds, and can travel to the writer thread and back without touching them.

use crate::{KEY_BYTES_MAX, Rejection, VALUE_BYTES_MAX};

/// Puts, deletes and additions that are applied atomically and in order: all of them or none.
///
/// ```
/// use throng_store::Batch;
/// let batch = Batch::new().put("balance/alice", [5]).put("balance/bob", [7]).delete("transfer/1");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    operations: Vec<Operation>,
    /// Key, value, key, value… in the order of `operations`.
    buffer: Vec<u8>,
}

/// The lengths that cut one operation out of the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operation {
    key_bytes: usize,
    value_bytes: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    Add,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'b> {
    /// Set the key to this value.
    Put(&'b [u8]),
    /// Remove the key.
    Delete,
    /// Add this to the counter under the key.
    Add(i64),
}

impl Batch {
    /// An empty batch. Writing one changes nothing and resolves after everything queued before it.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds: set `key` to `value`, whatever it was before.
    ///
    /// Sizes are checked by [`Store::write`](crate::Store::write), not here.
    #[must_use]
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Batch {
        self.push(key.as_ref(), value.as_ref(), Kind::Put);
        self
    }

    /// Adds: remove `key`, if it is there.
    #[must_use]
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Batch {
        self.push(key.as_ref(), &[], Kind::Delete);
        self
    }

    /// Adds: change the counter under `key` by `difference`, on the disk as it is at the commit.
    ///
    /// So any number of writers can count at once, none having to read first. A counter is a value
    /// of eight bytes, an `i64` in little endian, which wraps around; a key without a value, or
    /// with one of another length, counts as zero.
    ///
    /// ```
    /// # use throng_store::{Batch, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let posted = Batch::new().put("post/1", "hello").add("posts", 1);
    /// let again = Batch::new().put("post/2", "world").add("posts", 1);
    /// let (posted, again) = (store.write(posted), store.write(again));
    /// (posted.wait()?, again.wait()?);
    /// assert_eq!(store.snapshot()?.get(b"posts")?, Some(&2i64.to_le_bytes()[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn add(mut self, key: impl AsRef<[u8]>, difference: i64) -> Batch {
        self.push(key.as_ref(), &difference.to_le_bytes(), Kind::Add);
        self
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it holds no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The operations in order: a key, and what becomes of it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Change<'_>)> {
        let mut rest = self.buffer.as_slice();
        self.operations.iter().map(move |operation| {
            let (key, after_key) = rest.split_at(operation.key_bytes);
            let (value, after) = after_key.split_at(operation.value_bytes);
            rest = after;
            let change = match operation.kind {
                Kind::Put => Change::Put(value),
                Kind::Delete => Change::Delete,
                Kind::Add => Change::Add(counter(value)),
            };
            (key, change)
        })
    }

    /// What it counts towards the queue's budget.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len() + self.operations.len() * size_of::<Operation>()
    }

    /// Why the engine could not store it, if so.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        for operation in &self.operations {
            let bytes = operation.key_bytes;
            if bytes == 0 {
                return Err(Rejection::KeyEmpty);
            }
            if bytes > KEY_BYTES_MAX {
                return Err(Rejection::KeyTooLong { bytes });
            }
            let bytes = operation.value_bytes;
            if bytes > VALUE_BYTES_MAX {
                return Err(Rejection::ValueTooLong { bytes });
            }
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], value: &[u8], kind: Kind) {
        self.operations.push(Operation { key_bytes: key.len(), value_bytes: value.len(), kind });
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
    }
}

/// What a value is worth as a counter.
pub(crate) fn counter(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_in_order() {
        let batch = Batch::new().put("a", "1").delete("bb").put("c", "").add("n", -7);
        let operations: Vec<_> = batch.iter().collect();
        let expected: [(&[u8], _); 4] = [
            (b"a", Change::Put(b"1")),
            (b"bb", Change::Delete),
            (b"c", Change::Put(b"")),
            (b"n", Change::Add(-7)),
        ];
        assert_eq!(operations, expected);
    }

    #[test]
    fn sizes_are_checked_at_their_edges() {
        let key = |bytes: usize| Batch::new().put("fine", "fine").delete(vec![7; bytes]).check();
        assert_eq!(key(0), Err(Rejection::KeyEmpty));
        assert_eq!(key(1), Ok(()));
        assert_eq!(key(511), Ok(()));
        assert_eq!(key(512), Err(Rejection::KeyTooLong { bytes: 512 }));

        let value = |bytes: usize| Batch::new().put("k", vec![7; bytes]).check();
        assert_eq!(value(0), Ok(()));
        assert_eq!(value(VALUE_BYTES_MAX), Ok(()));
        let bytes = VALUE_BYTES_MAX + 1;
        assert_eq!(value(bytes), Err(Rejection::ValueTooLong { bytes }));
    }
}
