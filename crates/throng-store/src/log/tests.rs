//! Tests of the log: faults of the disk, damaged and foreign files, readers beside the writer.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};

use tempfile::TempDir;

use super::files::write_at;
use super::segment::{HEADER_BYTES, reads};
use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    first: u64,
    count: u32,
    changes: Vec<u8>,
}

/// A log with the records that it acknowledged, and the points after those appended since it was opened.
struct Script {
    log: Log,
    entries: Vec<Entry>,
    points: Vec<Point>,
}

const START: Point = Point { position: 0, chain: 0 };

/// Returns a directory in memory, if there is one, because the tests flush often.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns a directory for many long segments, which take no time and room on a disk.
fn large_directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn location(directory: &TempDir, is_durable: bool) -> Location {
    let directory = directory.path().join("log");
    let platform = Arc::default();
    Location { directory, platform, store: 7, is_durable, is_kept: false }
}

/// Returns changes that differ from those of another seed everywhere.
fn changes(seed: u64, bytes: usize) -> Vec<u8> {
    let mut changes = fastrand::Rng::with_seed(seed).u64(..).to_le_bytes().repeat(bytes / 8 + 1);
    changes.truncate(bytes);
    changes
}

fn chunks(changes: &[u8]) -> Vec<Box<[u8]>> {
    changes.chunks(300).map(Box::from).collect()
}

fn reason(damage: Damage) -> String {
    damage.into_io().to_string()
}

fn read(
    location: &Location,
    applied: Point,
    access: Access,
) -> Result<(Vec<Entry>, Replay), String> {
    let mut replay = Replay::open(location, applied, access).map_err(reason)?;
    let mut entries = Vec::new();
    let next = |error: ReplayError| reason(error.into_damage());
    while let Some(Record { first, count, changes, .. }) =
        replay.next(applied.position).map_err(next)?
    {
        entries.push(Entry { first, count, changes: changes.to_vec() });
    }
    Ok((entries, replay))
}

fn entries(location: &Location, applied: Point) -> Result<Vec<Entry>, String> {
    let (entries, _) = read(location, applied, Access::ReadAll)?;
    Ok(entries)
}

#[track_caller]
fn assert_refused(location: &Location, applied: Point, reason: &str) {
    let found = entries(location, applied).map(|entries| entries.len());
    let message = found.expect_err("must be refused");
    assert!(message.contains(reason), "{message:?} lacks {reason:?}");
}

/// Asserts equality, without printing long records.
#[track_caller]
fn assert_same(found: &[Entry], expected: &[Entry]) {
    let firsts = |entries: &[Entry]| entries.iter().map(|entry| entry.first).collect::<Vec<_>>();
    assert_eq!(firsts(found), firsts(expected));
    assert!(found == expected, "the changes of a record differ");
}

impl Script {
    fn create(location: &Location) -> Script {
        Log::create(location, START).unwrap();
        Script::reopen(location, START, Vec::new())
    }

    /// Opens the log, which has exactly these records.
    #[track_caller]
    fn reopen(location: &Location, applied: Point, expected: Vec<Entry>) -> Script {
        let (found, replay) = read(location, applied, Access::Write).unwrap();
        assert_same(&found, &expected);
        let log = Log::go_on(replay, LENGTH_MAX).unwrap();
        Script { log, entries: expected, points: Vec::new() }
    }

    fn try_append(&mut self, seed: u64, bytes: usize) -> Result<(), AppendError> {
        let (first, count) = (self.log.point().position + 1, 1 + seed as u32 % 4);
        let changes = changes(seed, bytes);
        self.log.append(&chunks(&changes), count)?;
        self.entries.push(Entry { first, count, changes });
        self.points.push(self.log.point());
        Ok(())
    }

    fn append(&mut self, seed: u64, bytes: usize) -> Point {
        self.try_append(seed, bytes).unwrap();
        self.log.point()
    }

    /// Appends several small records.
    fn append_some(&mut self, seeds: std::ops::Range<u64>) {
        seeds.for_each(|seed| _ = self.append(seed, 40 + seed as usize * 97 % 1500));
    }
}

fn files(location: &Location) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(&location.directory).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

fn restore(location: &Location, files: &BTreeMap<String, Vec<u8>>) {
    let _ = fs::remove_dir_all(&location.directory);
    fs::create_dir(&location.directory).unwrap();
    for (name, bytes) in files {
        fs::write(location.directory.join(name), bytes).unwrap();
    }
}

