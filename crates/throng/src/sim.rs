//! The simulator: your processes on one thread, in an order drawn from a seed, in virtual time, with
//! faults. What fails in it fails again, exactly, from the same seed.
//!
//! It is the test kit for programs made of processes. A test that runs on real threads sees the few
//! interleavings the machine happens to produce; here each seed is another one, a deadline of an
//! hour passes in no time, and processes crash where it hurts.
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
//! # What is simulated
//!
//! - **The schedule.** Which of the processes that could run does so next, and for how many messages,
//!   is drawn. The order in which one process hears another is kept, as always.
//! - **Time.** It stands still while anything can run, and then leaps to the next thing that waits for
//!   it: calls, receives, `send_after`, and tokio's own timers.
//! - **Faults**, where asked for: processes crash as they would by a panic ([`Faults::crash`]), or are
//!   held up as by a busy machine ([`Faults::delay`]).
//!
//! # What is not
//!
//! Code that asks something else than throng and tokio's timers for chance or time is not simulated:
//! threads of its own (`spawn_blocking` too), sockets, the system's clock, hash maps with random seeds
//! whose order matters, `tokio::select!` without `biased`. With these a seed need not repeat.

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

/// How many steps the processes make before tokio's tasks and timers get their turn.
const STEPS_PER_POLL: u32 = 64;
/// At most so many messages does a process handle in one step.
const MESSAGES_MOST: u32 = 4;
/// If nothing at all happens for so long, nothing ever will.
const STUCK: Duration = Duration::from_secs(100 * 24 * 3600);
/// How many steps processes have to exit when the test is over.
const LAST_STEPS: u32 = 10_000_000;

/// Runs a test with the seeds 0 to `seeds`, each a schedule of its own.
///
/// # Panics
/// If the test does: with what it said, the seed, and how to run that seed alone. With the
/// environment variable `THRONG_SIM_SEED` set, only that seed is run.
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

/// Runs a test with one seed; says which way it went.
///
/// # Panics
/// If the test does, or if it waits for something that cannot happen any more.
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

/// A run of the simulator, as the test sees it. Cloning it costs two counts.
#[derive(Clone)]
pub struct Sim {
    runtime: RuntimeHandle,
    controls: Arc<Controls>,
}

impl Sim {
    /// The simulated runtime.
    pub fn runtime(&self) -> &RuntimeHandle {
        &self.runtime
    }

    /// What goes wrong from here on.
    pub fn faults(&self) -> Faults<'_> {
        Faults(&self.controls)
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.controls.seed
    }

    /// How much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.controls.begun.elapsed()
    }

    /// A number below `limit`, from the run's seed: for tests that draw what they do.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn random(&self, limit: u64) -> u64 {
        lock(&self.controls.plan).random.u64(0..limit)
    }
}

/// Faults to be injected; see [`Sim::faults`]. Rates are per mille of the steps of the processes they
/// are for.
#[derive(Clone, Copy)]
pub struct Faults<'a>(&'a Controls);

impl Faults<'_> {
    /// Processes of type `P` crash at the start of a turn or where one waits, as by a panic.
    pub fn crash<P>(self, per_mille: u32) -> Self {
        self.add(Some(std::any::type_name::<P>()), Kind::Crash, per_mille)
    }

    /// Any process crashes.
    pub fn crash_anywhere(self, per_mille: u32) -> Self {
        self.add(None, Kind::Crash, per_mille)
    }

    /// Any process is held up, by up to `most`, though it could run.
    pub fn delay(self, most: Duration, per_mille: u32) -> Self {
        self.add(None, Kind::Delay(most), per_mille)
    }

    /// No more faults from here on.
    pub fn stop(self) {
        lock(&self.0.plan).faults.clear();
    }

    fn add(self, process: Option<&'static str>, kind: Kind, per_mille: u32) -> Self {
        lock(&self.0.plan).faults.push(Fault { process, kind, per_mille });
        self
    }
}

/// Which way a run went, in short: two runs with the same trace went the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// How many steps processes made.
    pub steps: u64,
    /// How many faults were injected.
    pub faults: u64,
    /// A digest of who made each step.
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
    /// Of processes of which type; any if none.
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
    /// What goes wrong with a step of a process, if anything does.
    fn fault(&mut self, process: &str) -> Option<Kind> {
        let Plan { random, faults } = self;
        faults
            .iter()
            .filter(|fault| fault.process.is_none_or(|name| name == process))
            .find(|fault| random.u32(0..1000) < fault.per_mille)
            .map(|fault| fault.kind)
    }
}

/// Takes the place of the threads.
struct Driver<'a> {
    worker: Worker,
    runtime: &'a Runtime,
    controls: Arc<Controls>,
    /// Processes that could run.
    ready: Vec<Token>,
    /// Those that could but are held up, until when.
    delayed: Vec<(VirtualInstant, Token)>,
    main: Arc<Flag>,
    sleep: Pin<Box<tokio::time::Sleep>>,
    /// When anything last happened.
    last_step: VirtualInstant,
    trace: Trace,
}

/// Whether the test itself can go on.
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

    /// Lets processes and the test go on until the test is over or both wait.
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
        // Others than processes want to run, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Collects everybody who could run.
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

    /// Lets one process run, or has something happen to it.
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

    /// Waits for time to pass.
    fn sleep(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Panic>> {
        let now = VirtualInstant::now();
        let clock = &self.worker.scheduler().clock;
        let alarm = self.worker.next_alarm().map(|alarm| {
            now + Duration::from_millis(u64::from(clock.refresh().until(alarm).max(1)))
        });
        let delayed = self.delayed.iter().map(|(until, _)| *until).min();
        let next = alarm.into_iter().chain(delayed).min();
        if next.is_none() && now >= self.last_step + STUCK {
            return Poll::Ready(Err(Box::new("the test waits for what cannot happen any more")));
        }
        self.sleep.as_mut().reset(next.unwrap_or(self.last_step + STUCK));
        if self.sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the runtime: whatever still lives is dropped where it is.
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
