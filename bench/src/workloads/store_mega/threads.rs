//! `store-mega` with a store used by threads: a thread for each writer, reader and lister.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use super::super::records::RoleStats;
use super::{
    LISTERS, Listing, Plan, READERS, Reading, StatsByRole, WRITERS, WriterEntries, prepare,
};
use crate::stores::writers::{Committer, with_committer};
use crate::stores::{Engine, View};
use crate::workloads::prelude::*;

pub(super) fn run<E: Engine>(settings: &Settings) -> Measured {
    let plan = Plan::of(settings);
    let (_directory, engine) = prepare(settings, |at, options| E::open(at.path(), options))?;
    let roles =
        with_committer(&engine, WRITERS as usize, |committer| measure(plan, &engine, committer))?;
    roles.report(plan, &engine)
}

fn measure<E: Engine>(
    plan: Plan,
    engine: &E,
    committer: &Committer<'_, E>,
) -> io::Result<StatsByRole> {
    let writing = AtomicU64::new(WRITERS);
    let begun = Instant::now();
    thread::scope(|scope| {
        let writing = &writing;
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let result = write(plan, writer, committer, begun);
                    writing.fetch_sub(1, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let goes_on = move |done: bool| match plan.whole {
            true => writing.load(Ordering::Relaxed) > 0,
            false => !done,
        };
        let readers: Vec<_> = (1..=READERS)
            .map(|reader| {
                scope.spawn(move || {
                    let mut reading = Reading::new(plan, reader)?;
                    let mut reader = engine.reader(View::Latest)?;
                    while goes_on(reading.is_done()) {
                        reading.get(&mut reader)?;
                        if let Some(pause) = reading.pause() {
                            thread::sleep(pause);
                        }
                    }
                    reading.hits.time = begun.elapsed();
                    Ok(reading)
                })
            })
            .collect();
        let listers: Vec<_> = (1..=LISTERS)
            .map(|lister| {
                scope.spawn(move || {
                    let mut listing = Listing::new(plan, lister)?;
                    let mut reader = engine.reader(View::Latest)?;
                    while goes_on(listing.is_done()) {
                        listing.pass(&mut reader)?;
                    }
                    listing.rows.time = begun.elapsed();
                    Ok(listing)
                })
            })
            .collect();
        let mut roles = StatsByRole::new()?;
        for writer in writers {
            roles.puts.merge(&ended(writer)?)?;
        }
        for reader in readers {
            roles.add_reading(&ended(reader)?)?;
        }
        for lister in listers {
            roles.add_listing(&ended(lister)?)?;
        }
        roles.wall = begun.elapsed();
        Ok(roles)
    })
}

fn write<E: Engine>(
    plan: Plan,
    writer: u64,
    committer: &Committer<'_, E>,
    begun: Instant,
) -> io::Result<RoleStats> {
    let mut role = RoleStats::new()?;
    let mut writing = WriterEntries::new(plan, writer);
    let mut writer_handle = committer.writer_handle(writer as usize - 1, plan.inflight);
    for n in 1..=plan.count {
        let (key, value) = writing.entry(n);
        writer_handle.put(key, value, &mut role)?;
    }
    writer_handle.wait_until_at_most(0, &mut role)?;
    role.attempts = plan.count;
    role.time = begun.elapsed();
    Ok(role)
}

fn ended<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}
