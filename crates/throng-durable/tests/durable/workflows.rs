//! Workflows: each step is recorded once and in order, whatever fails, and what was done is undone.
//!
//! `THRONG_WORKFLOW_SEEDS` is the number of seeds of the simulated orders, `THRONG_SIM_SEED` the only one, and
//! `THRONG_WORKFLOW_STEPS` the length of the long journal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Branch, Durable, Entity, Failure, Node, Options, Retry, RunStatus, StepError, Steps, Workflow,
    WorkflowError, WorkflowRun, Workflows, workflow,
};
use tokio::time::sleep;

use crate::{busy_options, draw_faults, end, number_or, start_again};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The world outside: what was done to it, by run.
#[derive(Clone, Default)]
struct World(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl World {
    async fn act(&self, run: &str, what: &str, takes: Duration) -> Result<u64, String> {
        sleep(takes).await;
        let mut world = self.0.lock().unwrap();
        let done = world.entry(run.to_owned()).or_default();
        done.push(what.to_owned());
        Ok(done.len() as u64)
    }

    fn of(&self, run: &str) -> Vec<String> {
        self.0.lock().unwrap().get(run).cloned().unwrap_or_default()
    }
}

/// An order: three steps with a pause, of which the last one may fail for good.
struct PlaceOrder {
    world: World,
    /// Version of the program.
    version: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    fails: bool,
    pause: Duration,
    takes: Duration,
}

const ORDER: Order =
    Order { fails: false, pause: Duration::from_millis(20), takes: Duration::from_millis(3) };

impl Workflow for PlaceOrder {
    const NAME: &'static str = "order";
    type Input = Order;
    type Output = Vec<u64>;

    async fn run(&self, cx: &Steps, order: Order) -> Result<Vec<u64>, Failure> {
        let act = |what: &'static str| {
            let (world, run, takes) = (self.world.clone(), cx.id().to_owned(), order.takes);
            move || {
                let (world, run) = (world.clone(), run.clone());
                async move { world.act(&run, what, takes).await }
            }
        };
        let undo = |what: &'static str| {
            let (world, run, takes) = (self.world.clone(), cx.id().to_owned(), order.takes);
            move || {
                let (world, run) = (world.clone(), run.clone());
                async move { world.act(&run, what, takes).await.map(drop) }
            }
        };
        let charge = if self.version == 2 { "pay" } else { "charge" };
        let charged = cx.step(charge, Retry::times(3), act("charge")).await?;
        cx.compensate("charge", Retry::times(3), undo("refund"));
        if self.version == 4 {
            return Ok(vec![charged]);
        }
        if self.version == 3 && cx.version("with a check") {
            cx.step("check", Retry::none(), act("check")).await?;
        }
        cx.sleep(order.pause).await;
        let reserved = cx.step("reserve", Retry::times(3), act("reserve")).await?;
        cx.compensate("reserve", Retry::times(3), undo("release"));
        let shipped = cx.step("ship", Retry::none(), async || match order.fails {
            true => Err("out of paper".to_owned()),
            false => self.world.act(cx.id(), "ship", order.takes).await,
        });
        Ok(vec![charged, reserved, shipped.await?])
    }
}

fn start(sim: &Sim, world: &World, version: u32) -> Node {
    start_with(
        sim,
        Workflows::new().with(PlaceOrder { world: world.clone(), version }),
        busy_options,
    )
}

/// Options of a node for hours, with few steps of the sweeper.
fn long_options() -> Options {
    busy_options().idle_after(Duration::from_secs(60))
}

/// Starts a node for hours.
fn start_long(sim: &Sim, world: &World, version: u32) -> Node {
    let workflows = Workflows::new().with(PlaceOrder { world: world.clone(), version });
    start_with(sim, workflows, long_options)
}

fn start_with(sim: &Sim, workflows: Workflows, options: fn() -> Options) -> Node {
    let node = start_again(sim, options);
    node.run_workflows(workflows);
    node
}

