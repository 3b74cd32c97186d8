//! `traffic`: clients call processes and send to them, the first ones far more often than the others.
//!
//! ```text
//! driver    start and call each process │ RSS │ start clients │     wait    │ ask each for its sum
//! clients                               │     │ call or send, × M/clients   │
//! busy                                  │     │ call that computes, call that computes, … │
//!           ├───────── start_ns ────────┤     ├──────── operation_ns ───────┤ p50_ns … of each call
//! ```
//!
//! - The process of an operation is drawn by Zipf's law: rank r comes in proportion to 1/r, as with keys of a cache, and
//!   the ranks are scattered over the processes. A client draws all of its operations before the clock starts.
//! - A message carries a number and owned bytes, which the sender copies from its buffer. The process adds the number to
//!   a word of its state and checks the last byte; its reply to a call is the number plus one. At the end each process
//!   tells its sum, in a call that comes after all messages, so that none is lost or handled twice.
//! - `busy` further processes have a client each, which has them compute for some two milliseconds in call after call
//!   while the others are called: `long_ns` is the time of such a call.
//! - `handler=socket`: before it replies, a process asks a server of the same program by a socket of its own.
//!   `handler=idle`: each message restarts a time-out of `idle` seconds. All processes time out in the end, none early,
//!   and then count their sums.
use std::future::ready;
use std::hint::black_box;
use std::io;
use std::mem;
use std::os::unix::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::block_in_place;

use super::prelude::*;
use super::records::Random;
use super::tally::{Tally, share, sum_below};
use crate::host::ActorHost;
use crate::runtimes::tokio::{EACH, Futures, Kanal, OfTokio};
use crate::runtimes::{kameo, throng, tokio as on_tokio};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    let _ = IDLE.set(Duration::from_secs(settings.get("idle")));
    match (settings.word("handler"), settings.word("state")) {
        ("socket", "large") => on::<State<LARGE, Line>>(row, settings),
        ("socket", _) => on::<State<SMALL, Line>>(row, settings),
        ("idle", "large") => on::<State<LARGE, Idle>>(row, settings),
        ("idle", _) => on::<State<SMALL, Idle>>(row, settings),
        (_, "large") => on::<State<LARGE, ()>>(row, settings),
        _ => on::<State<SMALL, ()>>(row, settings),
    }
}

fn on<D: Desk>(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::drive(settings, false, measure::<D, throng::Throng>),
        "tokio" | "tokio-current-thread" => {
            on_tokio::drive_host(row, OfTokio::<EACH>, settings, false, measure::<D, _>)
        }
        "tokio-kanal" => on_tokio::drive_host(row, Kanal, settings, false, measure::<D, _>),
        "tokio-futures" | "tokio-futures-current-thread" => {
            on_tokio::drive_host(row, Futures, settings, false, measure::<D, _>)
        }
        "tokio-in-place" => {
            IN_PLACE.store(true, Ordering::Relaxed);
            on_tokio::drive_host(row, OfTokio::<EACH>, settings, false, measure::<D, _>)
        }
        "tokio-cores" => on_tokio::drive_cores(settings, measure::<D, _>),
        "kameo" => kameo::drive(settings, measure::<D, kameo::Kameo>),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Words of a process's state: 64 bytes, and a page.
const SMALL: usize = 8;
const LARGE: usize = 512;

/// Steps of a long handler: some two milliseconds.
const LONG_STEPS: u64 = 1_000_000;

static IDLE: OnceLock<Duration> = OnceLock::new();
static DONE: Tally = Tally::new();
/// The clients of busy processes that are done, and the number of their calls.
static BUSY_DONE: Tally = Tally::new();
/// Processes that have timed out, and their sums.
static TIMED_OUT: Tally = Tally::new();
static EARLY: Tally = Tally::new();
static STOP: AtomicBool = AtomicBool::new(false);
/// Whether a long handler tells tokio that it blocks.
static IN_PLACE: AtomicBool = AtomicBool::new(false);
static LATENCIES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

pub(crate) struct Request {
    task: Task,
    value: u64,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Add,
    Compute,
    Sum,
}

/// The state and the handler of a process that serves clients.
pub(crate) trait Desk: Send + Sync + Unpin + Sized + 'static {
    fn make() -> io::Result<Self>;

    fn handle(&mut self, request: Request) -> impl Future<Output = u64> + Send;

    /// The time-out that each message restarts.
    fn idle() -> Option<Duration>;

    /// Runs when no message has come for so long, before the process exits.
    fn time_out(&self);
}

