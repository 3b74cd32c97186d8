//! The processes of a scenario, and the commands they carry out.
//!
//! Invariant: a process logs each signal and message at once.

use crate::script::Command;
use crate::world::{Busy, Who, World, millis, reason, reason_text};
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use throng::prelude::*;
use throng::{Down, Exit, MonitorRef, Timer};

/// Commands that an actor carries out in a single turn.
pub(crate) struct Do {
    pub(crate) commands: Vec<Command>,
    pub(crate) busy: Option<Busy>,
}
impl Message for Do {
    type Reply = ();
}

/// A message that is only logged.
#[derive(Clone)]
pub(crate) struct Text(pub(crate) String);
impl Message for Text {
    type Reply = ();
}

/// A process that takes its messages in order.
pub(crate) struct Actor {
    own: Own,
    child: Option<Child>,
    /// Set for a child that has started and is not `terse`. OTP's `terminate` does not run for a
    /// process whose `init` has failed, nor for a process that does not trap exits and is ended by a
    /// signal.
    logs_end: bool,
}

/// Properties of an actor under a supervisor.
#[derive(Clone)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// The supervisor's name.
    pub(crate) supervisor: String,
    /// The name of the topmost supervisor, in whose lane the events are.
    pub(crate) lane: String,
    pub(crate) flags: Vec<String>,
}

impl Child {
    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }
}

impl Actor {
    pub(crate) fn new(world: &Arc<World>) -> Actor {
        Actor { own: Own::new(world), child: None, logs_end: false }
    }

    pub(crate) fn child(world: &Arc<World>, child: Child) -> Actor {
        Actor { own: Own::new(world), child: Some(child), logs_end: false }
    }

    /// Carries out a command. Returns false if the turn is to end.
    async fn command(&mut self, command: &[&str], cx: &mut Context<Self>) -> bool {
        let world = self.own.world.clone();
        match command {
            ["hold"] => world.hold(cx.pid()).await,
            ["call", other, "within", time, words @ ..] => {
                self.call(other, millis(time), words, cx).await;
            }
            ["call", other, words @ ..] => {
                self.call(other, crate::world::STEP, words, cx).await;
            }
            ["receive_timeout", time] => cx.receive_timeout(millis(time)),
            ["join", group] => {
                cx.runtime().group::<Address<Actor>>(*group).join(cx.address());
            }
            ["leave", group] => {
                cx.runtime().group::<Address<Actor>>(*group).leave(cx.address());
            }
            ["on_exit", words @ ..] => self.own.on_exit = Some(owned(words)),
            ["on_down", words @ ..] => self.own.on_down = Some(owned(words)),
            other => return self.own.command(other, cx),
        }
        true
    }

    async fn call(
        &mut self,
        other: &str,
        time: std::time::Duration,
        words: &[&str],
        cx: &Context<Self>,
    ) {
        let Who::Process(address) = self.own.world.who(other) else {
            panic!("{other} takes no calls")
        };
        let order = Do { commands: vec![owned(words)], busy: None };
        let outcome = match address.call(order).within(time).await {
            Ok(()) => "done".to_owned(),
            Err(CallError::NoProcess(_)) => "failed noproc".to_owned(),
            Err(CallError::Died(reason)) => format!("failed {}", reason_text(&reason)),
            Err(CallError::TimedOut { .. }) => "timed out".to_owned(),
            Err(error) => error.to_string(),
        };
        self.own.world.event(Some(cx.pid()), format_args!("call {other} {outcome}"));
    }

    async fn run(&mut self, commands: &[Command], cx: &mut Context<Self>) {
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            if !self.command(&words, cx).await {
                return;
            }
        }
    }
}

impl Process for Actor {
    async fn started(&mut self, cx: &mut Context<Self>) {
        let Some(child) = self.child.clone() else { return };
        cx.trap_exits(true);
        let world = self.own.world.clone();
        if let Some(supervisor) = cx.parent() {
            world.observe(&child.supervisor, &child.lane, Who::Supervisor(supervisor));
        }
        if child.is("quiet") {
            return;
        }
        let label = world.observe(&child.name, &child.lane, Who::Process(cx.address()));
        // The observer's signal arrives before any other event.
        tokio::task::yield_now().await;
        let (again, second) = (label.contains('#'), label.ends_with("#2"));
        let refuses = child.is("refuses")
            || again && child.is("refuses_again")
            || second && child.is("refuses_once");
        if refuses {
            world.event(Some(cx.pid()), "refuses to start");
            resume_unwind(Box::new("boom"));
        }
        world.event(Some(cx.pid()), "started");
        self.logs_end = !child.is("terse");
        for name in child.flags.iter().filter_map(|flag| flag.strip_prefix("named:")) {
            world.command(Some(cx.pid()), &["register", name, &child.name]);
        }
    }

