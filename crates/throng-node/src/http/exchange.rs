//! Guards between hyper and the stream, and between hyper and the bodies. They tell
//! [`connection`](crate::http::connection) the phase of an exchange, and let hyper read only the bytes
//! that [`Requests`] passes.
//!
//! ```text
//! Fresh ──request──► Answering ──last of the answer──► Answered ──flushed──► Idle
//!                        ▲                                 │                   │
//!                        └──────────── request ────────────┴───────────────────┘
//! guard:  shut            open                              open                shut
//! ```
//!
//! hyper answers bytes that are not HTTP by itself, with an empty body. It does so while no request
//! is in progress; the guard is shut then, and discards the bytes that hyper writes.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes};
use http_body_util::Limited;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::Limits;
use crate::http::head::{Delivery, HeadRefusal, Requests};
use crate::http::tls::Stream;

/// Phase of a connection's current exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExchangePhase {
    /// No request has arrived yet.
    #[default]
    Fresh,
    /// A request is with its handler, or its answer is being written.
    Answering,
    /// hyper has the whole answer, but may not have written all of it to the stream.
    Answered,
    /// All answers are written; the next request may come.
    Idle,
}

/// Phase of one connection, shared by all parts around hyper. A single task drives these parts, so
/// the lock is never contended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange(Arc<Mutex<ExchangePhase>>);

