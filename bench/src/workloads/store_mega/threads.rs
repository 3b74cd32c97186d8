//! `store-mega` with a store that is used by threads: one for each writer, reader and lister.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use super::super::records::Role;
use super::{LISTERS, Listing, Plan, READERS, Reading, Roles, WRITERS, Writing, prepare};
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::stores::writers::{Desk, with_desk};
use crate::stores::{Engine, View};

pub(super) fn run<E: Engine>(settings: &Settings) -> io::Result<Outcome> {
    let plan = Plan::of(settings);
    let (_directory, engine) = prepare(settings, |at, opening| E::open(at.path(), opening))?;
    let roles = with_desk(&engine, WRITERS as usize, |desk| measure(plan, &engine, desk))?;
    roles.report(plan, &engine)
}

fn measure<E: Engine>(plan: Plan, engine: &E, desk: &Desk<'_, E>) -> io::Result<Roles> {
    let writing = AtomicU64::new(WRITERS);
    let begun = Instant::now();
    thread::scope(|scope| {
        let writing = &writing;
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let result = write(plan, writer, desk, begun);
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
        let mut roles = Roles::new()?;
        for writer in writers {
            roles.puts.join(&ended(writer)?)?;
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
    desk: &Desk<'_, E>,
    begun: Instant,
) -> io::Result<Role> {
    let mut role = Role::new()?;
    let mut writing = Writing::new(plan, writer);
    let mut seat = desk.seat(writer as usize - 1, plan.inflight);
    for n in 1..=plan.count {
        let (key, value) = writing.entry(n);
        seat.put(key, value, &mut role)?;
    }
    seat.settle(0, &mut role)?;
    role.attempts = plan.count;
    role.time = begun.elapsed();
    Ok(role)
}

fn ended<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}
