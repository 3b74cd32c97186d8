//! Journals against programs: a later program fits a run of an earlier one, or the check says what differs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Failure, Journal, Node, Options, ReplayError, Retry, RunStatus, Steps, Workflow, WorkflowError,
    WorkflowRun, Workflows,
};
use throng_store::Store;
use tokio::time::sleep;

use crate::start_again;

const HOUR: Duration = Duration::from_secs(3600);

/// The program of a trip as it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    First,
    /// The first step has another name.
    Renamed,
    /// Sleeps where there was a step.
    Sleeps,
    /// The sleep is gone.
    Shorter,
    /// There is another step before the sleep, for runs that come to it anew.
    Versioned,
    /// There is another step at the end.
    Longer,
    Panics,
    /// The result of the first step is of another type.
    Retyped,
    /// Ends after the first step.
    Fails,
}

use Program::*;

struct Trip {
    program: Program,
    /// Number of closures that have run.
    ran: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Travel {
    to: String,
    is_refused: bool,
}

impl Workflow for Trip {
    const NAME: &'static str = "trip";
    type Input = Travel;
    type Output = u64;

    async fn run(&self, cx: &Steps, travel: Travel) -> Result<u64, Failure> {
        let run = async || {
            self.ran.fetch_add(1, Ordering::Relaxed);
            Ok::<_, String>(travel.to.len() as u64)
        };
        cx.report(&"books".to_owned())?;
        let booked = match self.program {
            Sleeps => {
                cx.sleep(HOUR).await;
                3
            }
            Renamed => cx.step("reserve", Retry::none(), run).await?,
            Retyped => {
                let named = async || Ok::<_, String>(travel.to.clone());
                cx.step("book", Retry::none(), named).await?.len() as u64
            }
            _ => cx.step("book", Retry::none(), run).await?,
        };
        cx.compensate("book", Retry::none(), async || Ok::<_, String>(()));
        assert_ne!(self.program, Panics, "a change that fails");
        if self.program == Fails {
            return Err(Failure::new("no more trips"));
        }
        if self.program == Versioned && cx.version("insured") {
            cx.step("insure", Retry::none(), run).await?;
        }
        cx.report(&format!("sleeps before {booked}"))?;
        if self.program != Shorter {
            cx.sleep(HOUR).await;
        }
        let all = cx.all(vec![
            Box::pin(cx.step("seat", Retry::none(), run)),
            Box::pin(cx.step("meal", Retry::none(), run)),
        ]);
        let sum = all.await.into_iter().sum::<Result<u64, _>>()?;
        let ticket = cx.wait::<u64>("ticket", None).await?;
        if travel.is_refused {
            cx.step("board", Retry::none(), async || Err::<(), _>("refused")).await?;
        }
        if self.program == Longer {
            cx.step("return", Retry::none(), run).await?;
        }
        Ok(sum + ticket.unwrap_or_default())
    }
}

fn start(sim: &Sim, ran: &Arc<AtomicU64>) -> Node {
    start_program(sim, First, ran)
}

fn start_program(sim: &Sim, program: Program, ran: &Arc<AtomicU64>) -> Node {
    let options = || -> Options {
        Node::options("").store(Store::options().map_bytes(32 << 20)).idle_after(HOUR / 60)
    };
    let node = start_again(sim, options);
    node.run_workflows(Workflows::new().with(Trip { program, ran: ran.clone() }));
    node
}

/// Returns the journal as it comes out of a file.
async fn journal(run: &WorkflowRun<Trip>) -> Journal {
    let stored = postcard::to_stdvec(&run.journal().await.unwrap()).unwrap();
    postcard::from_bytes(&stored).unwrap()
}

/// Takes the journals of a run that sleeps, one that waits, and of those that have ended in each way.
async fn journals(node: &Node) -> Vec<(&'static str, Journal)> {
    let travel = |is_refused| Travel { to: "Rom".into(), is_refused };
    let run = |id: &str| node.workflow::<Trip>(id);
    for id in ["done", "failed", "cancelled"] {
        run(id).start(&travel(id == "failed")).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let mut journals = vec![("sleeps", journal(&run("done")).await)];
    assert_eq!(run("done").progress::<String>().await.unwrap().unwrap(), "sleeps before 3");
    sleep(HOUR).await;
    journals.push(("waits", journal(&run("done")).await));
    run("cancelled").cancel("rain").await.unwrap();
    for id in ["done", "failed"] {
        run(id).signal("ticket", &7_u64).await.unwrap();
    }
    assert_eq!(run("done").result().await.unwrap(), 13);
    assert!(matches!(run("failed").result().await, Err(WorkflowError::Failed(_))));
    assert!(matches!(run("cancelled").result().await, Err(WorkflowError::Cancelled(_))));
    for id in ["done", "failed", "cancelled"] {
        journals.push((id, journal(&run(id)).await));
    }
    journals
}

/// What a check says of a program: that it fits, or a part of the sentence.
fn expected(program: Program, at: &str) -> Result<(), &'static str> {
    let has_ended = at == "done" || at == "failed";
    match program {
        First => Ok(()),
        Renamed => Err("comes to the step \"reserve\", where the journal has the step \"book\""),
        Sleeps => Err("where the journal has the step \"book\""),
        // A run that was cancelled may have left off anywhere.
        Shorter if at == "cancelled" => Ok(()),
        Shorter if at == "sleeps" => {
            Err("comes to the step \"seat\", where the journal has the sleep \"sleep\"")
        }
        Shorter => Err("where the journal has the sleep \"sleep\""),
        Versioned => Ok(()),
        Longer if at == "done" => Err("comes to the step \"return\", where the run has a result"),
        Longer => Ok(()),
        Panics => Err("a change that fails"),
        Retyped => Err("the result of the step \"book\" does not fit"),
        Fails if at == "cancelled" => Ok(()),
        Fails if has_ended || at == "sleeps" || at == "waits" => {
            Err("where the journal has the sleep \"sleep\"")
        }
        Fails => Ok(()),
    }
}

#[test]
fn a_program_fits_the_journals_of_an_earlier_one_or_is_told_what_differs() {
    sim::check(1, |sim: Sim| async move {
        let ran = Arc::new(AtomicU64::new(0));
        let journals = journals(&start(&sim, &ran)).await;
        // Another store, which knows nothing of the runs.
        sim.crash();
        let node = start(&sim, &ran);
        let before = ran.load(Ordering::Relaxed);
        let all = [First, Renamed, Sleeps, Shorter, Versioned, Longer, Panics, Retyped, Fails];
        for program in all {
            for (at, journal) in &journals {
                let found = node.check_replay(Trip { program, ran: ran.clone() }, journal);
                let said = found.as_ref().map_err(ToString::to_string);
                match expected(program, at) {
                    Ok(()) => assert!(said.is_ok(), "{program:?} {at}: {said:?}"),
                    Err(part) => {
                        let said = said.expect_err(&format!("{program:?} {at}"));
                        assert!(said.contains(part), "{program:?} {at}: {said}");
                        assert!(said.contains(journal.id()), "{said}");
                    }
                }
                assert_eq!(program == Panics, matches!(found, Err(ReplayError::Panicked { .. })));
            }
        }
        assert_eq!(ran.load(Ordering::Relaxed), before, "a check has run a step");
    });
}

/// A workflow of the same name as [`Trip`], with another input; and one of another name.
struct Other<const IS_NAMED_SO: bool>;

impl<const IS_NAMED_SO: bool> Workflow for Other<IS_NAMED_SO> {
    const NAME: &'static str = if IS_NAMED_SO { "trip" } else { "journey" };
    type Input = Vec<u64>;
    type Output = ();

