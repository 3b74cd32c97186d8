//! The simulator: runs your processes on one thread, in an order drawn from a seed, in virtual
//! time, with faults. A test that fails in it fails again, exactly, from the same seed.
//!
//! It is the test kit for programs made of processes. A test that runs on real threads sees the few
//! interleavings that the machine happens to produce. In the simulator each seed gives another
//! interleaving, a deadline of an hour passes in no time, and processes crash where it hurts.
//!
//! ```
//! use std::time::Duration;
//! use throng::{prelude::*, sim};
//!
//! struct Till(u64);
//! impl Process for Till {}
//! struct Pay(u64);
//! impl Message for Pay { type Reply = u64; }
//! impl Handle<Pay> for Till {
//!     async fn handle(&mut self, Pay(amount): Pay, _: &mut Context<Self>) -> u64 {
//!         // Other processes run meanwhile, and this hour takes no time at all.
//!         tokio::time::sleep(Duration::from_secs(3600)).await;
//!         self.0 += amount;
//!         self.0
//!     }
//! }
//!
//! sim::check(20, |sim| async move {
//!     let till = sim.runtime().spawn(Till(0)).unwrap();
//!     let pay = |amount| till.call(Pay(amount)).within(Duration::from_secs(10_000));
//!     let (first, second) = tokio::join!(pay(1), pay(2));
//!     assert_eq!(first.unwrap().max(second.unwrap()), 3);
//! });
//! ```
//!
//! # Simulated
//!
//! - **The schedule.** The seed decides which of the processes that could run is next, and for how
//!   many messages. Messages from one process to another keep their order, as always.
//! - **Time.** Virtual time stands still while anything can run, and then leaps to the next
//!   deadline of a call, a receive, a `send_after` or a timer of tokio's. A test that makes a million
//!   steps without any time between them fails: something in it tries again and again without a pause.
//! - **Tasks** of [`Sim::spawn`]: parts of the test, or of the program, that are no processes. The
//!   seed decides when they run, as for processes.
//! - **Faults**, if the test asks for them: processes crash as if by a panic ([`Faults::crash`]),
//!   or are delayed as if by a busy machine ([`Faults::delay`]).
//!
//! A seed that fails is reported with the last events before the failure: the steps of processes and
//! tasks, the faults, and what the test [notes](Sim::note).
//!
//! # Not simulated
//!
//! Code that takes chance or time from anything but throng and tokio's timers is not simulated:
//! threads of its own (`spawn_blocking` too), sockets, the system's clock, hash maps with random
//! seeds whose order matters, `tokio::select!` without `biased`. A test that uses these may go
//! differently with the same seed.

use crate::cell::Token;
use crate::exit::ExitReason;
use crate::runtime::{Runtime, RuntimeBuilder, RuntimeHandle};
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, Random, Simulated, VirtualInstant, lock};
use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Steps of processes and test before tokio's tasks and timers run again.
const STEPS_PER_POLL: u32 = 64;
const MESSAGES_MOST: u32 = 4;
/// Maximum number of events that are reported of a seed that fails.
const EVENTS_MOST: usize = 100;
/// Virtual time without any step after which the test is given up as stuck.
const STUCK: Duration = Duration::from_secs(100 * 24 * 3600);
/// Maximum number of steps without any virtual time between them, after which the test is given up.
const STEPS_AT_ONCE_MOST: u64 = 1_000_000;
/// Maximum number of steps in which the processes are to exit when the test is over.
const LAST_STEPS: u32 = 10_000_000;

