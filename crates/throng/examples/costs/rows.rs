//! The rows: the operation that each measures, and its check that the operation took place.

use crate::resident;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use throng::prelude::*;
use throng::{MailboxBound, Overflow, Pool, Registry};
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio_stream::StreamExt;

/// Cost of a single operation. A figure that the row does not measure is `None`.
pub(crate) struct Cost {
    pub(crate) ns: Option<f64>,
    pub(crate) bytes: Option<f64>,
}

/// The process that drives a row.
pub(crate) type Driver = Inbox<Notice>;

type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Cost, String>> + Send + 'a>>;

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Number of operations, unless the command line gives another.
    pub(crate) count: u64,
    pub(crate) run: for<'a> fn(&'a mut Driver, u64) -> Measuring<'a>,
}

macro_rules! rows {
    ($($name:literal $count:literal $run:ident $(($($with:expr),*))? $about:literal;)*) => {
        pub(crate) const ROWS: &[Row] = &[$(Row {
            name: $name,
            about: $about,
            count: $count,
            run: |driver, count| Box::pin($run(driver, count $($(, $with)*)?)),
        }),*];
    };
}

rows! {
    "exit" 500_000 exit "a process asked to stop, until it has exited";
    "monitor" 500_000 monitor "a monitor set, and its `down`, beyond the exit itself; both sides";
    "link" 500_000 link "a link set, and its exit signal, beyond the exit itself; both sides";
    "queued" 1_000_000 waiting_messages(2) "a message of 8 bytes that waits in a mailbox, sent alone";
    "queued-flood" 1_000_000 waiting_messages(1) "the same, in a run of many from one sender";
    "ask" 500_000 ask "a question and its answer, between processes";
    "outside" 200_000 calls(Place::Thread, call_all) "a call and its reply, from a thread that is no worker";
    "outside-p99" 200_000 calls(Place::Thread, call_each) "the same, the 99th percentile of single calls";
    "outside-task" 200_000 calls(Place::Task, call_all) "a call and its reply, from a task of another tokio runtime";
    "outside-task-p99" 200_000 calls(Place::Task, call_each) "the same, the 99th percentile of single calls";
    "suspended" 500_000 suspended "a turn begun that then suspends";
    "async" 500_000 async_process "an async process, spawned, until it waits for its first message";
    "bounded" 500_000 bounded "a process spawned with a bounded mailbox";
    "timer" 500_000 timer "a timer set";
    "timer-cancel" 500_000 timer_cancel "a timer cancelled";
    "timer-fire" 500_000 timer_fire "a timer that fires, until its message is handled";
    "name" 500_000 name "a name given to a process, without its text";
    "name-lookup" 500_000 name_lookup "a process looked up by its name";
    "group" 500_000 group "a process that joins a group";
    "broadcast" 500_000 broadcast "a message to a group, for each member, until it is handled";
    "child" 200_000 child "a process started by a dynamic supervisor";
    "restart" 200_000 restart "a child killed, until it is started again";
    "pool" 500_000 pool "a call to a pool of four workers, and its reply";
    "keyed" 500_000 keyed "the same, to the worker of a key";
    "registry" 500_000 registry "a process spawned by the first who asks for its key";
    "registry-lookup" 500_000 registry_lookup "a process looked up by its key";
    "publish" 500_000 publish "a message published, for each subscriber, until it is handled";
    "pipe" 500_000 pipe "a future run beside a process, until its result is handled";
    "stream" 500_000 stream "an item of an attached stream that never waits, until it is handled";
    "blocking" 50_000 blocking "a closure run on the blocking threads, until its result is there";
    "info" 500_000 info "an inspection of an idle process";
}

async fn exit(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    exits(driver, count, Tie::None, false).await?;
    let (ns, _) = exits(driver, count, Tie::None, false).await?;
    Ok(Cost { ns: Some(ns), bytes: None })
}

async fn monitor(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    driver.on_down(Notice::Down);
    beyond_the_exit(driver, count, Tie::Monitor).await
}