impl Exchange {
    /// Returns the connection's phase.
    pub(crate) fn phase(&self) -> ExchangePhase {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the arrival of a request. The returned value lives until hyper has the whole answer.
    pub(crate) fn begin(&self) -> Answering {
        self.set(ExchangePhase::Answering);
        Answering(self.clone())
    }

    fn is_under_way(&self) -> bool {
        matches!(self.phase(), ExchangePhase::Answering | ExchangePhase::Answered)
    }

    /// Records that hyper has flushed its output. Returns whether this completed an answer.
    fn flushed(&self) -> bool {
        let answered = self.phase() == ExchangePhase::Answered;
        if answered {
            self.set(ExchangePhase::Idle);
        }
        answered
    }

    fn set(&self, phase: ExchangePhase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

/// Marks an answer that hyper does not have as a whole yet.
#[derive(Debug)]
pub(crate) struct Answering(Exchange);

impl Answering {
    /// Wraps the answer's body, which ends this phase when dropped: hyper drops a body once it has
    /// read all of it.
    pub(crate) fn until_end_of(self, body: Body) -> AnswerBody {
        AnswerBody { body, _answering: self }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set(ExchangePhase::Answered);
    }
}

/// Body of an answer, which ends the [`Answering`] phase when dropped.
pub(crate) struct AnswerBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Progress of a handler in reading a request's body.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyProgress(Arc<Mutex<BodyPhase>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyPhase {
    /// The handler is not waiting for more of the body.
    #[default]
    Idle,
    /// The handler waits for bytes that have not arrived.
    Awaited,
    /// The handler has read the whole body.
    Ended,
}

impl BodyProgress {
    /// Wraps a body to track how much of it is read.
    pub(crate) fn track(&self, body: Limited<Incoming>) -> RequestBody {
        RequestBody { body, progress: self.clone() }
    }

    /// Returns whether the tracked body was read to its end.
    pub(crate) fn is_at_end(&self) -> bool {
        self.get() == BodyPhase::Ended
    }

    /// Returns whether the handler waits for the client to send more of the tracked body.
    pub(crate) fn is_awaited(&self) -> bool {
        self.get() == BodyPhase::Awaited
    }

    fn get(&self) -> BodyPhase {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: BodyPhase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

/// Body of a request, which records its progress.
pub(crate) struct RequestBody {
    body: Limited<Incoming>,
    progress: BodyProgress,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.progress.set(match &frame {
            Poll::Pending => BodyPhase::Awaited,
            Poll::Ready(None) => BodyPhase::Ended,
            Poll::Ready(_) if self.body.is_end_stream() => BodyPhase::Ended,
            Poll::Ready(_) => BodyPhase::Idle,
        });
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stream as hyper sees it: reads yield only valid requests, and writes are discarded while no
/// answer is in progress. A write fails after the client has read no byte for `stall_timeout`, or
/// not the whole answer within `answer_timeout`.
pub(crate) struct ExchangeGuard {
    stream: Stream,
    exchange: Exchange,
    /// Runs while a write waits for the client.
    stall_timer: Option<Pin<Box<Sleep>>>,
    stall_timeout: Duration,
    /// Runs from the first write that waits for the client until all answers are written.
    answer_timer: Option<Pin<Box<Sleep>>>,
    answer_timeout: Duration,
    requests: Requests,
    /// Waker of the connection's task, while a rejected head waits for the answers before it.
    refused: Option<Waker>,
    /// Whether hyper has met the rejected head and ends the connection for that reason.
    ended_by_refusal: bool,
}

impl ExchangeGuard {
    /// Creates a guard for `stream` that `exchange` opens and shuts.
    pub(crate) fn new(stream: Stream, exchange: Exchange, limits: &Limits) -> ExchangeGuard {
        ExchangeGuard {
            stream,
            exchange,
            stall_timer: None,
            stall_timeout: limits.request_timeout,
            answer_timer: None,
            answer_timeout: limits.answer_timeout,
            requests: Requests::new(limits.head_bytes_max),
            refused: None,
            ended_by_refusal: false,
        }
    }

    /// Returns the state of the incoming requests.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns the reason for the end of the connection, if hyper asked for another request and got
    /// none. If hyper did not ask, the previous answer was the last, and nothing may follow it.
    pub(crate) fn refusal(&self) -> Option<HeadRefusal> {
        self.requests.refusal().filter(|_| self.ended_by_refusal)
    }

    /// Returns the stream itself, and the bytes from it that hyper does not have.
    pub(crate) fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.requests.into_unread())
    }

    fn check_timeouts<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        let ExchangeGuard { stall_timer, stall_timeout, answer_timer, answer_timeout, .. } = self;
        let stall_timer = stall_timer.get_or_insert_with(|| Box::pin(sleep(*stall_timeout)));
        let answer_timer = answer_timer.get_or_insert_with(|| Box::pin(sleep(*answer_timeout)));
        if stall_timer.as_mut().poll(cx).is_pending() {
            ready!(answer_timer.as_mut().poll(cx));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Number of bytes read from the stream at once.
const READ_BYTES: usize = 8 * 1024;

impl AsyncRead for ExchangeGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = &mut *self;
        loop {
            match guard.requests.deliver(buffer.remaining(), |bytes| buffer.put_slice(bytes)) {
                Delivery::Bytes(_) => return Poll::Ready(Ok(())),
                Delivery::Broken => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                // hyper would abort the answer in progress.
                Delivery::Refused if guard.exchange.is_under_way() => {
                    guard.refused = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Delivery::Refused => {
                    guard.ended_by_refusal = true;
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                Delivery::NeedsInput => {}
            }
            let mut came = [MaybeUninit::uninit(); READ_BYTES];
            let mut came = ReadBuf::uninit(&mut came);
            ready!(Pin::new(&mut guard.stream).poll_read(cx, &mut came))?;
            if came.filled().is_empty() {
                return Poll::Ready(Ok(())); // the end
            }
            guard.requests.feed(came.filled());
        }
    }
}

impl AsyncWrite for ExchangeGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.exchange.is_under_way() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_timeouts(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.exchange.is_under_way() {
            return Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.check_timeouts(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS has a buffer, so bytes of an answer can wait for the client in the flush, too.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.check_timeouts(cx, flushed))?;
        // hyper flushes after it has written all of its output.
        if self.exchange.flushed() {
            self.answer_timer = None;
            if let Some(refused) = self.refused.take() {
                refused.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