    async fn run(&self, _: &Steps, _: Vec<u64>) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_journal_of_another_workflow_or_with_another_input_is_refused() {
    sim::check(1, |sim: Sim| async move {
        let node = start(&sim, &Arc::default());
        let run = node.workflow::<Trip>("a");
        assert!(matches!(run.journal().await, Err(WorkflowError::Unborn)));
        assert_eq!(run.progress::<String>().await.unwrap(), None);
        run.start(&Travel { to: "Rom".into(), is_refused: false }).await.unwrap();
        let journal = journal(&run).await;
        assert_eq!((journal.workflow(), journal.id()), ("trip", "a"));
        let found = node.check_replay(Other::<true>, &journal);
        assert!(matches!(&found, Err(ReplayError::Input { run, .. }) if run == "a"), "{found:?}");
        let found = node.check_replay(Other::<false>, &journal);
        assert!(matches!(&found, Err(ReplayError::OtherWorkflow(name)) if name == "trip"));
        assert!(matches!(run.progress::<u64>().await, Err(WorkflowError::Result(_))));
    });
}

#[test]
fn a_repeated_run_reports_nothing_before_it_has_caught_up() {
    sim::check(1, |sim: Sim| async move {
        let ran = Arc::default();
        let node = start(&sim, &ran);
        let run = node.workflow::<Trip>("a");
        run.start(&Travel { to: "Rom".into(), is_refused: false }).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        sim.crash();
        // The program does not come to where the run was, and would leave the first report behind.
        let node = start_program(&sim, Renamed, &ran);
        let run = node.workflow::<Trip>("a");
        run.status().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(matches!(run.status().await.unwrap(), RunStatus::Stuck(_)));
        assert_eq!(run.progress::<String>().await.unwrap().unwrap(), "sleeps before 3");
    });
}
