//! [`Activation`]: the data of the durable layer beside the process of a live entity.
//!
//! An activation is attached to the process at its spawn and dropped with it; the drop reports
//! every end to the directory, a panic in a hook included. It is also the process's layer:
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

mod commit;
mod failure;
mod layer;
mod state;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Address, Context, SpawnError};
use throng_store::{Codec, CommitFailure, Submission};

use self::commit::Prepared;
use self::state::{Size, encode};
use crate::cells::Cells;
use crate::changes::Changes;
use crate::directory::{Directory, Home};
use crate::gate::{After, Held};
use crate::inbox::Backlog;
use crate::index::Keys;
use crate::name::Name;
use crate::node::{Counts, Inner, Node};
use crate::reminder::List;
use crate::turn::{Load, Passivate};
use crate::users::{Sender, catch, drop_user_value};
use crate::{CellError, Durable, Entity, EntityError, MAP_NAME_BYTES_MAX};

pub(crate) use self::commit::{commit, prepare_removal, submit_turn};
pub(crate) use self::failure::Failure;
pub(crate) use self::layer::{conclude, discard};
pub(crate) use self::state::{load, read};

/// Time after which an entity with messages that wait is loaded again, after it could not be.
const RETRY: Duration = Duration::from_secs(5);

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
    /// Whether a turn has begun, and the directory may have an entry of the activation.
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
#[derive(Debug, Default)]
struct Kept {
    /// Changes for which the store had no room; the layer waits until it has.
    prepared: Option<Prepared>,
    /// Reason of the phase `Failed`.
    failure: Option<Failure>,
    /// Stored messages that the activation feeds to itself.
    backlog: Option<Backlog>,
    /// Reminders of the entity, if they are known.
    reminders: Option<Box<List>>,
    /// Keys of the state as last submitted, if it is stored and its kind has indexes.
    keys: Option<Keys>,
    /// Time of the last record of an expiry, in milliseconds since 1970.
    expiry: u64,
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
        let failure = own.kept.as_ref().and_then(|kept| kept.failure.as_ref());
        match (own.phase, failure) {
            (Phase::Failed, Some(failure)) => {
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

    /// Whether the reply of the turn that ends has to wait for the disk, or for an action.
    fn must_wait(&self) -> bool {
        self.changes.has_actions() || !matches!(self.node().gate.outcome(self.last), Some(Ok(())))
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

    /// Returns the sender of what the turn that runs sends.
    pub(crate) fn sender(&self) -> Sender {
        Sender { store: self.node().store_id, submission: self.last }
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
        self.kept().failure = Some(failure);
        let Home { node, directory, .. } = self.home();
        directory.recheck_later(node, self.name.state_key(), RETRY);
    }

    fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_default()
    }

    /// Returns the time of the last record of an expiry, in milliseconds since 1970, to be replaced with that of the next.
    pub(crate) fn last_expiry(&mut self) -> &mut u64 {
        &mut self.kept().expiry
    }

    /// Returns the stored messages that the activation feeds to itself, if it ever had some.
    pub(crate) fn backlog(&mut self) -> Option<&mut Backlog> {
        self.kept.as_mut()?.backlog.as_mut()
    }

    /// Returns the backlog, and makes one first if there is none.
    pub(crate) fn backlog_mut(&mut self) -> &mut Backlog {
        self.kept().backlog.get_or_insert_default()
    }

    /// Returns the place of the entity's reminders.
    pub(crate) fn reminders(&mut self) -> &mut Option<Box<List>> {
        match &mut self.kept {
            Some(kept) => &mut kept.reminders,
            none => &mut none.insert(Box::default()).reminders,
        }
    }

    /// Whether the entity is stored, or its first record is submitted.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored
    }

    /// Whether a turn of the activation has used reminders.
    pub(crate) fn has_reminders(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.reminders.is_some())
    }

    /// Returns the changes of the turn that runs.
    pub(crate) fn changes(&mut self) -> &mut Changes {
        &mut self.changes
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
    pub(crate) fn loaded(&mut self, hash: u64, size: Size, keys: Option<Keys>) {
        if keys.is_some() {
            self.kept().keys = keys;
        }
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
        let Some(Home { node, directory, .. }) = self.home.as_deref() else {
            unreachable!("an activation that is dropped is not used")
        };
        let table = self.in_turn.then_some(&node.tables);
        self.changes.forget_settled(&node.gate);
        let map = match map.len() {
            _ if self.changes.is_lent() => Err(CellError::Taken),
            0..=MAP_NAME_BYTES_MAX => {
                directory.map(map, &node.catalogue).ok_or(CellError::TooManyMaps)
            }
            bytes => Err(CellError::NameTooLong { bytes }),
        };
        Cells::new(table, map, self.name.state_key(), &mut self.changes)
    }

    pub(crate) fn directory(&self) -> &Arc<Directory<P>> {
        &self.home().directory
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
        // A process may be killed before its first turn, with messages in its mailbox.
        let is_unused = matches!(self.phase, Phase::Active) && !self.listed;
        let is_listed = self.listed || is_unused && self.name.marks().ended_unused();
        // A closed node clears its directories as a whole.
        if is_listed && !home.node.is_closed() {
            if self.leaving == Leaving::No {
                home.directory.report(&home.node, &self.name, &EntityError::Died);
            }
            let has_lost = !P::MESSAGES.is_empty()
                && (self.leaving == Leaving::No
                    || self.backlog().is_some_and(|backlog| !backlog.is_over())
                    // The turn of a message may be lost yet, and nobody waits for it.
                    || !matches!(home.node.gate.outcome(self.last), Some(Ok(()))));
            home.directory.remove(&home.node, &self.name, self.last, has_lost);
        }
        // Actions of the user's.
        drop_user_value(mem::take(&mut self.changes));
        drop(home);
    }
}
