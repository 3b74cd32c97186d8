//! [`Activation`]: the data of the durable layer beside the process of a live entity.
//!
//! An activation is attached to the process at its spawn and dropped with it; the drop reports
//! every end to the directory, a panic in a hook included. It is also the process's [`Layer`]:
//! every turn is committed before its reply leaves, no matter what event woke the process.
//!
//! ```text
//!            ┌──(cannot be loaded)──► failed ──────────────────────────────┐
//!  loading ──┤                                                             ▼
//!            └──► active ──(turn panicked, refused or lost)──► retired ──► process ends
//!                    └──(passivated, or blank after a turn)────────────────┘
//! ```
//!
//! A turn ends when its changes are submitted to the store. The process goes on with its next message,
//! and the gate holds the reply until the submission is durable. Each submission builds on the
//! activation's last one, so the store keeps a prefix of an entity's turns, whatever fails.
//!
//! A *retired* activation runs no handler and writes nothing. It is out of the directory, so that
//! the next message starts a new activation, and it passes on the messages in its mailbox. A
//! *failed* activation answers each of its messages with the error. A *blank* activation found
//! nothing on disk and has committed nothing.

use std::cell::Cell;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::layer::{Layer, TurnEnd};
use throng::{Address, Context, ExitReason, Panic, SpawnError};
use throng_store::{Batch, Codec, CommitFailure, ReadError, Snapshot, Submission, SubmitError};

use crate::catalogue::Numbered;
use crate::cells::{Cells, Changes, stored_keys};
use crate::directory::{Directory, Home};
use crate::durable::{decode_state, encode_into};
use crate::gate::{After, Held};
use crate::layout;
use crate::name::Name;
use crate::node::{Counts, Inner, Node};
use crate::turn::{Load, Passivate};
use crate::users::{catch, drop_user_value};
use crate::{
    CellError, CommitError, Durable, Entity, EntityError, MAP_NAME_BYTES_MAX, StateError, stored,
};

/// The activation of an entity; the file's head has its states.
#[derive(Debug)]
pub(crate) struct Activation<P: Durable> {
    /// `None` only while the activation is dropped.
    home: Option<Arc<Home<P>>>,
    name: Name<P>,
    changes: Changes,
    kept: Option<Box<Kept>>,
    /// Hash of the record of the state as last submitted, or of the initial state if there is none.
    submitted: u64,
    /// The last submission.
    last: Submission,
    phase: Phase,
    /// Whether the directory may have an entry of the activation.
    listed: bool,
    /// Whether a turn runs.
    in_turn: bool,
    /// Whether the entity is stored, or its first record is submitted.
    stored: bool,
    /// Whether the process was asked to leave and has had no other turn since.
    leaving: Leaving,
    /// Whether the activation counts against the limits of live entities.
    resident: bool,
    /// Size of the record of the state, as last submitted or loaded.
    size: Size,
}

/// Size of a state's record in units of 64 bytes, rounded up; at most 4 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size(u16);

impl Size {
    const UNIT: usize = 64;

    pub(crate) fn of(record: &[u8]) -> Size {
        Size(record.len().div_ceil(Size::UNIT).try_into().unwrap_or(u16::MAX))
    }

    fn bytes(self) -> usize {
        usize::from(self.0) * Size::UNIT
    }
}

/// Whether an activation leaves, and whether it has ties that end with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leaving {
    #[default]
    No,
    Yes,
    WithTies,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Active,
    Retired,
    Failed,
}

/// Anything that few activations have.
#[derive(Debug)]
enum Kept {
    /// Changes for which the store had no room; the layer waits until it has.
    Prepared(Prepared),
    /// Reason of the phase `Failed`.
    Failure(Failure),
}

/// Error of an activation that failed. The callers of all messages that wait for the entity get
/// this error.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    State(StateError),
    Load(Arc<ReadError>),
    /// The runtime ended before the state was loaded.
    ShutDown,
    Panicked(Panic),
    /// The changes of the hook `started` could not be committed.
    Started(Arc<str>),
}

