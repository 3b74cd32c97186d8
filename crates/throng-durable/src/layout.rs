//! Layout of a node's records in the store.
//!
//! | key                                          | value                                      |
//! |----------------------------------------------|--------------------------------------------|
//! | `L`                                          | version of this layout (`u16`)             |
//! | `K` kind                                     | number of the kind (`u16`)                 |
//! | `K` kind `0x00` map                          | number of a map of the kind's cells (`u16`) |
//! | `D` kind number                              | version (`u16`), then a shape of the kind's states |
//! | `D` kind `0x00` map number                   | 0 (`u16`), then a shape of the map's values |
//! | `M` kind `0x00` message                      | number of a message that the kind stores (`u16`) |
//! | `E` kind `0x00` message number               | version (`u16`), then a shape of the message |
//! | `Q` block                                    | nothing: sequence numbers of the block are given out |
//! | `N` *kind*                                   | number of stored entities of it (`i64`)    |
//! | `P` *kind* key                               | nothing: the entity is pinned              |
//! | `S` *kind* key                               | number of its shape, then state            |
//! | `C` *kind* `n` key *map* cell key            | number of its shape, then the cell's value |
//! | `I` *kind* `n` key sequence                  | a message that waits for the entity: its number, number of its shape, then the message |
//! | `A` *kind* `n` key sequence                  | the failed attempts to handle that message |
//! | `X` *kind* `n` key sequence                  | a parked message: its failure, then as in `I` |
//! | `R` *kind* `n` key id                        | expiry (`u64`), grain (`u8`), number of its shape, then the reply to a call with this id |
//! | `Y` time *kind* `n` key                      | nothing: replies of the entity have expired by then |
//! | `T` *kind* `n` key reminder                  | schedule, time, then a message as in `I`, which comes at that time |
//! | `U` *kind* clock time key                    | nothing: the earliest reminder of the entity by this clock |
//! | `F` kind `0x00` index                        | number of an index of the kind (`u16`)     |
//! | `G` kind `0x00` number index                 | number of an index that is being deleted (`u16`) |
//! | `H` *kind* *index*                           | how far the index is built                 |
//! | `B` *kind* *index* index key, key            | nothing: the entity has this key in the index |
//!
//! Tables that grow at their ends, or that others lie behind, have databases of their own in the store; see
//! [`tables`](crate::tables). All others are in its default database, where the states are the last ones.
//!
//! *kind* and *map* are the numbers of the two names, two bytes each, big endian; `n` is the length of the
//! key, a byte. Numbers in values are little endian. So the states of a kind are in the order of their
//! keys, with nothing between them, and the cells of an entity are adjacent, by maps and in the order of
//! their own keys. States and cell values are encoded with postcard, as are shapes and, before a state or a
//! cell value, the number of its shape: a byte, up to 127. An index is its name, `0x00`, whether it is unique (a byte)
//! and the version of the states (two bytes, big endian); `index.rs` tells why, and `index/key.rs` has the encoding of
//! index keys. In the key of a shape the number has two bytes, big
//! endian. Blocks, sequence numbers and expiries in keys have eight bytes, times six, big endian.
//!
//! The longest cell key has to fit the store: 1 + 2 + 1 + 255 + 2 bytes leave 250 for its own part.

use throng_store::KEY_BYTES_MAX;

use crate::KeyError;

/// Maximum length of a [`KIND`](crate::Durable::KIND), in bytes.
pub const KIND_BYTES_MAX: usize = 64;

/// Maximum length of an entity's key, in bytes.
pub const ENTITY_KEY_BYTES_MAX: usize = 255;

/// Maximum length of the name of a map of cells, in bytes.
pub const MAP_NAME_BYTES_MAX: usize = 64;

/// Maximum length of a cell's key, in bytes.
pub const CELL_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - (1 + 2 + 1 + ENTITY_KEY_BYTES_MAX + 2);

/// Maximum length of an encoded key of an index, in bytes.
pub(crate) const INDEX_ENCODED_BYTES_MAX: usize =
    KEY_BYTES_MAX - (INDEX_PREFIX_BYTES + ENTITY_KEY_BYTES_MAX);

