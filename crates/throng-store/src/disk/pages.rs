//! Checks the data file page by page, without the engine, which trusts its file: a damaged page can
//! send the engine anywhere in memory. This check compares every number with its bounds before it
//! uses the number.
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

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::KEY_BYTES_MAX;
use crate::database::Kind;
use crate::disk::format;
use crate::disk::record;
use crate::log::Point;

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
    let mut file = File::open(path)?;
    let newest = newest_meta(&mut file)?;
    let file_pages = (file.metadata()?.len() as usize).div_ceil(newest.page_bytes);
    let mut walk = Walk {
        file,
        page_bytes: newest.page_bytes,
        page_last: newest.page_last,
        file_pages,
        used: vec![0; file_pages.div_ceil(64)],
        free: BTreeSet::new(),
        pages_used: 2,
        newest_free: None,
        names: Vec::new(),
        format: BTreeMap::new(),
    };
    walk.take(0, 2)?;
    walk.pages_used = 2;
    walk.tree(&newest.free, Content::Free)?;
    let entries = walk.tree(&newest.names, Content::Names)?;
    let stored = |key: &[u8]| walk.format.get(key).map(Vec::as_slice);
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

    // Each commit but the first replaces pages, and so lists some as free under its own number.
    if newest.commit > 1 && walk.newest_free != Some(newest.commit) {
        return Err(found("the number of the commit is not that of its free pages"));
    }
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

const WORD_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = WORD_BYTES + 8;
const NODE_BYTES: usize = 8;
const TREE_BYTES: usize = 8 + 5 * WORD_BYTES;
const META_BYTES: usize = HEADER_BYTES + 8 + 2 * WORD_BYTES + 2 * TREE_BYTES + 2 * WORD_BYTES;

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

#[derive(Clone, Copy)]
struct Meta {
    page_bytes: usize,
    free: Tree,
    names: Tree,
    page_last: usize,
    commit: usize,
}