async fn link(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    driver.on_exit(Notice::Exit);
    beyond_the_exit(driver, count, Tie::Link).await
}

async fn ask(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let unit = spawn(driver, 1)?[0];
    let clock = Instant::now();
    for number in 0..count {
        let answer = unit.ask(|reply| Question { number, reply }).await.map_err(text)?;
        ensure(answer == number, "an answer is wrong")?;
    }
    Ok(time(clock, count))
}

async fn suspended(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units = spawn(driver, count)?;
    let before = resident::now();
    let clock = Instant::now();
    for units in units.chunks(CHUNK) {
        HANDLED.arm(units.len() as u64);
        for unit in units {
            unit.suspend().map_err(text)?;
        }
        HANDLED.reached().await;
    }
    Ok(time_and_memory(clock, before, count))
}

async fn async_process(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let chunk = count.min(CHUNK as u64);
    // Rounded down to whole chunks.
    let count = count / chunk * chunk;
    let before = resident::now();
    let clock = Instant::now();
    for _ in 0..count / chunk {
        HANDLED.arm(chunk);
        for _ in 0..chunk {
            let process = runtime.spawner().spawn_async(|mut inbox: Inbox<AddNumber>| async move {
                HANDLED.add();
                inbox.recv().await;
            });
            process.map_err(text)?;
        }
        HANDLED.reached().await;
    }
    let cost = time_and_memory(clock, before, count);
    ensure(runtime.process_count() == count + 1, "some processes have exited")?;
    Ok(cost)
}

async fn bounded(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let bound = MailboxBound::new(100, Overflow::Reject);
    let before = resident::now();
    let clock = Instant::now();
    for number in 0..count {
        runtime.spawner().mailbox(bound).spawn(Unit(number)).map_err(text)?;
    }
    let cost = time_and_memory(clock, before, count);
    ensure(runtime.process_count() == count + 1, "some processes have exited")?;
    Ok(cost)
}

async fn timer(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let unit = spawn(driver, 1)?[0];
    let before = resident::now();
    let clock = Instant::now();
    for _ in 0..count {
        let timer = runtime.send_after(unit, AN_HOUR, Add);
        drop(timer);
    }
    let cost = time_and_memory(clock, before, count);
    ensure(unit.count().await.map_err(text)? == 0, "a timer was early")?;
    Ok(cost)
}

async fn timer_cancel(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let unit = spawn(driver, 1)?[0];
    let timers: Vec<Timer> = (0..count).map(|_| runtime.send_after(unit, AN_HOUR, Add)).collect();
    let clock = Instant::now();
    let cancelled = timers.iter().filter(|timer| timer.cancel()).count() as u64;
    let cost = time(clock, count);
    ensure(cancelled == count, "some timers were not cancelled")?;
    Ok(cost)
}

async fn timer_fire(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let unit = spawn(driver, 1)?[0];
    HANDLED.arm(count);
    // All timers are due at the same time, long after the last is set.
    let due = Instant::now() + Duration::from_secs(2);
    for _ in 0..count {
        runtime.send_after(unit, due.saturating_duration_since(Instant::now()), Add);
    }
    ensure(Instant::now() < due, "some timers were due before the last was set; take fewer")?;
    HANDLED.reached().await;
    Ok(time(due, count))
}

async fn name(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let (units, names) = (spawn(driver, count)?, names(count));
    let before = resident::now();
    let mut registering = Duration::ZERO;
    for (units, names) in units.chunks(CHUNK).zip(names.chunks(CHUNK)) {
        let clock = Instant::now();
        for (unit, name) in units.iter().zip(names) {
            runtime.register(name, *unit).map_err(text)?;
        }
        registering += clock.elapsed();
        settle(units).await?;
    }
    let bytes = growth(before, count);
    ensure(runtime.registered().len() as u64 == count, "some processes have no name")?;
    Ok(Cost { ns: Some(each(registering, count)), bytes: Some(bytes) })
}

