//! [`Activation`]: what the durable layer keeps with the process of a live entity.
//!
//! It is attached to the process at its spawn and dropped with it, by which the directory learns
//! of any end, a panic in a hook included. It is also the process's [`Layer`]: every turn, whatever
//! woke the process, is committed before its reply leaves.
//!
//! ```text
//!            ┌──(cannot be loaded)──► failed ─────────────────────────────┐
//!  loading ──┤                                                            ▼
//!            └──► active ──(turn panicked, commit failed)──► retired ──► process ends
//!                    └──(passivated, or blank after a turn)───────────────┘
//! ```
//!
//! A *retired* activation runs no handler and writes nothing any more. It is out of the directory,
//! so that the next message activates the entity anew, and hands back what is still in its mailbox.
//! A *failed* one tells each of its messages why. A *blank* one found nothing on disk and has
//! committed nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};

use throng::{Address, Context, ExitReason, Layer, SpawnError, TurnEnd};
use throng_store::{Batch, ReadError, Store, Ticket, WriteError};

use crate::cells::{Cells, Changes};
use crate::directory::Directory;
use crate::durable::{decode_state, encode_state};
use crate::layout::{self, KeyPrefix};
use crate::node::{Inner, Node, NodeGuard};
use crate::turn::Load;
use crate::users::{catch, drop_users};
use crate::{CommitError, Durable, Entity, EntityError, StateError};

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Activation<P: Durable> {
    directory: Arc<Directory<P>>,
    node: Weak<Inner>,
    key: Arc<str>,
    key_prefix: KeyPrefix,
    /// The record of the state on disk, or of the default if there is none.
    committed: Vec<u8>,
    /// Whether there is one.
    stored: bool,
    changes: Changes,
    /// Keeps the node, and with it the store, open while a turn runs; none between two turns.
    turn: Option<NodeGuard>,
    /// Known from the first turn on.
    address: Option<Address<P>>,
    phase: Phase,
    /// Whether it was asked to leave, and nobody has wanted anything since.
    leaving: bool,
    passivations: Arc<AtomicU64>,
    /// Whether it counts against the limit of live entities; a blank one does not.
    resident: Option<CountGuard>,
    // Last, so that the count falls only after everything above is gone.
    _counted: CountGuard,
}

#[derive(Debug)]
enum Phase {
    Active,
    Retired,
    Failed(Box<Failure>),
}

/// The reason for which an entity could not be brought into memory. The callers of all messages that
/// wait for it get this error.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    State(StateError),
    Load(Arc<ReadError>),
    Panicked(Arc<str>),
    /// The hook `started` could not be committed.
    Started(Arc<str>),
}

impl From<Failure> for EntityError {
    fn from(failure: Failure) -> EntityError {
        match failure {
            Failure::State(error) => EntityError::State(error),
            Failure::Load(error) => EntityError::Load(same(&error)),
            Failure::Panicked(text) => EntityError::Panicked(text),
            Failure::Started(text) => EntityError::Died(ExitReason::Other(text)),
        }
    }
}

/// The same error for another message.
fn same(error: &ReadError) -> ReadError {
    match error {
        ReadError::TooManySnapshots => ReadError::TooManySnapshots,
        ReadError::Expired => ReadError::Expired,
        ReadError::BrokenOff => ReadError::BrokenOff,
        ReadError::Corrupt(text) => ReadError::Corrupt(text.clone()),
        ReadError::Io(error) => ReadError::Io(io::Error::new(error.kind(), error.to_string())),
        error => ReadError::Io(io::Error::other(error.to_string())),
    }
}

/// Why a message is not handled by an activation.
pub(crate) enum EnterError {
    /// The next one will handle it. The node comes back.
    Retired(NodeGuard),
    Failed(Failure),
}

