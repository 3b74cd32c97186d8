//! [`NatsLogs`]: the logs of a cluster, each a stream.

use std::sync::Arc;

use throng_cluster::placement::Shard;
use throng_cluster::{BoxFuture, LogError, Logs, ShardLog};

use crate::error::NatsError;
use crate::log::NatsLog;
use crate::nats::Nats;

/// The logs of a cluster: `<cluster>-control` and one for each shard, `<cluster>-s<number>`.
#[derive(Clone, Debug)]
pub struct NatsLogs {
    nats: Nats,
    cluster: Arc<str>,
}

impl NatsLogs {
    /// Returns the logs of a cluster with this name, which has letters, digits, `-` and `_`.
    pub fn new(nats: Nats, cluster: &str) -> NatsLogs {
        NatsLogs { nats, cluster: cluster.into() }
    }

    /// Opens the log of members and plans, and makes it in a new cluster.
    ///
    /// # Errors
    ///
    /// See [`Nats::create`].
    pub async fn control(&self) -> Result<NatsLog, NatsError> {
        self.nats.create(&format!("{}-control", self.cluster)).await
    }
}

impl Logs for NatsLogs {
    fn shard(&self, shard: Shard) -> BoxFuture<Result<Arc<dyn ShardLog>, LogError>> {
        let (nats, name) = (self.nats.clone(), format!("{}-s{}", self.cluster, shard.0));
        Box::pin(async move {
            match nats.create(&name).await {
                Ok(log) => Ok(Arc::new(log) as Arc<dyn ShardLog>),
                Err(error) => Err(LogError::Unavailable(error.to_string())),
            }
        })
    }
}
