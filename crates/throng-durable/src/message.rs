//! [`DurableMessage`]: a message that is stored until its receiver has handled it. [`Receives`]: the messages of a kind.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Address, Handle, Message, Panic};

use crate::catalogue::{Number, Numbered};
use crate::directory::Directory;
use crate::durable::{Versioned, encode_into};
use crate::inbox::{Copy, Entry};
use crate::node::Inner;
use crate::reminder::{Fire, Firing};
use crate::users::catch;
use crate::{CommitError, Durable, EntityError, OldState, StateError};

/// A message that can be stored until its receiver has handled it.
///
/// `#[message(durable)]` on a method of a [`#[process]`](macro@throng::process) block implements the trait, with the
/// name of the method. [`Entity::send_durable`](crate::Entity::send_durable) and
/// [`DurableContext::send_durable`](crate::DurableContext::send_durable) send the message.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Durable, DurableContext, Node};
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "account")]
/// struct Account {
///     balance: i64,
/// }
///
/// #[process]
/// impl Account {
///     /// Takes the amount from this account, and adds it to another one in the same commit.
///     #[message(durable)]
///     fn transfer(&mut self, amount: i64, to: String, cx: &mut Context<Self>) {
///         self.balance -= amount;
///         let to = cx.node().entity::<Account>(to);
///         cx.send_durable(&to, Credit { amount });
///     }
///
///     #[message(durable)]
///     fn credit(&mut self, amount: i64) {
///         self.balance += amount;
///     }
///
///     #[message]
///     fn balance(&self) -> i64 {
///         self.balance
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let runtime = Runtime::builder().workers(1).start()?;
/// let node = Node::options(path).open(&runtime)?;
/// runtime.block_on(async |_| {
///     let [ada, bob] = ["ada", "bob"].map(|key| node.entity::<Account>(key));
///     ada.send_durable(Transfer { amount: 5, to: "bob".into() }).await?;
///     // From here on the transfer takes place, whatever happens to the program.
///     while bob.balance().await? != 5 {}
///     assert_eq!(ada.balance().await?, -5);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// A message is stored as a state is: with its [version](DurableMessage::VERSION) and its fields by their names, so
/// that a program with other fields reads those that wait.
pub trait DurableMessage: Message + Serialize + DeserializeOwned {
    /// Name of the message in the store, 1 to 64 bytes. The name must never change, and no two messages of a kind may
    /// share it.
    const NAME: &'static str;

    /// Version of the message's fields; see [`Durable::VERSION`].
    const VERSION: u16 = 1;

    /// Converts a message that an older version of the program has stored.
    ///
    /// # Errors
    ///
    /// [`OldState::not_migrated`], which is the default, or the error of [`OldState::decode`]. The message is then
    /// [parked](crate::Inbox).
    fn migrate(old: OldState<'_>) -> Result<Self, StateError> {
        Err(old.not_migrated())
    }
}

/// A durable message that entities of the kind `P` handle: an element of [`Durable::MESSAGES`].
pub struct Receives<P: Durable> {
    name: &'static str,
    pub(crate) feed: Feed<P, Entry>,
    pub(crate) fire: Feed<P, Firing>,
}

/// Function that decodes a stored message and puts it into the mailbox of its entity.
pub(crate) type Feed<P, Origin> = fn(&Numbered, &[u8], Origin, Address<P>) -> Result<(), Unfed>;

/// Reason why a function did not put a stored message into the mailbox of its entity.
pub(crate) enum Unfed {
    /// This program cannot decode the message.
    Undecodable(StateError),
    /// Its `Deserialize` or `migrate` panicked.
    Panicked(Panic),
    /// There is no memory for messages, or the process ends.
    Refused,
}