/// One activation in a count of the node's.
#[derive(Debug)]
pub(crate) struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    fn new(count: &Arc<AtomicUsize>) -> CountGuard {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(count.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        // Pairs with the load in `Node::shutdown`: who sees zero sees the activations gone.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A process that is about to be spawned, and is loaded in its first turn.
pub(crate) struct Fresh<P: Durable> {
    process: P,
    activation: Activation<P>,
}

impl<P: Durable> Fresh<P> {
    /// Runs the user's `Default`, so no lock may be held.
    pub(crate) fn new(
        node: &Arc<Inner>,
        directory: &Arc<Directory<P>>,
        key: &Arc<str>,
    ) -> Result<Fresh<P>, EntityError> {
        let key_prefix = KeyPrefix::new(P::KIND, key)?;
        let process = catch(P::default).map_err(EntityError::Panicked)?;
        let activation = Activation {
            directory: directory.clone(),
            node: Arc::downgrade(node),
            key: key.clone(),
            key_prefix,
            committed: Vec::new(),
            stored: false,
            changes: Changes::default(),
            turn: None,
            address: None,
            phase: Phase::Active,
            leaving: false,
            passivations: node.passivations.clone(),
            resident: None,
            _counted: CountGuard::new(&node.live),
        };
        Ok(Fresh { process, activation })
    }

    /// Spawns the process. The caller holds the lock of its shard; a state that comes back is to be
    /// dropped without it.
    pub(crate) fn spawn(
        self,
        node: &Arc<Inner>,
        predecessor: Option<PendingWrite<P>>,
    ) -> Result<Address<P>, Box<Unspawned<P>>> {
        let load = Load { guard: Node::from_inner(node.clone()).guard(), predecessor };
        node.runtime.spawn_layered(self.process, self.activation, load).map_err(|refused| {
            let error = match &refused {
                SpawnError::Limit { limit, .. } => EntityError::NoRoom { limit: *limit },
                _ => EntityError::ShutDown,
            };
            let (process, load) = refused.into_process();
            Box::new(Unspawned { error, process, load })
        })
    }

    /// Drops it; the user's code may run.
    pub(crate) fn discard(self) {
        drop_users(self.process);
    }
}

/// A process for which there was no room.
pub(crate) struct Unspawned<P: Durable> {
    error: EntityError,
    process: P,
    load: Load<P>,
}

impl<P: Durable> Unspawned<P> {
    /// Takes the ticket of the predecessor's write out, to be kept in the directory again.
    pub(crate) fn take_predecessor(&mut self) -> Option<Ticket> {
        self.load.predecessor.as_mut().and_then(|predecessor| predecessor.ticket.take())
    }

    /// Drops the process; no lock may be held.
    pub(crate) fn into_error(self) -> EntityError {
        let Unspawned { error, process, load } = self;
        drop_users(process);
        drop(load);
        error
    }
}

/// A write of an entity's, from its submission to its outcome. Dropped before, as when its process
/// is killed, it goes to the directory, for the next activation to wait for.
#[derive(Debug)]
pub(crate) struct PendingWrite<P: Durable> {
    ticket: Option<Ticket>,
    directory: Arc<Directory<P>>,
    key: Arc<str>,
}

impl<P: Durable> PendingWrite<P> {
    pub(crate) fn new(ticket: Ticket, directory: Arc<Directory<P>>, key: Arc<str>) -> Self {
        PendingWrite { ticket: Some(ticket), directory, key }
    }
}

impl<P: Durable> Future for PendingWrite<P> {
    type Output = Result<(), WriteError>;

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Result<(), WriteError>> {
        let Some(ticket) = &mut self.ticket else { return Poll::Pending };
        let outcome = ready!(Pin::new(ticket).poll(cx));
        self.ticket = None;
        Poll::Ready(outcome)
    }
}

impl<P: Durable> Drop for PendingWrite<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.directory.keep_unresolved(&self.key, ticket);
        }
    }
}

impl<P: Durable> Activation<P> {
    /// The activation of the process whose turn this is; `None` if no node spawned it.
    pub(crate) fn of(cx: &mut Context<P>) -> Option<&mut Activation<P>> {
        cx.attachment()
    }

