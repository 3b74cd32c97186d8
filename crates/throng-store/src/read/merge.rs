//! [`Merged`]: a cursor over a table as the changes in memory and LMDB have it together.
//!
//! ```text
//! memory │     b put │ c deleted │         │ e put │          b  d  e
//! LMDB   │ a   b     │ c         │ d       │       │   ──▶  a b  d  e
//! ```
//!
//! The cursor steps through both in the order of their sort keys: key by key, and value by value
//! where a key may have several. A change in memory hides the entry of LMDB with its sort key. The
//! cursor moves like LMDB's own, which reads a table without changes in memory.

use std::ops::Bound;

use crate::disk::lmdb::{self, Entry, Error, Move};
use crate::memtable::Walk;
use crate::memtable::change::Change;
use crate::table::{Kind, TableRef};

/// A position in a table of a snapshot; see the file's head.
pub(crate) enum Cursor<'s> {
    /// Only LMDB has entries.
    Plain(lmdb::Cursor<'s>),
    Merged(Box<Merged<'s>>),
}

/// A cursor over the changes in memory and over LMDB.
pub(crate) struct Merged<'s> {
    memory: Walk<'s>,
    /// `None` if LMDB has no entry that counts.
    engine: Option<lmdb::Cursor<'s>>,
    has_values: bool,
    /// The next change in memory, and the next entry of LMDB, in the direction of the last move.
    next: (Option<Change<'s>>, Option<Entry<'s>>),
    /// Direction of the last move; `None` if the next entries are not known.
    direction: Option<Direction>,
    at: Option<Entry<'s>>,
    /// Bound behind which a move forward finds nothing.
    end: Bound<Box<[u8]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A gap between two sort keys, where a move begins.
#[derive(Clone, Copy)]
enum Gap<'k> {
    Start,
    /// Before the first sort key that is not below this key and value.
    Before(&'k [u8], &'k [u8]),
    /// After this key and value.
    After(&'k [u8], &'k [u8]),
    /// After all values of this key.
    AfterKey(&'k [u8]),
    End,
}

type Found<'s> = Result<Option<Entry<'s>>, Error>;

impl<'s> Cursor<'s> {
    /// Makes a cursor without a position, over the changes of a table and LMDB's cursor of it,
    /// which is `None` if the transaction does not know the table.
    pub(crate) fn new(
        table_ref: TableRef,
        memory: Walk<'s>,
        engine: impl FnOnce() -> Result<Option<lmdb::Cursor<'s>>, Error>,
    ) -> Result<Cursor<'s>, Error> {
        let engine = if memory.is_cleared() { None } else { engine()? };
        let engine = match engine {
            Some(engine) if memory.is_empty() => return Ok(Cursor::Plain(engine)),
            engine => engine,
        };
        Ok(Cursor::Merged(Box::new(Merged {
            memory,
            engine,
            has_values: table_ref.kind == Kind::Duplicates,
            next: (None, None),
            direction: None,
            at: None,
            end: Bound::Unbounded,
        })))
    }

    /// Lets moves forward over changes in memory find nothing behind a bound, so that they do not pass over deleted
    /// keys there. LMDB has no deleted keys, and its own cursor goes on.
    pub(crate) fn end_at(&mut self, end: &Bound<Box<[u8]>>) {
        if let Cursor::Merged(cursor) = self {
            cursor.end = end.clone();
        }
    }

    /// Moves; `None` if there is no entry. A cursor without a position has no current entry.
    pub(crate) fn step(&mut self, to: Move) -> Found<'s> {
        match self {
            Cursor::Plain(cursor) => cursor.step(to),
            Cursor::Merged(cursor) => cursor.step(to),
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Found<'s> {
        match self {
            Cursor::Plain(cursor) => cursor.seek(key),
            Cursor::Merged(cursor) => cursor.seek(key),
        }
    }

    pub(crate) fn seek_range(&mut self, key: &[u8]) -> Found<'s> {
        match self {
            Cursor::Plain(cursor) => cursor.seek_range(key),
            Cursor::Merged(cursor) => cursor.forward_from(Gap::Before(key, &[])),
        }
    }

    /// Moves to the first value of the key that is not below this one.
    pub(crate) fn seek_pair_range(&mut self, key: &[u8], value: &[u8]) -> Found<'s> {
        match self {
            Cursor::Plain(cursor) => cursor.seek_pair_range(key, value),
            Cursor::Merged(cursor) => {
                let found = cursor.forward_from(Gap::Before(key, value))?;
                Ok(found.filter(|(found, _)| *found == key))
            }
        }
    }

    /// Moves to this value of the key; returns whether it exists.
    pub(crate) fn seek_pair(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        match self {
            Cursor::Plain(cursor) => cursor.seek_pair(key, value),
            Cursor::Merged(cursor) => {
                let found = cursor.forward_from(Gap::Before(key, value))?;
                Ok(found == Some((key, value)))
            }
        }
    }

    pub(crate) fn values(&mut self) -> Result<u64, Error> {
        match self {
            Cursor::Plain(cursor) => cursor.values(),
            Cursor::Merged(cursor) => cursor.values(),
        }
    }
}