/// Makes a log of three segments with small records; also returns its files after half of the first
/// segment, and of the last one.
fn three_segments(location: &Location) -> (Script, [BTreeMap<String, Vec<u8>>; 2]) {
    let mut script = Script::create(location);
    script.append_some(0..10);
    let early = files(location);
    script.append_some(10..20);
    script.log.roll(0).unwrap();
    script.append_some(20..40);
    script.log.roll(0).unwrap();
    script.append_some(40..50);
    let late = files(location);
    script.append_some(50..60);
    // A replay of short files is faster.
    for number in 1..=3 {
        let file = OpenOptions::new().write(true).open(location.path(number)).unwrap();
        file.set_len(script.log.end + 30_000).unwrap();
    }
    (script, [early, late])
}

#[test]
fn records_are_read_again_over_several_segments() {
    for is_durable in [true, false] {
        let directory = directory();
        let location = location(&directory, is_durable);
        let mut script = Script::create(&location);
        for round in 0..3 {
            for seed in round * 10..round * 10 + 10 {
                script.append(seed, if seed % 3 == 0 { 200_000 } else { seed as usize });
            }
            script.log.sync().unwrap();
            let Script { log, entries, .. } = script;
            let point = log.point();
            drop(log);
            script = Script::reopen(&location, START, entries);
            assert_eq!(script.log.point(), point);
        }
        assert!(script.log.segment.head().number > 2);
    }
}

/// Runs a script in which operations on files fail; returns whether it was too short for the fault.
fn run_with_fault(is_durable: bool, fault: (u32, u32), is_mended: bool) -> bool {
    let directory = directory();
    let location = location(&directory, is_durable);
    let mut script = Script::create(&location);
    let spare = fs::File::create(location.directory.join(SPARES[0])).unwrap();
    spare.set_len(600 << 10).unwrap();
    let mut unknown = None;
    faults::set(Some(fault));
    for (seed, bytes) in [90, 3000, 300_000, 70, 1, 300_000, 80, 5000, 60].into_iter().enumerate() {
        let first = script.log.point().position + 1;
        match script.try_append(seed as u64, bytes) {
            Ok(()) => continue,
            Err(AppendError::Refused(_)) => {}
            Err(AppendError::Unknown(_)) => {
                assert!(script.log.is_broken());
                let count = 1 + seed as u32 % 4;
                unknown = Some(Entry { first, count, changes: changes(seed as u64, bytes) });
            }
        }
        if script.log.is_broken() {
            let refused = script.try_append(99, 10);
            assert!(matches!(refused, Err(AppendError::Refused(_))));
            if !is_mended {
                break;
            }
            // Under a lasting fault this fails.
            let _ = script.log.mend();
            faults::set(None);
            while script.log.mend().is_err() {}
            unknown = None;
        }
    }
    let is_over = faults::is_pending();
    faults::set(None);
    let Script { log, mut entries, .. } = script;
    drop(log);
    let (found, _) = read(&location, START, Access::ReadAll).unwrap();
    if found.len() > entries.len() {
        entries.extend(unknown);
    }
    let mut script = Script::reopen(&location, START, entries);
    script.append_some(100..103);
    script.log.roll(0).unwrap();
    script.append_some(103..105);
    drop(script.log);
    Script::reopen(&location, START, script.entries);
    is_over
}

#[test]
fn an_operation_that_fails_loses_no_record_and_brings_none_back() {
    for is_durable in [true, false] {
        for (is_lasting, is_mended) in [(false, true), (true, true), (true, false)] {
            let failures = if is_lasting { faults::ALL } else { 1 };
            let run = |before| run_with_fault(is_durable, (before, failures), is_mended);
            let runs = (0..).find(|before| run(*before)).unwrap();
            assert!(runs > 20, "{runs}");
        }
    }
}

/// Asserts that a damaged log is refused, or has all records; returns whether it is refused.
#[track_caller]
fn is_refused(location: &Location, expected: &[Entry]) -> bool {
    match entries(location, START) {
        Ok(found) => assert_same(&found, expected),
        Err(_) => return true,
    }
    false
}