impl Failure {
    /// Whether a further attempt fails for the same reason, as far as one can tell.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Failure::State(_) | Failure::Panicked(_) | Failure::Started(_) => true,
            Failure::Load(error) => matches!(**error, ReadError::Corrupt(_)),
            Failure::ShutDown => false,
        }
    }
}

impl From<Failure> for EntityError {
    fn from(failure: Failure) -> EntityError {
        match failure {
            Failure::State(error) => EntityError::State(error),
            Failure::Load(error) => EntityError::Load(same(&error)),
            Failure::ShutDown => EntityError::ShutDown,
            Failure::Panicked(panic) => EntityError::Panicked(panic),
            Failure::Started(text) => EntityError::Started(text),
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

/// Reason why an activation handles no messages.
pub(crate) enum Closed<P: Durable> {
    /// The next activation handles them.
    Retired(Entity<P>),
    /// The entity could not be loaded.
    Failed(Name<P>, Failure),
}

/// The place of an activation in the number of live ones, until it is dropped.
struct CountedLive(Arc<Counts>);

impl Drop for CountedLive {
    fn drop(&mut self) {
        // Release: the acquiring load of the thread that sees zero sees the activations gone.
        self.0.live.fetch_sub(1, Ordering::Release);
    }
}

/// A process that is about to be spawned, and is loaded in its first turn.
pub(crate) struct Fresh<P: Durable> {
    process: P,
    activation: Activation<P>,
}

impl<P: Durable> Fresh<P> {
    /// Prepares a process. Runs the user's `initial`, so no lock may be held.
    pub(crate) fn new(
        node: &Arc<Inner>,
        directory: &Arc<Directory<P>>,
        name: &Name<P>,
    ) -> Result<Fresh<P>, EntityError> {
        let Some(home) = directory.home(node) else {
            return Err(EntityError::NotRegistered { kind: P::KIND });
        };
        let process =
            catch(|| P::initial(name.key(), &home.deps)).map_err(EntityError::Panicked)?;
        const { assert!(size_of::<Activation<P>>() <= 56, "every live entity pays for it") }
        directory.counts().live.fetch_add(1, Ordering::Relaxed);
        let activation = Activation {
            home: Some(home),
            name: name.fresh(),
            changes: Changes::default(),
            kept: None,
            submitted: 0,
            last: Submission::START,
            phase: Phase::Active,
            listed: false,
            in_turn: false,
            stored: false,
            leaving: Leaving::No,
            resident: false,
            size: Size::default(),
        };
        Ok(Fresh { process, activation })
    }

    /// Returns the name of the activation.
    pub(crate) fn name(&self) -> &Name<P> {
        &self.activation.name
    }

    /// Spawns the process, which loads its state once the submissions through `after` are settled. The caller
    /// holds the lock of the shard, and must release it before it drops a process that is handed back.
    pub(crate) fn spawn(
        self,
        after: Submission,
    ) -> Result<Address<P>, (EntityError, Unspawned<P>)> {
        let runtime = self.activation.node().runtime.clone();
        runtime.spawn_layered(self.process, self.activation, Load { after }).map_err(|refused| {
            let error = match &refused {
                SpawnError::Limit { limit, .. } => EntityError::NoRoom { limit: *limit },
                _ => EntityError::ShutDown,
            };
            (error, Unspawned(Some(refused.into_process().0)))
        })
    }

    /// Drops the process; user code may run.
    pub(crate) fn discard(self) {
        drop_user_value(self.process);
    }
}

/// A process for which there was no room. No lock may be held when it is dropped.
pub(crate) struct Unspawned<P>(Option<P>);

impl<P> Drop for Unspawned<P> {
    fn drop(&mut self) {
        drop_user_value(self.0.take());
    }
}

impl<P: Durable> Activation<P> {
    /// Returns the activation of the process whose turn runs; `None` if no node spawned it.
    pub(crate) fn of(cx: &mut Context<P>) -> Option<&mut Activation<P>> {
        cx.attachment()
    }

    /// Begins a turn.
    pub(crate) fn enter(cx: &mut Context<P>) -> Result<(), Closed<P>> {
        let Some(own) = Activation::of(cx) else {
            unreachable!("only a node sends turns that enter an activation")
        };
        // Turns that build on lost changes must not run.
        if let Some(failure) = own.node().gate.failure_of(own.last) {
            own.report(&EntityError::from(failure));
            own.retire();
        }
        match (own.phase, own.kept.as_deref()) {
            (Phase::Failed, Some(Kept::Failure(failure))) => {
                return Err(Closed::Failed(own.name.clone(), failure.clone()));
            }
            (Phase::Retired | Phase::Failed, _) => {
                let node = Node::of(own.node().clone());
                return Err(Closed::Retired(own.entity(node)));
            }
            (Phase::Active, _) => {}
        }
        own.listed = true;
        own.in_turn = true;
        // A message came before the process could leave, and may have come around the directory.
        if mem::take(&mut own.leaving) != Leaving::No {
            own.stays();
        }
        Ok(())
    }

    /// Lets something leave the turn once everything that the turn has seen and done is durable, and the turn's
    /// actions have run.
    pub(crate) fn leave(&mut self, held: Box<dyn Held>) {
        let has_acted = self.release_actions();
        match self.node().gate.outcome(self.last) {
            // Another thread may be about to run the actions.
            Some(outcome) if !has_acted => held.release(outcome),
            _ => self.node().gate.hold(self.last, held),
        }
    }

    /// Lets the turn that runs build upon a submission of another entity, whose message it handles.
    ///
    /// # Errors
    ///
    /// The failure by which that submission was lost.
    pub(crate) fn build_on(&mut self, submission: Submission) -> Result<(), CommitFailure> {
        if let Some(failure) = self.node().gate.failure_of(submission) {
            return Err(failure);
        }
        self.last = self.last.max(submission);
        Ok(())
    }

    /// Returns the submission on which the turn that runs builds.
    pub(crate) fn last(&self) -> Submission {
        self.last
    }

    /// Adds an action that follows the commit of the running turn.
    pub(crate) fn add_action(&mut self, action: impl Held + 'static) {
        self.changes.add_action(action);
    }

    /// Drops the changes and actions of the running turn.
    pub(crate) fn drop_changes(&mut self) {
        drop_user_value(mem::take(&mut self.changes));
    }

    /// Removes the entity's pin once the last submission, which has removed its record, is on disk.
    pub(crate) fn unpin_after_commit(&mut self) {
        if self.name.marks().is_pinned() {
            let Home { node, directory, .. } = self.home();
            let (node, directory) = (Arc::downgrade(node), directory.clone());
            let (name, last) = (self.name.clone(), self.last);
            self.add_action(After(move || {
                if let Some(node) = node.upgrade() {
                    directory.unpin(&node, &name, last);
                }
            }));
        }
    }

    /// Marks the activation as leaving; a message that comes first clears the mark. Returns false if the
    /// activation stays for its ties.
    pub(crate) fn passivate(&mut self, asked: Passivate, is_tied: bool) -> bool {
        let is_active = matches!(self.phase, Phase::Active);
        if is_active && is_tied && asked == Passivate::Untied {
            self.name.marks().tie(self.node().tick());
            self.stays();
            return false;
        }
        self.leaving = match is_active {
            true if is_tied && asked == Passivate::Tied => Leaving::WithTies,
            true => Leaving::Yes,
            false => Leaving::No,
        };
        true
    }

    /// Takes the activation, which was asked to leave, out of the number of leaving ones.
    fn stays(&self) {
        if self.name.marks().stay() {
            self.directory().counts().stays();
        }
    }

    /// Gives up the activation with all changes that are not submitted.
    pub(crate) fn retire(&mut self) {
        self.close(Phase::Retired);
    }

    /// Gives up an activation that could not be loaded.
    pub(crate) fn fail(&mut self, failure: Failure) {
        let error = EntityError::from(failure.clone());
        tracing::error!(kind = P::KIND, key = self.key(), %error, "an entity was not activated");
        self.report(&error);
        self.close(Phase::Failed);
        self.kept = Some(Box::new(Kept::Failure(failure)));
    }

    fn close(&mut self, phase: Phase) {
        self.phase = phase;
        self.in_turn = false;
        self.drop_changes();
        self.kept = None;
        if mem::take(&mut self.listed) {
            let Home { node, directory, .. } = self.home();
            directory.retire(node, &self.name, self.last);
        }
    }

    /// Tells the entity's monitors of a failure.
    pub(crate) fn report(&self, error: &EntityError) {
        self.directory().report(self.node(), &self.name, error);
    }

    /// Notes the state that was found on the disk, by the hash and the size of its record.
    pub(crate) fn loaded(&mut self, hash: u64, size: Size) {
        self.submitted = hash;
        self.size = size;
        self.stored = true;
    }

    /// Notes that nothing was found on the disk.
    pub(crate) fn loaded_default(&mut self, process: &P) {
        // If the default cannot be encoded, that is an error of the first commit.
        let Home { node, directory, .. } = self.home();
        self.submitted = encode(process, node, directory, |_, hash| hash).unwrap_or_default();
    }

    /// Ends the first turn, in which the activation was loaded. A blank activation stays for the
    /// message that is on its way.
    pub(crate) fn begun(&mut self) {
        if self.stored || self.name.marks().is_pinned() {
            self.reside();
        }
        self.release_actions();
        self.in_turn = false;
    }

    /// Lets the actions of the running turn leave, once its changes are submitted. Returns whether it has any.
    pub(crate) fn release_actions(&mut self) -> bool {
        let actions = self.changes.take_actions();
        let has_acted = !actions.is_empty();
        for action in actions {
            // Never at once, because actions of earlier turns may still be held.
            self.node().gate.hold(self.last, action);
        }
        has_acted
    }

    /// Counts the activation against the limits of live entities.
    fn reside(&mut self) {
        if !mem::replace(&mut self.resident, true) {
            self.directory().counts().enter::<P>(self.size.bytes());
            self.name.marks().reside();
            self.node().evict_if_crowded();
        }
    }

    /// Notes the size of the record that was submitted.
    fn resize(&mut self, size: Size) {
        let before = mem::replace(&mut self.size, size);
        if self.resident && size != before {
            self.directory().counts().resize(before.bytes(), size.bytes());
            self.node().evict_if_crowded();
        }
    }

    pub(crate) fn key(&self) -> &str {
        self.name.key()
    }

    pub(crate) fn name(&self) -> &Name<P> {
        &self.name
    }

    pub(crate) fn node(&self) -> &Arc<Inner> {
        &self.home().node
    }

    pub(crate) fn home(&self) -> &Home<P> {
        match &self.home {
            Some(home) => home,
            None => unreachable!("an activation that is dropped is not used"),
        }
    }

    /// Whether a turn runs.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.in_turn
    }

    /// Returns the entity of this activation.
    pub(crate) fn entity(&self, node: Node) -> Entity<P> {
        Entity::from_parts(node, Ok(self.name.clone()))
    }

    /// Returns the entity's map of cells with this name.
    pub(crate) fn cells<K: Codec, V: Serialize + DeserializeOwned + 'static>(
        &mut self,
        map: &str,
    ) -> Cells<'_, K, V> {
        // Not by a method, because the changes are borrowed as well.
        let Some(Home { node, .. }) = self.home.as_deref() else {
            unreachable!("an activation that is dropped is not used")
        };
        let store = self.in_turn.then_some(&node.store);
        self.changes.forget_settled(&node.gate);
        let map = match map.len() {
            0..=MAP_NAME_BYTES_MAX => {
                node.catalogue.map(P::KIND, map).ok_or(CellError::TooManyMaps)
            }
            bytes => Err(CellError::NameTooLong { bytes }),
        };
        Cells::new(store, map, self.name.state_key(), &mut self.changes)
    }

