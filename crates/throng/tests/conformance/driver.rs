//! The driver: carries out a scenario's steps in order, and compares the events.
//!
//! A step is over when its process has carried out all commands or waits in the middle of them, and
//! there are as many events as in OTP. Thus the outcome does not depend on speed.

use crate::script::{self, Command, Scenario, Step};
use crate::tree::Trees;
use crate::world::{STEP, World, millis, reason};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use throng::prelude::*;

/// Carries out the scenarios of a file.
///
/// # Panics
/// If the events differ from OTP's, after all scenarios have run.
pub(crate) fn check(path: &str, text: &str) {
    let mut differences = String::new();
    for scenario in script::scenarios(text) {
        let runtime = Runtime::builder().workers(2).start().expect("starts");
        let difference = runtime.block_on(async |runtime| run(runtime, &scenario).await);
        if let Err(difference) = difference {
            let _ = writeln!(differences, "\n{path}: {}\n{difference}", scenario.title);
        }
        runtime.shutdown(Duration::ZERO);
    }
    assert!(differences.is_empty(), "throng differs from OTP\n{differences}");
}

/// Carries out a scenario up to the first step whose events differ.
async fn run(runtime: &RuntimeHandle, scenario: &Scenario) -> Result<(), String> {
    let world = World::new(runtime);
    let mut trees = Trees::default();
    for step in &scenario.steps {
        let carried_out = tokio::time::timeout(STEP, carry_out(&world, &mut trees, step)).await;
        let events = world.take(&step.events).await;
        if carried_out.is_err() || events != step.events {
            return Err(difference(step, &events, carried_out.is_err()));
        }
    }
    Ok(())
}

async fn carry_out(world: &Arc<World>, trees: &mut Trees, step: &Step) {
    if step.who != "driver" {
        return world.order(&step.who, step.commands.clone()).await;
    }
    for command in &step.commands {
        command_of_driver(world, trees, command).await;
    }
}

async fn command_of_driver(world: &Arc<World>, trees: &mut Trees, command: &Command) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words[..] {
        ["wait", time] => tokio::time::sleep(millis(time)).await,
        ["exit", other, why] => world.who(other).pid().exit(reason(why)),
        ref other => {
            let known = trees.command(world, other).await || world.command(None, other);
            assert!(known, "no command: {other:?}");
        }
    }
}

fn difference(step: &Step, events: &[String], hangs: bool) -> String {
    let mut text = format!("  line {}: {}", step.line, step.text);
    if hangs {
        text.push_str("\n  the step does not end");
    }
    for (name, lines) in [("OTP", &step.events[..]), ("throng", events)] {
        let _ = write!(text, "\n  {name}:");
        for line in lines {
            let _ = write!(text, "\n    {line}");
        }
    }
    text
}
