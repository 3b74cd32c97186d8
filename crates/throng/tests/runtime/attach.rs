//! Streams that are attached to a process.

use crate::{Do, OVERFLOWS, eventually, quiet, runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, SpawnError};
use tokio::sync::Semaphore;
use tokio_stream::{Stream, StreamExt, iter, pending};

/// Keeps everything that comes. Each item takes a permit of `gate` to handle.
struct Reader {
    gate: Arc<Semaphore>,
    items: Vec<u64>,
    ends: Vec<ExitReason>,
}

#[process]
impl Reader {
    #[message]
    fn end(&mut self, reason: ExitReason) {
        self.ends.push(reason);
    }
    #[message]
    fn kept(&mut self) -> (Vec<u64>, Vec<ExitReason>) {
        (self.items.clone(), self.ends.clone())
    }
}

struct Item(u64);
impl Message for Item {
    type Reply = ();
}
impl Handle<Item> for Reader {
    async fn handle(&mut self, Item(number): Item, _: &mut Context<Self>) {
        self.gate.acquire().await.unwrap().forget();
        assert_ne!(number, BAD, "on purpose");
        self.items.push(number);
    }
}

/// An item whose handler panics.
const BAD: u64 = u64::MAX;

/// Returns a turn that attaches a stream.
fn attach<S: Stream<Item = Item> + Send + 'static>(
    stream: S,
) -> impl Turn<Reader, Reply = Result<Pid, SpawnError<S>>> {
    Do(|_: &mut Reader, cx: &mut Context<Reader>| {
        cx.attach(stream, |reason| End { reason }).map_err(|error| match error {
            SpawnError::Limit { limit, process } => SpawnError::Limit { limit, process: process.0 },
            error => panic!("{error}"),
        })
    })
}

/// A reader that can handle so many items.
fn reader(permits: usize) -> Reader {
    let gate = Arc::new(Semaphore::new(permits));
    Reader { gate, items: Vec::new(), ends: Vec::new() }
}

/// The numbers below `end` as items.
fn items(end: u64) -> impl Stream<Item = Item> + Send + 'static {
    iter(0..end).map(Item)
}

/// A few items, and then none for ever; the stream holds a reference.
fn waiting(held: &Arc<()>) -> impl Stream<Item = Item> + Send + 'static {
    let held = held.clone();
    items(5).chain(pending()).map(move |item| {
        let _held = &held;
        item
    })
}