#[test]
fn a_workflow_runs_to_its_result_and_its_start_repeats_nothing() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let node = start(&sim, &world, 1);
        let run = node.workflow::<PlaceOrder>("a");
        assert!(matches!(run.result().await, Err(WorkflowError::Unborn)));
        assert_eq!(run.status().await.unwrap(), RunStatus::Unborn);
        run.start(&ORDER).await.unwrap();
        run.start(&Order { fails: true, ..ORDER }).await.unwrap();
        assert_eq!(run.result().await.unwrap(), [1, 2, 3]);
        assert_eq!(run.status().await.unwrap(), RunStatus::Done);
        let steps = run.steps().await.unwrap();
        let names: Vec<_> = steps.iter().map(|own| (own.name.as_str(), own.kind)).collect();
        let all = [("charge", "step"), ("sleep", "sleep"), ("reserve", "step"), ("ship", "step")];
        assert_eq!(names, all);
        assert!(steps.iter().all(|step| step.is_over && step.failure.is_none()), "{steps:?}");
        assert_eq!(world.of("a"), ["charge", "reserve", "ship"]);
        run.forget().await.unwrap();
        assert_eq!(run.status().await.unwrap(), RunStatus::Unborn);
        assert_eq!(run.steps().await.unwrap(), []);
    });
}

#[test]
fn a_workflow_that_sleeps_takes_no_memory_and_goes_on_after_a_restart() {
    sim::check(2, |sim: Sim| async move {
        let world = World::default();
        let node = start_long(&sim, &world, 1);
        node.workflow::<PlaceOrder>("a").start(&Order { pause: DAY / 24, ..ORDER }).await.unwrap();
        sleep(Duration::from_secs(100)).await;
        assert_eq!((world.of("a").len(), node.live()), (1, 0));
        let activations = node.stat().unwrap().activations;
        sleep(DAY / 100).await;
        assert_eq!(node.stat().unwrap().activations, activations, "it is woken in vain");
        sim.crash();
        let node = start_long(&sim, &world, 1);
        sleep(DAY / 24).await;
        assert_eq!(world.of("a"), ["charge", "reserve", "ship"], "nobody has asked for it");
        assert_eq!(node.workflow::<PlaceOrder>("a").result().await.unwrap(), [1, 2, 3]);
    });
}

#[test]
fn what_was_done_is_undone_in_reverse_if_a_step_fails_for_good() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let node = start(&sim, &world, 1);
        let run = node.workflow::<PlaceOrder>("a");
        run.start(&Order { fails: true, ..ORDER }).await.unwrap();
        match run.result().await {
            Err(WorkflowError::Failed(reason)) => assert!(reason.contains("out of paper")),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.of("a"), ["charge", "reserve", "release", "refund"]);
    });
}

#[test]
fn no_step_runs_after_a_cancel_and_what_was_done_is_undone() {
    sim::check(20, |sim: Sim| async move {
        let world = World::default();
        let mut node = start(&sim, &world, 1);
        let run = node.workflow::<PlaceOrder>("a");
        run.start(&ORDER).await.unwrap();
        sleep(Duration::from_millis(sim.random(40))).await;
        let is_cancelled = run.cancel("no more").await.unwrap();
        let done = world.of("a");
        if sim.random(2) == 0 {
            sim.crash();
            node = start(&sim, &world, 1);
        }
        let run = node.workflow::<PlaceOrder>("a");
        match run.result().await {
            Err(WorkflowError::Cancelled(reason)) if is_cancelled => assert_eq!(reason, "no more"),
            Ok(_) if !is_cancelled => return,
            other => panic!("{is_cancelled}, {other:?}"),
        }
        let after = world.of("a").split_off(done.len());
        let undone: Vec<&str> = after.iter().map(String::as_str).collect();
        let steps = run.steps().await.unwrap();
        let has = |name: &str| steps.iter().any(|step| step.name == name && step.is_over);
        assert_eq!(has("undo:charge"), has("charge"), "{steps:?}");
        assert_eq!(has("undo:reserve"), has("reserve"), "{steps:?}");
        for what in undone {
            assert!(["release", "refund"].contains(&what), "{what} after the cancel");
        }
    });
}

