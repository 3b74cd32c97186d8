//! [`Activation`]: the data of the durable layer beside the process of a live entity.
//!
//! An activation is attached to the process at its spawn and dropped with it; the drop reports
//! every end to the directory, a panic in a hook included. It is also the process's [`Layer`]:
//! every turn is committed before its reply leaves, no matter what event woke the process.
//!
//! ```text
//!            ┌──(cannot be loaded)──► failed ─────────────────────────────┐
//!  loading ──┤                                                            ▼
//!            └──► active ──(turn panicked, commit failed)──► retired ──► process ends
//!                    └──(passivated, or blank after a turn)───────────────┘
//! ```
//!
//! A *retired* activation runs no handler and writes nothing. It is out of the directory, so that
//! the next message starts a new activation, and it hands back the messages in its mailbox. A
//! *failed* activation answers each of its messages with the error. A *blank* activation found
//! nothing on disk and has committed nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};

use throng::layer::{Layer, TurnEnd};
use throng::{Address, Context, ExitReason, SpawnError};
use throng_store::{Batch, ReadError, Store, Ticket, WriteError};

use crate::cells::{Cells, Changes};
use crate::directory::Directory;
use crate::durable::{decode_state, encode_state};
use crate::layout::{self, KeyPrefix};
use crate::node::{Inner, Node, NodeGuard};
use crate::turn::Load;
use crate::users::{catch, drop_user_value};
use crate::{CommitError, Durable, Entity, EntityError, StateError};

/// The activation of an entity; the file's head has its states.
#[derive(Debug)]
pub(crate) struct Activation<P: Durable> {
    directory: Arc<Directory<P>>,
    node: Weak<Inner>,
    key: Arc<str>,
    key_prefix: KeyPrefix,
    /// The record of the state on disk, or of the default if there is none.
    committed: Vec<u8>,
    /// Whether the entity is stored, with a record on disk.
    stored: bool,
    changes: Changes,
    /// Guard that keeps the node, and with it the store, open while a turn runs; `None` between
    /// turns.
    turn: Option<NodeGuard>,
    /// Address of the process; known from the first turn on.
    address: Option<Address<P>>,
    phase: Phase,
    /// Whether the process was asked to leave and has had no other turn since.
    leaving: bool,
    passivations: Arc<AtomicU64>,
    /// Share in the count against the limit of live entities; `None` for a blank activation.
    resident: Option<CountGuard>,
    // The last field, so that the count falls only after the fields above are dropped.
    _counted: CountGuard,
}

#[derive(Debug)]
enum Phase {
    Active,
    Retired,
    Failed(Box<Failure>),
}

/// Error of an activation that failed. The callers of all messages that wait for the entity get
/// this error.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    State(StateError),
    Load(Arc<ReadError>),
    Panicked(Arc<str>),
    /// The changes of the hook `started` could not be committed.
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

/// Copies the error for another message.
fn same(error: &ReadError) -> ReadError {
    match error {
        ReadError::TooManySnapshots => ReadError::TooManySnapshots,
        ReadError::Expired => ReadError::Expired,
        ReadError::Recovering => ReadError::Recovering,
        ReadError::Corrupt(text) => ReadError::Corrupt(text.clone()),
        ReadError::Io(error) => ReadError::Io(io::Error::new(error.kind(), error.to_string())),
        error => ReadError::Io(io::Error::other(error.to_string())),
    }
}

/// Error of a message that the activation does not handle.
pub(crate) enum EnterError {
    /// The next activation handles the message. Returns the guard of the node.
    Retired(NodeGuard),
    Failed(Failure),
}

/// An activation's share of one of the node's counts; dropping it decrements the count.
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
        // Release: the acquiring load in `Node::shutdown` that reads zero sees the activations
        // gone.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A process that is about to be spawned, and is loaded in its first turn.
pub(crate) struct Fresh<P: Durable> {
    process: P,
    activation: Activation<P>,
}

impl<P: Durable> Fresh<P> {
    /// Prepares a process. Runs the user's `Default`, so no lock may be held.
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

    /// Spawns the process. The caller holds the lock of the shard, and must release it before it
    /// drops a state that is handed back.
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