/// Runs a test with each seed from 0 up to, not including, `seeds`. Each seed is another schedule.
///
/// If the environment variable `THRONG_SIM_SEED` is set, only that seed is run.
///
/// # Panics
/// If the test panics: with its message, the seed, the way to run that seed alone, and the last
/// events. If `THRONG_SIM_SEED` is not a number.
pub fn check<F: Future<Output = ()>>(seeds: u64, test: impl Fn(Sim) -> F) {
    let only = std::env::var("THRONG_SIM_SEED").ok();
    let range = match only.as_deref().map(str::parse::<u64>) {
        None => 0..seeds,
        Some(Ok(seed)) => seed..seed + 1,
        Some(Err(_)) => panic!("THRONG_SIM_SEED is not a number"),
    };
    for seed in range {
        let events = Arc::new(Mutex::new(Events::default()));
        let run = || run(seed, &test, events.clone());
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            let reason = ExitReason::from_panic(payload);
            let events = lock(&events);
            panic!(
                "seed {seed}: {reason}\nthe last events:\n{events}\
                 run it alone with THRONG_SIM_SEED={seed}"
            );
        }
    }
}

/// Runs a test with a single seed, and returns the trace of the run.
///
/// # Panics
/// If the test panics, or if it waits for something that can no longer happen.
pub fn replay<F: Future<Output = ()>>(seed: u64, test: impl Fn(Sim) -> F) -> Trace {
    run(seed, &test, Arc::default())
}

fn run<F: Future<Output = ()>>(
    seed: u64,
    test: &impl Fn(Sim) -> F,
    events: Arc<Mutex<Events>>,
) -> Trace {
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tokio = tokio.unwrap_or_else(|error| panic!("tokio does not start: {error}"));
    let _simulated = Simulated::begin();
    tokio.block_on(async {
        let runtime = RuntimeBuilder::new().start_simulated(tokio::runtime::Handle::current());
        let shared = Arc::new(Controls {
            seed,
            plan: Mutex::new(Plan { random: Random::with_seed(seed), faults: Vec::new() }),
            begun: VirtualInstant::now(),
            events,
            spawned: Mutex::new(Vec::new()),
            driver: Mutex::new(None),
        });
        let sim = Sim { runtime: runtime.handle().clone(), controls: shared.clone() };
        let mut driver = Driver::new(&runtime, shared);
        let mut main = pin!(test(sim));
        let outcome = std::future::poll_fn(|cx| driver.poll(main.as_mut(), cx)).await;
        driver.end();
        match outcome {
            Ok(()) => driver.trace,
            Err(payload) => resume_unwind(payload),
        }
    })
}

/// A run of the simulator, as passed to the test. Cloning it costs two reference counts.
#[derive(Clone)]
pub struct Sim {
    runtime: RuntimeHandle,
    controls: Arc<Controls>,
}

impl Sim {
    /// Returns a handle to the simulated runtime.
    pub fn runtime(&self) -> &RuntimeHandle {
        &self.runtime
    }

    /// Returns the [`Faults`] of this run, by which a test injects faults or stops them all.
    pub fn faults(&self) -> Faults<'_> {
        Faults(&self.controls)
    }

    /// Returns the seed of this run.
    pub fn seed(&self) -> u64 {
        self.controls.seed
    }

    /// Returns the virtual time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.controls.begun.elapsed()
    }

    /// Starts a task: a part of the test, or of the program, that is no process. The seed decides when
    /// it runs. `name` stands for it among the events. It ends with the run at the latest.
    ///
    /// A task of tokio's runs as well, but not at a moment that the seed decides.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::sync::Arc;
    /// use throng::sim;
    ///
    /// sim::check(5, |sim| async move {
    ///     let sum = Arc::new(AtomicU32::new(0));
    ///     for number in 1..=3 {
    ///         let sum = sum.clone();
    ///         sim.spawn("adder", async move {
    ///             sum.fetch_add(number, Ordering::Relaxed);
    ///         });
    ///     }
    ///     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!(sum.load(Ordering::Relaxed), 6);
    /// });
    /// ```
    ///
    /// A panic of the task is one of the test.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.controls.spawned).push((name, Box::pin(task)));
        if let Some(driver) = &*lock(&self.controls.driver) {
            driver.wake_by_ref();
        }
    }

    /// Adds an event to those that are reported if the seed fails, and to the digest of the [`Trace`].
    pub fn note(&self, event: impl Into<String>) {
        self.controls.note(Event::Noted(event.into()));
    }

    /// Draws a number below `limit` from the run's seed: for tests that choose at random.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn random(&self, limit: u64) -> u64 {
        lock(&self.controls.plan).random.u64(0..limit)
    }
}

