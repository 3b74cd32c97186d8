//! Queues: no job is lost, none is done twice unless its program ends meanwhile, and the bounds hold.
//!
//! `THRONG_QUEUE_SEEDS` is the number of seeds of the simulated jobs, `THRONG_SIM_SEED` the only one.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Attempt, Bytes, Durable, DurableContext, EntityError, Job, JobError, JobId, JobState, Node,
    Options, Queue, QueueOptions, QueueStat, Queues, RecordsError, Schedule, Str, Worker,
};
use tokio::time::sleep;

use crate::{
    BEGIN, busy_options, draw_faults, end, number_or, reopen, runtime, set_clock, start_again,
    until,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A checkpoint every few groups, and a step of the sweeper each second.
fn options() -> Options {
    busy_options().idle_after(HOUR)
}

/// Work of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Task {
    /// Takes a time.
    Take(Duration),
    /// Fails in so many attempts.
    Fail(u32),
    Panic,
    Discard,
    /// Comes again after a time.
    Snooze(Duration),
    Hang,
}

const SHORT: Task = Task::Take(Duration::from_millis(3));

/// Attempts as they began and ended.
#[derive(Debug, Default)]
struct Seen {
    begun: Vec<(JobId, u32)>,
    done: BTreeMap<JobId, u32>,
    running: Vec<JobId>,
    most: usize,
}

/// The world outside.
#[derive(Clone, Debug, Default)]
struct World(Arc<Mutex<Seen>>);

/// An attempt under way.
struct Presence<'w>(&'w World, JobId);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().running.retain(|id| *id != self.1);
    }
}

impl World {
    fn enter(&self, attempt: &Attempt) -> Presence<'_> {
        let seen = &mut *self.0.lock().unwrap();
        assert!(!seen.running.contains(&attempt.id()), "two attempts at one job");
        seen.begun.push((attempt.id(), attempt.number()));
        seen.running.push(attempt.id());
        seen.most = seen.most.max(seen.running.len());
        Presence(self, attempt.id())
    }

    fn begun(&self) -> Vec<JobId> {
        self.0.lock().unwrap().begun.iter().map(|(id, _)| *id).collect()
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }

    fn done(&self, id: JobId) -> u32 {
        self.0.lock().unwrap().done.get(&id).copied().unwrap_or(0)
    }
}

impl Worker for World {
    const QUEUE: &'static str = "tasks";
    type Job = Task;

    async fn run(&self, cx: &Attempt, task: Task) -> Result<(), JobError> {
        let _presence = self.enter(cx);
        match task {
            Task::Take(time) => sleep(time).await,
            Task::Fail(attempts) if cx.number() <= attempts => {
                return Err(JobError::new(format!("attempt {}", cx.number())));
            }
            Task::Panic => panic!("out of paper"),
            Task::Discard => return Err(JobError::discard("no such address")),
            Task::Snooze(time) if cx.number() == 1 => return Err(JobError::snooze(time)),
            Task::Hang => {
                cx.report(1, 3);
                pending().await
            }
            Task::Fail(_) | Task::Snooze(_) => {}
        }
        *self.0.lock().unwrap().done.entry(cx.id()).or_default() += 1;
        Ok(())
    }
}

fn bounds() -> QueueOptions {
    QueueOptions::concurrency(3).pauses(Duration::from_millis(20), Duration::from_secs(1))
}

fn start_with(sim: &Sim, queues: Queues) -> (Node, Queue<World>) {
    start_node(start_again(sim, options), queues)
}

fn start_node(node: Node, queues: Queues) -> (Node, Queue<World>) {
    node.run_queues(queues);
    let queue = node.queue();
    (node, queue)
}

fn start(sim: &Sim, world: &World) -> (Node, Queue<World>) {
    start_with(sim, queues_of(world))
}

fn queues_of(world: &World) -> Queues {
    Queues::new().with(world.clone(), bounds())
}

async fn stat(queue: &Queue<World>) -> QueueStat {
    queue.stat().await.unwrap()
}

