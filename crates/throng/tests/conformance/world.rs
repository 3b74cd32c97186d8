//! The world of a scenario: the labels of its processes, and the log of its events and ends.
//!
//! Invariants: a process is known here before it can end, so each end is logged exactly once. A
//! name leads to the process that bore it last, and each process keeps the label it was given.

use crate::actor::{Actor, Do, Text};
use crate::inbox::Mail;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use throng::prelude::*;
use throng::{AsyncProcess, Timer};
use tokio::sync::{Notify, Semaphore, oneshot};

/// Time limit of a step. It is generous, because it only passes in full if an event is missing.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// Time given to events that should not happen. If it is too short, a fault is overlooked, but none
/// is invented.
const GRACE: Duration = Duration::from_millis(2);

pub(crate) struct World {
    pub(crate) runtime: RuntimeHandle,
    state: Mutex<State>,
    happened: Notify,
}

#[derive(Default)]
struct State {
    named: HashMap<String, Who>,
    counts: HashMap<String, u32>,
    known: HashMap<Pid, Known>,
    events: Vec<Event>,
}

#[derive(Clone)]
struct Known {
    label: String,
    lane: String,
    gate: Arc<Semaphore>,
}

/// A line of the log. Each process and each tree of supervisors has a lane of its own. The order
/// between lanes, and the time at which an end is noticed, are not specified, so events are sorted.
struct Event {
    is_end: bool,
    lane: String,
    line: String,
}

/// A process of the scenario.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    Process(Address<Actor>),
    Async(Address<AsyncProcess<Mail>>),
    Supervisor(Pid),
}

impl Who {
    pub(crate) fn pid(self) -> Pid {
        match self {
            Who::Process(address) => address.pid(),
            Who::Async(address) => address.pid(),
            Who::Supervisor(pid) => pid,
        }
    }
}

/// Held while a step is carried out, and dropped when the step is done or waits.
pub(crate) type Busy = oneshot::Sender<()>;