#[test]
fn simulated_orders_record_each_step_once_and_in_order() {
    let seeds = number_or("THRONG_WORKFLOW_SEEDS", 25);
    let ended = AtomicU64::new(0);
    sim::check(seeds, |sim: Sim| {
        let ended = &ended;
        async move {
            const ORDERS: u64 = 4;
            let world = World::default();
            let order = |id: u64| Order { fails: id % 2 == 1, ..ORDER };
            let mut begun = 0;
            let mut lives = 1;
            for _ in 0..3 {
                let node = start(&sim, &world, 1);
                draw_faults::<Till>(&sim, 150);
                while begun < ORDERS && sim.random(3) > 0 {
                    let run = node.workflow::<PlaceOrder>(begun);
                    if run.start(&order(begun)).await.is_err() {
                        break;
                    }
                    begun += 1;
                }
                sleep(Duration::from_millis(sim.random(120))).await;
                end(&sim, node).await;
                lives += 1;
            }
            let node = start(&sim, &world, 1);
            for id in 0..ORDERS {
                let run = node.workflow::<PlaceOrder>(id);
                run.start(&order(id)).await.unwrap();
                let result = run.result().await;
                assert_eq!(result.is_err(), order(id).fails, "{result:?}");
                let all: &[&str] = match order(id).fails {
                    true => &["charge", "reserve", "release", "refund"],
                    false => &["charge", "reserve", "ship"],
                };
                // Each was done once, or again and again before the next one.
                let mut done = world.of(&id.to_string());
                assert!(done.len() <= all.len() + 20 * lives, "{done:?}");
                done.dedup();
                assert_eq!(done, all, "order {id}");
                ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(ended.into_inner(), seeds * 4);
}

#[test]
fn a_program_that_does_not_fit_the_journal_does_nothing_and_says_why() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let begin = |version| {
            let node = start_long(&sim, &world, version);
            (node.workflow::<PlaceOrder>("a"), node)
        };
        let (run, node) = begin(1);
        run.start(&Order { pause: DAY / 24, ..ORDER }).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        node.shutdown().await;
        sim.crash();
        // The second version has renamed a step.
        let (run, node) = begin(2);
        run.status().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let RunStatus::Stuck(reason) = run.status().await.unwrap() else { panic!("not stuck") };
        assert!(reason.contains("\"pay\"") && reason.contains("\"charge\""), "{reason}");
        assert_eq!(world.of("a"), ["charge"]);
        assert!(node.stat().unwrap().workflows_stuck > 0);
        node.shutdown().await;
        sim.crash();
        // The fourth one ends before the journal does.
        let (run, node) = begin(4);
        run.status().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let RunStatus::Stuck(reason) = run.status().await.unwrap() else { panic!("not stuck") };
        assert!(reason.contains("ends, where the journal has the sleep"), "{reason}");
        node.shutdown().await;
        sim.crash();
        // The third one has a step more, for runs that come to it for the first time.
        let (run, node) = begin(3);
        let later = node.workflow::<PlaceOrder>("b");
        later.start(&ORDER).await.unwrap();
        assert_eq!(later.result().await.unwrap(), [1, 3, 4]);
        run.status().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(run.status().await.unwrap(), RunStatus::Running, "it fits again, and waits");
        assert_eq!(node.stat().unwrap().workflows_stuck, 0);
        assert_eq!(run.result().await.unwrap(), [1, 2, 3]);
        assert_eq!(world.of("a"), ["charge", "reserve", "ship"]);
        assert_eq!(world.of("b"), ["charge", "check", "reserve", "ship"]);
    });
}

/// An account that a workflow calls and sends to.
#[derive(Durable, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[durable(kind = "till")]
struct Till {
    taken: u64,
    got: u64,
}

#[process]
impl Till {
    #[message]
    fn take(&mut self, cents: u64) -> u64 {
        self.taken += cents;
        self.taken
    }

    #[message(durable)]
    fn give(&mut self, cents: u64) {
        self.got += cents;
    }

    #[message]
    fn read(&self) -> Till {
        self.clone()
    }
}

/// A workflow with one of everything.
struct Everything(Arc<AtomicU64>);

impl Workflow for Everything {
    const NAME: &'static str = "everything";
    type Input = u32;
    type Output = String;

    async fn run(&self, cx: &Steps, round: u32) -> Result<String, Failure> {
        let till: Entity<Till> = cx.node().entity("till");
        let attempts = self.0.clone();
        let flaky = cx.step("flaky", Retry::times(4), move || {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(attempt != 0, "the first attempt panics");
                if attempt < 3 { Err(format!("attempt {attempt}")) } else { Ok(attempt) }
            }
        });
        let flaky = flaky.await?;
        if round == 0 {
            return Err(Failure::continue_as_new(cx, &1u32));
        }
        let taken = cx.call("take", Retry::times(3), &till, || Take { cents: 5 }).await?;
        cx.send(&till, Give { cents: 7 }).await;
        let child = cx.child::<Doubled>("child", &3).await?;
        let failed = cx.child::<Doubled>("failing", &0).await.unwrap_err();
        assert!(failed.reason.contains("too small"), "{failed}");
        // It has ended before.
        let same = cx.child::<Doubled>("child", &5).await?;
        assert_eq!(same, child);
        let first: Option<String> = cx.wait("approval", None).await?;
        let second: Option<String> = cx.wait("approval", Some(Duration::from_secs(60))).await?;
        let none: Option<String> = cx.wait("approval", Some(Duration::from_secs(60))).await?;
        let branch = |name: &'static str, seconds: u64| {
            let cx: &Steps = cx;
            Box::pin(async move {
                cx.sleep(Duration::from_secs(seconds)).await;
                cx.step(name, Retry::none(), async || Ok::<_, Failed>(name.to_owned())).await
            })
        };
        let all = cx.all(vec![branch("slow", 3), branch("fast", 1)]).await;
        let all: Result<Vec<String>, _> = all.into_iter().collect();
        let (winner, first_of) = cx.race(vec![branch("last", 9), branch("first", 2)]).await;
        let now = cx.now().await;
        Ok(format!(
            "{flaky} {taken} {child} {first:?} {second:?} {none:?} {:?} {winner} {} {}",
            all?,
            first_of?,
            now == cx.now().await
        ))
    }
}