    pub(crate) fn directory(&self) -> &Directory<P> {
        &self.home().directory
    }

    /// Submits the changes of the turn that ends.
    fn submit(&mut self, prepared: &mut Prepared) -> Result<(), SubmitError> {
        let submission = self.node().store.submit(&mut prepared.batch, self.last)?;
        self.last = submission;
        self.submitted = prepared.hash;
        self.resize(prepared.size);
        if !mem::replace(&mut self.stored, true) {
            self.directory().kind().submitted(submission);
        }
        if prepared.has_state
            && let Ok(shaped) = self.directory().shape()
        {
            shaped.submitted(submission);
        }
        self.changes.submitted(submission);
        BUFFERS.with(|buffers| buffers.batch.set(mem::take(&mut prepared.batch)));
        Ok(())
    }
}

impl<P: Durable> Drop for Activation<P> {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let counts = home.directory.counts();
        // Dropped last: when no activation is live, none keeps the node any more.
        let _live = CountedLive(counts.clone());
        if self.leaving != Leaving::No {
            counts.passivations.fetch_add(1, Ordering::Relaxed);
        }
        if self.leaving == Leaving::WithTies {
            counts.evicted_with_ties.fetch_add(1, Ordering::Relaxed);
        }
        if self.resident {
            counts.leave::<P>(self.size.bytes());
        }
        // A closed node clears its directories as a whole.
        if self.listed && !home.node.is_closed() {
            if self.leaving == Leaving::No {
                home.directory.report(&home.node, &self.name, &EntityError::Died);
            }
            home.directory.remove(&home.node, &self.name, self.last);
        }
        // Actions of the user's.
        drop_user_value(mem::take(&mut self.changes));
        drop(home);
    }
}