#[test]
fn a_log_that_is_cut_is_damaged_unless_it_has_all_records() {
    let directory = directory();
    let location = location(&directory, false);
    let (script, [_, late]) = three_segments(&location);
    let end = script.log.end - script.entries.last().unwrap().changes.len() as u64 % SECTOR_BYTES;
    let (path, length) = (location.path(3), fs::metadata(location.path(3)).unwrap().len());
    let mut random = fastrand::Rng::with_seed(1);
    let cuts = (0..length).step_by(512).chain((0..1000).map(|_| random.u64(0..script.log.end)));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (mark, late_mark) = (fs::read(location.directory.join("mark")).unwrap(), &late["mark"]);
    for (cut, is_zeroed) in cuts.flat_map(|cut| [(cut, false), (cut, true)]) {
        let until = if is_zeroed { (cut + SECTOR_BYTES).min(length) } else { length } as usize;
        match is_zeroed {
            true => write_at(&file, &vec![0; until - cut as usize], cut).unwrap(),
            false => file.set_len(cut).unwrap(),
        }
        let is_refused = is_refused(&location, &script.entries);
        assert!(!is_refused || cut < script.log.end, "cut at {cut}");
        let is_lost = cut >= RECORDS_START && cut + SECTOR_BYTES <= end;
        assert!(is_refused || !is_lost, "cut at {cut}");
        // With a mark that is too low, the log ends before the damage.
        fs::write(location.directory.join("mark"), late_mark).unwrap();
        if let Ok(found) = entries(&location, START) {
            assert!(found.len() >= 50);
            assert_same(&found, &script.entries[..found.len()]);
        }
        fs::write(location.directory.join("mark"), &mark).unwrap();
        write_at(&file, &bytes[cut as usize..until], cut).unwrap();
        file.set_len(length).unwrap();
    }
    assert!(!is_refused(&location, &script.entries));
    // No part of the records of an older segment may be missing.
    for number in [1, 2] {
        let file = OpenOptions::new().write(true).open(location.path(number)).unwrap();
        let bytes = fs::read(location.path(number)).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        for cut in (0..=end).step_by(512).chain((0..100).map(|_| random.u64(0..=end))) {
            file.set_len(cut).unwrap();
            assert!(is_refused(&location, &script.entries), "segment {number} cut at {cut}");
            write_at(&file, &bytes[cut as usize..], cut).unwrap();
        }
    }
    assert!(!is_refused(&location, &script.entries));
}

#[test]
fn a_flipped_bit_is_damage_or_harmless() {
    let directory = directory();
    let location = location(&directory, false);
    let (script, _) = three_segments(&location);
    for (name, bytes) in files(&location) {
        let path = location.directory.join(&name);
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let end = bytes.len().min(script.log.end as usize + 2000);
        let mut refused = 0;
        for at in (0..end).step_by(if name == "mark" { 1 } else { 97 }) {
            write_at(&file, &[bytes[at] ^ 1 << (at % 8)], at as u64).unwrap();
            refused += usize::from(is_refused(&location, &script.entries));
            write_at(&file, &bytes[at..=at], at as u64).unwrap();
        }
        assert_eq!(refused > 0, name != "mark", "{name}");
    }
}

#[test]
fn a_file_that_is_missing_or_old_or_of_another_store_is_named() {
    let [directory, other] = [directory(), directory()];
    let location = location(&directory, false);
    let foreign = Location { store: 8, ..self::location(&other, false) };
    let (script, [early, late]) = three_segments(&location);
    three_segments(&foreign);
    let (good, foreign) = (files(&location), files(&foreign));
    assert_eq!(good.len(), 4);
    for (name, bytes) in &good {
        let path = location.directory.join(name);
        fs::remove_file(&path).unwrap();
        assert_refused(&location, START, name);
        fs::write(&path, &foreign[name]).unwrap();
        assert_refused(&location, START, name);
        for old in [&early, &late] {
            let Some(old) = old.get(name).filter(|old| !old.starts_with(bytes)) else { continue };
            fs::write(&path, old).unwrap();
            match name == "mark" {
                // The mark may be too low.
                true => assert!(!is_refused(&location, &script.entries)),
                false => assert_refused(&location, START, name),
            }
        }
        for (_, segment) in good.iter().filter(|(other, _)| *other != name && name != "mark") {
            fs::write(&path, segment).unwrap();
            assert_refused(&location, START, name);
        }
        fs::write(&path, bytes).unwrap();
    }
    // The newest segments are all missing.
    restore(&location, &late);
    fs::remove_file(location.path(2)).unwrap();
    fs::remove_file(location.path(3)).unwrap();
    assert_refused(&location, START, &segment::name(2));
    fs::remove_dir_all(&location.directory).unwrap();
    assert_refused(&location, START, "log/mark is missing");
    restore(&location, &good);
    assert!(!is_refused(&location, &script.entries));
}