    /// Drops the process; user code may run.
    pub(crate) fn discard(self) {
        drop_user_value(self.process);
    }
}

/// A process for which there was no room.
pub(crate) struct Unspawned<P: Durable> {
    error: EntityError,
    process: P,
    load: Load<P>,
}

impl<P: Durable> Unspawned<P> {
    /// Takes out the ticket of the predecessor's write, for the directory to keep again.
    pub(crate) fn take_predecessor(&mut self) -> Option<Ticket> {
        self.load.predecessor.as_mut().and_then(|predecessor| predecessor.ticket.take())
    }

    /// Drops the process; no lock may be held.
    pub(crate) fn into_error(self) -> EntityError {
        let Unspawned { error, process, load } = self;
        drop_user_value(process);
        drop(load);
        error
    }
}

/// A write of an entity, from its submission to its outcome. If it is dropped before the outcome,
/// as in a kill of the process, the ticket goes to the directory, and the next activation waits for
/// it.
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
    /// Returns the activation of the process whose turn runs; `None` if no node spawned it.
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

    /// Marks the activation as leaving; a message that comes first clears the mark.
    pub(crate) fn passivate(&mut self) {
        self.leaving = matches!(self.phase, Phase::Active);
    }

    /// Gives up the activation with all changes that are not on disk.
    pub(crate) fn retire(&mut self) {
        self.close(Phase::Retired);
    }

    /// Gives up an activation that could not be loaded.
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

    /// Sets the committed record: the record on disk if `stored`, else the record of the default.
    pub(crate) fn loaded(&mut self, record: Vec<u8>, stored: bool) {
        self.committed = record;
        self.stored = stored;
    }

    /// Counts the activation against the limit of live entities.
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

    /// Returns the node while a turn runs.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.turn.as_ref().map(NodeGuard::node)
    }

    /// Returns the entity of this activation.
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

/// Commits the turns that did not come through an [`Entity`]: hooks, timers, piped results, and
/// messages sent to the address.
impl<P: Durable> Layer<P> for Activation<P> {
    fn begin(cx: &mut Context<P>) -> Result<(), ExitReason> {
        let address = cx.address();
        let Some(activation) = Activation::of(cx) else { return Ok(()) };
        // Without a node there is no store to commit to; the node has asked the process to stop.
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
            // The turn was not the user's, or is already committed.
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
            // A state that cannot be encoded is an error of the commit.
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

/// Whether a turn that ended with this record has changes to commit.
fn is_changed<P: Durable>(cx: &mut Context<P>, record: &[u8]) -> bool {
    Activation::of(cx).is_some_and(|own| *record != *own.committed || !own.changes.is_empty())
}

/// Gives up the activation after a turn whose changes cannot be kept.
pub(crate) fn discard<P: Durable>(cx: &mut Context<P>, error: &EntityError) {
    if let Some(activation) = Activation::of(cx) {
        tracing::error!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
        activation.retire();
        cx.stop_if_idle();
    }
}

/// Ends a committed turn. An activation that is still blank leaves, unless a timer, a link or the
/// like may still wake it.
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

/// Ends the first turn, in which the activation was loaded. A blank activation stays for the
/// message that is on its way.
pub(crate) fn conclude_first<P: Durable>(cx: &mut Context<P>) {
    if let Some(activation) = Activation::of(cx) {
        if activation.stored {
            activation.reside();
        }
        activation.turn = None;
    }
}

/// Result of loading a state.
pub(crate) struct Loaded<P> {
    /// The state; `None` if nothing is stored.
    pub(crate) process: Option<P>,
    pub(crate) record: Vec<u8>,
}

/// Loads the state of an entity. The user's `Deserialize` and `migrate` run here.
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

/// Makes all changes of the turn durable, in a single batch. Without changes, the cost is that of
/// encoding the state.
///
/// A future that is dropped before it is ready has written all or nothing, and the next activation
/// waits for the outcome.
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
    // The first commit stores the state, even if only a cell was changed.
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
            // An overload does not fail the turn: it waits for room, while the deadlines of its
            // callers go on.
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