/// Commits the turns that did not come through an [`Entity`]: hooks, timers, piped results, and
/// messages sent to the address. If such a turn has a caller, the process waits in the turn until the
/// reply may leave.
impl<P: Durable> Layer<P> for Activation<P> {
    fn label(&self) -> Option<String> {
        Some(format!("{}/{}", P::KIND, self.key()))
    }

    fn begin(cx: &mut Context<P>) -> Result<(), ExitReason> {
        match Activation::enter(cx) {
            Ok(()) => Ok(()),
            Err(Closed::Retired(_)) => Err(ExitReason::other("the entity was given up")),
            Err(Closed::Failed(_, failure)) => {
                Err(ExitReason::other(EntityError::from(failure).to_string()))
            }
        }
    }

    fn end(
        process: &mut P,
        cx: &mut Context<P>,
        outcome: Result<(), &ExitReason>,
        has_caller: bool,
    ) -> TurnEnd {
        if !Activation::of(cx).is_some_and(|own| own.in_turn) {
            // The turn was not the user's, or is already committed.
            return TurnEnd::Over;
        }
        if let Err(reason) = outcome {
            discard(cx, &panicked(reason));
            return TurnEnd::Refused(reason.clone());
        }
        let submitted = match prepare(process, cx) {
            Ok(Some(prepared)) => try_commit(prepared, cx),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(own) = Activation::of(cx) else { return TurnEnd::Over };
        match submitted {
            Ok(None)
                if !has_caller || matches!(own.node().gate.outcome(own.last), Some(Ok(()))) =>
            {
                conclude(cx);
                TurnEnd::Over
            }
            Ok(prepared) => {
                if prepared.is_none() {
                    own.release_actions();
                }
                own.kept = prepared.map(|prepared| Box::new(Kept::Prepared(prepared)));
                TurnEnd::Settle
            }
            Err(error) => {
                discard(cx, &error);
                TurnEnd::Refused(reason_of(error))
            }
        }
    }

    async fn settle(_: &mut P, cx: &mut Context<P>) -> Result<(), ExitReason> {
        let settled = async {
            let kept = Activation::of(cx).and_then(|own| own.kept.take());
            if let Some(Kept::Prepared(prepared)) = kept.map(|kept| *kept) {
                commit(prepared, cx).await?;
            }
            let Some(own) = Activation::of(cx) else { return Ok(()) };
            // If the process is killed while it waits, the changes may be kept, and the actions follow them.
            own.release_actions();
            let (node, last) = (own.node().clone(), own.last);
            node.gate.settled(last).await.map_err(EntityError::from)
        };
        match settled.await {
            Ok(()) => {
                conclude(cx);
                Ok(())
            }
            Err(error) => {
                discard(cx, &error);
                Err(reason_of(error))
            }
        }
    }
}

/// Returns the error of a turn that ended by a panic.
fn panicked(reason: &ExitReason) -> EntityError {
    match reason {
        ExitReason::Panicked(panic) => EntityError::Panicked(panic.clone()),
        reason => EntityError::Panicked(reason.to_string().into()),
    }
}

/// Returns the reason that the caller of an address gets for a turn that was not kept.
fn reason_of(error: EntityError) -> ExitReason {
    match error {
        EntityError::Panicked(panic) => ExitReason::Panicked(panic),
        error => ExitReason::other(error.to_string()),
    }
}

/// Gives up the activation after a turn whose changes cannot be kept.
pub(crate) fn discard<P: Durable>(cx: &mut Context<P>, error: &EntityError) {
    if let Some(activation) = Activation::of(cx) {
        tracing::error!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
        activation.report(error);
        activation.retire();
        cx.stop_if_idle();
    }
}

/// Ends a turn whose changes are submitted. An activation that is still blank leaves, unless a timer, a link
/// or the like may still wake it.
pub(crate) fn conclude<P: Durable>(cx: &mut Context<P>) {
    let Some(activation) = Activation::of(cx) else { return };
    let marks = activation.name.marks();
    let (is_bare, was_tied) = (!activation.stored && !marks.is_pinned(), marks.is_tied());
    let is_untied = (is_bare || was_tied) && !cx.has_ties();
    let is_blank = is_bare && is_untied;
    let Some(activation) = Activation::of(cx) else { return };
    if was_tied && is_untied {
        activation.name.marks().untie();
    }
    activation.release_actions();
    if !is_blank {
        activation.reside();
    }
    activation.in_turn = false;
    if is_blank {
        activation.passivate(Passivate::Always, false);
        cx.stop_if_idle();
    }
}

/// A state that was found.
pub(crate) struct Loaded<P> {
    /// The state; `None` if nothing is stored.
    pub(crate) process: Option<P>,
    /// Hash of its record.
    pub(crate) hash: u64,
    /// Size of its record.
    pub(crate) size: Size,
}

/// Loads the state of an entity, on a thread that may block. The user's `Deserialize` and `migrate` run here.
pub(crate) fn load<P: Durable>(
    node: &Inner,
    directory: &Directory<P>,
    name: &Name<P>,
) -> Result<Loaded<P>, Failure> {
    let failed = |error| Failure::Load(Arc::new(error));
    let snapshot = node.store.snapshot().map_err(failed)?;
    Ok(match read(&snapshot, directory.kind(), name.state_key())? {
        Some((process, record)) => {
            let (hash, size) = (node.hash(record), Size::of(record));
            Loaded { process: Some(process), hash, size }
        }
        None => Loaded { process: None, hash: 0, size: Size::default() },
    })
}

/// Reads and decodes a state; returns it with its record.
pub(crate) fn read<'s, P: Durable>(
    snapshot: &'s Snapshot,
    kind: &Numbered,
    state_key: &[u8],
) -> Result<Option<(P, &'s [u8])>, Failure> {
    let record = snapshot.get(state_key).map_err(|error| Failure::Load(Arc::new(error)))?;
    let Some(record) = record else { return Ok(None) };
    let decoded = catch(|| decode_state(kind, record)).map_err(Failure::Panicked)?;
    Ok(Some((decoded.map_err(Failure::State)?, record)))
}

