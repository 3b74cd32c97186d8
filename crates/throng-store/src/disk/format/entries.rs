//! The entries of the table `format` as bytes, without LMDB: for the checks that do not trust the file.

use crate::log::Point;
use crate::table::Kind;

pub(super) const FORMAT: &str = "format";
pub(crate) const ENTRIES: &str = "entries";
pub(crate) const VERSION_KEY: &[u8] = b"version";
pub(crate) const NAMES_KEY: &[u8] = b"names";
pub(crate) const STORE_KEY: &[u8] = b"store";
pub(crate) const APPLIED_KEY: &[u8] = b"applied";
pub(crate) const TABLES_KEY: &[u8] = b"tables";

/// Returns the stored names of the databases in the order of the list; `None` unless these and the
/// store's own tables are the `names`, which are in order.
pub(crate) fn listed(list: &[u8], names: &[String]) -> Option<Vec<String>> {
    let (listed, all) = parse_list(list)?;
    (all == names).then_some(listed)
}

/// Splits the list of the databases; also returns the names of all tables, in order.
fn parse_list(list: &[u8]) -> Option<(Vec<String>, Vec<String>)> {
    let listed = split(list)?;
    let own = [FORMAT.to_owned(), ENTRIES.to_owned()];
    let mut all = [&own, &listed[..]].concat();
    all.sort_unstable();
    Some((listed, all))
}

/// Returns the listed names of the databases, and the names of all tables, in order, if the stored checksum
/// is that of the list.
pub(crate) fn proved(list: &[u8], stored_sum: Option<&[u8]>) -> Option<(Vec<String>, Vec<String>)> {
    parse_list(list).filter(|(_, all)| stored_sum == Some(&names_sum(all, list)))
}

pub(super) fn split(list: &[u8]) -> Option<Vec<String>> {
    let list = std::str::from_utf8(list).ok()?;
    Some(list.split_terminator('\0').map(str::to_owned).collect())
}

pub(crate) const LIST_DAMAGED: &str = "the list of its databases differs from their names";

pub(crate) fn parse_applied(stored: Option<&[u8]>) -> Option<Point> {
    let (position, chain) = stored?.split_first_chunk()?;
    let chain = u32::from_le_bytes(chain.try_into().ok()?);
    let position = u64::from_le_bytes(*position);
    // No store gets there, and sums with a damaged number would overflow.
    (position < 1 << 63).then_some(Point { position, chain })
}

pub(crate) fn parse_store(stored: Option<&[u8]>) -> Option<u64> {
    stored?.try_into().ok().map(u64::from_le_bytes)
}

pub(crate) const POINT_DAMAGED: &str = "its id or its point of the log is missing";

pub(super) fn point_bytes(point: Point) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&point.position.to_le_bytes());
    bytes[8..].copy_from_slice(&point.chain.to_le_bytes());
    bytes
}

/// Returns the content of the table of that name: a database of some kind, or `Some(None)` for the
/// format. `None` if the table is foreign.
pub(crate) fn kind(stored: &str) -> Option<Option<Kind>> {
    match stored {
        FORMAT => Some(None),
        ENTRIES => Some(Some(Kind::Checked)),
        _ => Kind::of(stored).map(|(kind, _)| Some(kind)),
    }
}

/// Returns the checksum of the names of all tables, in their order, and of the list of the databases.
pub(crate) fn names_sum(names: &[String], list: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(list);
    hasher.finalize().to_le_bytes()
}

pub(crate) const NAMES_DAMAGED: &str = "the names of its databases have a wrong checksum";