/// A runtime's means to run desks.
pub(crate) trait DeskHost: ActorHost {
    type DeskAddress<D: Desk>: Clone + Send + Sync + 'static;

    fn open<D: Desk>(&self, desk: D) -> impl Future<Output = Self::DeskAddress<D>> + Send;

    /// Sends a request whose reply nobody wants.
    fn post<D: Desk>(to: &Self::DeskAddress<D>, request: Request);

    fn ask<D: Desk>(
        to: &Self::DeskAddress<D>,
        request: Request,
    ) -> impl Future<Output = Option<u64>> + Send;
}

pub(crate) struct State<const WORDS: usize, E> {
    words: [u64; WORDS],
    equipment: E,
}

/// Equipment of a process besides the words of its state.
pub(crate) trait Equipment: Send + Sync + Unpin + Sized + 'static {
    fn make() -> io::Result<Self>;

    /// Answers a number with the next one.
    fn answer(&mut self, value: u64) -> impl Future<Output = u64> + Send {
        ready(value.wrapping_add(1))
    }

    fn idle() -> Option<Duration> {
        None
    }

    fn is_early(&self) -> bool {
        false
    }
}

impl Equipment for () {
    fn make() -> io::Result<()> {
        Ok(())
    }
}

/// The time of the last message.
pub(crate) struct Idle(Instant);

impl Equipment for Idle {
    fn make() -> io::Result<Idle> {
        Ok(Idle(Instant::now()))
    }

    fn answer(&mut self, value: u64) -> impl Future<Output = u64> + Send {
        self.0 = Instant::now();
        ready(value.wrapping_add(1))
    }

    fn idle() -> Option<Duration> {
        IDLE.get().copied()
    }

    fn is_early(&self) -> bool {
        Self::idle().is_some_and(|idle| self.0.elapsed() < idle)
    }
}

/// The process's end of a socket.
pub(crate) struct Line(UnixStream);

impl Equipment for Line {
    fn make() -> io::Result<Line> {
        let (near, far) = net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        server()?.send(far).map_err(io::Error::other)?;
        Ok(Line(UnixStream::from_std(near)?))
    }

    /// A socket that fails is a wrong reply.
    async fn answer(&mut self, value: u64) -> u64 {
        let mut bytes = value.to_le_bytes();
        let asked = async {
            self.0.write_all(&bytes.clone()).await?;
            self.0.read_exact(&mut bytes).await
        };
        asked.await.map_or(value, |_| u64::from_le_bytes(bytes))
    }
}

/// The way to the server, which takes the other ends of sockets: a thread with a task for each.
fn server() -> io::Result<&'static UnboundedSender<net::UnixStream>> {
    static SERVER: OnceLock<UnboundedSender<net::UnixStream>> = OnceLock::new();
    if SERVER.get().is_none() {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (sender, mut sockets) = unbounded_channel::<net::UnixStream>();
        if SERVER.set(sender).is_ok() {
            let accept = async move {
                while let Some(socket) = sockets.recv().await {
                    tokio::spawn(serve(socket));
                }
            };
            thread::Builder::new().spawn(move || runtime.block_on(accept))?;
        }
    }
    SERVER.get().ok_or_else(|| io::Error::other("the server has been started"))
}

/// Answers each number with the next one, until the process's end is closed.
async fn serve(socket: net::UnixStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(socket)?;
    loop {
        let value = socket.read_u64_le().await?;
        socket.write_u64_le(value.wrapping_add(1)).await?;
    }
}

