//! [`DiskModel`]: what a disk may hold after a power cut.
//!
//! A file or directory is a *node*, whatever its names. Each part of a disk is drawn by itself:
//!
//! - Contents by sectors of 512 bytes, the most that a disk writes atomically: each sector holds any
//!   of the contents that were written to it since the last flush of the file, or none of them. The
//!   same holds for the length of the file.
//! - Names by directories: of the changes since the last flush of a directory, the first few have
//!   happened. A name that moves to another directory is never lost: it moves if either directory
//!   has it so.
//!
//! A flush includes the changes before its begin, and is effective at its end. A flush that fails has
//! written any of the sectors, and no later flush writes the sectors that it left: the operating system takes
//! them for written.
//!
//! Each change has the number of its event, and the numbers ascend. The simulator draws from this model, and so
//! does the power test of a store on a real disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::content::Content;
pub use super::content::Loss;

/// Node of the directory in which all others are.
pub const ROOT: usize = 0;

/// A change of names: a node is made, moved, or removed.
#[derive(Clone, Debug)]
pub struct Rename {
    /// Node of the file or directory.
    pub node: usize,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The name that it loses.
    pub from: Option<Name>,
    /// The name that it gets.
    pub to: Option<Name>,
}

/// A directory's node, and a name in it.
pub type Name = (usize, String);

/// A directory on a disk, and the changes in it since the last flushes; see the file's head.
#[derive(Debug, Default)]
pub struct DiskModel {
    /// Contents of the nodes; a directory has an empty one.
    contents: Vec<Content>,
    are_directories: Vec<bool>,
    names: BTreeMap<Name, usize>,
    /// Changes of names since the last flush, each with the number of its event.
    pending: Vec<(usize, Rename)>,
}

/// The files, by their paths, as the beginnings of their contents and their lengths; `None` for a
/// directory.
pub type Tree = BTreeMap<PathBuf, Option<(Vec<u8>, u64)>>;

impl Rename {
    /// Makes the change in names.
    pub fn apply(&self, names: &mut BTreeMap<Name, usize>) {
        if let Some(from) = &self.from
            && names.get(from) == Some(&self.node)
        {
            names.remove(from);
        }
        if let Some(to) = &self.to {
            names.insert(to.clone(), self.node);
        }
    }

    fn directories(&self) -> BTreeSet<usize> {
        [&self.from, &self.to].into_iter().flatten().map(|(directory, _)| *directory).collect()
    }

    /// Returns the node if this gives it the name, anywhere.
    pub fn node_named(&self, name: &str) -> Option<usize> {
        self.to.as_ref().is_some_and(|(_, to)| to == name).then_some(self.node)
    }
}

impl DiskModel {
    /// Changes a name, and makes the node if it is new.
    pub fn rename(&mut self, number: usize, rename: Rename) {
        self.make_node(rename.node, rename.is_directory);
        self.pending.push((number, rename));
    }

    /// Makes a file or a directory with a name that is on the disk already.
    pub fn make(&mut self, rename: &Rename) {
        self.make_node(rename.node, rename.is_directory);
        rename.apply(&mut self.names);
    }

    fn make_node(&mut self, node: usize, is_directory: bool) {
        let nodes = self.contents.len().max(node + 1);
        self.contents.resize_with(nodes, Content::default);
        self.are_directories.resize(nodes, false);
        self.are_directories[node] = is_directory;
    }

    /// Makes the content of a file, which begins with these bytes, on the disk.
    pub fn fill(&mut self, node: usize, bytes: &[u8], length: u64) {
        self.contents[node] = Content::of(bytes, length);
    }

    /// Writes to a file.
    pub fn write(&mut self, number: usize, node: usize, offset: u64, bytes: &[u8]) {
        self.contents[node].write(number, offset, bytes);
    }

    /// Sets the length of a file.
    pub fn set_length(&mut self, number: usize, node: usize, bytes: u64) {
        self.contents[node].set_length(number, bytes);
    }

    /// Puts the sectors of a write that ends before the event of this number on the disk.
    pub fn flush_write(&mut self, number: usize, node: usize, offset: u64, bytes: usize) {
        self.contents[node].flush_write(number, offset, bytes);
    }

