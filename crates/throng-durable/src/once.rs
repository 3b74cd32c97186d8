//! [`OnceCall`]: a call whose reply is stored under an id of the caller's, so that a second call with the id gets the
//! reply and does nothing.
//!
//! ```text
//!  call(m).once(id) ──▶ R entity id: there? ──yes──▶ the stored reply
//!                            └──no──▶ handler ──▶ one batch: state, R = expiry + reply
//!                                                            and Y time entity, unless there is one
//!
//!  the sweeper ──▶ Y … now ──▶ removes Y, and each R of the entity that has expired
//! ```
//!
//! Replies of an entity that expire at about the same time share a record `Y`: an eighth of the time for which they are
//! kept. So most calls store a single record more than others, and a reply is read about eight times for its removal.
//!
//! Invariants: the reply and the effect are in one batch. An entity handles one message at a time, so a second call
//! waits until the first one is submitted, and finds its reply among the changes that are not on disk yet. A reply that
//! has expired is not used, whether it was removed or not.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Context, Turn};
use throng_store::{ReadError, UpdateError};

use crate::activation::Activation;
use crate::due::lock;
use crate::layout::{self, Table};
use crate::message::Encoded;
use crate::node::Inner;
use crate::users::drop_user_value;
use crate::view::View;
use crate::{CommitError, Durable, EntityCall, EntityError, StateError, values};

/// Time for which a reply is kept, unless the call says otherwise.
const EXPIRES_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Most records that the sweeper reads before others have a turn.
const READS_MAX: usize = 1_000;
/// Number of times that a step of the sweeper reads so many.
const READS_OF_STEP: usize = 50;

/// A call that takes effect once for each id, under way; from [`EntityCall::once`].
#[must_use = "a call is not sent until it is awaited"]
pub struct OnceCall<P: Durable, T: Turn<P>>(EntityCall<P, Once<T, T::Reply>>)
where
    T::Reply: Serialize + DeserializeOwned;

/// The message of such a call.
struct Once<T, R> {
    message: T,
    id: Box<str>,
    expires_after: Duration,
    /// Whether a reply is stored.
    stores: fn(&R) -> bool,
}

impl<P: Durable, T: Turn<P>> EntityCall<P, T>
where
    T::Reply: Serialize + DeserializeOwned,
{
    /// Makes the call one that takes effect once, however often it is repeated with this id.
    ///
    /// The entity stores the reply under the id, in the commit of the turn. A later call of the same entity with the id
    /// gets that reply, and its message is dropped; a call while the first one runs waits for it. This holds over
    /// passivation, failures and restarts, for 24 hours or the time of [`expires_after`](OnceCall::expires_after). A
    /// turn that fails stores no reply, so that its call can be repeated.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, EntityError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// #[process]
    /// impl Account {
    ///     #[message]
    ///     fn deposit(&mut self, amount: u64) -> u64 {
    ///         self.balance += amount;
    ///         self.balance
    ///     }
    /// }
    ///
    /// /// Deposits once, as often as the client repeats its request.
    /// async fn handle(node: &Node, idempotency_key: &str) -> Result<u64, EntityError> {
    ///     node.entity::<Account>("alice").deposit(5).once(idempotency_key).await
    /// }
    /// ```
    ///
    /// An id is the entity's own, whatever the message: another message with the same id gets the stored reply if that
    /// is of its type, and [`EntityError::Once`] otherwise. So is an id of more than [`ONCE_ID_BYTES_MAX`] bytes.
    ///
    /// Cost: a read of the store, and one more record in the turn's batch, or two.
    pub fn once(self, id: impl Into<Box<str>>) -> OnceCall<P, T> {
        let (id, expires_after) = (id.into(), EXPIRES_AFTER);
        OnceCall(self.map(|message| Once { message, id, expires_after, stores: |_| true }))
    }
}

