//! [`Walk`]: reads all pages of a commit, for a [`Visitor`] that decides about damage and takes the entries.
//!
//! A page counts as used when it fits: it has the number and the kind that the page above wants, its keys lie
//! between the bounds, and a long value has its checksum. So a wrong number in a branch takes no page from
//! another place, but for a page that fits in both. A second walk leaves out all pages that are not used once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::{
    BIG, BRANCH, Child, Content, DEPTH_MAX, Damage, HEADER_BYTES, LEAF, Meta, NOWHERE, Node,
    OVERFLOW, Piece, SEVERAL, SUB_PAGE, TREE, Tree, WITH_SEVERAL, WORD_BYTES, branch, described,
    found, leaf, verify,
};
use crate::KEY_BYTES_MAX;
use crate::disk::format::entries as format;
use crate::table::Kind;

pub(crate) trait Visitor {
    /// Handles damage to the entries of a page, or to a single entry, whose key is then both bounds. The
    /// walk goes on with the entries after it, or ends with the error that is returned.
    fn lose(
        &mut self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        damage: Damage,
    ) -> Result<(), Damage>;

    fn begin(&mut self, _stored: &str) {}

    /// Takes an entry of the database, with the stored form of its value. The entries come in order.
    fn take(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Damage> {
        Ok(())
    }

    /// Ends the database, some of whose entries are lost.
    fn end(&mut self, _lost: u64) -> Result<(), Damage> {
        Ok(())
    }
}

/// Stored names of tables by the names under which they are found.
pub(crate) type Names = BTreeMap<String, String>;

/// A walk over all pages of a commit.
pub(crate) struct Walk<V> {
    file: File,
    meta: Meta,
    file_pages: usize,
    /// Bit maps of the used pages: those with a header, and those that continue a long value.
    heads: Vec<u64>,
    tails: Vec<u64>,
    /// Pages with a header that fit in two places.
    disputed: BTreeSet<usize>,
    /// Whether an earlier walk has found all disputed pages.
    is_surveyed: bool,
    pub(super) free: BTreeSet<usize>,
    /// Whether all lists of free pages could be read, so that no page of an earlier time passes for one in use.
    pub(crate) is_free_whole: bool,
    pub(super) pages_used: usize,
    /// The newest commit that freed pages.
    newest_free: Option<usize>,
    /// Names of the databases, in order, as they are found.
    pub(crate) names: Vec<String>,
    /// Names that count instead; a database without one is lost. `None` if those that are found count.
    pub(crate) renamed: Option<Names>,
    format: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Number of the first page of the table `format`.
    pub(crate) format_root: Option<usize>,
    /// The key whose values have a tree of their own, within that tree; otherwise empty.
    outer: Vec<u8>,
    /// Number of times that damage was found.
    pub(crate) losses: u64,
    databases: usize,
    /// Number of entries that the descriptions of the trees count and the walk does not find.
    pub(crate) entries_lost: u64,
    pub(crate) visitor: V,
}

impl<V: Visitor> Walk<V> {
    pub(crate) fn new(file: File, meta: Meta, visitor: V) -> Result<Walk<V>, Damage> {
        let file_pages = (file.metadata()?.len() as usize).div_ceil(meta.page_bytes);
        Ok(Walk {
            file,
            meta,
            file_pages,
            heads: vec![0; file_pages.div_ceil(64)],
            tails: vec![0; file_pages.div_ceil(64)],
            disputed: BTreeSet::new(),
            is_surveyed: false,
            free: BTreeSet::new(),
            is_free_whole: false,
            pages_used: 0,
            newest_free: None,
            names: Vec::new(),
            renamed: None,
            format: BTreeMap::new(),
            format_root: None,
            outer: Vec::new(),
            losses: 0,
            databases: 0,
            entries_lost: 0,
            visitor,
        })
    }

