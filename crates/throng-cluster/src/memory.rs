//! [`MemoryLog`]: a log in the memory of this process. [`MemoryLogs`], [`MemoryPeers`]: the logs of a cluster whose nodes
//! are all in this process, and the way between them. For tests and for development: nothing outlives the process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cluster::{Cluster, Logs, PeerError, PeerTarget, Peers, WeakCluster};
use crate::log::{BoxFuture, BoxStream, LogError, ShardLog};
use crate::placement::Shard;
use crate::record::Incarnation;
use crate::replica::{AppendError, Position};

/// A log in memory. Clones are handles to the same log.
///
/// ```
/// use throng_cluster::{MemoryLog, Position, ShardLog};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let log = MemoryLog::new();
/// assert_eq!(log.append("first".into(), Some(Position(0))).await, Ok(Position(1)));
/// assert_eq!(log.end().await, Ok(Position(1)));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryLog {
    records: Arc<Mutex<Records>>,
    /// The end of the log.
    end: watch::Sender<Position>,
}

#[derive(Debug, Default)]
struct Records {
    /// Number of records that were removed.
    trimmed: u64,
    kept: VecDeque<Bytes>,
}

impl MemoryLog {
    /// Returns an empty log.
    pub fn new() -> MemoryLog {
        MemoryLog { records: Arc::default(), end: watch::Sender::new(Position(0)) }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // No step under this lock leaves the list half changed.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, record: Bytes, after: Option<Position>) -> Result<Position, AppendError> {
        let mut records = self.records();
        if after.is_some_and(|after| after != records.end()) {
            return Err(AppendError::Refused);
        }
        records.kept.push_back(record);
        let end = records.end();
        self.end.send_replace(end);
        Ok(end)
    }

    /// Returns the record at a position; `None` if it is yet to come.
    fn record(&self, at: Position) -> Result<Option<Bytes>, LogError> {
        let records = self.records();
        match at.0.checked_sub(records.trimmed + 1) {
            Some(index) => Ok(records.kept.get(index as usize).cloned()),
            None => Err(LogError::Trimmed(Position(records.trimmed + 1))),
        }
    }
}

impl Default for MemoryLog {
    fn default() -> MemoryLog {
        MemoryLog::new()
    }
}

impl Records {
    fn end(&self) -> Position {
        Position(self.trimmed + self.kept.len() as u64)
    }
}

impl ShardLog for MemoryLog {
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>> {
        let stored = self.store(record, after);
        Box::pin(async move { stored })
    }

    fn end(&self) -> BoxFuture<Result<Position, LogError>> {
        let end = self.records().end();
        Box::pin(async move { Ok(end) })
    }

    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>> {
        let reader = (self.clone(), self.end.subscribe(), Some(Position(from.0.max(1))));
        Box::pin(stream::unfold(reader, |(log, mut end, next)| async move {
            let at = next?;
            // The log itself keeps the sender, so the end can only rise.
            end.wait_for(|end| *end >= at).await.ok()?;
            let read = match log.record(at) {
                Ok(record) => Ok((at, record?)),
                Err(error) => Err(error),
            };
            let next = read.is_ok().then_some(Position(at.0 + 1));
            Some((read, (log, end, next)))
        }))
    }

    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>> {
        let mut records = self.records();
        while records.trimmed + 1 < before.0 && records.kept.pop_front().is_some() {
            records.trimmed += 1;
        }
        Box::pin(async { Ok(()) })
    }
}

/// Logs of shards in memory. Clones are handles to the same logs.
#[derive(Clone, Debug, Default)]
pub struct MemoryLogs(Arc<Mutex<BTreeMap<Shard, MemoryLog>>>);

impl MemoryLogs {
    /// Returns the log of a shard.
    pub fn log(&self, shard: Shard) -> MemoryLog {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.entry(shard).or_default().clone()
    }
}

impl Logs for MemoryLogs {
    fn shard(&self, shard: Shard) -> BoxFuture<Result<Arc<dyn ShardLog>, LogError>> {
        let log = self.log(shard);
        Box::pin(async move { Ok(Arc::new(log) as Arc<dyn ShardLog>) })
    }
}

/// Nodes of a cluster in this process, which reach each other by calls of functions. Clones share the nodes.
#[derive(Clone, Debug, Default)]
pub struct MemoryPeers(Arc<Mutex<HashMap<Incarnation, WeakCluster>>>);

impl MemoryPeers {
    /// Makes a node one that others reach, as long as somebody has it.
    pub fn add(&self, node: Incarnation, cluster: &Cluster) {
        self.nodes().insert(node, cluster.downgrade());
    }

    /// Makes a node one that nobody reaches.
    pub fn remove(&self, node: Incarnation) {
        self.nodes().remove(&node);
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Incarnation, WeakCluster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers for MemoryPeers {
    fn call(
        self: Arc<Self>,
        target: PeerTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<Result<Bytes, PeerError>> {
        let cluster = self.nodes().get(&target.node).and_then(WeakCluster::upgrade);
        Box::pin(async move {
            let Some(cluster) = cluster else {
                return Err(PeerError::Unsent("there is no such node".into()));
            };
            match timeout(within, cluster.answer(request, within)).await {
                Ok(answered) => answered.map_err(PeerError::Unsent),
                Err(_) => Err(PeerError::Unknown("no reply in time".into())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        future.now_or_never()
    }

    #[test]
    fn a_condition_on_the_end_holds_or_refuses() {
        let log = MemoryLog::new();
        let append = |after: Option<u64>| now(log.append("a".into(), after.map(Position)));
        assert_eq!(append(Some(0)), Some(Ok(Position(1))));
        assert_eq!(append(Some(0)), Some(Err(AppendError::Refused)));
        assert_eq!(append(None), Some(Ok(Position(2))));
        assert_eq!(append(Some(2)), Some(Ok(Position(3))));
        assert_eq!(now(log.end()), Some(Ok(Position(3))));
    }

    #[test]
    fn a_reader_gets_what_there_is_and_then_what_comes_and_is_told_what_has_gone() {
        let log = MemoryLog::new();
        let mut records = log.read(Position(0));
        assert_eq!(now(records.next()), None);
        for record in ["a", "b", "c"] {
            assert!(now(log.append(record.into(), None)).is_some());
        }
        assert_eq!(now(records.next()), Some(Some(Ok((Position(1), "a".into())))));
        assert_eq!(now(log.trim(Position(3))), Some(Ok(())));
        assert_eq!(now(records.next()), Some(Some(Err(LogError::Trimmed(Position(3))))));
        assert_eq!(now(records.next()), Some(None));
        assert_eq!(now(log.read(Position(3)).next()), Some(Some(Ok((Position(3), "c".into())))));
        assert_eq!(now(log.trim(Position(9))), Some(Ok(())));
        assert_eq!(now(log.append("d".into(), Some(Position(3)))), Some(Ok(Position(4))));
    }
}
