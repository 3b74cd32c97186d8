//! Addresses by the type of message that a process handles, instead of by the process's type.

use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::delivery::Delivery;
use crate::address::{Address, Pid, RawAddress};
use crate::error::SendError;
use crate::mailbox::envelope::{Cast, OfferOrWait, Route};
use crate::turn::process::{Handle, Message};
use std::fmt;
use std::hash::{Hash, Hasher};

/// The address of a process of any type that handles an `M`: two words, free to copy.
///
/// Use a recipient in lists of processes of several types, and in code that should not depend on
/// the types of the processes to which it sends.
///
/// ```
/// use throng::prelude::*;
///
/// struct Post(String);
/// impl Message for Post { type Reply = usize; }
///
/// struct Timeline(Vec<String>);
/// impl Process for Timeline {}
/// impl Handle<Post> for Timeline {
///     async fn handle(&mut self, Post(text): Post, _: &mut Context<Self>) -> usize {
///         self.0.push(text);
///         self.0.len()
///     }
/// }
///
/// struct Audit { letters: usize }
/// impl Process for Audit {}
/// impl Handle<Post> for Audit {
///     async fn handle(&mut self, Post(text): Post, _: &mut Context<Self>) -> usize {
///         self.letters += text.len();
///         self.letters
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let readers: [Recipient<Post>; 2] = [
///     runtime.spawn(Timeline(Vec::new()))?.recipient(),
///     runtime.spawn(Audit { letters: 0 })?.recipient(),
/// ];
/// runtime.block_on(async |_| {
///     assert_eq!(readers[0].call(Post("hi".into())).await?, 1);
///     assert_eq!(readers[1].call(Post("hi".into())).await?, 2);
///     Ok(())
/// })
/// # }
/// ```
pub struct Recipient<M: Message> {
    raw: RawAddress,
    kind: &'static Kind<M>,
}

const _: () = assert!(size_of::<Recipient<Never>>() == 16, "a recipient is two words");

/// A message for the size assertion: the size of a recipient does not depend on its message.
struct Never;
impl Message for Never {
    type Reply = ();
}

/// Functions that send `M`s to a process of the type that the recipient was made from.
struct Kind<M: Message> {
    send: fn(RawAddress, M) -> Result<(), SendError<M>>,
    offer_or_wait: OfferOrWait<M>,
    deliver: OfferOrWait<M>,
    lose_unsent: fn(RawAddress, SendError<M>),
    route: fn(RawAddress) -> Route<M, M::Reply>,
}

impl<M: Message> Recipient<M> {
    /// Sends a message without waiting for anything; see [`Address::send`].
    ///
    /// # Errors
    /// The same as for [`Address::send`].
    pub fn send(self, message: M) -> Result<(), SendError<M>> {
        (self.kind.send)(self.raw, message)
    }

    /// Sends a message of which no sender would be told that it was not sent; returns whether it was.
    pub(crate) fn send_or_lose(self, message: M) -> bool {
        let sent = self.send(message);
        sent.map_err(|error| (self.kind.lose_unsent)(self.raw, error)).is_ok()
    }

    /// Sends a message, and waits for room if there is none; see [`Address::deliver`].
    ///
    /// # Errors
    /// The same as for [`Address::deliver`].
    pub fn deliver(self, message: M) -> Delivery<M> {
        Delivery::new(self.raw, self.kind.deliver, message)
    }

    /// Sends a message and waits for the reply; see [`Address::call`].
    ///
    /// # Errors
    /// The same as for [`Address::call`].
    ///
    /// # Panics
    /// The same as for [`Address::call`].
    pub fn call(self, message: M) -> Call<M, M::Reply> {
        Call::new((self.kind.route)(self.raw), message)
    }

    /// Sends a message that carries a [`ReplyTo`], and waits for the answer; see [`Address::ask`].
    ///
    /// # Errors
    /// The same as for [`Address::ask`].
    ///
    /// # Panics
    /// The same as for [`Address::call`].
    pub fn ask<R: Send + 'static>(self, question: impl FnOnce(ReplyTo<R>) -> M) -> Ask<M, R> {
        Ask::new(self.raw, self.kind.offer_or_wait, question)
    }

    /// Returns the pid of the process, by which it can be monitored, linked or asked to exit.
    ///
    /// ```
    /// # use throng::prelude::*;
    /// struct Watch(Recipient<Note>);
    /// struct Note;
    /// # impl Message for Note { type Reply = (); }
    /// # impl Message for Watch { type Reply = (); }
    /// struct Guard;
    /// impl Process for Guard {
    ///     async fn down(&mut self, down: Down, cx: &mut Context<Self>) {
    ///         cx.stop(down.reason);
    ///     }
    /// }
    /// impl Handle<Watch> for Guard {
    ///     async fn handle(&mut self, Watch(other): Watch, cx: &mut Context<Self>) {
    ///         cx.monitor(other);
    ///     }
    /// }
    /// # struct Other;
    /// # impl Process for Other {}
    /// # impl Handle<Note> for Other {
    /// #     async fn handle(&mut self, _: Note, _: &mut Context<Self>) {}
    /// # }
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// # let guard = runtime.spawn(Guard)?;
    /// # let other = runtime.spawn(Other)?.recipient::<Note>();
    /// # runtime.block_on(async |_| {
    /// #     guard.call(Watch(other)).await?;
    /// #     let ended = guard.pid().exited();
    /// #     other.pid().kill();
    /// #     assert!(matches!(ended.await, ExitReason::Killed | ExitReason::NoProcess));
    /// #     Ok(())
    /// # })
    /// # }
    /// ```
    pub fn pid(self) -> Pid {
        Pid::from_raw(self.raw)
    }

    /// Whether the process has not exited yet.
    pub fn is_alive(self) -> bool {
        self.raw.is_alive()
    }
}

impl<P: Handle<M>, M: Message> From<Address<P>> for Recipient<M> {
    fn from(address: Address<P>) -> Recipient<M> {
        let kind = const {
            &Kind {
                send: Address::<P>::send_to::<M>,
                offer_or_wait: Cast::<P, M>::offer_or_wait,
                deliver: Cast::<P, M>::deliver,
                lose_unsent: Cast::<P, M>::lose_unsent,
                route: |raw| Route::to(Address::<P>::from_raw(raw)),
            }
        };
        Recipient { raw: address.raw(), kind }
    }
}

impl<M: Message> From<Recipient<M>> for Pid {
    fn from(recipient: Recipient<M>) -> Pid {
        recipient.pid()
    }
}

impl<M: Message> Clone for Recipient<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Message> Copy for Recipient<M> {}

// Two recipients are equal if they lead to the same process. `raw` alone identifies it.
impl<M: Message> PartialEq for Recipient<M> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<M: Message> Eq for Recipient<M> {}

impl<M: Message> Hash for Recipient<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<M: Message> fmt::Debug for Recipient<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient@{:x}", self.raw)
    }
}
