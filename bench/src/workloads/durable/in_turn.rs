//! Work on numbers by tasks, each of which takes the next number when it is done with the last.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Counters;

/// Has `tasks` tasks do the work on each number, `pace` numbers a second in all unless that is 0.
pub(in super::super) async fn in_turn<F: Future<Output = io::Result<()>> + Send>(
    counters: &impl Counters,
    numbers: Range<u64>,
    tasks: u64,
    pace: u64,
    work: impl Fn(u64) -> F + Clone + Send + Sync + 'static,
) -> io::Result<()> {
    let (begun, first) = (Instant::now(), numbers.start);
    let next = Arc::new(AtomicU64::new(first));
    let mut ends: Vec<oneshot::Receiver<io::Result<()>>> = Vec::new();
    for _ in 0..tasks.min(numbers.end - first) {
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
                work(number).await?;
            }
        };
        counters.start(async move {
            let _ = done.send(each.await);
        });
        ends.push(end);
    }
    for end in ends {
        end.await.map_err(|_| io::Error::other("a task died"))??;
    }
    Ok(())
}
