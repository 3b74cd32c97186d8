//! The world of one scenario: who is called what, what happened in which order, and who ended.
//!
//! Invariants: a process is known here before it can end, so each end is logged exactly once; a
//! name leads to the process that bore it last, and each process keeps the label it was given.

use crate::actor::{Actor, Do, Text};
use crate::inbox::Mail;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use throng::prelude::*;
use throng::{AsyncProcess, Timer};
use tokio::sync::{Notify, Semaphore, oneshot};

/// How long a step may take; generous, for it is waited out only if an event is missing.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// The time that what should not happen is given to happen: too short a one would overlook a fault,
/// and not invent one.
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

/// One line of the log. Events are in lanes: each process is one, and a tree of supervisors is one.
/// Nothing is said of the order between lanes, nor when an end is seen; so they are sorted.
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

/// Held while a step is carried out; gone when it is done or waits for something.
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

    /// Makes a process known, and its end an event. Gives its label.
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
        // Once here, so that the process is watched before anything else happens to it.
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

    /// Logs what happened to a process, or to the driver.
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

    /// What a process is called in the log.
    pub(crate) fn label(&self, pid: Option<Pid>) -> String {
        pid.and_then(|pid| self.known(pid)).map_or("driver".to_owned(), |known| known.label)
    }

    /// The process a script names.
    pub(crate) fn who(&self, name: &str) -> Who {
        let who = self.state().named.get(name).copied();
        who.unwrap_or_else(|| panic!("nobody is called {name}"))
    }

    /// Waits until somebody lets this process go on.
    pub(crate) async fn hold(&self, pid: Pid) {
        let gate = self.known(pid).expect("only known processes hold").gate;
        gate.acquire().await.expect("never closed").forget();
    }

    /// Waits until as much has happened as is to happen, and takes it.
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
        // What is missing then shows in the log.
        let _ = tokio::time::timeout(STEP, all).await;
        tokio::time::sleep(GRACE).await;
        let mut events = std::mem::take(&mut self.state().events);
        events.sort_by(|a, b| (a.is_end, &a.lane).cmp(&(b.is_end, &b.lane)));
        events.into_iter().map(|event| event.line).collect()
    }

    /// Has an actor carry out commands; waits until they are done or it waits in one of them.
    pub(crate) async fn order(&self, who: &str, commands: Vec<Vec<String>>) {
        let (busy, rests) = oneshot::channel();
        let order = Do { commands, busy: Some(busy) };
        // To a dead one nothing can be said, and the log shows it.
        match self.who(who) {
            Who::Process(address) => drop(address.send(order)),
            Who::Async(address) => drop(address.send(Mail::Do(order))),
            Who::Supervisor(_) => panic!("{who} is a supervisor and takes no commands"),
        }
        let _ = rests.await;
    }

    /// Carries out what needs no process to do it, for the driver or a process; false if this is
    /// no such command.
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
                let members = self.runtime.group::<Actor>(*group).members();
                let members = members.iter().map(|member| self.label(Some(member.pid())));
                self.event(me, format_args!("{group} has {}", list(members.collect())));
            }
            ["broadcast", group, words @ ..] => {
                self.runtime.group::<Actor>(*group).broadcast(Text(words.join(" ")));
            }
            _ => return false,
        }
        true
    }

    fn send(&self, to: Who, words: &[&str]) {
        let text = Text(words.join(" "));
        // A message to a dead process is handed back, which OTP does not do; nobody looks.
        match to {
            Who::Process(address) => drop(address.send(text)),
            Who::Async(address) => drop(address.send(Mail::Text(text))),
            Who::Supervisor(_) => panic!("a supervisor takes no messages"),
        }
    }

    /// Has a message sent later.
    pub(crate) fn send_after(&self, delay: Duration, to: &str, text: &str) -> Timer {
        let text = Text(text.to_owned());
        match self.who(to) {
            Who::Process(address) => self.runtime.send_after(address, delay, text),
            Who::Async(address) => self.runtime.send_after(address, delay, Mail::Text(text)),
            Who::Supervisor(_) => panic!("a supervisor takes no messages"),
        }
    }
}

/// Names, in their order, as the log has them.
pub(crate) fn list(mut names: Vec<String>) -> String {
    names.sort();
    if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
}

/// A number of milliseconds in a script.
pub(crate) fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("a number of milliseconds"))
}

/// A reason as a script has it.
pub(crate) fn reason(text: &str) -> ExitReason {
    match text {
        "normal" => ExitReason::Normal,
        "shutdown" => ExitReason::Shutdown,
        "killed" => ExitReason::Killed,
        "noproc" => ExitReason::NoProcess,
        other => ExitReason::other(other),
    }
}

/// A reason as the log has it: a panic of a script is `crashed`, and a supervisor that did not start
/// is `not_started`, whyever.
pub(crate) fn reason_text(reason: &ExitReason) -> String {
    match reason {
        ExitReason::Normal => "normal".to_owned(),
        ExitReason::Shutdown => "shutdown".to_owned(),
        ExitReason::Killed => "killed".to_owned(),
        ExitReason::NoProcess => "noproc".to_owned(),
        ExitReason::Panicked(text) if **text == *"boom" => "crashed".to_owned(),
        ExitReason::Other(text) if text.contains(" did not start: ") => "not_started".to_owned(),
        other => other.to_string(),
    }
}
