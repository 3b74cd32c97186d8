//! The commit of a turn: its changes are collected, and submitted to the store as one batch.
//!
//! ```text
//! state, cells ──► prepare ──► Prepared ──► try_commit ──► submitted: the gate holds what leaves the turn
//!                                              └── no room ──► commit, which waits for room
//! ```

use std::cell::Cell;
use std::mem;

use throng::Context;
use throng_store::{Batch, ReadError, SubmitError};

use super::Activation;
use super::state::{Size, encode};
use crate::cells::stored_keys;
use crate::directory::Home;
use crate::inbox;
use crate::layout::{self, Table};
use crate::view::View;
use crate::{CommitError, Durable, EntityError, index, once, stored};

/// The changes of a turn, ready to be submitted.
#[derive(Debug)]
pub(crate) struct Prepared {
    batch: Batch,
    /// Whether the batch has the state, and therefore its shape.
    has_state: bool,
    /// Whether the entity is stored once the batch is.
    is_stored: bool,
    /// Hash of the record of the state.
    hash: u64,
    /// Size of the record of the state.
    size: Size,
    /// The change in the indexes, if there is one.
    indexed: Option<Box<index::Changed>>,
}

thread_local! {
    /// Memory for the batches of the turns of a thread.
    static BATCH: Cell<Batch> = Cell::default();
}

/// Collects the changes of the turn; `None` if it has changed nothing. The cost is that of encoding
/// the state.
fn prepare<P: Durable>(process: &P, cx: &mut Context<P>) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    let Some(Home { node, directory, .. }) = own.home.as_deref() else { return Ok(None) };
    encode(process, node, directory, |record, hash| {
        let is_state_changed = hash != own.submitted;
        if !is_state_changed && own.changes.is_empty() {
            return Ok(None);
        }
        let mut batch = BATCH.take();
        let mut indexed = None;
        let outcomes = node.gate.outcomes();
        // The first commit stores the state, even if only a cell was changed. Messages and the like may be sent
        // or handled by an entity that is not stored.
        let has_state = is_state_changed || (!own.stored && own.changes.has_cells());
        if has_state {
            let state_key = own.name.state_key();
            batch = batch.put(node.tables.at(state_key), state_key, record);
            if let Ok(shaped) = directory.shape() {
                batch = shaped.add_to(batch, &node.tables, outcomes);
            }
            let place = (&**node, &**directory, own.name.state_key());
            let before = own.kept.as_ref().and_then(|kept| kept.keys.as_ref());
            (batch, indexed) = index::add_to(process, place, before, batch)?;
        }
        let is_stored = own.stored || has_state;
        if is_stored && !own.stored {
            let kind = directory.kind();
            let count = layout::count(kind.number());
            batch = batch.add(node.tables.at(&count), &count, 1);
            batch = kind.add_to(batch, &node.tables, outcomes);
        }
        let batch = own.changes.add_to(batch, &node.tables, outcomes)?;
        let size = Size::of(record);
        Ok(Some(Prepared { batch, has_state, is_stored, hash, size, indexed }))
    })?
}

/// Collects the removal of everything that is stored of the entity; `None` if nothing is.
pub(crate) fn prepare_removal<P: Durable>(
    cx: &mut Context<P>,
) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    let failed = |error: ReadError| EntityError::NotCommitted(CommitError::Cell(error.into()));
    let view = View::of(&own.node().tables).map_err(failed)?;
    let reminders = own.forget_reminders(&view).map_err(failed)?;
    let (state_key, kind) = (own.name.state_key(), own.directory().kind());
    let tables = &own.node().tables;
    let delete = |batch: Batch, key: &[u8]| batch.delete(tables.at(key), key);
    let mut batch = reminders.iter().fold(Batch::new(), |batch, key| delete(batch, key));
    if own.name.marks().is_pinned() {
        // With the record of the number, which `submit` counts as submitted by an entity's first commit.
        batch = delete(batch, &layout::pin(state_key));
        batch = kind.add_to(batch, tables, own.node().gate.outcomes());
    }
    // Messages that wait are for the next activation.
    for parked in inbox::list::keys(&view, Table::Parked, state_key).map_err(failed)? {
        batch = delete(batch, &parked);
    }
    for key in once::keys(&view, state_key).map_err(failed)? {
        batch = delete(batch, &key);
    }
    // A state that could not be loaded is stored, too.
    if own.stored || stored::is_stored(&view, state_key).map_err(failed)? {
        let count = layout::count(kind.number());
        batch = delete(batch, state_key).add(tables.at(&count), &count, -1);
        let cells = stored_keys(&view, state_key, &own.changes).map_err(failed)?;
        batch = cells.iter().fold(batch, |batch, key| delete(batch, key));
        let entries = match own.kept.as_ref().and_then(|kept| kept.keys.as_ref()) {
            Some(keys) => index::entries_of(own.directory().indexes(), state_key, keys),
            None if P::INDEXES.is_empty() => Vec::new(),
            // The state could not be loaded.
            None => index::search_entries(&view, state_key).map_err(failed)?,
        };
        batch = entries.iter().fold(batch, |batch, key| delete(batch, key));
    }
    let is_empty = batch.is_empty();
    let batch = own.directory().indexes().add_to(batch, own.node());
    Ok((!is_empty).then(|| Prepared {
        batch,
        has_state: false,
        is_stored: true,
        hash: 0,
        size: Size::default(),
        indexed: None,
    }))
}

