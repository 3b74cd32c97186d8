//! The feed of a store's changes: in order, whole, resumed, or refused.

use std::collections::BTreeMap;
use std::thread;

use tempfile::TempDir;
use throng_store::{Batch, Change, Feed, FeedError, FeedPosition, Options, Store, Until};

use crate::db;

/// Each group is followed by a checkpoint.
fn options() -> Options {
    Store::options().checkpoint_bytes(0)
}

fn put(store: &Store, number: u32) {
    // Long enough that the log has many segments.
    let value = [&number.to_be_bytes()[..], &[7; 50_000]].concat();
    store.write(Batch::new().put(&db(store), b"newest", &value)).wait().unwrap();
}

/// Reads the numbers that the feed has.
fn read(store: &Store, feed: &mut Feed) -> Result<Vec<u32>, FeedError> {
    let mut numbers = Vec::new();
    while let Some(group) = feed.next_group()? {
        for change in group.changes(&db(store)) {
            let (key, Change::Put(value)) = change.unwrap() else { panic!("a deletion") };
            assert_eq!(key, b"newest");
            numbers.push(u32::from_be_bytes(value[..4].try_into().unwrap()));
        }
    }
    Ok(numbers)
}

#[test]
fn a_feed_shows_each_change_once_and_goes_on_where_it_was() {
    let directory = TempDir::new().unwrap();
    let (mut position, mut expected): (Option<FeedPosition>, _) = (None, 0..0);
    for program in 0..3 {
        let store = options().keep_log(true).open(directory.path()).unwrap();
        let mut feed = store.feed(position).unwrap();
        assert_eq!(read(&store, &mut feed).unwrap(), expected.collect::<Vec<_>>());
        (0..15).for_each(|number| put(&store, program * 100 + number));
        let numbers: Vec<u32> = (0..15).map(|number| program * 100 + number).collect();
        assert_eq!(read(&store, &mut feed).unwrap(), numbers, "across segments");
        assert!(feed.next_group().unwrap().is_none());
        assert_eq!(feed.position().commit(), store.snapshot().unwrap().commit());
        position = Some(FeedPosition::from_bytes(feed.position().to_bytes()));
        // What the next program begins with.
        (50..60).for_each(|number| put(&store, program * 100 + number));
        expected = program * 100 + 50..program * 100 + 60;
    }
}

#[test]
fn changes_that_are_gone_are_not_passed_over() {
    let directory = TempDir::new().unwrap();
    let store = options().open(directory.path()).unwrap();
    let mut slow = store.feed(None).unwrap();
    put(&store, 1);
    assert_eq!(read(&store, &mut slow).unwrap(), [1]);
    let position = slow.position();
    (2..60).for_each(|number| put(&store, number));
    let lost = read(&store, &mut slow).unwrap_err();
    assert!(matches!(lost, FeedError::Lost { .. }), "{lost:?}");
    let lost = store.feed(Some(position)).unwrap_err();
    assert!(matches!(lost, FeedError::Lost { .. }), "{lost:?}");
    // A new database has no record.
    let mut feed = store.feed(None).unwrap();
    put(&store, 60);
    store.database::<throng_store::Str, throng_store::Str>("other").unwrap();
    put(&store, 61);
    let lost = read(&store, &mut feed).unwrap_err();
    assert!(matches!(lost, FeedError::Lost { .. }), "{lost:?}");
}

#[test]
fn another_history_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = options().keep_log(true).open(path("data")).unwrap();
    store.backup(path("backup")).unwrap();
    put(&store, 1);
    let mut feed = store.feed(None).unwrap();
    let before = feed.position();
    put(&store, 2);
    assert_eq!(read(&store, &mut feed).unwrap(), [2]);
    let log = path("data/log");
    Store::restore(path("backup"), log, path("restored"), Until::Position(before.commit()))
        .unwrap();
    let restored = options().keep_log(true).open(path("restored")).unwrap();
    put(&restored, 7);
    put(&restored, 8);
    let feed_from = |position| {
        let mut feed = restored.feed(Some(position))?;
        read(&restored, &mut feed)
    };
    for position in [before, feed.position()] {
        let refused = feed_from(position);
        assert!(matches!(refused, Err(FeedError::Lost { .. })), "{refused:?}");
    }
}

#[test]
fn a_feed_beside_writers_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let store = options().checkpoint_bytes(64 << 10).keep_log(true).open(directory.path()).unwrap();
    let mut feed = store.feed(None).unwrap();
    let mut counts = BTreeMap::new();
    thread::scope(|scope| {
        for writer in 0..3u8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..1_000u32 {
                    let batch = Batch::new().put(&db(store), &[writer], &number.to_be_bytes());
                    store.write(batch).wait().unwrap();
                }
            });
        }
        while counts.values().sum::<u32>() < 3 * 1_000 {
            while let Some(group) = feed.next_group().unwrap() {
                for change in group.changes(&db(&store)) {
                    let (key, Change::Put(value)) = change.unwrap() else { panic!("a deletion") };
                    let count: &mut u32 = counts.entry(key.to_vec()).or_default();
                    assert_eq!(value, count.to_be_bytes(), "in order");
                    *count += 1;
                }
            }
        }
    });
    assert_eq!(counts.len(), 3);
}