impl<'s> Merged<'s> {
    fn step(&mut self, to: Move) -> Found<'s> {
        let has_values = self.has_values;
        match (to, self.at) {
            (Move::First, _) | (Move::Next | Move::NextKey, None) => self.forward_from(Gap::Start),
            (Move::Last, _) | (Move::Prev | Move::PrevKey, None) => self.backward_from(Gap::End),
            (_, None) => Ok(None),
            (Move::Current, at) => Ok(at),
            (Move::NextKey, Some((key, _))) if has_values => self.forward_from(Gap::AfterKey(key)),
            (Move::PrevKey, Some((key, _))) if has_values => {
                self.backward_from(Gap::Before(key, &[]))
            }
            (Move::Next | Move::NextKey, Some(at)) => self.next(at),
            (Move::Prev | Move::PrevKey, Some(at)) => self.prev(at),
            (Move::FirstValue, Some((key, _))) => self.forward_from(Gap::Before(key, &[])),
            (Move::LastValue, Some((key, _))) => self.backward_from(Gap::AfterKey(key)),
            (Move::NextValue | Move::PrevValue, Some(at)) => {
                let moved = if to == Move::NextValue { self.next(at) } else { self.prev(at) }?;
                let found = moved.filter(|(key, _)| *key == at.0);
                if found.is_none() {
                    // The cursor stays, and the next entries are those after the other key's.
                    (self.at, self.direction) = (Some(at), None);
                }
                Ok(found)
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Found<'s> {
        if key.is_empty() {
            return Ok(None);
        }
        let found = self.forward_from(Gap::Before(key, &[]))?;
        Ok(found.filter(|(found, _)| *found == key))
    }

    fn values(&mut self) -> Result<u64, Error> {
        let Some(at) = self.at else { return Ok(0) };
        if !self.has_values {
            return Ok(1);
        }
        let mut values = 0;
        let mut found = self.step(Move::FirstValue)?;
        while found.is_some() {
            values += 1;
            found = self.step(Move::NextValue)?;
        }
        (self.at, self.direction) = (Some(at), None);
        Ok(values)
    }

    fn next(&mut self, at: Entry<'s>) -> Found<'s> {
        match self.direction {
            Some(Direction::Forward) => self.advance(Direction::Forward),
            _ => self.forward_from(Gap::After(at.0, self.sorted_by(at))),
        }
    }

    fn prev(&mut self, at: Entry<'s>) -> Found<'s> {
        match self.direction {
            Some(Direction::Backward) => self.advance(Direction::Backward),
            _ => self.backward_from(Gap::Before(at.0, self.sorted_by(at))),
        }
    }

    fn sorted_by<'e>(&self, (_, value): Entry<'e>) -> &'e [u8] {
        if self.has_values { value } else { &[] }
    }

    fn forward_from(&mut self, gap: Gap<'_>) -> Found<'s> {
        self.go_from(gap, Direction::Forward)
    }

    fn backward_from(&mut self, gap: Gap<'_>) -> Found<'s> {
        self.go_from(gap, Direction::Backward)
    }

    /// Moves from a gap to the first entry in a direction.
    fn go_from(&mut self, gap: Gap<'_>, direction: Direction) -> Found<'s> {
        let is_forward = direction == Direction::Forward;
        match gap {
            Gap::Start => self.memory.go_first(),
            Gap::Before(key, value) | Gap::After(key, value) => {
                self.memory.seek(key, value, is_forward);
            }
            Gap::AfterKey(key) => self.memory.seek(&successor(key), &[], is_forward),
            Gap::End => self.memory.go_last(),
        }
        let mut change = self.memory.step();
        if let Gap::After(key, value) = gap
            && change.is_some_and(|change| is_at(change, key, value))
        {
            change = self.memory.step();
        }
        let entry = match &mut self.engine {
            Some(engine) => match first_after(engine, gap)? {
                found if is_forward => found,
                Some(_) => engine.step(Move::Prev)?,
                // No entry after the gap: the last one is before it.
                None => engine.step(Move::Last)?,
            },
            None => None,
        };
        (self.next, self.direction) = ((change, entry), Some(direction));
        self.advance(direction)
    }

    /// Takes the next entry that counts in the direction of the last move.
    fn advance(&mut self, direction: Direction) -> Found<'s> {
        let (step, step_key) = match direction {
            Direction::Forward => (Move::Next, Move::NextKey),
            Direction::Backward => (Move::Prev, Move::PrevKey),
        };
        loop {
            let (change, entry) = self.next;
            let entry_key = entry.map(|entry| (entry.0, self.sorted_by(entry)));
            let change_key = change.map(|change| {
                let (_, key, value) = change.sort_key();
                (key, value)
            });
            let takes_change = match (change_key, entry_key) {
                (None, None) => {
                    self.at = None;
                    return Ok(None);
                }
                (Some(change), Some(entry)) => match direction {
                    Direction::Forward => change <= entry,
                    Direction::Backward => change >= entry,
                },
                (change, _) => change.is_some(),
            };
            let next = if takes_change { change_key } else { entry_key };
            if direction == Direction::Forward && next.is_some_and(|(key, _)| self.is_behind(key)) {
                self.at = None;
                return Ok(None);
            }
            if takes_change {
                if change_key == entry_key {
                    self.next.1 = self.step_engine(step)?;
                }
                self.next.0 = self.memory.step();
                if let Some(change) = change.filter(|change| change.operation.puts()) {
                    self.at = Some((change.key, change.value));
                    return Ok(self.at);
                }
            } else if let Some((key, _)) = entry {
                if self.has_values && self.memory.hides_older(key) {
                    self.next.1 = self.step_engine(step_key)?;
                    continue;
                }
                self.next.1 = self.step_engine(step)?;
                self.at = entry;
                return Ok(entry);
            }
        }
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Unbounded => false,
            Bound::Included(end) => key > &**end,
            Bound::Excluded(end) => key >= &**end,
        }
    }

    fn step_engine(&mut self, to: Move) -> Found<'s> {
        self.engine.as_mut().map_or(Ok(None), |engine| engine.step(to))
    }
}

/// Moves LMDB's cursor to the first entry after a gap.
fn first_after<'s>(engine: &mut lmdb::Cursor<'s>, gap: Gap<'_>) -> Found<'s> {
    let first_of = |engine: &mut lmdb::Cursor<'s>, key: &[u8], value: &[u8]| {
        if !value.is_empty()
            && let Some(found) = engine.seek_pair_range(key, value)?
        {
            return Ok(Some(found));
        }
        match engine.seek_range(key)? {
            // All values of the key are below.
            Some((found, _)) if found == key && !value.is_empty() => engine.step(Move::NextKey),
            found => Ok(found),
        }
    };
    match gap {
        Gap::Start => engine.step(Move::First),
        Gap::End => Ok(None),
        Gap::Before(key, value) => first_of(engine, key, value),
        Gap::After(key, value) => match first_of(engine, key, value)? {
            Some(found) if found.0 == key && (value.is_empty() || found.1 == value) => {
                engine.step(Move::Next)
            }
            found => Ok(found),
        },
        Gap::AfterKey(key) => match engine.seek_range(key)? {
            Some((found, _)) if found == key => engine.step(Move::NextKey),
            found => Ok(found),
        },
    }
}

