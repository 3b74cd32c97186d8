//! Spans that follow a message: [`tracing::Instrument`] instruments a message in the same way as a
//! future.
//!
//! ```text
//! caller, in a span                              receiver
//! Deposit(5).in_current_span() ──▶ mailbox ──▶ enter, poll the handler, exit ──▶ reply
//!                                                     └── at each poll
//! ```
//!
//! An instrumented message is a type of its own, whose turn runs the turn of the message in it. Other
//! messages therefore pay nothing.
//!
//! Invariant: the span lives as long as the message and then the handler's future: it is closed
//! before the reply is sent.

use crate::address::Address;
use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::client::{AskClient, Client};
use crate::error::{CallError, SendError};
use crate::turn::context::Context;
use crate::turn::process::{Handle, Message, Process, Turn};
use std::future::Future;
use tracing::Instrument;
use tracing::instrument::Instrumented;

/// A message in a `tracing` span: the receiver handles the message in the span that the sender has
/// attached to it.
///
/// [`tracing::Instrument`] attaches a span to a message in the same way as to a future:
/// `message.in_current_span()`, or `message.instrument(span)`. The instrumented message is sent and
/// called like the message itself.
///
/// ```
/// use throng::prelude::*;
/// use tracing::Instrument;
///
/// struct Account { balance: u64 }
///
/// #[process]
/// impl Account {
///     #[message]
///     fn deposit(&mut self, amount: u64) -> u64 {
///         tracing::info!(amount, "deposited"); // in the span `request`
///         self.balance += amount;
///         self.balance
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let account = runtime.spawn(Account { balance: 0 })?;
/// let request = async || {
///     account.call(Deposit { amount: 5 }.in_current_span()).await?;
///     // An address can be instrumented, too, and instruments each message of the client.
///     account.in_current_span().deposit(5).await
/// };
/// let span = tracing::info_span!("request", id = 17);
/// let balance = runtime.block_on(async |_| request().instrument(span).await);
/// assert_eq!(balance.ok(), Some(10));
/// # Ok(())
/// # }
/// ```
///
/// - The handler's future is made in the span, and the span is entered at each of its polls; the
///   turns of other requests do not mix with it. A message that is dropped unhandled is dropped in
///   its span.
/// - The span covers this message alone. Messages that the handler sends, calls or pipes have no span,
///   unless the handler instruments them, too. A question is instrumented in its closure:
///   `account.ask(|to| Question(to).in_current_span())`.
/// - Hooks and the [`Layer`](crate::layer::Layer) of a process run outside of the span.
/// - Timers, bounded mailboxes, [`pipe`](Context::pipe) and [`attach`](Context::attach) take an
///   instrumented message like any other. A timer keeps the span open until the timer ends.
/// - A [`Recipient`](crate::Recipient) takes only messages that are not instrumented. An
///   [async process](crate::AsyncProcess) receives the message without its span.
///
/// Errors hand the instrumented message back, so that it can be sent again;
/// [`into_inner`](Instrumented::into_inner) returns it without its span.
///
/// Cost: the message and the handler's future are larger by a span, 40 bytes, and the subscriber is
/// called at each step of the span. Messages that are not instrumented cost what they did.
impl<P: Process, T: Turn<P>> Turn<P> for Instrumented<T> {
    type Reply = T::Reply;
    const COUNTED: bool = T::COUNTED;
    const LAYERED: bool = T::LAYERED;
    const READ_ONLY: bool = T::READ_ONLY;

    fn run(self, process: &mut P, cx: &mut Context<P>) -> impl Future<Output = T::Reply> + Send {
        let span = self.span().clone();
        // A handler that is no `async fn` may do its work here.
        let future = span.in_scope(|| self.into_inner().run(process, cx));
        future.instrument(span)
    }
}

/// An address that attaches its `tracing` span to each message of the typed client; see the implementation
/// of [`Turn`] for [`Instrumented`].
impl<P: Process> Client for &Instrumented<Address<P>> {
    type Process = P;
    type CallError<M: Message> = CallError<Instrumented<M>>;
    type SendError<M: Message> = SendError<Instrumented<M>>;
    type Call<M: Message>
        = Call<Instrumented<M>, M::Reply>
    where
        P: Handle<M>;

    fn call<M: Message>(self, message: M) -> Self::Call<M>
    where
        P: Handle<M>,
    {
        self.inner().call(message.instrument(self.span().clone()))
    }

    fn send<M: Message>(self, message: M) -> Result<(), Self::SendError<M>>
    where
        P: Handle<M>,
    {
        self.inner().send(message.instrument(self.span().clone()))
    }
}

impl<P: Process> AskClient for &Instrumented<Address<P>> {
    type Ask<M: Message, R: Send + 'static>
        = Ask<Instrumented<M>, R>
    where
        P: Handle<M>;

    fn ask<M: Message, R: Send + 'static>(
        self,
        question: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Self::Ask<M, R>
    where
        P: Handle<M>,
    {
        self.inner().ask(|to| question(to).instrument(self.span().clone()))
    }
}
