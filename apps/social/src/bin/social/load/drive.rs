//! The run itself: workers that send requests, and the clock that makes them due.
//!
//! ```text
//! open loop     clock (a thread) ─ due ─► backlog, bounded ─► workers, a connection each ─► tally
//!                                  └ no room: late
//! closed loop   workers, each with its own sequence of requests ─► tally
//! rooms         workers ─► talkers, a socket each ─► stored
//! ```
//!
//! Invariants: in an open loop, the latency of a request is the time since it was *due*, so a stall
//! of the node counts for every request that was due meanwhile (no coordinated omission). An arrival
//! that was not sent is counted as late, never left out silently. A run ends within
//! [`DRAIN`] and [`FINISH`] after its duration or the first signal, whatever the node does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use axum::http::StatusCode;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::schedule::{Arrivals, Kind, Mix, Plan, Plans, Times};
use super::tally::{Outcome, Tally};
use crate::api::{ApiError, Call, Connection, Reply, Socket, Target};

/// User in whose name requests are sent.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) token: String,
}

/// Manner in which requests become due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// At times that do not depend on answers.
    Open { rate: f64, arrivals: Arrivals },
    /// Each connection sends its next request after the answer to the last.
    Closed,
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) target: Target,
    /// At least two.
    pub(crate) users: Vec<User>,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) mix: Mix,
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
}

/// Run in progress, shared by its workers.
#[derive(Debug)]
pub(crate) struct Run {
    workload: Workload,
    talkers: Vec<mpsc::Sender<Saying>>,
    start: Instant,
    tally: Mutex<Tally>,
    /// Number of arrivals that have become due, in an open loop.
    due: AtomicU64,
    late: AtomicU64,
    in_flight: AtomicU64,
    sent: AtomicU64,
    stopped: AtomicBool,
}

/// Request that is due at a time since the start.
type Due = (Duration, Plan);

/// Message to be said in the room, and the receiver of its outcome.
#[derive(Debug)]
pub(crate) struct Saying {
    key: String,
    outcome: oneshot::Sender<Outcome>,
}

impl Run {
    /// Prepares a run, which starts now.
    pub(crate) async fn new(workload: Workload) -> Result<Run, ApiError> {
        let mut talkers = Vec::new();
        if workload.mix.rooms > 0 {
            for user in workload.users.iter().take(TALKERS) {
                talkers.push(talker(&workload.target, user, workload.seed).await?);
            }
        }
        let tally = Mutex::new(Tally::new(workload.duration));
        Ok(Run {
            workload,
            talkers,
            start: Instant::now(),
            tally,
            due: AtomicU64::new(0),
            late: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        })
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        // A worker that panicked has left whole counts.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of arrivals that were not sent.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed) // Relaxed: a count, here and below
    }