/// Maximum length of a text or of bytes in an [index](crate::Index), in bytes, of which zero bytes count twice.
pub const INDEX_KEY_BYTES_MAX: usize = INDEX_ENCODED_BYTES_MAX - 3;

/// Version of the layout.
pub(crate) const VERSION: u16 = 2;

/// Key of the version.
pub(crate) const LAYOUT: &[u8] = b"L";

/// Common prefix of the records of the catalogue.
pub(crate) const CATALOGUE: &[u8] = b"K";

/// Common prefix of the records of shapes.
pub(crate) const SHAPES: &[u8] = b"D";

/// Common prefix of the names of stored messages.
pub(crate) const MESSAGES: &[u8] = b"M";

/// Common prefix of the records of shapes of stored messages.
pub(crate) const MESSAGE_SHAPES: &[u8] = b"E";

/// Common prefix of the records of blocks of sequence numbers.
pub(crate) const BLOCKS: &[u8] = b"Q";

/// Common prefix of the names of indexes.
pub(crate) const INDEXES: &[u8] = b"F";

/// Common prefix of the records of indexes that are being deleted.
pub(crate) const GONE_INDEXES: &[u8] = b"G";

/// Common prefix of the records of pins.
pub(crate) const PINS: &[u8] = b"P";

/// Common prefix of the records of cells.
pub(crate) const CELLS: &[u8] = b"C";

const COUNT: u8 = b'N';
const PIN: u8 = PINS[0];
const STATE: u8 = b'S';
const CELL: u8 = CELLS[0];

/// Table of records of entities, each with a sequence number or an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    /// Messages that wait.
    Inbox = b'I',
    /// Failed attempts to handle them.
    Attempts = b'A',
    /// Parked messages.
    Parked = b'X',
    /// Stored replies.
    Replies = b'R',
    /// Reminders.
    Reminders = b'T',
}

/// Length of the key of a state without the entity's own key.
const STATE_PREFIX_BYTES: usize = 3;

/// Length of the longest key of a state.
pub(crate) const STATE_KEY_BYTES_MAX: usize = STATE_PREFIX_BYTES + ENTITY_KEY_BYTES_MAX;

/// Returns the key of the count of a kind.
pub(crate) fn count(kind: u16) -> [u8; 3] {
    prefix_of(COUNT, kind)
}

/// Returns the common prefix of the keys of a kind's states.
pub(crate) fn states(kind: u16) -> [u8; 3] {
    prefix_of(STATE, kind)
}

/// Returns the common prefix of the keys of all cells of a kind.
pub(crate) fn cells_of_kind(kind: u16) -> [u8; 3] {
    prefix_of(CELL, kind)
}

fn prefix_of(table: u8, kind: u16) -> [u8; STATE_PREFIX_BYTES] {
    let [high, low] = kind.to_be_bytes();
    [table, high, low]
}

/// Writes the key of an entity's state into a buffer for it, and returns it.
pub(crate) fn state_key<'b>(
    kind: u16,
    key: &str,
    buffer: &'b mut [u8; STATE_KEY_BYTES_MAX],
) -> Result<&'b [u8], KeyError> {
    match key.len() {
        0 => return Err(KeyError::Empty),
        bytes if bytes > ENTITY_KEY_BYTES_MAX => {
            return Err(KeyError::TooLong { bytes, bytes_max: ENTITY_KEY_BYTES_MAX });
        }
        _ => {}
    }
    let end = STATE_PREFIX_BYTES + key.len();
    buffer[..STATE_PREFIX_BYTES].copy_from_slice(&states(kind));
    buffer[STATE_PREFIX_BYTES..end].copy_from_slice(key.as_bytes());
    Ok(&buffer[..end])
}

/// Returns the number of the kind in the key of a record that begins with it.
pub(crate) fn kind_of(record: &[u8]) -> u16 {
    u16::from_be_bytes([record[1], record[2]])
}

/// Returns the entity's own key, a part of the key of its state.
pub(crate) fn own_key(state_key: &[u8]) -> &[u8] {
    &state_key[STATE_PREFIX_BYTES..]
}