impl<P: Durable, T: Turn<P>> OnceCall<P, T>
where
    T::Reply: Serialize + DeserializeOwned,
{
    /// Sets the time for which the reply is stored, 24 hours by default. A call with the same id after that takes
    /// effect again.
    pub fn expires_after(self, time: Duration) -> Self {
        OnceCall(self.0.map(|once| Once { expires_after: time, ..once }))
    }

    /// Stores the reply only if the condition holds for it, and otherwise leaves the id unused: a later call with it takes
    /// effect. With `Result::is_ok`, a call that the handler refuses can be repeated. The changes of the turn are kept
    /// in both cases.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, EntityError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// #[process]
    /// impl Account {
    ///     #[message]
    ///     fn withdraw(&mut self, amount: u64) -> Result<u64, String> {
    ///         self.balance = self.balance.checked_sub(amount).ok_or("the balance is too low")?;
    ///         Ok(self.balance)
    ///     }
    /// }
    ///
    /// /// Withdraws once; a client that was refused may repeat the request after a deposit.
    /// async fn handle(node: &Node, id: &str) -> Result<Result<u64, String>, EntityError> {
    ///     node.entity::<Account>("alice").withdraw(5).once(id).stored_if(Result::is_ok).await
    /// }
    /// ```
    pub fn stored_if(self, stores: fn(&T::Reply) -> bool) -> Self {
        OnceCall(self.0.map(|once| Once { stores, ..once }))
    }

    /// Sets the deadline, as [`EntityCall::within`] does.
    pub fn within(self, deadline: Duration) -> Self {
        OnceCall(self.0.within(deadline))
    }
}

impl<P: Durable, T: Turn<P>> Future for OnceCall<P, T>
where
    T::Reply: Serialize + DeserializeOwned,
{
    type Output = Result<T::Reply, EntityError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::flatten)
    }
}

/// Maximum length of the id of a call that takes effect [once](EntityCall::once), in bytes.
pub const ONCE_ID_BYTES_MAX: usize = 240;

impl<P: Durable, T: Turn<P>> Turn<P> for Once<T, T::Reply>
where
    T::Reply: Serialize + DeserializeOwned,
{
    type Reply = Result<T::Reply, EntityError>;
    const READ_ONLY: bool = T::READ_ONLY;

    async fn run(self, process: &mut P, cx: &mut Context<P>) -> Self::Reply {
        let Once { message, id, expires_after, stores } = self;
        let now = match Activation::of(cx) {
            Some(own) => match own.stored_reply::<T::Reply>(&id) {
                Ok(Found::Reply(reply)) => {
                    drop_user_value(message);
                    return Ok(reply);
                }
                Ok(Found::Nothing { now }) => now,
                Err(error) => {
                    drop_user_value(message);
                    return Err(error);
                }
            },
            None => unreachable!("only an entity's call has an id"),
        };
        let reply = message.run(process, cx).await;
        if stores(&reply)
            && let Some(own) = Activation::of(cx)
            && let Err(error) = own.store_reply(&id, Expiry::new(now, expires_after), &reply)
        {
            own.changes().fail(error);
        }
        Ok(reply)
    }
}

enum Found<R> {
    Reply(R),
    /// No reply is stored that has not expired.
    Nothing {
        /// Time since 1970.
        now: Duration,
    },
}

impl<P: Durable> Activation<P> {
    /// Looks for the stored reply of an earlier call with an id.
    fn stored_reply<R: Serialize + DeserializeOwned + 'static>(
        &mut self,
        id: &str,
    ) -> Result<Found<R>, EntityError> {
        if id.is_empty() || id.len() > ONCE_ID_BYTES_MAX {
            let bytes = id.len();
            return Err(EntityError::Once(format!(
                "the id has {bytes} bytes, and not 1 to {ONCE_ID_BYTES_MAX}"
            )));
        }
        let node = self.node().clone();
        let now = node.store.since_1970();
        let key = layout::record(Table::Replies, self.name().state_key(), id);
        let view;
        let stored = match self.changes().own(&key) {
            Some(own) => own,
            None => {
                view = View::of(&node.tables)?;
                view.get(&key)?
            }
        };
        let Some((expiry, record)) = stored.and_then(split) else {
            return Ok(Found::Nothing { now });
        };
        if expiry.has_expired(milliseconds(now)) {
            return Ok(Found::Nothing { now });
        }
        let reply = values::decode(&node, P::KIND, "reply", record);
        let unfit = |error: StateError| {
            EntityError::Once(format!("another call with the id has stored its reply: {error}"))
        };
        Ok(Found::Reply(reply.map_err(unfit)?))
    }

    /// Stores the reply of a call with an id, with the changes of the turn that runs.
    fn store_reply<R: Serialize + DeserializeOwned + 'static>(
        &mut self,
        id: &str,
        expiry: Expiry,
        reply: &R,
    ) -> Result<(), EntityError> {
        let node = self.node().clone();
        let failed = |reason: String| {
            let message = std::any::type_name::<R>();
            EntityError::NotCommitted(CommitError::Message { message, reason })
        };
        let encoded = values::encode(&node, P::KIND, expiry.encode(), reply);
        let Encoded { record, numbers } = encoded.map_err(failed)?;
        let replies = layout::table_of(Table::Replies, self.name().state_key());
        let key = [&replies, id.as_bytes()].concat();
        self.changes().forget_settled(&node.gate);
        self.changes().set_own(key, Some(record.into()), numbers.into_iter().flatten());
        let looked_at = expiry.looked_at();
        // A turn that is not committed ends the activation, which then does not know of the record any more.
        let is_known = std::mem::replace(self.last_expiry(), looked_at) == looked_at;
        if !is_known || node.expiries.has_looked(looked_at) {
            node.expiries.note(looked_at);
            self.changes().set_record(layout::expiry(looked_at, &replies), Some(Vec::new()));
        }
        Ok(())
    }
}

