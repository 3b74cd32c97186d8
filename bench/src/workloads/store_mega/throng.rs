//! `store-mega` with throng: a process for each writer, reader and lister, as in the original.
//!
//! A reader lets others have its worker after some gets, as a runtime that preempts would make it,
//! and a lister after some rows of its snapshot.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::super::records::Role;
use super::{LISTERS, Listing, Plan, READERS, Reading, Roles, WRITERS, Writing, prepare};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;
use crate::stores::{Throng, UnderWay};

/// Nothing that works takes this long.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A reader's gets between two looks whether others want to run: some tens of microseconds.
const GETS_PER_TURN: u64 = 64;
/// A lister's rows, the same.
const ROWS_PER_TURN: u64 = 256;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let plan = Plan::of(settings);
    let (_directory, engine) = prepare(settings, |directory, opening| {
        Throng::open_for(directory.path(), opening, WRITERS * plan.inflight)
    })?;
    let engine = Arc::new(engine);
    runtimes::throng::drive(settings, WRITERS + READERS + LISTERS, move |runtime, _| async move {
        measure(plan, &engine, &runtime).await?.report(plan, &*engine)
    })
}

async fn measure(plan: Plan, engine: &Arc<Throng>, runtime: &RuntimeHandle) -> io::Result<Roles> {
    let crew = Crew {
        plan,
        engine: engine.clone(),
        writing: Arc::new(AtomicU64::new(WRITERS)),
        begun: Instant::now(),
    };
    let writers = (1..=WRITERS).map(|number| crew.start(runtime, number, Writer));
    let readers = (1..=READERS).map(|number| crew.start(runtime, number, Reader));
    let listers = (1..=LISTERS).map(|number| crew.start(runtime, number, Lister));
    let (writers, readers, listers): (Vec<_>, Vec<_>, Vec<_>) =
        (writers.collect(), readers.collect(), listers.collect());
    let (writers, readers, listers) = tokio::join!(
        join_all(writers.iter().map(go)),
        join_all(readers.iter().map(go)),
        join_all(listers.iter().map(go)),
    );
    let mut roles = Roles::new()?;
    for writer in writers {
        roles.puts.join(&writer?)?;
    }
    for reader in readers {
        roles.add_reading(&reader?)?;
    }
    for lister in listers {
        roles.add_listing(&lister?)?;
    }
    roles.wall = crew.begun.elapsed();
    Ok(roles)
}

/// What each process has.
#[derive(Clone)]
struct Crew {
    plan: Plan,
    engine: Arc<Throng>,
    /// How many writers are not done.
    writing: Arc<AtomicU64>,
    begun: Instant,
}

/// One of them, and what it does.
struct Member<D> {
    crew: Crew,
    number: u64,
    duty: std::marker::PhantomData<D>,
}

struct Writer;
struct Reader;
struct Lister;

impl Crew {
    fn start<D: Duty>(&self, runtime: &RuntimeHandle, number: u64, _: D) -> Address<Member<D>> {
        let duty = std::marker::PhantomData;
        runtimes::throng::start(runtime, Member { crew: self.clone(), number, duty })
    }

    /// Whether a reader or lister goes on that has done its share, or not.
    fn goes_on(&self, done: bool) -> bool {
        if self.plan.whole { self.writing.load(Ordering::Relaxed) > 0 } else { !done }
    }
}

/// What a process does when it is told to.
trait Duty: Send + Sync + 'static {
    type Result: Send + 'static;

    fn run(crew: &Crew, number: u64) -> impl Future<Output = io::Result<Self::Result>> + Send;
}

impl<D: Duty> Process for Member<D> {}

struct Go<R>(std::marker::PhantomData<fn() -> R>);

impl<R: Send + 'static> Message for Go<R> {
    type Reply = io::Result<R>;
}

impl<D: Duty> Handle<Go<D::Result>> for Member<D> {
    async fn handle(&mut self, _: Go<D::Result>, _: &mut Context<Self>) -> io::Result<D::Result> {
        D::run(&self.crew, self.number).await
    }
}

async fn go<D: Duty>(member: &Address<Member<D>>) -> io::Result<D::Result> {
    let go = Go(std::marker::PhantomData);
    match member.call(go).within(PATIENCE).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(format!("a process did not answer: {error:?}"))),
    }
}

impl Duty for Writer {
    type Result = Role;

    async fn run(crew: &Crew, number: u64) -> io::Result<Role> {
        let Crew { plan, engine, writing, begun } = crew;
        let mut role = Role::new()?;
        let mut entries = Writing::new(*plan, number);
        let mut under_way = UnderWay::at_most(plan.inflight);
        for n in 1..=plan.count {
            let (key, value) = entries.entry(n);
            under_way.put(engine, &key, &value, &mut role).await?;
        }
        under_way.settle(&mut role).await?;
        writing.fetch_sub(1, Ordering::Relaxed);
        role.time = begun.elapsed();
        Ok(role)
    }
}

impl Duty for Reader {
    type Result = Reading;

    async fn run(crew: &Crew, number: u64) -> io::Result<Reading> {
        let mut reading = Reading::new(crew.plan, number)?;
        let mut reader = crew.engine.follow();
        let mut gets: u64 = 0;
        while crew.goes_on(reading.is_done()) {
            reading.get(&mut reader)?;
            gets += 1;
            if let Some(pause) = reading.pause() {
                tokio::time::sleep(pause).await;
            } else if gets.is_multiple_of(GETS_PER_TURN) {
                give_way().await;
            }
        }
        reading.hits.time = crew.begun.elapsed();
        Ok(reading)
    }
}

impl Duty for Lister {
    type Result = Listing;

    async fn run(crew: &Crew, number: u64) -> io::Result<Listing> {
        let mut listing = Listing::new(crew.plan, number)?;
        while crew.goes_on(listing.is_done()) {
            let (mut frozen, mut pass) = (crew.engine.freeze()?, listing.begin_pass());
            while listing.go_on(&mut pass, &mut frozen, ROWS_PER_TURN)? {
                give_way().await;
            }
            drop(frozen);
            give_way().await;
        }
        listing.rows.time = crew.begun.elapsed();
        Ok(listing)
    }
}

/// Lets the other processes of the worker run.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