/// The faults that the simulator injects into a run, from [`Sim::faults`]. The `per_mille` of a
/// method is the number of such faults per 1,000 steps of the processes concerned.
#[derive(Clone, Copy)]
pub struct Faults<'a>(&'a Controls);

impl Faults<'_> {
    /// Crashes processes of type `P` as if by a panic, at the start of a turn or where a turn
    /// waits.
    pub fn crash<P>(self, per_mille: u32) -> Self {
        self.add(Some(std::any::type_name::<P>()), Kind::Crash, per_mille)
    }

    /// Crashes processes of any type, like [`crash`](Self::crash).
    pub fn crash_anywhere(self, per_mille: u32) -> Self {
        self.add(None, Kind::Crash, per_mille)
    }

    /// Delays processes of any type that are ready to run, each time by up to `most`.
    pub fn delay(self, most: Duration, per_mille: u32) -> Self {
        self.add(None, Kind::Delay(most), per_mille)
    }

    /// Stops the injection of all faults.
    pub fn stop(self) {
        lock(&self.0.plan).faults.clear();
    }

    fn add(self, process: Option<&'static str>, kind: Kind, per_mille: u32) -> Self {
        lock(&self.0.plan).faults.push(Fault { process, kind, per_mille });
        self
    }
}

/// Summary of a run's course: two runs with the same trace took the same course.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Number of steps that processes made.
    pub steps: u64,
    /// Number of faults that were injected.
    pub faults: u64,
    /// Digest of the events, in order: of each step the type of the process or the name of the task, the
    /// faults, and what was noted.
    pub digest: u64,
}

/// The events of a run: a digest of all, and the last ones.
#[derive(Debug)]
struct Events {
    digest: u64,
    last: VecDeque<(Duration, Event)>,
}

