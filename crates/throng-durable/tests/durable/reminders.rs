//! Reminders: each occurrence takes effect once, in its time, whatever fails and whatever the clock shows.
//!
//! `THRONG_REMINDER_SEEDS` is the number of seeds of the simulated alarms, `THRONG_SIM_SEED` the only one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Durable, DurableContext, EntityError, Missed, Node, OnFailure, Reminder, Schedule,
};
use tokio::time::sleep;

use crate::{BEGIN, busy_options, draw_faults, end, mend, number_or, set_clock, start_again};
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const CLOCKS: u64 = 4;
const LIVES: u64 = 3;

/// An entity that notes what becomes of each of its reminders.
#[derive(Durable, Clone, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "alarm", deps = Fails, on_failure = OnFailure::park_after(2))]
struct Alarm {
    set: Vec<u64>,
    replaced: Vec<u64>,
    rung: Vec<u64>,
    /// Times since the begin at which reminders came, and for which they were set.
    times: Vec<(Duration, Duration)>,
}

/// The number of the reminder whose handler fails.
type Fails = Arc<AtomicU64>;

#[process]
impl Alarm {
    /// Sets a reminder that comes once.
    #[message]
    fn set(&mut self, id: u64, key: String, after: Duration, cx: &mut Context<Self>) {
        let own = cx.reminders().unwrap().iter().any(|own| own.key == key);
        assert_eq!(cx.cancel_reminder(&key), own);
        if own {
            self.replaced.extend(self.set.iter().rev().find(|set| *set % 3 == id % 3));
        }
        self.set.push(id);
        cx.remind(&key, Schedule::after(after), Ring { id });
    }

    /// Cancels a reminder; the answer tells whether there was one.
    #[message]
    fn cancel(&mut self, key: String, cx: &mut Context<Self>) -> bool {
        cx.cancel_reminder(&key)
    }

    /// Sets a reminder by any schedule.
    #[message(name = SetBy)]
    fn set_by(&mut self, key: String, schedule: Schedule, cx: &mut Context<Self>) {
        assert_eq!(cx.reminded_at(), None);
        cx.remind(&key, schedule, Ring { id: 0 });
    }

    /// Sets a reminder and cancels it, or the other way round.
    #[message]
    fn waver(&mut self, is_set_last: bool, cx: &mut Context<Self>) {
        for is_set in [!is_set_last, is_set_last] {
            match is_set {
                true => cx.remind("waver", Schedule::after(MINUTE), Ring { id: 1 }),
                false => _ = cx.cancel_reminder("waver"),
            }
        }
    }