async fn name_lookup(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let (units, names) = (spawn(driver, count)?, names(count));
    for (unit, name) in units.iter().zip(&names) {
        runtime.register(name, *unit).map_err(text)?;
    }
    let clock = Instant::now();
    let mut found = 0;
    for (unit, name) in units.iter().zip(&names) {
        found += u64::from(runtime.whereis(name) == Some(*unit));
    }
    let cost = time(clock, count);
    ensure(found == count, "some names were not found")?;
    Ok(cost)
}

async fn group(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units = spawn(driver, count)?;
    let group = driver.runtime().group::<Address<Unit>>("units");
    let before = resident::now();
    let (mut joining, mut joined) = (Duration::ZERO, 0);
    for units in units.chunks(CHUNK) {
        let clock = Instant::now();
        joined += units.iter().filter(|unit| group.join(**unit)).count() as u64;
        joining += clock.elapsed();
        settle(units).await?;
    }
    let bytes = growth(before, count);
    ensure(joined == count && group.len() as u64 == count, "some processes have not joined")?;
    Ok(Cost { ns: Some(each(joining, count)), bytes: Some(bytes) })
}

async fn broadcast(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units = spawn(driver, count)?;
    let group = driver.runtime().group::<Address<Unit>>("units");
    let joined = units.iter().filter(|unit| group.join(**unit)).count() as u64;
    settle(&units).await?;
    HANDLED.arm(count);
    let clock = Instant::now();
    let reached = group.broadcast(Add) as u64;
    HANDLED.reached().await;
    let cost = time(clock, count);
    ensure(joined == count && reached == count, "some members were not reached")?;
    Ok(cost)
}

async fn child(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let supervisor = Supervisor::dynamic().start_async(&runtime).await.map_err(text)?;
    let before = resident::now();
    let clock = Instant::now();
    for _ in 0..count {
        supervisor.spawn_child(|| Unit(0)).await.map_err(text)?;
    }
    let cost = time_and_memory(clock, before, count);
    let active = supervisor.count_children().await.map_err(text)? as u64;
    ensure(active == count, "some children do not run")?;
    Ok(cost)
}

async fn restart(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let spec = Supervisor::dynamic().intensity(u32::MAX, AN_HOUR);
    let supervisor = spec.start_async(&runtime).await.map_err(text)?;
    let mut children = Vec::new();
    for _ in 0..count {
        children.push(supervisor.spawn_child(|| Starter).await.map_err(text)?);
    }
    let addresses: Vec<_> = children.iter().filter_map(Child::address).collect();
    STARTED.arm(count);
    let clock = Instant::now();
    addresses.iter().for_each(|address| address.kill());
    STARTED.reached().await;
    let cost = time(clock, count);
    let active = supervisor.count_children().await.map_err(text)? as u64;
    ensure(addresses.len() as u64 == count && active == count, "some children were not restarted")?;
    Ok(cost)
}

/// Starts a pool whose workers have room for eight messages each.
async fn start_pool(driver: &mut Driver) -> Result<Pool<Unit>, String> {
    let (pool, supervisor) = Pool::new(4, 8, || ChildSpec::new(|| Unit(0)));
    supervisor.start_async(&driver.runtime()).await.map_err(text)?;
    Ok(pool)
}

async fn pool(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let pool = start_pool(driver).await?;
    let clock = Instant::now();
    let mut sum = 0;
    for _ in 0..count {
        sum += pool.call(Increment).await.map_err(text)?;
    }
    let cost = time(clock, count);
    // The workers take turns, and each returns its own count.
    let each = count / 4;
    ensure(!count.is_multiple_of(4) || sum == 4 * (each * (each + 1) / 2), "a call is missing")?;
    Ok(cost)
}

async fn keyed(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let pool = start_pool(driver).await?;
    let clock = Instant::now();
    for number in 1..=count {
        let reply = pool.keyed("key").call(Increment).await.map_err(text)?;
        ensure(reply == number, "a call is missing")?;
    }
    Ok(time(clock, count))
}