    /// Makes the run end: no request is sent any more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed); // Relaxed: the flag guards no other data
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Starts the workers, which end with the run.
    pub(crate) fn start(self: &Arc<Run>) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        let connection = || Connection::new(self.workload.target.clone());
        match self.workload.pace {
            Pace::Closed => {
                for worker in 0..self.workload.connections {
                    workers.spawn(self.clone().closed_loop(connection(), worker));
                }
            }
            Pace::Open { rate, arrivals } => {
                let (due, backlog) = mpsc::channel(BACKLOG_MAX);
                let backlog = Arc::new(tokio::sync::Mutex::new(backlog));
                for _ in 0..self.workload.connections {
                    workers.spawn(self.clone().open_loop(connection(), backlog.clone()));
                }
                let run = self.clone();
                let times = Times::new(self.workload.seed, arrivals, rate);
                // A thread of its own, because tokio's timers count whole milliseconds.
                thread::spawn(move || run.clock(times, &due));
            }
        }
        workers
    }

    /// Makes requests due at their times.
    fn clock(&self, times: Times, due: &mpsc::Sender<Due>) {
        for arrival in times.zip(self.plans(0)) {
            if arrival.0 >= self.workload.duration {
                return;
            }
            loop {
                if self.is_stopped() {
                    return;
                }
                match arrival.0.checked_sub(self.start.elapsed()) {
                    Some(wait) if !wait.is_zero() => thread::sleep(wait.min(STOP_CHECK)),
                    _ => break,
                }
            }
            self.due.fetch_add(1, Ordering::Relaxed);
            if due.try_send(arrival).is_err() {
                self.late.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn open_loop(
        self: Arc<Run>,
        mut connection: Connection,
        backlog: Arc<tokio::sync::Mutex<mpsc::Receiver<Due>>>,
    ) {
        loop {
            let due = backlog.lock().await.recv().await;
            let Some((at, plan)) = due else { return };
            if self.is_stopped() || self.start.elapsed() > self.workload.duration + DRAIN {
                self.late.fetch_add(1, Ordering::Relaxed);
            } else {
                self.carry_out(&mut connection, at, plan).await;
            }
        }
    }

    async fn closed_loop(self: Arc<Run>, mut connection: Connection, worker: usize) {
        for plan in self.plans(worker) {
            let at = self.start.elapsed();
            if self.is_stopped() || at >= self.workload.duration {
                return;
            }
            self.carry_out(&mut connection, at, plan).await;
        }
    }

    fn plans(&self, worker: usize) -> Plans {
        let Workload { seed, mix, ref users, .. } = self.workload;
        Plans::new(seed.wrapping_add(worker as u64), mix, users.len())
    }

    /// Sends a request that was due at `at`, and counts its outcome.
    async fn carry_out(&self, connection: &mut Connection, at: Duration, plan: Plan) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let outcome = match plan.kind {
            Kind::Say => self.say(plan, number).await,
            _ => match self.send(connection, plan, number).await {
                Ok(reply) => check(plan, &reply, number.is_multiple_of(BODY_SAMPLE)),
                Err(error) => Outcome::Failed(name(&error).to_owned()),
            },
        };
        let failed = matches!(outcome, Outcome::Failed(_));
        self.tally().add(plan.kind, at, &outcome, self.start.elapsed().saturating_sub(at));
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if failed {
            // A node that refuses connections would otherwise be asked as fast as it can refuse.
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        plan: Plan,
        number: u64,
    ) -> Result<Reply, ApiError> {
        let users = &self.workload.users;
        let (user, other) = (&users[plan.user], &users[plan.other]);
        let path = match plan.kind {
            Kind::Timeline => "/api/v1/timeline".to_owned(),
            Kind::Profile => format!("/api/v1/users/{}", other.name),
            Kind::Listing => format!("/api/v1/users/{}/posts", other.name),
            Kind::Follow => format!("/api/v1/following/{}", other.name),
            Kind::Post | Kind::Say => "/api/v1/posts".to_owned(),
        };
        let call = match plan.kind {
            Kind::Post => {
                let text = format!("post {number} of a load test, about #load and {}", other.name);
                Call::post(&path, json!({ "text": text }))
            }
            Kind::Follow if plan.undo => Call::delete(&path),
            Kind::Follow => Call::put(&path),
            _ => Call::get(&path),
        };
        connection.send(call.with_token(&user.token)).await
    }

    async fn say(&self, plan: Plan, number: u64) -> Outcome {
        let closed = || Outcome::Failed("closed".to_owned());
        let (outcome, said) = oneshot::channel();
        let talker = &self.talkers[plan.user % self.talkers.len()];
        if talker.send(Saying { key: number.to_string(), outcome }).await.is_err() {
            return closed();
        }
        match tokio::time::timeout(SAY_TIMEOUT, said).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| closed()),
            Err(_) => Outcome::Failed("timeout".to_owned()),
        }
    }

    /// Waits for the workers until [`FINISH`] has passed.
    pub(crate) async fn finish(&self, workers: &mut JoinSet<()>) {
        let ended = async { while workers.join_next().await.is_some() {} };
        // Those that have not ended are cut off by `close`.
        let _ = tokio::time::timeout(FINISH, ended).await;
    }

    /// Cuts off the workers that have not ended. Counts their requests as errors, and arrivals that nobody has sent as
    /// late.
    pub(crate) async fn close(&self, mut workers: JoinSet<()>) {
        self.stop();
        // Returns when the tasks are gone, so that none counts a request afterwards.
        workers.shutdown().await;
        let unfinished = self.in_flight.load(Ordering::Relaxed);
        if unfinished > 0 {
            let mut tally = self.tally();
            tally.all.requests += unfinished;
            tally.all.errors += unfinished;
            *tally.errors.entry("unfinished".to_owned()).or_default() += unfinished;
        }
        if let Pace::Open { .. } = self.workload.pace {
            let sent = self.sent.load(Ordering::Relaxed);
            self.late.store(self.due.load(Ordering::Relaxed) - sent, Ordering::Relaxed);
        }
    }
}

/// Judges an answer; looks into its body if `sampled`.
fn check(plan: Plan, reply: &Reply, sampled: bool) -> Outcome {
    let expected = match plan.kind {
        Kind::Timeline | Kind::Profile | Kind::Listing => StatusCode::OK,
        Kind::Post | Kind::Say => StatusCode::CREATED,
        Kind::Follow => StatusCode::NO_CONTENT,
    };
    if reply.status == StatusCode::TOO_MANY_REQUESTS {
        Outcome::Limited
    } else if reply.status != expected {
        Outcome::Failed(reply.status.as_u16().to_string())
    } else if sampled && !is_sound(plan.kind, reply) {
        Outcome::Failed("body".to_owned())
    } else {
        Outcome::Good
    }
}