    #[message(durable)]
    fn ring(&mut self, id: u64, cx: &mut Context<Self>) {
        assert!(cx.deps().load(Ordering::Relaxed) != id + 1, "no bell for {id}");
        self.rung.push(id);
        let due = cx.reminded_at().map(|due| due.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        let now = cx.node().store().since_1970();
        self.times.push((now - BEGIN, due.unwrap_or_default().saturating_sub(BEGIN)));
    }

    /// Rings, and sets itself anew or cancels itself.
    #[message(durable)]
    fn again(&mut self, left: u64, cx: &mut Context<Self>) {
        self.rung.push(left);
        match left {
            0 => assert!(cx.cancel_reminder("again")),
            _ => cx.remind("again", Schedule::every(MINUTE), Again { left: left - 1 }),
        }
    }

    #[message]
    fn begin_again(&mut self, left: u64, cx: &mut Context<Self>) {
        cx.remind("again", Schedule::every(MINUTE), Again { left });
    }

    /// Changes the state and the reminders, and fails.
    #[message(durable)]
    fn spoil(&mut self, cx: &mut Context<Self>) {
        self.rung.push(0);
        assert!(cx.cancel_reminder("spoil") && cx.cancel_reminder("other"));
        cx.remind("another", Schedule::after(MINUTE), Ring { id: 0 });
        panic!("asked for");
    }

    #[message]
    fn begin_spoiling(&mut self, cx: &mut Context<Self>) {
        cx.remind("spoil", Schedule::after(MINUTE), Spoil {});
        cx.remind("other", Schedule::after(10 * MINUTE), Ring { id: 1 });
    }

    /// Waits while messages arrive.
    #[message]
    async fn wait(&self, time: Duration) {
        sleep(time).await;
    }

    #[message]
    fn read(&self) -> Alarm {
        self.clone()
    }

    #[message]
    fn die(&self, cx: &mut Context<Self>) {
        cx.pid().kill();
    }

    #[message]
    fn fail(&mut self) {
        panic!("asked for");
    }
}

fn start(sim: &Sim, fails: &Fails) -> Node {
    let node = start_again(sim, busy_options);
    node.register::<Alarm>(fails.clone());
    node
}

/// Starts a node for hours, with few steps of the sweeper.
fn start_long(sim: &Sim, fails: &Fails) -> Node {
    let node = start_again(sim, || busy_options().idle_after(10 * MINUTE));
    node.register::<Alarm>(fails.clone());
    node
}

/// Sets reminders under three keys, of which a later one replaces an earlier one.
async fn set(sim: Sim, node: Node, next: Arc<AtomicU64>) {
    for _ in 0..8 {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let alarm = node.entity::<Alarm>(sim.random(CLOCKS).to_string());
        let after = Duration::from_millis(sim.random(150));
        // An error may leave it set or not: the state tells.
        let _ = alarm.set(id, (id % 3).to_string(), after).await;
        sleep(Duration::from_millis(sim.random(20))).await;
    }
}

async fn disturb(sim: Sim, node: Node) {
    for _ in 0..10 {
        sleep(Duration::from_micros(sim.random(8_000))).await;
        let alarm = node.entity::<Alarm>(sim.random(CLOCKS).to_string());
        match sim.random(3) {
            0 => drop(alarm.die().await),
            1 => drop(alarm.fail().await),
            _ => drop(alarm.read().await),
        }
    }
}

/// Waits until no reminder is left.
async fn settle(node: &Node) -> Vec<Alarm> {
    let alarms: Vec<_> = (0..CLOCKS).map(|key| node.entity::<Alarm>(key.to_string())).collect();
    for _ in 0..50_000 {
        let waits = alarms.iter().any(|alarm| {
            let is_quiet = alarm.reminders().is_ok_and(|reminders| reminders.is_empty())
                && alarm.inbox().is_ok_and(|inbox| inbox.waiting.is_empty());
            !is_quiet
        });
        if !waits {
            let mut states = Vec::new();
            for alarm in &alarms {
                states.extend(alarm.read().await.ok());
            }
            if states.len() == alarms.len() {
                return states;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    let left: Vec<_> = alarms.iter().map(|alarm| (alarm.reminders(), alarm.inbox())).collect();
    panic!("reminders do not come: {left:?}");
}

#[test]
fn simulated_reminders_come_exactly_once() {
    let seeds = number_or("THRONG_REMINDER_SEEDS", 30);
    let rung = AtomicU64::new(0);
    sim::check(seeds, |sim: Sim| {
        let rung = &rung;
        async move {
            let (fails, next) = (Fails::default(), Arc::new(AtomicU64::new(1)));
            for _ in 0..LIVES {
                let node = start(&sim, &fails);
                draw_faults::<Alarm>(&sim, 120);
                for _ in 0..2 {
                    sim.spawn("setter", set(sim.clone(), node.clone(), next.clone()));
                }
                sim.spawn("disturber", disturb(sim.clone(), node.clone()));
                sleep(Duration::from_millis(sim.random(200))).await;
                sim.faults().stop();
                if sim.random(2) == 0 && !sim.disk().is_down() {
                    // What is due comes without a restart.
                    mend(&sim);
                    settle(&node).await;
                }
                end(&sim, node).await;
            }
            let node = start(&sim, &fails);
            for alarm in settle(&node).await {
                let ended: BTreeSet<u64> =
                    alarm.rung.iter().chain(&alarm.replaced).copied().collect();
                assert_eq!(ended.len(), alarm.rung.len() + alarm.replaced.len(), "{alarm:?}");
                assert_eq!(ended, alarm.set.iter().copied().collect(), "{alarm:?}");
                assert!(alarm.times.iter().all(|(now, due)| now >= due), "{alarm:?}");
                rung.fetch_add(alarm.rung.len() as u64, Ordering::Relaxed);
            }
        }
    });
    let rung = rung.into_inner();
    assert!(rung > seeds * LIVES, "{rung} reminders in {seeds} runs show little");
}

fn at(after: Duration) -> Schedule {
    Schedule::at(SystemTime::UNIX_EPOCH + BEGIN + after)
}

#[test]
fn a_clock_that_is_set_moves_only_what_is_set_by_it() {
    for (skew, wall, steady) in [(0, 600, 600), (300, 300, 600), (-300, 900, 600)] {
        sim::check(3, |sim: Sim| async move {
            let clock = set_clock(&sim);
            let node = start_long(&sim, &Fails::default());
            let [by_wall, by_steady] = ["wall", "steady"].map(|key| node.entity::<Alarm>(key));
            by_wall.set_by("key".into(), at(10 * MINUTE)).await.unwrap();
            by_steady.set_by("key".into(), Schedule::after(10 * MINUTE)).await.unwrap();
            sleep(2 * MINUTE).await;
            clock.store(skew, Ordering::Relaxed);
            for (alarm, due) in [(by_wall, wall), (by_steady, steady)] {
                let due = Duration::from_secs(due);
                if sim.elapsed() < due {
                    sleep(due - sim.elapsed() - Duration::from_secs(1)).await;
                    assert!(alarm.read().await.unwrap().rung.is_empty(), "{skew} s");
                }
            }
            sleep(20 * MINUTE).await;
            for key in ["wall", "steady"] {
                assert_eq!(node.entity::<Alarm>(key).read().await.unwrap().rung, [0], "{key}");
            }
        });
    }
}

#[test]
fn occurrences_of_a_month_without_a_program_come_as_the_schedule_says() {
    let hourly = || Schedule::every(60 * MINUTE);
    let daily = || Schedule::cron("0 12 * * *", "Europe/Berlin").unwrap();
    let once = || at(DAY);
    // How many come at the start, and how many in the day after it.
    let table = [
        (hourly().missed(Missed::Once), 1, 24),
        (hourly().missed(Missed::All), 30 * 24, 24),
        (hourly().missed(Missed::Skip), 0, 24),
        (daily().missed(Missed::Once), 1, 1),
        (daily().missed(Missed::All), 30, 1),
        (daily().missed(Missed::Skip), 0, 1),
        (once(), 1, 0),
        (once().missed(Missed::Skip), 0, 0),
    ];
    for (schedule, first, later) in table {
        let schedule = &schedule;
        sim::check(1, |sim: Sim| async move {
            let clock = set_clock(&sim);
            let node = start_long(&sim, &Fails::default());
            let alarm = node.entity::<Alarm>("a");
            alarm.set_by("key".into(), schedule.clone()).await.unwrap();
            sim.crash();
            clock.store(30 * DAY.as_secs() as i64 + 600, Ordering::Relaxed);
            let node = start_long(&sim, &Fails::default());
            sleep(MINUTE).await;
            let alarm = node.entity::<Alarm>("a");
            assert_eq!(alarm.read().await.unwrap().rung.len(), first, "{schedule}");
            let skipped = node.stat().unwrap().reminders_skipped;
            assert_eq!(skipped, u64::from(first == 0), "{schedule}");
            sleep(DAY).await;
            assert_eq!(alarm.read().await.unwrap().rung.len(), first + later, "{schedule}");
        });
    }
}

#[test]
fn what_the_last_change_of_a_turn_says_counts() {
    sim::check(5, |sim: Sim| async move {
        let node = start_long(&sim, &Fails::default());
        let [set, cancelled, again] = ["set", "not", "again"].map(|key| node.entity::<Alarm>(key));
        set.waver(true).await.unwrap();
        cancelled.waver(false).await.unwrap();
        assert_eq!((set.reminders().unwrap().len(), cancelled.reminders().unwrap().len()), (1, 0));
        again.begin_again(2).await.unwrap();
        sleep(5 * MINUTE).await;
        assert_eq!(set.read().await.unwrap().rung, [1]);
        assert!(cancelled.read().await.unwrap().rung.is_empty());
        assert_eq!(again.read().await.unwrap().rung, [2, 1, 0], "it has set and cancelled itself");
        for alarm in [set, cancelled, again] {
            assert_eq!(alarm.reminders().unwrap(), []);
        }
    });
}

#[test]
fn the_shortest_time_comes_at_once_and_the_longest_never() {
    sim::check(3, |sim: Sim| async move {
        let node = start(&sim, &Fails::default());
        let alarm = node.entity::<Alarm>("a");
        for (key, time) in [("zero", Duration::ZERO), ("long", Duration::MAX)] {
            alarm.set_by(key.into(), Schedule::after(time)).await.unwrap();
        }
        alarm.set_by("past".into(), Schedule::at(SystemTime::UNIX_EPOCH)).await.unwrap();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(alarm.read().await.unwrap().rung, [0, 0]);
        assert_eq!(alarm.reminders().unwrap().len(), 1);
        assert!(alarm.cancel("long".into()).await.unwrap());
    });
}

#[test]
fn a_reminder_is_listed_until_it_is_cancelled_forgotten_or_over() {
    sim::check(1, |sim: Sim| async move {
        let node = start_long(&sim, &Fails::default());
        let alarm = node.entity::<Alarm>("a");
        let daily = Schedule::cron("0 12 * * *", "Europe/Berlin").unwrap();
        alarm.set_by("b".into(), daily.clone()).await.unwrap();
        alarm.set_by("a".into(), at(DAY)).await.unwrap();
        let reminders = alarm.reminders().unwrap();
        let [Reminder { key, due, message, .. }, second] = reminders.as_slice() else {
            panic!("{reminders:?}");
        };
        assert_eq!((key.as_str(), message.as_str()), ("a", "ring"));
        assert_eq!(*due, SystemTime::UNIX_EPOCH + BEGIN + DAY);
        assert_eq!((second.key.as_str(), &second.schedule), ("b", &daily));
        let export = node.records().export("alarm", "a").unwrap().unwrap();
        let exported = export.filter(|record| record.as_ref().unwrap().table == 'T').count();
        assert_eq!(exported, reminders.len());
        assert!(alarm.cancel("a".into()).await.unwrap());
        assert!(!alarm.cancel("a".into()).await.unwrap());
        assert_eq!(alarm.reminders().unwrap().len(), 1);
        // The task has the one that is due soon in memory.
        alarm.set_by("soon".into(), at(MINUTE / 2)).await.unwrap();
        alarm.forget().await.unwrap();
        assert_eq!(alarm.reminders().unwrap(), []);
        let activations = node.stat().unwrap().activations;
        sleep(2 * DAY).await;
        assert_eq!(node.stat().unwrap().activations, activations, "nothing rings it");
        assert!(alarm.read().await.unwrap().rung.is_empty());
    });
}

#[test]
fn a_reminder_that_is_not_valid_fails_the_turn() {
    sim::check(1, |sim: Sim| async move {
        let node = start_long(&sim, &Fails::default());
        let alarm = node.entity::<Alarm>("a");
        for key in [String::new(), "k".repeat(129)] {
            let error = alarm.set_by(key, at(DAY)).await.unwrap_err();
            assert!(matches!(error, EntityError::Reminder(_)), "{error}");
        }
        alarm.set_by("k".repeat(128), at(DAY)).await.unwrap();
        assert_eq!(alarm.reminders().unwrap().len(), 1);
    });
}

#[test]
fn a_handler_that_fails_keeps_neither_the_schedule_nor_other_reminders_waiting() {
    sim::check(5, |sim: Sim| async move {
        let fails = Fails::new(1.into());
        let node = start_long(&sim, &fails);
        let alarm = node.entity::<Alarm>("a");
        alarm.set_by("often".into(), Schedule::every(MINUTE)).await.unwrap();
        alarm.set(7, "seven".into(), 3 * MINUTE).await.unwrap();
        sleep(3 * MINUTE + Duration::from_secs(30)).await;
        assert_eq!(alarm.read().await.unwrap().rung, [7]);
        let inbox = alarm.inbox().unwrap();
        assert_eq!((inbox.waiting.len(), inbox.parked.len()), (0, 3), "{inbox:?}");
        for parked in &inbox.parked {
            let failure = parked.failure.as_ref().unwrap();
            assert_eq!((parked.name.as_str(), failure.attempts), ("ring", 2));
            assert!(failure.reason.contains("no bell for 0"), "{failure:?}");
        }
        fails.store(0, Ordering::Relaxed);
        assert!(alarm.retry_message(inbox.parked[0].sequence).await.unwrap());
        sleep(MINUTE).await;
        assert_eq!(alarm.read().await.unwrap().rung, [7, 0, 0]);
        assert_eq!(alarm.reminders().unwrap().len(), 1);
    });
}

#[test]
fn a_handler_that_fails_leaves_the_state_and_the_reminders_as_they_were() {
    sim::check(3, |sim: Sim| async move {
        let node = start_long(&sim, &Fails::default());
        let alarm = node.entity::<Alarm>("a");
        alarm.begin_spoiling().await.unwrap();
        sleep(5 * MINUTE).await;
        assert!(alarm.read().await.unwrap().rung.is_empty());
        let left: Vec<_> = alarm.reminders().unwrap().into_iter().map(|own| own.key).collect();
        assert_eq!(left, ["other"]);
        let inbox = alarm.inbox().unwrap();
        let [parked] = inbox.parked.as_slice() else { panic!("{inbox:?}") };
        assert_eq!(parked.failure.as_ref().unwrap().attempts, 2);
        sleep(10 * MINUTE).await;
        assert_eq!(alarm.read().await.unwrap().rung, [1]);
    });
}

#[test]
fn a_reminder_that_is_cancelled_while_its_message_is_on_its_way_does_not_come() {
    sim::check(3, |sim: Sim| async move {
        let node = start_long(&sim, &Fails::default());
        let alarm = node.entity::<Alarm>("a");
        alarm.set(1, "key".into(), MINUTE).await.unwrap();
        // The entity is rung meanwhile, and puts the message behind that which cancels it.
        let wait = alarm.call(Wait { time: 2 * MINUTE }).within(DAY);
        let busy = sim.runtime().tokio().spawn(wait);
        sleep(MINUTE + MINUTE / 2).await;
        let cancelled = alarm.call(Cancel { key: "key".into() }).within(DAY).await;
        assert!(cancelled.unwrap());
        busy.await.unwrap().unwrap();
        sleep(MINUTE).await;
        assert!(alarm.read().await.unwrap().rung.is_empty());
        alarm.set(2, "key".into(), MINUTE).await.unwrap();
        sleep(2 * MINUTE).await;
        // A turn of another message is not that of a reminder.
        alarm.set_by("key".into(), Schedule::after(MINUTE)).await.unwrap();
        sleep(2 * MINUTE).await;
        assert_eq!(alarm.read().await.unwrap().rung, [2, 0]);
    });
}

/// An entity that stops if a message fails.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "strict-alarm", deps = Fails, on_failure = OnFailure::stop_after(1))]
struct StrictAlarm {
    rung: Vec<u64>,
}

#[process]
impl StrictAlarm {
    #[message]
    fn set_strictly(&mut self, id: u64, after: Duration, cx: &mut Context<Self>) {
        cx.remind(&id.to_string(), Schedule::after(after), StrictlyRing { id });
    }

    #[message(durable)]
    fn strictly_ring(&mut self, id: u64, cx: &mut Context<Self>) {
        assert!(cx.deps().load(Ordering::Relaxed) != id, "no bell for {id}");
        self.rung.push(id);
    }

    #[message]
    fn rung(&self) -> Vec<u64> {
        self.rung.clone()
    }
}

#[test]
fn the_reminders_of_an_entity_that_stops_wait_until_somebody_acts() {
    sim::check(3, |sim: Sim| async move {
        let fails = Fails::new(1.into());
        let begin = || {
            let node = start_long(&sim, &Fails::default());
            node.register::<StrictAlarm>(fails.clone());
            node
        };
        let mut node = begin();
        for id in 1..=2 {
            let after = id as u32 * MINUTE;
            node.entity::<StrictAlarm>("a").set_strictly(id, after).await.unwrap();
        }
        sleep(MINUTE + MINUTE / 2).await;
        if sim.random(2) == 0 {
            sim.crash();
            node = begin();
        }
        sleep(10 * MINUTE).await;
        let alarm = node.entity::<StrictAlarm>("a");
        assert!(alarm.rung().await.unwrap().is_empty());
        fails.store(0, Ordering::Relaxed);
        let sequence = alarm.inbox().unwrap().waiting[0].sequence;
        assert!(alarm.retry_message(sequence).await.unwrap());
        sleep(5 * MINUTE).await;
        assert_eq!(alarm.rung().await.unwrap(), [1, 2]);
    });
}

#[test]
fn thousands_that_are_due_at_once_all_come_and_few_are_in_memory() {
    const ALARMS: u64 = 3_000;
    sim::check(1, |sim: Sim| async move {
        let fails = Fails::default();
        let roomy = || busy_options().live_max(500).idle_after(10 * MINUTE);
        let mut node = start_again(&sim, roomy);
        node.register::<Alarm>(fails.clone());
        for key in 0..ALARMS {
            let alarm = node.entity::<Alarm>(key.to_string());
            alarm.set_by("key".into(), at(60 * MINUTE)).await.unwrap();
        }
        if sim.random(2) == 0 {
            sim.crash();
            node = start_again(&sim, roomy);
            node.register::<Alarm>(fails.clone());
        }
        sleep(60 * MINUTE - sim.elapsed() - Duration::from_millis(1)).await;
        assert!(node.live() < 600);
        sleep(5 * MINUTE).await;
        for key in 0..ALARMS {
            let alarm = node.entity::<Alarm>(key.to_string());
            assert_eq!(alarm.read().await.unwrap().rung, [0], "{key}");
        }
    });
}