/// A workflow whose first round ends while a branch of it waits.
#[workflow]
async fn rounds(cx: &Steps, is_first: bool) -> Result<Option<u64>, Failure> {
    if !is_first {
        return Ok(cx.wait("go", None).await?);
    }
    let waits = Box::pin(async { cx.wait("go", Some(Duration::from_secs(60))).await });
    let sleeps = Box::pin(async {
        cx.sleep(Duration::from_secs(1)).await;
        Ok(None::<u64>)
    });
    let (first, _) = cx.race(vec![waits, sleeps]).await;
    assert_eq!(first, 1);
    Err(Failure::continue_as_new(cx, &false))
}

#[test]
fn nothing_of_a_round_that_is_over_reaches_the_next_one() {
    sim::check(3, |sim: Sim| async move {
        let mut node = start_with(&sim, Workflows::new().with(Rounds), busy_options);
        node.workflow::<Rounds>("a").start(&true).await.unwrap();
        sleep(Duration::from_secs(100)).await;
        if sim.random(2) == 0 {
            sim.crash();
            node = start_with(&sim, Workflows::new().with(Rounds), busy_options);
        }
        let run = node.workflow::<Rounds>("a");
        assert_eq!(run.status().await.unwrap(), RunStatus::Running);
        run.signal("go", &7u64).await.unwrap();
        assert_eq!(run.result().await.unwrap(), Some(7));
        assert!(matches!(run.signal("go", &8u64).await, Err(WorkflowError::Ended)));
    });
}

#[test]
fn so_many_signals_wait_for_a_run_and_no_more() {
    sim::check(1, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Rounds), busy_options);
        let run = node.workflow::<Rounds>("a");
        assert!(matches!(run.signal("go", &0u64).await, Err(WorkflowError::Unborn)));
        run.start(&false).await.unwrap();
        for number in 0..1_000u64 {
            run.signal("other", &number).await.unwrap();
        }
        let refused = run.signal("other", &0u64).await;
        assert!(matches!(refused, Err(WorkflowError::TooManySignals { .. })), "{refused:?}");
        run.signal("go", &1u64).await.unwrap();
        assert_eq!(run.result().await.unwrap(), Some(1));
    });
}

