//! The supervisors of a scenario, which the driver starts and manages.

use crate::actor::{Actor, Child};
use crate::world::{Who, World, list, millis};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use throng::prelude::*;
use throng::{AutoShutdown, ChildError, ChildInfo, ChildSpec, ChildState, SupervisorSpec};

/// The supervisors that the driver knows.
#[derive(Default)]
pub(crate) struct Trees {
    /// `STRATEGY INTENSITY/PERIOD[/AUTO_SHUTDOWN] CHILD...` of each supervisor, started or not.
    definitions: HashMap<String, Vec<String>>,
    /// The supervisors that the script has started.
    roots: HashMap<String, Address<Supervisor>>,
    /// The supervisors that are children of others.
    below: HashMap<String, throng::Child<Supervisor>>,
}

impl Trees {
    /// Carries out a command about supervisors. Returns false if it is another command.
    pub(crate) async fn command(&mut self, world: &Arc<World>, command: &[&str]) -> bool {
        match *command {
            ["define", name, ref rest @ ..] => self.define(name, rest),
            ["supervise", name, ref rest @ ..] => {
                self.define(name, rest);
                let spec = self.spec(world, name, name);
                match spec.start_async(&world.runtime).await {
                    Ok(address) => {
                        world.observe(name, name, Who::Supervisor(address.pid()));
                        self.roots.insert(name.to_owned(), address);
                    }
                    Err(_) => world.event(None, format_args!("{name} did not start")),
                }
            }
            ["start_child", supervisor, child] => {
                let address = self.supervisor(supervisor);
                let outcome = if let Some(name) = child.strip_suffix("()") {
                    let each = self.definitions[supervisor][2].replacen("each", name, 1);
                    let spec = self.child(world, &each, supervisor, supervisor);
                    address.spawn_child(spec).await.map(drop)
                } else {
                    let spec = self.child(world, child, supervisor, supervisor);
                    address.start_child(id(child), spec).await.map(drop)
                };
                answer(world, command, outcome);
            }
            ["terminate_child", supervisor, child] => {
                let address = self.supervisor(supervisor);
                let outcome = match child.strip_suffix("()") {
                    Some(name) => address.terminate_child(world.who(name).pid()).await,
                    None => address.terminate_child(child).await,
                };
                answer(world, command, outcome);
            }
            ["restart_child", supervisor, child] => {
                let address = self.supervisor(supervisor);
                answer(world, command, address.restart_child(child).await);
            }
            ["delete_child", supervisor, child] => {
                let address = self.supervisor(supervisor);
                answer(world, command, address.delete_child(child).await);
            }
            ["which_children", supervisor] => {
                let children = self.supervisor(supervisor).which_children().await;
                let children = children.expect("the supervisor answers");
                let names = children.iter().map(|child| child_text(world, child)).collect();
                world.event(None, format_args!("{supervisor} has {}", list(names)));
            }
            ["count_children", supervisor] => {
                let address = self.supervisor(supervisor);
                let active = address.count_children().await.expect("the supervisor answers");
                let children = address.which_children().await.expect("the supervisor answers");
                let supervisors = children.iter().filter(|child| child.is_supervisor).count();
                world.event(
                    None,
                    format_args!(
                        "{supervisor} has specs {}, active {active}, supervisors {supervisors}, workers {}",
                        children.len(),
                        children.len() - supervisors
                    ),
                );
            }
            _ => return false,
        }
        true
    }

    fn supervisor(&self, name: &str) -> Address<Supervisor> {
        let below = || self.below.get(name).and_then(throng::Child::address);
        let root = self.roots.get(name).copied();
        root.or_else(below).unwrap_or_else(|| panic!("{name} is no supervisor that runs"))
    }

    fn define(&mut self, name: &str, definition: &[&str]) {
        let definition = definition.iter().map(|word| (*word).to_owned()).collect();
        self.definitions.insert(name.to_owned(), definition);
    }

