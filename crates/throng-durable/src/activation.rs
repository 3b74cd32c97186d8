//! [`Activation`]: what the durable layer keeps with the process of a live entity.
//!
//! It is attached to the process at its spawn and dropped with it, by which the directory learns
//! of any end, a panic in a hook included.
//!
//! ```text
//!  start ──► active ──(handler panicked, commit failed)──► retired ──► process ends
//!               └───────────────(idle: passivated)────────────────────────┘
//! ```
//!
//! A *retired* activation runs no handler and writes nothing any more. It is out of the directory,
//! so that the next message activates the entity anew, and hands back what is still in its mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use throng::{Address, Context, SpawnError};
use throng_store::{Batch, WriteError};

use crate::cells::{Cells, Changes};
use crate::directory::Directory;
use crate::durable::{decode_state, encode_state};
use crate::layout::{self, Place};
use crate::node::{Hold, Inner, Node};
use crate::{CommitError, Durable, Entity, EntityError};

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Activation<P: Durable> {
    directory: Arc<Directory<P>>,
    key: Arc<str>,
    place: Place,
    /// The record of the state on disk, or of the default if there is none.
    committed: Vec<u8>,
    /// Whether there is one.
    stored: bool,
    changes: Changes,
    /// Keeps the node, and with it the store, open while a turn runs; comes with its message. Also
    /// before the first turn, for the hook that runs then.
    turn: Option<Hold>,
    /// Known from the first turn on.
    address: Option<Address<P>>,
    retired: bool,
    /// Whether it was asked to leave, and nobody has wanted anything since.
    leaving: bool,
    passivations: Arc<AtomicU64>,
    // Last, so that the count falls only after everything above is gone.
    _counted: Counted,
}

/// One live activation in the node's count.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Pairs with the load in `Node::shutdown`: who sees zero sees the activations gone.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Loads an entity and spawns its process. The caller holds the lock of its shard.
pub(crate) fn start<P: Durable>(
    node: &Arc<Inner>,
    directory: &Arc<Directory<P>>,
    key: &Arc<str>,
) -> Result<Address<P>, EntityError> {
    let place = Place::new(P::KIND, key)?;
    let snapshot = node.store.snapshot()?;
    let (process, committed, stored) = match snapshot.get(&place.state())? {
        Some(record) => (decode_state(record)?, record.to_vec(), true),
        None => {
            let process = P::default();
            // If the default cannot be encoded, that is an error of the first commit.
            let record = encode_state(&process).unwrap_or_default();
            (process, record, false)
        }
    };
    drop(snapshot);
    let activation = Activation {
        directory: directory.clone(),
        key: key.clone(),
        place,
        committed,
        stored,
        changes: Changes::default(),
        turn: Some(Node::from_inner(node.clone()).hold()),
        address: None,
        retired: false,
        leaving: false,
        passivations: node.passivations.clone(),
        _counted: Counted::new(&node.live),
    };
    node.runtime.spawn_attached(process, activation).map_err(|error| match error {
        SpawnError::Limit { limit, .. } => EntityError::NoRoom { limit },
        _ => EntityError::ShutDown,
    })
}

impl<P: Durable> Activation<P> {
    /// The activation of the process whose turn this is; `None` if no node spawned it.
    pub(crate) fn of(cx: &mut Context<P>) -> Option<&mut Activation<P>> {
        cx.attachment()
    }

    /// Begins a turn at `address`; hands the node back if there can be none any more.
    pub(crate) fn enter(&mut self, address: Address<P>, hold: Hold) -> Result<(), Hold> {
        if self.retired {
            return Err(hold);
        }
        self.address = Some(address);
        self.turn = Some(hold);
        self.leaving = false;
        Ok(())
    }

    /// Ends a turn that has been committed.
    pub(crate) fn leave(&mut self) {
        self.turn = None;
    }

    /// It leaves, unless a message comes first.
    pub(crate) fn passivate(&mut self) {
        self.leaving = !self.retired;
    }

    /// Gives the activation up, with everything that is not on disk.
    pub(crate) fn retire(&mut self) {
        self.retired = true;
        self.turn = None;
        self.changes = Changes::default();
        if let Some(address) = self.address.take() {
            self.directory.retire(&self.key, address);
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The node, while a turn runs.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.turn.as_ref().map(Hold::node)
    }

    /// The entity this is, or was, an activation of.
    pub(crate) fn entity(&self, node: Node) -> Entity<P> {
        Entity::from_parts(node, self.directory.clone(), self.key.clone())
    }

    pub(crate) fn cells(&mut self) -> Cells<'_> {
        let store = self.turn.as_ref().map(|hold| &hold.node().inner().store);
        Cells::new(store, &self.place, &mut self.changes)
    }
}

impl<P: Durable> Drop for Activation<P> {
    fn drop(&mut self) {
        if self.leaving {
            self.passivations.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(address) = self.address.take() {
            self.directory.remove(&self.key, address);
        }
    }
}

/// Makes everything the turn changed durable, in one batch. Costs no more than encoding the state
/// if nothing changed.
pub(crate) async fn commit<P: Durable>(
    state: Result<Vec<u8>, String>,
    cx: &mut Context<P>,
) -> Result<(), EntityError> {
    let not_committed = |error| Err(EntityError::NotCommitted(error));
    let record = match state {
        Ok(record) => record,
        Err(reason) => return not_committed(CommitError::State(reason)),
    };
    let Some(activation) = Activation::of(cx) else { return Ok(()) };
    let state_changed = record != activation.committed;
    if !state_changed && activation.changes.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    // With its first commit an entity is stored, even if only a cell was changed.
    if state_changed || !activation.stored {
        batch = batch.put(activation.place.state(), &record);
    }
    if !activation.stored {
        batch = batch.add(layout::count(P::KIND), 1);
    }
    batch = match activation.changes.drain_into(batch) {
        Ok(batch) => batch,
        Err(error) => return not_committed(CommitError::Cell(error)),
    };
    let Some(store) = activation.node().map(|node| node.inner().store.clone()) else {
        return not_committed(CommitError::Write(WriteError::Closed(batch)));
    };
    loop {
        match store.write(batch).await {
            Ok(()) => break,
            // The callers' deadlines run on; the turn itself is not lost to a rush.
            Err(WriteError::Overloaded(handed_back)) => batch = handed_back,
            Err(error @ WriteError::Unknown { .. }) => return Err(EntityError::Unknown(error)),
            Err(error) => return not_committed(CommitError::Write(error)),
        }
        store.room_for(&batch).await;
    }
    if let Some(activation) = Activation::of(cx) {
        activation.committed = record;
        activation.stored = true;
    }
    Ok(())
}
