//! Conversion of a store of layout 1 to the present layout, when a node opens it.
//!
//! | key in layout 1                              | becomes                                    |
//! |----------------------------------------------|--------------------------------------------|
//! | `0x00` kind                                  | the count of the kind                      |
//! | `n` kind `l` key `0x00`                      | the state                                  |
//! | `n` kind `l` key `0x01` cell key             | the cell, in the map with the empty name   |
//!
//! `n` (1 to 64) and `l` (1 to 255) are the lengths of the parts after them, a byte each; the values stay as
//! they are. Each batch moves some records, so a conversion that is interrupted goes on at the next start.

use std::ops::Bound;
use std::sync::Arc;

use throng_store::{Batch, OpenError, ReadError, Store};

use crate::catalogue::{Catalogue, Numbered};
use crate::keeper::Keeper;
use crate::layout::{self, STATE_KEY_BYTES_MAX};

/// Most records of a batch.
const RECORDS: usize = 1024;
/// Bytes of values at which a batch ends.
const BYTES: usize = 1 << 20;

/// A record of layout 1.
enum Old<'k> {
    Count { kind: &'k str },
    State { kind: &'k str, key: &'k str },
    Cell { kind: &'k str, key: &'k str, cell: &'k [u8] },
}

/// Error of a conversion.
#[derive(Debug, thiserror::Error)]
enum ConversionError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("its records could not be converted to the present layout: {0}")]
    Write(#[from] throng_store::WriteError),
    #[error("it has a record with the key {0:?}, which no layout has")]
    Unknown(Vec<u8>),
}

/// Checks the layout of a store, converts an older one, and reads the catalogue and the pins.
pub(crate) fn open(
    store: &Store,
    path: &std::path::Path,
) -> Result<(Catalogue, Keeper), OpenError> {
    let converted = || {
        let snapshot = store.snapshot()?;
        let version = snapshot.get(layout::LAYOUT)?.and_then(|version| version.try_into().ok());
        let version = version.map_or(layout::VERSION, u16::from_le_bytes);
        let catalogue = Catalogue::read(&snapshot)?;
        let keeper = Keeper::read(&snapshot)?;
        drop(snapshot);
        if version <= layout::VERSION {
            convert(store, &catalogue)?;
        }
        Ok((version, (catalogue, keeper)))
    };
    let path = || path.into();
    match converted() {
        Ok((found, _)) if found > layout::VERSION => {
            let (found, known) = (found.into(), layout::VERSION.into());
            Err(OpenError::Format { path: path(), found, known })
        }
        Ok((_, read)) => Ok(read),
        Err(ConversionError::Read(ReadError::Corrupt(reason))) => {
            Err(OpenError::Corrupt { path: path(), reason })
        }
        Err(ConversionError::Read(ReadError::Io(source))) => {
            Err(OpenError::Io { path: path(), source })
        }
        Err(error @ ConversionError::Unknown(_)) => {
            Err(OpenError::Corrupt { path: path(), reason: error.to_string() })
        }
        Err(error) => Err(OpenError::Io { path: path(), source: std::io::Error::other(error) }),
    }
}

/// Moves all records of layout 1.
fn convert(store: &Store, catalogue: &Catalogue) -> Result<(), ConversionError> {
    let mut moved = 0;
    loop {
        let snapshot = store.snapshot()?;
        let mut batch = Batch::new();
        let (mut records, mut bytes) = (0, 0);
        for entry in snapshot.range((Bound::Unbounded, Bound::Excluded(&[layout::FIRST][..]))) {
            let (key, value) = entry?;
            let old = parse(key).ok_or_else(|| ConversionError::Unknown(key.to_vec()))?;
            let (new, names) =
                renamed(&old, catalogue).ok_or_else(|| ConversionError::Unknown(key.to_vec()))?;
            batch = batch.put(new, value).delete(key);
            for name in names.into_iter().flatten().filter(|name| !name.is_stored()) {
                batch = name.put_in(batch);
            }
            records += 1;
            bytes += value.len();
            if records == RECORDS || bytes >= BYTES {
                break;
            }
        }
        drop(snapshot);
        if records == 0 {
            break;
        }
        store.write(batch).wait()?;
        if moved == 0 {
            tracing::warn!("the store has an older layout and is converted");
        }
        moved += records;
    }
    if moved > 0 {
        tracing::warn!(records = moved, "the store was converted");
    }
    Ok(())
}

type Names = [Option<Arc<Numbered>>; 2];

/// Returns the key of a record in the present layout, and the names whose numbers it has; `None` if there are
/// no more numbers.
fn renamed(old: &Old<'_>, catalogue: &Catalogue) -> Option<(Vec<u8>, Names)> {
    let (Old::Count { kind } | Old::State { kind, .. } | Old::Cell { kind, .. }) = *old;
    let numbered = catalogue.kind(kind)?;
    let number = numbered.number();
    let mut buffer = [0; STATE_KEY_BYTES_MAX];
    Some(match *old {
        Old::Count { .. } => (layout::count(number).to_vec(), [Some(numbered), None]),
        Old::State { key, .. } => {
            let state = layout::state_key(number, key, &mut buffer).ok()?;
            (state.to_vec(), [Some(numbered), None])
        }
        Old::Cell { key, cell, .. } => {
            let map = catalogue.map(kind, "")?;
            let state = layout::state_key(number, key, &mut buffer).ok()?;
            let cell = [&layout::map(state, map.number()), cell].concat();
            (cell, [Some(numbered), Some(map)])
        }
    })
}

/// Parses a key of layout 1.
fn parse(key: &[u8]) -> Option<Old<'_>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (&length, rest) = key.split_first()?;
    if length == 0 {
        return Some(Old::Count { kind: text(rest)? });
    }
    let (kind, rest) = rest.split_at_checked(length.into())?;
    let (&length, rest) = rest.split_first()?;
    let (key, rest) = rest.split_at_checked(length.into())?;
    let (kind, key) = (text(kind)?, text(key)?);
    match rest.split_first()? {
        (0, []) => Some(Old::State { kind, key }),
        (1, cell) => Some(Old::Cell { kind, key, cell }),
        _ => None,
    }
}
