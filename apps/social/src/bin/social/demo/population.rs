//! The population at work: clients of a node that carry out the acts of a [`Cast`].
//!
//! ```text
//! open    newcomer, the first people                     then the demo announces itself
//! live ┬─ arrivals   a person at a time: registers, follows, says hello
//!      │     └─ residents   a socket each: the live timeline, and the room of the theme
//!      ├─ clock ─ due acts, bounded ─► workers, a connection each ─► HTTP
//!      │     └─ lines ─► residents: typing, a pause, say
//!      └─ progress line
//! ```
//!
//! Invariants: everything goes through the public interface. An act of a person that has not arrived
//! is left out, and so is an act for which there is no room, so the population never falls behind. All
//! tasks end when the future of [`Population::live`] is dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::cast::{Act, Cast};
use super::words::THEMES;
use crate::api::{ApiError, Call, Connection, Socket, Target};
use crate::load::password;
use crate::load::schedule::{Arrivals, Times};

#[derive(Debug)]
pub(super) struct Population {
    target: Target,
    seed: u64,
    rate: f64,
    cast: Cast,
    /// Tokens of the people that have arrived.
    tokens: Vec<OnceLock<String>>,
    /// Queues of the lines that residents are to say. Only the first people are residents.
    lines: Vec<mpsc::Sender<String>>,
    residents: Mutex<Vec<mpsc::Receiver<String>>>,
    /// Authors and ids of recent posts, for likes.
    recent: Mutex<VecDeque<(String, String)>>,
    counts: Counts,
}

/// Numbers of the progress line.
#[derive(Debug, Default)]
struct Counts {
    people: AtomicU64,
    posts: AtomicU64,
    likes: AtomicU64,
    said: AtomicU64,
    /// Posts and messages that arrived at the sockets of residents.
    received: AtomicU64,
    failed: AtomicU64,
}

/// Login for the person who looks at the demo.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) password: String,
    token: String,
}