/// A workflow that begins anew while another run works for it, and then waits for a later one.
#[workflow]
async fn sitters(cx: &Steps, is_first: bool) -> Result<u64, Failure> {
    if !is_first {
        return Ok(cx.child::<Naps>("second", &120).await?);
    }
    let waits = Box::pin(async { cx.child::<Naps>("first", &60).await.unwrap_or(0) });
    let sleeps = Box::pin(async {
        cx.sleep(Duration::from_secs(1)).await;
        0
    });
    cx.race(vec![waits, sleeps]).await;
    Err(Failure::continue_as_new(cx, &false))
}

#[workflow]
async fn naps(cx: &Steps, seconds: u64) -> Result<u64, Failure> {
    cx.sleep(Duration::from_secs(seconds)).await;
    Ok(seconds)
}

#[test]
fn the_result_of_a_run_reaches_the_round_that_waits_for_it_and_no_other() {
    sim::check(3, |sim: Sim| async move {
        let begin = || start_with(&sim, Workflows::new().with(Sitters).with(Naps), long_options);
        let mut node = begin();
        node.workflow::<Sitters>("a").start(&true).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        if sim.random(2) == 0 {
            sim.crash();
            node = begin();
        }
        // A run that somebody else has started is told apart while it is under way.
        let other = node.workflow::<Sitters>("b");
        other.start(&false).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        match other.status().await.unwrap() {
            RunStatus::Failed(reason) => assert!(reason.contains("runs"), "{reason}"),
            status => panic!("{status:?}"),
        }
        assert_eq!(node.workflow::<Sitters>("a").result().await.unwrap(), 120);
    });
}

/// A workflow that calls an entity in each of three rounds.
#[workflow]
async fn collects(cx: &Steps, (step, round): (String, u64)) -> Result<u64, Failure> {
    let till: Entity<Till> = cx.node().entity("till");
    let taken = cx.call(&step, Retry::none(), &till, || Take { cents: 5 }).await?;
    if round < 3 {
        return Err(Failure::continue_as_new(cx, &(step, round + 1)));
    }
    Ok(taken)
}

#[test]
fn a_call_acts_once_in_each_round_of_each_run() {
    sim::check(3, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Collects), long_options);
        for (id, step, taken) in [("a", "b/take", 15), ("a/b", "take", 30)] {
            let run = node.workflow::<Collects>(id);
            run.start(&(step.to_owned(), 1)).await.unwrap();
            assert_eq!(run.result().await.unwrap(), taken);
        }
    });
}

/// A workflow that waits for signals in four branches, one of which only sleeps.
#[workflow]
async fn listens(cx: &Steps, (): ()) -> Result<Vec<Option<u64>>, Failure> {
    let wait = |name: &'static str| -> Branch<'_, Option<u64>> {
        let signal = cx.wait(name, None);
        Box::pin(async { signal.await.unwrap_or_default() })
    };
    let sleeps = Box::pin(async {
        cx.sleep(Duration::from_secs(60)).await;
        None
    });
    Ok(cx.all(vec![wait("gone"), wait("go"), wait("go"), sleeps]).await)
}

#[test]
fn a_signal_reaches_the_first_step_that_waits_for_its_very_name() {
    sim::check(3, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Listens), long_options);
        let run = node.workflow::<Listens>("a");
        run.start(&()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        for (name, number) in [("go", 1), ("sleep", 0u64), ("go", 2), ("gone", 3)] {
            run.signal(name, &number).await.unwrap();
        }
        sleep(Duration::from_secs(30)).await;
        assert_eq!(run.status().await.unwrap(), RunStatus::Running, "a signal ends no sleep");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(run.status().await.unwrap(), RunStatus::Done);
        assert_eq!(run.result().await.unwrap(), [Some(3), Some(1), Some(2), None]);
    });
}

/// A workflow that acts after a signal.
struct Approved(World);