/// Returns whether a body is that of the request: for pages, whether their newest posts come first.
fn is_sound(kind: Kind, reply: &Reply) -> bool {
    let body = reply.json();
    let id = |post: &serde_json::Value| post["id"].as_str()?.parse::<u64>().ok();
    match kind {
        Kind::Timeline | Kind::Listing => body["posts"].as_array().is_some_and(|posts| {
            let ids: Option<Vec<u64>> = posts.iter().map(id).collect();
            ids.is_some_and(|ids| ids.is_sorted_by(|newer, older| newer > older))
        }),
        Kind::Profile => body["posts"].is_u64(),
        Kind::Post => id(&body).is_some(),
        Kind::Follow | Kind::Say => true,
    }
}

/// Returns the name of an error in reports.
fn name(error: &ApiError) -> &'static str {
    match error {
        ApiError::Unreachable { .. } => "connect",
        ApiError::TimedOut { .. } => "timeout",
        ApiError::Closed { .. } | ApiError::Refused { .. } => "closed",
    }
}

/// Opens the socket of a user in the room of the run; returns the queue of its messages.
async fn talker(target: &Target, user: &User, seed: u64) -> Result<mpsc::Sender<Saying>, ApiError> {
    let room = format!("load_{seed}");
    let mut socket = Socket::enter(target, &user.token, &room).await?;
    let (talker, mut sayings) = mpsc::channel::<Saying>(SAYINGS_MAX);
    tokio::spawn(async move {
        let started = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let mut pending = HashMap::new();
        loop {
            tokio::select! {
                saying = sayings.recv() => {
                    let Some(Saying { key, outcome }) = saying else { return };
                    let text = format!("message {key} of a load test");
                    // Unlike the keys of an earlier run, which the room may still know.
                    let key = format!("{started}-{key}");
                    let say = json!({ "type": "say", "room": room, "text": text, "key": key });
                    pending.retain(|_, waiting: &mut oneshot::Sender<Outcome>| !waiting.is_closed());
                    pending.insert(key, outcome);
                    if socket.send(&say).await.is_err() {
                        return;
                    }
                }
                message = socket.next() => {
                    let Ok(message) = message else { return };
                    let outcome = match message["type"].as_str() {
                        Some("stored") => Outcome::Good,
                        Some("refused") => refused(message["error"].as_str().unwrap_or("refused")),
                        _ => continue,
                    };
                    if let Some(said) = message["key"].as_str().and_then(|key| pending.remove(key)) {
                        // The worker may have given up.
                        let _ = said.send(outcome);
                    }
                }
            }
        }
    });
    Ok(talker)
}

fn refused(error: &str) -> Outcome {
    if error == "rate-limited" { Outcome::Limited } else { Outcome::Failed(error.to_owned()) }
}

/// Arrivals that may wait for a connection. More of them would only wait longer than any client
/// would: at 1,000 requests a second, the last of these waits for ten seconds.
pub(crate) const BACKLOG_MAX: usize = 10_000;

/// Sockets that talk in the room. Each has many messages in flight, so a few suffice.
const TALKERS: usize = 4;

/// Messages that wait for the socket of a talker.
const SAYINGS_MAX: usize = 64;

/// Maximum time for a message in a room to be stored.
const SAY_TIMEOUT: Duration = Duration::from_secs(35);

/// Each so many requests, the body of the answer is parsed. Parsing all of them would take more
/// time of the machine than sending the requests.
const BODY_SAMPLE: u64 = 16;

/// Pause of a connection after an error.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// Time after a run in which waiting arrivals are still sent: those of the last moment are not late.
const DRAIN: Duration = Duration::from_millis(500);

/// Time for the last answers after a run.
pub(crate) const FINISH: Duration = Duration::from_secs(10);

/// Maximum time until the clock notices that the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(kind: Kind, status: u16, body: &'static str) -> Outcome {
        let plan = Plan { kind, user: 0, other: 1, undo: false };
        let status = StatusCode::from_u16(status).unwrap();
        check(plan, &Reply { status, retry_after: None, body: body.into() }, true)
    }

    #[test]
    fn an_answer_is_good_only_with_its_status_and_its_body() {
        let failed = |name: &str| Outcome::Failed(name.to_owned());
        let newest_first = r#"{"posts":[{"id":"9"},{"id":"8"}]}"#;
        assert_eq!(judge(Kind::Timeline, 200, newest_first), Outcome::Good);
        assert_eq!(judge(Kind::Listing, 200, r#"{"posts":[]}"#), Outcome::Good);
        for body in [r#"{"posts":[{"id":"8"},{"id":"9"}]}"#, r#"{"posts":[{}]}"#, "{}", "<html>"] {
            assert_eq!(judge(Kind::Timeline, 200, body), failed("body"), "{body}");
        }
        assert_eq!(judge(Kind::Post, 201, r#"{"id":"8"}"#), Outcome::Good);
        assert_eq!(judge(Kind::Post, 204, ""), failed("204"));
        assert_eq!(judge(Kind::Profile, 429, ""), Outcome::Limited);
        assert_eq!(judge(Kind::Follow, 503, ""), failed("503"));
        assert_eq!(refused("rate-limited"), Outcome::Limited);
        assert_eq!(refused("not-a-member"), failed("not-a-member"));
    }
}
