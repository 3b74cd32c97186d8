//! The sampler: takes a sample of the node each second while a dashboard is open, for all dashboards together.
//!
//! ```text
//! Source ──► sample ──► frame, encoded once ──► watch channel ──► socket, socket, …
//! ```
//!
//! Samples hold counters, as `/metrics` does; the page makes rates of two samples and their uptimes. A
//! dashboard that is slow skips samples.
//!
//! Invariants: at most one task samples, and it ends when the last receiver is dropped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::http::Frames;
use serde::Serialize;
use throng::{DeadLetter, DeadLetters};
use throng_durable::NodeStat;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::Subject;
use super::socket::ToClient;
use super::token::{AdminToken, Digest};
use crate::admin::wire::Metrics;
use crate::process;

/// Time between two samples.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of kinds of entities in a sample.
const KINDS_MAX: usize = 64;

/// Maximum number of letters of dropped messages in a sample.
const LETTERS_MAX: usize = 12;

/// Maximum number of letters that wait for a sample.
const LETTERS_WAITING_MAX: usize = 1024;

/// State of a node.
#[derive(Debug, Serialize)]
pub(super) struct Sample {
    /// Number of the sample since the sampler was started.
    sequence: u64,
    metrics: Metrics,
    /// Memory of the program in the machine's memory, in bytes; null where the system does not tell.
    rss_bytes: Option<u64>,
    /// Whether the program has durable processes.
    has_store: bool,
    /// Null while the store cannot be read.
    durable: Option<Durable>,
    /// Number of requests in each bucket of their times; see [`Latency`](super::latency::Latency).
    requests: Vec<u64>,
    /// Number of answers with a status of the classes 1xx to 5xx.
    answers: [u64; 5],
    /// Number of open dashboards.
    dashboards: usize,
    dropped: Dropped,
}

/// Messages that were dropped unhandled while a dashboard was open.
#[derive(Clone, Debug, Default, Serialize)]
struct Dropped {
    /// Newest last; messages of the same types and reason are one letter.
    letters: Vec<Letter>,
    /// Number of messages that are in no letter, because too many were dropped between two samples.
    missed: u64,
}

/// Dropped messages of a type.
#[derive(Clone, Debug, Serialize)]
struct Letter {
    process: &'static str,
    message: &'static str,
    reason: &'static str,
    messages: u64,
}

impl Dropped {
    /// Adds the letters that have come.
    fn collect(&mut self, from: &mut DeadLetters) {
        while let Some(letter) = from.try_recv() {
            let DeadLetter { process, message, reason, messages, .. } = letter;
            let reason = reason.name();
            let is_same =
                |old: &Letter| (old.process, old.message, old.reason) == (process, message, reason);
            let before = self.letters.iter().position(is_same).map(|at| self.letters.remove(at));
            let messages = messages + before.map_or(0, |before| before.messages);
            self.letters.push(Letter { process, message, reason, messages });
            if self.letters.len() > LETTERS_MAX {
                self.letters.remove(0);
            }
        }
        self.missed = from.missed();
    }
}

/// Entities and store of a node.
#[derive(Debug, Serialize)]
struct Durable {
    live: usize,
    live_max: usize,
    live_bytes: usize,
    at_rest: u64,
    activations: u64,
    passivations: u64,
    /// Number of stored entities by kind.
    stored: Vec<(String, u64)>,
    entries: u64,
    file_bytes: u64,
    used_bytes: u64,
    log_bytes: u64,
    memory_bytes: u64,
    map_bytes: u64,
    batches: u64,
    commits: u64,
    flush_seconds: f64,
    checkpoints: u64,
    checkpoint_seconds: f64,
    checkpointing: bool,
    snapshot_lag_commits: u64,
    recoveries: u64,
    writable: bool,
}

impl From<NodeStat> for Durable {
    fn from(stat: NodeStat) -> Durable {
        let store = &stat.store;
        Durable {
            live: stat.live,
            live_max: stat.live_max,
            live_bytes: stat.live_bytes,
            at_rest: stat.at_rest(),
            activations: stat.activations,
            passivations: stat.passivations,
            entries: store.entries,
            file_bytes: store.file_bytes,
            used_bytes: store.used_bytes,
            log_bytes: store.log_bytes,
            memory_bytes: store.memory_bytes,
            map_bytes: store.map_bytes,
            batches: store.batches,
            commits: store.commits,
            flush_seconds: store.flush_time.as_secs_f64(),
            checkpoints: store.checkpoints,
            checkpoint_seconds: store.checkpoint_time.as_secs_f64(),
            checkpointing: store.checkpointing,
            snapshot_lag_commits: store.snapshot_lag_commits,
            recoveries: store.recoveries,
            writable: store.writable,
            stored: stat.stored.into_iter().take(KINDS_MAX).collect(),
        }
    }
}

/// Parts of a node that a sample reads.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) subject: Subject,
    pub(super) token: AdminToken,
}

/// Newest sample, and the token at that time.
#[derive(Clone, Debug)]
pub(super) struct Sampled {
    pub(super) frame: Frames,
    /// Digest of the admin token; `None` if it could not be read, so that no dashboard may be open.
    pub(super) token: Option<Digest>,
}

/// Handle of the sampler. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Sampler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    /// Newest sample; `None` while the task does not run, and until its first sample.
    samples: watch::Sender<Option<Sampled>>,
    /// Whether the task runs. Locked while a receiver is made, and while the task decides to end.
    is_running: Mutex<bool>,
}