/// Returns the key of the record that pins an entity, from the key of its state.
pub(crate) fn pin(state_key: &[u8]) -> Vec<u8> {
    [&[PIN], &state_key[1..]].concat()
}

/// Returns the number of the kind and the key of the state of an entity that is pinned by the record with this key;
/// `None` if no entity is.
pub(crate) fn state_key_of_pin(record: &[u8]) -> Option<(u16, Box<[u8]>)> {
    let (&[PIN, high, low], key) = record.split_first_chunk()? else { return None };
    let kind = u16::from_be_bytes([high, low]);
    let mut buffer = [0; STATE_KEY_BYTES_MAX];
    let key = std::str::from_utf8(key).ok()?;
    Some((kind, state_key(kind, key, &mut buffer).ok()?.into()))
}

/// Returns the common prefix of the keys of an entity's cells, from the key of its state.
pub(crate) fn cells(state_key: &[u8]) -> Vec<u8> {
    of_entity(CELL, state_key)
}

fn of_entity(table: u8, state_key: &[u8]) -> Vec<u8> {
    let key = own_key(state_key);
    // A key's length fits a byte.
    let table = [table, state_key[1], state_key[2], key.len() as u8];
    [&table, key].concat()
}

/// Returns the common prefix of the keys of a table's records of a kind.
pub(crate) fn table_of_kind(table: Table, kind: u16) -> [u8; 3] {
    prefix_of(table as u8, kind)
}

/// Returns the common prefix of the keys of a table's records of an entity.
pub(crate) fn table_of(table: Table, state_key: &[u8]) -> Vec<u8> {
    of_entity(table as u8, state_key)
}

/// Returns the key of the record with an id in a table.
pub(crate) fn record(table: Table, state_key: &[u8], id: &str) -> Vec<u8> {
    let mut key = table_of(table, state_key);
    key.extend_from_slice(id.as_bytes());
    key
}

