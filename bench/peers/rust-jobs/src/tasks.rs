//! Work on numbers by tasks, each of which takes the next number when it is done with the last.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Error;

/// Has `tasks` tasks do the work on each number, `pace` numbers a second in all unless that is 0. The work gets the number
/// of its task as well.
pub(crate) async fn in_turn<F: Future<Output = Result<(), Error>> + Send + 'static>(
    numbers: Range<u64>,
    tasks: u64,
    pace: u64,
    work: impl Fn(u64, u64) -> F + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    let (begun, first) = (Instant::now(), numbers.start);
    let next = Arc::new(AtomicU64::new(first));
    let mut ends = Vec::new();
    for task in 0..tasks.min(numbers.end - first) {
        let (next, work, last) = (next.clone(), work.clone(), numbers.end);
        ends.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= last {
                    return Ok::<(), Error>(());
                }
                if let Some(due) = ((number - first) * 1_000_000_000).checked_div(pace) {
                    let due = Duration::from_nanos(due);
                    tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
                }
                work(task, number).await?;
            }
        }));
    }
    for end in ends {
        end.await??;
    }
    Ok(())
}