/// The changes of a turn, ready to be submitted.
#[derive(Debug)]
pub(crate) struct Prepared {
    batch: Batch,
    /// Whether the batch has the state, and therefore its shape.
    has_state: bool,
    /// Hash of the record of the state.
    hash: u64,
    /// Size of the record of the state.
    size: Size,
}

/// Memory for the turns of a thread, so that a turn allocates none.
#[derive(Default)]
struct Buffers {
    record: Cell<Vec<u8>>,
    batch: Cell<Batch>,
}

thread_local! {
    static BUFFERS: Buffers = Buffers::default();
}

/// Bytes beyond which a buffer is not kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Encodes the state of an entity, and passes on its record with the hash of it.
fn encode<P: Durable, R>(
    process: &P,
    node: &Inner,
    directory: &Directory<P>,
    f: impl FnOnce(&[u8], u64) -> R,
) -> Result<R, EntityError> {
    let not_encoded = |reason| EntityError::NotCommitted(CommitError::State(reason));
    let shaped = directory.shape().map_err(|reason| not_encoded(reason.into()))?;
    // The user's `Serialize` may panic like a handler.
    let mut record = BUFFERS.with(|buffers| buffers.record.take());
    record.clear();
    let encoded = catch(|| encode_into(process, shaped, &mut record));
    encoded.map_err(EntityError::Panicked)?.map_err(not_encoded)?;
    let passed_on = f(&record, node.hash(&record));
    if record.capacity() <= KEPT_BYTES_MAX {
        BUFFERS.with(|buffers| buffers.record.set(record));
    }
    Ok(passed_on)
}