#[test]
fn a_log_fits_one_state_of_the_data_file_only() {
    let directory = directory();
    let location = location(&directory, false);
    let (script, [early, _]) = three_segments(&location);
    let log_files = files(&location);
    let last = script.log.point();
    for (at, point) in script.points.iter().copied().enumerate() {
        assert_same(&entries(&location, point).unwrap(), &script.entries[at + 1..]);
        let name = "log/000000000000000";
        let other = Point { chain: point.chain ^ 1, ..point };
        assert_refused(&location, other, name);
        assert_refused(&location, other, "another state of the store");
        if script.entries[at].count > 1 {
            let inside = Point { position: point.position - 1, ..point };
            assert_refused(&location, inside, "another state of the store");
        }
    }
    // Changes without a record follow the last one.
    let above = Point { position: last.position + 5, ..last };
    assert_same(&entries(&location, above).unwrap(), &[]);
    assert_refused(&location, Point { chain: !last.chain, ..above }, &segment::name(3));
    // The log is older than the data file.
    restore(&location, &early);
    assert_refused(&location, script.points[10], &segment::name(1));
    assert_refused(&location, last, &segment::name(1));
    // The data file is older than the log.
    restore(&location, &log_files);
    script.log.archive().release(script.points[19].position);
    assert_refused(&location, START, &segment::name(1));
    assert_refused(&location, script.points[18], &segment::name(1));
    assert_same(&entries(&location, script.points[19]).unwrap(), &script.entries[20..]);
}

/// Returns a log with stale records after the head of its last segment, a reused file; the second value is
/// the point at which the segment begins.
fn reused(location: &Location) -> (Script, Point) {
    let mut script = Script::create(location);
    script.log.roll(3 << 20).unwrap();
    script.append_some(0..40);
    script.log.roll(0).unwrap();
    script.log.archive().release(script.log.point().position);
    let longest = location.directory.join(SPARES[1]);
    let stale = fs::read(&longest).unwrap();
    script.append_some(40..42);
    script.log.roll(0).unwrap();
    assert!(!longest.exists());
    assert!(fs::read(location.path(4)).unwrap()[1024..] == stale[1024..]);
    let begin = script.log.point();
    script.entries.clear();
    (script, begin)
}

#[test]
fn stale_records_of_a_reused_file_are_not_read() {
    for is_durable in [true, false] {
        let directory = directory();
        let location = location(&directory, is_durable);
        let (mut script, begin) = reused(&location);
        assert_same(&entries(&location, begin).unwrap(), &[]);
        // Records of the same lengths, so that each stale one follows a new one.
        for seed in 0..40 {
            let before = (script.entries.clone(), script.log.end);
            let mark = fs::read(location.directory.join("mark")).unwrap();
            script.append_some(seed..seed + 1);
            assert_same(&entries(&location, begin).unwrap(), &script.entries);
            if seed % 8 == 7 {
                // A crash before the mark, and a torn record over a stale one.
                fs::write(location.directory.join("mark"), mark).unwrap();
                script.log.segment.write(&[0; SECTOR_BYTES as usize], before.1).unwrap();
                let log = script.log.point().position;
                drop(script.log);
                script = Script::reopen(&location, begin, before.0);
                assert!(script.log.point().position < log);
            }
        }
        // Segments go when all their changes are in LMDB, and not while they are held.
        let archive = script.log.archive();
        let held = archive.hold();
        archive.release(u64::MAX);
        assert_eq!(archive.lock().segments.len(), 1);
        drop(held);
        archive.release(begin.position - 1);
        assert_eq!(archive.lock().segments.len(), 1);
        archive.release(u64::MAX);
        assert_eq!(archive.lock().segments, []);
        let names: Vec<_> = files(&location).into_keys().collect();
        let spares = [SPARES[0].into(), SPARES[1].into()];
        assert_eq!(names, [[segment::name(4), "mark".into()], spares].concat());
        assert_same(&entries(&location, begin).unwrap(), &script.entries);
    }
}