impl<const WORDS: usize, E: Equipment> State<WORDS, E> {
    fn sum(&self) -> u64 {
        self.words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

impl<const WORDS: usize, E: Equipment> Desk for State<WORDS, E> {
    fn make() -> io::Result<Self> {
        Ok(State { words: [0; WORDS], equipment: E::make()? })
    }

    async fn handle(&mut self, Request { task, value, body }: Request) -> u64 {
        match task {
            Task::Sum => return self.sum(),
            Task::Compute if IN_PLACE.load(Ordering::Relaxed) => {
                block_in_place(|| black_box(compute(value)));
            }
            Task::Compute => _ = black_box(compute(value)),
            // A message with a wrong body is missing in the sum.
            Task::Add if body.last().is_none_or(|last| *last == value as u8) => {
                let word = &mut self.words[value as usize % WORDS];
                *word = word.wrapping_add(value);
            }
            Task::Add => {}
        }
        drop(body);
        self.equipment.answer(value).await
    }

    fn idle() -> Option<Duration> {
        E::idle()
    }

    fn time_out(&self) {
        if self.equipment.is_early() {
            EARLY.add(1);
        }
        TIMED_OUT.add(self.sum());
    }
}

fn compute(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    (0..LONG_STEPS).fold(0, |sum, _| sum ^ random.next())
}

/// Draws a process by Zipf's law, and scatters the ranks.
struct Popularity {
    random: Random,
    processes: u64,
}

impl Popularity {
    /// A prime, so that the scattered ranks are all different.
    const STEP: u64 = 4_294_967_291;

    fn of(client: u64, processes: u64) -> Popularity {
        Popularity { random: Random::new(client), processes }
    }

    /// Inverts the distribution: a rank up to r has a part of ln(r + 1) in ln(processes + 1).
    fn next(&mut self) -> u32 {
        let part = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = (((self.processes + 1) as f64).powf(part) as u64).clamp(1, self.processes) - 1;
        (rank * Self::STEP % self.processes) as u32
    }
}

/// A client's operations: the number, the process, and whether it is a call.
struct Client<H: DeskHost, D: Desk> {
    desks: Arc<[H::DeskAddress<D>]>,
    operations: Vec<(u32, bool)>,
    first: u64,
    buffer: Vec<u8>,
}

impl<H: DeskHost, D: Desk> Client<H, D> {
    fn new(desks: &Arc<[H::DeskAddress<D>]>, client: u64, settings: &Settings) -> Self {
        let mut popularity = Popularity::of(client, desks.len() as u64);
        let share = share(settings.count, client, settings.get("clients"));
        let draw = |_| (popularity.next(), popularity.random.below(100) < settings.get("calls"));
        let (first, operations) = (share.start, share.map(draw).collect());
        let buffer = vec![0; settings.get("payload") as usize];
        Client { desks: desks.clone(), operations, first, buffer }
    }

    /// Makes all operations, and counts the wrong replies.
    async fn work(mut self) {
        let mut wrong = 0;
        let mut times = Vec::with_capacity(self.operations.len());
        for (value, (desk, is_call)) in (self.first..).zip(mem::take(&mut self.operations)) {
            if let Some(last) = self.buffer.last_mut() {
                *last = value as u8;
            }
            let request = Request { task: Task::Add, value, body: self.buffer.clone() };
            let desk = &self.desks[desk as usize];
            if is_call {
                let clock = Instant::now();
                let reply = H::ask(desk, request).await;
                times.push(clock.elapsed().as_nanos() as u64);
                wrong += u64::from(reply != Some(value.wrapping_add(1)));
            } else {
                H::post(desk, request);
            }
        }
        LATENCIES.lock().unwrap_or_else(PoisonError::into_inner).append(&mut times);
        DONE.add(wrong);
    }
}

/// Has a process compute until the other clients are done. A client with a wrong reply is missing among those that finish.
async fn keep_busy<H: DeskHost>(desk: H::DeskAddress<State<SMALL, ()>>) {
    let mut calls = 0;
    while !STOP.load(Ordering::Relaxed) {
        let request = Request { task: Task::Compute, value: calls, body: Vec::new() };
        calls += 1;
        if H::ask(&desk, request).await != Some(calls) {
            return;
        }
    }
    BUSY_DONE.add(calls);
}

async fn measure<D: Desk, H: DeskHost>(host: H, settings: Settings) -> Measured {
    let [processes, clients, busy] = ["processes", "clients", "busy"].map(|key| settings.get(key));
    let mut desks = memory::resident_vec(processes as usize);
    let before = memory::resident_bytes()?;
    let mut wrong = 0;
    let clock = Instant::now();
    for value in 0..processes {
        let desk = host.open(D::make()?).await;
        let request = Request { task: Task::Add, value, body: Vec::new() };
        wrong += u64::from(H::ask(&desk, request).await != Some(value + 1));
        desks.push(desk);
    }
    let started = clock.elapsed();
    let grown = memory::resident_bytes()?.saturating_sub(before);

    let desks: Arc<[H::DeskAddress<D>]> = desks.into();
    let work: Vec<_> = (0..clients).map(|of| Client::<H, D>::new(&desks, of, &settings)).collect();
    DONE.arm(clients);
    BUSY_DONE.arm(busy);
    TIMED_OUT.arm(processes);
    let clock = Instant::now();
    for _ in 0..busy {
        let desk = host.open(State::make()?).await;
        host.run(keep_busy::<H>(desk)).await;
    }
    for client in work {
        host.run(client.work()).await;
    }
    DONE.complete().await;
    let elapsed = clock.elapsed();
    STOP.store(true, Ordering::Relaxed);
    if busy > 0 {
        BUSY_DONE.complete().await;
    }
    let long = clock.elapsed();

    let mut sum = 0_u64;
    if D::idle().is_some() {
        TIMED_OUT.complete().await;
        sum = TIMED_OUT.sum();
    } else {
        for desk in desks.iter() {
            let request = Request { task: Task::Sum, value: 0, body: Vec::new() };
            sum = sum.wrapping_add(H::ask(desk, request).await.unwrap_or_default());
        }
    }
    let times = mem::take(&mut *LATENCIES.lock().unwrap_or_else(PoisonError::into_inner));

    let mut outcome = Outcome::default();
    outcome.metric("start_ns", started.as_nanos() as f64 / processes as f64);
    outcome.metric("bytes_per_process", grown as f64 / processes as f64);
    outcome.metric("operation_ns", elapsed.as_nanos() as f64 / settings.count as f64);
    latency::report(&mut outcome, "", &latency::of(times)?);
    if busy > 0 {
        let calls = BUSY_DONE.sum().max(1) as f64;
        outcome.metric("long_ns", long.as_nanos() as f64 * busy as f64 / calls);
    }
    outcome.check("clients that finished", DONE.count(), clients);
    outcome.check("clients of busy processes that finished", BUSY_DONE.count(), busy);
    outcome.check("wrong replies", wrong + DONE.sum(), 0);
    let due = sum_below(processes).wrapping_add(sum_below(settings.count));
    outcome.check("the sum of all states", sum, due);
    if D::idle().is_some() {
        outcome.check("processes that timed out", TIMED_OUT.count(), processes);
        outcome.check("processes that timed out early", EARLY.count(), 0);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_comes_in_proportion_to_its_inverse_and_every_process_has_one() {
        let mut seen = vec![0_u32; 1000];
        let mut popularity = Popularity::of(1, 1000);
        (0..1_000_000).for_each(|_| seen[popularity.next() as usize] += 1);
        assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
        seen.sort_unstable_by(|a, b| b.cmp(a));
        // ln 2 of ln 1001, and ln(3/2) of it.
        assert!((98_000..103_000).contains(&seen[0]), "{}", seen[0]);
        assert!((57_000..60_500).contains(&seen[1]), "{}", seen[1]);
    }
}
