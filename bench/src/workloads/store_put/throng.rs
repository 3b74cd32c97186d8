//! `store-put` with throng: a process for each sequence, which awaits its oldest ticket when
//! `inflight` puts are in flight.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use throng::{Context, Handle, Message, Process};

use super::super::records::RoleStats;
use super::Entries;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::stores::{Directory, OpenOptions, PutsInFlight, Throng};

/// Limit of each call, so that a lost reply cannot hang the benchmark; far longer than any run.
const TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) fn run(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let (processes, inflight) = (settings.get("processes"), settings.get("inflight"));
    let waiting = processes.saturating_mul(inflight);
    let engine = Throng::open_for(directory.path(), OpenOptions::of(settings), waiting)?;
    let shared = Arc::new((engine, Entries::of(settings)));
    runtimes::throng::drive_with(settings, processes, false, move |runtime, _| async move {
        let begun = Instant::now();
        let putters: Vec<_> = (0..processes)
            .map(|number| {
                let putter = Putter { shared: shared.clone(), number, inflight };
                runtimes::throng::start(&runtime, putter)
            })
            .collect();
        let calls = putters.iter().map(|putter| async { putter.call(Go).within(TIMEOUT).await });
        let mut puts = RoleStats::new()?;
        for role in join_all(calls).await {
            let role = role.map_err(|error| io::Error::other(format!("{error:?}")))?;
            puts.merge(&role?)?;
        }
        let wall = begun.elapsed();
        puts.time = wall;
        let (engine, entries) = &*shared;
        entries.report(&puts, wall, engine)
    })
}

struct Putter {
    shared: Arc<(Throng, Entries)>,
    number: u64,
    inflight: u64,
}

impl Process for Putter {}

struct Go;

impl Message for Go {
    type Reply = io::Result<RoleStats>;
}

impl Handle<Go> for Putter {
    async fn handle(&mut self, _: Go, _: &mut Context<Self>) -> io::Result<RoleStats> {
        let (engine, entries) = &*self.shared;
        let mut role = RoleStats::new()?;
        let mut in_flight = PutsInFlight::at_most(self.inflight);
        for number in entries.of_process(self.number) {
            let (key, value) = (entries.key(number), entries.value(number));
            in_flight.put(engine, &key, value, &mut role).await?;
        }
        in_flight.wait_for_all(&mut role).await?;
        Ok(role)
    }
}
