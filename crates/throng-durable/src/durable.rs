//! [`Durable`]: the trait of entities, and the encoding of their state.

use std::cmp::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::Process;

use crate::catalogue::{Numbered, Shaped};
use crate::shape::Shape;
use crate::{IndexDefinition, OnFailure, Receives, StateError};

/// A process whose state is kept on disk, under a kind and a key.
///
/// The state consists of the fields that serde encodes. A field with `#[serde(skip)]` gets its
/// value from `Default` at each activation and can be filled in [`started`](Process::started). A
/// new entity begins as [`initial`](Durable::initial) and is stored once a turn has changed it. Until then it leaves
/// memory after each turn, and the fields that are not stored are lost, unless a timer, a link, a
/// monitor or a name ties the process.
///
/// The whole state is encoded after each turn, so it should be small: up to some kilobytes. After a
/// turn of a [`READ_ONLY`](throng::Handle::READ_ONLY) handler, such as a `#[message]` with `&self`,
/// that came through an [`Entity`](crate::Entity), only cells are committed: a change of the state
/// through a `Cell` or a lock is not kept, unless a later turn with `&mut self` stores it too.
/// Collections that grow belong in [cells](crate::DurableContext::cells). Each hook is a turn whose
/// changes are submitted at its end; only changes made in [`stopping`](Process::stopping) are not kept.
/// A handler that [stops](throng::Context::stop) its process ends the activation after its own
/// submission, and its caller gets the reply; callers already queued behind it get
/// [`EntityError::Died`](crate::EntityError::Died).
///
/// A handler runs on the state of the turns before it, which may not be on disk yet. If their commit
/// fails, the handler's turn is taken back with them, and the next message finds the state on disk.
///
/// The process starts with the initial state and loads its state in its first turn, where `Deserialize` and
/// [`migrate`](Durable::migrate) run. If loading fails, the messages sent meanwhile get the error, and the next
/// message tries again; `stopping` then runs on the initial state.
///
/// The derive of the same name implements the trait. Its attribute takes `kind`, and if needed `version`,
/// `migrate`, `deps` and `initial`; without `initial`, a new entity begins as `Default`.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng_durable::{Durable, OldState, StateError};
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "account", version = 2, migrate = from_euros)]
/// struct Account {
///     cents: u64,
/// }
/// impl throng::Process for Account {}
///
/// fn from_euros(old: OldState<'_>) -> Result<Account, StateError> {
///     match old.version() {
///         1 => old.decode().map(|euros: u32| Account { cents: u64::from(euros) * 100 }),
///         _ => Err(old.not_migrated()),
///     }
/// }
///
/// assert_eq!((Account::KIND, Account::VERSION), ("account", 2));
/// ```
pub trait Durable: Process + Serialize + DeserializeOwned {
    /// The name of the kind in the store, 1 to [`KIND_BYTES_MAX`](crate::KIND_BYTES_MAX) bytes without a zero
    /// byte. The name must never change, and no two types of a node may share it.
    const KIND: &'static str;

    /// The version of the state. Raise it for a change of the type that reading by names does not cover, and
    /// [`migrate`](Durable::migrate) from the versions before.
    ///
    /// Without a new version, fields may change their order, come with `#[serde(default)]` or as an `Option`, leave,
    /// have a new name beside `#[serde(alias = "…")]` for the old one, or get another type of numbers. A state that
    /// does not fit is [refused](StateError::Changed). A new version is for fields of another type or meaning, and
    /// for programs that must not be replaced by an older one.
    const VERSION: u16 = 1;

    /// The [durable messages](crate::DurableMessage) that entities of this kind handle.
    ///
    /// The derive takes those that [`#[process]`](macro@throng::process) has marked with `#[message(durable)]`, or the
    /// list in `#[durable(messages(Credit, Debit))]`.
    const MESSAGES: &'static [Receives<Self>] = &[];

    /// The [indexes](crate::Index) of this kind, by their definitions.
    ///
    /// The derive takes the fields with `#[durable(index)]`.
    const INDEXES: &'static [IndexDefinition<Self>] = &[];

    /// The policy for a durable message whose handler panics, or whose turn cannot be committed.
    ///
    /// The derive takes another policy as `on_failure = …`.
    const ON_FAILURE: OnFailure = OnFailure::park_after(5);

