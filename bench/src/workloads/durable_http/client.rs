//! The client of `durable-http`: it drives the run, and the server does nothing but serve.

use bench_steps::turns::SAMPLE;

use super::remote::Remote;
use crate::usage;
use crate::workloads::durable::{Acknowledged, Calls, Order, call_all, check_values};
use crate::workloads::prelude::*;
use crate::workloads::served::{self, Server};

pub(crate) fn run(settings: &Settings, server: &Server) -> Measured {
    served::drive(settings, drive(settings, server))
}

async fn drive(settings: &Settings, server: &Server) -> Measured {
    let (entities, connections) = (settings.get("entities"), settings.get("connections"));
    let counters = Remote::connect(server, connections).await?;
    let acknowledged = Acknowledged::all(entities, 0).into();
    let created = call_all(&counters, Calls::creating(entities), &acknowledged).await?;

    let (order, count) = (Order::Random(1), settings.count);
    let calls = Calls { order, inflight: connections, count, ..Calls::creating(entities) };
    let cpu = usage::cpu_ns_of(server.process)?;
    let turns = call_all(&counters, calls, &acknowledged).await?;
    let cpu = usage::cpu_ns_of(server.process)?.saturating_sub(cpu);

    let mut outcome = Outcome::default();
    turns.report(&mut outcome, "turns_per_s");
    outcome.metric("cpu_us_per_turn", cpu as f64 / 1e3 / count as f64);
    outcome.check("counters created", created.count, entities);
    outcome.check("turns", turns.count, count);
    outcome.check("wrong replies", created.wrong + turns.wrong, 0);
    check_values(&counters, &acknowledged, SAMPLE, "after the run", &mut outcome).await?;
    Ok(outcome)
}
