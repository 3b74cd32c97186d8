//! Work on numbers by tasks, each of which takes the next number when it is done with the last.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::Error;

/// A place in which tasks run.
pub trait Tasks: Send + Sync + 'static {
    /// Starts a task: one of tokio, unless the place has processes of its own.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }
}

/// Has `tasks` tasks do the work on each number, `pace` numbers a second in all unless that is 0. The work gets the number
/// of its task as well.
///
/// # Errors
/// The first error of the work, and if a task died.
pub async fn in_turn<F: Future<Output = Result<(), Error>> + Send>(
    place: &impl Tasks,
    numbers: Range<u64>,
    tasks: u64,
    pace: u64,
    work: impl Fn(u64, u64) -> F + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    let (begun, first) = (Instant::now(), numbers.start);
    let next = Arc::new(AtomicU64::new(first));
    let mut ends: Vec<oneshot::Receiver<Result<(), Error>>> = Vec::new();
    for task in 0..tasks.min(numbers.end - first) {
        let (done, end) = oneshot::channel();
        let (next, work, last) = (next.clone(), work.clone(), numbers.end);
        let each = async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= last {
                    return Ok(());
                }
                if let Some(due) = ((number - first) * 1_000_000_000).checked_div(pace) {
                    let due = Duration::from_nanos(due);
                    tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
                }
                work(task, number).await?;
            }
        };
        place.start(async move {
            let _ = done.send(each.await);
        });
        ends.push(end);
    }
    for end in ends {
        end.await.map_err(|_| "a task died")??;
    }
    Ok(())
}

/// Time between two looks at work that others do.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which nothing is done, after which the rest counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// The work that others have done, as a look finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Number of things that are done, which grows until all are.
    pub number: u64,
    /// Whether all is done.
    pub is_all: bool,
}

/// Looks at work that others do, until all is done.
///
/// # Errors
/// That of a look; if nothing is done in half a minute.
pub async fn wait<F: Future<Output = Result<Done, Error>>>(
    look: impl Fn() -> F,
) -> Result<(), Error> {
    let (mut seen, mut seen_at) = (0, Instant::now());
    loop {
        let Done { number, is_all } = look().await?;
        if is_all {
            return Ok(());
        }
        if number != seen {
            (seen, seen_at) = (number, Instant::now());
        } else if seen_at.elapsed() > LOST {
            return Err(format!("{number} are done, and no more").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}