/// Collects the changes of the turn; `None` if it has changed nothing. The cost is that of encoding
/// the state.
pub(crate) fn prepare<P: Durable>(
    process: &P,
    cx: &mut Context<P>,
) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    let Some(Home { node, directory, .. }) = own.home.as_deref() else { return Ok(None) };
    encode(process, node, directory, |record, hash| {
        let is_state_changed = hash != own.submitted;
        if !is_state_changed && own.changes.is_empty() {
            return Ok(None);
        }
        let mut batch = BUFFERS.with(|buffers| buffers.batch.take());
        let outcomes = node.gate.outcomes();
        // The first commit stores the state, even if only a cell was changed.
        let has_state = is_state_changed || !own.stored;
        if has_state {
            batch = batch.put(own.name.state_key(), record);
            if let Ok(shaped) = directory.shape() {
                batch = shaped.add_to(batch, outcomes);
            }
        }
        if !own.stored {
            let kind = directory.kind();
            batch = kind.add_to(batch.add(layout::count(kind.number()), 1), outcomes);
        }
        let cells = own.changes.add_to(batch, outcomes);
        let batch = cells.map_err(|error| EntityError::NotCommitted(CommitError::Cell(error)))?;
        Ok(Some(Prepared { batch, has_state, hash, size: Size::of(record) }))
    })?
}

