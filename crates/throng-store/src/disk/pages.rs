//! [`Walk`]: reads the data file page by page, without the engine, which trusts its file: a damaged page
//! can send the engine anywhere in memory. A walk compares every number with its bounds before it uses the
//! number. A [`check`] ends at the first damage; a salvage goes on with the next page (see `salvage.rs`).
//!
//! The file is a sequence of pages of the same size. Numbers are in the machine's byte order; a
//! *word* is as long as an address.
//!
//! | page     | content                                                                      |
//! |----------|------------------------------------------------------------------------------|
//! | all      | its number (a word), padding (2), its kind (2), then 4 bytes by kind         |
//! | meta     | pages 0 and 1: magic and version (4 each), two words, the trees of the free pages and of the names, the last page, the number of the commit (a word each) |
//! | branch   | lower and upper bound of its gap (2 each), offsets of nodes in order (2 each), the gap, nodes |
//! | leaf     | the same                                                                     |
//! | overflow | the number of pages it spans (4), then a value                               |
//!
//! A node has the length of its value (4), flags (2), the length of its key (2), the key, and the
//! value or the page where that begins. In a branch the first six bytes are the child's page. A
//! tree is described by padding (4), flags (2), depth (2), and in a word each the branch, leaf and
//! overflow pages, the entries, and the root.
//!
//! Checked properties: the newer of the two meta pages is valid, and the older belongs to the
//! commit before; each page is used or free at most once; a tree has the depth and the counts of
//! its description; keys ascend, within the bounds that the branches above set; each value matches
//! its checksum. Damage that is not detected: where there are no checksums, changed bytes that
//! leave the order intact, and a length that is wrong by one, because an odd length takes as much
//! room as the next even length; and a whole file restored to an earlier state.

mod meta;
mod walk;

use std::fs::File;
use std::path::Path;

use crate::KEY_BYTES_MAX;
use crate::disk::damage::{Damage, found};
use crate::disk::format::entries as format;
use crate::disk::record;
use crate::log::Point;
use meta::newest_meta;
pub(crate) use meta::{Meta, check_length, metas, rewrite_metas};
pub(crate) use walk::{Names, Visitor, Walk};

/// Result of a check of the data file, from [`Store::check`](crate::Store::check).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of the commit that the file shows.
    pub commit: u64,
    /// Number of entries in all databases; in databases with several values under a key, each value
    /// is an entry.
    pub entries: u64,
    /// Number of pages in use.
    pub pages_used: u64,
    /// Number of pages that the next commits will reuse.
    pub pages_free: u64,
    /// Number of pages that are neither in use nor free: wasted space, but no damage.
    pub pages_lost: u64,
}

/// Checks the whole file, to which no process may write meanwhile. Also returns the id of the store, and the
/// point of the log up to which the file has all changes.
pub(crate) fn check(path: &Path) -> Result<(CheckReport, u64, Point), Damage> {
    let file = File::open(path)?;
    let newest = newest_meta(&file)?;
    let mut walk = Walk::new(file, newest, Strict)?;
    let entries = walk.all()?;
    let stored = |key: &[u8]| walk.stored(key);
    let list = stored(format::TABLES_KEY).unwrap_or_default();
    if stored(format::NAMES_KEY) != Some(&format::names_sum(&walk.names, list)) {
        return Err(found(format::NAMES_DAMAGED));
    }
    if format::listed(list, &walk.names).is_none() {
        return Err(found(format::LIST_DAMAGED));
    }
    let store = format::parse_store(stored(format::STORE_KEY));
    let applied = format::parse_applied(stored(format::APPLIED_KEY));
    let (Some(store), Some(applied)) = (store, applied) else {
        return Err(found(format::POINT_DAMAGED));
    };
    let known = walk.pages_used + walk.free.len();
    let pages = newest.page_last.saturating_add(1);
    if newest.page_last > 1 && !walk.is_known(newest.page_last) || known > pages {
        return Err(found("the last page is not the last page in use"));
    }
    let report = CheckReport {
        commit: newest.commit as u64,
        entries,
        pages_used: walk.pages_used as u64,
        pages_free: walk.free.len() as u64,
        pages_lost: (pages - known) as u64,
    };
    Ok((report, store, applied))
}

struct Strict;

impl Visitor for Strict {
    fn lose(&mut self, _: Option<&[u8]>, _: Option<&[u8]>, damage: Damage) -> Result<(), Damage> {
        Err(damage)
    }
}

const WORD_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = WORD_BYTES + 8;
const NODE_BYTES: usize = 8;
const TREE_BYTES: usize = 8 + 5 * WORD_BYTES;
/// Offset of the descriptions of trees in a meta page.
const TREES_START: usize = HEADER_BYTES + 8 + 2 * WORD_BYTES;
const META_BYTES: usize = TREES_START + 2 * TREE_BYTES + 2 * WORD_BYTES;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;

/// Kind of a branch page; the kinds of the other pages follow.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;
/// Kind of a page inside a node: a leaf with several values.
const SUB_PAGE: u16 = 0x52;