/// Returns the key of a message in a table.
pub(crate) fn entry(table: Table, state_key: &[u8], sequence: u64) -> Vec<u8> {
    let mut key = table_of(table, state_key);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// Returns the key of the state of the entity and the sequence number of a message, from its key in a table; `None` if
/// no message has such a key.
pub(crate) fn state_key_of_entry(record: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (&[_, high, low, length], rest) = record.split_first_chunk()?;
    let (key, sequence) = rest.split_at_checked(length.into())?;
    let key = [&[STATE, high, low], std::str::from_utf8(key).ok()?.as_bytes()].concat();
    Some((key, u64::from_be_bytes(sequence.try_into().ok()?)))
}

/// Returns the common prefix of a table's records of an entity, from the key of one of them; `None` if no record has such
/// a key.
pub(crate) fn table_of_record(record: &[u8]) -> Option<&[u8]> {
    record.get(..4 + usize::from(*record.get(3)?))
}

/// Returns the key of the entity of a record of a table; `None` if no record has such a key.
pub(crate) fn key_of_record(record: &[u8]) -> Option<&[u8]> {
    let (&[_, _, _, length], rest) = record.split_first_chunk()?;
    rest.get(..length.into())
}

/// Common prefix of the records of expiries.
pub(crate) const EXPIRIES: &[u8] = b"Y";

/// Returns the key of the record that tells of replies that have expired by a time, in milliseconds since 1970, from the
/// common prefix of the entity's replies.
pub(crate) fn expiry(time_ms: u64, replies: &[u8]) -> Vec<u8> {
    [EXPIRIES, &time_ms.to_be_bytes(), replies.get(1..).unwrap_or_default()].concat()
}

/// Returns the time of the record of an expiry.
pub(crate) fn time_of_expiry(expiry: &[u8]) -> Option<u64> {
    let (time, _) = expiry.strip_prefix(EXPIRIES)?.split_first_chunk()?;
    Some(u64::from_be_bytes(*time))
}

/// Returns the common prefix of the replies of which the record of an expiry tells.
pub(crate) fn replies_of_expiry(expiry: &[u8]) -> Option<Vec<u8>> {
    let (_, entity) = expiry.strip_prefix(EXPIRIES)?.split_first_chunk::<8>()?;
    Some([&[Table::Replies as u8], entity].concat())
}

const DUE: u8 = b'U';

/// Bytes of a time in a key, in milliseconds since 1970.
const TIME_BYTES: usize = 6;

/// Returns the common prefix of the keys of the times of a kind's reminders by a clock.
pub(crate) fn due_of_kind(kind: u16, clock: u8) -> [u8; 4] {
    let [table, high, low] = prefix_of(DUE, kind);
    [table, high, low, clock]
}

/// Returns the first key of the reminders of a kind that are due at a time or later, by a clock.
pub(crate) fn due_from(kind: u16, clock: u8, time: u64) -> Vec<u8> {
    // The last time that has a key is 8,900 years from 1970.
    let [_, _, time @ ..] = time.min((1 << (8 * TIME_BYTES)) - 1).to_be_bytes();
    [&due_of_kind(kind, clock)[..], &time].concat()
}

/// Returns the key of the time of an entity's earliest reminder by a clock.
pub(crate) fn due(state_key: &[u8], clock: u8, time: u64) -> Vec<u8> {
    let mut due = due_from(kind_of(state_key), clock, time);
    due.extend_from_slice(own_key(state_key));
    due
}

/// Returns the time and the key of the state of the entity that has the record of a time; `None` if no entity has.
pub(crate) fn state_key_of_due(record: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (&[DUE, high, low, _], rest) = record.split_first_chunk()? else { return None };
    let (time, key) = rest.split_first_chunk::<TIME_BYTES>()?;
    let key = std::str::from_utf8(key).ok()?;
    let time = time.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
    Some((time, [&[STATE, high, low], key.as_bytes()].concat()))
}

const ENTRY: u8 = b'B';
const BUILT: u8 = b'H';

/// Length of the key of an entry of an index without the keys of index and entity.
const INDEX_PREFIX_BYTES: usize = 5;

/// Returns the common prefix of the entries of a kind's indexes.
pub(crate) fn entries_of_kind(kind: u16) -> [u8; 3] {
    prefix_of(ENTRY, kind)
}

/// Returns the common prefix of the entries of an index.
pub(crate) fn entries(kind: u16, index: u16) -> [u8; INDEX_PREFIX_BYTES] {
    in_index(ENTRY, kind, index)
}

/// Returns the key of the record that tells how far an index is built.
pub(crate) fn built(kind: u16, index: u16) -> [u8; INDEX_PREFIX_BYTES] {
    in_index(BUILT, kind, index)
}

/// Returns the common prefix of these records of a kind.
pub(crate) fn built_of_kind(kind: u16) -> [u8; 3] {
    prefix_of(BUILT, kind)
}

fn in_index(table: u8, kind: u16, index: u16) -> [u8; INDEX_PREFIX_BYTES] {
    let ([table, a, b], [c, d]) = (prefix_of(table, kind), index.to_be_bytes());
    [table, a, b, c, d]
}

/// Returns the keys of index and entity in the key of an entry, both encoded.
pub(crate) fn keys_of_index_entry(entry: &[u8]) -> &[u8] {
    entry.get(INDEX_PREFIX_BYTES..).unwrap_or_default()
}

/// Returns the key of the record of a block of sequence numbers.
pub(crate) fn block(number: u64) -> Vec<u8> {
    [BLOCKS, &number.to_be_bytes()].concat()
}

/// Returns the common prefix of the keys of the cells in a map.
pub(crate) fn map(state_key: &[u8], map: u16) -> Vec<u8> {
    let mut prefix = cells(state_key);
    prefix.extend_from_slice(&map.to_be_bytes());
    prefix
}

/// Returns the first key after all keys that begin with `prefix`, which has a byte other than `0xff`.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xff).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state_key_of(kind: u16, key: &str) -> Result<Vec<u8>, KeyError> {
        state_key(kind, key, &mut [0; STATE_KEY_BYTES_MAX]).map(<[u8]>::to_vec)
    }

    #[test]
    fn sizes_are_checked_at_their_edges() {
        assert_eq!(state_key_of(1, ""), Err(KeyError::Empty));
        let longest = "k".repeat(255);
        assert_eq!(own_key(&state_key_of(1, &longest).unwrap()), longest.as_bytes());
        let too_long = KeyError::TooLong { bytes: 256, bytes_max: 255 };
        assert_eq!(state_key_of(1, &"k".repeat(256)), Err(too_long));
    }

    #[test]
    fn the_longest_keys_just_fit_the_store() {
        let state = state_key_of(u16::MAX, &"k".repeat(ENTITY_KEY_BYTES_MAX)).unwrap();
        assert_eq!(map(&state, u16::MAX).len() + CELL_KEY_BYTES_MAX, KEY_BYTES_MAX);
        let reply = record(Table::Replies, &state, &"i".repeat(crate::ONCE_ID_BYTES_MAX));
        assert!(expiry(u64::MAX, &reply).len() <= KEY_BYTES_MAX);
        let entry =
            entries(u16::MAX, u16::MAX).len() + INDEX_ENCODED_BYTES_MAX + ENTITY_KEY_BYTES_MAX;
        assert_eq!(entry, KEY_BYTES_MAX);
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_its_keys() {
        assert_eq!(after(b"ab"), b"ac");
        assert_eq!(after(&[b'a', 0xff, 0xff]), b"b");
    }

    /// Numbers and keys that are easily confused with each other.
    fn entities() -> impl Strategy<Value = (u16, String)> {
        (prop_oneof![Just(1), Just(256), Just(257), Just(u16::MAX)], "[a\u{0}\u{1}\u{2}]{1,4}")
    }

    proptest! {
        #[test]
        fn no_two_entities_share_a_record_and_states_are_in_order(
            (kind, key) in entities(),
            (other_kind, other_key) in entities(),
            (number, other_number) in (0u16..3, 0u16..3),
            cell in prop::collection::vec(0u8..3, 0..4),
            other_cell in prop::collection::vec(0u8..3, 0..4),
        ) {
            let state = state_key_of(kind, &key).unwrap();
            let other = state_key_of(other_kind, &other_key).unwrap();
            prop_assert_eq!(state.cmp(&other), (kind, &key).cmp(&(other_kind, &other_key)));
            prop_assert_eq!(own_key(&state), key.as_bytes());

            let same = kind == other_kind && key == other_key;
            let stored = [map(&state, number), cell.clone()].concat();
            let other_stored = [map(&other, other_number), other_cell.clone()].concat();
            let same_cell = same && number == other_number && cell == other_cell;
            prop_assert_eq!(stored == other_stored, same_cell);
            prop_assert_eq!(state_key_of_pin(&pin(&state)), Some((kind, state.clone().into())));
            prop_assert!(pin(&state) != stored && pin(&state) != other);
            let entry = entry(Table::Inbox, &state, number.into());
            prop_assert_eq!(state_key_of_entry(&entry), Some((state.clone(), number.into())));
            prop_assert_eq!(entry.starts_with(&table_of(Table::Inbox, &other)), same);
            let reply_key = record(Table::Replies, &state, "id");
            let replies = table_of_record(&reply_key).unwrap();
            prop_assert!(reply_key.starts_with(&table_of(Table::Replies, &state)));
            let expires = expiry(number.into(), replies);
            prop_assert_eq!(replies_of_expiry(&expires), Some(replies.to_vec()));
            prop_assert_eq!(time_of_expiry(&expires), Some(number.into()));
            prop_assert_eq!(reply_key.starts_with(&table_of(Table::Replies, &other)), same);
            let due = due(&state, b's', number.into());
            prop_assert_eq!(state_key_of_due(&due), Some((number.into(), state.clone())));
            prop_assert!(due >= due_from(kind, b's', number.into()));
            prop_assert!(due < due_from(kind, b's', u64::from(number) + 1));
            prop_assert_eq!(record(Table::Reminders, &state, "id").starts_with(&table_of(Table::Reminders, &other)), same);
            let all = cells(&state);
            prop_assert!(stored.starts_with(&all) && stored < after(&all));
            prop_assert_eq!(other_stored.starts_with(&all), same);
        }
    }
}