    /// Walks all pages; returns the number of entries that users put there.
    pub(crate) fn all(&mut self) -> Result<u64, Damage> {
        self.read_free()?;
        let meta = self.meta;
        // Each commit but the first replaces pages, and so lists some as free under its own number.
        if meta.commit > 1 && self.newest_free != Some(meta.commit) {
            self.lose(None, None, found("the number of the commit is not that of its free pages"))?;
        }
        self.is_free_whole = self.losses == 0;
        if !self.is_free_whole {
            // A damaged list would make pages in use look free.
            self.free.clear();
        }
        self.tree(&meta.names, Content::Names)
    }

    pub(super) fn read_free(&mut self) -> Result<(), Damage> {
        self.take(0, 2)?;
        let free = self.meta.free;
        self.tree(&free, Content::Free).map(drop)
    }

    /// Walks all databases again, without the pages that the walk before has found to be used twice.
    pub(crate) fn again(&mut self) -> Result<u64, Damage> {
        self.is_surveyed = true;
        self.names.clear();
        (self.losses, self.entries_lost) = (0, 0);
        let names = self.meta.names;
        self.tree(&names, Content::Names)
    }

    pub(crate) fn commit(&self) -> usize {
        self.meta.commit
    }

    pub(crate) fn databases_lost(&self) -> usize {
        self.meta.names.entries.saturating_sub(self.databases)
    }

    pub(crate) fn stored(&self, key: &[u8]) -> Option<&[u8]> {
        self.format.get(key).map(Vec::as_slice)
    }

    fn lose(
        &mut self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        damage: Damage,
    ) -> Result<(), Damage> {
        self.losses += 1;
        let outer = (!self.outer.is_empty()).then_some(&*self.outer);
        self.visitor.lose(outer.or(from), outer.or(to), damage)
    }

    /// Checks a tree, compares it with its description, and returns the number of entries that
    /// users put there.
    fn tree(&mut self, tree: &Tree, content: Content) -> Result<u64, Damage> {
        let (mut seen, losses) = (tree.begun(), self.losses);
        let mut entries = 0;
        if tree.root == NOWHERE {
            seen.depth = 0;
        } else {
            let walked = match (1..=DEPTH_MAX).contains(&tree.depth) {
                true => self.page(tree.root, tree.depth, content, &mut seen, (None, None)),
                false => Err(found("a tree has an invalid depth")),
            };
            match walked {
                Ok(found) => entries = found,
                Err(damage) => self.lose(None, None, damage)?,
            }
        }
        if seen != *tree && self.losses == losses {
            self.lose(None, None, found("a tree differs from its description"))?;
        }
        Ok(match content {
            Content::Free => 0,
            Content::Names => entries,
            _ => seen.entries as u64,
        })
    }

