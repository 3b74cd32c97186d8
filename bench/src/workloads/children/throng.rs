//! `children` with throng: `spawn_child` of a dynamic supervisor.

use std::io;
use std::time::Instant;

use throng::{ChildSpec, Context, Handle, Message, Process, RuntimeHandle, Supervisor};

use super::{COUNTED, MADE};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    // Beside the children: the supervisor.
    runtimes::throng::drive_outside(settings, settings.count + 1, measure)
}

struct Worker;

impl Process for Worker {}

struct Count;

impl Message for Count {
    type Reply = ();
}

impl Handle<Count> for Worker {
    async fn handle(&mut self, _: Count, _: &mut Context<Self>) {
        COUNTED.add(1);
    }
}

async fn measure(runtime: RuntimeHandle, settings: Settings) -> io::Result<Outcome> {
    let count = settings.count;
    let supervisor = Supervisor::dynamic().start_async(&runtime).await.map_err(io::Error::other)?;
    let mut children = Vec::with_capacity(count as usize);

    let clock = Instant::now();
    for _ in 0..count {
        let child = ChildSpec::new(|| {
            MADE.add(1);
            Worker
        });
        children.push(supervisor.spawn_child(child).await.map_err(io::Error::other)?);
    }
    let elapsed = clock.elapsed();
    COUNTED.arm(count);
    for child in &children {
        // A message without a receiver is missing in the count.
        let _ = child.send(Count);
    }
    COUNTED.complete().await;
    let running = supervisor.count_children().await.map_err(io::Error::other)?;

    let mut outcome = Outcome::default();
    outcome.metric("start_ns", elapsed.as_nanos() as f64 / count as f64);
    outcome.check("children made", MADE.count(), count);
    outcome.check("children that handled a message", COUNTED.count(), count);
    outcome.check("children that run", running.active as u64, count);
    Ok(outcome)
}