impl Workflow for Approved {
    const NAME: &'static str = "approved";
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &Steps, (): ()) -> Result<(), Failure> {
        cx.wait::<u64>("go", None).await?;
        let act = async || self.0.act("a", "act", Duration::ZERO).await;
        cx.step("act", Retry::none(), act).await?;
        Ok(())
    }
}

#[test]
fn no_step_begins_after_a_signal_that_is_lost() {
    sim::check(10, |sim: Sim| async move {
        let world = World::default();
        let workflows = Workflows::new().with(Approved(world.clone()));
        let node = start_with(&sim, workflows, long_options);
        let run = node.workflow::<Approved>("a");
        run.start(&()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        sim.disk().set_room(Some(0));
        assert!(run.signal("go", &1u64).await.is_err());
        sim.disk().set_room(None);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.of("a"), [""; 0]);
        run.signal("go", &2u64).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(world.of("a"), ["act"]);
    });
}

/// A workflow that chooses the later one of two branches, of which both are over afterwards.
#[workflow]
async fn races(cx: &Steps, (): ()) -> Result<usize, Failure> {
    let sleeps = |seconds| -> Branch<'_, ()> {
        Box::pin(async move { cx.sleep(Duration::from_secs(seconds)).await })
    };
    let (first, ()) = cx.race(vec![sleeps(3), sleeps(1)]).await;
    cx.sleep(Duration::from_secs(60)).await;
    Ok(first)
}

#[test]
fn a_repeated_run_chooses_the_branch_that_it_has_chosen() {
    sim::check(3, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Races), long_options);
        node.workflow::<Races>("a").start(&()).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        let steps = node.workflow::<Races>("a").steps().await.unwrap();
        assert_eq!(steps.iter().filter(|step| step.is_over).count(), 3, "both branches, and which");
        sim.crash();
        let node = start_with(&sim, Workflows::new().with(Races), long_options);
        sleep(Duration::from_secs(120)).await;
        let run = node.workflow::<Races>("a");
        assert_eq!(run.status().await.unwrap(), RunStatus::Done);
        assert_eq!(run.result().await.unwrap(), 1);
    });
}

/// A workflow whose step fails each time, as does one of those that undo.
struct Hopeless(World);

impl Workflow for Hopeless {
    const NAME: &'static str = "hopeless";
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &Steps, (): ()) -> Result<(), Failure> {
        let try_to = |what: &'static str, fails: bool| {
            let world = self.0.clone();
            move || {
                let world = world.clone();
                async move {
                    let done = world.act("a", what, Duration::ZERO).await.map(drop);
                    if fails { Err("in vain".to_owned()) } else { done }
                }
            }
        };
        let minute = Duration::from_secs(60);
        cx.compensate("first", Retry::none(), try_to("undo first", false));
        cx.compensate("second", Retry::times(2).pauses(minute, minute), try_to("undo", true));
        cx.step("act", Retry::times(3).pauses(minute, minute), try_to("act", true)).await?;
        Ok(())
    }
}

#[test]
fn a_step_that_fails_has_its_attempts_over_restarts_and_keeps_none_from_being_undone() {
    sim::check(5, |sim: Sim| async move {
        let world = World::default();
        let begin = || {
            let workflows = Workflows::new().with(Hopeless(world.clone()));
            start_with(&sim, workflows, long_options)
        };
        let mut node = begin();
        node.workflow::<Hopeless>("a").start(&()).await.unwrap();
        for _ in 0..20 {
            sleep(Duration::from_secs(20)).await;
            // Attempts take no time, so that each is stored by this time.
            if sim.random(3) == 0 {
                sim.crash();
                node = begin();
            }
        }
        let RunStatus::Failed(reason) = node.workflow::<Hopeless>("a").status().await.unwrap()
        else {
            panic!("{:?}", world.of("a"))
        };
        assert!(reason.contains("in vain"), "{reason}");
        assert_eq!(world.of("a"), ["act", "act", "act", "undo", "undo", "undo first"]);
    });
}

/// An entity that handles no message, because its kind is never registered.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "absent", deps = String)]
struct Absent {}

#[process]
impl Absent {
    #[message(durable)]
    fn hear(&mut self) {}
}

/// A workflow that sends more than an inbox takes.
struct Talks(World);