async fn registry(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units: Registry<u64, Unit> = Registry::new(&driver.runtime());
    let before = resident::now();
    let mut spawning = Duration::ZERO;
    for first in (0..count).step_by(CHUNK) {
        let clock = Instant::now();
        let numbers = first..count.min(first + CHUNK as u64);
        let found = numbers.map(|number| units.get_or_spawn(number, || Unit(number)).map_err(text));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        spawning += clock.elapsed();
        settle(&found).await?;
    }
    let bytes = growth(before, count);
    ensure(units.len() as u64 == count, "a key is missing")?;
    Ok(Cost { ns: Some(each(spawning, count)), bytes: Some(bytes) })
}

async fn registry_lookup(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units: Registry<u64, Unit> = Registry::new(&driver.runtime());
    for number in 0..count {
        units.get_or_spawn(number, || Unit(number)).map_err(text)?;
    }
    let clock = Instant::now();
    // A large odd step visits the keys out of order.
    let found = (0..count).filter(|n| units.get(&(n * 7_919 % count)).is_some()).count() as u64;
    let cost = time(clock, count);
    ensure(found == count, "a key is missing")?;
    Ok(cost)
}

async fn publish(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let units = spawn(driver, 1_000)?;
    let group = driver.runtime().group::<Recipient<Add>>("units");
    ensure(units.iter().all(|unit| group.join(unit.recipient())), "a process has exited")?;
    settle(&units).await?;
    let rounds = count / units.len() as u64;
    let clock = Instant::now();
    for _ in 0..rounds {
        HANDLED.arm(units.len() as u64);
        ensure(group.broadcast(Add) == units.len(), "a process has exited")?;
        HANDLED.reached().await;
    }
    Ok(time(clock, rounds * units.len() as u64))
}

async fn pipe(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let clock = Instant::now();
    for _ in 0..count {
        driver.context(|cx| cx.pipe(async { Notice::Piped }).map_err(text))?;
    }
    for _ in 0..count {
        ensure(matches!(driver.recv().await, Notice::Piped), "another message came")?;
    }
    Ok(time(clock, count))
}

async fn stream(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let clock = Instant::now();
    let items = tokio_stream::iter(0..count).map(Notice::Item);
    driver.context(|cx| cx.attach(items, Notice::Ended).map(drop).map_err(|_| "no process"))?;
    for number in 0..count {
        ensure(
            matches!(driver.recv().await, Notice::Item(item) if item == number),
            "an item is wrong",
        )?;
    }
    let ended = matches!(driver.recv().await, Notice::Ended(ExitReason::Normal));
    ensure(ended, "the stream has not ended")?;
    Ok(time(clock, count))
}

async fn blocking(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let clock = Instant::now();
    for number in 0..count {
        let result = driver.context(|cx| cx.blocking(move || number)).await.map_err(text)?;
        ensure(result == number, "a result is wrong")?;
    }
    Ok(time(clock, count))
}

async fn info(driver: &mut Driver, count: u64) -> Result<Cost, String> {
    let runtime = driver.runtime();
    let units = spawn(driver, 1000)?;
    let clock = Instant::now();
    for unit in units.iter().cycle().take(count as usize) {
        let info = runtime.info(*unit).await.ok_or("a process has exited")?;
        ensure(info.pid == unit.pid() && info.mailbox_len == 0, "the info is of another process")?;
    }
    Ok(time(clock, count))
}

/// Place outside of the runtime's workers that calls come from.
#[derive(Clone, Copy)]
enum Place {
    Thread,
    /// On a worker of another tokio runtime, as in the handlers of a web server.
    Task,
}

/// Runs calls to an idle process outside, while the driver leaves its worker free.
async fn calls<F>(
    driver: &mut Driver,
    count: u64,
    place: Place,
    run: fn(Address<Unit>, u64) -> F,
) -> Result<Cost, String>
where
    F: Future<Output = Result<Cost, String>> + Send + 'static,
{
    let unit = spawn(driver, 1)?[0];
    // Neither side is measured at its first touch.
    ensure(unit.increment().await.map_err(text)? == 1, "a reply is wrong")?;
    let calls = run(unit, count);
    let (sender, cost) = oneshot::channel();
    std::thread::spawn(move || sender.send(place.run(calls)));
    cost.await.map_err(text)?
}