impl World {
    pub(crate) fn new(runtime: &RuntimeHandle) -> Arc<World> {
        let (state, happened) = (Mutex::default(), Notify::new());
        Arc::new(World { runtime: runtime.clone(), state, happened })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A scenario's processes panic on purpose, but never in here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a process known, so that its end is logged, and returns its label.
    pub(crate) fn observe(self: &Arc<World>, name: &str, lane: &str, who: Who) -> String {
        let pid = who.pid();
        let label = {
            let mut state = self.state();
            if let Some(known) = state.known.get(&pid) {
                return known.label.clone();
            }
            let count = state.counts.entry(name.to_owned()).or_default();
            *count += 1;
            let numbered = format!("{name}#{count}");
            let label = if *count == 1 { name.to_owned() } else { numbered.clone() };
            state.named.insert(name.to_owned(), who);
            state.named.insert(numbered, who);
            let gate = Arc::new(Semaphore::new(0));
            let known = Known { label: label.clone(), lane: lane.to_owned(), gate };
            state.known.insert(pid, known);
            label
        };
        let world = self.clone();
        let ended = label.clone();
        let mut exited = Box::pin(async move {
            let line = format!("{ended}: ended {}", reason_text(&pid.exited().await));
            world.push(Event { is_end: true, lane: ended, line });
        });
        // The first poll is here, so that the process is watched before its next event.
        let mut idle = std::task::Context::from_waker(std::task::Waker::noop());
        if exited.as_mut().poll(&mut idle).is_pending() {
            self.runtime.tokio().spawn(exited);
        }
        label
    }

    fn push(&self, event: Event) {
        self.state().events.push(event);
        self.happened.notify_one();
    }

    /// Logs an event of a process, or of the driver.
    pub(crate) fn event(&self, who: Option<Pid>, text: impl std::fmt::Display) {
        let (label, lane) = match who.and_then(|pid| self.known(pid)) {
            Some(known) => (known.label, known.lane),
            None => ("driver".to_owned(), String::new()),
        };
        self.push(Event { is_end: false, lane, line: format!("{label}: {text}") });
    }

    fn known(&self, pid: Pid) -> Option<Known> {
        self.state().known.get(&pid).cloned()
    }

    /// Returns the label of a process in the log.
    pub(crate) fn label(&self, pid: Option<Pid>) -> String {
        pid.and_then(|pid| self.known(pid)).map_or("driver".to_owned(), |known| known.label)
    }

    /// Returns the process that a script names.
    pub(crate) fn who(&self, name: &str) -> Who {
        let who = self.state().named.get(name).copied();
        who.unwrap_or_else(|| panic!("no process has the name {name}"))
    }

    /// Waits until a command releases this process.
    pub(crate) async fn hold(&self, pid: Pid) {
        let gate = self.known(pid).expect("only known processes hold").gate;
        gate.acquire().await.expect("never closed").forget();
    }

    /// Waits for as many events as expected, and takes all events.
    pub(crate) async fn take(&self, expected: &[String]) -> Vec<String> {
        let all = async {
            loop {
                {
                    let events = &self.state().events;
                    let unexpected = |event: &Event| !expected.contains(&event.line);
                    if events.len() >= expected.len() || events.iter().any(unexpected) {
                        break;
                    }
                }
                self.happened.notified().await;
            }
        };
        // A missing event then shows in the log.
        let _ = tokio::time::timeout(STEP, all).await;
        tokio::time::sleep(GRACE).await;
        let mut events = std::mem::take(&mut self.state().events);
        events.sort_by(|a, b| (a.is_end, &a.lane).cmp(&(b.is_end, &b.lane)));
        events.into_iter().map(|event| event.line).collect()
    }

    /// Has an actor carry out commands, and returns when they are done or the actor waits.
    pub(crate) async fn order(&self, who: &str, commands: Vec<Vec<String>>) {
        let (busy, rests) = oneshot::channel();
        let order = Do { commands, busy: Some(busy) };
        // A dead actor takes no commands, and the log shows it.
        match self.who(who) {
            Who::Process(address) => drop(address.send(order)),
            Who::Async(address) => drop(address.send(Mail::Do(order))),
            Who::Supervisor(_) => panic!("{who} is a supervisor and takes no commands"),
        }
        let _ = rests.await;
    }

    /// Carries out a command that needs no process context, for the driver or a process. Returns
    /// false if it is another command.
    pub(crate) fn command(self: &Arc<World>, me: Option<Pid>, command: &[&str]) -> bool {
        match command {
            ["kill", other] => self.who(other).pid().kill(),
            ["stop", other] => match self.who(other) {
                Who::Process(address) => drop(address.stop()),
                Who::Async(address) => drop(address.stop()),
                Who::Supervisor(_) => panic!("a supervisor takes no messages"),
            },
            ["release", other] => {
                let known = self.known(self.who(other).pid()).expect("observed when named");
                known.gate.add_permits(1);
            }
            ["alive", other] => {
                let verdict = if self.who(other).pid().is_alive() { "alive" } else { "dead" };
                self.event(me, format_args!("{other} is {verdict}"));
            }
            ["say", words @ ..] => self.event(me, format_args!("says {}", words.join(" "))),
            ["spawn", names @ ..] => {
                for name in names {
                    let actor = self.runtime.spawn(Actor::new(self)).expect("there is room");
                    self.observe(name, name, Who::Process(actor));
                }
            }
            ["spawn_async", name] => {
                let actor = crate::inbox::spawn(self);
                self.observe(name, name, Who::Async(actor));
            }
            ["send", other, words @ ..] => self.send(self.who(other), words),
            ["register", name, other] => {
                let done = match self.who(other) {
                    Who::Process(address) => self.runtime.register(*name, address).is_ok(),
                    Who::Async(address) => self.runtime.register(*name, address).is_ok(),
                    Who::Supervisor(_) => panic!("a supervisor is not registered by a script"),
                };
                let outcome = if done { "registered" } else { "could not register" };
                self.event(me, format_args!("{outcome} {name}"));
            }
            ["unregister", name] => {
                let done = self.runtime.unregister(name).is_some();
                let outcome = if done { "unregistered" } else { "could not unregister" };
                self.event(me, format_args!("{outcome} {name}"));
            }
            ["whereis", name] => {
                let holder = self.runtime.whereis_pid(name);
                let holder = holder.map_or("nobody".to_owned(), |pid| self.label(Some(pid)));
                self.event(me, format_args!("{name} is {holder}"));
            }
            ["members", group] => {
                let members = self.runtime.group::<Address<Actor>>(*group).members();
                let members = members.iter().map(|member| self.label(Some(member.pid())));
                self.event(me, format_args!("{group} has {}", list(members.collect())));
            }
            ["broadcast", group, words @ ..] => {
                self.runtime.group::<Address<Actor>>(*group).broadcast(Text(words.join(" ")));
            }
            _ => return false,
        }
        true
    }

    fn send(&self, to: Who, words: &[&str]) {
        let text = Text(words.join(" "));
        // A message to a dead process is handed back and dropped here; in OTP it vanishes.
        match to {
            Who::Process(address) => drop(address.send(text)),
            Who::Async(address) => drop(address.send(Mail::Text(text))),
            Who::Supervisor(_) => panic!("a supervisor takes no messages"),
        }
    }

    /// Sends a message after a delay.
    pub(crate) fn send_after(&self, delay: Duration, to: &str, text: &str) -> Timer {
        let text = Text(text.to_owned());
        match self.who(to) {
            Who::Process(address) => self.runtime.send_after(address, delay, text),
            Who::Async(address) => self.runtime.send_after(address, delay, Mail::Text(text)),
            Who::Supervisor(_) => panic!("a supervisor takes no messages"),
        }
    }
}

/// Formats names for the log, in order.
pub(crate) fn list(mut names: Vec<String>) -> String {
    names.sort();
    if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
}

/// Parses a number of milliseconds in a script.
pub(crate) fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("a number of milliseconds"))
}

/// Parses a reason in a script.
pub(crate) fn reason(text: &str) -> ExitReason {
    match text {
        "normal" => ExitReason::Normal,
        "shutdown" => ExitReason::Shutdown,
        "killed" => ExitReason::Killed,
        "noproc" => ExitReason::NoProcess,
        other => ExitReason::other(other),
    }
}

/// Formats a reason for the log. A panic of a script is `crashed`, and a supervisor that did not
/// start is `not_started`, for any cause.
pub(crate) fn reason_text(reason: &ExitReason) -> String {
    match reason {
        ExitReason::Normal => "normal".to_owned(),
        ExitReason::Shutdown => "shutdown".to_owned(),
        ExitReason::Killed => "killed".to_owned(),
        ExitReason::NoProcess => "noproc".to_owned(),
        ExitReason::Panicked(panic) if panic.message() == "boom" => "crashed".to_owned(),
        ExitReason::Other(text) if text.contains(" did not start: ") => "not_started".to_owned(),
        other => other.to_string(),
    }
}