#[test]
fn the_longest_segments_are_kept_for_reuse_and_the_longest_is_reused_first() {
    let directory = directory();
    let location = location(&directory, true);
    let mut log = Script::create(&location).log;
    for length in [50, 20, 60, 40, 30] {
        log.roll(length << 20).unwrap();
    }
    log.roll(0).unwrap();
    log.archive().release(u64::MAX);
    let files = files::system();
    let lengths = || spares(&*files, &location.directory).map(|(length, _)| length >> 20);
    assert_eq!(lengths(), [30, 40, 50, 60]);
    log.roll(0).unwrap();
    assert_eq!(lengths(), [0, 30, 40, 50]);
    assert_eq!(log.segment.length() >> 20, 60);
    // None is long enough, so a file is made in the free place.
    log.roll(61 << 20).unwrap();
    assert_eq!(lengths(), [0, 30, 40, 50]);
}

#[test]
fn a_stale_record_that_follows_the_same_point_is_not_read() {
    let directory = directory();
    let location = location(&directory, true);
    let mut script = Script::create(&location);
    let begin = script.append(0, 10);
    script.log.roll(3 << 20).unwrap();
    // The flush fails, so the next segment begins at the same point.
    faults::set(Some((3, 1)));
    assert!(matches!(script.try_append(1, 10), Err(AppendError::Refused(_))));
    faults::set(None);
    assert_eq!(script.log.segment.head(), &Head { store: 7, number: 3, begin });
    // And one more, in the file of the refused record.
    script.log.archive().release(begin.position);
    script.log.roll(0).unwrap();
    let stale = fs::read(location.path(4)).unwrap();
    assert_eq!(stale[RECORDS_START as usize + 8..][..8], (begin.position + 1).to_le_bytes());
    assert_same(&entries(&location, begin).unwrap(), &[]);
    drop(script.log);
    Script::reopen(&location, begin, Vec::new());
}

#[test]
fn a_segment_is_not_released_before_the_name_of_the_next_one_is_flushed() {
    let directory = directory();
    let location = Location { is_kept: true, ..location(&directory, true) };
    let mut script = Script::create(&location);
    script.append_some(0..3);
    // The flush of the directory fails.
    faults::set(Some((6, 1)));
    script.log.roll(0).unwrap_err();
    assert!(!faults::is_pending() && script.log.is_broken());
    assert_eq!(script.log.segment.head().number, 2);
    script.log.archive().release(u64::MAX);
    assert!(location.path(1).exists());
    script.log.mend().unwrap();
    script.log.archive().release(u64::MAX);
    assert!(!location.path(1).exists() && !location.path(2).exists());
    assert!(location.directory.join(KEPT).join(segment::name(2)).exists());
}

#[test]
fn a_log_is_not_continued_in_another_directory_of_its_name() {
    let directory = directory();
    let location = location(&directory, true);
    let mut script = Script::create(&location);
    script.append_some(0..3);
    let aside = directory.path().join("aside");
    fs::rename(&location.directory, &aside).unwrap();
    let stranger = Script::create(&Location { store: 8, ..location.clone() });
    let names = || files::system().list(&location.directory).unwrap().len();
    let (content, number) = (fs::read(location.path(1)).unwrap(), names());
    let refused = script.log.roll(0).unwrap_err().to_string();
    assert!(refused.contains("log/0000000000000001.log, which the store has open"), "{refused}");
    assert!(fs::read(location.path(1)).unwrap() == content && names() == number);
    drop(stranger);
    // Where it is, it has everything, and goes on once it is back.
    fs::remove_dir_all(&location.directory).unwrap();
    fs::rename(&aside, &location.directory).unwrap();
    script.log.roll(0).unwrap();
    script.append_some(3..5);
    Script::reopen(&location, START, script.entries);
}

#[test]
fn a_segment_begins_while_others_are_released() {
    let directory = large_directory();
    let location = location(&directory, false);
    let mut log = Script::create(&location).log;
    let (archive, mut random) = (log.archive(), fastrand::Rng::with_seed(1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for longer in 0..400 {
                // The spare segments are always too short.
                log.roll(LENGTH_MAX + (longer << 12)).unwrap();
                let number = log.segment.head().number;
                let (files, path) = (files::system(), location.path(number));
                let file = (&*files, &*path);
                Segment::open(file, (location.store, number), false).unwrap();
            }
        });
        while !writer.is_finished() {
            std::thread::sleep(Duration::from_micros(random.u64(0..400)));
            archive.release(u64::MAX);
        }
    });
}