    /// Everything that the entities of this kind share and do not store: clients, clocks, addresses of other
    /// processes. [`Node::register`](crate::Node::register) sets the value, and
    /// [`cx.deps()`](crate::DurableContext::deps) returns it. A kind without dependencies has `()` and need not
    /// be registered.
    ///
    /// The node drops the value at its [shutdown](crate::Node::shutdown). If the value has the node or one of its
    /// entities, the node ends by a shutdown only.
    type Deps: Send + Sync + 'static;

    /// Returns the part of a key that decides on which shard of a cluster the entity lives: entities with the same part
    /// live together, whatever their kinds. By default the whole key. The choice must never change.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng_durable::Durable;
    /// # #[derive(Default, Serialize, Deserialize)]
    /// struct Cart;
    /// # impl throng::Process for Cart {}
    /// impl Durable for Cart {
    ///     const KIND: &'static str = "cart";
    ///     # type Deps = ();
    ///     # fn initial(_: &str, (): &()) -> Cart { Cart }
    ///     // The carts of a customer, such as `ann/1` and `ann/2`, live together.
    ///     fn slot_key(key: &str) -> &str {
    ///         key.split('/').next().unwrap_or(key)
    ///     }
    /// }
    /// assert_eq!(Cart::slot_key("ann/2"), "ann");
    /// ```
    fn slot_key(key: &str) -> &str {
        key
    }

    /// Returns the state of an entity that is not stored.
    ///
    /// Runs at each activation, also of a stored entity, in the thread of the caller whose message activates
    /// the entity. If it panics, the message is not handled, and its caller gets
    /// [`EntityError::Panicked`](crate::EntityError::Panicked).
    fn initial(key: &str, deps: &Self::Deps) -> Self;

    /// Converts a state that an older version stored.
    ///
    /// # Errors
    ///
    /// [`OldState::not_migrated`], which is the default, or the error of [`OldState::decode`].
    fn migrate(old: OldState<'_>) -> Result<Self, StateError> {
        Err(old.not_migrated())
    }
}

/// A state stored by an older version of the program.
#[derive(Debug)]
pub struct OldState<'s> {
    kind: &'static str,
    stored: &'s Shaped,
    encoded: &'s [u8],
}

impl OldState<'_> {
    /// Returns the version of the stored state, which is always below [`Durable::VERSION`].
    pub fn version(&self) -> u16 {
        self.stored.version()
    }

    /// Decodes the state as the type that this version had, or as another one that its fields fit by their names. A
    /// tuple takes the fields in their order.
    ///
    /// # Errors
    ///
    /// [`StateError::Changed`] if the state does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, StateError> {
        let shape = self.stored.shape();
        let decoded = shape.read(self.encoded).or_else(|reason| {
            // Parts of which little is known are read only as what they were.
            let is_same = Shape::of::<T>().is_ok_and(|own| own.agrees(shape));
            if is_same { decode_whole(self.encoded) } else { Err(reason) }
        });
        let (kind, found) = (self.kind, self.version());
        decoded.map_err(|reason| StateError::Changed { kind, found, reason })
    }

    /// Returns the error for a version from which there is no migration.
    pub fn not_migrated(&self) -> StateError {
        StateError::NotMigrated { kind: self.kind, found: self.version() }
    }
}

/// Encodes a value, a state or that of a cell, behind the number of its shape.
pub(crate) fn encode_into<T: Serialize + ?Sized>(
    value: &T,
    shaped: &Shaped,
    record: &mut Vec<u8>,
) -> Result<(), String> {
    record.extend_from_slice(shaped.prefix());
    postcard::to_io(value, record).map(drop).map_err(|error| error.to_string())
}