    /// Checks a page and all pages below it. Its keys must be at least `low` and below `high`.
    fn page(
        &mut self,
        number: usize,
        depth: u16,
        content: Content,
        seen: &mut Tree,
        (low, high): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<u64, Damage> {
        self.in_file(number, 1)?;
        let bytes = self.read(number, self.meta.page_bytes)?;
        let page = Piece(&bytes);
        let kind = page.u16(WORD_BYTES + 2)?;
        if page.word(0)? != number || kind != if depth > 1 { BRANCH } else { LEAF } {
            return Err(found("a page has the wrong number or kind"));
        }
        // A page is taken when it is known to fit, so a wrong number takes no page of another place.
        if kind == LEAF {
            let nodes = leaf(page, content, low, high)?;
            self.take(number, 1)?;
            seen.leaves += 1;
            return self.entries(&nodes, content, seen);
        }
        let children = branch(page, content, low, high)?;
        self.take(number, 1)?;
        seen.branches += 1;
        let mut entries = 0;
        for Child { page, low, high } in &children {
            let bounds = (low.as_deref(), high.as_deref());
            match self.page(*page, depth - 1, content, seen, bounds) {
                Ok(found) => entries += found,
                Err(damage) => self.lose(bounds.0, bounds.1, damage)?,
            }
        }
        Ok(entries)
    }

    /// Checks the values of a leaf; returns the number of user entries in them, if they are trees.
    fn entries(
        &mut self,
        nodes: &[Node<'_>],
        content: Content,
        seen: &mut Tree,
    ) -> Result<u64, Damage> {
        let mut entries = 0;
        for node in nodes {
            match self.node(node, content, seen) {
                Ok(found) => entries += found,
                Err(damage) => self.lose(Some(node.key), Some(node.key), damage)?,
            }
        }
        Ok(entries)
    }

    /// Checks a value; returns the number of user entries in it, if it is a tree.
    fn node(&mut self, node: &Node<'_>, content: Content, seen: &mut Tree) -> Result<u64, Damage> {
        let wrong = || found("a value is of the wrong kind");
        match (content, node.flags) {
            (Content::Free | Content::Format | Content::Checked | Content::Plain, 0) => {
                verify(node.key, node.value, content)?;
                self.value(node.key, node.value, content)?;
            }
            (Content::Free | Content::Format | Content::Checked | Content::Plain, BIG) => {
                seen.overflows += self.overflow(node, content)?;
            }
            (Content::Names, TREE) => {
                let entries = self.named(node)?;
                seen.entries += 1;
                return Ok(entries);
            }
            (Content::Values, 0) if node.value.is_empty() => {
                self.visitor.take(&self.outer, node.key)?;
            }
            (Content::Several, 0) if (1..=KEY_BYTES_MAX).contains(&node.value.len()) => {
                self.visitor.take(node.key, node.value)?;
            }
            (Content::Several, SEVERAL) => {
                let page = Piece(node.value);
                if page.u16(WORD_BYTES + 2)? != SUB_PAGE {
                    return Err(wrong());
                }
                let values = leaf(page, Content::Values, None, None)?;
                return self.values(node.key, |walk| walk.entries(&values, Content::Values, seen));
            }
            (Content::Several, flags) if flags == TREE | SEVERAL => {
                let tree = described(node)?;
                if tree.flags != 0 || tree.root == NOWHERE {
                    return Err(wrong());
                }
                let values = self.values(node.key, |walk| walk.tree(&tree, Content::Values))?;
                seen.entries += values as usize;
                return Ok(0);
            }
            _ => return Err(wrong()),
        }
        seen.entries += 1;
        Ok(0)
    }

    fn values<T>(&mut self, key: &[u8], walk: impl FnOnce(&mut Self) -> T) -> T {
        self.outer = key.to_vec();
        let walked = walk(self);
        self.outer.clear();
        walked
    }

    fn named(&mut self, node: &Node<'_>) -> Result<u64, Damage> {
        let tree = described(node)?;
        let name = std::str::from_utf8(node.key).map_err(|_| Damage::Foreign)?;
        self.names.push(name.into());
        let name = match &self.renamed {
            Some(renamed) => renamed.get(name).ok_or_else(|| found(format::LIST_DAMAGED))?,
            None => name,
        };
        // LMDB takes names that end at a zero.
        let content = match format::kind(name).filter(|_| !name.contains('\0')) {
            Some(Some(Kind::Checked)) => Content::Checked,
            Some(Some(Kind::Duplicates)) => Content::Several,
            Some(Some(Kind::Plain)) => Content::Plain,
            Some(None) => Content::Format,
            None => return Err(Damage::Foreign),
        };
        if tree.flags != if content == Content::Several { WITH_SEVERAL } else { 0 } {
            return Err(found("a database has the wrong flags"));
        }
        self.databases += 1;
        if content == Content::Format {
            self.format_root = Some(tree.root);
            self.tree(&tree, content)?;
            return Ok(0);
        }
        self.visitor.begin(name);
        let losses = self.losses;
        let entries = self.tree(&tree, content)?;
        // Without a loss of a page, the description is wrong.
        let lost = if self.losses > losses { tree.entries as u64 } else { entries };
        let lost = lost.saturating_sub(entries);
        self.entries_lost = self.entries_lost.saturating_add(lost);
        self.visitor.end(lost)?;
        Ok(entries)
    }

    fn value(&mut self, key: &[u8], value: &[u8], content: Content) -> Result<(), Damage> {
        match content {
            Content::Free => self.list(key, value),
            Content::Format => {
                self.format.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            _ => self.visitor.take(key, value),
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
            if page >= above || page < 2 || page > self.meta.page_last || self.is_known(page) {
                return Err(found("the list of free pages has an invalid page"));
            }
            self.free.insert(page);
            above = page;
        }
        Ok(())
    }

    /// Checks a value that has pages of its own; returns their number.
    fn overflow(&mut self, node: &Node<'_>, content: Content) -> Result<usize, Damage> {
        let number = Piece(node.value).word(0)?;
        self.in_file(number, 1)?;
        let header = self.read(number, HEADER_BYTES)?;
        let header = Piece(&header);
        let pages = header.u32(WORD_BYTES + 4)? as usize;
        let needed = (HEADER_BYTES - 1 + node.value_bytes) / self.meta.page_bytes + 1;
        if header.word(0)? != number || header.u16(WORD_BYTES + 2)? != OVERFLOW || pages < needed {
            return Err(found("a long value is missing from its page"));
        }
        self.in_file(number, pages)?;
        let mut value = self.read(number, HEADER_BYTES + node.value_bytes)?;
        value.drain(..HEADER_BYTES);
        verify(node.key, &value, content)?;
        self.take(number, pages)?;
        self.value(node.key, &value, content)?;
        Ok(pages)
    }

    fn in_file(&self, number: usize, pages: usize) -> Result<usize, Damage> {
        let end = number.checked_add(pages);
        end.filter(|end| *end <= self.file_pages && *end - 1 <= self.meta.page_last)
            .ok_or_else(|| found("a page lies beyond the end of the file"))
    }

    /// Marks pages as used: a page with a header that fits, and those that continue it, which have none. Fails
    /// if they are used or free already.
    fn take(&mut self, number: usize, pages: usize) -> Result<(), Damage> {
        let twice = || found("a page is used twice");
        let end = self.in_file(number, pages)?;
        let is_free = (number..end).any(|page| self.free.contains(&page));
        if self.is_surveyed {
            let is_taken = is_free || self.disputed.contains(&number);
            return if is_taken { Err(twice()) } else { Ok(()) };
        }
        let is_over_others = (number + 1..end).any(|page| bit(&self.heads, page));
        if bit(&self.heads, number) {
            self.disputed.insert(number);
            return Err(twice());
        }
        if bit(&self.tails, number) {
            // The number of pages of a long value, which begins before, is wrong.
            self.lose(None, None, twice())?;
        }
        set(&mut self.heads, number);
        (number + 1..end).for_each(|page| set(&mut self.tails, page));
        self.pages_used += pages;
        if is_free || is_over_others { Err(twice()) } else { Ok(()) }
    }

    pub(super) fn is_known(&self, page: usize) -> bool {
        bit(&self.heads, page) || bit(&self.tails, page) || self.free.contains(&page)
    }

    fn read(&mut self, page: usize, bytes: usize) -> Result<Vec<u8>, Damage> {
        // The range is within the file, as checked, so neither product nor buffer is out of bounds.
        let mut buffer = vec![0; bytes];
        self.file.seek(SeekFrom::Start(page as u64 * self.meta.page_bytes as u64))?;
        self.file.read_exact(&mut buffer)?;
        Ok(buffer)
    }
}

fn bit(map: &[u64], page: usize) -> bool {
    map.get(page / 64).is_some_and(|bits| bits & 1 << (page % 64) != 0)
}

fn set(map: &mut [u64], page: usize) {
    if let Some(bits) = map.get_mut(page / 64) {
        *bits |= 1 << (page % 64);
    }
}
