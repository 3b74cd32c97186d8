//! Mails of a shop as jobs of a queue: each is sent until it succeeds, two at the same time, and one
//! to an address that does not exist is dead, for somebody to look at.
//!
//! Run it: `cargo run -p throng-examples --bin job_queue -- DIRECTORY MAILS`. Kill it at any moment,
//! and start it again: no mail is lost. Output: a line for each mail, and the dead ones in the end.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::time::Duration;
use throng::prelude::*;
use throng_durable::{
    Attempt, Job, JobError, JobState, Node, QueueOptions, Queues, Schedule, Worker,
};

#[derive(Debug, Serialize, Deserialize)]
struct Mail {
    to: String,
}

struct Postman;

impl Worker for Postman {
    const QUEUE: &'static str = "mail";
    type Job = Mail;

    async fn run(&self, cx: &Attempt, mail: Mail) -> Result<(), JobError> {
        match (mail.to.as_str(), cx.number()) {
            ("nobody", _) => return Err(JobError::discard("nobody has this name")),
            ("zoe", 1) => return Err(JobError::new("her mail server does not answer")),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
        println!("to {}", mail.to);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(mails)) = (arguments.next(), arguments.next()) else {
        return Err("job_queue DIRECTORY MAILS".into());
    };
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let node = Node::options(directory).open(runtime)?;
        let nightly = Schedule::cron("0 3 * * *", "Europe/Berlin")?;
        let report = Mail { to: "the boss".into() };
        let queues = Queues::new().with(Postman, QueueOptions::concurrency(2).attempts(5));
        node.run_queues(queues.every::<Postman>("report", nightly, report));
        let queue = node.queue::<Postman>();
        for to in (0..mails.parse()?).map(|mail: u64| format!("customer {mail}")) {
            // A second mail to a customer who has not got the first one is not sent.
            queue.push(Job::new(Mail { to: to.clone() }).unique(to)).await?;
        }
        queue.push(Mail { to: "nobody".into() }).await?;
        queue.push(Job::new(Mail { to: "zoe".into() }).priority(1)).await?;
        println!("pushed");
        while queue.stat().await?.unfinished() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for dead in queue.jobs(JobState::Dead, None, 100).await? {
            println!("dead: {:?}: {}", dead.value?.to, dead.reason.unwrap_or_default());
        }
        node.shutdown().await;
        Ok(())
    })
}