impl Sampler {
    pub(super) fn new(source: Source) -> Sampler {
        let (samples, _) = watch::channel(None);
        Sampler(Arc::new(Inner { source, samples, is_running: Mutex::new(false) }))
    }

    /// Returns a receiver of samples, for the time until it is dropped. Starts the task if it does not run.
    ///
    /// # Panics
    /// Panics if the caller is outside a tokio runtime.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Sampled>> {
        let mut is_running = self.0.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = self.0.samples.subscribe();
        if !*is_running {
            *is_running = true;
            tokio::spawn(run(self.0.clone()));
        }
        samples
    }
}

async fn run(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut letters = inner.source.subject.runtime.dead_letters(LETTERS_WAITING_MAX);
    let mut dropped = Dropped::default();
    for sequence in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = inner.samples.closed() => {}
        }
        if inner.ends() {
            return;
        }
        dropped.collect(&mut letters);
        let dashboards = inner.samples.receiver_count();
        let sampled = inner.source.sample(sequence, dashboards, dropped.clone()).await;
        inner.samples.send_replace(Some(sampled));
    }
}

impl Inner {
    /// Decides whether the task ends, because there is no receiver.
    fn ends(&self) -> bool {
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.samples.receiver_count() > 0 {
            return false;
        }
        self.samples.send_replace(None);
        *is_running = false;
        true
    }
}

impl Source {
    async fn sample(&self, sequence: u64, dashboards: usize, dropped: Dropped) -> Sampled {
        let Source { subject, token } = self.clone();
        // The store and the token are read from the disk, possibly.
        let sampled = tokio::task::spawn_blocking(move || {
            let stat = subject.node.as_ref().and_then(|node| node.stat().ok());
            let durable = stat.map(Durable::from);
            let requests = subject.latency.counts();
            let answers = subject.answers.sums();
            let metrics = subject.runtime.metrics().into();
            let rss_bytes = process::resident_bytes();
            let sample = Sample {
                sequence,
                metrics,
                rss_bytes,
                has_store: subject.node.is_some(),
                durable,
                requests,
                answers,
                dashboards,
                dropped,
            };
            Sampled { frame: ToClient::Sample { sample }.frame(), token: token.read_blocking() }
        });
        // The task fails only while the runtime shuts down; the sockets end then anyway.
        sampled.await.unwrap_or_else(|_| Sampled { frame: Frames::default(), token: None })
    }
}

#[cfg(test)]
mod tests {
    use crate::http::Answers;
    use throng::Runtime;
    use throng_durable::Node;

    use super::*;
    use crate::dashboard::latency::Latency;

    impl Sampler {
        fn is_running(&self) -> bool {
            *self.0.is_running.lock().unwrap()
        }
    }

    #[test]
    fn one_task_samples_for_all_and_only_while_there_are_receivers() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::options(data.path()).open(runtime).unwrap();
            let (token, _) = AdminToken::load_or_draw(data.path()).unwrap();
            let subject = Subject {
                runtime: runtime.clone(),
                node: Some(node.clone()),
                latency: Latency::default(),
                answers: Answers::default(),
            };
            let sampler = Sampler::new(Source { subject, token });
            assert!(!sampler.is_running());
            for _ in 0..2 {
                let [mut one, mut other] = [sampler.subscribe(), sampler.subscribe()];
                let mut seen = [Vec::new(), Vec::new()];
                for (samples, seen) in [&mut one, &mut other].into_iter().zip(&mut seen) {
                    let sampled = samples.wait_for(Option::is_some).await.unwrap().clone();
                    seen.push(sampled.unwrap().frame);
                }
                assert_eq!(seen[0], seen[1], "the same frame for both");
                let is_first = seen[0][0].texts().any(|text| text.contains("\"sequence\":0"));
                assert!(is_first, "from the start, again: {seen:?}");
                drop(one);
                other.changed().await.unwrap();
                assert!(sampler.is_running());
                drop(other);
                while sampler.is_running() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            node.shutdown().await;
        });
    }

    #[test]
    fn letters_of_the_same_messages_are_one_and_the_oldest_make_room() {
        struct Process<const N: usize>;
        impl<const N: usize> throng::Process for Process<N> {}
        struct Say;
        impl throng::Message for Say {
            type Reply = ();
        }
        impl<const N: usize> throng::Handle<Say> for Process<N> {
            async fn handle(&mut self, _: Say, _: &mut throng::Context<Self>) {}
        }
        async fn lose<const N: usize>(runtime: &throng::RuntimeHandle) {
            let process = runtime.spawn(Process::<N>).unwrap();
            process.kill();
            while process.is_alive() {
                tokio::task::yield_now().await;
            }
            let _timer = runtime.send_after(process, Duration::ZERO, Say);
        }
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let (mut letters, mut dropped) = (runtime.dead_letters(3), Dropped::default());
            for _ in 0..2 {
                lose::<0>(runtime).await;
                lose::<1>(runtime).await;
                dropped.collect(&mut letters);
            }
            lose::<0>(runtime).await;
            dropped.collect(&mut letters);
            let messages: Vec<_> = dropped.letters.iter().map(|letter| letter.messages).collect();
            assert_eq!((messages, dropped.missed), (vec![2, 3], 0));
            let old = Letter { process: "old", message: "", reason: "", messages: 1 };
            dropped.letters = vec![old; LETTERS_MAX];
            for _ in 0..4 {
                lose::<0>(runtime).await;
            }
            dropped.collect(&mut letters);
            assert_eq!((dropped.letters.len(), dropped.missed), (LETTERS_MAX, 1));
            assert_eq!(dropped.letters.last().map(|letter| letter.messages), Some(3));
        });
    }
}
