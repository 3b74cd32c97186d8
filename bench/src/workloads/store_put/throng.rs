//! `store-put` with throng: a process for each sequence, which awaits its oldest ticket when
//! `inflight` puts are in flight.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::super::records::RoleStats;
use super::Entries;
use crate::runtimes::throng::Worker;
use crate::stores::{Directory, OpenOptions, PutsInFlight, Throng};
use crate::workloads::prelude::*;

pub(super) fn run(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let (processes, inflight) = (settings.get("processes"), settings.get("inflight"));
    let waiting = processes.saturating_mul(inflight);
    let engine = Throng::open_for(directory.path(), OpenOptions::of(settings), waiting)?;
    let shared = Arc::new((engine, Entries::of(settings)));
    runtimes::throng::drive_with(settings, processes, false, move |runtime, _| async move {
        let begun = Instant::now();
        let putters: Vec<_> = (0..processes).map(|_| Worker::start(&runtime)).collect();
        let calls = (0..)
            .zip(putters)
            .map(|(number, putter)| putter.run(put_all(shared.clone(), number, inflight)));
        let mut puts = RoleStats::new()?;
        for role in join_all(calls).await {
            puts.merge(&role?)?;
        }
        let wall = begun.elapsed();
        puts.time = wall;
        let (engine, entries) = &*shared;
        entries.report(&puts, wall, engine)
    })
}

/// Puts the entries of a process.
async fn put_all(
    shared: Arc<(Throng, Entries)>,
    process: u64,
    inflight: u64,
) -> io::Result<RoleStats> {
    let (engine, entries) = &*shared;
    let mut role = RoleStats::new()?;
    let mut in_flight = PutsInFlight::at_most(inflight);
    for number in entries.of_process(process) {
        let (key, value) = (entries.key(number), entries.value(number));
        in_flight.put(engine, &key, value, &mut role).await?;
    }
    in_flight.wait_for_all(&mut role).await?;
    Ok(role)
}