#[test]
fn all_items_come_in_order_and_then_the_end_with_its_reason() {
    type Items = Box<dyn Stream<Item = Item> + Send + Unpin>;
    /// The name, the stream, what is done to its process, and the items and ends that come.
    type Row = (&'static str, Items, Option<fn(Pid)>, u64, Vec<ExitReason>);
    let panics = |at| {
        Box::new(items(9).map(move |item| {
            assert!(item.0 != at, "torn");
            item
        })) as Items
    };
    let waits = || Box::new(items(9).chain(pending())) as Items;
    let torn = || ExitReason::Panicked("torn".into());
    let bored = ExitReason::other("bored");
    let table: [Row; 6] = [
        ("empty", Box::new(items(0)), None, 0, vec![ExitReason::Normal]),
        ("long", Box::new(items(1_000)), None, 1_000, vec![ExitReason::Normal]),
        ("panics", panics(0), None, 0, vec![torn()]),
        (
            "is asked to exit",
            waits(),
            Some(|pid| pid.exit(ExitReason::other("bored"))),
            9,
            vec![bored],
        ),
        (
            "is shut down",
            waits(),
            Some(|pid| pid.exit(ExitReason::Shutdown)),
            9,
            vec![ExitReason::Shutdown],
        ),
        ("is killed", waits(), Some(Pid::kill), 9, vec![]),
    ];
    let runtime = runtime();
    for (name, stream, act, count, ends) in table {
        runtime.block_on(async |runtime| {
            let reader = runtime.spawn(reader(10_000)).unwrap();
            let feeder = reader.call(attach(stream)).await.unwrap().unwrap();
            let mut kept = reader.kept().await.unwrap();
            while kept.0.len() as u64 != count {
                kept = reader.kept().await.unwrap();
            }
            if let Some(act) = act {
                act(feeder);
            }
            feeder.exited().await;
            let kept = reader.kept().await.unwrap();
            assert_eq!(kept, ((0..count).collect(), ends), "{name}");
            reader.kill();
        });
    }
}

#[test]
fn a_stream_is_sixteen_items_ahead_at_most() {
    runtime().block_on(async |runtime| {
        let process = reader(0);
        let gate = process.gate.clone();
        let reader = runtime.spawn(process).unwrap();
        let taken = Arc::new(AtomicU64::new(0));
        let stream = {
            let taken = taken.clone();
            iter(0..100).map(move |number| {
                taken.fetch_add(1, Ordering::Relaxed);
                Item(number)
            })
        };
        assert!(reader.call(attach(stream)).await.unwrap().is_ok());
        for handled in 0..=50 {
            eventually(|| taken.load(Ordering::Relaxed) == 16 + handled).await;
            tokio::time::sleep(Duration::from_micros(100)).await;
            assert_eq!(taken.load(Ordering::Relaxed), 16 + handled);
            gate.add_permits(1);
        }
        gate.add_permits(100);
        eventually(|| taken.load(Ordering::Relaxed) == 100).await;
    });
}

#[test]
fn a_stream_is_dropped_with_its_process() {
    type Ends = fn(Address<Reader>);
    let ends: [(&str, usize, Ends); 5] = [
        ("stopped", 100, |reader| assert!(reader.stop())),
        ("exited", 100, |reader| reader.exit(ExitReason::other("done"))),
        ("killed in its turn", 0, Address::kill),
        ("killed between turns", 100, Address::kill),
        ("panicked", 100, |reader| assert!(reader.send(Item(BAD)).is_ok())),
    ];
    let runtime = runtime();
    for (name, permits, end) in ends {
        runtime.block_on(async |runtime| {
            let reader = runtime.spawn(reader(permits)).unwrap();
            let held = Arc::new(());
            let streams = [(); 3].map(|()| waiting(&held));
            let attach = Do(|_: &mut Reader, cx: &mut Context<Reader>| {
                for stream in streams {
                    assert!(cx.attach(stream, |reason| End { reason }).is_ok());
                }
            });
            assert!(reader.send(attach).is_ok());
            eventually(|| runtime.process_count() == 4).await;
            end(reader);
            eventually(|| runtime.process_count() == 0).await;
            assert_eq!(Arc::strong_count(&held), 1, "{name}");
        });
    }
}

#[test]
fn a_shutdown_ends_attached_streams() {
    let runtime = runtime();
    let held = Arc::new(());
    runtime.block_on(async |runtime| {
        let reader = runtime.spawn(reader(100)).unwrap();
        assert!(reader.call(attach(waiting(&held))).await.unwrap().is_ok());
    });
    assert_eq!(runtime.shutdown(Duration::from_secs(60)).abandoned, 0);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn no_mailbox_bound_takes_items_away() {
    let runtime = runtime();
    for overflow in OVERFLOWS {
        runtime.block_on(async |runtime| {
            let process = reader(0);
            let gate = process.gate.clone();
            let bounded = runtime.spawner().mailbox(MailboxBound::new(1, overflow));
            let reader = bounded.spawn(process).unwrap();
            let feeder = reader.call(attach(items(100))).await.unwrap().unwrap();
            gate.add_permits(100);
            feeder.exited().await;
            let kept = reader.kept().await.unwrap();
            assert_eq!(kept, ((0..100).collect(), vec![ExitReason::Normal]), "{overflow:?}");
        });
    }
}

#[test]
fn a_used_up_budget_refuses_no_item() {
    quiet();
    let runtime = Runtime::builder().workers(2).mailbox_budget(64 * 1024).start().unwrap();
    runtime.block_on(async |runtime| {
        let process = reader(0);
        let gate = process.gate.clone();
        let reader = runtime.spawn(process).unwrap();
        let feeder = reader.call(attach(waiting_for(&gate, 100))).await.unwrap().unwrap();
        while reader.send(Item(100)).is_ok() {}
        assert!(runtime.mailbox_bytes() > 64 * 1024);
        gate.add_permits(1_000_000);
        feeder.exited().await;
        let (mut items, ends) = loop {
            // The budget refuses this call at first.
            if let Ok(kept) = reader.kept().await {
                break kept;
            }
        };
        items.retain(|number| *number < 100);
        assert_eq!((items, ends), ((0..100).collect(), vec![ExitReason::Normal]));
    });
}

/// The numbers below `end`, as soon as `gate` has permits.
fn waiting_for(gate: &Arc<Semaphore>, end: u64) -> impl Stream<Item = Item> + Send + 'static {
    let gate = gate.clone();
    Box::pin(
        tokio_stream::once(gate)
            .then(async |gate| drop(gate.acquire().await.unwrap()))
            .filter_map(|()| None)
            .chain(items(end)),
    )
}

#[test]
fn the_last_message_is_made_only_for_a_process_that_is_there() {
    /// The name, whether the reader is killed first, and whether `end` runs.
    type Row = (&'static str, bool, bool);
    let table: [Row; 2] = [("there", false, true), ("gone", true, false)];
    let runtime = runtime();
    for (name, killed, runs) in table {
        runtime.block_on(async |runtime| {
            let reader = runtime.spawn(reader(100)).unwrap();
            let ran = Arc::new(AtomicU64::new(0));
            let count = ran.clone();
            let end = move |_| -> End {
                count.fetch_add(1, Ordering::Relaxed);
                panic!("on purpose")
            };
            let attach = Do(|_: &mut Reader, cx: &mut Context<Reader>| {
                cx.attach(pending::<Item>(), end).map_err(|_| "no room").unwrap()
            });
            let feeder = reader.call(attach).await.unwrap();
            if killed {
                reader.kill();
            } else {
                feeder.exit(ExitReason::other("bored"));
            }
            feeder.exited().await;
            assert_eq!(ran.load(Ordering::Relaxed), u64::from(runs), "{name}");
            assert_eq!(Arc::strong_count(&ran), 1, "{name}");
            if !killed {
                assert_eq!(reader.kept().await.unwrap(), (vec![], vec![]), "{name}");
            }
        });
    }
}

#[test]
fn a_stream_that_never_ends_lets_other_processes_run() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let fast = runtime.spawn(reader(Semaphore::MAX_PERMITS)).unwrap();
        let endless = tokio_stream::iter(0..).map(Item);
        let feeder = fast.call(attach(endless)).await.unwrap().unwrap();
        let other = runtime.spawn(reader(0)).unwrap();
        for _ in 0..100 {
            assert_eq!(other.kept().await.unwrap(), (vec![], vec![]));
        }
        feeder.kill();
        feeder.exited().await;
        let (items, ends) = fast.kept().await.unwrap();
        assert_eq!((items.len() as u64, ends), (items.last().map_or(0, |last| last + 1), vec![]));
    });
}

#[test]
fn a_stream_without_a_process_comes_back() {
    let runtime = Runtime::builder().workers(1).process_limit(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let reader = runtime.spawn(reader(100)).unwrap();
        let refused = reader.call(attach(items(3))).await.unwrap();
        let Err(SpawnError::Limit { limit: 1, process: stream }) = refused else {
            panic!("there was no room");
        };
        assert_eq!(stream.map(|item| item.0).collect::<Vec<_>>().await, [0, 1, 2]);
        assert_eq!(reader.kept().await.unwrap(), (vec![], vec![]));
    });
}
