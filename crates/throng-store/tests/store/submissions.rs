//! Batches without tickets: their order, their refusals, and waiting for them.

use throng_store::{
    Batch, CommitFailure, Options, Rejection, Store, Submission, SubmitError, VALUE_BYTES_MAX,
};

use crate::{db, entries, hold_up, new_store, new_store_with, texts};

const FIRST: Submission = Submission::START;

fn put(store: &Store, key: &str, value: &str) -> Batch {
    Batch::new().put(&texts(store), key, value.as_bytes())
}

#[test]
fn submissions_and_batches_with_tickets_are_committed_in_the_order_of_queueing() {
    let (directory, store) = new_store();
    let mut last = FIRST;
    for round in 0..200 {
        let value = |part: &str| format!("{round} {part}");
        last = store
            .submit(&mut put(&store, "a", &value("submitted")).add(&db(&store), b"sum", 1), last)
            .unwrap();
        let batch = put(&store, "a", &value("written"));
        let batch = batch.put(&texts(&store), "b", value("written").as_bytes());
        let ticket = store.write(batch);
        last = store.submit(&mut put(&store, "b", &value("submitted")), last).unwrap();
        if round % 7 == 0 {
            ticket.wait().unwrap();
            store.settled(last).wait().unwrap();
            let snapshot = store.snapshot().unwrap();
            assert_eq!(db(&store).get(&snapshot, b"a").unwrap(), Some(value("written").as_bytes()));
            assert_eq!(
                db(&store).get(&snapshot, b"b").unwrap(),
                Some(value("submitted").as_bytes())
            );
            assert_eq!(store.outcomes().settled_through(), last);
        }
    }
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).get(&snapshot, b"sum").unwrap(), Some(&200i64.to_le_bytes()[..]));
    assert_eq!(store.outcomes().settled_through(), FIRST, "numbers begin again");
}

#[test]
fn a_submission_empties_its_batch_and_a_refusal_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().queue_batches_max(3).queue_bytes_max(1 << 20);
    let store = options.open(directory.path()).unwrap();
    let mut batch = put(&store, "key", "value");
    let accepted = store.submit(&mut batch, FIRST).unwrap();
    assert!(batch.is_empty());
    let mut empty = Batch::new();
    let second = store.submit(&mut empty, accepted).unwrap();
    assert!(accepted < second);
    store.settled(second).wait().unwrap();

    let refused = |mut batch: Batch| {
        let before = batch.clone();
        let error = store.submit(&mut batch, FIRST).unwrap_err();
        assert_eq!(batch, before);
        error
    };
    let rejected = |batch| match refused(batch) {
        SubmitError::Rejected(reason) => reason,
        other => panic!("{other}"),
    };
    assert_eq!(rejected(Batch::new().put(&db(&store), b"", b"value")), Rejection::KeyEmpty);
    assert_eq!(
        rejected(Batch::new().put_new(&db(&store), b"key", b"value")),
        Rejection::Conditional
    );
    let too_large = rejected(Batch::new().put(&db(&store), b"key", &vec![7; VALUE_BYTES_MAX / 8]));
    assert!(matches!(too_large, Rejection::BatchTooLarge { .. }));

    // The writer thread waits, so that the queue fills.
    let release = hold_up(&store);
    let queued: Vec<_> =
        (0..3).map(|_| store.submit(&mut put(&store, "key", "queued"), FIRST).unwrap()).collect();
    assert!(matches!(refused(put(&store, "key", "late")), SubmitError::Overloaded));
    drop(release);
    store.settled(queued[2]).wait().unwrap();
    assert!(store.outcomes().failure_of(queued[0]).is_none());

    store.close();
    assert!(matches!(refused(put(&store, "key", "late")), SubmitError::Closed));
    drop(store);
    let store = Options::default().read_only(true).open(directory.path()).unwrap();
    let refused = store.submit(&mut put(&store, "key", "late"), FIRST).unwrap_err();
    assert!(matches!(refused, SubmitError::ReadOnly));
    assert_eq!(entries(&store), [(b"key".to_vec(), b"queued".to_vec())]);
}

