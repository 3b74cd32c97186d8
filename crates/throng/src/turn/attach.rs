//! Streams whose items come to a process as messages.
//!
//! ```text
//!  stream ──▶ Feeder, a process ──(at most WINDOW items)──▶ mailbox ──▶ handler
//!                  ▲                                                      │
//!                  └────────────── a permit for each handled item ────────┘
//! ```
//! Invariants:
//! 1. At most [`WINDOW`] items are taken from the stream and not yet handled. The permit of an item goes back
//!    when its turn is over or the item is dropped, whatever the reason.
//! 2. The last message comes once, after all items, unless the feeder is killed or the process has exited.
//! 3. The stream is dropped when its process exits, even while the stream waits.
//! 4. A stream that never waits occupies its worker for at most [`WINDOW`] items at a time.

use crate::address::{Address, Pid};
use crate::error::SpawnError;
use crate::exit::{ExitReason, drop_users};
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of items that are taken from a stream and not yet handled by its process.
///
/// Nanoseconds per item of a stream that never waits (`costs stream`, medians of 3 on a busy machine):
///
/// | window | 1 | 4 | 16 | 64 | 256 |
/// |---|---|---|---|---|---|
/// | ns | 316 | 212 | 184 | 185 | 93 |
///
/// A socket takes microseconds to deliver an item, and each item ahead takes memory, so 256 are not worth it.
const WINDOW: usize = 16;

impl<P: Process> Context<P> {
    /// Sends this process each item of a stream as a message, and a last message when the stream has ended.
    ///
    /// ```
    /// use throng::prelude::*;
    /// use tokio::io::{AsyncBufReadExt, BufReader};
    /// use tokio_stream::{StreamExt, wrappers::LinesStream};
    ///
    /// #[derive(Default)]
    /// struct Reader { lines: Vec<String>, done: Option<ReplyTo<usize>> }
    ///
    /// #[process]
    /// impl Reader {
    ///     #[hook]
    ///     fn started(&mut self, cx: &mut Context<Self>) {
    ///         let lines = LinesStream::new(BufReader::new(&b"one\ntwo\n"[..]).lines());
    ///         let read = lines.map(|line| Line { line: line.expect("reads from memory") });
    ///         if cx.attach(read, |reason| End { reason }).is_err() {
    ///             cx.stop(ExitReason::other("too many processes"));
    ///         }
    ///     }
    ///     #[message(send)]
    ///     fn line(&mut self, line: String) {
    ///         self.lines.push(line);
    ///     }
    ///     #[message(send)]
    ///     fn end(&mut self, cx: &mut Context<Self>, reason: ExitReason) {
    ///         assert_eq!((reason, self.lines.len()), (ExitReason::Normal, 2));
    ///         cx.stop(ExitReason::Normal);
    ///     }
    /// }
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// # let reader = runtime.spawn(Reader::default())?;
    /// # assert!(matches!(
    /// #     runtime.block_on(async |_| reader.pid().exited().await),
    /// #     ExitReason::Normal | ExitReason::NoProcess,
    /// # ));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The stream waits for this process: at most 16 items are taken from the stream and not yet handled. No bound
    /// of a mailbox applies to items, and they are accepted even if the runtime's mailbox budget is used up.
    ///
    /// A process of its own polls the stream; its pid is returned.
    ///
    /// - When the stream ends, `end` makes the last message, from [`ExitReason::Normal`].
    /// - If the stream or `end` panics, the panic is logged; after a panic of the stream, `end` gets
    ///   [`ExitReason::Panicked`].
    /// - If that process is asked to [exit](Pid::exit), `end` gets the reason. If it is [killed](Pid::kill), the
    ///   stream is dropped, and no last message comes.
    /// - When this process exits, the stream is dropped.
    ///
    /// # Errors
    /// [`SpawnError`] hands the stream and `end` back.
    ///
    /// Cost: a spawn with a pooled block for the stream, a few small allocations, and a pooled block for each item.
    pub fn attach<S, T, E>(&self, stream: S, end: E) -> Result<Pid, SpawnError<(S, E)>>
    where
        S: Stream<Item: Turn<P>> + Send + 'static,
        T: Turn<P>,
        E: FnOnce(ExitReason) -> T + Send + 'static,
    {
        let feeder = Feeder { to: self.address(), end: None };
        match self.runtime().spawner().spawn_first(feeder, Feed { stream, end }) {
            Ok(feeder) => {
                self.current().note_pipe(feeder.pid());
                Ok(feeder.pid())
            }
            Err(error) => Err(error.map(|(_, Feed { stream, end })| (stream, end))),
        }
    }
}

/// The process that polls a stream.
struct Feeder<P, E> {
    to: Address<P>,
    /// Makes the last message. `None` before the first turn, and after the last message.
    end: Option<E>,
}

impl<P, T, E> Process for Feeder<P, E>
where
    P: Process,
    T: Turn<P>,
    E: FnOnce(ExitReason) -> T + Send + 'static,
{
    async fn stopping(&mut self, reason: &ExitReason, _: &mut Context<Self>) {
        if let Some(end) = self.end.take() {
            self.to.push_or_lose(end(reason.clone()));
        }
    }
}

/// The only turn of a [`Feeder`]: sends the items of the stream.
struct Feed<S, E> {
    stream: S,
    end: E,
}

impl<P, T, E, S> Turn<Feeder<P, E>> for Feed<S, E>
where
    P: Process,
    T: Turn<P>,
    E: FnOnce(ExitReason) -> T + Send + 'static,
    S: Stream<Item: Turn<P>> + Send + 'static,
{
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(self, feeder: &mut Feeder<P, E>, cx: &mut Context<Feeder<P, E>>) {
        cx.has_begun();
        let Feed { stream, end } = self;
        feeder.end = Some(end);
        let to = feeder.to;
        let mut stream = pin!(stream);
        // Both return whether the process has exited.
        let feed = async {
            let window = Arc::new(Semaphore::new(WINDOW));
            for number in 1.. {
                if number % WINDOW == 0 {
                    yield_once().await;
                }
                let Ok(permit) = window.clone().acquire_owned().await else { break };
                let Some(turn) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await else { break };
                if !to.push_or_lose(Item { turn, permit }) {
                    return true;
                }
            }
            false
        };
        let (mut feed, mut exited) = (pin!(feed), pin!(to.pid().exited()));
        let exited = poll_fn(|cx| match exited.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => feed.as_mut().poll(cx),
        });
        if exited.await {
            drop_users(feeder.end.take());
        }
        cx.stop(ExitReason::Normal);
    }
}

/// Returns to the scheduler once, so that other processes of this worker run.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An item in the mailbox, or in its turn.
struct Item<T> {
    turn: T,
    permit: OwnedSemaphorePermit,
}

impl<P: Process, T: Turn<P>> Turn<P> for Item<T> {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        let Item { turn, permit } = self;
        drop_users(turn.run(process, cx).await);
        drop(permit);
    }
}