/// Collects the changes of a turn that has only read the state, which are those of cells; `None` if
/// there are none. Encodes the state only if it is yet to be stored beside its first cell.
fn prepare_cells<P: Durable>(
    process: &P,
    cx: &mut Context<P>,
) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    if own.changes.is_empty() {
        return Ok(None);
    }
    if !own.stored {
        return prepare(process, cx);
    }
    let batch = BATCH.take();
    let Some(Home { node, .. }) = own.home.as_deref() else { return Ok(None) };
    let batch = own.changes.add_to(batch, &node.tables, node.gate.outcomes())?;
    let (hash, size) = (own.submitted, own.size);
    Ok(Some(Prepared { batch, has_state: false, is_stored: true, hash, size, indexed: None }))
}

impl<P: Durable> Activation<P> {
    /// Submits the changes of the turn that ends.
    fn submit(&mut self, prepared: &mut Prepared) -> Result<(), SubmitError> {
        if self.node().is_fenced() {
            return Err(SubmitError::Standby);
        }
        let submission = self.node().store.submit(&mut prepared.batch, self.last)?;
        self.last = submission;
        self.submitted = prepared.hash;
        self.resize(prepared.size);
        if prepared.is_stored && !mem::replace(&mut self.stored, true) {
            self.directory().kind().submitted(submission);
        }
        if prepared.has_state
            && let Ok(shaped) = self.directory().shape()
        {
            shaped.submitted(submission);
            self.directory().indexes().submitted(submission);
        }
        if let Some(indexed) = prepared.indexed.take() {
            self.kept().keys = Some(indexed.submitted(submission));
        }
        self.changes.submitted(submission);
        BATCH.set(mem::take(&mut prepared.batch));
        let outgoing = self.changes.take_outgoing();
        if !outgoing.is_empty() {
            let node = self.node().clone();
            outgoing.into_iter().for_each(|message| message.leave(&node, submission));
        }
        Ok(())
    }
}

/// Ends the user's turn: submits its changes, and hands them back if the store's queue has no room.
///
/// Every turn ends here, whatever woke the process.
pub(crate) fn submit_turn<P: Durable>(
    process: &P,
    cx: &mut Context<P>,
    reads_only: bool,
) -> Result<Option<Prepared>, EntityError> {
    if let Some(own) = Activation::of(cx)
        && own.has_reminders()
    {
        own.index_reminders();
    }
    let prepared = match reads_only {
        true => prepare_cells(process, cx),
        false => prepare(process, cx),
    };
    prepared?.map_or(Ok(None), |prepared| try_commit(prepared, cx))
}

/// Submits the changes of a turn; hands them back if the store's queue has no room.
fn try_commit<P: Durable>(
    mut prepared: Prepared,
    cx: &mut Context<P>,
) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    match own.submit(&mut prepared) {
        Ok(()) => Ok(None),
        Err(SubmitError::Overloaded) => Ok(Some(prepared)),
        Err(error) => Err(EntityError::NotCommitted(CommitError::Refused(error))),
    }
}

/// Submits the changes of a turn. An overload of the store does not fail the turn: it waits for room, while
/// the deadlines of its callers go on.
pub(crate) async fn commit<P: Durable>(
    mut prepared: Prepared,
    cx: &mut Context<P>,
) -> Result<(), EntityError> {
    while let Some(refused) = try_commit(prepared, cx)? {
        prepared = refused;
        if let Some(node) = Activation::of(cx).map(|own| own.node().clone()) {
            node.store.room_for(&prepared.batch).await;
        }
    }
    Ok(())
}
