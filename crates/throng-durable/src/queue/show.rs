//! Queues and their jobs as they are stored, for people; and changes of a queue by its name, without its worker's type.

use serde::{Deserialize, Serialize};
use throng_store::ReadError;

use super::line::{Line, Pause, Remove, Retry, Stored, map_of};
use super::{JobId, JobState, NewJob};
use crate::records::{Shown, Subject, TEXT_BYTES_MAX, cut, number};
use crate::stored::is_stored;
use crate::values::read_record;
use crate::{Durable, Node, Records, RecordsError, layout};

/// A queue, from [`Records::queues`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownQueue {
    /// Name of the queue.
    pub name: String,
    /// Whether no job starts.
    pub is_paused: bool,
    /// Number of jobs that run, or start when the queue comes to them.
    pub ready: u64,
    /// Number of jobs that wait for a time.
    pub later: u64,
    /// Number of jobs that are not tried any more.
    pub dead: u64,
    /// The damage of a queue that cannot be read, and has no numbers.
    pub damage: Option<String>,
}

/// A job, from [`Records::jobs`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownJob {
    /// Identity of the job.
    pub id: JobId,
    /// The job's value; or the damage of a job that cannot be read, of which nothing else is known.
    pub value: Shown,
    /// Time for which it waits or has waited, in milliseconds since 1970; `None` for one that was to start at once.
    pub due_ms: Option<u64>,
    /// Its key, of which so many run at once.
    pub key: Option<String>,
    /// Its unique name.
    pub unique: Option<String>,
    /// Number of attempts that have failed.
    pub failures: u32,
    /// The last failure.
    pub reason: Option<String>,
}

/// Change of a queue, for [`Node::change_queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueChange {
    /// Tries a dead job again, or one at once that waits for a time: see [`Queue::retry`](crate::Queue::retry).
    Retry(JobId),
    /// Removes a job: see [`Queue::remove`](crate::Queue::remove).
    Remove(JobId),
    /// Has no further job start: see [`Queue::pause`](crate::Queue::pause).
    Pause,
    /// Has jobs start again: see [`Queue::resume`](crate::Queue::resume).
    Resume,
}

impl Records {
    /// Returns at most `limit` queues behind one, in the order of their names. No queue is activated.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn queues(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ShownQueue>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let Ok(kind) = number(&catalogue, Line::KIND) else { return Ok(Vec::new()) };
        let Some(numbered) = catalogue.kind(Line::KIND) else { return Ok(Vec::new()) };
        let show = |name: &[u8], record: Result<&[u8], ReadError>| {
            let line: Result<Line, String> = read_record(&numbered, record)?;
            let damage = line.as_ref().err().map(|damage| cut(damage));
            let Line { is_paused, ready, later, dead, .. } = line.unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            Ok(Some(ShownQueue { name, is_paused, ready, later, dead, damage }))
        };
        let after = after.map(str::as_bytes);
        Ok(view.page(&layout::states(kind), after, limit, show)?)
    }

    /// Returns at most `limit` jobs of a queue that are in a state, behind one of them, in the order of their ids; `None`
    /// if there is no such queue. The queue is not activated.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Key`], [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn jobs(
        &self,
        queue: &str,
        state: JobState,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Option<Vec<ShownJob>>, RecordsError> {
        let Some(own) = self.stored_queue(queue)? else { return Ok(None) };
        let Some(map) = own.catalogue.known_map(Line::KIND, map_of(state)) else {
            return Ok(Some(Vec::new()));
        };
        let values = own.catalogue.message(Line::KIND, "");
        let show = |key: &[u8], record: Result<&[u8], ReadError>| {
            let Ok(id) = key.try_into().map(u64::from_be_bytes) else { return Ok(None) };
            let (stored, damage) = match read_record::<Stored>(&map, record)? {
                Ok(stored) => (stored, None),
                Err(damage) => (Stored::new(NewJob::default()), Some(damage)),
            };
            let Stored { job, failures, reason, .. } = stored;
            let value = match (damage, &values) {
                (Some(damage), _) => Err(damage),
                (None, None) => Err("the store has no values of jobs".to_owned()),
                (None, Some(values)) => values.show(&job.value, TEXT_BYTES_MAX),
            };
            Ok(Some(ShownJob {
                id: JobId(id),
                value: Shown::of(Ok(value))?,
                due_ms: Some(job.due).filter(|due| *due > 0),
                key: job.key,
                unique: job.unique,
                failures,
                reason: reason.map(|reason| cut(&reason)),
            }))
        };
        let prefix = layout::map(&own.state_key, map.number());
        let after = after.map(|after| after.0.to_be_bytes());
        Ok(Some(own.view.page(&prefix, after.as_ref().map(<[u8; 8]>::as_slice), limit, show)?))
    }

    /// Returns the entity of a queue, if one is stored.
    fn stored_queue(&self, queue: &str) -> Result<Option<Subject<'static>>, RecordsError> {
        let own = match self.subject(Line::KIND, queue) {
            Err(RecordsError::NoKind(_)) => return Ok(None),
            own => own?,
        };
        Ok(is_stored(&own.view, &own.state_key)?.then_some(own))
    }
}

impl Node {
    /// Changes a queue by its name; returns false if there is no such queue, or it has no such job.
    ///
    /// ```
    /// use throng_durable::{JobState, Node, QueueChange, RecordsError};
    ///
    /// /// Has the first dead jobs of a queue tried again, after the program was mended.
    /// async fn retry_dead(node: &Node, queue: &str) -> Result<(), RecordsError> {
    ///     let dead = node.records().jobs(queue, JobState::Dead, None, 100)?;
    ///     for dead in dead.unwrap_or_default() {
    ///         node.change_queue(queue, QueueChange::Retry(dead.id)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RecordsError::Key`], [`RecordsError::Read`] and [`RecordsError::Layout`]; [`RecordsError::Entity`] with any
    /// [`EntityError`](crate::EntityError), of which `NotRegistered` is for a program that has not called
    /// [`run_queues`](Node::run_queues).
    pub async fn change_queue(
        &self,
        queue: &str,
        change: QueueChange,
    ) -> Result<bool, RecordsError> {
        if self.records().stored_queue(queue)?.is_none() {
            return Ok(false);
        }
        let line = self.entity::<Line>(queue);
        let is_done = match change {
            QueueChange::Retry(id) => line.call(Retry { id }).await,
            QueueChange::Remove(id) => line.call(Remove { id }).await,
            QueueChange::Pause => line.call(Pause { pauses: true }).await.map(|()| true),
            QueueChange::Resume => line.call(Pause { pauses: false }).await.map(|()| true),
        };
        Ok(is_done?)
    }
}
