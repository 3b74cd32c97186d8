//! `throng queue`: the queues of jobs of a node, by their names and without the program's types.
//!
//! | command | running node | stopped node |
//! |---|---|---|
//! | `list`, `jobs` | asks the admin socket | reads the store |
//! | `retry`, `remove`, `pause`, `resume` | asks the admin socket | – |

use std::io::Write;

use clap::{Args, Subcommand};
use throng_durable::{JobId, JobState, QueueChange};
use throng_node::admin::entities::{EntityAnswer, EntityRequest, PAGE_MAX};

use crate::entity::{At, EntityCommandError, Out, Result, Source, text};

/// Arguments of `throng queue`.
#[derive(Debug, Args)]
pub struct QueueArgs {
    #[command(flatten)]
    at: At,

    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    /// Print the queues with the numbers of their jobs
    List,
    /// Print jobs of a queue, by default those that are dead, with the reasons
    Jobs(JobsArgs),
    /// Have a job tried again that is dead, or one tried at once that waits for a time
    Retry(ChosenArgs),
    /// Remove a job; an attempt that runs ends
    Remove(ChosenArgs),
    /// Have no further job start, also after a restart
    Pause { queue: String },
    /// Have jobs start again
    Resume { queue: String },
}

#[derive(Debug, Args)]
struct JobsArgs {
    /// Name of the queue
    queue: String,

    /// State of the jobs: `ready`, also those that run; `later`, which wait for a time; or `dead`
    #[arg(long, value_name = "STATE", default_value = "dead", value_parser = state)]
    state: JobState,

    /// Maximum number of jobs to print
    #[arg(long, value_name = "NUMBER", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
}

fn state(state: &str) -> std::result::Result<JobState, String> {
    match state {
        "ready" => Ok(JobState::Ready),
        "later" => Ok(JobState::Later),
        "dead" => Ok(JobState::Dead),
        _ => Err("`ready`, `later` or `dead`".into()),
    }
}

/// Chosen jobs.
#[derive(Debug, Args)]
struct ChosenArgs {
    /// Name of the queue
    queue: String,

    /// Number of the job, as `jobs` prints it
    #[arg(required_unless_present = "all_dead")]
    id: Option<u64>,

    /// Choose all dead jobs
    #[arg(long, conflicts_with = "id")]
    all_dead: bool,
}

impl QueueArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// There is neither a node nor a store, or no such queue or job.
    pub(crate) fn run(self) -> Result<()> {
        self.at.print(|out| match &self.command {
            QueueCommand::List => self.list(out),
            QueueCommand::Jobs(JobsArgs { queue, state, limit }) => {
                let mut source = self.at.open()?;
                each_job(&mut source, queue, *state, *limit, |_, job| text::job(&job, out))
            }
            QueueCommand::Retry(jobs) => self.change(jobs, QueueChange::Retry, "retry", out),
            QueueCommand::Remove(jobs) => self.change(jobs, QueueChange::Remove, "remove", out),
            QueueCommand::Pause { queue } => self.pause(queue, QueueChange::Pause, "paused", out),
            QueueCommand::Resume { queue } => {
                self.pause(queue, QueueChange::Resume, "resumed", out)
            }
        })
    }

    fn list(&self, out: &mut Out<impl Write>) -> Result<()> {
        let (mut source, mut after) = (self.at.open()?, None);
        loop {
            let request = EntityRequest::Queues { after: after.take(), limit: PAGE_MAX };
            let EntityAnswer::Queues(page) = source.ask(request)? else {
                return Err(EntityCommandError::WrongAnswer);
            };
            for queue in page {
                text::queue(&queue, out)?;
                after = Some(queue.name);
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn change(
        &self,
        ChosenArgs { queue, id, .. }: &ChosenArgs,
        change: fn(JobId) -> QueueChange,
        what: &'static str,
        out: &mut Out<impl Write>,
    ) -> Result<()> {
        let mut source = Source::Node(self.at.connect()?);
        let mut one = |source: &mut Source, id| {
            let is_done = ask(source, queue, change(id))?;
            if is_done {
                let json = serde_json::json!({ "job": id, "done": what });
                out.line(&json, format_args!("{what}: {id}"))?;
            }
            Ok::<bool, EntityCommandError>(is_done)
        };
        let Some(id) = id.map(JobId) else {
            // A job that somebody else has changed meanwhile is none of these any more.
            return each_job(&mut source, queue, JobState::Dead, usize::MAX, |source, job| {
                one(source, job.id).map(drop)
            });
        };
        match one(&mut source, id)? {
            true => Ok(()),
            false => Err(EntityCommandError::NoJob { queue: queue.clone(), id, what }),
        }
    }

    fn pause(
        &self,
        queue: &str,
        change: QueueChange,
        done: &str,
        out: &mut Out<impl Write>,
    ) -> Result<()> {
        if !ask(&mut Source::Node(self.at.connect()?), queue, change)? {
            return Err(EntityCommandError::NoQueue(queue.into()));
        }
        let json = serde_json::json!({ "queue": queue, "done": done });
        out.line(&json, format_args!("{done}: {}", queue.escape_debug()))
    }
}

/// Passes the jobs of a queue, page by page.
fn each_job(
    source: &mut Source,
    name: &str,
    state: JobState,
    limit: usize,
    mut pass: impl FnMut(&mut Source, throng_durable::ShownJob) -> Result<()>,
) -> Result<()> {
    let (mut after, mut left) = (None, limit);
    while left > 0 {
        let (queue, limit) = (name.to_owned(), left.min(PAGE_MAX));
        let request = EntityRequest::Jobs { queue, state, after: after.take(), limit };
        let EntityAnswer::Jobs(page) = source.ask(request)? else {
            return Err(EntityCommandError::WrongAnswer);
        };
        let page = page.ok_or_else(|| EntityCommandError::NoQueue(name.into()))?;
        left -= page.len().min(left);
        for job in page {
            after = Some(job.id);
            pass(source, job)?;
        }
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

fn ask(source: &mut Source, queue: &str, change: QueueChange) -> Result<bool> {
    let queue = queue.to_owned();
    match source.ask(EntityRequest::ChangeQueue { queue, change })? {
        EntityAnswer::Changed(is_changed) => Ok(is_changed),
        _ => Err(EntityCommandError::WrongAnswer),
    }
}