    /// Begins a turn at `address`.
    pub(crate) fn enter(
        &mut self,
        address: Address<P>,
        guard: NodeGuard,
    ) -> Result<(), EnterError> {
        match &self.phase {
            Phase::Active => {}
            Phase::Retired => return Err(EnterError::Retired(guard)),
            Phase::Failed(failure) => return Err(EnterError::Failed(Failure::clone(failure))),
        }
        self.address = Some(address);
        self.turn = Some(guard);
        self.leaving = false;
        Ok(())
    }

    /// It leaves, unless a message comes first.
    pub(crate) fn passivate(&mut self) {
        self.leaving = matches!(self.phase, Phase::Active);
    }

    /// Gives the activation up, with everything that is not on disk.
    pub(crate) fn retire(&mut self) {
        self.close(Phase::Retired);
    }

    /// Gives the activation up, which could not be loaded.
    pub(crate) fn fail(&mut self, failure: Failure) {
        let error = EntityError::from(failure.clone());
        tracing::error!(kind = P::KIND, key = self.key(), %error, "an entity was not activated");
        self.close(Phase::Failed(Box::new(failure)));
    }

    fn close(&mut self, phase: Phase) {
        self.phase = phase;
        self.turn = None;
        self.changes = Changes::default();
        if let Some(address) = self.address.take() {
            self.directory.retire(&self.key, address);
        }
    }

    /// The record was found on disk, or it is the default's and there is none.
    pub(crate) fn loaded(&mut self, record: Vec<u8>, stored: bool) {
        self.committed = record;
        self.stored = stored;
    }

