//! Operations of an operator on an entity by the name of its kind, for tools that do not have the program's types.

use std::sync::Arc;

use throng_store::{Batch, ReadError, Submission, SubmitError};

use super::{Inner, Node};
use crate::directory::AnyDirectory;
use crate::layout::{self, STATE_KEY_BYTES_MAX};
use crate::records::number;
use crate::tables::Tables;
use crate::users::sender;
use crate::view::View;
use crate::{CommitError, EntityError, RecordsError, inbox};

/// Change of an entity's inbox: the batch, or `None` if there is no message with the number.
type Change = fn(&View, &Tables, &[u8], u64) -> Result<Option<Batch>, ReadError>;

impl Node {
    /// Does the same as [`Entity::retry_message`](crate::Entity::retry_message), by the name of the kind.
    ///
    /// ```
    /// use throng_durable::{Node, Pending, RecordsError};
    ///
    /// /// Has the parked messages of an entity handled once more, after the program was mended.
    /// async fn retry_all(node: &Node, kind: &str, key: &str) -> Result<(), RecordsError> {
    ///     for parked in node.records().messages(kind, key, Pending::Parked, None, 100)? {
    ///         node.retry_message(kind, key, parked.sequence).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// A kind that the program has not used since its start has its messages handled when it does.
    ///
    /// # Errors
    ///
    /// [`RecordsError::NoKind`], [`RecordsError::Key`], and [`RecordsError::Entity`] with the error of the store.
    pub async fn retry_message(
        &self,
        kind: &str,
        key: &str,
        sequence: u64,
    ) -> Result<bool, RecordsError> {
        let state_key = self.state_key(kind, key)?;
        Ok(self.inner().change_inbox(&state_key, sequence, inbox::list::retry).await?)
    }

    /// Does the same as [`Entity::skip_message`](crate::Entity::skip_message), by the name of the kind.
    ///
    /// # Errors
    ///
    /// The errors of [`retry_message`](Node::retry_message).
    pub async fn skip_message(
        &self,
        kind: &str,
        key: &str,
        sequence: u64,
    ) -> Result<bool, RecordsError> {
        let state_key = self.state_key(kind, key)?;
        Ok(self.inner().change_inbox(&state_key, sequence, inbox::list::skip).await?)
    }

    /// Does the same as [`forget_unreadable`](Node::forget_unreadable), by the name of the kind; returns false if nothing
    /// is stored of the entity.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Unclaimed`] if the program has not used the kind since its start; otherwise as
    /// [`retry_message`](Node::retry_message), with any [`EntityError`].
    pub async fn forget_entity(&self, kind: &str, key: &str) -> Result<bool, RecordsError> {
        let state_key = self.state_key(kind, key)?;
        if self.records().export(kind, key)?.is_none() {
            return Ok(false);
        }
        let directory = self.inner().directory_of(&state_key).cloned();
        let directory = directory.ok_or_else(|| RecordsError::Unclaimed(kind.into()))?;
        directory.forget_entity(self.inner(), &state_key).await?;
        Ok(true)
    }

    fn state_key(&self, kind: &str, key: &str) -> Result<Vec<u8>, RecordsError> {
        let number = number(&self.inner().catalogue, kind)?;
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        Ok(layout::state_key(number, key, &mut buffer)?.to_vec())
    }
}

impl Inner {
    /// Returns the directory of the kind of an entity; `None` if the program has not used the kind.
    fn directory_of(&self, state_key: &[u8]) -> Option<&Arc<dyn AnyDirectory>> {
        let number = u16::from_be_bytes([state_key[1], state_key[2]]);
        self.shared_directories().find(|directory| directory.kind_number() == number)
    }

    /// Whether an entity is in memory.
    pub(crate) fn is_live(&self, state_key: &[u8]) -> bool {
        self.directory_of(state_key).is_some_and(|directory| directory.is_live(state_key))
    }

    /// Submits a change of an entity's records beside its turns; waits for room in the store's queue.
    pub(crate) async fn submit(
        &self,
        mut batch: Batch,
        submit: impl Fn(&mut Batch) -> Result<Submission, SubmitError>,
    ) -> Result<Submission, EntityError> {
        loop {
            if self.is_fenced() {
                return Err(EntityError::ShutDown);
            }
            match submit(&mut batch) {
                Ok(submission) => return Ok(submission),
                Err(_) if self.is_closed() => return Err(EntityError::ShutDown),
                Err(SubmitError::Overloaded) => self.store.room_for(&batch).await,
                Err(error) => {
                    return Err(EntityError::NotCommitted(CommitError::Refused(error)));
                }
            }
        }
    }

    /// Changes the inbox of an entity, and has the entity notice; returns false if it has no such message.
    pub(crate) async fn change_inbox(
        self: &Arc<Self>,
        state_key: &[u8],
        sequence: u64,
        change: Change,
    ) -> Result<bool, EntityError> {
        let batch = change(&View::of(&self.tables)?, &self.tables, state_key, sequence)?;
        let Some(batch) = batch else { return Ok(false) };
        let submission = self.submit(batch, |batch| self.store.submit(batch, sender())).await?;
        self.gate.settled(submission).await?;
        if let Some(directory) = self.directory_of(state_key) {
            directory.clone().recheck_now(self, state_key);
        }
        Ok(true)
    }
}
