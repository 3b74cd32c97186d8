//! User code that panics on the store's threads: wakers, and values that the store drops.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use throng_store::{Batch, ReadError, Store, UpdateError, WriteError};

use crate::{db, hold_up, new_store, new_store_with};

/// A waker that counts its calls and panics.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
        panic!("on purpose");
    }
}

/// A value that panics when it is dropped.
struct PanicsWhenDropped(Arc<AtomicBool>);

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        panic!("on purpose");
    }
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

fn write(store: &Store) -> Result<(), WriteError> {
    db(store).put(b"key", b"value").wait()
}

#[test]
fn a_waker_that_panics_harms_no_other_write() {
    let (_directory, store) = new_store();
    let release = hold_up(&store);
    let panics = Arc::new(Panics::default());
    let waker = Waker::from(panics.clone());
    let mut tickets: Vec<_> = (0..3).map(|key| db(&store).put(&[key], b"value")).collect();
    for ticket in &mut tickets {
        assert!(poll(Pin::new(ticket), &waker).is_pending());
    }
    // A write behind them, in the same group.
    let neighbour = db(&store).put(b"neighbour", b"value");
    let waits = thread::spawn(move || neighbour.wait());
    drop(release);
    waits.join().unwrap().unwrap();
    write(&store).unwrap();
    assert_eq!(panics.0.load(Ordering::Acquire), 3);
    for mut ticket in tickets {
        assert!(matches!(poll(Pin::new(&mut ticket), Waker::noop()), Poll::Ready(Ok(()))));
    }
    assert!(store.is_writable());
    assert_eq!(store.stat().unwrap().recoveries, 0);
}

#[test]
fn a_waker_that_panics_does_not_stop_other_wakers_for_room() {
    struct Notifies(Mutex<mpsc::Sender<()>>);
    impl Wake for Notifies {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }
    let (_directory, store) = new_store_with(&Store::options().queue_batches_max(1));
    let batch = Batch::new().put(&db(&store), b"key", b"value");
    // The writer calls the wakers, or a thread that closes the store does.
    for closes in [false, true] {
        let release = hold_up(&store);
        let queued = store.write(batch.clone());
        let (notifies, notified) = mpsc::channel();
        let wait_for_room = |waker: Waker| {
            let mut room = Box::pin(store.room_for(&batch));
            assert!(poll(room.as_mut(), &waker).is_pending());
            room
        };
        let panics = Arc::new(Panics::default());
        let first = wait_for_room(panics.clone().into());
        let second = wait_for_room(Arc::new(Notifies(Mutex::new(notifies))).into());
        if closes {
            let closing = store.clone();
            let closing = thread::spawn(move || closing.close());
            notified.recv().unwrap();
            drop(release);
            closing.join().unwrap();
            queued.wait().unwrap();
        } else {
            drop(release);
            notified.recv().unwrap();
            queued.wait().unwrap();
            write(&store).unwrap();
        }
        assert_eq!(panics.0.load(Ordering::Acquire), 1);
        drop((first, second));
    }
}

#[test]
fn an_update_whose_values_panic_when_dropped_harms_only_itself() {
    let (_directory, store) = new_store();
    let dropped = Arc::new(AtomicBool::new(false));

    // A captured value, when the ticket is dropped: the writer drops the value.
    let captured = PanicsWhenDropped(dropped.clone());
    let entries = db(&store);
    drop(store.update(move |update| {
        update.put(
            &entries,
            b"captured",
            if captured.0.load(Ordering::Acquire) { b"0" } else { b"1" },
        );
        Ok::<_, ReadError>(())
    }));
    write(&store).unwrap();
    assert!(dropped.swap(false, Ordering::AcqRel));

    // The returned value, when the ticket is dropped.
    let returned = dropped.clone();
    drop(store.update(move |_| Ok::<_, ReadError>(PanicsWhenDropped(returned.clone()))));
    write(&store).unwrap();
    assert!(dropped.swap(false, Ordering::AcqRel));

    // The returned value, when the update is rejected because of an empty key.
    let returned = dropped.clone();
    let entries = db(&store);
    let rejected = store.update(move |update| {
        update.put(&entries, b"", b"no key");
        Ok::<_, ReadError>(PanicsWhenDropped(returned.clone()))
    });
    assert!(matches!(rejected.wait(), Err(UpdateError::Rejected(_))));
    assert!(dropped.swap(false, Ordering::AcqRel));

    // The payload of a panic.
    let payload = dropped.clone();
    let panicked = store.update(move |_| -> Result<(), ReadError> {
        std::panic::panic_any(PanicsWhenDropped(payload.clone()))
    });
    assert!(matches!(panicked.wait(), Err(UpdateError::Panicked)));
    assert!(dropped.swap(false, Ordering::AcqRel));

    // A captured value, when a closed store refuses the update.
    write(&store).unwrap();
    assert_eq!(db(&store).get(&store.snapshot().unwrap(), b"captured").unwrap(), Some(&b"1"[..]));
    store.close();
    let captured = PanicsWhenDropped(dropped.clone());
    let refused = store.update(move |_| Ok::<_, ReadError>(captured.0.load(Ordering::Acquire)));
    assert!(matches!(refused.wait(), Err(UpdateError::Write(WriteError::Closed(_)))));
    assert!(dropped.load(Ordering::Acquire));
}

#[test]
fn a_replaced_waker_is_dropped_outside_of_the_lock() {
    /// A waker that writes when it is dropped, and so waits for the writer.
    struct Writes(Store, Mutex<Option<mpsc::Sender<()>>>);
    impl Wake for Writes {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Writes {
        fn drop(&mut self) {
            self.1.lock().unwrap().take();
            write(&self.0).unwrap();
        }
    }
    let (_directory, store) = new_store();
    let release = hold_up(&store);
    let mut ticket = db(&store).put(b"first", b"value");
    let writes = Waker::from(Arc::new(Writes(store.clone(), Mutex::new(Some(release)))));
    assert!(poll(Pin::new(&mut ticket), &writes).is_pending());
    drop(writes);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        // The writer resolves this ticket next, and would wait forever if the waker were dropped
        // under the ticket's lock.
        let _ = poll(Pin::new(&mut ticket), Waker::noop());
        let _ = done.send(ticket);
    });
    is_done.recv_timeout(Duration::from_secs(60)).unwrap().wait().unwrap();
}
