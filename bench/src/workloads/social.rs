//! `social`: a microblog whose users follow each other; concurrent clients send messages and read timelines and
//! profiles.
//!
//! ```text
//! driver    register │ follow, post │ clients start │ wait │ … for each round │ read all timelines and profiles
//! clients            │              │ request, request, …   │
//!           register_ns, follow_ns  ├──────── round ────────┤
//! ```
//!
//! - A client makes its requests one after the other. A request to post is done when the last follower has received
//!   the post; the followers' processes count the deliveries. A redirected request names a user to the directory, which
//!   passes it on to the user's process.
//! - The plan, which is drawn before, is the same for every runtime: see [`plan`].
//! - Of each answer a client reads the newest posts: their times, which must descend, and their texts.
//! - At the end all timelines and profiles must have the sums of the plan: each timeline is the merge of the posts of
//!   the followed users, newest first.
//! - The rates, the percentiles, and the mean and deviation of a round's time are those of the rounds that are not
//!   dropped; every eighth request of a client is timed separately.

mod actors;
mod plan;
mod service;
mod throng;

use self::plan::Kind as Requested;
use self::service::{Counted, Service};
use super::prelude::*;
use crate::host::{ActorHost, on_actors};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        _ => on_actors::<actors::Social>(row, settings),
    }
}

/// A microblog, as its clients use it. A request that fails has no answer.
trait Microblog: Send + Sync + 'static {
    type User: Send + Sync + 'static;
    type Posts: Posts;

    /// Registers the user of a number under the name of [`name`].
    fn register(&self, number: u64) -> impl Future<Output = Option<Self::User>> + Send;

    /// Makes a user a follower, whose timeline then has the posts of the target.
    fn follow(
        &self,
        user: &Self::User,
        target: &Self::User,
    ) -> impl Future<Output = Option<()>> + Send;

    /// Sends a message. Returns the number of followers that have received it when the last has.
    fn post(&self, user: &Self::User, time: u64) -> impl Future<Output = Option<u64>> + Send;

    fn timeline(&self, user: &Self::User) -> impl Future<Output = Option<Self::Posts>> + Send;

    fn profile(&self, user: &Self::User) -> impl Future<Output = Option<Self::Posts>> + Send;

    /// Reads the profile of a user whose process the client does not know.
    fn redirect(&self, number: u64) -> impl Future<Output = Option<Self::Posts>> + Send;
}

/// The posts of an answer.
trait Posts: Send {
    /// The times and the texts, newest first.
    fn newest_first(&self) -> impl Iterator<Item = (u64, &str)>;
}

fn name(number: u64) -> String {
    format!("user_{number}")
}

fn text(time: u64) -> String {
    format!("post {time}")
}

async fn measure<H: ActorHost>(host: H, blog: impl Microblog, settings: &Settings) -> Measured {
    let (rounds, dropped) = (settings.get("rounds") as usize, settings.get("dropped") as usize);
    if dropped >= rounds {
        return Err("dropped must be less than rounds".into());
    }
    let mut outcome = Outcome::default();
    let service = Service::start(host, blog, settings, &mut outcome).await?;
    service.prepare(&mut outcome).await;
    let (mut unkept, mut kept, mut times) = (Counted::default(), Counted::default(), Vec::new());
    for round in 0..rounds {
        let is_kept = round >= dropped;
        let time = service.round(round, if is_kept { &mut kept } else { &mut unkept }).await;
        times.extend(is_kept.then_some(time));
    }
    let settled = service.settle().await;

    let plan = service.plan();
    let requests = || plan.rounds[dropped..].iter().flatten();
    let followers = plan.followers();
    let due = requests().filter(|request| request.kind == Requested::Post);
    let due = due.map(|post| followers[post.user as usize]).sum();
    let count = |kind| requests().filter(|request| request.kind == kind).count() as u64;
    let elapsed: u64 = times.iter().sum();
    for (name, count) in [
        ("deliveries_per_s", kept.deliveries),
        ("posts_per_s", count(Requested::Post)),
        ("timelines_per_s", count(Requested::Timeline)),
        ("profiles_per_s", count(Requested::Profile)),
        ("redirects_per_s", count(Requested::Redirect)),
    ] {
        if count > 0 {
            outcome.metric(name, count as f64 * 1e9 / elapsed as f64);
        }
    }
    let mean = elapsed as f64 / times.len() as f64;
    outcome.metric("round_mean_ns", mean);
    if times.len() > 1 {
        let squares = times.iter().map(|time| (*time as f64 - mean).powi(2)).sum::<f64>();
        outcome.metric("round_deviation_ns", (squares / (times.len() - 1) as f64).sqrt());
    }
    latency::report(&mut outcome, "", &latency::of(kept.latencies)?);
    latency::report(&mut outcome, "round_", &latency::of(times)?);
    outcome.check("wrong answers", kept.wrong + unkept.wrong, 0);
    outcome.check("deliveries", kept.deliveries, due);
    let sums = plan.sums();
    outcome.check("the sum of the timelines", settled.sums.timelines, sums.timelines);
    outcome.check("the sum of the profiles", settled.sums.profiles, sums.profiles);
    outcome.check("posts with a wrong text", settled.wrong_texts, 0);
    Ok(outcome)
}