/// Reads beside a writer, and asserts that each record is the next one.
struct Beside<'l> {
    location: &'l Location,
    replay: Option<Replay>,
    position: u64,
    reopened: u32,
    begun: Point,
    /// Whether the writer waits meanwhile.
    is_in_turn: bool,
}

impl Beside<'_> {
    /// Reads up to the mark, and begins again if that fails; returns whether it has reached the mark.
    fn read(&mut self, applied: Point) -> bool {
        let Some(replay) = &mut self.replay else {
            self.replay = Replay::open(self.location, applied, Access::Read).ok();
            self.position = applied.position;
            self.reopened += 1;
            self.begun = applied;
            return false;
        };
        match replay.next(applied.position) {
            Ok(Some(record)) => {
                assert_eq!(record.first, self.position + 1);
                assert!(record.changes == changes(record.first, record.changes.len()));
                self.position += u64::from(record.count);
                return false;
            }
            Ok(None) => return true,
            Err(ReplayError::Gap(_) | ReplayError::Behind) => {
                // Something was released since.
                assert!(!self.is_in_turn || self.begun != applied);
                self.replay = None;
            }
            Err(ReplayError::Damage(damage)) => panic!("{}", reason(damage)),
        }
        false
    }
}

/// Appends a record whose changes depend on its position; now and then begins a segment, or releases all
/// before `applied`, which it moves.
fn write_on(log: &mut Log, random: &mut fastrand::Rng, applied: &Mutex<Point>) {
    let bytes = if random.u32(0..50) == 0 { 70_000 } else { random.usize(0..1500) };
    let changes = changes(log.point.position + 1, bytes);
    log.append(&chunks(&changes), random.u32(1..4)).unwrap();
    if random.u32(0..8) == 0 {
        log.roll(0).unwrap();
    }
    if random.u32(0..30) == 0 {
        *applied.lock().unwrap() = log.point();
        log.archive().release(log.point().position);
    }
}

#[test]
fn a_reader_beside_the_writer_gets_each_record_once() {
    for seed in 0..3 {
        let directory = large_directory();
        let location = location(&directory, false);
        let mut log = Script::create(&location).log;
        let mut random = fastrand::Rng::with_seed(seed);
        let applied = Mutex::new(START);
        let mut beside = Beside {
            location: &location,
            replay: None,
            position: 0,
            reopened: 0,
            begun: START,
            is_in_turn: seed == 0,
        };
        if seed == 0 {
            // In turn.
            for _ in 0..600 {
                write_on(&mut log, &mut random, &applied);
                for _ in 0..random.u32(0..3) {
                    if beside.read(*applied.lock().unwrap()) {
                        assert_eq!(beside.position, log.point().position);
                    }
                }
            }
            while !beside.read(*applied.lock().unwrap()) {}
        } else {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    (0..600).for_each(|_| write_on(&mut log, &mut random, &applied));
                });
                loop {
                    let is_last = writer.is_finished();
                    let at = *applied.lock().unwrap();
                    if beside.read(at) && is_last {
                        break;
                    }
                }
            });
        }
        assert_eq!(beside.position, log.point().position);
        assert!(log.segment.head().number > 50 && beside.reopened > 1);
        let numbers = fs::read_dir(&location.directory)
            .unwrap()
            .filter_map(|entry| segment::number(entry.unwrap().file_name().to_str().unwrap()));
        assert_eq!(numbers.count(), log.archive.lock().segments.len() + 1);
    }
}

/// Returns changes that consist of copies of a log's records, which begin at sectors if the changes are
/// appended, and of one that would follow.
fn copies_of_records(script: &Script) -> Vec<u8> {
    // Each copied record begins at a sector in the new one too.
    let records = script.log.end - RECORDS_START;
    let mut value = vec![0; (RECORDS_START + records) as usize];
    script.log.segment.read(&mut value, 0).unwrap();
    value.drain(..HEADER_BYTES as usize);
    // And one that would be the next record.
    let (head, after) = (*script.log.segment.head(), script.log.point());
    let forged = chunks(&[1; 700]);
    let (header, _) = segment::encode((&head, after), (1, 0), &forged, 700);
    value.extend_from_slice(&header);
    value.extend_from_slice(&forged.concat());
    value
}