/// Waits until no job is ready or waits for a time.
async fn drained(queue: &Queue<World>) -> QueueStat {
    let mut pause = Duration::from_millis(1);
    loop {
        let stat = stat(queue).await;
        if stat.unfinished() == 0 {
            return stat;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

#[test]
fn simulated_jobs_are_done_and_none_is_lost() {
    let seeds = number_or("THRONG_QUEUE_SEEDS", 25);
    let all = AtomicU64::new(0);
    sim::check(seeds, |sim: Sim| {
        let all = &all;
        async move {
            let world = World::default();
            let (mut pushed, mut stored) = (0u64, Vec::new());
            for _ in 0..3 {
                let node = start_again(&sim, busy_options);
                let (node, queue) = start_node(node, queues_of(&world));
                draw_faults::<Desk>(&sim, 150);
                while pushed < 12 && sim.random(4) > 0 {
                    let task = match sim.random(4) {
                        0 => Task::Fail(2),
                        1 => Task::Snooze(Duration::from_millis(10)),
                        _ => SHORT,
                    };
                    pushed += 1;
                    let name = format!("job {pushed}");
                    let key = (sim.random(2) > 0).then_some("key");
                    let job = Job::new(task).priority(sim.random(3) as u8).unique(name.as_str());
                    let job = key.into_iter().fold(job, Job::key);
                    let outcome = match sim.random(2) {
                        0 => queue.push(job).await.map(|pushed| stored.push(pushed.id)),
                        _ => node.entity::<Desk>(&name).order(job.clone()).await.map(|_| ()),
                    };
                    if outcome.is_err() {
                        break;
                    }
                }
                sleep(Duration::from_millis(sim.random(60))).await;
                end(&sim, node).await;
                // What a program leaves running ends with it.
                world.0.lock().unwrap().running.clear();
            }
            let (node, queue) = start(&sim, &world);
            // What entities have pushed may still be in the inbox: each says so in its state.
            let mut due = stored.len();
            for number in 1..=pushed {
                let desk = node.entity::<Desk>(format!("job {number}"));
                due += usize::from(desk.has_ordered().await.unwrap());
            }
            let mut rounds = 0;
            while world.0.lock().unwrap().done.len() < due {
                rounds += 1;
                assert!(rounds < 100, "{due} jobs are stored: {:?}", world.0.lock().unwrap());
                sleep(Duration::from_secs(1)).await;
            }
            let stat = drained(&queue).await;
            assert_eq!(stat.dead, 0, "{stat:?}");
            for id in &stored {
                assert!(world.done(*id) >= 1, "job {id} is lost");
                // Once more for each program that has ended before it was recorded.
                assert!(world.done(*id) <= 4, "job {id} was done {} times", world.done(*id));
            }
            all.fetch_add(due as u64, Ordering::Relaxed);
            assert!(world.most() <= 3, "{} at once", world.most());
            sleep(Duration::from_secs(10)).await;
            let left = match node.records().inspect("job-queue", World::QUEUE) {
                // No job was ever pushed.
                Err(RecordsError::NoKind(_)) => None,
                inspected => inspected.unwrap(),
            };
            let left = left.map_or(0, |queue| queue.cells.entries);
            assert_eq!(left, 0, "records of jobs that are done");
        }
    });
    assert!(all.into_inner() >= seeds, "too few jobs were pushed");
}

/// An entity that pushes jobs in its turns.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "desk")]
struct Desk {
    has_ordered: bool,
}

#[process]
impl Desk {
    #[message]
    fn order(&mut self, job: Job<Task>, cx: &mut Context<Self>) {
        self.has_ordered = true;
        let queue = cx.node().queue::<World>();
        cx.push(&queue, job);
    }
    /// Pushes a job in a turn that fails.
    #[message]
    fn fail(&mut self, cx: &mut Context<Self>) {
        let queue = cx.node().queue::<World>();
        cx.push(&queue, SHORT);
        cx.cells::<Str, u64>("cells").put(&"x".repeat(1_000), &1);
    }
    #[message]
    fn has_ordered(&self) -> bool {
        self.has_ordered
    }
}

#[test]
fn a_job_is_stored_in_the_commit_of_the_turn_that_pushes_it() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        let desk = node.entity::<Desk>("a");
        assert!(matches!(desk.fail().await, Err(EntityError::NotCommitted(_))));
        sleep(HOUR).await;
        assert_eq!(world.begun(), [], "the turn was not kept");
        desk.order(Job::new(SHORT)).await.unwrap();
        sim.crash();
        let (_node, again) = start(&sim, &world);
        drop(queue);
        sleep(HOUR).await;
        drained(&again).await;
        assert_eq!(world.begun().len(), 1);
    });
}