impl Place {
    fn run<F>(self, calls: F) -> Result<Cost, String>
    where
        F: Future<Output = Result<Cost, String>> + Send + 'static,
    {
        match self {
            Place::Thread => {
                let tokio = Builder::new_current_thread().enable_time().build().map_err(text)?;
                tokio.block_on(calls)
            }
            Place::Task => {
                let mut tokio = Builder::new_multi_thread();
                let tokio = tokio.worker_threads(1).enable_time().build().map_err(text)?;
                tokio.block_on(async { tokio::spawn(calls).await.map_err(text)? })
            }
        }
    }
}

async fn call_all(unit: Address<Unit>, count: u64) -> Result<Cost, String> {
    let clock = Instant::now();
    for number in 0..count {
        let reply = unit.increment().await.map_err(text)?;
        ensure(reply == number + 2, "a reply is wrong")?;
    }
    Ok(time(clock, count))
}

/// Times each call separately; the figure contains the reading of the clock.
async fn call_each(unit: Address<Unit>, count: u64) -> Result<Cost, String> {
    let mut latencies = Vec::with_capacity(count as usize);
    for number in 0..count {
        let clock = Instant::now();
        let reply = unit.increment().await.map_err(text)?;
        latencies.push(clock.elapsed());
        ensure(reply == number + 2, "a reply is wrong")?;
    }
    latencies.sort_unstable();
    let latency = latencies.get(latencies.len() * 99 / 100).ok_or("there was no call")?;
    Ok(Cost { ns: Some(latency.as_nanos() as f64), bytes: None })
}

/// Tie between the driver and the processes it stops.
#[derive(Clone, Copy)]
enum Tie {
    None,
    Monitor,
    Link,
}

/// Returns the cost of a tie and its notification, without the cost of the exit itself.
async fn beyond_the_exit(driver: &mut Driver, count: u64, tie: Tie) -> Result<Cost, String> {
    let (_, bytes) = exits(driver, count, tie, true).await?;
    let (tied, _) = exits(driver, count, tie, false).await?;
    let (plain, _) = exits(driver, count, Tie::None, false).await?;
    Ok(Cost { ns: Some(tied - plain), bytes: Some(bytes) })
}

/// Ties processes to the driver, stops them, and waits until the driver knows of all exits. Returns
/// nanoseconds and bytes for each; the bytes are those of the ties, and only right if no earlier
/// call has left memory to reuse.
async fn exits(
    driver: &mut Driver,
    count: u64,
    tie: Tie,
    is_first: bool,
) -> Result<(f64, f64), String> {
    let units = spawn(driver, count)?;
    EXITED.arm(count);
    let before = resident::now();
    let clock = Instant::now();
    for units in units.chunks(CHUNK) {
        driver.context(|cx| match tie {
            Tie::None => {}
            Tie::Monitor => units.iter().for_each(|unit| {
                cx.monitor(*unit);
            }),
            Tie::Link => units.iter().for_each(|unit| cx.link(*unit)),
        });
        if is_first {
            settle(units).await?;
        }
    }
    let bytes = growth(before, count);
    for unit in &units {
        unit.stop();
    }
    EXITED.reached().await;
    let notices = if matches!(tie, Tie::None) { 0 } else { count };
    for _ in 0..notices {
        match driver.recv().await {
            Notice::Down(Down { reason: ExitReason::Normal, .. })
            | Notice::Exit(Exit { reason: ExitReason::Normal, .. }) => {}
            Notice::Down(Down { reason, .. }) | Notice::Exit(Exit { reason, .. }) => {
                return Err(format!("a process exited for another reason: {reason}"));
            }
            Notice::Piped | Notice::Item(_) | Notice::Ended(_) => {
                return Err("another message came".to_owned());
            }
        }
    }
    Ok((each(clock.elapsed(), count), bytes))
}