impl Workflow for Talks {
    const NAME: &'static str = "talks";
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &Steps, (): ()) -> Result<(), Failure> {
        let world = self.0.clone();
        cx.compensate("all", Retry::none(), move || {
            let world = world.clone();
            async move { world.act("a", "undone", Duration::ZERO).await.map(drop) }
        });
        let absent: Entity<Absent> = cx.node().entity("nobody");
        for _ in 0..3 {
            cx.send(&absent, Hear {}).await;
        }
        Ok(())
    }
}

#[test]
fn a_run_that_meets_a_full_inbox_says_so_and_can_be_cancelled() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let workflows = || Workflows::new().with(Talks(world.clone()));
        let mut node = start_with(&sim, workflows(), || busy_options().inbox_max(2));
        node.workflow::<Talks>("a").start(&()).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        if sim.random(2) == 0 {
            sim.crash();
            node = start_with(&sim, workflows(), || busy_options().inbox_max(2));
        }
        sleep(Duration::from_secs(2)).await;
        let run = node.workflow::<Talks>("a");
        let status = run.status().await.unwrap();
        let RunStatus::Stuck(reason) = &status else { panic!("{status:?}") };
        assert!(reason.contains("full"), "{reason}");
        assert_eq!(node.entity::<Absent>("nobody").inbox().unwrap().waiting.len(), 2);
        assert!(run.cancel("enough").await.unwrap());
        assert!(matches!(run.result().await, Err(WorkflowError::Cancelled(_))));
        assert_eq!(world.of("a"), ["undone"]);
    });
}

#[test]
fn a_run_that_is_stuck_from_its_begin_goes_on_by_itself() {
    sim::check(3, |sim: Sim| async move {
        let workflows = Workflows::new().with(Talks(World::default()));
        let node = start_with(&sim, workflows, || long_options().inbox_max(3));
        let absent = node.entity::<Absent>("nobody");
        for _ in 0..3 {
            absent.send_durable(Hear {}).await.unwrap();
        }
        node.workflow::<Talks>("a").start(&()).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        for message in absent.inbox().unwrap().waiting {
            assert!(absent.skip_message(message.sequence).await.unwrap());
        }
        // Nobody asks for the run.
        sleep(Duration::from_secs(120)).await;
        assert_eq!(absent.inbox().unwrap().waiting.len(), 3);
        assert_eq!(node.workflow::<Talks>("a").status().await.unwrap(), RunStatus::Done);
    });
}

/// A workflow of many steps.
#[workflow]
async fn many(cx: &Steps, count: u64) -> Result<u64, Failure> {
    let mut sum = 0;
    for number in 0..count {
        let step = cx.step("one", Retry::none(), async || Ok::<_, Failed>(number));
        sum += step.await?;
        if number == count / 2 {
            cx.sleep(Duration::from_secs(60)).await;
        }
    }
    Ok(sum)
}

#[test]
fn a_journal_may_have_thousands_of_steps() {
    let count = number_or("THRONG_WORKFLOW_STEPS", 4_000);
    sim::check(1, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Many), busy_options);
        let run = node.workflow::<Many>("a");
        run.start(&count).await.unwrap();
        while run.steps().await.unwrap().len() as u64 <= count / 2 + 1 {
            sleep(Duration::from_secs(10)).await;
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(node.live(), 0, "it sleeps");
        sim.crash();
        let node = start_with(&sim, Workflows::new().with(Many), busy_options);
        let sum = node.workflow::<Many>("a").result().await.unwrap();
        assert_eq!(sum, count * (count - 1) / 2);
        assert_eq!(node.workflow::<Many>("a").steps().await.unwrap().len() as u64, count + 1);
    });
}

/// A workflow with a step whose name is not valid.
#[workflow(name = Misnamed, stored = "badly-named")]
async fn with_a_wrong_name(cx: &Steps, name: String) -> Result<(), StepError> {
    cx.step(&name, Retry::none(), async || Ok::<_, Failed>(())).await
}