#[test]
fn jobs_start_in_the_order_of_their_priorities() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let queues = || Queues::new().with(world.clone(), QueueOptions::concurrency(1));
        let (node, queue) = start_with(&sim, queues());
        queue.pause().await.unwrap();
        let jobs = (0..9u8).map(|number| Job::new(SHORT).priority(9 - number));
        let ids: Vec<JobId> =
            queue.push_all(jobs).await.unwrap().into_iter().map(|own| own.id).collect();
        sleep(HOUR).await;
        assert_eq!(world.begun(), [], "it is paused");
        sim.crash();
        drop((node, queue));
        let (_node, queue) = start_with(&sim, queues());
        sleep(HOUR).await;
        assert!(stat(&queue).await.is_paused && world.begun().is_empty(), "it stays paused");
        queue.resume().await.unwrap();
        let stat = drained(&queue).await;
        assert_eq!((stat.done, stat.failed, stat.is_paused), (9, 0, false));
        let mut expected = ids;
        expected.sort();
        assert_eq!(world.begun(), expected);
    });
}

#[test]
fn jobs_of_a_key_run_one_by_one_and_keep_no_others_waiting() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let (_node, queue) =
            start_with(&sim, Queues::new().with(world.clone(), bounds().per_key(1)));
        let slow = Job::new(Task::Take(HOUR)).key("a");
        queue.push_all((0..1_200).map(|_| slow.clone())).await.unwrap();
        let quick = queue.push(Job::new(SHORT).key("b")).await.unwrap();
        sleep(HOUR / 2).await;
        assert_eq!(world.begun().len(), 2);
        assert_eq!(world.done(quick.id), 1);
        sleep(3 * HOUR).await;
        assert_eq!((world.most(), world.begun().len()), (2, 5));
    });
}

#[test]
fn so_many_jobs_start_in_a_period() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let rate = bounds().rate(2, HOUR);
        let (_node, queue) = start_with(&sim, Queues::new().with(world.clone(), rate));
        queue.push_all((0..5).map(|_| SHORT)).await.unwrap();
        for (hours, begun) in [(0, 2), (1, 4), (2, 5), (3, 5)] {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(world.begun().len(), begun, "after {hours} hours");
            sleep(HOUR - Duration::from_secs(60)).await;
        }
    });
}

#[test]
fn a_job_that_fails_is_tried_again_and_dead_in_the_end() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let queues = Queues::new().with(world.clone(), bounds().attempts(4).timeout(HOUR));
        let (node, queue) = start_with(&sim, queues);
        let push = async |job: Job<Task>| queue.push(job).await.unwrap().id;
        let fails_twice = push(Task::Fail(2).into()).await;
        let fails = push(Job::new(Task::Fail(99)).unique("fails")).await;
        let panics = push(Job::new(Task::Panic).attempts(1)).await;
        let discarded = push(Task::Discard.into()).await;
        let snoozed = push(Task::Snooze(24 * HOUR).into()).await;
        let hangs = push(Job::new(Task::Hang).attempts(2)).await;
        let fails_often = push(Job::new(Task::Fail(25)).attempts(30)).await;
        sleep(12 * HOUR).await;
        assert_eq!((world.done(fails_twice), world.done(snoozed)), (1, 0));
        assert_eq!(world.done(fails_often), 1, "its program has ended in no attempt");
        sleep(13 * HOUR).await;
        assert_eq!(world.done(snoozed), 1);
        let listed = queue.jobs(JobState::Dead, None, 99).await.unwrap();
        let dead: Vec<_> = listed
            .iter()
            .map(|job| (job.id, job.attempts, job.failures, job.reason.as_deref().unwrap_or("")))
            .collect();
        assert_eq!(
            dead.iter().map(|own| own.0).collect::<Vec<_>>(),
            [fails, panics, discarded, hangs]
        );
        assert_eq!(dead[0], (fails, 4, 4, "attempt 4"));
        assert!(dead[1].3.contains("out of paper"), "{dead:?}");
        assert_eq!(dead[2], (discarded, 1, 1, "no such address"));
        assert_eq!(dead[3], (hangs, 2, 2, "it took longer than 3600s"));
        assert_eq!(listed[0].value.as_ref().unwrap(), &Task::Fail(99));
        assert_eq!(node.stat().unwrap().jobs_dead, 4);
        // Pages go on behind a job.
        let page = queue.jobs(JobState::Dead, Some(panics), 1).await.unwrap();
        assert_eq!(page[0].id, discarded);
        // The name is free, and a dead job has all attempts again.
        assert!(queue.push(Job::new(SHORT).unique("fails")).await.unwrap().is_new);
        assert!(queue.retry(fails).await.unwrap());
        sleep(HOUR).await;
        let again = &queue.jobs(JobState::Dead, None, 1).await.unwrap()[0];
        assert_eq!((again.id, again.attempts, again.failures), (fails, 8, 4));
        assert!(queue.remove(fails).await.unwrap());
        assert!(!queue.remove(fails).await.unwrap() && !queue.retry(fails).await.unwrap());
        let stat = drained(&queue).await;
        assert_eq!((stat.dead, stat.done), (3, 4));
    });
}