/// A type whose values are stored, with its name and its version.
pub(crate) struct Versioned<T> {
    pub(crate) kind: &'static str,
    pub(crate) version: u16,
    pub(crate) migrate: fn(OldState<'_>) -> Result<T, StateError>,
}

/// Decodes the state in a record, with a migration if it is of an older version. `kind` has the shapes.
pub(crate) fn decode_state<P: Durable>(kind: &Numbered, record: &[u8]) -> Result<P, StateError> {
    Versioned { kind: P::KIND, version: P::VERSION, migrate: P::migrate }.decode(kind, record)
}

impl<T: Serialize + DeserializeOwned + 'static> Versioned<T> {
    /// Decodes the value in a record, with a migration if it is of an older version. `name` has the shapes.
    pub(crate) fn decode(&self, name: &Numbered, record: &[u8]) -> Result<T, StateError> {
        let &Versioned { kind, version, migrate } = self;
        let undecodable = |found, reason: String| StateError::Undecodable { kind, found, reason };
        let own = name.shape_of::<T>(version);
        let own = own.map_err(|reason| undecodable(version, reason.into()))?;
        let (stored, encoded) = own.split(name, record).map_err(|reason| undecodable(0, reason))?;
        let found = stored.version();
        match found.cmp(&version) {
            Ordering::Greater => Err(StateError::Newer { kind, found, known: version }),
            Ordering::Less => migrate(OldState { kind, stored: &stored, encoded }),
            Ordering::Equal if own.agrees(&stored) => {
                decode_whole(encoded).map_err(|reason| undecodable(found, reason))
            }
            Ordering::Equal => {
                let changed = |reason| StateError::Changed { kind, found, reason };
                stored.shape().read(encoded).map_err(changed)
            }
        }
    }
}

/// Decodes a value that takes up all the bytes; leftovers mean that it was of another type.
pub(crate) fn decode_whole<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(encoded) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalogue::Catalogue;

    macro_rules! version {
        ($name:ident, $version:literal, $field:ty, $migrate:expr) => {
            #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
            struct $name($field);
            impl Process for $name {}
            impl Durable for $name {
                const KIND: &'static str = "thing";
                const VERSION: u16 = $version;
                type Deps = ();
                fn initial(_: &str, (): &()) -> Self {
                    $name::default()
                }
                fn migrate(old: OldState<'_>) -> Result<Self, StateError> {
                    $migrate(old)
                }
            }
        };
    }
    version!(First, 1, u32, |old: OldState<'_>| Err(old.not_migrated()));
    version!(Second, 2, String, |old: OldState<'_>| {
        old.decode().map(|First(number)| Second(number.to_string()))
    });
    version!(Third, 3, u64, |old: OldState<'_>| match old.version() {
        2 => old.decode().map(|Second(text)| Third(text.len() as u64)),
        _ => Err(old.not_migrated()),
    });

    /// Returns the record of a state, as a program writes it that has the same catalogue.
    fn encode<P: Durable>(kind: &Numbered, state: &P) -> Vec<u8> {
        let mut record = Vec::new();
        encode_into(state, kind.shape_of::<P>(P::VERSION).unwrap(), &mut record).unwrap();
        record
    }

    fn kind() -> Arc<Numbered> {
        Catalogue::default().kind("thing").unwrap()
    }

    #[test]
    fn a_state_comes_back_at_the_cost_of_a_byte() {
        let kind = kind();
        let record = encode(&kind, &Second("hello".into()));
        assert_eq!(record, b"\x01\x05hello");
        assert_eq!(decode_state::<Second>(&kind, &record), Ok(Second("hello".into())));
    }

    #[test]
    fn an_older_state_is_migrated_or_refused() {
        let kind = kind();
        let first = encode(&kind, &First(1234));
        assert_eq!(decode_state::<Second>(&kind, &first), Ok(Second("1234".into())));
        let second = encode(&kind, &Second("1234".into()));
        assert_eq!(decode_state::<Third>(&kind, &second), Ok(Third(4)));
        let refusal = StateError::NotMigrated { kind: "thing", found: 1 };
        assert_eq!(decode_state::<Third>(&kind, &first), Err(refusal));
    }

    #[test]
    fn a_newer_state_is_refused_with_both_versions() {
        let kind = kind();
        let third = encode(&kind, &Third(1));
        let refusal = decode_state::<First>(&kind, &third).unwrap_err();
        assert_eq!(refusal, StateError::Newer { kind: "thing", found: 3, known: 1 });
        assert_eq!(
            refusal.to_string(),
            "the stored thing has state version 3, this program knows versions up to 1"
        );
    }

    #[test]
    fn damage_and_unknown_shapes_are_refused() {
        let kind = kind();
        let mut record = encode(&kind, &First(1));
        record.push(0);
        for record in [&record[..], &record[..1], &[], &[7, 1]] {
            let refusal = decode_state::<First>(&kind, record);
            assert!(matches!(refusal, Err(StateError::Undecodable { .. })), "{refusal:?}");
        }
    }
}
