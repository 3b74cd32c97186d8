//! [`Meta`]: the two pages at the beginning of the data file, each with the trees of a commit.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use super::walk::Walk;
use super::{
    HEADER_BYTES, INTEGER_KEYS, MAGIC, META, META_BYTES, Piece, Strict, TREE_BYTES, TREES_START,
    Tree, VERSION, WORD_BYTES,
};
use crate::disk::damage::{Damage, found};
use crate::log::files::write_at;

/// A meta page: the trees of a commit.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    pub(super) page_bytes: usize,
    pub(super) free: Tree,
    pub(super) names: Tree,
    pub(super) page_last: usize,
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
pub(super) fn newest_meta(file: &File) -> Result<Meta, Damage> {
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

pub(super) fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes)
}