#[test]
fn submissions_that_are_queued_when_the_store_closes_are_committed() {
    let (directory, store) = new_store();
    let mut last = FIRST;
    for number in 0..5_000u32 {
        // Some are so large that they are not joined with others.
        let bytes = if number % 500 == 0 { 100_000 } else { number as usize % 300 };
        let mut batch = Batch::new().put(&db(&store), &number.to_be_bytes(), &vec![7; bytes]);
        last = store.submit(&mut batch, last).unwrap();
    }
    let settled = store.settled(last);
    let waits = std::thread::spawn(move || settled.wait());
    drop(store);
    assert!(matches!(waits.join().unwrap(), Ok::<(), CommitFailure>(())));
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.verify().unwrap(), 5_000);
}

#[test]
fn a_full_store_keeps_the_submissions_before_the_first_that_did_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().map_bytes(1 << 20).checkpoint_bytes(64 << 10);
    let store = options.open(directory.path()).unwrap();
    let mut given = Vec::new();
    let mut last = FIRST;
    let lost = loop {
        let mut batch =
            Batch::new().put(&db(&store), &(given.len() as u32).to_be_bytes(), &[7; 900]);
        match store.submit(&mut batch, last) {
            Ok(submission) => given.push(submission),
            Err(SubmitError::Overloaded) => {}
            Err(SubmitError::Lost(failure)) => break failure,
            Err(other) => panic!("{other}"),
        }
        last = given[given.len() - 1];
    };
    assert!(matches!(lost, CommitFailure::NotWritten(_)), "{lost}");
    let outcomes = given.iter().map(|submission| store.settled(*submission).wait());
    let durable = outcomes.map(|outcome| outcome.is_ok()).collect::<Vec<_>>();
    let kept = durable.iter().take_while(|is_durable| **is_durable).count();
    assert!(kept > 100 && durable[kept..].iter().all(|is_durable| !is_durable), "{kept}");
    let is_held = |found: Vec<(Vec<u8>, Vec<u8>)>| {
        found.len() == kept
            && found.iter().zip(0u32..).all(|((key, _), number)| **key == number.to_be_bytes())
    };
    assert!(is_held(entries(&store)));
    // Others are not affected.
    let delete =
        store.submit(&mut Batch::new().delete(&db(&store), &0u32.to_be_bytes()), FIRST).unwrap();
    store.settled(delete).wait().unwrap();
    let again = store
        .submit(&mut Batch::new().put(&db(&store), &0u32.to_be_bytes(), &[7; 900]), delete)
        .unwrap();
    store.settled(again).wait().unwrap();
    drop(store);
    assert!(is_held(entries(&Store::open(directory.path()).unwrap())));
}

#[test]
fn the_outcome_of_a_submission_that_was_never_made_is_a_loss() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [store, other] = directories.each_ref().map(|path| Store::open(path.path()).unwrap());
    let own = store.submit(&mut put(&store, "a", "1"), FIRST).unwrap();
    let first = other.submit(&mut put(&other, "a", "1"), FIRST).unwrap();
    let foreign = other.submit(&mut put(&other, "a", "2"), first).unwrap();
    assert!(matches!(store.settled(foreign).wait(), Err(CommitFailure::NotWritten(_))));
    store.settled(own).wait().unwrap();
    other.settled(foreign).wait().unwrap();
    // A wait for the next one is a matter of its own.
    let after = store.outcomes().settled_after(own);
    let waits = std::thread::spawn(move || after.wait());
    store.submit(&mut put(&store, "b", "1"), own).unwrap();
    waits.join().unwrap().unwrap();
}

#[test]
fn a_queue_for_no_batch_takes_one_at_a_time() {
    let (_directory, store) = new_store_with(&Store::options().queue_batches_max(0));
    store.write(put(&store, "a", "1")).wait().unwrap();
    let submitted = store.submit(&mut put(&store, "b", "2"), FIRST).unwrap();
    store.settled(submitted).wait().unwrap();
    assert_eq!(db(&store).get(&store.snapshot().unwrap(), b"b").unwrap(), Some(&b"2"[..]));
}
