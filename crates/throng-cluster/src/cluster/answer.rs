//! Requests to other nodes, and the answers to theirs.

use std::time::Duration;

use bytes::Bytes;

use super::error::{Class, Fault};
use super::kinds::Incoming;
use super::wire::{self, EntityCall, Request};
use super::{Cluster, PeerError, PeerTarget};
use crate::log::BoxFuture;
use crate::placement::Shard;

impl Cluster {
    /// Answers a request of another node's [`Peers`](super::Peers). Without an error, the request may have been carried
    /// out; the error says that nothing has happened, and why.
    ///
    /// # Errors
    ///
    /// The reason for which the entity is not here.
    pub fn answer(&self, request: Bytes, within: Duration) -> BoxFuture<Result<Bytes, String>> {
        let cluster = self.clone();
        Box::pin(async move {
            let outcome = match Request::decode(&request) {
                Ok(Request::Entity(call)) => cluster.answer_entity(call, within).await,
                Err(fault) => Err(fault),
            };
            match outcome {
                Err(Fault { class: Class::NotHere, text }) => Err(text),
                outcome => Ok(wire::encode_reply(&outcome)),
            }
        })
    }

    async fn answer_entity(
        &self,
        call: EntityCall<'_>,
        within: Duration,
    ) -> Result<Vec<u8>, Fault> {
        let EntityCall { shard, kind, key, message, once, body } = call;
        let node = self.0.term(Shard(shard)).ok_or_else(|| {
            let text = format!("shard {shard} is not served by this node");
            Fault::new(Class::NotHere, text)
        })?;
        let incoming = Incoming { key, once, body, within };
        self.0.kinds.serve(&node, (kind, message), incoming).await
    }

    /// Makes a request of another node, and returns its reply.
    pub(super) async fn request(
        &self,
        target: PeerTarget,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Bytes, Fault> {
        match self.0.peers.clone().call(target, request.encode(), within).await {
            Ok(reply) => wire::decode_reply(&reply).map(|body| reply.slice_ref(body)),
            Err(PeerError::Unsent(reason)) => Err(Fault::new(Class::NotHere, reason)),
            Err(PeerError::Unknown(reason)) => Err(Fault::new(Class::Unknown, reason)),
        }
    }
}