/// Flag of a node whose value has pages of its own; the other flags of nodes follow.
const BIG: u16 = 0x01;
const TREE: u16 = 0x02;
const SEVERAL: u16 = 0x04;

/// Flag of a tree with several values under a key; the other flags of trees follow.
const WITH_SEVERAL: u16 = 0x04;
const INTEGER_KEYS: u16 = 0x08;

/// Page number that stands for the root of an empty tree.
const NOWHERE: usize = usize::MAX;
const DEPTH_MAX: u16 = 32;

/// A slice of a page; an access outside of it is damage.
#[derive(Clone, Copy)]
struct Piece<'p>(&'p [u8]);

impl<'p> Piece<'p> {
    fn bytes(self, start: usize, length: usize) -> Result<&'p [u8], Damage> {
        let end = start.checked_add(length);
        end.and_then(|end| self.0.get(start..end)).ok_or_else(|| found("a node leaves its page"))
    }

    fn array<const N: usize>(self, start: usize) -> Result<[u8; N], Damage> {
        let bytes = self.bytes(start, N)?;
        bytes.try_into().map_err(|_| found("a node leaves its page"))
    }

    fn u16(self, start: usize) -> Result<u16, Damage> {
        self.array(start).map(u16::from_ne_bytes)
    }

    fn u32(self, start: usize) -> Result<u32, Damage> {
        self.array(start).map(u32::from_ne_bytes)
    }

    fn word(self, start: usize) -> Result<usize, Damage> {
        self.array(start).map(usize::from_ne_bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tree {
    flags: u16,
    depth: u16,
    branches: usize,
    leaves: usize,
    overflows: usize,
    entries: usize,
    root: usize,
}

impl Tree {
    /// Reads the description of a tree, and the padding in front of it.
    fn read(piece: Piece<'_>, start: usize) -> Result<(Tree, u32), Damage> {
        let word = |index: usize| piece.word(start + 8 + index * WORD_BYTES);
        let tree = Tree {
            flags: piece.u16(start + 4)?,
            depth: piece.u16(start + 6)?,
            branches: word(0)?,
            leaves: word(1)?,
            overflows: word(2)?,
            entries: word(3)?,
            root: word(4)?,
        };
        Ok((tree, piece.u32(start)?))
    }

    /// Returns the description with all counts at zero, to be filled by the walk.
    fn begun(&self) -> Tree {
        Tree { branches: 0, leaves: 0, overflows: 0, entries: 0, ..*self }
    }
}

/// Type of the entries of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Lists of free pages, keyed by the number of the commit that freed them.
    Free,
    /// Descriptions of trees, keyed by name.
    Names,
    /// Values with checksums.
    Checked,
    /// The store's format entries; see `format`.
    Format,
    /// Arbitrary values.
    Plain,
    /// Several values under a key.
    Several,
    /// The several values of a key, as keys.
    Values,
}

struct Node<'p> {
    flags: u16,
    key: &'p [u8],
    value_bytes: usize,
    value: &'p [u8],
}

