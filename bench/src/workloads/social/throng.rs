//! `social` with throng: the microblog in memory of the crate `social`, as its users have it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::throng::RuntimeHandle;
use social::in_memory::{Network, Posts, User};
use social::{Name, Text};

use super::plan::{Kind, Plan, Request, Sums, sum};
use super::{Counted, SAMPLED, Settled, measure};
use crate::workloads::prelude::*;
use crate::workloads::tally::Tally;

static DONE: Tally = Tally::new();

pub(super) fn run(settings: &Settings) -> Measured {
    let processes = super::processes(settings);
    runtimes::throng::drive_with(settings, processes, false, async |runtime, settings| {
        let plan = Plan::new(&settings);
        let service = Service::start(runtime, &settings, plan).await?;
        measure(service, &settings).await
    })
}

pub(super) struct Service {
    runtime: RuntimeHandle,
    clients: u64,
    shared: Arc<Shared>,
}

struct Shared {
    plan: Plan,
    users: Vec<User>,
    /// Number of posts that a client reads of each answer.
    read: usize,
}

impl Service {
    async fn start(runtime: RuntimeHandle, settings: &Settings, plan: Plan) -> io::Result<Service> {
        let users_per_process = settings.get("users_per_process") as usize;
        let network = Network::start(&runtime, users_per_process).map_err(io::Error::other)?;
        let mut users = Vec::new();
        for user in 0..settings.count {
            let name = format!("user_{user}").parse::<Name>().map_err(io::Error::other)?;
            users.push(network.register_user(name).await.map_err(io::Error::other)?);
        }
        let read = settings.get("read") as usize;
        let shared = Arc::new(Shared { plan, users, read });
        Ok(Service { runtime, clients: settings.get("clients"), shared })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// Makes all follows and the posts before the clock. Returns the number of requests that failed.
    pub(super) async fn prepare(&self) -> u64 {
        let clients = self.clients;
        let follows = self
            .on_clients(|client, shared| async move {
                let mut failed = 0;
                let own = (client..shared.plan.users()).step_by(clients as usize);
                for user in own.map(|user| user as usize) {
                    for &target in &shared.plan.followees[user] {
                        let follow = shared.users[user].follow(&shared.users[target as usize]);
                        failed += u64::from(follow.await.is_err());
                    }
                }
                failed
            })
            .await;
        let posts = self
            .on_clients(|client, shared| async move {
                let own = shared.plan.before().skip(client as usize).step_by(clients as usize);
                let mut failed = 0;
                for post in own {
                    failed += u64::from(shared.post(post).await.is_none());
                }
                failed
            })
            .await;
        follows + posts
    }

    /// Makes the requests of a round: client `i` each request of `i` modulo the number of clients, one after the
    /// other. Returns the time from the start of the clients until the last is done.
    pub(super) async fn round(&self, round: usize, counted: &mut Counted) -> u64 {
        let (clients, sum) = (self.clients as usize, Arc::new(Mutex::new(Counted::default())));
        let deal = |client: usize| -> Vec<Request> {
            self.plan().rounds[round].iter().skip(client).step_by(clients).copied().collect()
        };
        let mut dealt: Vec<Vec<Request>> = (0..clients).rev().map(deal).collect();
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
        let times = |posts: &Posts| sum(posts.iter().map(|post| post.time));
        for user in &self.shared.users {
            // An answer that is missing is missing in the sum.
            let timeline = user.get_timeline().await.unwrap_or_default();
            settled.sums.timelines += times(&timeline);
            let profile = user.get_profile().await.unwrap_or_default();
            settled.sums.profiles += times(&profile);
            for post in timeline.iter().take(self.shared.read).chain(profile.iter()) {
                settled.wrong_texts += u64::from(post.text.as_str() != text(post.time));
            }
        }
        settled
    }

    /// Runs a function in each client, a process; returns the sum of the results when all are done.
    async fn on_clients<F: Future<Output = u64> + Send + 'static>(
        &self,
        mut work: impl FnMut(u64, Arc<Shared>) -> F,
    ) -> u64 {
        let (count, sum) = (DONE.count(), DONE.sum());
        DONE.arm(count + self.clients);
        for client in 0..self.clients {
            let work = work(client, Arc::clone(&self.shared));
            runtimes::throng::run(&self.runtime, async { DONE.add(work.await) });
        }
        DONE.complete().await;
        let missing = count + self.clients - DONE.count();
        DONE.sum() - sum + missing
    }
}

impl Shared {
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
                user.get_timeline().await.is_ok_and(|posts| self.is_right(&posts, due))
            }
            Kind::Profile => {
                let due = self.plan.posts;
                user.get_profile().await.is_ok_and(|posts| self.is_right(&posts, due))
            }
            Kind::Post => match self.post(request).await {
                Some(reached) => {
                    counted.deliveries += reached;
                    true
                }
                None => false,
            },
        };
        counted.wrong += u64::from(!is_right);
    }

    /// Sends a message. Returns the number of followers that have received it when the last has.
    async fn post(&self, post: Request) -> Option<u64> {
        let text = Text::new(text(post.time)).ok()?;
        self.users[post.user as usize].send_message_to_all(text, post.time).await.ok()
    }

    /// Reads the newest posts, which must be newest first, have texts, and be as many as are due.
    fn is_right(&self, posts: &Posts, due: u64) -> bool {
        let (mut newer, mut count) = (u64::MAX, 0);
        for post in posts.iter().take(self.read) {
            if post.time >= newer || post.text.as_str().len() <= 5 {
                return false;
            }
            newer = post.time;
            count += 1;
        }
        count >= due.min(self.read as u64)
    }
}

fn text(time: u64) -> String {
    format!("post {time}")
}
