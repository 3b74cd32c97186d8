//! The client of `http-social`: it drives the run, and the server does nothing but serve.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::AXUM_HELLO;
use super::connection::{Connection, Requests, Round, Target};
use super::population::Population;
use crate::usage;
use crate::workloads::prelude::*;
use crate::workloads::records::rate;
use crate::workloads::served::{self, Server};
use crate::workloads::tally::share;

pub(crate) fn run(settings: &Settings, server: &Server) -> Measured {
    served::drive(settings, drive(settings, server))
}

async fn drive(settings: &Settings, server: &Server) -> Measured {
    let population = Population::of(settings);
    let connection_count = settings.get("connections");
    if population.users < connection_count {
        return Err("each connection needs a user: set fewer connections".into());
    }
    let target = Target {
        address: server.address,
        is_hello: server.row == AXUM_HELLO,
        is_for_you: settings.word("home") == "for-you",
        population,
        newest: (0..population.users).map(|_| AtomicU64::new(0)).collect(),
    };
    let mut connections = Vec::new();
    for index in 0..connection_count {
        let users = share(population.users, index, connection_count);
        connections.push(Connection::open(target.clone(), users, index).await?);
    }

    let warm_up = Rounds::make(connections, |_| Requests::Each).await?;
    let of = |index| share(settings.count, index, connection_count);
    let count = |index| of(index).end - of(index).start;
    let mix = Rounds::make(warm_up.connections, |index| Requests::Mix(count(index))).await?;
    let usage = usage::cpu_ns_of(server.process)?;
    let own = usage::own_cpu_ns();
    let reads = Rounds::make(mix.connections, |index| Requests::Reads(count(index))).await?;
    let own = usage::own_cpu_ns() - own;
    let usage = usage::cpu_ns_of(server.process)?.saturating_sub(usage);

    let answered = mix.round.reads.len() + mix.round.posts.len() + reads.round.reads.len();
    let mut outcome = Outcome::default();
    outcome.metric("requests_per_s", rate(settings.count, mix.time));
    latency::report(&mut outcome, "", &latency::of(mix.round.reads)?);
    latency::report(&mut outcome, "post_", &latency::of(mix.round.posts)?);
    outcome.metric("reads_per_s", rate(settings.count, reads.time));
    outcome.metric("server_cpu_ns", usage as f64 / settings.count as f64);
    outcome.metric("client_cpu_ns", own as f64 / settings.count as f64);
    outcome.check("wrong answers before the clock", warm_up.round.wrong, 0);
    outcome.check("wrong answers of the mix", mix.round.wrong, 0);
    outcome.check("wrong answers of the reads", reads.round.wrong, 0);
    outcome.check("answers", answered as u64, 2 * settings.count);
    if !target.is_hello {
        check_all(&mut outcome, reads.connections, population).await?;
    }
    Ok(outcome)
}

async fn check_all(
    outcome: &mut Outcome,
    connections: Vec<Connection>,
    population: Population,
) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn(connection.read_all());
    }
    let (mut connections, mut without) = (Vec::new(), 0);
    let mut posts = vec![Vec::new(); population.users as usize];
    while let Some(done) = tasks.join_next().await {
        let (connection, found, wrong) = done.map_err(io::Error::other)??;
        connections.push(connection);
        found.into_iter().for_each(|(user, ids)| posts[user as usize] = ids);
        without += wrong;
    }
    outcome.check("users without all of their posts", without, 0);
    let (posts, mut tasks, mut wrong): (Arc<[Vec<u64>]>, _, _) = (posts.into(), JoinSet::new(), 0);
    for connection in connections {
        tasks.spawn(connection.check_timelines(posts.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        wrong += done.map_err(io::Error::other)??;
    }
    outcome.check("timelines that are not the newest posts", wrong, 0);
    Ok(())
}

struct Rounds {
    connections: Vec<Connection>,
    round: Round,
    time: Duration,
}

impl Rounds {
    /// Makes requests on all connections at once.
    async fn make(
        connections: Vec<Connection>,
        requests: impl Fn(u64) -> Requests,
    ) -> io::Result<Rounds> {
        let clock = Instant::now();
        let mut tasks = JoinSet::new();
        for (index, connection) in (0..).zip(connections) {
            tasks.spawn(connection.make(requests(index)));
        }
        let (mut connections, mut round) = (Vec::new(), Round::default());
        while let Some(done) = tasks.join_next().await {
            let (connection, mut own) = done.map_err(io::Error::other)??;
            connections.push(connection);
            round.reads.append(&mut own.reads);
            round.posts.append(&mut own.posts);
            round.wrong += own.wrong;
        }
        Ok(Rounds { connections, round, time: clock.elapsed() })
    }
}