/// Child of a branch, and the bounds of its keys.
struct Child {
    page: usize,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

/// Checks that a value has its checksum, if it has one.
fn verify(key: &[u8], value: &[u8], content: Content) -> Result<(), Damage> {
    match content {
        Content::Checked => {
            record::value(key, value).map(drop).map_err(|error| found(error.to_string()))
        }
        _ => Ok(()),
    }
}

fn branch(
    page: Piece<'_>,
    content: Content,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Result<Vec<Child>, Damage> {
    let nodes = nodes(page, true)?;
    if nodes.len() < if content == Content::Free { 1 } else { 2 } {
        return Err(found("a branch has too few children"));
    }
    let mut children: Vec<Child> = Vec::with_capacity(nodes.len());
    for (index, start) in nodes.into_iter().enumerate() {
        let child = page.u32(start)? as usize;
        #[cfg(target_pointer_width = "64")]
        let child = child | (usize::from(page.u16(start + 4)?) << 32);
        let key = page.bytes(start + NODE_BYTES, page.u16(start + 6)?.into())?;
        // The first child has no lower bound of its own, whatever its key.
        let key = if index == 0 { low.map(<[u8]>::to_vec) } else { Some(sortable(key, content)?) };
        if let Some(before) = children.last_mut() {
            before.high = key.clone();
        }
        children.push(Child { page: child, low: key, high: high.map(<[u8]>::to_vec) });
    }
    let is_empty = |child: &Child| matches!(child, Child { low: Some(low), high: Some(high), .. } if low >= high);
    if children.iter().any(is_empty) {
        return Err(found("the keys of a branch are not in order"));
    }
    Ok(children)
}

fn leaf<'p>(
    page: Piece<'p>,
    content: Content,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Result<Vec<Node<'p>>, Damage> {
    let starts = nodes(page, false)?;
    if starts.is_empty() {
        return Err(found("a leaf is empty"));
    }
    let mut nodes = Vec::with_capacity(starts.len());
    let mut last: Option<Vec<u8>> = None;
    for start in starts {
        let node = node(page, start)?;
        if node.key.is_empty() || node.key.len() > KEY_BYTES_MAX {
            return Err(found("a key has an invalid length"));
        }
        let key = sortable(node.key, content)?;
        if last.is_some_and(|last| last >= key)
            || low.is_some_and(|low| *key < *low)
            || high.is_some_and(|high| *key >= *high)
        {
            return Err(found("the keys of a leaf are not in order"));
        }
        last = Some(key);
        nodes.push(node);
    }
    Ok(nodes)
}

/// Returns the offsets of the nodes of a page, in order. The nodes must fill the page from its gap
/// to the end.
fn nodes(page: Piece<'_>, is_branch: bool) -> Result<Vec<usize>, Damage> {
    let lower = usize::from(page.u16(WORD_BYTES + 4)?);
    let upper = usize::from(page.u16(WORD_BYTES + 6)?);
    let end = page.0.len();
    if lower < HEADER_BYTES || !lower.is_multiple_of(2) || lower > upper || upper > end {
        return Err(found("a page has an invalid gap"));
    }
    let mut starts = Vec::with_capacity((lower - HEADER_BYTES) / 2);
    let mut extents = Vec::with_capacity(starts.capacity());
    for offset in (HEADER_BYTES..lower).step_by(2) {
        let start = usize::from(page.u16(offset)?);
        let length = if is_branch {
            NODE_BYTES + usize::from(page.u16(start + 6)?)
        } else {
            let node = node(page, start)?;
            NODE_BYTES + node.key.len() + node.value.len()
        };
        starts.push(start);
        extents.push((start, start + length.next_multiple_of(2)));
    }
    extents.sort_unstable();
    let mut next = upper;
    for (start, end) in extents {
        if start != next {
            return Err(found("the nodes of a page are not contiguous"));
        }
        next = end;
    }
    // Pages with several values may have an odd length.
    if next.next_multiple_of(2) != end.next_multiple_of(2) {
        return Err(found("the nodes of a page do not fill it"));
    }
    Ok(starts)
}

fn node<'p>(page: Piece<'p>, start: usize) -> Result<Node<'p>, Damage> {
    let value_bytes = page.u32(start)? as usize;
    let flags = page.u16(start + 4)?;
    let key_bytes = usize::from(page.u16(start + 6)?);
    let key = page.bytes(start + NODE_BYTES, key_bytes)?;
    let stored_bytes = if flags & BIG != 0 { WORD_BYTES } else { value_bytes };
    let value = page.bytes(start + NODE_BYTES + key_bytes, stored_bytes)?;
    Ok(Node { flags, key, value_bytes, value })
}

fn described(node: &Node<'_>) -> Result<Tree, Damage> {
    if node.value.len() != TREE_BYTES {
        return Err(found("the description of a tree has another length"));
    }
    let (tree, padding) = Tree::read(Piece(node.value), 0)?;
    if padding == 0 { Ok(tree) } else { Err(found("a tree differs from its description")) }
}

/// Returns a form of the key whose byte order is the order of the keys.
fn sortable(key: &[u8], content: Content) -> Result<Vec<u8>, Damage> {
    if content != Content::Free {
        return Ok(key.to_vec());
    }
    let commit = <[u8; WORD_BYTES]>::try_from(key);
    let commit = commit.map_err(|_| found("the number of a commit has another length"))?;
    Ok(usize::from_ne_bytes(commit).to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::disk::DATA_FILE;
    use crate::disk::claim::Claim;
    use crate::disk::lmdb::{Env, Error, Make, Put};

    /// LMDB does not write pages that a transaction takes and frees again.
    #[test]
    fn a_file_without_its_last_pages_is_whole_if_they_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATA_FILE);
        let claim = Claim::to_write(directory.path()).unwrap();
        let settings = Options::default().map_bytes(1 << 20).settings();
        let open = || Env::open(&claim, &settings).map(|(env, _)| env);
        let env = open().unwrap();
        let table = env.make_table("table", Make { duplicates: false }, |_| Ok(())).unwrap();
        let commit = |bytes: usize, also: &[u8]| {
            let mut txn = env.begin_write().unwrap();
            let mut cursor = txn.cursor_mut(table).unwrap();
            cursor.put(b"long", &vec![7; bytes], Put::Over).unwrap();
            cursor.delete(also, false).unwrap();
            drop(cursor);
            txn.commit().unwrap();
        };
        // The pages of the first values are free in the last commit, which takes more of them.
        [20_000, 1, 2, 3].into_iter().for_each(|bytes| commit(bytes, b"none"));
        commit(200_000, b"long");
        let last = env.used_bytes();
        drop(env);
        let written = std::fs::metadata(&path).unwrap().len();
        assert!(written < last, "{written} of {last}");
        let env = open().unwrap();
        let table = env.open_table("table").unwrap().unwrap();
        assert_eq!(env.begin_read().unwrap().len(table).unwrap(), 0);
        drop(env);

        let file = File::options().write(true).open(&path).unwrap();
        for bytes in [8_192, 4_096, 100] {
            file.set_len(bytes).unwrap();
            let refused = open().unwrap_err();
            assert!(matches!(refused, Error::Corrupt(_)), "{bytes}: {refused}");
        }
    }
}