    /// Returns the spec of a supervisor. The events of its children are in `lane`.
    fn spec(&mut self, world: &Arc<World>, name: &str, lane: &str) -> SupervisorSpec {
        let definition = self.definitions[name].clone();
        let [strategy, intensity, children @ ..] = &definition[..] else {
            panic!("{name} has no strategy or no intensity")
        };
        let spec = match strategy.as_str() {
            "one_for_one" => Supervisor::one_for_one(),
            "one_for_all" => Supervisor::one_for_all(),
            "rest_for_one" => Supervisor::rest_for_one(),
            "simple_one_for_one" => Supervisor::dynamic(),
            other => panic!("no strategy: {other}"),
        };
        let (restarts, period) = intensity.split_once('/').expect("RESTARTS/SECONDS");
        let (period, auto) = period.split_once('/').unwrap_or((period, "never"));
        let period = Duration::from_secs(period.parse().expect("a number of seconds"));
        let spec = spec.intensity(restarts.parse().expect("a number of restarts"), period);
        let mut spec = spec.auto_shutdown(match auto {
            "any_significant" => AutoShutdown::AnySignificant,
            "all_significant" => AutoShutdown::AllSignificant,
            _ => AutoShutdown::Never,
        });
        if strategy == "simple_one_for_one" {
            // The only child of the definition is a pattern for the dynamic children.
            return spec;
        }
        for child in children {
            let id = id(child);
            spec = if self.definitions.contains_key(id) {
                let below = ChildSpec::from(self.spec(world, id, lane));
                let parts = parts(child);
                let significant = parts.flags.iter().any(|flag| flag == "significant");
                let below = grace(below, parts.shutdown.as_deref());
                let below = below.restart(parts.restart).significant(significant);
                self.below.insert(id.to_owned(), below.handle());
                spec.child(id, below)
            } else {
                spec.child(id, self.child(world, child, name, lane))
            };
        }
        spec
    }

    /// Returns the spec of a child written `ID(WORD,...)`.
    fn child(
        &self,
        world: &Arc<World>,
        text: &str,
        supervisor: &str,
        lane: &str,
    ) -> ChildSpec<Actor> {
        let parts = parts(text);
        let world = world.clone();
        let significant = parts.flags.iter().any(|flag| flag == "significant");
        let child = Child {
            name: id(text).to_owned(),
            supervisor: supervisor.to_owned(),
            lane: lane.to_owned(),
            flags: parts.flags,
        };
        let spec = ChildSpec::new(move || Actor::child(&world, child.clone()));
        let spec = spec.restart(parts.restart).significant(significant);
        grace(spec, parts.shutdown.as_deref())
    }
}

/// Sets the time that a child may take to stop, if the script gives it.
fn grace<P: Process>(spec: ChildSpec<P>, shutdown: Option<&str>) -> ChildSpec<P> {
    match shutdown {
        None => spec,
        Some("brutal_kill") => spec.brutal_kill(),
        Some("infinity") => spec.shutdown_unlimited(),
        Some(time) => spec.shutdown(millis(time)),
    }
}

fn answer(world: &World, command: &[&str], outcome: Result<(), ChildError>) {
    let text = match outcome {
        Ok(()) => "ok".to_owned(),
        Err(ChildError::NoChild) => "not_found".to_owned(),
        Err(ChildError::Running(_)) if command[0] == "start_child" => "already_started".to_owned(),
        Err(ChildError::Running(_)) => "running".to_owned(),
        Err(ChildError::Restarting) => "restarting".to_owned(),
        Err(ChildError::Stopped) => "already_present".to_owned(),
        Err(ChildError::Failed(_)) => "failed".to_owned(),
        Err(error) => error.to_string(),
    };
    world.event(None, format_args!("{} {text}", command[0]));
}

fn child_text(world: &World, child: &ChildInfo) -> String {
    let id = child.id.as_deref().unwrap_or_default();
    match child.state {
        ChildState::Running(pid) => world.label(Some(pid)),
        ChildState::Restarting => format!("{id}(restarting)"),
        ChildState::Stopped => format!("{id}(not running)"),
    }
}

fn id(text: &str) -> &str {
    text.split('(').next().unwrap_or(text)
}

/// The parts between the parentheses.
struct Parts {
    restart: Restart,
    shutdown: Option<String>,
    flags: Vec<String>,
}

fn parts(text: &str) -> Parts {
    let mut parts = Parts { restart: Restart::Permanent, shutdown: None, flags: Vec::new() };
    for word in text.split(['(', ',', ')']).skip(1).filter(|word| !word.is_empty()) {
        match word {
            "permanent" => parts.restart = Restart::Permanent,
            "transient" => parts.restart = Restart::Transient,
            "temporary" => parts.restart = Restart::Temporary,
            "brutal_kill" | "infinity" => parts.shutdown = Some(word.to_owned()),
            time if time.parse::<u64>().is_ok() => parts.shutdown = Some(word.to_owned()),
            flag => parts.flags.push(flag.to_owned()),
        }
    }
    parts
}