    /// Counts it against the limit of live entities.
    fn reside(&mut self) {
        if self.resident.is_none()
            && let Some(node) = self.turn.as_ref().map(|guard| guard.node().inner().clone())
            && let Some(address) = self.address
        {
            self.resident = Some(CountGuard::new(&node.residents));
            self.directory.reside(&self.key, address);
            node.evict_if_crowded_since(node.count_resident());
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn key_prefix(&self) -> &KeyPrefix {
        &self.key_prefix
    }

    /// The node, while a turn runs.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.turn.as_ref().map(NodeGuard::node)
    }

    /// The entity this is, or was, an activation of.
    pub(crate) fn entity(&self, node: Node) -> Entity<P> {
        Entity::from_parts(node, self.directory.clone(), self.key.clone())
    }

    pub(crate) fn cells(&mut self) -> Cells<'_> {
        let store = self.turn.as_ref().map(|guard| &guard.node().inner().store);
        Cells::new(store, &self.key_prefix, &mut self.changes)
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

/// Around the turns that did not come through an [`Entity`]: hooks, timers, piped results, and what
/// was sent to the address.
impl<P: Durable> Layer<P> for Activation<P> {
    fn begin(cx: &mut Context<P>) -> Result<(), ExitReason> {
        let address = cx.address();
        let Some(activation) = Activation::of(cx) else { return Ok(()) };
        // Without a node there is nothing to commit to; it has asked the process to stop.
        let node = activation.node.upgrade().ok_or(ExitReason::Shutdown)?;
        match activation.enter(address, Node::from_inner(node).guard()) {
            Ok(()) => Ok(()),
            Err(EnterError::Retired(_)) => Err(ExitReason::other("the entity was given up")),
            Err(EnterError::Failed(failure)) => {
                Err(ExitReason::other(EntityError::from(failure).to_string()))
            }
        }
    }

    fn end(process: &mut P, cx: &mut Context<P>, outcome: Result<(), &ExitReason>) -> TurnEnd {
        let Some(activation) = Activation::of(cx) else { return TurnEnd::Over };
        if activation.turn.is_none() {
            // It was none of the user's, or has been committed.
            return TurnEnd::Over;
        }
        if let Err(reason) = outcome {
            discard(cx, &crate::entity::died(reason.clone()));
            return TurnEnd::Refused(reason.clone());
        }
        match catch(|| encode_state(process)) {
            Ok(Ok(record)) if !is_changed(cx, &record) => {
                conclude(cx);
                TurnEnd::Over
            }
            // What cannot be encoded is an error of the commit.
            Ok(_) => TurnEnd::Settle,
            Err(text) => {
                discard(cx, &EntityError::Panicked(text.clone()));
                TurnEnd::Refused(ExitReason::Panicked(text))
            }
        }
    }

    async fn settle(process: &mut P, cx: &mut Context<P>) -> Result<(), ExitReason> {
        let state = catch(|| encode_state(process));
        let committed = match state {
            Ok(state) => commit(state, cx).await,
            Err(text) => Err(EntityError::Panicked(text)),
        };
        match committed {
            Ok(()) => {
                conclude(cx);
                Ok(())
            }
            Err(error) => {
                discard(cx, &error);
                Err(ExitReason::other(error.to_string()))
            }
        }
    }
}

/// Whether a turn that left this record has anything to commit.
fn is_changed<P: Durable>(cx: &mut Context<P>, record: &[u8]) -> bool {
    Activation::of(cx).is_some_and(|own| *record != *own.committed || !own.changes.is_empty())
}

/// Gives up the activation whose turn cannot be kept.
pub(crate) fn discard<P: Durable>(cx: &mut Context<P>, error: &EntityError) {
    if let Some(activation) = Activation::of(cx) {
        tracing::error!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
        activation.retire();
        cx.stop_if_idle();
    }
}

/// Ends a turn that is committed. An activation that is still blank leaves, unless something it did
/// may still wake it.
pub(crate) fn conclude<P: Durable>(cx: &mut Context<P>) {
    let is_blank = Activation::of(cx).is_some_and(|own| !own.stored) && !cx.has_ties();
    let Some(activation) = Activation::of(cx) else { return };
    if !is_blank {
        activation.reside();
    }
    activation.turn = None;
    if is_blank {
        activation.passivate();
        cx.stop_if_idle();
    }
}

/// Ends the first turn: the activation is loaded. A blank one stays for the message that is on its
/// way.
pub(crate) fn conclude_first<P: Durable>(cx: &mut Context<P>) {
    if let Some(activation) = Activation::of(cx) {
        if activation.stored {
            activation.reside();
        }
        activation.turn = None;
    }
}

/// A state as it was found.
pub(crate) struct Loaded<P> {
    /// None if nothing is stored.
    pub(crate) process: Option<P>,
    pub(crate) record: Vec<u8>,
}

/// Reads the state of an entity. The user's `Deserialize` and `migrate` run here.
pub(crate) fn load<P: Durable>(
    store: &Store,
    key_prefix: &KeyPrefix,
) -> Result<Loaded<P>, Failure> {
    let load = || {
        let snapshot = store.snapshot().map_err(Failure::load)?;
        match snapshot.get(&key_prefix.state()).map_err(Failure::load)? {
            Some(record) => {
                let process = decode_state(record).map_err(Failure::State)?;
                Ok(Loaded { process: Some(process), record: record.to_vec() })
            }
            None => Ok(Loaded { process: None, record: Vec::new() }),
        }
    };
    catch(load).unwrap_or_else(|text| Err(Failure::Panicked(text)))
}

impl Failure {
    fn load(error: ReadError) -> Failure {
        Failure::Load(Arc::new(error))
    }
}

/// Makes everything the turn changed durable, in one batch. Costs no more than encoding the state
/// if nothing changed.
///
/// A future that is dropped in the middle has written all or nothing, and the next activation
/// waits until it is known which.
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
        batch = batch.put(activation.key_prefix.state(), &record);
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
    let (directory, key) = (activation.directory.clone(), activation.key.clone());
    loop {
        match PendingWrite::new(store.write(batch), directory.clone(), key.clone()).await {
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