/// Time at which a reply expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expiry {
    /// Milliseconds since 1970.
    at: u64,
    /// Expired replies are looked for at multiples of two to this power, in milliseconds.
    grain: u8,
}

/// Length of an encoded expiry.
const EXPIRY_BYTES: usize = 9;

impl Expiry {
    fn new(now: Duration, kept: Duration) -> Expiry {
        // From a second to some years.
        let grain = (milliseconds(kept) / 8).max(1).ilog2().clamp(10, 38);
        Expiry { at: milliseconds(now.saturating_add(kept)), grain: grain as u8 }
    }

    fn has_expired(self, now: u64) -> bool {
        self.at <= now
    }

    /// Returns the time at which the sweeper looks for the reply, when it has expired.
    fn looked_at(self) -> u64 {
        let Expiry { at, grain } = self;
        let grain = grain.min(38);
        (at >> grain).saturating_add(1).saturating_mul(1 << grain)
    }

    fn encode(self) -> Vec<u8> {
        let mut encoded = self.at.to_le_bytes().to_vec();
        encoded.push(self.grain);
        encoded
    }
}

/// Splits a stored reply into the time at which it expires, and the encoded reply.
fn split(record: &[u8]) -> Option<(Expiry, &[u8])> {
    let (expiry, reply) = record.split_first_chunk::<EXPIRY_BYTES>()?;
    let (at, grain) = expiry.split_first_chunk()?;
    Some((Expiry { at: u64::from_le_bytes(*at), grain: *grain.first()? }, reply))
}

/// Returns the key of the record that tells of the expiry of a stored reply; `None` if the record is none of a reply.
pub(crate) fn expiry_of(key: &[u8], record: &[u8]) -> Option<Vec<u8>> {
    let (expiry, _) = split(record)?;
    Some(layout::expiry(expiry.looked_at(), layout::table_of_record(key)?))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the keys of an entity's stored replies, and of the records of their expiry.
pub(crate) fn keys(view: &View, state_key: &[u8]) -> Result<Vec<Box<[u8]>>, ReadError> {
    let (mut keys, mut expiries) = (Vec::new(), BTreeSet::new());
    for reply in view.prefix(&layout::table_of(Table::Replies, state_key)) {
        let (key, record) = reply?;
        expiries.extend(expiry_of(key, record).map(Box::from));
        keys.push(key.into());
    }
    keys.extend(expiries);
    Ok(keys)
}

/// The work of the sweeper at replies that have expired.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    /// The time of the next look, in milliseconds since 1970, so that the sweeper need not look at each step. No record
    /// of an expiry is of an earlier time, except one that was stored during a look.
    next: AtomicU64,
    /// The latest time of a look, which is behind now if the clock was set back. Records of this time and before may be
    /// gone.
    looked: AtomicU64,
    /// Reply of an entity with many at which the look goes on.
    place: Mutex<Option<Place>>,
}

/// A reply among those of which the record of an expiry tells.
#[derive(Debug)]
struct Place {
    expiry: Vec<u8>,
    reply: Vec<u8>,
}

/// Longest time between two looks, in milliseconds: for replies that were stored during a look.
const LOOK_LONGEST: u64 = 60_000;

impl Expiries {
    fn note(&self, time_ms: u64) {
        self.next.fetch_min(time_ms, Ordering::Relaxed);
    }

    fn has_looked(&self, time_ms: u64) -> bool {
        self.looked.load(Ordering::Relaxed) >= time_ms
    }
}

