//! The clients of `social`, each a process, and the steps of a run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::plan::{Kind, Plan, Request, Sums, sum};
use super::{Microblog, Posts, text};
use crate::host::ActorHost;
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::workloads::tally::Tally;

static DONE: Tally = Tally::new();

/// Number of requests of a client to each that is timed separately, which is the first of them.
const SAMPLED: usize = 8;

#[derive(Default)]
pub(super) struct Counted {
    pub(super) deliveries: u64,
    /// Number of requests that failed, or whose answers were wrong.
    pub(super) wrong: u64,
    pub(super) latencies: Vec<u64>,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.deliveries += other.deliveries;
        self.wrong += other.wrong;
        self.latencies.extend(other.latencies);
    }
}

pub(super) struct Settled {
    pub(super) sums: Sums,
    /// Number of posts whose text is not that of their time.
    pub(super) wrong_texts: u64,
}

pub(super) struct Service<H, B: Microblog> {
    host: H,
    clients: usize,
    shared: Arc<Shared<B>>,
}

struct Shared<B: Microblog> {
    plan: Plan,
    blog: B,
    users: Vec<B::User>,
    /// Number of posts that a client reads of each answer.
    read: usize,
}

impl<H: ActorHost, B: Microblog> Service<H, B> {
    /// Registers all users, one after the other.
    pub(super) async fn start(
        host: H,
        blog: B,
        settings: &Settings,
        outcome: &mut Outcome,
    ) -> Result<Service<H, B>, &'static str> {
        let plan = Plan::new(settings);
        let mut users = Vec::new();
        let clock = Instant::now();
        for number in 0..settings.count {
            users.push(blog.register(number).await.ok_or("a user could not be registered")?);
        }
        let elapsed = clock.elapsed().as_nanos() as f64;
        outcome.metric("register_ns", elapsed / settings.count as f64);
        let shared = Shared { plan, blog, users, read: settings.get("read") as usize };
        Ok(Service { host, clients: settings.get("clients") as usize, shared: Arc::new(shared) })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// Makes all follows and the posts before the clock.
    pub(super) async fn prepare(&self, outcome: &mut Outcome) {
        let (clients, clock) = (self.clients, Instant::now());
        let mut failed = self
            .on_clients(|client, shared| async move {
                let mut failed = 0;
                for user in (client..shared.users.len()).step_by(clients) {
                    for &target in &shared.plan.followees[user] {
                        let target = &shared.users[target as usize];
                        let followed = shared.blog.follow(&shared.users[user], target).await;
                        failed += u64::from(followed.is_none());
                    }
                }
                failed
            })
            .await;
        let elapsed = clock.elapsed().as_nanos() as f64;
        let follows: usize = self.plan().followees.iter().map(Vec::len).sum();
        if follows > 0 {
            outcome.metric("follow_ns", elapsed / follows as f64);
        }
        failed += self
            .on_clients(|client, shared| async move {
                let mut failed = 0;
                for post in shared.plan.before().skip(client).step_by(clients) {
                    failed += u64::from(shared.post(post).await.is_none());
                }
                failed
            })
            .await;
        outcome.check("requests before the clock that failed", failed, 0);
    }

    /// Makes the requests of a round: client `i` each request of `i` modulo the number of clients, one after the
    /// other. Returns the time from the start of the clients until the last is done.
    pub(super) async fn round(&self, round: usize, counted: &mut Counted) -> u64 {
        let sum = Arc::new(Mutex::new(Counted::default()));
        let deal = |client: usize| -> Vec<Request> {
            let of_round = self.plan().rounds[round].iter();
            of_round.skip(client).step_by(self.clients).copied().collect()
        };
        let mut dealt: Vec<Vec<Request>> = (0..self.clients).rev().map(deal).collect();
        let clock = Instant::now();
        self.on_clients(|_, shared| {
            let (requests, sum) = (dealt.pop().unwrap_or_default(), Arc::clone(&sum));
            async move {
                let own = shared.serve(&requests).await;
                sum.lock().unwrap_or_else(PoisonError::into_inner).add(own);
                0
            }
        })
        .await;
        let elapsed = clock.elapsed().as_nanos() as u64;
        counted.add(std::mem::take(&mut *sum.lock().unwrap_or_else(PoisonError::into_inner)));
        elapsed
    }