    /// Flushes a file or the names of a directory: puts all changes before the event of this number on the disk.
    pub fn flush(&mut self, node: usize, begun: usize) {
        if self.is_directory(node) {
            self.flush_names(node, begun);
        } else {
            self.contents[node].flush(begun);
        }
    }

    /// Makes a flush fail that would have put all changes before the event of this number on the disk.
    pub fn fail_flush(&mut self, node: usize, begun: usize) {
        // The names of a directory are flushed by the next flush.
        if !self.is_directory(node) {
            self.contents[node].leave(begun);
        }
    }

    /// Whether a node is a directory.
    pub fn is_directory(&self, node: usize) -> bool {
        node == ROOT || self.are_directories[node]
    }

    /// Returns the length of a file.
    pub fn length(&self, node: usize) -> u64 {
        self.contents[node].bytes()
    }

    /// Reads bytes of a file as they are without a power cut.
    pub fn read(&self, node: usize, offset: u64, bytes: &mut [u8]) {
        self.contents[node].read(offset, bytes);
    }

    /// Puts the changes of a directory's names on the disk, and with each the changes before it of
    /// the same file.
    fn flush_names(&mut self, directory: usize, begun: usize) {
        let mut nodes = BTreeSet::new();
        let mut flushed = Vec::new();
        let mut pending = std::mem::take(&mut self.pending);
        for (number, rename) in pending.drain(..).rev() {
            let is_here = number < begun && rename.directories().contains(&directory);
            if is_here || nodes.contains(&rename.node) {
                nodes.insert(rename.node);
                flushed.push(rename);
            } else {
                self.pending.push((number, rename));
            }
        }
        self.pending.reverse();
        flushed.iter().rev().for_each(|rename| rename.apply(&mut self.names));
    }

    /// Puts everything on the disk.
    pub fn flush_all(&mut self) {
        self.pending.drain(..).for_each(|(_, rename)| rename.apply(&mut self.names));
        self.contents.iter_mut().for_each(|content| content.flush(usize::MAX));
    }

    /// Returns whether a power cut would lose nothing.
    pub fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.contents.iter().all(Content::is_flushed)
    }

    /// Returns the files as they may be found after a power cut at this moment.
    pub fn after_power_cut(&self, loss: Loss, random: &mut fastrand::Rng) -> Tree {
        let names = self.names_after_power_cut(loss, random);
        let mut images = BTreeMap::new();
        let mut tree = Tree::new();
        let mut directories = vec![(ROOT, PathBuf::new())];
        while let Some((directory, path)) = directories.pop() {
            let inside = names.range((directory, String::new())..(directory + 1, String::new()));
            for ((_, name), node) in inside {
                let path = path.join(name);
                if self.are_directories[*node] {
                    tree.insert(path.clone(), None);
                    directories.push((*node, path));
                } else {
                    // A file with two names has one content.
                    let image = images.entry(*node).or_insert_with(|| {
                        self.contents[*node].after_power_cut(loss.of_one(random), random)
                    });
                    tree.insert(path, Some(image.clone()));
                }
            }
        }
        tree
    }

    fn names_after_power_cut(
        &self,
        loss: Loss,
        random: &mut fastrand::Rng,
    ) -> BTreeMap<Name, usize> {
        // By directory: the number of its changes that have happened.
        let mut happened = BTreeMap::<usize, usize>::new();
        for directory in self.pending.iter().flat_map(|(_, rename)| rename.directories()) {
            *happened.entry(directory).or_default() += 1;
        }
        for changes in happened.values_mut() {
            *changes = match loss.of_one(random) {
                Loss::Everything => 0,
                Loss::Nothing => *changes,
                _ => random.usize(..=*changes),
            };
        }
        let mut names = self.names.clone();
        for (_, rename) in &self.pending {
            let mut has_happened = false;
            for directory in rename.directories() {
                let left = happened.entry(directory).or_default();
                has_happened |= *left > 0;
                *left = left.saturating_sub(1);
            }
            if has_happened {
                rename.apply(&mut names);
            }
        }
        names
    }
}