#[test]
fn a_step_whose_name_is_not_valid_is_told() {
    sim::check(1, |sim: Sim| async move {
        let node = start_with(&sim, Workflows::new().with(Misnamed), busy_options);
        for name in [String::new(), "a#2".into(), "undo:a".into(), "n".repeat(101)] {
            let run = node.workflow::<Misnamed>(name.len());
            run.start(&name).await.unwrap();
            let RunStatus::Stuck(reason) = run.status().await.unwrap() else { panic!("{name}") };
            assert!(reason.contains("not valid"), "{reason}");
        }
        let run = node.workflow::<Misnamed>("longest");
        run.start(&"n".repeat(100)).await.unwrap();
        run.result().await.unwrap();
        assert_eq!((Misnamed::NAME, Many::NAME), ("badly-named", "many"));
    });
}

/// An error of the test's own.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct Failed;

#[workflow(name = Doubled, stored = "child")]
async fn double(cx: &Steps, number: u64) -> Result<u64, Failure> {
    let doubled = cx.step("double", Retry::none(), async || match number {
        0 => Err("too small"),
        number => Ok(2 * number),
    });
    Ok(doubled.await?)
}

#[test]
fn a_workflow_calls_sends_waits_branches_and_begins_anew_also_over_restarts() {
    sim::check(12, |sim: Sim| async move {
        let attempts = Arc::new(AtomicU64::new(0));
        let workflows = || Workflows::new().with(Everything(attempts.clone())).with(Doubled);
        let mut node =
            start_with(&sim, workflows(), || busy_options().idle_after(Duration::from_secs(10)));
        node.workflow::<Everything>("a").start(&0).await.unwrap();
        node.workflow::<Everything>("a").signal("approval", &"one".to_owned()).await.unwrap();
        let mut is_signalled = false;
        let result = loop {
            let run: WorkflowRun<Everything> = node.workflow("a");
            let has_waited = |steps: &[throng_durable::StepInfo]| {
                steps.iter().any(|step| step.name == "approval#2" && !step.is_over)
            };
            if !is_signalled && has_waited(&run.steps().await.unwrap()) {
                run.signal("approval", &"two".to_owned()).await.unwrap();
                is_signalled = true;
            }
            match run.status().await.unwrap() {
                RunStatus::Done => break run.result().await.unwrap(),
                RunStatus::Running => {}
                status => panic!("{status:?}"),
            }
            if sim.random(8) == 0 {
                if sim.random(2) == 0 {
                    node.shutdown().await;
                }
                sim.crash();
                node = start_with(&sim, workflows(), || {
                    busy_options().idle_after(Duration::from_secs(10))
                });
            }
            sleep(Duration::from_secs(1)).await;
        };
        let (flaky, rest) = result.split_once(' ').unwrap();
        assert!(flaky.parse::<u64>().unwrap() >= 3, "{result}");
        let all = r#"5 6 Some("one") Some("two") None ["slow", "fast"] 1 first true"#;
        assert!(rest == all || rest == all.replace("true", "false"), "{result}");
        let till = node.entity::<Till>("till").read().await.unwrap();
        assert_eq!(till, Till { taken: 5, got: 7 });
    });
}

/// A workflow whose step notes how many run at the same time.
struct Crowd(Arc<[AtomicU64; 2]>);

impl Workflow for Crowd {
    const NAME: &'static str = "crowd";
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &Steps, (): ()) -> Result<(), Failure> {
        let step = cx.step("narrow", Retry::none(), async || {
            let [now, most] = &*self.0;
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, Failed>(())
        });
        Ok(step.await?)
    }
}

#[test]
fn so_many_steps_of_a_name_run_at_once_and_no_more() {
    sim::check(3, |sim: Sim| async move {
        let counts = Arc::<[AtomicU64; 2]>::default();
        let workflows = Workflows::new().with(Crowd(counts.clone())).limit("narrow", 3);
        let node = start_with(&sim, workflows, || busy_options().live_max(100));
        for id in 0..20 {
            node.workflow::<Crowd>(id).start(&()).await.unwrap();
        }
        for id in 0..20 {
            node.workflow::<Crowd>(id).result().await.unwrap();
        }
        assert_eq!(counts[1].load(Ordering::Relaxed), 3);
    });
}