    pub(super) async fn settle(&self) -> Settled {
        let mut settled = Settled { sums: Sums { timelines: 0, profiles: 0 }, wrong_texts: 0 };
        let Shared { blog, users, read, .. } = &*self.shared;
        for user in users {
            // An answer that is missing is missing in the sum.
            if let Some(timeline) = blog.timeline(user).await {
                settled.sums.timelines += settled.note(&timeline, *read);
            }
            if let Some(profile) = blog.profile(user).await {
                settled.sums.profiles += settled.note(&profile, usize::MAX);
            }
        }
        settled
    }

    /// Runs a function in each client, a process; returns the sum of the results when all are done.
    async fn on_clients<F: Future<Output = u64> + Send + 'static>(
        &self,
        mut work: impl FnMut(usize, Arc<Shared<B>>) -> F + Send,
    ) -> u64 {
        let (count, sum, clients) = (DONE.count(), DONE.sum(), self.clients as u64);
        DONE.arm(count + clients);
        for client in 0..self.clients {
            let work = work(client, Arc::clone(&self.shared));
            self.host.run(async { DONE.add(work.await) }).await;
        }
        DONE.complete().await;
        let missing = count + clients - DONE.count();
        DONE.sum() - sum + missing
    }
}

impl Settled {
    /// Checks the newest texts; returns the sum of the times.
    fn note(&mut self, posts: &impl Posts, read: usize) -> u64 {
        let newest = posts.newest_first().take(read);
        self.wrong_texts += newest.filter(|(time, found)| *found != text(*time)).count() as u64;
        sum(posts.newest_first().map(|(time, _)| time))
    }
}

impl<B: Microblog> Shared<B> {
    async fn serve(&self, requests: &[Request]) -> Counted {
        let mut counted = Counted::default();
        for (index, request) in requests.iter().enumerate() {
            let clock = index.is_multiple_of(SAMPLED).then(Instant::now);
            self.request(*request, &mut counted).await;
            if let Some(clock) = clock {
                counted.latencies.push(clock.elapsed().as_nanos() as u64);
            }
        }
        counted
    }

    async fn request(&self, request: Request, counted: &mut Counted) {
        let user = &self.users[request.user as usize];
        let is_right = match request.kind {
            Kind::Timeline => {
                let due = self.plan.timeline_before(request.user);
                self.is_right(self.blog.timeline(user).await, due)
            }
            Kind::Profile => self.is_right(self.blog.profile(user).await, self.plan.posts),
            Kind::Redirect => {
                let posts = self.blog.redirect(u64::from(request.user)).await;
                self.is_right(posts, self.plan.posts)
            }
            Kind::Post => {
                let reached = self.post(request).await;
                counted.deliveries += reached.unwrap_or_default();
                reached.is_some()
            }
        };
        counted.wrong += u64::from(!is_right);
    }

    async fn post(&self, post: Request) -> Option<u64> {
        self.blog.post(&self.users[post.user as usize], post.time).await
    }

    /// Reads the newest posts, which must be newest first, have texts, and be as many as are due.
    fn is_right(&self, posts: Option<B::Posts>, due: u64) -> bool {
        let Some(posts) = posts else { return false };
        let (mut newer, mut count) = (u64::MAX, 0);
        for (time, text) in posts.newest_first().take(self.read) {
            if time >= newer || text.len() <= 5 {
                return false;
            }
            newer = time;
            count += 1;
        }
        count >= due.min(self.read as u64)
    }
}