#[test]
fn copies_of_records_in_a_value_are_not_read() {
    let directory = directory();
    let location = location(&directory, true);
    let mut script = Script::create(&location);
    script.append_some(0..10);
    let value = copies_of_records(&script);
    for round in 0..20 {
        let first = script.log.point().position + 1;
        script.log.append(&chunks(&value), 3).unwrap();
        script.entries.push(Entry { first, count: 3, changes: value.clone() });
        script.append_some(round..round + 1);
    }
    assert_same(&entries(&location, START).unwrap(), &script.entries);
    // Its write fails, and it is erased; a short record takes its room.
    faults::set(Some((0, 1)));
    let refused = script.log.append(&chunks(&value), 3);
    faults::set(None);
    assert!(matches!(refused, Err(AppendError::Refused(_))));
    script.append(1, 10);
    drop(script.log);
    let mut script = Script::reopen(&location, START, script.entries);
    script.append_some(0..5);
    assert_same(&entries(&location, START).unwrap(), &script.entries);
}

#[test]
fn copies_of_records_in_a_value_do_not_make_a_recovery_read_more() {
    let directories = [directory(), directory()];
    let all_read = directories.each_ref().map(|directory| {
        let location = location(directory, true);
        let mut script = Script::create(&location);
        script.append_some(0..10);
        let copies = copies_of_records(&script).repeat(100);
        let is_crafted = std::ptr::eq(directory, &directories[0]);
        let value = if is_crafted { copies } else { changes(1, copies.len()) };
        assert!(value.len() > 1 << 20);
        for seed in 10..13 {
            script.log.append(&chunks(&value), 3).unwrap();
            script.append_some(seed..seed + 1);
        }
        let last = script.log.end;
        let mark = fs::read(location.directory.join("mark")).unwrap();
        script.log.append(&chunks(&value), 3).unwrap();
        let bytes_read = || {
            reads::take();
            read(&location, START, Access::ReadAll).unwrap();
            reads::take()
        };
        let whole = bytes_read();
        // The last record is torn: its last sector is missing, then its first one as well.
        fs::write(location.directory.join("mark"), &mark).unwrap();
        let zeros = [0; SECTOR_BYTES as usize];
        let torn = [segment::record_bytes(value.len()) - SECTOR_BYTES, 0].map(|at| {
            script.log.segment.write(&zeros, last + at).unwrap();
            bytes_read()
        });
        (whole, torn)
    });
    assert_eq!(all_read[0], all_read[1]);
}

#[test]
fn positions_without_a_record_are_skipped() {
    for (rolls_before, rolls_after) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let directory = directory();
        let location = location(&directory, true);
        let mut script = Script::create(&location);
        script.append_some(0..3);
        let before = script.log.point();
        let mut reader = Replay::open(&location, START, Access::Read).unwrap();
        while reader.next(0).unwrap().is_some() {}
        if rolls_before {
            script.log.roll(0).unwrap();
        }
        let applied = Point { position: before.position + 10, ..before };
        script.log.skip_to(applied.position);
        if rolls_after {
            script.log.roll(0).unwrap();
        }
        // A crash directly after the skip.
        drop(script.log);
        let mut script = Script::reopen(&location, applied, Vec::new());
        let log = script.log.point();
        assert_eq!(log.position, if rolls_after { applied } else { before }.position);
        assert_eq!(log.chain, applied.chain);
        script.log.skip_to(applied.position);
        script.append_some(3..6);
        assert_eq!(script.entries[0].first, applied.position + 1);
        assert_same(&entries(&location, applied).unwrap(), &script.entries);
        assert_same(&entries(&location, script.points[0]).unwrap(), &script.entries[1..]);
        // LMDB must have the changes that were skipped.
        assert_refused(&location, START, "log/000000000000000");
        assert_refused(&location, before, "log/000000000000000");
        let inside = Point { position: before.position + 5, ..before };
        assert_refused(&location, inside, "log/000000000000000");
        assert!(matches!(reader.next(0), Err(ReplayError::Gap(_))));
        let last = script.log.point();
        let above = Point { position: last.position + 4, ..last };
        drop(script.log);
        let mut script = Script::reopen(&location, above, Vec::new());
        script.log.skip_to(above.position);
        script.append_some(6..8);
        drop(script.log);
        Script::reopen(&location, above, script.entries);
    }
}