#[test]
fn of_two_jobs_with_a_name_the_first_is_kept_until_it_is_done() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        let job = Job::new(Task::Take(HOUR)).unique("nightly");
        let first = queue.push(job.clone()).await.unwrap();
        let second = queue.push(job.clone()).await.unwrap();
        assert_eq!((second.id, second.is_new), (first.id, false));
        sim.crash();
        drop((node, queue));
        let (_node, queue) = start(&sim, &world);
        assert_eq!(queue.push(job.clone()).await.unwrap(), second);
        drained(&queue).await;
        assert_eq!(world.done(first.id), 1);
        assert!(queue.push(job.clone()).await.unwrap().is_new);
        let [ref running] = queue.jobs(JobState::Ready, None, 9).await.unwrap()[..] else {
            panic!()
        };
        queue.remove(running.id).await.unwrap();
        assert!(
            queue.push(job).await.unwrap().is_new,
            "a job that is removed has no name any more"
        );
        let later = Job::new(SHORT).unique("later");
        let waits = queue.push(later.clone().after(HOUR)).await.unwrap();
        queue.remove(waits.id).await.unwrap();
        assert!(queue.push(later).await.unwrap().is_new, "nor has one that waits for a time");
        let long = queue.push(Job::new(SHORT).unique("x".repeat(251))).await;
        assert!(matches!(long, Err(EntityError::NotCommitted(_))), "{long:?}");
    });
}

#[test]
fn a_job_waits_for_its_time_also_over_a_restart() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        let later = queue.push(Job::new(SHORT).after(2 * HOUR)).await.unwrap().id;
        let much_later = queue.push(Job::new(SHORT).after(99 * HOUR)).await.unwrap().id;
        assert_eq!(stat(&queue).await.later, 2);
        sleep(HOUR).await;
        sim.crash();
        drop((node, queue));
        let (_node, queue) = start(&sim, &world);
        sleep(HOUR - Duration::from_secs(1)).await;
        assert_eq!(world.begun(), []);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(world.begun(), [later]);
        assert!(queue.retry(much_later).await.unwrap(), "it is done at once");
        drained(&queue).await;
        assert_eq!(world.begun(), [later, much_later]);
    });
}

#[test]
fn a_clock_that_is_set_forward_brings_the_jobs_of_its_time() {
    sim::check(1, |sim: Sim| async move {
        let clock = set_clock(&sim);
        let world = World::default();
        let (_node, queue) = start(&sim, &world);
        let at = SystemTime::UNIX_EPOCH + BEGIN + 2 * HOUR;
        queue.push(Job::new(SHORT).at(at)).await.unwrap();
        sleep(HOUR / 2).await;
        assert_eq!(world.begun(), []);
        clock.store(2 * HOUR.as_secs() as i64, Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.begun().len(), 1);
    });
}

