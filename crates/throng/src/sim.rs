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
//!   deadline of a call, a receive, a `send_after` or a timer of tokio's.
//! - **Faults**, if the test asks for them: processes crash as if by a panic ([`Faults::crash`]),
//!   or are delayed as if by a busy machine ([`Faults::delay`]).
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
use crate::sync::{Mutex, Random, VirtualInstant, lock};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Steps of processes and test before tokio's tasks and timers run again.
const STEPS_PER_POLL: u32 = 64;
/// Maximum number of messages that a process handles in a step.
const MESSAGES_MOST: u32 = 4;
/// Virtual time without any step after which the test is given up as stuck.
const STUCK: Duration = Duration::from_secs(100 * 24 * 3600);
/// Maximum number of steps in which the processes are to exit when the test is over.
const LAST_STEPS: u32 = 10_000_000;

/// Runs a test with each seed from 0 up to, not including, `seeds`. Each seed is another schedule.
///
/// If the environment variable `THRONG_SIM_SEED` is set, only that seed is run.
///
/// # Panics
/// If the test panics: with its message, the seed, and the way to run that seed alone. If
/// `THRONG_SIM_SEED` is not a number.
pub fn check<F: Future<Output = ()>>(seeds: u64, test: impl Fn(Sim) -> F) {
    let only = std::env::var("THRONG_SIM_SEED").ok();
    let range = match only.as_deref().map(str::parse::<u64>) {
        None => 0..seeds,
        Some(Ok(seed)) => seed..seed + 1,
        Some(Err(_)) => panic!("THRONG_SIM_SEED is not a number"),
    };
    for seed in range {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| replay(seed, &test))) {
            let reason = ExitReason::from_panic(payload);
            panic!("seed {seed}: {reason}; run it alone with THRONG_SIM_SEED={seed}");
        }
    }
}

/// Runs a test with a single seed, and returns the trace of the run.
///
/// # Panics
/// If the test panics, or if it waits for something that can no longer happen.
pub fn replay<F: Future<Output = ()>>(seed: u64, test: impl Fn(Sim) -> F) -> Trace {
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tokio = tokio.unwrap_or_else(|error| panic!("tokio does not start: {error}"));
    tokio.block_on(async {
        let runtime = RuntimeBuilder::new().start_simulated(tokio::runtime::Handle::current());
        let shared = Arc::new(Controls {
            seed,
            plan: Mutex::new(Plan { random: Random::with_seed(seed), faults: Vec::new() }),
            begun: VirtualInstant::now(),
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
    /// Digest of the types of the processes that made each step, in order.
    pub digest: u64,
}

impl Trace {
    fn note(&mut self, what: &str) {
        for byte in what.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

struct Controls {
    seed: u64,
    plan: Mutex<Plan>,
    begun: VirtualInstant,
}

struct Plan {
    random: Random,
    faults: Vec<Fault>,
}

struct Fault {
    /// Name of the type of the processes that it is for; `None` for any type.
    process: Option<&'static str>,
    kind: Kind,
    per_mille: u32,
}

#[derive(Clone, Copy)]
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
    /// Processes that could run.
    ready: Vec<Token>,
    /// Processes that could run but are delayed, each with the end of its delay.
    delayed: Vec<(VirtualInstant, Token)>,
    main: Arc<Flag>,
    sleep: Pin<Box<tokio::time::Sleep>>,
    /// Virtual time of the last step.
    last_step: VirtualInstant,
    trace: Trace,
}

/// Waker of the test itself: says whether the test can go on, and wakes the driver.
struct Flag {
    is_set: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        if let Some(driver) = lock(&self.driver).take() {
            driver.wake();
        }
    }
}

type Panic = Box<dyn std::any::Any + Send>;

impl<'a> Driver<'a> {
    fn new(runtime: &'a Runtime, controls: Arc<Controls>) -> Driver<'a> {
        Driver {
            worker: Worker::new(runtime.handle().shared().clone(), 0),
            runtime,
            controls,
            ready: Vec::new(),
            delayed: Vec::new(),
            main: Arc::new(Flag { is_set: AtomicBool::new(true), driver: Mutex::new(None) }),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            last_step: VirtualInstant::now(),
            trace: Trace { steps: 0, faults: 0, digest: 0xcbf2_9ce4_8422_2325 },
        }
    }

    /// Makes steps of processes and of the test, until the test ends, or all of them wait, or it is
    /// the turn of tokio's tasks.
    fn poll(
        &mut self,
        mut test: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Panic>> {
        *lock(&self.main.driver) = Some(cx.waker().clone());
        self.runtime.scheduler().set_driver(cx.waker());
        for _ in 0..STEPS_PER_POLL {
            self.gather();
            let test_waits = !self.main.is_set.load(Ordering::Acquire);
            let choices = self.ready.len() + usize::from(!test_waits);
            if choices == 0 {
                return self.sleep(cx);
            }
            self.last_step = VirtualInstant::now();
            let choice = lock(&self.controls.plan).random.usize(0..choices);
            if choice < self.ready.len() {
                let token = self.ready.swap_remove(choice);
                self.step(token);
                continue;
            }
            self.main.is_set.store(false, Ordering::Release);
            let waker = Waker::from(self.main.clone());
            let polled = catch_unwind(AssertUnwindSafe(|| {
                test.as_mut().poll(&mut Context::from_waker(&waker))
            }));
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => return Poll::Ready(Ok(())),
                Err(payload) => return Poll::Ready(Err(payload)),
            }
        }
        // Let tokio's tasks and timers run, then go on.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Collects the processes that could run, also those whose delay is over.
    fn gather(&mut self) {
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
        self.trace.note(name);
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