impl Population {
    /// Draws a population, which does nothing yet.
    pub(super) fn new(target: Target, seed: u64, people: usize, rate: f64) -> Population {
        let (lines, residents) =
            (0..people.min(RESIDENTS_MAX)).map(|_| mpsc::channel(LINES_WAITING_MAX)).unzip();
        Population {
            target,
            seed,
            rate,
            cast: Cast::draw(seed, people),
            tokens: vec![OnceLock::new(); people],
            lines,
            residents: Mutex::new(residents),
            recent: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// Registers the newcomer and the first people, whom the newcomer follows.
    ///
    /// # Errors
    /// The node refuses, for instance because the data has a user of such a name with another password.
    pub(super) async fn open(&self) -> Result<Newcomer, ApiError> {
        let mut connection = Connection::new(self.target.clone());
        let password = password(self.seed, u32::MAX);
        let token = connection.enter(NEWCOMER, &password).await?;
        let newcomer = Newcomer { password, token };
        for index in 0..FIRST.min(self.cast.people.len()) {
            self.arrive(&mut connection, index, &newcomer).await?;
        }
        for theme in &THEMES[..NEWCOMERS_ROOMS] {
            connection.join(&newcomer.token, theme.name).await?;
        }
        Ok(newcomer)
    }

    /// Runs the population: the other people arrive, and all of them act. Never ends without an error.
    pub(super) async fn live(
        self: Arc<Population>,
        newcomer: Newcomer,
        bar: ProgressBar,
    ) -> Result<(), ApiError> {
        // Dropped with this future, which ends all tasks.
        let mut tasks = JoinSet::new();
        let (due, acts) = mpsc::channel(ACTS_WAITING_MAX);
        let acts = Arc::new(tokio::sync::Mutex::new(acts));
        for _ in 0..CONNECTIONS {
            let (population, acts) = (self.clone(), acts.clone());
            tasks.spawn(async move { population.work(&acts).await });
        }
        let population = self.clone();
        tasks.spawn(async move { population.keep_time(&due).await });
        let show = async {
            loop {
                bar.set_message(self.counts.line());
                bar.tick();
                sleep(TICK).await;
            }
        };
        tokio::select! {
            outcome = self.clone().arrive_all(newcomer) => outcome,
            () = show => Ok(()),
        }
    }

    /// Registers the people that have not arrived, one after another, and runs the residents.
    async fn arrive_all(self: Arc<Population>, newcomer: Newcomer) -> Result<(), ApiError> {
        let mut connection = Connection::new(self.target.clone());
        let mut residents = JoinSet::new();
        let queues = std::mem::take(&mut *lock(&self.residents));
        let mut queues = queues.into_iter();
        for index in 0..self.cast.people.len() {
            if index >= FIRST {
                self.arrive(&mut connection, index, &newcomer).await?;
                // Each registration costs the node some 30 ms of a core; it shall have time for the population.
                sleep(ARRIVAL_PAUSE).await;
            }
            if let Some(lines) = queues.next() {
                residents.spawn(self.clone().reside(index, lines));
            }
        }
        while residents.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// Registers a person, who follows others and says hello.
    async fn arrive(
        &self,
        connection: &mut Connection,
        index: usize,
        newcomer: &Newcomer,
    ) -> Result<(), ApiError> {
        let person = &self.cast.people[index];
        let password = password(self.seed, index as u32);
        let token = connection.enter(&person.name, &password).await?;
        for other in &person.follows {
            self.follow(connection, &token, &self.cast.people[*other].name).await?;
        }
        if index < NEWCOMER_FOLLOWS {
            self.follow(connection, &newcomer.token, &person.name).await?;
        }
        if index.is_multiple_of(NEWCOMER_FOLLOWED_BY) {
            self.follow(connection, &token, NEWCOMER).await?;
        }
        // Nobody else sets it.
        let _ = self.tokens[index].set(token);
        self.counts.people.fetch_add(1, Ordering::Relaxed); // Relaxed: counts, here and below
        self.post(connection, index, &person.hello).await
    }

    /// Makes acts due at their times.
    async fn keep_time(&self, due: &mpsc::Sender<Act>) {
        let start = Instant::now();
        let times = Times::new(self.seed, Arrivals::Poisson, self.rate);
        for (at, act) in times.zip(self.cast.acts(self.lines.len())) {
            sleep_until(start + at).await;
            match act {
                // A resident that has enough to say leaves this line out.
                Act::Say { speaker, text } => drop(self.lines[speaker].try_send(text)),
                act => drop(due.try_send(act)),
            }
        }
    }

    /// Carries out acts on a connection of its own.
    async fn work(&self, acts: &tokio::sync::Mutex<mpsc::Receiver<Act>>) {
        let mut connection = Connection::new(self.target.clone());
        loop {
            let act = acts.lock().await.recv().await;
            let Some(act) = act else { return };
            if let Err(error) = self.carry_out(&mut connection, act).await {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(
                    error = throng_node::log::error_chain(&error),
                    "an act of the population failed"
                );
            }
        }
    }

    async fn carry_out(&self, connection: &mut Connection, act: Act) -> Result<(), ApiError> {
        let name = |index: usize| &*self.cast.people[index].name;
        let (Act::Post { author: person, .. }
        | Act::Like { person, .. }
        | Act::Say { speaker: person, .. }
        | Act::Follow { person, .. }
        | Act::Unfollow { person, .. }
        | Act::Read { person, .. }) = act;
        let Some(token) = self.tokens[person].get() else { return Ok(()) };
        match act {
            Act::Post { author, text } => self.post(connection, author, &text).await,
            Act::Like { nth, .. } => {
                let path = {
                    let recent = lock(&self.recent);
                    let Some((author, id)) = recent.get(nth % recent.len().max(1)) else {
                        return Ok(());
                    };
                    format!("/api/v1/users/{author}/posts/{id}/like")
                };
                connection.expect(Call::put(&path).with_token(token)).await?;
                self.counts.likes.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Act::Follow { other, .. } | Act::Unfollow { other, .. } | Act::Read { other, .. }
                if self.tokens[other].get().is_none() =>
            {
                Ok(())
            }
            Act::Follow { other, .. } => self.follow(connection, token, name(other)).await,
            Act::Unfollow { other, .. } => {
                let path = format!("/api/v1/following/{}", name(other));
                connection.expect(Call::delete(&path).with_token(token)).await.map(drop)
            }
            Act::Read { other, .. } => {
                connection.expect(Call::get("/api/v1/timeline").with_token(token)).await?;
                let path = format!("/api/v1/users/{}", name(other));
                connection.expect(Call::get(&path)).await.map(drop)
            }
            // Residents say lines by their sockets.
            Act::Say { .. } => Ok(()),
        }
    }

    async fn post(
        &self,
        connection: &mut Connection,
        author: usize,
        text: &str,
    ) -> Result<(), ApiError> {
        let Some(token) = self.tokens[author].get() else { return Ok(()) };
        let call = Call::post("/api/v1/posts", json!({ "text": text })).with_token(token);
        let post = connection.expect(call).await?.json();
        self.remember(&self.cast.people[author].name, post["id"].as_str());
        self.counts.posts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn follow(
        &self,
        connection: &mut Connection,
        token: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        let path = format!("/api/v1/following/{name}");
        connection.expect(Call::put(&path).with_token(token)).await.map(drop)
    }

    /// Keeps a post for likes.
    fn remember(&self, author: &str, id: Option<&str>) {
        let Some(id) = id else { return };
        let mut recent = lock(&self.recent);
        recent.push_front((author.to_owned(), id.to_owned()));
        recent.truncate(RECENT_MAX);
    }

    /// Keeps a person's socket open, which shows the timeline and the room of the person's theme.
    async fn reside(self: Arc<Population>, index: usize, mut lines: mpsc::Receiver<String>) {
        loop {
            if let Err(error) = self.reside_once(index, &mut lines).await {
                tracing::debug!(
                    error = throng_node::log::error_chain(&error),
                    "a socket of the population ended"
                );
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    async fn reside_once(
        &self,
        index: usize,
        lines: &mut mpsc::Receiver<String>,
    ) -> Result<(), ApiError> {
        let Some(token) = self.tokens[index].get() else { return Ok(()) };
        let room = THEMES[self.cast.people[index].theme].name;
        let mut socket = Socket::enter(&self.target, token, room).await?;
        let mut typed: Option<(Instant, String)> = None;
        loop {
            let typed_at = typed.as_ref().map_or_else(Instant::now, |(at, _)| *at);
            tokio::select! {
                message = socket.next() => self.receive(&message?),
                line = lines.recv(), if typed.is_none() => {
                    let Some(line) = line else { return Ok(()) };
                    socket.send(&json!({ "type": "typing", "room": room })).await?;
                    let pause = TYPING + TYPING_PER_BYTE * line.len() as u32;
                    typed = Some((Instant::now() + pause, line));
                }
                () = sleep_until(typed_at), if typed.is_some() => {
                    let text = typed.take().map(|(_, line)| line);
                    let say = json!({ "type": "say", "room": room, "text": text, "key": null });
                    socket.send(&say).await?;
                }
            }
        }
    }

    /// Counts a message to a resident. A post of the newcomer is kept, so that the population likes it.
    fn receive(&self, message: &serde_json::Value) {
        match message["type"].as_str() {
            Some("post") => {
                let post = &message["post"];
                if post["author"] == NEWCOMER {
                    self.remember(NEWCOMER, post["id"].as_str());
                }
                self.counts.received.fetch_add(1, Ordering::Relaxed);
            }
            Some("said") => drop(self.counts.received.fetch_add(1, Ordering::Relaxed)),
            Some("stored") => drop(self.counts.said.fetch_add(1, Ordering::Relaxed)),
            Some("refused") => drop(self.counts.failed.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl Counts {
    /// Returns the progress line.
    fn line(&self) -> String {
        let [people, posts, likes, said, received, failed] =
            [&self.people, &self.posts, &self.likes, &self.said, &self.received, &self.failed]
                .map(|count| count.load(Ordering::Relaxed));
        let mut line = format!(
            "{people} people, {posts} posts, {likes} likes, {said} messages in rooms, {received} received live"
        );
        if failed > 0 {
            line.push_str(&format!(", {failed} failed"));
        }
        line
    }
}

/// Locks a mutex. A task that panicked has left whole values.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name of the person who looks at the demo.
pub(super) const NEWCOMER: &str = "newcomer";

/// Number of people that are there when the demo announces itself.
const FIRST: usize = 4;

/// Number of people whom the newcomer follows: the first, who are the most popular.
const NEWCOMER_FOLLOWS: usize = 8;

/// Each so many people, a person follows the newcomer.
const NEWCOMER_FOLLOWED_BY: usize = 3;

/// Number of rooms of which the newcomer is a member.
const NEWCOMERS_ROOMS: usize = 2;

/// Maximum number of people with an open socket.
const RESIDENTS_MAX: usize = 40;

/// Lines that wait until their speaker has typed them.
const LINES_WAITING_MAX: usize = 4;

/// Acts that wait for a connection.
const ACTS_WAITING_MAX: usize = 64;

/// Connections that carry out acts.
const CONNECTIONS: usize = 8;

/// Posts that can be liked.
const RECENT_MAX: usize = 50;

/// Pause between two arrivals.
const ARRIVAL_PAUSE: Duration = Duration::from_millis(100);

/// Pause before a socket that ended is opened again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Time for which a person types, and its part for each byte of the line.
const TYPING: Duration = Duration::from_millis(300);
const TYPING_PER_BYTE: Duration = Duration::from_millis(30);

/// Time between two updates of the progress line.
const TICK: Duration = Duration::from_millis(250);