#[test]
fn a_dead_job_that_is_tried_again_takes_no_name_from_another() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let (_node, queue) = start(&sim, &world);
        let nightly = |task| Job::new(task).unique("nightly");
        let dead = queue.push(nightly(Task::Fail(1)).attempts(1)).await.unwrap();
        sleep(HOUR).await;
        let other = queue.push(nightly(Task::Take(9 * HOUR))).await.unwrap();
        assert!(other.is_new && queue.retry(dead.id).await.unwrap());
        sleep(HOUR).await;
        assert_eq!(world.done(dead.id), 1);
        let third = queue.push(nightly(SHORT)).await.unwrap();
        assert_eq!((third.id, third.is_new), (other.id, false));
    });
}

#[test]
fn a_job_that_is_removed_before_its_start_takes_no_place_of_others() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let rate = bounds().rate(2, HOUR);
        let (_node, queue) = start_with(&sim, Queues::new().with(world.clone(), rate));
        let pushed = queue.push_all((0..6).map(|_| SHORT)).await.unwrap();
        let ids: Vec<JobId> = pushed.into_iter().map(|own| own.id).collect();
        for id in &ids[2..4] {
            assert!(queue.remove(*id).await.unwrap());
        }
        sleep(HOUR + HOUR / 2).await;
        let mut begun = world.begun();
        begun.sort();
        assert_eq!(begun, [&ids[..2], &ids[4..]].concat());
    });
}

#[test]
fn the_bounds_of_a_queue_hold_over_its_failure_and_it_comes_back_by_itself() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let queues = Queues::new().with(world.clone(), QueueOptions::concurrency(1));
        let (_node, queue) = start_with(&sim, queues);
        let fail = async || {
            sim.disk().fail_randomly(1_000);
            let refused = queue.push(SHORT).await;
            assert!(refused.is_err(), "{refused:?}");
            sim.disk().heal();
        };
        let runs = queue.push(Task::Take(HOUR)).await.unwrap().id;
        sleep(Duration::from_secs(60)).await;
        let urgent = queue.push(Job::new(SHORT).priority(0)).await.unwrap().id;
        fail().await;
        sleep(HOUR / 2).await;
        assert_eq!(world.begun(), [runs], "one at a time, whatever its priority");
        let stat = drained(&queue).await;
        assert_eq!((stat.done, world.begun()), (2, vec![runs, urgent]));
        let later = queue.push(Job::new(SHORT).after(HOUR)).await.unwrap().id;
        fail().await;
        // Nobody asks the queue, and no attempt ends.
        sleep(2 * HOUR).await;
        assert_eq!(world.begun(), [runs, urgent, later]);
    });
}

#[test]
fn no_job_starts_in_a_shutdown() {
    sim::check(3, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        queue.push_all((0..9).map(|_| Task::Hang)).await.unwrap();
        sleep(HOUR).await;
        node.shutdown().await;
        assert_eq!(world.begun().len(), 3);
    });
}

#[test]
fn a_job_of_hours_is_done_once_and_ends_when_it_is_removed() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        let job = Job::new(Task::Take(20 * HOUR)).unique("long");
        let long = queue.push(job).await.unwrap().id;
        let hangs = queue.push(Task::Hang).await.unwrap().id;
        sleep(HOUR).await;
        // Its queue fails meanwhile, and takes over what runs.
        sim.disk().set_room(Some(0));
        let refused = queue.push(SHORT).await;
        assert!(refused.is_err(), "{refused:?}");
        // A removal that is lost ends nothing.
        let refused = queue.remove(long).await;
        assert!(refused.is_err(), "{refused:?}");
        sim.disk().set_room(None);
        sleep(HOUR).await;
        assert_eq!((stat(&queue).await.running, world.begun().len()), (2, 2));
        let listed = queue.jobs(JobState::Ready, None, 9).await.unwrap();
        let progress: Vec<_> = listed.iter().map(|own| own.progress).collect();
        assert_eq!(progress, [Some((0, 0)), Some((1, 3))]);
        assert!(queue.remove(hangs).await.unwrap());
        sleep(Duration::from_secs(6)).await;
        assert_eq!(world.0.lock().unwrap().running, [long]);
        assert_eq!(stat(&queue).await.running, 1);
        sleep(20 * HOUR).await;
        drained(&queue).await;
        assert_eq!((world.done(long), world.begun().len()), (1, 2));
        assert!(queue.push(Job::new(SHORT).unique("long")).await.unwrap().is_new);
        node.shutdown().await;
    });
}

