//! `social`: a microblog whose users follow each other; concurrent clients send messages and read timelines and
//! profiles.
//!
//! ```text
//! driver    register, follow, post │ clients start │ wait │ … for each round │ read all timelines and profiles
//! clients                          │ request, request, …   │
//!                                  ├──────── round ────────┤
//! ```
//!
//! - A client makes its requests one after the other. A request to post is done when the last follower has received
//!   the post; the followers' processes count the deliveries.
//! - The plan, which is drawn before, is the same for every runtime: see [`plan`].
//! - Of each answer a client reads the newest posts: their times, which must descend, and their texts.
//! - At the end all timelines and profiles must have the sums of the plan: each timeline is the merge of the posts of
//!   the followed users, newest first.
//! - The rates and the percentiles are those of the rounds that are not dropped; every eighth request of a client is
//!   timed separately.

mod plan;
mod throng;

use self::plan::{Kind as Requested, Sums};
use self::throng::Service;

use super::prelude::*;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Number of requests of a client to each that is timed separately, which is the first of them.
const SAMPLED: usize = 8;

/// Number of processes: those of the users, and clients in two steps before the rounds and in each round.
fn processes(settings: &Settings) -> u64 {
    let steps = settings.get("rounds").saturating_add(2);
    let users = settings.count.div_ceil(settings.get("users_per_process"));
    users.saturating_add(settings.get("clients").saturating_mul(steps)).saturating_add(1)
}

#[derive(Default)]
struct Counted {
    deliveries: u64,
    /// Number of requests that failed, or whose answers were wrong.
    wrong: u64,
    latencies: Vec<u64>,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.deliveries += other.deliveries;
        self.wrong += other.wrong;
        self.latencies.extend(other.latencies);
    }
}

struct Settled {
    sums: Sums,
    /// Number of posts whose text is not that of their time.
    wrong_texts: u64,
}

async fn measure(service: Service, settings: &Settings) -> Measured {
    let (rounds, dropped) = (settings.get("rounds") as usize, settings.get("dropped") as usize);
    if dropped >= rounds {
        return Err("dropped must be less than rounds".into());
    }
    let failed = service.prepare().await;
    let (mut unkept, mut kept, mut elapsed) = (Counted::default(), Counted::default(), 0);
    let mut round_times = latency::histogram()?;
    for round in 0..rounds {
        let is_kept = round >= dropped;
        let time = service.round(round, if is_kept { &mut kept } else { &mut unkept }).await;
        if is_kept {
            elapsed += time;
            round_times.saturating_record(time);
        }
    }
    let settled = service.settle().await;

    let plan = service.plan();
    let requests = || plan.rounds[dropped..].iter().flatten();
    let followers = plan.followers();
    let due = requests().filter(|request| request.kind == Requested::Post);
    let due = due.map(|post| followers[post.user as usize]).sum();
    let count = |kind| requests().filter(|request| request.kind == kind).count() as u64;
    let mut outcome = Outcome::default();
    for (name, count) in [
        ("deliveries_per_s", kept.deliveries),
        ("posts_per_s", count(Requested::Post)),
        ("timelines_per_s", count(Requested::Timeline)),
        ("profiles_per_s", count(Requested::Profile)),
    ] {
        if count > 0 {
            outcome.metric(name, count as f64 * 1e9 / elapsed as f64);
        }
    }
    latency::report(&mut outcome, "", &latency::of(kept.latencies)?);
    latency::report(&mut outcome, "round_", &round_times);
    outcome.check("requests before the clock that failed", failed, 0);
    outcome.check("wrong answers", kept.wrong + unkept.wrong, 0);
    outcome.check("deliveries", kept.deliveries, due);
    let sums = plan.sums();
    outcome.check("the sum of the timelines", settled.sums.timelines, sums.timelines);
    outcome.check("the sum of the profiles", settled.sums.profiles, sums.profiles);
    outcome.check("posts with a wrong text", settled.wrong_texts, 0);
    Ok(outcome)
}
