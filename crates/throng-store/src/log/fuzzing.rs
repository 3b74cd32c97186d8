//! Fuzz targets of the log: damage of its files, and forged files whose checksums are right.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

use super::mark::Mark;
use super::segment::{self, Head, RECORDS_START, SECTOR_BYTES, Segment};
use super::{Access, LENGTH_MIN, Location, Log, Point, Record, Replay, ReplayError, SPARES};
use crate::fuzzing::{Input, scratch};

const START: Point = Point { position: 0, chain: 0 };

/// A record that was appended or read: its first position, and its changes.
type Entry = (u64, Vec<u8>);

/// Writes a log, damages its files and reads it for every purpose. The input chooses the records and the damage.
///
/// # Panics
/// If a read panics, if it returns records that were not written or not in their order, or if a log that was
/// recovered does not go on.
pub fn log(data: &[u8]) {
    let mut input = Input(data);
    let directory = scratch();
    let location = location(directory.path().join("log"));
    Log::create(&location, START).unwrap_or_else(|error| panic!("{error}"));
    let mut log = recover(&location).map(|(_, log)| log).unwrap_or_else(|error| panic!("{error}"));
    let mut written = Vec::new();
    for seed in 0..input.byte() % 8 {
        append(&mut log, &mut written, (seed, input.number()));
    }
    drop(log);
    let is_damaged = damage(&location, &mut input);

    for access in [Access::Read, Access::Feed, Access::ReadAll, Access::Kept, Access::Salvage] {
        let (read, outcome) = read(&location, access);
        let is_part = match access {
            Access::Salvage => is_subsequence(&read, &written),
            _ => written.starts_with(&read),
        };
        assert!(is_part, "{access:?} returns other records than were written");
        let is_to_mark = matches!(access, Access::Read | Access::Feed);
        let is_whole = outcome.is_ok() && (is_to_mark || read.len() == written.len());
        assert!(is_damaged || is_whole, "{access:?} of an intact log: {outcome:?}");
    }
    // A recovery makes the log that it has read the only one.
    let Ok((mut read, mut log)) = recover(&location) else { return };
    assert!(written.starts_with(&read), "a recovery returns other records than were written");
    append(&mut log, &mut read, (input.byte(), input.number()));
    drop(log);
    let (again, _) = recover(&location).unwrap_or_else(|error| panic!("after a recovery: {error}"));
    assert!(again == read, "a recovered log does not go on");
}

/// Forges the files of a log, with valid checksums, and reads it for every purpose. The input chooses the heads,
/// the records and the mark.
///
/// # Panics
/// If a read panics or does not end, or if positions do not rise.
pub fn forged_log(data: &[u8]) {
    let mut input = Input(data);
    let directory = scratch();
    let location = location(directory.path().join("log"));
    fs::create_dir(&location.directory).unwrap_or_else(|error| panic!("{error}"));
    let mut after = Point { position: near(&mut input, 0), chain: 0 };
    for number in 1..=1 + u64::from(input.byte() % 3) {
        let head = Head { store: location.store, number, begin: after };
        let file = (&*location.platform.files, &*location.path(number));
        let segment = Segment::create(file, &head, 16 << 10, false);
        let segment = segment.unwrap_or_else(|error| panic!("{error}"));
        let mut offset = RECORDS_START;
        for _ in 0..input.byte() % 6 {
            let changes: Box<[u8]> = input.bytes(usize::from(input.0.len() as u8 / 4)).into();
            let count = u32::from(input.byte()).wrapping_sub(u32::from(input.byte() / 250));
            let length =
                changes.len() + usize::from(input.byte() / 250) * usize::from(input.number());
            let (header, chain) =
                segment::encode((&head, after), (count, 0), std::slice::from_ref(&changes), length);
            let record = [&header, &*changes].concat();
            let _ = segment.write(&record, offset);
            offset += segment::record_bytes(changes.len());
            let last = after.position.saturating_add(u64::from(count));
            after = Point { position: near(&mut input, last), chain };
        }
        if input.byte() % 2 == 0 {
            let point = Point { position: near(&mut input, after.position), ..after };
            let end = near(&mut input, offset);
            let _ = Mark::create(&location, number, end, point);
        }
    }
    for access in
        [Access::Read, Access::Feed, Access::ReadAll, Access::Kept, Access::Salvage, Access::Write]
    {
        let (read, _) = read(&location, access);
        let firsts = read.iter().map(|(first, _)| *first);
        assert!(firsts.is_sorted_by(|one, other| one < other), "{access:?}: positions fall");
    }
    let _ = recover(&location);
}

