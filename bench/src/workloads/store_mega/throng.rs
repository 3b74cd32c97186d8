//! `store-mega` with throng: a process for each writer, reader and lister, as in the original.
//!
//! A reader yields its worker after some gets, and a lister after some rows of its snapshot; a
//! preemptive runtime would interrupt them in the same way.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::super::records::RoleStats;
use super::{
    LISTERS, Listing, Plan, READERS, Reading, StatsByRole, WRITERS, WriterEntries, prepare,
};
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::stores::{PutsInFlight, Throng};

/// Limit of each call, so that a lost reply cannot hang the benchmark; far longer than any run.
const TIMEOUT: Duration = Duration::from_secs(3600);

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
    runtimes::throng::drive_with(
        settings,
        WRITERS + READERS + LISTERS,
        false,
        move |runtime, _| async move { measure(plan, &engine, &runtime).await?.report(plan, &*engine) },
    )
}

async fn measure(
    plan: Plan,
    engine: &Arc<Throng>,
    runtime: &RuntimeHandle,
) -> io::Result<StatsByRole> {
    let shared = Shared {
        plan,
        engine: engine.clone(),
        writing: Arc::new(AtomicU64::new(WRITERS)),
        begun: Instant::now(),
    };
    let writers = (1..=WRITERS).map(|number| shared.start(runtime, number, Writer));
    let readers = (1..=READERS).map(|number| shared.start(runtime, number, Reader));
    let listers = (1..=LISTERS).map(|number| shared.start(runtime, number, Lister));
    let (writers, readers, listers): (Vec<_>, Vec<_>, Vec<_>) =
        (writers.collect(), readers.collect(), listers.collect());
    let (writers, readers, listers) = tokio::join!(
        join_all(writers.iter().map(go)),
        join_all(readers.iter().map(go)),
        join_all(listers.iter().map(go)),
    );
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
    roles.wall = shared.begun.elapsed();
    Ok(roles)
}

#[derive(Clone)]
struct Shared {
    plan: Plan,
    engine: Arc<Throng>,
    writing: Arc<AtomicU64>,
    begun: Instant,
}

/// The process of a writer, reader or lister, with its number within that role.
struct RoleProcess<D> {
    shared: Shared,
    number: u64,
    role: std::marker::PhantomData<D>,
}

struct Writer;
struct Reader;
struct Lister;

impl Shared {
    fn start<D: RoleWork>(
        &self,
        runtime: &RuntimeHandle,
        number: u64,
        _: D,
    ) -> Address<RoleProcess<D>> {
        let role = std::marker::PhantomData;
        runtimes::throng::start(runtime, RoleProcess { shared: self.clone(), number, role })
    }

    /// Whether a reader or lister continues, given whether its share is done.
    fn goes_on(&self, done: bool) -> bool {
        if self.plan.whole { self.writing.load(Ordering::Relaxed) > 0 } else { !done }
    }
}

/// The work of a role, which a process does on [`Go`].
trait RoleWork: Send + Sync + 'static {
    type Result: Send + 'static;

    fn run(shared: &Shared, number: u64) -> impl Future<Output = io::Result<Self::Result>> + Send;
}

impl<D: RoleWork> Process for RoleProcess<D> {}

struct Go<R>(std::marker::PhantomData<fn() -> R>);

impl<R: Send + 'static> Message for Go<R> {
    type Reply = io::Result<R>;
}

impl<D: RoleWork> Handle<Go<D::Result>> for RoleProcess<D> {
    async fn handle(&mut self, _: Go<D::Result>, _: &mut Context<Self>) -> io::Result<D::Result> {
        D::run(&self.shared, self.number).await
    }
}

async fn go<D: RoleWork>(process: &Address<RoleProcess<D>>) -> io::Result<D::Result> {
    let go = Go(std::marker::PhantomData);
    match process.call(go).within(TIMEOUT).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(format!("a process did not reply: {error:?}"))),
    }
}

impl RoleWork for Writer {
    type Result = RoleStats;

    async fn run(shared: &Shared, number: u64) -> io::Result<RoleStats> {
        let Shared { plan, engine, writing, begun } = shared;
        let mut role = RoleStats::new()?;
        let mut entries = WriterEntries::new(*plan, number);
        let mut in_flight = PutsInFlight::at_most(plan.inflight);
        for n in 1..=plan.count {
            let (key, value) = entries.entry(n);
            in_flight.put(engine, &key, &value, &mut role).await?;
        }
        in_flight.wait_for_all(&mut role).await?;
        writing.fetch_sub(1, Ordering::Relaxed);
        role.time = begun.elapsed();
        Ok(role)
    }
}

impl RoleWork for Reader {
    type Result = Reading;

    async fn run(shared: &Shared, number: u64) -> io::Result<Reading> {
        let mut reading = Reading::new(shared.plan, number)?;
        let mut reader = shared.engine.latest_reader();
        let mut gets: u64 = 0;
        while shared.goes_on(reading.is_done()) {
            reading.get(&mut reader)?;
            gets += 1;
            if let Some(pause) = reading.pause() {
                tokio::time::sleep(pause).await;
            } else if gets.is_multiple_of(GETS_PER_TURN) {
                yield_now().await;
            }
        }
        reading.hits.time = shared.begun.elapsed();
        Ok(reading)
    }
}

impl RoleWork for Lister {
    type Result = Listing;

    async fn run(shared: &Shared, number: u64) -> io::Result<Listing> {
        let mut listing = Listing::new(shared.plan, number)?;
        while shared.goes_on(listing.is_done()) {
            let (mut reader, mut pass) = (shared.engine.snapshot_reader()?, listing.begin_pass());
            while listing.go_on(&mut pass, &mut reader, ROWS_PER_TURN)? {
                yield_now().await;
            }
            drop(reader);
            yield_now().await;
        }
        listing.rows.time = shared.begun.elapsed();
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