/// Returns the first key above a key, which may be longer than keys are.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn is_at(change: Change<'_>, key: &[u8], value: &[u8]) -> bool {
    let (_, found_key, found_value) = change.sort_key();
    (found_key, found_value) == (key, value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::claim::Claim;
    use crate::disk::lmdb::{Env, Make, Put, Settings, WriteTxn};
    use crate::memtable::change::Operation;
    use crate::memtable::{Layers, Memtable, encoded};
    use crate::table::Table;

    fn open(claim: &Claim) -> Arc<Env> {
        let settings = Settings {
            map_bytes: 1 << 24,
            readers_max: 8,
            tables_max: 8,
            no_sync: true,
            write_map: false,
            no_read_ahead: false,
            is_foreign: false,
            platform: Default::default(),
        };
        Env::open(claim, &settings).unwrap().0
    }

    fn apply(txn: &mut WriteTxn<'_>, table: Table, change: &Change<'_>) {
        let Change { operation, key, value, .. } = *change;
        if operation == Operation::Clear {
            return txn.clear(table).unwrap();
        }
        let mut cursor = txn.cursor_mut(table).unwrap();
        match operation {
            Operation::Put | Operation::PutValue => cursor.put(key, value, Put::Over),
            Operation::Delete => cursor.delete(key, false),
            Operation::DeleteValue => cursor.delete_value(key, value),
            _ => cursor.delete(key, true),
        }
        .unwrap();
    }

    fn change(random: &mut fastrand::Rng, table: Table, has_values: bool) -> Change<'static> {
        use Operation::{Clear, Delete, DeleteAll, DeleteValue, PutValue};
        let key = random.choice([&b"a"[..], b"b", b"b\0", b"c", b"cc", b"d", b"e"]).unwrap();
        let value = random.choice([&b"1"[..], b"2", b"3", b"33"]).unwrap();
        let (operation, key, value) = match (random.u8(..40), has_values) {
            (0, _) => (Clear, &b""[..], &b""[..]),
            (1..15, false) => (Delete, key, &b""[..]),
            (_, false) => (Operation::Put, key, value),
            (1..5, true) => (DeleteAll, key, &b""[..]),
            (5..15, true) => (DeleteValue, key, value),
            (_, true) => (PutValue, key, value),
        };
        Change { operation, table, key, value }
    }

    #[test]
    fn the_cursor_moves_as_lmdbs_own_does_after_the_changes() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::to_write(directory.path()).unwrap();
        let env = open(&claim);
        let mut random = fastrand::Rng::with_seed(1);
        for has_values in [false, true] {
            let make = |name: &str| {
                let name = format!("{name} {has_values}");
                env.make_table(&name, Make { duplicates: has_values }, |_| Ok(())).unwrap()
            };
            let (below, after) = (make("below"), make("after"));
            let kind = if has_values { Kind::Duplicates } else { Kind::Plain };
            for _ in 0..200 {
                let mut txn = env.begin_write().unwrap();
                txn.clear(below).unwrap();
                txn.clear(after).unwrap();
                for _ in 0..random.usize(..20) {
                    let change = change(&mut random, below, has_values);
                    apply(&mut txn, below, &change);
                    apply(&mut txn, after, &change);
                }
                let mut memtables: Vec<Arc<Memtable>> = Vec::new();
                let mut upto = 0;
                for _ in 0..random.usize(..3) {
                    let memtable = Memtable::new(16, 0);
                    let changes: Vec<_> = (0..random.usize(..20))
                        .map(|_| change(&mut random, below, has_values))
                        .collect();
                    changes.iter().for_each(|change| apply(&mut txn, after, change));
                    memtable.add(upto + 1, encoded(&changes));
                    upto += changes.len() as u64;
                    memtables.insert(0, Arc::new(memtable));
                }
                txn.commit().unwrap();

                let txn = env.begin_read().unwrap();
                let layers = Layers { memtables: memtables.into(), after: 0, upto };
                let table_ref = TableRef { table: below, kind };
                let engine = || txn.cursor(below).map(Some);
                let mut merged = Cursor::new(table_ref, layers.walk(below), engine).unwrap();
                let mut plain = Cursor::Plain(txn.cursor(after).unwrap());
                compare(&mut random, &mut merged, &mut plain, has_values);
            }
        }
    }

    /// Moves two cursors in the same way, and expects the same entries.
    fn compare(
        random: &mut fastrand::Rng,
        one: &mut Cursor<'_>,
        other: &mut Cursor<'_>,
        has_values: bool,
    ) {
        use Move::*;
        let moves = [First, Last, Next, Next, Prev, Prev, Current, NextKey, PrevKey];
        let of_values = [FirstValue, LastValue, NextValue, PrevValue];
        let mut is_placed = false;
        for _ in 0..100 {
            let key = random.choice([&b"a"[..], b"b", b"b\0", b"bb", b"c", b"d", b"f"]).unwrap();
            let value = random.choice([&b"1"[..], b"2", b"22", b"4"]).unwrap();
            let index = random.usize(..moves.len() + of_values.len() + 4);
            let found = match index {
                _ if !is_placed => [one.step(First), other.step(First)],
                0..9 => [one.step(moves[index]), other.step(moves[index])],
                9..13 if has_values => {
                    [one.step(of_values[index - 9]), other.step(of_values[index - 9])]
                }
                13 => [one.seek(key), other.seek(key)],
                14 if has_values => {
                    [one.seek_pair_range(key, value), other.seek_pair_range(key, value)]
                }
                15 if has_values => {
                    assert_eq!(one.values().unwrap(), other.values().unwrap());
                    continue;
                }
                _ => [one.seek_range(key), other.seek_range(key)],
            };
            let [found, expected] = found.map(Result::unwrap);
            assert_eq!(found, expected);
            // Without an entry, the next move starts over.
            let is_within = matches!(index, 11 | 12) && has_values && is_placed;
            is_placed = found.is_some() || is_within;
        }
    }

    #[test]
    fn a_table_that_the_transaction_does_not_know_is_empty() {
        let (table, kind) = (Table(1), Kind::Checked);
        let memtable = Memtable::new(2, 0);
        let mut layers = Layers::of(memtable);
        let cursor = Cursor::new(TableRef { table, kind }, layers.walk(table), || Ok(None));
        let mut cursor = cursor.unwrap();
        assert_eq!(cursor.step(Move::First).unwrap(), None);
        assert_eq!(cursor.seek_range(b"a").unwrap(), None);
        drop(cursor);
        let change = Change { operation: Operation::Put, table, key: b"a", value: b"1" };
        layers.memtables[0].add(1, encoded(&[change]));
        layers.upto = 1;
        let cursor = Cursor::new(TableRef { table, kind }, layers.walk(table), || Ok(None));
        let mut cursor = cursor.unwrap();
        assert_eq!(cursor.step(Move::Last).unwrap(), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(cursor.step(Move::Next).unwrap(), None);
    }

    #[test]
    fn a_bounded_cursor_passes_over_no_deleted_keys_behind_its_end() {
        let (table, kind) = (Table(1), Kind::Checked);
        let keys: Vec<_> = (0..2_000u16).map(u16::to_be_bytes).collect();
        let delete = |key| Change { operation: Operation::Delete, table, key, value: b"" };
        let deletions: Vec<_> = keys.iter().map(|key| delete(&key[..])).collect();
        for (end, is_tiresome) in [
            (Bound::Excluded(keys[500].into()), false),
            (Bound::Included(keys[500].into()), false),
            (Bound::Unbounded, true),
        ] {
            let memtable = Memtable::new(2, 0);
            memtable.add(1, encoded(&deletions));
            let layers = Layers::of(memtable);
            let cursor = Cursor::new(TableRef { table, kind }, layers.walk(table), || Ok(None));
            let mut cursor = cursor.unwrap();
            cursor.end_at(&end);
            assert_eq!(cursor.seek_range(&keys[10]).unwrap(), None);
            assert_eq!(layers.memtables[0].is_tiresome(), is_tiresome, "{end:?}");
        }
    }
}
