//! `store-mega` with throng: a process for each writer, reader and lister, as in the original.
//!
//! A reader yields its worker after some gets, and a lister after some rows of its snapshot; a
//! preemptive runtime would interrupt them in the same way.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;

use futures_util::future::join_all;
use throng::RuntimeHandle;

use super::super::records::RoleStats;
use super::{
    LISTERS, Listing, Plan, READERS, Reading, StatsByRole, WRITERS, WriterEntries, prepare,
};
use crate::runtimes::throng::Worker;
use crate::stores::{PutsInFlight, Throng};
use crate::workloads::prelude::*;

/// Number of gets after which a reader yields: some tens of microseconds.
const GETS_PER_TURN: u64 = 64;
/// Number of rows after which a lister yields: some tens of microseconds.
const ROWS_PER_TURN: u64 = 256;

pub(super) fn run(settings: &Settings) -> Measured {
    let plan = Plan::of(settings);
    let (_directory, engine) = prepare(settings, |directory, options| {
        Throng::open_for(directory.path(), options, WRITERS * plan.inflight)
    })?;
    let engine = Arc::new(engine);
    let processes = WRITERS + READERS + LISTERS;
    runtimes::throng::drive_with(settings, processes, false, move |runtime, _| async move {
        measure(plan, &engine, &runtime).await?.report(plan, &*engine)
    })
}

async fn measure(
    plan: Plan,
    engine: &Arc<Throng>,
    runtime: &RuntimeHandle,
) -> io::Result<StatsByRole> {
    let (writing, begun) = (Arc::new(AtomicU64::new(WRITERS)), Instant::now());
    let shared = Shared { plan, engine: engine.clone(), writing, begun };
    let workers = |count| -> Vec<_> {
        (1..=count).map(|number| (number, Worker::start(runtime), shared.clone())).collect()
    };
    let (writers, readers, listers) = (workers(WRITERS), workers(READERS), workers(LISTERS));
    let write =
        writers.into_iter().map(|(number, worker, shared)| worker.run(shared.write(number)));
    let read = readers.into_iter().map(|(number, worker, shared)| worker.run(shared.read(number)));
    let list = listers.into_iter().map(|(number, worker, shared)| worker.run(shared.list(number)));
    let (writers, readers, listers) = tokio::join!(join_all(write), join_all(read), join_all(list));
    let mut roles = StatsByRole::new()?;
    for writer in writers {
        roles.puts.merge(&writer?)?;
    }
    for reader in readers {
        roles.add_reading(&reader?)?;
    }
    for lister in listers {
        roles.add_listing(&lister?)?;
    }
    roles.wall = begun.elapsed();
    Ok(roles)
}

#[derive(Clone)]
struct Shared {
    plan: Plan,
    engine: Arc<Throng>,
    writing: Arc<AtomicU64>,
    begun: Instant,
}

/// The work of each role, by the number of the process within the role.
impl Shared {
    /// Whether a reader or lister continues, given whether its share is done.
    fn goes_on(&self, done: bool) -> bool {
        if self.plan.whole { self.writing.load(Ordering::Relaxed) > 0 } else { !done }
    }

    async fn write(self, number: u64) -> io::Result<RoleStats> {
        let Shared { plan, engine, writing, begun } = self;
        let mut role = RoleStats::new()?;
        let mut entries = WriterEntries::new(plan, number);
        let mut in_flight = PutsInFlight::at_most(plan.inflight);
        for n in 1..=plan.count {
            let (key, value) = entries.entry(n);
            in_flight.put(&engine, &key, &value, &mut role).await?;
        }
        in_flight.wait_for_all(&mut role).await?;
        writing.fetch_sub(1, Ordering::Relaxed);
        role.time = begun.elapsed();
        Ok(role)
    }

    async fn read(self, number: u64) -> io::Result<Reading> {
        let mut reading = Reading::new(self.plan, number)?;
        let mut reader = self.engine.latest_reader();
        let mut gets: u64 = 0;
        while self.goes_on(reading.is_done()) {
            reading.get(&mut reader)?;
            gets += 1;
            if let Some(pause) = reading.pause() {
                tokio::time::sleep(pause).await;
            } else if gets.is_multiple_of(GETS_PER_TURN) {
                yield_now().await;
            }
        }
        reading.hits.time = self.begun.elapsed();
        Ok(reading)
    }

    async fn list(self, number: u64) -> io::Result<Listing> {
        let mut listing = Listing::new(self.plan, number)?;
        while self.goes_on(listing.is_done()) {
            let (mut reader, mut pass) = (self.engine.snapshot_reader()?, listing.begin_pass());
            while listing.go_on(&mut pass, &mut reader, ROWS_PER_TURN)? {
                yield_now().await;
            }
            drop(reader);
            yield_now().await;
        }
        listing.rows.time = self.begun.elapsed();
        Ok(listing)
    }
}

/// Lets the other processes of the worker run.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