#[test]
fn an_attempt_that_ends_on_a_full_disk_is_not_repeated() {
    sim::check(5, |sim: Sim| async move {
        let world = World::default();
        let (_node, queue) = start(&sim, &world);
        let id = queue.push(Task::Take(Duration::from_millis(500))).await.unwrap().id;
        sim.disk().set_room(Some(0));
        sleep(Duration::from_secs(3)).await;
        assert_eq!(world.done(id), 1, "the attempt itself needs no disk");
        sim.disk().set_room(None);
        let stat = drained(&queue).await;
        assert_eq!((stat.done, world.begun().len()), (1, 1));
    });
}

#[test]
fn attempts_end_with_a_node_that_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let world = World::default();
    runtime.block_on(async |runtime| {
        for round in 1..=3 {
            let node = reopen(Node::options(directory.path()), runtime).await;
            node.run_queues(queues_of(&world));
            if round == 1 {
                node.queue::<World>().push(Task::Hang).await.unwrap();
            }
            // The world refuses two attempts at a time.
            until(async || world.begun().len() == round).await;
        }
    });
}

#[test]
fn the_job_of_a_program_that_was_killed_runs_again_at_once_and_not_for_ever() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let mut id = None;
        for program in 1..=39 {
            let (node, queue) = start(&sim, &world);
            if id.is_none() {
                id = Some(queue.push(Task::Hang).await.unwrap().id);
            }
            sleep(Duration::from_secs(2)).await;
            assert_eq!(world.begun().len(), program);
            // Half of them end in order.
            if program % 2 == 0 {
                node.shutdown().await;
            }
            sim.crash();
            world.0.lock().unwrap().running.clear();
        }
        let (_node, queue) = start(&sim, &world);
        sleep(HOUR).await;
        let [ref dead] = queue.jobs(JobState::Dead, None, 9).await.unwrap()[..] else { panic!() };
        // Those that ended in order are not to blame.
        assert_eq!((dead.id, dead.attempts, dead.failures), (id.unwrap(), 39, 0));
        assert!(dead.reason.as_deref().unwrap().contains("20"), "{dead:?}");
        assert!(queue.retry(dead.id).await.unwrap());
        sleep(HOUR).await;
        assert_eq!(world.begun().len(), 40, "it is forgiven");
    });
}

#[test]
fn a_schedule_pushes_jobs_as_long_as_the_program_has_it() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let queues = |minutes: u64| {
            let schedule = Schedule::every(Duration::from_secs(minutes * 60));
            Queues::new().with(world.clone(), bounds()).every::<World>("report", schedule, SHORT)
        };
        let (node, queue) = start_with(&sim, queues(60));
        sleep(HOUR * 3 + HOUR / 2).await;
        assert_eq!(world.begun().len(), 3);
        // The same schedule goes on where it was, and one with other times begins anew.
        for (minutes, hours, begun) in [(60, 1, 4), (20, 1, 7)] {
            sim.crash();
            let _node = start_with(&sim, queues(minutes));
            sleep(hours * HOUR + Duration::from_secs(60)).await;
            assert_eq!(world.begun().len(), begun, "{minutes}");
        }
        sim.crash();
        drop((node, queue));
        let (node, _) = start(&sim, &world);
        sleep(24 * HOUR).await;
        assert!(world.begun().len() <= 8, "a schedule that is gone pushes nothing");
        let activations = node.stat().unwrap().activations;
        sleep(24 * HOUR).await;
        assert_eq!(node.stat().unwrap().activations, activations, "it is woken in vain");
    });
}

#[test]
fn a_job_that_the_program_cannot_read_is_dead() {
    /// The same queue, in a program with other jobs.
    struct Other;
    impl Worker for Other {
        const QUEUE: &'static str = World::QUEUE;
        type Job = u64;
        async fn run(&self, _: &Attempt, _: u64) -> Result<(), JobError> {
            Ok(())
        }
    }
    sim::check(1, |sim: Sim| async move {
        let (node, queue) = start(&sim, &World::default());
        let id = queue.push(Task::Take(HOUR)).await.unwrap().id;
        sim.crash();
        drop((node, queue));
        let node = start_again(&sim, options);
        node.run_queues(Queues::new().with(Other, QueueOptions::concurrency(1)));
        sleep(HOUR).await;
        let queue = node.queue::<Other>();
        let [ref dead] = queue.jobs(JobState::Dead, None, 9).await.unwrap()[..] else { panic!() };
        assert_eq!(dead.id, id);
        assert!(dead.value.is_err() && dead.reason.is_some(), "{dead:?}");
        // A queue without a worker keeps its jobs.
        sim.crash();
        drop((node, queue));
        let node = start_again(&sim, options);
        node.run_queues(Queues::new());
        node.queue::<World>().push(SHORT).await.unwrap();
        let stat = node.queue::<World>().stat().await.unwrap();
        assert_eq!((stat.ready, stat.dead, stat.running), (1, 1, 0));
    });
}

