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

mod walk;

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use crate::KEY_BYTES_MAX;
use crate::disk::format;
use crate::disk::record;
use crate::log::Point;
use crate::log::files::write_at;
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

/// Reason why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Damage {
    /// The file is not a file of the engine.
    Foreign,
    /// Description of the damage.
    Found(String),
    Io(io::Error),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => found("a page lies beyond the end of the file"),
            _ => Damage::Io(error),
        }
    }
}

impl Damage {
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Damage::Foreign => io::Error::other("the file is not a data file"),
            Damage::Found(reason) => io::Error::other(reason),
            Damage::Io(error) => error,
        }
    }
}

pub(crate) fn found(what: impl Into<String>) -> Damage {
    Damage::Found(what.into())
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

/// Ends a walk at the first damage.
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
/// Maximum depth of the engine's cursors.
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

/// A meta page: the trees of a commit.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    page_bytes: usize,
    free: Tree,
    names: Tree,
    page_last: usize,
    pub(crate) commit: usize,
}

/// Number of times that the length of a file is checked again, and the time between two attempts.
const LENGTH_ATTEMPTS: u32 = 10;
const LENGTH_PAUSE: Duration = Duration::from_millis(2);

/// Checks that a file of the engine has all pages that its last commit uses; a file that is missing or empty
/// has no commit. The engine maps the file, and the system ends a process by a signal that reads a page
/// behind the end.
pub(crate) fn check_length(path: &Path) -> Result<(), Damage> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut attempts = 0..LENGTH_ATTEMPTS;
    loop {
        match has_its_pages(&file) {
            // A process that writes may have changed the list of free pages while it was read.
            Err(Damage::Found(_)) if attempts.next().is_some() => std::thread::sleep(LENGTH_PAUSE),
            checked => return checked,
        }
    }
}

fn has_its_pages(file: &File) -> Result<(), Damage> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut newest: Option<Meta> = None;
    for _ in 0..2 {
        // As the engine does, which takes the size of a page from the first.
        let mut bytes = [0; META_BYTES];
        match read_at(file, &mut bytes, newest.map_or(0, |first| first.page_bytes)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(found("data.mdb is cut: it lacks a meta page"));
            }
            read => read?,
        }
        let Ok(meta) = unchecked_meta(Piece(&bytes)) else {
            // The engine refuses the file.
            return Ok(());
        };
        if !is_page_size(meta.page_bytes) {
            return Err(found("a meta page has an invalid size of a page"));
        }
        newest = newest.filter(|newest| newest.commit >= meta.commit).or(Some(meta));
    }
    let Some(newest) = newest else { return Ok(()) };
    // Asked after the meta pages were read: the file only grows.
    let pages = file.metadata()?.len() as usize / newest.page_bytes;
    let end = newest.page_last.saturating_add(1);
    if pages < end {
        // Pages that a transaction took at the end and freed again are not written.
        let mut walk = Walk::new(file.try_clone()?, newest, Strict)?;
        let is_whole = match walk.read_free() {
            Err(Damage::Io(error)) => return Err(Damage::Io(error)),
            read => read.is_ok() && (pages..end).all(|page| walk.free.contains(&page)),
        };
        if !is_whole {
            return Err(found(format!("data.mdb is cut: it has {pages} of {end} pages")));
        }
    }
    Ok(())
}

/// Writes both meta pages once more as the system shows them, so that the next flush puts them on the disk.
///
/// LMDB writes a meta page, and its old content again if that fails. The system may forget after the failure that
/// the disk has neither, or has the new content: then a flush does not write the page, although it succeeds.
pub(crate) fn rewrite_metas(file: &Path, page_bytes: u64) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(file)?;
    for start in [0, page_bytes] {
        // Less than a sector, which the disk writes as a whole.
        let mut bytes = [0; META_BYTES];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        write_at(&file, &bytes, start)?;
    }
    Ok(())
}

