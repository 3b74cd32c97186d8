//! Requests about entities, over the admin socket and on the dashboard: by the names of their kinds, and without the
//! program's types.
//!
//! A page has at most [`PAGE_MAX`] entries and begins behind a cursor, so that a kind with any number of entities can be
//! listed.

use serde::{Deserialize, Serialize};
use throng::RuntimeHandle;
use throng_durable::{
    Inspection, JobId, JobState, Node, Pending, QueueChange, Record, Records, RecordsError,
    ShownCell, ShownJob, ShownMessage, ShownQueue, ShownReminder, ShownStep,
};
use tokio::sync::oneshot;

use super::wire::{Answer, Refusal, RefusalKind};

/// Request about entities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum EntityRequest {
    /// All kinds, with the numbers of their stored entities.
    Kinds,
    /// Entities of a kind in the order of their keys.
    List {
        kind: String,
        prefix: String,
        after: Option<String>,
        limit: usize,
    },
    /// Entities of a kind that have messages or reminders.
    Pending {
        kind: String,
        which: Pending,
        after: Option<String>,
        limit: usize,
    },
    /// An entity.
    Show {
        kind: String,
        key: String,
    },
    Cells {
        kind: String,
        key: String,
        after: Option<Vec<u8>>,
        limit: usize,
    },
    Messages {
        kind: String,
        key: String,
        which: Pending,
        after: Option<u64>,
        limit: usize,
    },
    Reminders {
        kind: String,
        key: String,
        after: Option<String>,
        limit: usize,
    },
    Steps {
        kind: String,
        key: String,
        after: Option<u32>,
        limit: usize,
    },
    /// Has a message handled that was parked or failed.
    Retry {
        kind: String,
        key: String,
        sequence: u64,
    },
    /// Removes a message.
    Skip {
        kind: String,
        key: String,
        sequence: u64,
    },
    /// Removes an entity.
    Forget {
        kind: String,
        key: String,
    },
    /// Queues of jobs in the order of their names.
    Queues {
        after: Option<String>,
        limit: usize,
    },
    /// Jobs of a queue in the order of their ids.
    Jobs {
        queue: String,
        state: JobState,
        after: Option<JobId>,
        limit: usize,
    },
    ChangeQueue {
        queue: String,
        change: QueueChange,
    },
}

/// Answer to an [`EntityRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityAnswer {
    Kinds(Vec<(String, u64)>),
    List(Vec<Record>),
    Pending(Vec<String>),
    /// `None` if nothing is stored of the entity.
    Show(Option<Box<Inspection>>),
    Cells(Vec<ShownCell>),
    Messages(Vec<ShownMessage>),
    Reminders(Vec<ShownReminder>),
    Steps(Vec<ShownStep>),
    Queues(Vec<ShownQueue>),
    /// `None` if there is no such queue.
    Jobs(Option<Vec<ShownJob>>),
    /// Whether there was anything to change.
    Changed(bool),
}

/// Maximum number of entries in a page.
pub const PAGE_MAX: usize = 100;

impl EntityRequest {
    /// Answers the request from stored records, if it changes nothing.
    ///
    /// # Errors
    /// The kind or the key is wrong, or the store cannot be read; [`RecordsError::Live`] for a change.
    pub fn read(self, records: &Records) -> Result<EntityAnswer, RecordsError> {
        type Of = EntityRequest;
        Ok(match self {
            Of::Kinds => EntityAnswer::Kinds(records.kinds()?),
            Of::List { kind, prefix, after, limit } => {
                let limit = limit.min(PAGE_MAX);
                EntityAnswer::List(records.list(&kind, &prefix, after.as_deref(), limit)?)
            }
            Of::Pending { kind, which, after, limit } => {
                let limit = limit.min(PAGE_MAX);
                EntityAnswer::Pending(records.pending(&kind, which, after.as_deref(), limit)?)
            }
            Of::Show { kind, key } => {
                EntityAnswer::Show(records.inspect(&kind, &key)?.map(Box::new))
            }
            Of::Cells { kind, key, after, limit } => {
                let limit = limit.min(PAGE_MAX);
                EntityAnswer::Cells(records.cells(&kind, &key, after.as_deref(), limit)?)
            }
            Of::Messages { kind, key, which, after, limit } => {
                let limit = limit.min(PAGE_MAX);
                EntityAnswer::Messages(records.messages(&kind, &key, which, after, limit)?)
            }
            Of::Reminders { kind, key, after, limit } => {
                let limit = limit.min(PAGE_MAX);
                EntityAnswer::Reminders(records.reminders(&kind, &key, after.as_deref(), limit)?)
            }
            Of::Steps { kind, key, after, limit } => {
                EntityAnswer::Steps(records.steps(&kind, &key, after, limit.min(PAGE_MAX))?)
            }
            Of::Queues { after, limit } => {
                EntityAnswer::Queues(records.queues(after.as_deref(), limit.min(PAGE_MAX))?)
            }
            Of::Jobs { queue, state, after, limit } => {
                EntityAnswer::Jobs(records.jobs(&queue, state, after, limit.min(PAGE_MAX))?)
            }
            Of::Retry { .. } | Of::Skip { .. } | Of::Forget { .. } | Of::ChangeQueue { .. } => {
                return Err(RecordsError::Live);
            }
        })
    }
}

/// Answers a request from a node, if there is one. Reads of the store do not block a worker.
pub(super) async fn answer(
    request: EntityRequest,
    runtime: &RuntimeHandle,
    node: Option<Node>,
) -> Answer {
    let Some(node) = node else {
        return refuse(RefusalKind::NoEntity, "the node has no durable entities, or stops".into());
    };
    let answered = match request {
        EntityRequest::Retry { kind, key, sequence } => {
            node.retry_message(&kind, &key, sequence).await.map(EntityAnswer::Changed)
        }
        EntityRequest::Skip { kind, key, sequence } => {
            node.skip_message(&kind, &key, sequence).await.map(EntityAnswer::Changed)
        }
        EntityRequest::Forget { kind, key } => {
            node.forget_entity(&kind, &key).await.map(EntityAnswer::Changed)
        }
        EntityRequest::ChangeQueue { queue, change } => {
            node.change_queue(&queue, change).await.map(EntityAnswer::Changed)
        }
        read => {
            let (answer, answered) = oneshot::channel();
            let records = node.records();
            drop(node);
            runtime.run_blocking(move || drop(answer.send(read.read(&records)))).await;
            match answered.await {
                Ok(answered) => answered,
                Err(_) => return refuse(RefusalKind::Busy, "the node stops".into()),
            }
        }
    };
    match answered {
        Ok(answer) => Answer::Entity(answer),
        Err(error) => {
            let kind = match &error {
                RecordsError::NoKind(_) | RecordsError::Key(_) => RefusalKind::NoEntity,
                _ => RefusalKind::Unable,
            };
            refuse(kind, error.to_string())
        }
    }
}

fn refuse(kind: RefusalKind, detail: String) -> Answer {
    Answer::Error(Refusal { kind, detail })
}