/// Collects the removal of everything that is stored of the entity; `None` if nothing is.
pub(crate) fn prepare_removal<P: Durable>(
    cx: &mut Context<P>,
) -> Result<Option<Prepared>, EntityError> {
    let Some(own) = Activation::of(cx) else { return Ok(None) };
    let (state_key, kind) = (own.name.state_key(), own.directory().kind());
    let mut batch = Batch::new();
    if own.name.marks().is_pinned() {
        // With the record of the number, which `submit` counts as submitted by an entity's first commit.
        batch = kind.add_to(batch.delete(layout::pin(state_key)), own.node().gate.outcomes());
    }
    let failed = |error: ReadError| EntityError::NotCommitted(CommitError::Cell(error.into()));
    let snapshot = own.node().store.snapshot().map_err(failed)?;
    // A state that could not be loaded is stored, too.
    if own.stored || stored::is_stored(&snapshot, state_key).map_err(failed)? {
        batch = batch.delete(state_key).add(layout::count(kind.number()), -1);
        let cells = stored_keys(&snapshot, state_key, &own.changes).map_err(failed)?;
        batch = cells.iter().fold(batch, |batch, key| batch.delete(key));
    }
    let is_empty = batch.is_empty();
    Ok((!is_empty).then(|| Prepared { batch, has_state: false, hash: 0, size: Size::default() }))
}

/// Collects the changes of a turn that has only read the state, which are those of cells; `None` if
/// there are none. Encodes the state only if it is yet to be stored beside its first cell.
pub(crate) fn prepare_cells<P: Durable>(
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
    let batch = BUFFERS.with(|buffers| buffers.batch.take());
    let Some(Home { node, .. }) = own.home.as_deref() else { return Ok(None) };
    let cells = own.changes.add_to(batch, node.gate.outcomes());
    let batch = cells.map_err(|error| EntityError::NotCommitted(CommitError::Cell(error)))?;
    Ok(Some(Prepared { batch, has_state: false, hash: own.submitted, size: own.size }))
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