/// Reads a meta page, which begins at a byte of the file.
fn read_meta(file: &File, number: usize, start: usize) -> Result<Meta, Damage> {
    let mut bytes = [0; META_BYTES];
    read_at(file, &mut bytes, start)?;
    meta(Piece(&bytes), number)
}

fn read_at(mut file: &File, bytes: &mut [u8], start: usize) -> io::Result<()> {
    file.seek(SeekFrom::Start(start as u64))?;
    file.read_exact(bytes)
}

/// Returns the meta pages that are valid by themselves, the newer one first, and whether one is not, or
/// the two do not belong together.
pub(crate) fn metas(file: &File) -> (Vec<Meta>, bool) {
    let first = read_meta(file, 0, 0).ok();
    // Without the first page, the size of a page is unknown.
    let sizes = first.map_or(9..=16, |first| {
        let bits = first.page_bytes.trailing_zeros();
        bits..=bits
    });
    let second = sizes
        .map(|bits| (1 << bits, read_meta(file, 1, 1 << bits)))
        .find_map(|(bytes, meta)| meta.ok().filter(|meta| meta.page_bytes == bytes));
    let mut metas: Vec<_> = first.into_iter().chain(second).collect();
    metas.sort_by_key(|meta| Reverse(meta.commit));
    (metas, newest_meta(file).is_err())
}

/// Reads both meta pages and returns the newer, if the two agree with each other.
fn newest_meta(file: &File) -> Result<Meta, Damage> {
    let first = read_meta(file, 0, 0)?;
    let second = read_meta(file, 1, first.page_bytes)?;
    if second.page_bytes != first.page_bytes {
        return Err(found("the meta pages have different page sizes"));
    }
    let is_new = first.commit == 0 && second.commit == 0;
    if !is_new
        && (first.commit.abs_diff(second.commit) != 1
            || !first.commit.is_multiple_of(2)
            || second.commit.is_multiple_of(2))
    {
        return Err(found("the meta pages do not belong to consecutive commits"));
    }
    Ok(if second.commit > first.commit { second } else { first })
}

fn meta(page: Piece<'_>, number: usize) -> Result<Meta, Damage> {
    let meta = unchecked_meta(page)?;
    if page.word(0)? != number {
        return Err(found("a meta page has the wrong number"));
    }
    let Meta { page_bytes, free, names, .. } = meta;
    let padding = page.u32(TREES_START + TREE_BYTES)?;
    if !is_page_size(page_bytes) || free.flags != INTEGER_KEYS || names.flags != 0 || padding != 0 {
        return Err(found("a meta page has invalid tree descriptions"));
    }
    Ok(meta)
}

/// Reads a page that the engine takes for a meta page.
fn unchecked_meta(page: Piece<'_>) -> Result<Meta, Damage> {
    if page.u32(HEADER_BYTES)? != MAGIC {
        return Err(Damage::Foreign);
    }
    if page.u32(HEADER_BYTES + 4)? != VERSION || page.u16(WORD_BYTES + 2)? != META {
        return Err(found("a meta page has the wrong kind or version"));
    }
    let (free, page_bytes) = Tree::read(page, TREES_START)?;
    let (names, _) = Tree::read(page, TREES_START + TREE_BYTES)?;
    let numbers = TREES_START + 2 * TREE_BYTES;
    let (page_last, commit) = (page.word(numbers)?, page.word(numbers + WORD_BYTES)?);
    Ok(Meta { page_bytes: page_bytes as usize, free, names, page_last, commit })
}

fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes)
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

/// A node of a leaf.
struct Node<'p> {
    flags: u16,
    key: &'p [u8],
    value_bytes: usize,
    /// The value, or the number of its page.
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

/// Returns the children of a branch.
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

/// Returns the nodes of a leaf.
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

/// Returns the tree that a node describes.
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
    use crate::disk::claim::Claim;
    use crate::disk::environment::DATA_FILE;
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
