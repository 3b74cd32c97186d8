//! [`Client`]: the values on which `#[process]` makes a method of each message.

use crate::address::Address;
use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::error::{CallError, SendError};
use crate::turn::process::{Handle, Message, Process};
use std::future::Future;

/// A value that takes the messages of a process: an [`Address`], or a reference to a [`Child`](crate::Child).
///
/// `#[process]` generates a trait such as `AccountClient`, with a method for each message of an
/// `Account`. Every `Client` of an `Account` has these methods. A layer on top of processes
/// implements this trait for handles of its own: an entity of `throng-durable` has them too.
///
/// ```
/// use throng::prelude::*;
///
/// #[derive(Default)]
/// struct Account { balance: u64 }
///
/// #[process]
/// impl Account {
///     #[message]
///     async fn deposit(&mut self, amount: u64) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
/// }
///
/// async fn deposit_twice<C: AccountClient>(account: C) -> Result<u64, C::CallError<Deposit>> {
///     account.deposit(1).await?;
///     account.deposit(1).await
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let account = runtime.spawn(Account::default())?;
/// assert_eq!(runtime.block_on(async |_| deposit_twice(account).await)?, 2);
/// # Ok(())
/// # }
/// ```
///
/// An address that is [instrumented](tracing::Instrument) has the methods, too: its messages take
/// the `tracing` span along.
///
/// Cost: none; each method is inlined to the method of the handle.
pub trait Client: Copy {
    /// Type of the process that handles the messages.
    type Process: Process;

    /// Error of a call.
    type CallError<M: Message>;

    /// Error of a send, with the message that was not sent.
    type SendError<M: Message>;

    /// A call under way.
    type Call<M: Message>: Future<Output = Result<M::Reply, Self::CallError<M>>> + Send
    where
        Self::Process: Handle<M>;

    /// Sends a message and waits for the reply; see [`Address::call`].
    fn call<M: Message>(self, message: M) -> Self::Call<M>
    where
        Self::Process: Handle<M>;

    /// Sends a message without waiting; see [`Address::send`].
    ///
    /// # Errors
    /// The message could not be sent, and is handed back.
    fn send<M: Message>(self, message: M) -> Result<(), Self::SendError<M>>
    where
        Self::Process: Handle<M>;
}

/// A [`Client`] that can ask questions: send a message with a [`ReplyTo`] and wait for the answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot ask a question",
    label = "this message is answered through its `ReplyTo`, for which this handle cannot wait",
    note = "the handle can call a message whose handler returns the reply, without a `ReplyTo`"
)]
pub trait AskClient: Client {
    /// A question under way.
    type Ask<M: Message, R: Send + 'static>: Future<Output = Result<R, Self::CallError<M>>> + Send
    where
        Self::Process: Handle<M>;

    /// Sends a message that carries a [`ReplyTo`], and waits for the answer; see [`Address::ask`].
    fn ask<M: Message, R: Send + 'static>(
        self,
        question: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Self::Ask<M, R>
    where
        Self::Process: Handle<M>;
}

/// Implements both traits for a handle of a `P`, through the handle's methods of the same names.
macro_rules! client {
    ($client:ty: $target:ident) => {
        impl<P: Process> Client for $client {
            type Process = P;
            type CallError<M: Message> = CallError<M>;
            type SendError<M: Message> = SendError<M>;
            type Call<M: Message>
                = Call<M, M::Reply>
            where
                P: Handle<M>;

            #[inline]
            fn call<M: Message>(self, message: M) -> Call<M, M::Reply>
            where
                P: Handle<M>,
            {
                $target::call(self, message)
            }

            #[inline]
            fn send<M: Message>(self, message: M) -> Result<(), SendError<M>>
            where
                P: Handle<M>,
            {
                $target::send(self, message)
            }
        }

        impl<P: Process> AskClient for $client {
            type Ask<M: Message, R: Send + 'static>
                = Ask<M, R>
            where
                P: Handle<M>;

            #[inline]
            fn ask<M: Message, R: Send + 'static>(
                self,
                question: impl FnOnce(ReplyTo<R>) -> M,
            ) -> Ask<M, R>
            where
                P: Handle<M>,
            {
                $target::ask(self, question)
            }
        }
    };
}

pub(crate) use client;

client!(Address<P>: Address);