/// Reads both meta pages and returns the newer, if the two agree with each other.
fn newest_meta(file: &mut File) -> Result<Meta, Damage> {
    let mut read = |number: usize, start: usize| {
        let mut bytes = [0; META_BYTES];
        file.seek(SeekFrom::Start(start as u64))?;
        file.read_exact(&mut bytes)?;
        meta(Piece(&bytes), number)
    };
    let first = read(0, 0)?;
    let second = read(1, first.page_bytes)?;
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
    let start = HEADER_BYTES;
    if page.u32(start)? != MAGIC {
        return Err(Damage::Foreign);
    }
    if page.u32(start + 4)? != VERSION
        || page.word(0)? != number
        || page.u16(WORD_BYTES + 2)? != META
    {
        return Err(found("a meta page has the wrong kind or version"));
    }
    let trees = start + 8 + 2 * WORD_BYTES;
    let (free, page_bytes) = Tree::read(page, trees)?;
    let (names, padding) = Tree::read(page, trees + TREE_BYTES)?;
    let page_bytes = page_bytes as usize;
    let is_page_size = page_bytes.is_power_of_two() && (512..=64 << 10).contains(&page_bytes);
    if !is_page_size || free.flags != INTEGER_KEYS || names.flags != 0 || padding != 0 {
        return Err(found("a meta page has invalid tree descriptions"));
    }
    let numbers = trees + 2 * TREE_BYTES;
    let page_last = page.word(numbers)?;
    let commit = page.word(numbers + WORD_BYTES)?;
    Ok(Meta { page_bytes, free, names, page_last, commit })
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

struct Walk {
    file: File,
    page_bytes: usize,
    page_last: usize,
    /// Length of the file, in pages.
    file_pages: usize,
    /// Bit map of the used pages.
    used: Vec<u64>,
    free: BTreeSet<usize>,
    pages_used: usize,
    /// The newest commit that freed pages.
    newest_free: Option<usize>,
    /// Names of the databases, in order.
    names: Vec<String>,
    /// The store's format entries.
    format: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Walk {
    /// Checks a tree, compares it with its description, and returns the number of entries that
    /// users put there.
    fn tree(&mut self, tree: &Tree, content: Content) -> Result<u64, Damage> {
        let mut seen = tree.begun();
        let mut entries = 0;
        if tree.root == NOWHERE {
            seen.depth = 0;
        } else if (1..=DEPTH_MAX).contains(&tree.depth) {
            entries = self.page(tree.root, tree.depth, content, &mut seen, None, None)?;
        } else {
            return Err(found("a tree has an invalid depth"));
        }
        if seen != *tree {
            return Err(found("a tree differs from its description"));
        }
        Ok(match content {
            Content::Free => 0,
            Content::Names => entries,
            _ => seen.entries as u64,
        })
    }

    /// Checks a page and all pages below it. Their keys must be at least `low` and below `high`.
    fn page(
        &mut self,
        number: usize,
        depth: u16,
        content: Content,
        seen: &mut Tree,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<u64, Damage> {
        self.take(number, 1)?;
        let bytes = self.read(number, self.page_bytes)?;
        let page = Piece(&bytes);
        let kind = page.u16(WORD_BYTES + 2)?;
        if page.word(0)? != number || kind != if depth > 1 { BRANCH } else { LEAF } {
            return Err(found("a page has the wrong number or kind"));
        }
        if kind == LEAF {
            seen.leaves += 1;
            return self.leaf(page, content, seen, low, high);
        }
        seen.branches += 1;
        let nodes = nodes(page, true)?;
        if nodes.len() < if content == Content::Free { 1 } else { 2 } {
            return Err(found("a branch has too few children"));
        }
        let mut children = Vec::with_capacity(nodes.len());
        for (index, start) in nodes.into_iter().enumerate() {
            let child = page.u32(start)? as usize;
            #[cfg(target_pointer_width = "64")]
            let child = child | (usize::from(page.u16(start + 4)?) << 32);
            let key = page.bytes(start + NODE_BYTES, page.u16(start + 6)?.into())?;
            // The first child has no lower bound of its own, whatever its key.
            let key = if index == 0 { None } else { Some(sortable(key, content)?) };
            children.push((key, child));
        }
        let mut entries = 0;
        for (index, (key, child)) in children.iter().enumerate() {
            let next = children.get(index + 1).and_then(|(key, _)| key.as_deref());
            let (from, to) = (key.as_deref().or(low), next.or(high));
            if let (Some(from), Some(to)) = (from, to)
                && from >= to
            {
                return Err(found("the keys of a branch are not in order"));
            }
            entries += self.page(*child, depth - 1, content, seen, from, to)?;
        }
        Ok(entries)
    }

    fn leaf(
        &mut self,
        page: Piece<'_>,
        content: Content,
        seen: &mut Tree,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<u64, Damage> {
        let nodes = nodes(page, false)?;
        if nodes.is_empty() {
            return Err(found("a leaf is empty"));
        }
        let mut entries = 0;
        let mut last: Option<Vec<u8>> = None;
        for start in nodes {
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
            entries += self.node(&node, content, seen)?;
        }
        Ok(entries)
    }

    /// Checks a value; returns the number of user entries in it, if it is a tree.
    fn node(&mut self, node: &Node<'_>, content: Content, seen: &mut Tree) -> Result<u64, Damage> {
        let wrong = || found("a value is of the wrong kind");
        seen.entries += 1;
        match (content, node.flags) {
            (Content::Free | Content::Format | Content::Checked | Content::Plain, 0) => {
                self.value(node.key, node.value, content)?;
            }
            (Content::Free | Content::Format | Content::Checked | Content::Plain, BIG) => {
                let (value, pages) = self.overflow(node)?;
                seen.overflows += pages;
                self.value(node.key, &value, content)?;
            }
            (Content::Names, TREE) => return self.named(node),
            (Content::Values, 0) if node.value.is_empty() => {}
            (Content::Several, 0) if node.value.len() <= KEY_BYTES_MAX => {}
            (Content::Several, SEVERAL) => {
                let page = Piece(node.value);
                if page.u16(WORD_BYTES + 2)? != SUB_PAGE {
                    return Err(wrong());
                }
                let mut values = Tree { entries: 0, ..seen.begun() };
                self.leaf(page, Content::Values, &mut values, None, None)?;
                seen.entries += values.entries - 1;
            }
            (Content::Several, flags) if flags == TREE | SEVERAL => {
                let tree = described(node)?;
                if tree.flags != 0 || tree.root == NOWHERE {
                    return Err(wrong());
                }
                self.tree(&tree, Content::Values)?;
                // Every value counts; the node itself was counted above.
                seen.entries += tree.entries.wrapping_sub(1);
            }
            _ => return Err(wrong()),
        }
        Ok(0)
    }

    /// Checks a database, by its name.
    fn named(&mut self, node: &Node<'_>) -> Result<u64, Damage> {
        let tree = described(node)?;
        let name = std::str::from_utf8(node.key).map_err(|_| Damage::Foreign)?;
        let content = match format::kind(name) {
            Some(Some(Kind::Checked)) => Content::Checked,
            Some(Some(Kind::Duplicates)) => Content::Several,
            Some(Some(Kind::Plain)) => Content::Plain,
            Some(None) => Content::Format,
            None => return Err(Damage::Foreign),
        };
        if tree.flags != if content == Content::Several { WITH_SEVERAL } else { 0 } {
            return Err(found("a database has the wrong flags"));
        }
        self.names.push(name.into());
        let entries = self.tree(&tree, content)?;
        Ok(if content == Content::Format { 0 } else { entries })
    }

    fn value(&mut self, key: &[u8], value: &[u8], content: Content) -> Result<(), Damage> {
        match content {
            Content::Free => self.list(key, value),
            Content::Format => {
                self.format.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            Content::Checked => match record::value(key, value) {
                Ok(_) => Ok(()),
                Err(error) => Err(found(error.to_string())),
            },
            _ => Ok(()),
        }
    }

    /// Checks a list of free pages: their number, then the pages, descending.
    fn list(&mut self, key: &[u8], list: &[u8]) -> Result<(), Damage> {
        let commit = Piece(key).word(0)?;
        self.newest_free = self.newest_free.max(Some(commit));
        let list = Piece(list);
        let pages = list.word(0)?;
        let mut above = usize::MAX;
        for index in 0..pages {
            let start = index.saturating_add(1).saturating_mul(WORD_BYTES);
            let page = list.word(start)?;
            if page >= above || page < 2 || page > self.page_last || self.is_known(page) {
                return Err(found("the list of free pages has an invalid page"));
            }
            self.free.insert(page);
            above = page;
        }
        Ok(())
    }

    /// Reads a value that has pages of its own; returns it with the number of its pages.
    fn overflow(&mut self, node: &Node<'_>) -> Result<(Vec<u8>, usize), Damage> {
        let number = Piece(node.value).word(0)?;
        self.in_file(number, 1)?;
        let header = self.read(number, HEADER_BYTES)?;
        let header = Piece(&header);
        let pages = header.u32(WORD_BYTES + 4)? as usize;
        let needed = (HEADER_BYTES - 1 + node.value_bytes) / self.page_bytes + 1;
        if header.word(0)? != number || header.u16(WORD_BYTES + 2)? != OVERFLOW || pages < needed {
            return Err(found("a long value is missing from its page"));
        }
        self.take(number, pages)?;
        let mut value = self.read(number, HEADER_BYTES + node.value_bytes)?;
        value.drain(..HEADER_BYTES);
        Ok((value, pages))
    }

    fn in_file(&self, number: usize, pages: usize) -> Result<usize, Damage> {
        let end = number.checked_add(pages);
        end.filter(|end| *end <= self.file_pages && *end - 1 <= self.page_last)
            .ok_or_else(|| found("a page lies beyond the end of the file"))
    }

    /// Marks pages as used. Fails if any of them is used or free already.
    fn take(&mut self, number: usize, pages: usize) -> Result<(), Damage> {
        for page in number..self.in_file(number, pages)? {
            if self.is_known(page) {
                return Err(found("a page is used twice"));
            }
            if let Some(bits) = self.used.get_mut(page / 64) {
                *bits |= 1 << (page % 64);
            }
            self.pages_used += 1;
        }
        Ok(())
    }

    /// Whether a page is used or free.
    fn is_known(&self, page: usize) -> bool {
        let bits = self.used.get(page / 64).copied().unwrap_or(0);
        bits & 1 << (page % 64) != 0 || self.free.contains(&page)
    }

    fn read(&mut self, page: usize, bytes: usize) -> Result<Vec<u8>, Damage> {
        // The range is within the file, as checked, so neither product nor buffer is out of bounds.
        let mut buffer = vec![0; bytes];
        self.file.seek(SeekFrom::Start(page as u64 * self.page_bytes as u64))?;
        self.file.read_exact(&mut buffer)?;
        Ok(buffer)
    }
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
