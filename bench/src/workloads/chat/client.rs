//! The client of `chat`: it opens all sockets, and drives the run.
//!
//! Sockets come from several addresses
//! of the loopback device, because an address has some 28,000 ports by default.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use rustix::process::{Resource, getrlimit};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::socket::{Pace, Shared, Socket};
use super::{Layout, user_name};
use crate::usage;
use crate::workloads::latency::{self, Latencies};
use crate::workloads::message_node::Tokens;
use crate::workloads::prelude::*;
use crate::workloads::records::rate;
use crate::workloads::served::{self, Server};

/// Number of sockets that are opened at once.
const AT_ONCE: usize = 64;

/// Number of open files of either process besides its sockets.
const FILES: u64 = 200;

/// Time in which no message may come at the end.
const SILENCE: Duration = Duration::from_millis(200);

pub(crate) fn run(settings: &Settings, server: &Server) -> Measured {
    served::drive(settings, drive(settings, server))
}

async fn drive(settings: &Settings, server: &Server) -> Measured {
    let layout = Layout::of(settings)?;
    check_files(layout.sockets)?;
    let before = memory::resident_bytes_of(server.process)?;
    let latencies = Latencies::new()?;
    let shared = Arc::new(Shared { layout, clock: Instant::now(), latencies });
    let tokens = (server.row == "throng").then(Tokens::new);
    let sockets: Vec<Socket> = stream::iter(0..layout.sockets)
        .map(|number| {
            let name = user_name(number);
            let token = tokens.as_ref().map(|tokens| tokens.of(&name));
            let (shared, address) = (shared.clone(), server.address);
            async move { Socket::open(shared, address, number, &token.unwrap_or(name)).await }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    sleep(Duration::from_secs(settings.get("settle"))).await;
    let idle = memory::resident_bytes_of(server.process)?.saturating_sub(before);

    let messages = layout.messages(settings.count);
    let warm_up = messages.div_ceil(10);
    let sockets = converse(sockets, &shared, warm_up, None).await?;
    take_latencies(&shared)?;
    let (usage, own) = (usage::cpu_ns_of(server.process)?, usage::own_cpu_ns());
    let clock = Instant::now();
    let offered = Some(settings.get("rate")).filter(|rate| *rate > 0);
    let sockets = converse(sockets, &shared, messages, offered).await?;
    let time = clock.elapsed();
    let own = usage::own_cpu_ns() - own;
    let usage = usage::cpu_ns_of(server.process)?.saturating_sub(usage);
    let latencies = take_latencies(&shared)?;

    let deliveries = messages * layout.senders * layout.sockets;
    let mut outcome = Outcome::default();
    outcome.metric("deliveries_per_s", rate(deliveries, time));
    latency::report(&mut outcome, "", &latencies);
    outcome.metric("bytes_per_idle_connection", idle as f64 / layout.sockets as f64);
    outcome.metric("server_cpu_ns", usage as f64 / deliveries as f64);
    outcome.metric("client_cpu_ns", own as f64 / deliveries as f64);
    outcome.check("deliveries", latencies.len(), deliveries);
    let mut silent = JoinSet::new();
    for socket in sockets {
        silent.spawn(socket.check_silence(SILENCE));
    }
    while let Some(done) = silent.join_next().await {
        done??;
    }
    Ok(outcome)
}

/// Has all senders say messages, and all sockets receive them; at `offered` messages per second in all, if given.
async fn converse(
    sockets: Vec<Socket>,
    shared: &Shared,
    messages: u64,
    offered: Option<u64>,
) -> io::Result<Vec<Socket>> {
    let layout = shared.layout;
    let senders = layout.rooms() * layout.senders;
    let start = shared.clock.elapsed();
    let mut tasks = JoinSet::new();
    for (number, socket) in (0..).zip(sockets) {
        let pace = match offered {
            None => Pace::Closed,
            Some(rate) => {
                let interval = Duration::from_secs_f64(senders as f64 / rate as f64);
                // Each sender has a place of its own within the interval, and neighbours are in different rooms.
                let place = number % layout.room * layout.rooms() + layout.room_of(number);
                let first = start + interval.mul_f64((place % senders) as f64 / senders as f64);
                Pace::Open { first, interval }
            }
        };
        tasks.spawn(socket.converse(messages, pace));
    }
    let mut sockets = Vec::new();
    while let Some(done) = tasks.join_next().await {
        sockets.push(done.map_err(io::Error::other)??);
    }
    sockets.sort_unstable_by_key(Socket::number);
    Ok(sockets)
}

fn take_latencies(shared: &Shared) -> io::Result<hdrhistogram::Histogram<u64>> {
    Ok(std::mem::replace(&mut *shared.latencies.lock(), latency::histogram()?))
}

/// Checks that the system allows as many open files as there are sockets, for the server's process as well.
fn check_files(sockets: u64) -> io::Result<()> {
    let needed = sockets + FILES;
    match getrlimit(Resource::Nofile).current {
        Some(allowed) if allowed < needed => Err(io::Error::other(format!(
            "{sockets} sockets need {needed} open files in each process, and the system allows {allowed}"
        ))),
        _ => Ok(()),
    }
}