fn location(directory: PathBuf) -> Location {
    Location { directory, platform: Arc::default(), store: 7, is_durable: false, is_kept: false }
}

/// Returns a number that is mostly the expected one, sometimes one beside it, and seldom any other; not the largest,
/// after which there is no position.
fn near(input: &mut Input<'_>, expected: u64) -> u64 {
    let number = match input.byte() {
        0..230 => expected,
        230..240 => expected.wrapping_add(1),
        240..250 => expected.wrapping_sub(1),
        250 => u64::MAX,
        _ => u64::from(input.number()),
    };
    number.min(u64::MAX - 1)
}

fn append(log: &mut Log, entries: &mut Vec<Entry>, (seed, bytes): (u8, u16)) {
    let first = log.point().position + 1;
    let changes: Vec<u8> = (0..bytes % 3000).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
    let count = 1 + u32::from(seed % 4);
    log.append(&[changes.as_slice().into()], count).unwrap_or_else(|error| panic!("{error:?}"));
    entries.push((first, changes));
}

/// Changes, cuts, removes or exchanges files of a log. Returns whether any did.
fn damage(location: &Location, input: &mut Input<'_>) -> bool {
    let names = fs::read_dir(&location.directory).unwrap_or_else(|error| panic!("{error}"));
    let mut paths: Vec<_> = names.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut is_damaged = false;
    for _ in 0..input.byte() % 5 {
        let kind = input.byte();
        let path = &paths[usize::from(input.byte()) % paths.len()];
        let Ok(mut bytes) = fs::read(path) else { continue };
        if bytes.is_empty() {
            continue;
        }
        // Few inputs would hit a record, if the room after the records counted in full.
        let length = bytes.len().min(RECORDS_START as usize + 16 * SECTOR_BYTES as usize);
        let at = (usize::from(input.number()) << 8 | usize::from(input.byte())) % length;
        is_damaged = true;
        let done = match kind {
            0..200 => {
                bytes[at] ^= input.byte().max(1);
                // In place, as a disk would do it: the file keeps its length.
                fs::write(path, &bytes)
            }
            200..230 => {
                OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(at as u64))
            }
            230..240 => fs::remove_file(path),
            240..250 => {
                let sector = SECTOR_BYTES as usize;
                let end = (at + sector).min(bytes.len());
                bytes[at..end].fill(0);
                fs::write(path, &bytes)
            }
            _ => fs::rename(path, &paths[usize::from(input.byte()) % paths.len()]),
        };
        done.unwrap_or_else(|error| panic!("{error}"));
    }
    is_damaged
}

/// Reads all records, up to the end or to the first error.
fn read(location: &Location, access: Access) -> (Vec<Entry>, Result<(), String>) {
    let mut entries = Vec::new();
    let mut replay = match Replay::open(location, START, access) {
        Ok(replay) => replay,
        Err(damage) => return (entries, Err(damage.into_io().to_string())),
    };
    // A file has room for fewer records: with more, reading would not end.
    for _ in 0..=4 * LENGTH_MIN / SECTOR_BYTES {
        match replay.next(START.position) {
            Ok(Some(Record { first, changes, .. })) => entries.push((first, changes.to_vec())),
            Ok(None) => return (entries, Ok(())),
            Err(error) => return (entries, Err(reason(error))),
        }
    }
    panic!("{access:?} does not end");
}

fn reason(error: ReplayError) -> String {
    error.into_damage().into_io().to_string()
}

/// Recovers a log, as a store that opens it does, and returns its records.
fn recover(location: &Location) -> Result<(Vec<Entry>, Log), String> {
    let replay = Replay::open(location, START, Access::Write);
    let mut replay = replay.map_err(|damage| damage.into_io().to_string())?;
    let mut entries = Vec::new();
    while let Some(Record { first, changes, .. }) = replay.next(START.position).map_err(reason)? {
        entries.push((first, changes.to_vec()));
    }
    for spare in SPARES {
        // A segment for reuse may be a damaged file.
        let _ = fs::remove_file(location.directory.join(spare));
    }
    let log =
        Log::go_on(replay, super::LENGTH_MAX).map_err(|damage| damage.into_io().to_string())?;
    Ok((entries, log))
}

fn is_subsequence(part: &[Entry], whole: &[Entry]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|entry| rest.any(|other| other == entry))
}