#[test]
fn a_damaged_job_keeps_no_others_from_being_done() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let (node, queue) = start(&sim, &world);
        queue.pause().await.unwrap();
        let push = async |job: Job<Task>| queue.push(job).await.unwrap().id;
        let damaged = [push(SHORT.into()).await, push(Job::new(SHORT).after(HOUR)).await];
        let others = [push(SHORT.into()).await, push(Job::new(SHORT).after(HOUR)).await];
        let existing = throng_store::DatabaseOptions::new().existing();
        let cells = node.store().database_with::<Bytes, Bytes>("durable cells", &existing).unwrap();
        let snapshot = node.store().snapshot().unwrap();
        let mut batch = throng_store::Batch::new();
        for own in cells.range(&snapshot, ..) {
            let (key, value) = own.unwrap();
            // Not the times, which have no values.
            if damaged.iter().any(|id| key.ends_with(&id.0.to_be_bytes())) && value.len() > 2 {
                batch = batch.put(&cells, key, b"\xff\xff\xff");
            }
        }
        drop(snapshot);
        let written = node.store().write(batch);
        sleep(Duration::from_secs(1)).await;
        written.await.unwrap();
        sim.crash();
        drop((node, queue, cells));
        let (node, queue) = start(&sim, &world);
        let [ready, later] = [JobState::Ready, JobState::Later].map(|state| {
            let shown = node.records().jobs(World::QUEUE, state, None, 9).unwrap().unwrap();
            shown.into_iter().map(|job| (job.id, job.value.text.is_ok())).collect::<Vec<_>>()
        });
        assert_eq!(ready, [(damaged[0], false), (others[0], true)]);
        assert_eq!(later, [(damaged[1], false), (others[1], true)]);
        queue.resume().await.unwrap();
        sleep(2 * HOUR).await;
        assert_eq!(world.begun(), others);
        queue.push(SHORT).await.unwrap();
        sleep(HOUR).await;
        assert_eq!(world.begun().len(), 3);
        assert!(queue.jobs(JobState::Ready, None, 9).await.is_err(), "a list says so");
    });
}

#[test]
fn a_damaged_schedule_keeps_no_jobs_from_being_done() {
    sim::check(1, |sim: Sim| async move {
        let world = World::default();
        let queues = || {
            let schedule = Schedule::every(HOUR);
            Queues::new().with(world.clone(), bounds()).every::<World>("report", schedule, SHORT)
        };
        let (node, queue) = start_with(&sim, queues());
        let later = queue.push(Job::new(SHORT).after(HOUR / 2)).await.unwrap().id;
        let existing = throng_store::DatabaseOptions::new().existing();
        let records =
            node.store().database_with::<Bytes, Bytes>("durable reminders", &existing).unwrap();
        let snapshot = node.store().snapshot().unwrap();
        let of_schedule = records
            .range(&snapshot, ..)
            .map(Result::unwrap)
            .find(|(key, _)| key.ends_with(b"job report"));
        let damaged =
            throng_store::Batch::new().put(&records, of_schedule.unwrap().0, b"\xff\xff\xff");
        drop(snapshot);
        let written = node.store().write(damaged);
        sleep(Duration::from_secs(1)).await;
        written.await.unwrap();
        // Its next activation finds the damage. Nobody asks the queue, and no attempt ends.
        sim.disk().fail_randomly(1_000);
        let refused = queue.push(SHORT).await;
        assert!(refused.is_err(), "{refused:?}");
        sim.disk().heal();
        sleep(HOUR).await;
        assert_eq!(world.done(later), 1);
        drop(node);
    });
}