/// Records of replies that have expired.
#[derive(Default)]
struct Expired {
    replies: Vec<Vec<u8>>,
    /// Records of expiries whose replies are all among these, or removed.
    expiries: Vec<Vec<u8>>,
    /// Whether there is more.
    has_more: bool,
}

/// Reads what has expired, up to so many records. `place` is where a read that has not come to the end goes on.
fn find_expired(
    view: &View,
    now: u64,
    place: &mut Option<Place>,
    most: usize,
) -> Result<Expired, ReadError> {
    let (mut found, mut read) = (Expired::default(), 0);
    let end = layout::expiry(now.saturating_add(1), &[]);
    let mut expiries = view.range(layout::EXPIRIES..&end[..]);
    while let Some(expiry) = expiries.next_key().transpose()? {
        if read >= most {
            found.has_more = true;
            break;
        }
        read += 1;
        if let Some(all) = layout::replies_of_expiry(expiry) {
            let from = place.take().filter(|place| place.expiry == expiry);
            let from = from.map_or_else(|| all.clone(), |place| place.reply);
            for reply in view.range(&from[..]..&layout::after(&all)[..]) {
                let (key, record) = reply?;
                if read >= most {
                    *place = Some(Place { expiry: expiry.to_vec(), reply: key.to_vec() });
                    found.has_more = true;
                    return Ok(found);
                }
                read += 1;
                if split(record).is_some_and(|(expiry, _)| expiry.has_expired(now)) {
                    found.replies.push(key.to_vec());
                }
            }
        }
        found.expiries.push(expiry.to_vec());
    }
    Ok(found)
}

/// Removes replies that have expired, if there are some.
pub(crate) async fn remove_expired(node: &Inner) {
    let now = milliseconds(node.store.since_1970());
    let next = node.expiries.next.load(Ordering::Relaxed);
    // A later time is from before the clock was set back.
    if (now + 1..=now + LOOK_LONGEST).contains(&next) {
        return;
    }
    node.expiries.next.store(now + LOOK_LONGEST, Ordering::Relaxed);
    node.expiries.looked.fetch_max(now, Ordering::Relaxed);
    for _ in 0..READS_OF_STEP {
        match remove_some(node, now).await {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "expired replies were not removed");
                break;
            }
        }
    }
    node.expiries.note(now);
}

/// Removes some replies that have expired; returns whether there are more.
async fn remove_some(node: &Inner, now: u64) -> Result<bool, UpdateError<ReadError>> {
    let Expired { replies, expiries, has_more } = find(node, now).map_err(UpdateError::Aborted)?;
    if replies.is_empty() && expiries.is_empty() {
        return Ok(has_more);
    }
    let tables = node.tables.clone();
    // In the order of the writes, because a call may have stored a reply anew.
    let removed = node.store.update(move |update| {
        for reply in &replies {
            let stored = update.get(tables.at(reply), reply)?.and_then(split);
            if stored.is_some_and(|(expiry, _)| expiry.has_expired(now)) {
                update.delete(tables.at(reply), reply);
            }
        }
        for expiry in &expiries {
            update.delete(tables.at(expiry), expiry);
        }
        Ok::<(), ReadError>(())
    });
    removed.await?;
    Ok(has_more)
}

/// Reads what has expired, from where the last read has ended.
fn find(node: &Inner, now: u64) -> Result<Expired, ReadError> {
    let view = View::of(&node.tables)?;
    let mut place = lock(&node.expiries.place);
    let found = find_expired(&view, now, &mut place, READS_MAX)?;
    if !found.has_more {
        let next = view.prefix(layout::EXPIRIES).nth(found.expiries.len()).transpose()?;
        if let Some(time) = next.and_then(|(key, _)| layout::time_of_expiry(key)) {
            node.expiries.note(time);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reply_is_looked_for_when_it_has_expired_and_soon(
            now in 0..1u64 << 44,
            kept in 0..1u64 << 44,
        ) {
            let [time, kept] = [now, kept].map(Duration::from_millis);
            let expiry = Expiry::new(time, kept);
            let looked_at = Duration::from_millis(expiry.looked_at());
            prop_assert!(expiry.has_expired(expiry.looked_at()) && looked_at > time + kept);
            prop_assert!(looked_at <= time + kept + (kept / 8).max(Duration::from_millis(1024)));
            let encoded = expiry.encode();
            prop_assert_eq!(split(&encoded), Some((expiry, &[][..])));
        }
    }
}
