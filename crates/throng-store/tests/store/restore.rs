//! Restoring a backup with the log of its store, up to each moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use throng_store::{Batch, OpenError, Options, RestoreError, Restored, Store, Str, Until};

use crate::db;

/// A store whose log is kept, in directories of their own.
struct World {
    directory: TempDir,
    options: Options,
}

impl World {
    fn new() -> World {
        // Each group is followed by a checkpoint.
        let options = Store::options().keep_log(true).checkpoint_bytes(0);
        World { directory: tempfile::tempdir().unwrap(), options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> Store {
        self.options.open(self.path("data")).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.path("data/log")
    }

    fn restore(&self, log: &Path, until: Until) -> Result<(Restored, Store), RestoreError> {
        let to = self.path("restored");
        let _ = fs::remove_dir_all(&to);
        let restored = Store::restore(self.path("backup"), log, &to, until)?;
        Ok((restored, Store::open(to).unwrap()))
    }
}

fn put(store: &Store, number: u32) -> u64 {
    // Long enough that the log has many segments.
    let value = [&number.to_be_bytes()[..], &[7; 50_000]].concat();
    let batch = Batch::new().put(&db(store), b"newest", &value);
    store.write(batch.put(&db(store), &number.to_be_bytes(), b"v")).wait().unwrap();
    store.snapshot().unwrap().commit()
}

/// Returns the number of the last put, whose puts are all there.
fn puts(store: &Store) -> Option<u32> {
    let snapshot = store.snapshot().unwrap();
    let newest = db(store).get(&snapshot, b"newest").unwrap()?;
    let number = u32::from_be_bytes(newest[..4].try_into().unwrap());
    assert_eq!(db(store).len(&snapshot).unwrap(), u64::from(number) + 2);
    Some(number)
}

fn kept(world: &World) -> usize {
    fs::read_dir(world.log().join("kept")).unwrap().count()
}

#[test]
fn every_position_and_time_after_the_backup_can_be_restored() {
    let world = World::new();
    let store = world.open();
    put(&store, 0);
    store.backup(world.path("backup")).unwrap();
    let mut moments = Vec::new();
    for number in 1..25 {
        let position = put(&store, number);
        moments.push((number, position, SystemTime::now()));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(kept(&world) > 1, "{}", kept(&world));
    for (number, position, time) in moments {
        // The store is open, and may be at a checkpoint.
        let (restored, copy) = world.restore(&world.log(), Until::Position(position)).unwrap();
        assert_eq!((puts(&copy), restored.position), (Some(number), position));
        assert_eq!(copy.snapshot().unwrap().commit(), position, "positions go on");
        drop(copy);
        // Within a group the group before counts.
        let (restored, copy) = world.restore(&world.log(), Until::Position(position - 1)).unwrap();
        assert_eq!((puts(&copy), restored.position), (Some(number - 1), position - 2));
        drop(copy);
        let (restored, copy) = world.restore(&world.log(), Until::Time(time)).unwrap();
        assert_eq!(puts(&copy), Some(number));
        assert!(restored.time.unwrap() <= time);
    }
    let (_, copy) = world.restore(&world.log(), Until::End).unwrap();
    assert_eq!(puts(&copy), Some(24));
    assert_eq!(put(&copy, 25), store.snapshot().unwrap().commit() + 2);
    drop(copy);
    // A store that was closed, and one whose data file is lost.
    drop(store);
    fs::remove_file(world.path("data/data.mdb")).unwrap();
    let (_, copy) = world.restore(&world.log(), Until::End).unwrap();
    assert_eq!(puts(&copy), Some(24));
}

#[test]
fn files_of_the_log_may_come_from_elsewhere() {
    let world = World::new();
    let store = world.open();
    put(&store, 0);
    store.backup(world.path("backup")).unwrap();
    let last = (1..40).fold(0, |_, number| put(&store, number));
    drop(store);
    // Without the mark, and with all segments in one directory.
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for directory in [world.log(), world.log().join("kept")] {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_name().to_str().unwrap().ends_with(".log") {
                fs::copy(entry.path(), elsewhere.join(entry.file_name())).unwrap();
            }
        }
    }
    let (restored, copy) = world.restore(&elsewhere, Until::End).unwrap();
    assert_eq!((puts(&copy), restored.position), (Some(39), last));
    drop(copy);
    // A mark may be missing, but not damaged.
    fs::write(elsewhere.join("mark"), [0; 1024]).unwrap();
    let refused = world.restore(&elsewhere, Until::End).unwrap_err().to_string();
    assert!(refused.starts_with("log/mark is damaged"), "{refused}");
    fs::remove_file(elsewhere.join("mark")).unwrap();

    // Without the last segment the log ends early; without one in between it is damaged.
    let mut names: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    let (missing, end) = (names[1].clone(), names.pop().unwrap());
    fs::remove_file(end).unwrap();
    let refused = world.restore(&elsewhere, Until::Position(last)).unwrap_err();
    assert!(matches!(refused, RestoreError::Short { position } if position < last), "{refused}");
    let (shorter, _) = world.restore(&elsewhere, Until::End).unwrap();
    assert!(shorter.position < last);
    fs::remove_file(&missing).unwrap();
    let refused = world.restore(&elsewhere, Until::End).unwrap_err().to_string();
    let name = missing.file_name().unwrap().to_str().unwrap();
    assert!(refused.starts_with(&format!("log/{name} is missing")), "{refused}");
    assert!(!world.path("restored/data.mdb").exists());
}

#[test]
fn a_time_before_the_backup_is_refused() {
    let world = World::new();
    let store = world.open();
    put(&store, 0);
    let before = SystemTime::now();
    // A clock may stand still for some milliseconds.
    while before + Duration::from_millis(2) > SystemTime::now() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let position = put(&store, 1);
    store.backup(world.path("backup")).unwrap();
    let made = SystemTime::now();
    put(&store, 2);
    let refused = |until| match world.restore(&world.log(), until).unwrap_err() {
        RestoreError::Later { position: of, time } => {
            assert!(of == position && (before..=made).contains(&time), "{time:?}");
            time
        }
        other => panic!("{other}"),
    };
    let time = refused(Until::Time(before));
    refused(Until::Time(SystemTime::UNIX_EPOCH));
    // At its own time it is the backup.
    let (restored, copy) = world.restore(&world.log(), Until::Time(time)).unwrap();
    assert_eq!((puts(&copy), restored.time), (Some(1), None));
    drop(copy);

    // What is restored serves as a backup, and has the time of its last change.
    let (restored, copy) = world.restore(&world.log(), Until::End).unwrap();
    drop(copy);
    let last = restored.time.unwrap();
    let again = |until| {
        let to = world.path("again");
        let restored = Store::restore(world.path("restored"), world.log(), &to, until);
        let _ = fs::remove_dir_all(to);
        restored
    };
    assert_eq!(again(Until::Time(last)).unwrap().position, restored.position);
    let refused = again(Until::Time(last - Duration::from_millis(1))).unwrap_err();
    assert!(matches!(refused, RestoreError::Later { time, .. } if time == last), "{refused}");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let world = World::new();
    let store = world.open();
    let before = put(&store, 0);
    let first = put(&store, 1);
    store.backup(world.path("backup")).unwrap();
    put(&store, 2);

    let refused = world.restore(&world.log(), Until::Position(before)).unwrap_err();
    assert!(
        matches!(refused, RestoreError::Later { position, .. } if position == first),
        "{refused}"
    );
    let refused = world.restore(&world.log(), Until::Position(1_000)).unwrap_err();
    assert!(matches!(refused, RestoreError::Short { position } if position == first + 2));

    // A load and a new database have no records.
    db(&store).load([(*b"a load", *b"value")]).unwrap();
    put(&store, 3);
    let refused = world.restore(&world.log(), Until::End).unwrap_err();
    let is_gap = |refused: &RestoreError| {
        matches!(refused, RestoreError::Log { reason, position }
            if reason.ends_with("has a gap") && *position == first + 2)
    };
    assert!(is_gap(&refused), "{refused}");
    let (restored, _) = world.restore(&world.log(), Until::Position(first + 2)).unwrap();
    assert_eq!(restored.position, first + 2);
    store.backup(world.path("backup of later")).unwrap();
    let named = store.database::<Str, Str>("named").unwrap();
    named.put("key", "value").wait().unwrap();
    let later = world.path("backup of later");
    let refused = Store::restore(&later, world.log(), world.path("x"), Until::End).unwrap_err();
    assert!(matches!(refused, RestoreError::Log { .. }), "{refused}");

    // Another store, and a store that is no backup.
    let other = Store::open(world.path("other")).unwrap();
    put(&other, 0);
    let foreign = world.path("other/log");
    let refused = world.restore(&foreign, Until::End).unwrap_err().to_string();
    assert!(refused.contains("belongs to another store"), "{refused}");
    drop(other);
    let other = world.path("other");
    let refused = Store::restore(&other, world.log(), world.path("x"), Until::End).unwrap_err();
    assert!(matches!(refused, RestoreError::NotACopy { .. }), "{refused}");
    let nothing = world.path("nothing");
    let refused = Store::restore(nothing, world.log(), world.path("x"), Until::End).unwrap_err();
    assert!(matches!(refused, RestoreError::Backup(OpenError::Io { .. })), "{refused}");

    // The target is a store, and the backup has a life of its own.
    let refused = Store::restore(&later, world.log(), &other, Until::End).unwrap_err();
    assert!(matches!(refused, RestoreError::Io(ref error)
        if error.kind() == std::io::ErrorKind::AlreadyExists));
    put(&Store::open(world.path("backup")).unwrap(), 9);
    let refused = world.restore(&world.log(), Until::End).unwrap_err();
    assert!(matches!(refused, RestoreError::Changed { .. }), "{refused}");
}