/// Sends `count` messages to `to` processes, in alternation: to two, so that no message is part of a run. The
/// processes are in a turn that never ends, so the messages stay in the mailboxes.
async fn waiting_messages(driver: &mut Driver, count: u64, to: u64) -> Result<Cost, String> {
    let units = spawn(driver, to)?;
    HANDLED.arm(to);
    for unit in &units {
        unit.suspend().map_err(text)?;
    }
    HANDLED.reached().await;
    let before = resident::now();
    let clock = Instant::now();
    for unit in units.iter().cycle().take(count as usize) {
        unit.add_number(1).map_err(text)?;
    }
    let cost = time_and_memory(clock, before, count);
    ensure(driver.runtime().mailbox_bytes() >= 8 * count, "the messages are not in the mailboxes")?;
    Ok(cost)
}

/// Most messages and signals in flight while memory is measured. Otherwise the figure would contain
/// a backlog, whose memory is reused.
const CHUNK: usize = 1000;

const AN_HOUR: Duration = Duration::from_secs(3600);

/// A process with a state of eight bytes.
struct Unit(u64);
#[process]
impl Unit {
    #[message(derive(Clone))]
    fn add(&mut self) {
        self.0 += 1;
        HANDLED.add();
    }
    #[message(send)]
    fn add_number(&mut self, number: u64) {
        self.0 += number;
    }
    #[message]
    fn count(&mut self) -> u64 {
        self.0
    }
    /// Replies with the number of these messages so far.
    #[message]
    fn increment(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
    #[message]
    fn question(&mut self, number: u64, reply: ReplyTo<u64>) {
        let _ = reply.send(number);
    }
    /// Suspends the turn for ever.
    #[message(send)]
    async fn suspend(&mut self) {
        HANDLED.add();
        std::future::pending().await
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        EXITED.add();
    }
}

/// A process that counts its starts in [`STARTED`].
struct Starter;
impl Process for Starter {
    async fn started(&mut self, _: &mut Context<Self>) {
        STARTED.add();
    }
}

/// Message that the driver receives.
pub(crate) enum Notice {
    Down(Down),
    Exit(Exit),
    Piped,
    Item(u64),
    Ended(ExitReason),
}
impl Message for Notice {
    type Reply = ();
}

static EXITED: Tally = Tally::new();
static HANDLED: Tally = Tally::new();
static STARTED: Tally = Tally::new();

/// A counter with a goal that a task can wait for.
struct Tally {
    count: AtomicU64,
    goal: AtomicU64,
    reached: Notify,
}

impl Tally {
    const fn new() -> Tally {
        let (count, goal) = (AtomicU64::new(0), AtomicU64::new(0));
        Tally { count, goal, reached: Notify::const_new() }
    }

    fn arm(&self, goal: u64) {
        self.count.store(0, Ordering::Relaxed);
        self.goal.store(goal, Ordering::Relaxed);
    }

    fn add(&self) {
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.goal.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    async fn reached(&self) {
        self.reached.notified().await;
    }
}

/// Spawns processes. The memory of the returned list is resident before a row measures anything.
fn spawn(driver: &mut Driver, count: u64) -> Result<Vec<Address<Unit>>, String> {
    driver.runtime().spawner().spawn_many((0..count).map(|_| Unit(0))).map_err(text)
}

/// Waits until each process has handled the messages and signals sent to it.
async fn settle(units: &[Address<Unit>]) -> Result<(), String> {
    for unit in units {
        unit.count().await.map_err(text)?;
    }
    Ok(())
}

fn names(count: u64) -> Vec<throng::Name> {
    (0..count).map(|number| format!("unit-{number}").into()).collect()
}

fn each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

fn growth(before: u64, count: u64) -> f64 {
    resident::now().saturating_sub(before) as f64 / count as f64
}

fn time(clock: Instant, count: u64) -> Cost {
    Cost { ns: Some(each(clock.elapsed(), count)), bytes: None }
}

fn time_and_memory(clock: Instant, before: u64, count: u64) -> Cost {
    let Cost { ns, .. } = time(clock, count);
    Cost { ns, bytes: Some(growth(before, count)) }
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