impl<P: Durable> Receives<P> {
    /// Returns the element for a message.
    pub const fn of<M: DurableMessage>() -> Receives<P>
    where
        P: Handle<M>,
    {
        const {
            assert!(
                !M::NAME.is_empty() && M::NAME.len() <= 64,
                "a message's name has 1 to 64 bytes"
            )
        }
        Receives { name: M::NAME, feed: feed::<P, M>, fire: fire::<P, M> }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the index of a message in the list of the kind, at compile time.
    const fn index_of(name: &str) -> usize {
        let (mut index, mut at) = (None, 0);
        while at < P::MESSAGES.len() {
            if is_same(P::MESSAGES[at].name.as_bytes(), name.as_bytes()) {
                assert!(index.is_none(), "two durable messages of the kind have the same name");
                index = Some(at);
            }
            at += 1;
        }
        match index {
            Some(index) => index,
            None => panic!(
                "the receiver's kind does not have this durable message: mark its method with \
                 `#[message(durable)]`, or list it in `#[durable(messages(…))]`"
            ),
        }
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl<P: Durable> fmt::Debug for Receives<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receives").field(&self.name).finish()
    }
}

/// The messages of a process that [`#[process]`](macro@throng::process) has not marked as durable: none.
#[doc(hidden)]
pub trait NoMessages: Durable {
    const DURABLE_MESSAGES_OF_THRONG: &'static [Receives<Self>] = &[];
}

impl<P: Durable> NoMessages for P {}

/// The [`Feed`] of a message in an inbox.
fn feed<P: Durable + Handle<M>, M: DurableMessage>(
    name: &Numbered,
    record: &[u8],
    entry: Entry,
    to: Address<P>,
) -> Result<(), Unfed> {
    let message: M = decode(name, record)?;
    to.send(Copy { message, entry }).map_err(|_| Unfed::Refused)
}

/// The [`Feed`] of the message of a reminder.
fn fire<P: Durable + Handle<M>, M: DurableMessage>(
    name: &Numbered,
    record: &[u8],
    firing: Firing,
    to: Address<P>,
) -> Result<(), Unfed> {
    let message: M = decode(name, record)?;
    to.send(Fire { message, firing }).map_err(|_| Unfed::Refused)
}

fn decode<M: DurableMessage>(name: &Numbered, record: &[u8]) -> Result<M, Unfed> {
    let versions = Versioned { kind: M::NAME, version: M::VERSION, migrate: M::migrate };
    let decoded = catch(|| versions.decode(name, record)).map_err(Unfed::Panicked)?;
    decoded.map_err(Unfed::Undecodable)
}

/// Reason why a stored message is not in the mailbox of its entity.
pub(crate) enum Unput {
    /// The entity has to wait for memory, or ends.
    Refused,
    /// This program cannot handle the message.
    Unusable {
        error: EntityError,
        /// Name of the message.
        message: String,
    },
}

/// Decodes a stored message, and puts it into the mailbox of its entity by one of its functions.
pub(crate) fn put<P: Durable, Origin>(
    node: &Inner,
    record: &[u8],
    feed: impl FnOnce(&Receives<P>) -> Feed<P, Origin>,
    origin: Origin,
    to: Address<P>,
) -> Result<(), Unput> {
    let unusable = |error, message| Err(Unput::Unusable { error, message });
    let (number, encoded) = match postcard::take_from_bytes::<u16>(record) {
        Ok(parts) => parts,
        Err(error) => {
            let error = EntityError::Message(format!("it has no number: {error}"));
            return unusable(error, "?".into());
        }
    };
    let Some((receives, numbered)) = node.directory::<P>().message(number) else {
        let names = node.catalogue.messages(P::KIND);
        let name = names.into_iter().find(|(_, known)| *known == number);
        let name = name.map_or_else(|| format!("number {number}"), |(name, _)| name);
        let error = EntityError::Message(format!("{} has no such durable message", P::KIND));
        return unusable(error, name);
    };
    match feed(receives)(numbered, encoded, origin, to) {
        Ok(()) => Ok(()),
        Err(Unfed::Refused) => Err(Unput::Refused),
        Err(Unfed::Undecodable(error)) => unusable(EntityError::State(error), receives.name.into()),
        Err(Unfed::Panicked(panic)) => unusable(EntityError::Panicked(panic), receives.name.into()),
    }
}

/// Declares messages of an entity of this crate, and their names if they are stored.
macro_rules! messages {
    ($($name:ident $(= $stored:literal)? { $($field:ident: $type:ty),* } -> $reply:ty;)*) => {$(
        $(#[doc = $stored] #[derive(Clone, Serialize, Deserialize)])?
        pub(super) struct $name { $(pub(super) $field: $type),* }
        impl Message for $name { type Reply = $reply; }
        $(impl $crate::DurableMessage for $name { const NAME: &'static str = $stored; })?
    )*};
}
pub(crate) use messages;

/// A message's record, and the numbers that it has.
pub(crate) struct Encoded {
    pub(crate) record: Vec<u8>,
    pub(crate) numbers: [Option<Arc<Number>>; 2],
}

/// Encodes a message for an entity of the kind `P`.
pub(crate) fn encode<P: Durable + Handle<M>, M: DurableMessage>(
    directory: &Directory<P>,
    message: &M,
) -> Result<Encoded, EntityError> {
    let failed = |reason: String| {
        EntityError::NotCommitted(CommitError::Message { message: type_name::<M>(), reason })
    };
    let number = directory.message_number(const { Receives::<P>::index_of(M::NAME) });
    let number = number.ok_or_else(|| failed("the kind has the most messages, 65535".into()))?;
    let shaped = number.shape_of::<M>(M::VERSION).map_err(|reason| failed(reason.into()))?;
    let mut record = postcard::to_stdvec(&number.number()).unwrap_or_default();
    let encoded = catch(|| encode_into(message, shaped, &mut record));
    encoded.map_err(EntityError::Panicked)?.map_err(failed)?;
    Ok(Encoded { record, numbers: [number.unstored(), shaped.unstored()] })
}
