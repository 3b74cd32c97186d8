//! [`Kinds`]: the kinds of entities of a program, and the messages that may come from other nodes.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Handle, Message};
use throng_durable::{Durable, Entity, EntityError, Node};

use super::Cluster;
use super::error::{Class, ClusterError, Fault};
use crate::log::BoxFuture;

/// Longest name of a message, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The kinds of a program; see the file's head.
#[derive(Default)]
pub(super) struct Kinds(RwLock<Registered>);

#[derive(Default)]
struct Registered {
    /// Registrations of the kinds at a node, by the kinds' names.
    kinds: HashMap<&'static str, Arc<Register>>,
    /// Codecs of messages by the types of process and message, each an `Arc<Codec<P, M>>`.
    codecs: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// Functions that handle a message from another node, by the names of kind and message.
    serves: HashMap<(&'static str, &'static str), Arc<Serve>>,
}

/// A call from another node.
pub(super) struct Incoming<'r> {
    pub(super) key: &'r str,
    /// Id by which the call takes effect once.
    pub(super) once: Option<&'r str>,
    /// The encoded message.
    pub(super) body: &'r [u8],
    /// Time that is left.
    pub(super) within: Duration,
}

type Register = dyn Fn(&Node) + Send + Sync;
type Serve = dyn Fn(&Node, Incoming<'_>) -> BoxFuture<Result<Vec<u8>, Fault>> + Send + Sync;
type Call<P, M> = fn(&Entity<P>, M, Option<Box<str>>, Duration) -> Outcome<<M as Message>::Reply>;
type Outcome<R> = BoxFuture<Result<R, EntityError>>;

/// The encoding of a message for a kind of process.
pub(super) struct Codec<P: Durable, M: Message> {
    pub(super) name: &'static str,
    pub(super) encode: fn(&M) -> postcard::Result<Vec<u8>>,
    pub(super) decode_reply: fn(&[u8]) -> postcard::Result<M::Reply>,
    /// Calls an entity of this node, once if there is an id.
    pub(super) call: Call<P, M>,
}

fn call<P, M>(
    entity: &Entity<P>,
    message: M,
    once: Option<Box<str>>,
    within: Duration,
) -> Outcome<M::Reply>
where
    P: Durable + Handle<M>,
    M: Message,
    M::Reply: Serialize + DeserializeOwned,
{
    let call = entity.call(message).within(within);
    match once {
        Some(id) => Box::pin(call.once(id)),
        None => Box::pin(call),
    }
}

impl Kinds {
    fn read(&self) -> RwLockReadGuard<'_, Registered> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registered> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers all kinds at a node.
    pub(super) fn register_at(&self, node: &Node) {
        let kinds: Vec<_> = self.read().kinds.values().cloned().collect();
        kinds.iter().for_each(|register| register(node));
    }

    pub(super) fn codec<P: Durable, M: Message>(&self) -> Result<Arc<Codec<P, M>>, ClusterError> {
        let codec = self.read().codecs.get(&TypeId::of::<fn(P, M)>()).cloned();
        let codec = codec.and_then(|codec| codec.downcast().ok());
        let (kind, message) = (P::KIND, type_name::<M>());
        codec.ok_or(ClusterError::NotAccepted { kind, message })
    }

    /// Handles a message from another node.
    pub(super) fn serve(
        &self,
        node: &Node,
        (kind, message): (&str, &str),
        incoming: Incoming<'_>,
    ) -> BoxFuture<Result<Vec<u8>, Fault>> {
        let serve = self.read().serves.get(&(kind, message)).cloned();
        match serve {
            Some(serve) => serve(node, incoming),
            None => {
                let text = format!("this node's program has no message {message} of {kind}");
                Box::pin(async { Err(Fault::new(Class::Refused, text)) })
            }
        }
    }
}

/// A kind of entities of a cluster, from [`Cluster::kind`], to name the messages that may come from other nodes.
pub struct Kind<'c, P> {
    cluster: &'c Cluster,
    kind: PhantomData<fn(P)>,
}

impl<'c, P: Durable> Kind<'c, P> {
    pub(super) fn register(cluster: &'c Cluster, deps: P::Deps) -> Kind<'c, P> {
        let deps = Arc::new(deps);
        let register = Arc::new(move |node: &Node| node.register_shared::<P>(deps.clone()));
        let before = cluster.kinds().write().kinds.insert(P::KIND, register.clone());
        assert!(before.is_none(), "the kind {:?} is registered already", P::KIND);
        cluster.nodes().iter().for_each(|node| register(node));
        Kind { cluster, kind: PhantomData }
    }

    /// Names a message that other nodes may send, by a name that must never change. Without that, the message is refused
    /// wherever the entity is, so that one node is enough to find out.
    ///
    /// The message is encoded by serde, in the order of its fields. Nodes of different versions exchange such messages
    /// during a deploy: a message with other fields needs another name.
    ///
    /// # Panics
    ///
    /// Panics if the kind has another message of that name, or if the name is empty or has more than 64 bytes.
    pub fn accepts<M>(self, name: &'static str) -> Kind<'c, P>
    where
        P: Handle<M>,
        M: Message + Serialize + DeserializeOwned,
        M::Reply: Serialize + DeserializeOwned,
    {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "a message's name has 1 to 64 bytes");
        let codec = Codec::<P, M> {
            name,
            encode: |message| postcard::to_stdvec(message),
            decode_reply: |reply| postcard::from_bytes(reply),
            call: call::<P, M>,
        };
        let serve: Arc<Serve> = Arc::new(|node, incoming| {
            let Incoming { key, once, body, within } = incoming;
            let message: M = match postcard::from_bytes(body) {
                Ok(message) => message,
                Err(error) => {
                    let text = format!("the message is not of this program's type: {error}");
                    return Box::pin(async { Err(Fault::new(Class::Refused, text)) });
                }
            };
            let called = call::<P, M>(&node.entity(key), message, once.map(Box::from), within);
            Box::pin(async {
                let reply = called.await.map_err(|error| Fault::of(&error))?;
                postcard::to_stdvec(&reply).map_err(|error| {
                    let text = format!("the turn was kept, and its reply has no encoding: {error}");
                    Fault::new(Class::Unknown, text)
                })
            })
        });
        let mut registered = self.cluster.kinds().write();
        let before = registered.serves.insert((P::KIND, name), serve);
        assert!(before.is_none(), "the kind {:?} has two messages {name:?}", P::KIND);
        registered.codecs.insert(TypeId::of::<fn(P, M)>(), Arc::new(codec));
        drop(registered);
        self
    }
}
