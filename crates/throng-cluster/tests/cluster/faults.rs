//! [`FaultyLog`]: a way to a log on which requests and answers get lost, late, or come twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::{StreamExt, stream};
use throng_cluster::{AppendError, BoxFuture, BoxStream, LogError, MemoryLog, Position, ShardLog};
use tokio::time::sleep;

/// A node's way to a log in memory; see the file's head.
#[derive(Clone, Debug)]
pub(crate) struct FaultyLog {
    log: MemoryLog,
    random: Arc<Mutex<Rng>>,
    /// Share of operations that go wrong, of 256.
    faults: u8,
    is_cut: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Well,
    /// The request does not arrive.
    Lost,
    /// The answer does not arrive.
    Unanswered,
    /// The request arrives once the node has given up.
    Late,
    /// The request arrives once more, without its condition, after another one of the node.
    Twice,
    /// The engine refuses without a reason.
    Refused,
}

impl FaultyLog {
    pub(crate) fn new(log: &MemoryLog, seed: u64, faults: u8) -> FaultyLog {
        let random = Arc::new(Mutex::new(Rng::with_seed(seed)));
        FaultyLog { log: log.clone(), random, faults, is_cut: Arc::default() }
    }

    /// Cuts the node off, or connects it again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.lock().unwrap())
    }

    fn goes_wrong(&self) -> bool {
        self.draw(|random| random.u8(..)) < self.faults
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.draw(|random| random.u64(..400)))
    }

    fn fate(&self) -> Fate {
        use Fate::{Late, Lost, Refused, Twice, Unanswered, Well};
        if self.is_cut() {
            return Lost;
        }
        match self.goes_wrong() {
            true => self
                .draw(|random| *random.choice(&[Lost, Unanswered, Late, Twice, Refused]).unwrap()),
            false => Well,
        }
    }

    fn unavailable<T>() -> Result<T, LogError> {
        Err(LogError::Unavailable("as the test wants it".into()))
    }
}

impl ShardLog for FaultyLog {
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>> {
        let (fate, delay, log) = (self.fate(), self.delay(), self.log.clone());
        match fate {
            Fate::Lost => Box::pin(std::future::pending()),
            Fate::Refused => Box::pin(async { Err(AppendError::Refused) }),
            Fate::Late => {
                tokio::spawn(async move {
                    sleep(Duration::from_millis(30) + delay * 50).await;
                    log.append(record, after).await
                });
                Box::pin(async { Err(AppendError::Unknown) })
            }
            Fate::Unanswered => {
                let appended = log.append(record, after);
                Box::pin(async move {
                    let _ = appended.await;
                    std::future::pending().await
                })
            }
            Fate::Twice | Fate::Well => {
                let appended = log.append(record.clone(), after);
                if matches!(fate, Fate::Twice) {
                    tokio::spawn(async move {
                        sleep(delay * 20).await;
                        log.append(record, None).await
                    });
                }
                Box::pin(async move {
                    sleep(delay).await;
                    appended.await
                })
            }
        }
    }

    fn end(&self) -> BoxFuture<Result<Position, LogError>> {
        if self.is_cut() || self.goes_wrong() {
            return Box::pin(async { FaultyLog::unavailable() });
        }
        let (end, behind) = (self.log.end(), self.draw(|random| random.u64(..4)));
        Box::pin(async move { end.await.map(|end| Position(end.0.saturating_sub(behind))) })
    }

    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>> {
        let way = self.clone();
        let records = self.log.read(from).map(move |record| {
            let is_lost = way.is_cut() || way.goes_wrong();
            if is_lost { FaultyLog::unavailable() } else { record }
        });
        // Behind an error there is nothing.
        let ended = stream::unfold(Some(records), |records| async {
            let mut records = records?;
            let record = records.next().await?;
            let is_over = record.is_err();
            Some((record, (!is_over).then_some(records)))
        });
        Box::pin(ended)
    }

    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>> {
        self.log.trim(before)
    }
}
