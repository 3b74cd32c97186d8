//! Requests and replies between the nodes of a cluster, in the frames of [`link`](crate::link).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::{Class, Fault};

/// A request of another node. New kinds come last: their numbers are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request<'r> {
    #[serde(borrow)]
    Entity(EntityCall<'r>),
}

/// A call of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntityCall<'r> {
    pub(super) shard: u16,
    pub(super) kind: &'r str,
    pub(super) key: &'r str,
    pub(super) message: &'r str,
    /// Id by which the call takes effect once.
    pub(super) once: Option<&'r str>,
    /// The encoded message.
    pub(super) body: &'r [u8],
}

#[derive(Serialize, Deserialize)]
enum Reply<'r> {
    Done(&'r [u8]),
    Fault(Class, &'r str),
}

impl Request<'_> {
    pub(super) fn encode(&self) -> Bytes {
        // Bytes and numbers have an encoding.
        postcard::to_stdvec(self).unwrap_or_default().into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Request<'_>, Fault> {
        let malformed = |error| Fault::new(Class::Refused, format!("the request is none: {error}"));
        postcard::from_bytes(bytes).map_err(malformed)
    }
}

/// Encodes the reply to a request.
pub(super) fn encode_reply(outcome: &Result<Vec<u8>, Fault>) -> Bytes {
    let reply = match outcome {
        Ok(reply) => Reply::Done(reply),
        Err(Fault { class, text }) => Reply::Fault(*class, text),
    };
    postcard::to_stdvec(&reply).unwrap_or_default().into()
}

/// Decodes the reply to a request that may have been carried out.
pub(super) fn decode_reply(bytes: &[u8]) -> Result<&[u8], Fault> {
    match postcard::from_bytes(bytes) {
        Ok(Reply::Done(reply)) => Ok(reply),
        Ok(Reply::Fault(class, text)) => Err(Fault::new(class, text)),
        Err(error) => Err(Fault::new(Class::Unknown, format!("the reply is none: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused_and_a_reply_or_unknown(bytes: Vec<u8>) {
            if let Ok(request) = Request::decode(&bytes) {
                let encoded = request.encode();
                prop_assert_eq!(Request::decode(&encoded), Ok(request));
            }
            let _ = decode_reply(&bytes);
        }
    }

    #[test]
    fn requests_and_replies_come_back() {
        let (kind, key, message) = ("account", "ann", "deposit");
        for once in [None, Some("id")] {
            let call = EntityCall { shard: 17, kind, key, message, once, body: &[1, 2, 3] };
            let request = Request::Entity(call);
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let fault = Fault::new(Class::NotKept, "why");
        assert_eq!(decode_reply(&encode_reply(&Ok(vec![4, 5]))), Ok(&[4, 5][..]));
        assert_eq!(decode_reply(&encode_reply(&Err(fault.clone()))), Err(fault));
        assert_eq!(decode_reply(&[9]).map_err(|fault| fault.class), Err(Class::Unknown));
    }
}