    async fn stopping(&mut self, reason: &ExitReason, cx: &mut Context<Self>) {
        if self.logs_end {
            let text = format!("terminates {}", reason_text(reason));
            self.own.world.event(Some(cx.pid()), text);
        }
        if self.child.as_ref().is_some_and(|child| child.is("stubborn")) {
            std::future::pending::<()>().await;
        }
    }

    async fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) {
        let from = self.own.world.label(exit.pid);
        let text = format!("EXIT {from} {}", reason_text(&exit.reason));
        self.own.world.event(Some(cx.pid()), text);
        let then = self.own.on_exit.take();
        self.run(then.as_slice(), cx).await;
    }

    async fn down(&mut self, down: Down, cx: &mut Context<Self>) {
        self.own.log_down(&down, cx);
        let then = self.own.on_down.take();
        self.run(then.as_slice(), cx).await;
    }

    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.own.world.event(Some(cx.pid()), "timeout");
    }
}

impl Handle<Do> for Actor {
    async fn handle(&mut self, order: Do, cx: &mut Context<Self>) {
        until_waiting(self.run(&order.commands, cx), order.busy).await;
    }
}

impl Handle<Text> for Actor {
    async fn handle(&mut self, Text(text): Text, cx: &mut Context<Self>) {
        self.own.world.event(Some(cx.pid()), format_args!("got {text}"));
    }
}

/// State that processes of both kinds have.
pub(crate) struct Own {
    pub(crate) world: Arc<World>,
    /// The last monitor of each name.
    monitors: HashMap<String, MonitorRef>,
    /// The names of all monitors.
    monitor_names: HashMap<MonitorRef, String>,
    timers: HashMap<String, Timer>,
    on_exit: Option<Command>,
    on_down: Option<Command>,
}

impl Own {
    pub(crate) fn new(world: &Arc<World>) -> Own {
        Own {
            world: world.clone(),
            monitors: HashMap::new(),
            monitor_names: HashMap::new(),
            timers: HashMap::new(),
            on_exit: None,
            on_down: None,
        }
    }

    /// Carries out a command that never waits. Returns false if the turn is to end.
    pub(crate) fn command<P: Process>(&mut self, command: &[&str], cx: &mut Context<P>) -> bool {
        let world = self.world.clone();
        let me = Some(cx.pid());
        match command {
            ["die", why] => {
                cx.stop(reason(why));
                return false;
            }
            // Resuming skips the panic hook, so that the intended panic is not printed.
            ["crash"] => resume_unwind(Box::new("boom")),
            ["link", other] => cx.link(world.who(other).pid()),
            ["unlink", other] => cx.unlink(world.who(other).pid()),
            ["monitor", other, name] => {
                let monitor = cx.monitor(world.who(other).pid());
                self.monitored(name, monitor);
            }
            ["demonitor", name] => cx.demonitor(self.monitors[*name]),
            ["trap_exits", flag] => cx.trap_exits(*flag == "on"),
            ["exit", other, why] => cx.exit(world.who(other).pid(), reason(why)),
            ["parent"] => {
                let parent = cx.parent();
                world.event(me, format_args!("parent {}", world.label(parent)));
            }
            ["spawn_linked", name] => {
                let child = cx.linked().spawn(Actor::new(&world)).expect("there is room");
                world.observe(name, name, Who::Process(child));
            }
            ["spawn_monitored", name, monitor] => {
                let child = cx.monitored().spawn(Actor::new(&world)).expect("there is room");
                world.observe(name, name, Who::Process(child));
                self.monitored(monitor, cx.monitor_of(child).expect("the child is monitored"));
            }
            ["send_after", time, other, text, name] => {
                let timer = world.send_after(millis(time), other, text);
                self.timers.insert((*name).to_owned(), timer);
            }
            ["cancel", name] => {
                let done = self.timers[*name].cancel();
                let verdict = if done { "cancelled" } else { "was too late for" };
                world.event(me, format_args!("{verdict} {name}"));
            }
            other => assert!(world.command(me, other), "no command: {other:?}"),
        }
        true
    }

    fn monitored(&mut self, name: &str, monitor: MonitorRef) {
        self.monitors.insert(name.to_owned(), monitor);
        self.monitor_names.insert(monitor, name.to_owned());
    }

    fn log_down<P: Process>(&self, down: &Down, cx: &Context<P>) {
        let name = self.monitor_names.get(&down.monitor).map_or("?", String::as_str);
        let (who, why) = (self.world.label(Some(down.pid)), reason_text(&down.reason));
        self.world.event(Some(cx.pid()), format_args!("DOWN {name} {who} {why}"));
    }
}

/// Runs a turn. `busy` is dropped when the turn is over or waits for the first time.
pub(crate) async fn until_waiting(turn: impl Future<Output = ()>, mut busy: Option<Busy>) {
    let mut turn = pin!(turn);
    poll_fn(|task| {
        let progress = turn.as_mut().poll(task);
        busy.take();
        progress
    })
    .await;
}

fn owned(words: &[&str]) -> Command {
    words.iter().map(|word| (*word).to_owned()).collect()
}