#[derive(Debug)]
enum Event {
    /// A step of a process of this type.
    Process(&'static str),
    /// A step of a task of this name.
    Task(&'static str),
    /// A fault of a process of this type.
    Fault(&'static str, Kind),
    Noted(String),
}

impl Default for Events {
    fn default() -> Self {
        Events { digest: 0xcbf2_9ce4_8422_2325, last: VecDeque::new() }
    }
}

impl Events {
    fn note(&mut self, at: Duration, event: Event) {
        let text = match &event {
            Event::Process(name) | Event::Task(name) | Event::Fault(name, _) => *name,
            Event::Noted(text) => text,
        };
        for byte in text.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.last.len() == EVENTS_MOST {
            self.last.pop_front();
        }
        self.last.push_back((at, event));
    }
}

impl Display for Events {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (at, event) in &self.last {
            write!(formatter, "{:>12.6} s  ", at.as_secs_f64())?;
            match event {
                Event::Process(name) => writeln!(formatter, "step of {name}")?,
                Event::Task(name) => writeln!(formatter, "step of the task {name}")?,
                Event::Fault(name, Kind::Crash) => writeln!(formatter, "crash of {name}")?,
                Event::Fault(name, Kind::Delay(_)) => writeln!(formatter, "delay of {name}")?,
                Event::Noted(text) => writeln!(formatter, "{text}")?,
            }
        }
        Ok(())
    }
}

struct Controls {
    seed: u64,
    plan: Mutex<Plan>,
    begun: VirtualInstant,
    events: Arc<Mutex<Events>>,
    /// Tasks that were started and that the driver has not taken yet.
    spawned: Mutex<Vec<(&'static str, TaskFuture)>>,
    driver: Mutex<Option<Waker>>,
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Controls {
    fn note(&self, event: Event) {
        lock(&self.events).note(self.begun.elapsed(), event);
    }
}

struct Plan {
    random: Random,
    faults: Vec<Fault>,
}

struct Fault {
    /// Name of the type of processes that the fault is for; `None` for any type.
    process: Option<&'static str>,
    kind: Kind,
    per_mille: u32,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Crash,
    Delay(Duration),
}

impl Plan {
    /// Draws the fault of a step of a process, if it has one.
    fn fault(&mut self, process: &str) -> Option<Kind> {
        let Plan { random, faults } = self;
        faults
            .iter()
            .filter(|fault| fault.process.is_none_or(|name| name == process))
            .find(|fault| random.u32(0..1000) < fault.per_mille)
            .map(|fault| fault.kind)
    }
}

/// Runs the processes, the test and the clock, in place of the runtime's threads.
struct Driver<'a> {
    worker: Worker,
    runtime: &'a Runtime,
    controls: Arc<Controls>,
    ready: Vec<Token>,
    /// Processes that could run but are delayed, each with the end of its delay.
    delayed: Vec<(VirtualInstant, Token)>,
    main: Arc<Flag>,
    tasks: Vec<Task>,
    sleep: Pin<Box<tokio::time::Sleep>>,
    last_step: VirtualInstant,
    steps_at_once: u64,
    trace: Trace,
}

/// A task of the test.
struct Task {
    name: &'static str,
    future: TaskFuture,
    flag: Arc<Flag>,
}

/// Waker of the test itself, or of a task: says whether it can go on, and wakes the driver.
struct Flag {
    is_set: AtomicBool,
    controls: Arc<Controls>,
}

impl Flag {
    fn new(controls: &Arc<Controls>) -> Arc<Flag> {
        Arc::new(Flag { is_set: AtomicBool::new(true), controls: controls.clone() })
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        if let Some(driver) = &*lock(&self.controls.driver) {
            driver.wake_by_ref();
        }
    }
}

type Panic = Box<dyn std::any::Any + Send>;

impl<'a> Driver<'a> {
    fn new(runtime: &'a Runtime, controls: Arc<Controls>) -> Driver<'a> {
        Driver {
            worker: Worker::new(runtime.handle().shared().clone(), 0),
            runtime,
            main: Flag::new(&controls),
            tasks: Vec::new(),
            controls,
            ready: Vec::new(),
            delayed: Vec::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            last_step: VirtualInstant::now(),
            steps_at_once: 0,
            trace: Trace { steps: 0, faults: 0, digest: 0 },
        }
    }

    /// Makes steps of processes and of the test, until the test ends, or all of them wait, or it is
    /// the turn of tokio's tasks.
    fn poll(
        &mut self,
        mut main: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Panic>> {
        *lock(&self.controls.driver) = Some(cx.waker().clone());
        self.runtime.scheduler().set_driver(cx.waker());
        for _ in 0..STEPS_PER_POLL {
            self.gather();
            // The processes, then the test if it can go on, then the tasks that can.
            let processes = self.ready.len();
            let test = usize::from(self.main.is_set());
            let tasks = self.tasks.iter().filter(|task| task.flag.is_set()).count();
            let choices = processes + test + tasks;
            if choices == 0 {
                return self.sleep(cx);
            }
            let now = VirtualInstant::now();
            self.steps_at_once = if now == self.last_step { self.steps_at_once + 1 } else { 0 };
            self.last_step = now;
            if self.steps_at_once > STEPS_AT_ONCE_MOST {
                let text = "the test does not come to an end: no time passes between its steps, \
                            because something tries again and again without a pause";
                return Poll::Ready(Err(Box::new(text)));
            }
            let choice = lock(&self.controls.plan).random.usize(0..choices);
            if choice < processes {
                let token = self.ready.swap_remove(choice);
                self.step(token);
            } else if choice < processes + test {
                match poll(main.as_mut(), &self.main) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(())) => return Poll::Ready(Ok(())),
                    Err(payload) => return Poll::Ready(Err(payload)),
                }
            } else if let Err(payload) = self.step_task(choice - processes - test) {
                return Poll::Ready(Err(payload));
            }
        }
        // Let tokio's tasks and timers run, then go on.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Makes a step of a task, the one of this number among those that can go on.
    fn step_task(&mut self, number: usize) -> Result<(), Panic> {
        let can_go_on = |(_, task): &(usize, &mut Task)| task.flag.is_set();
        let found = self.tasks.iter_mut().enumerate().filter(can_go_on).nth(number);
        let Some((index, task)) = found else { return Ok(()) };
        self.trace.steps += 1;
        self.controls.note(Event::Task(task.name));
        if poll(task.future.as_mut(), &task.flag)?.is_ready() {
            drop(self.tasks.swap_remove(index));
        }
        Ok(())
    }

    /// Collects the processes that could run, also those whose delay is over, and new tasks.
    fn gather(&mut self) {
        for (name, future) in std::mem::take(&mut *lock(&self.controls.spawned)) {
            self.tasks.push(Task { name, future, flag: Flag::new(&self.controls) });
        }
        let Driver { worker, ready, .. } = self;
        worker.scheduler().clock.refresh();
        scheduler::enter(worker, || worker.take_all(ready));
        let now = VirtualInstant::now();
        let mut index = 0;
        while index < self.delayed.len() {
            if self.delayed[index].0 <= now {
                self.ready.push(self.delayed.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
    }

    /// Makes a step of a process: runs it for some messages, or crashes or delays it.
    fn step(&mut self, token: Token) {
        let name = token.class().name;
        let (fault, messages, hold) = {
            let mut plan = lock(&self.controls.plan);
            let fault = plan.fault(name);
            let messages = plan.random.u32(1..=MESSAGES_MOST);
            (fault, messages, plan.random.f64())
        };
        self.trace.steps += 1;
        self.controls.note(match fault {
            None => Event::Process(name),
            Some(kind) => Event::Fault(name, kind),
        });
        let Driver { worker, .. } = self;
        match fault {
            Some(Kind::Delay(most)) => {
                self.trace.faults += 1;
                let until = VirtualInstant::now() + most.min(STUCK).mul_f64(hold);
                self.delayed.push((until, token));
            }
            Some(Kind::Crash) => {
                self.trace.faults += 1;
                let reason = ExitReason::Panicked("a crash injected by the simulator".into());
                scheduler::enter(worker, || worker.guard(|| worker.crash_process(token, reason)));
            }
            None => scheduler::enter(worker, || {
                worker.guard(|| worker.run_process_for(token, messages))
            }),
        }
    }

    /// Waits for the next alarm or the end of a delay; fails if the test is stuck.
    fn sleep(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Panic>> {
        let now = VirtualInstant::now();
        let clock = &self.worker.scheduler().clock;
        let alarm = self.worker.next_alarm().map(|alarm| {
            now + Duration::from_millis(u64::from(clock.refresh().until(alarm).max(1)))
        });
        let delayed = self.delayed.iter().map(|(until, _)| *until).min();
        let next = alarm.into_iter().chain(delayed).min();
        if next.is_none() && now >= self.last_step + STUCK {
            return Poll::Ready(Err(Box::new("the test waits for something that cannot happen")));
        }
        self.sleep.as_mut().reset(next.unwrap_or(self.last_step + STUCK));
        if self.sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the runtime: processes that still live are killed.
    fn end(&mut self) {
        self.trace.digest = lock(&self.controls.events).digest;
        self.tasks.clear();
        lock(&self.controls.spawned).clear();
        self.runtime.scheduler().set_phase(Phase::Killing);
        let mut steps = 0;
        while self.runtime.process_count() > 0 && steps < LAST_STEPS {
            self.runtime.handle().shared().sweep_once();
            self.gather();
            self.ready.extend(self.delayed.drain(..).map(|(_, token)| token));
            for token in std::mem::take(&mut self.ready) {
                steps += 1;
                let Driver { worker, .. } = self;
                scheduler::enter(worker, || {
                    worker.guard(|| worker.run_process_for(token, MESSAGES_MOST))
                });
            }
        }
    }
}

/// Polls the test or a task, which has this waker.
fn poll(
    future: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    flag: &Arc<Flag>,
) -> Result<Poll<()>, Panic> {
    flag.is_set.store(false, Ordering::Release);
    let waker = Waker::from(flag.clone());
    catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker))))
}
