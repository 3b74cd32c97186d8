//! A socket's life in the task of its connection.
//!
//! ```text
//!        drain, close by the application, violation, stall          all written, and answered
//! Open ─────────────────────────────────────────────────► Closing ─────────────────────────► over
//!   │              client's close frame: answered             │ close_timeout                ▲
//!   └── idle_timeout, lost connection ────────────────────────┴──────────────────────────────┘
//! ```
//!
//! A call of [`Session::poll`] does all the work that is possible at the moment: it handles the
//! application's request to close, reads, writes, and checks the deadlines. A single timer serves all
//! deadlines. It may fire early, because a client's bytes move deadlines without moving the timer.
//!
//! Waiting frames are written in batches; a vectored write takes up to 32 entries of the queue.
//!
//! Invariants: a control frame is written between two frames of the application, never within one, and a close frame
//! is the last. Nothing is read while the inbox is full, unless the socket is closing. The inbox has the reason before the
//! session is over. A close takes at most [`SocketLimits::close_timeout`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use tungstenite::protocol::frame::coding::Control;

use super::frames::Frames;
use super::queues::{CloseRequest, Endpoint};
use super::reader::{ClientMessage, MessageReader, Violation};
use super::{CloseCode, SocketEnd, SocketLimits};
use crate::http::connection::close_with;
use crate::http::tls::Stream;

/// Serves the socket on `stream` until it ends, or until some time after `drain` becomes true.
/// `unread` has the bytes that arrived behind the handshake.
pub(crate) async fn run(
    mut endpoint: Endpoint,
    stream: Stream,
    unread: Vec<u8>,
    mut drain: watch::Receiver<bool>,
) {
    let _open = endpoint.sockets().count_open();
    endpoint.open();
    let mut session = Session::new(endpoint, stream, unread);
    {
        let mut drain = pin!(async {
            // A dropped sender counts as a drain, too.
            let _ = drain.wait_for(|drain| *drain).await;
        });
        let mut timer = pin!(sleep_until(session.deadline()));
        let mut is_draining = false;
        poll_fn(|cx| {
            if !is_draining && drain.as_mut().poll(cx).is_ready() {
                is_draining = true;
                session.close(CloseCode::RESTART, "the server restarts", Some(SocketEnd::Drain));
            }
            session.poll(cx, timer.as_mut())
        })
        .await;
    }
    if session.is_lost {
        return;
    }
    let Session { endpoint, stream, .. } = session;
    drop(endpoint);
    // Boxed, because its buffer would enlarge the task of each idle socket.
    Box::pin(close_with(stream, None)).await;
}

struct Session {
    endpoint: Endpoint,
    stream: Stream,
    reader: MessageReader,
    /// Bytes that were received and not yet decoded, because the inbox had no room.
    unread: Vec<u8>,
    is_reading_paused: bool,
    unwritten: Unwritten,
    /// Payload of the client's latest ping, if it has not been answered.
    pong: Option<Bytes>,
    is_ping_due: bool,
    closing: Option<Closing>,
    /// Whether the connection ended without a close handshake.
    is_lost: bool,
    /// Time at which the client's latest bytes were read.
    heard: Instant,
    pinged: Instant,
    /// Time of the latest progress in writing, while a frame waits for the client.
    stalled: Option<Instant>,
}

/// State of a close that has begun.
struct Closing {
    deadline: Instant,
    /// Payload of the close frame, until writing the frame begins.
    frame: Option<Bytes>,
    /// Whether the client's close frame is still to come.
    is_answer_due: bool,
}

/// Frames that are being written.
#[derive(Default)]
struct Unwritten {
    frames: VecDeque<Frames>,
    /// Number of bytes of the first entry that are already written.
    written: usize,
}

/// Maximum bytes of a batch from the queue; a larger entry is a batch of its own. A control frame waits until the batch
/// is written.
const TOGETHER_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of the queue's entries in one vectored write.
const SLICES_MAX: usize = 32;

/// Number of bytes read from the stream at once, into memory on the stack.
const READ_BYTES: usize = 4 * 1024;

impl Session {
    fn new(endpoint: Endpoint, stream: Stream, unread: Vec<u8>) -> Session {
        let now = Instant::now();
        Session {
            endpoint,
            stream,
            reader: MessageReader::new(),
            unread,
            is_reading_paused: false,
            unwritten: Unwritten::default(),
            pong: None,
            is_ping_due: false,
            closing: None,
            is_lost: false,
            heard: now,
            pinged: now,
            stalled: None,
        }
    }

    fn limits(&self) -> &SocketLimits {
        self.endpoint.sockets().limits()
    }

    /// Does all the work that is possible at the moment. Returns `Ready` when the socket is over.
    fn poll(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<()> {
        match self.endpoint.watch(cx.waker()) {
            Some(CloseRequest::Outbox(code, reason)) => self.close(code, &reason, None),
            Some(CloseRequest::InboxDropped) => {
                self.close(CloseCode::ERROR, "the server's process has ended", None);
            }
            None => {}
        }
        loop {
            self.poll_read(cx);
            self.poll_write(cx);
            if self.is_over() {
                return Poll::Ready(());
            }
            if !self.check_time(Instant::now()) {
                break;
            }
        }
        let deadline = self.deadline();
        if deadline < timer.deadline() || timer.is_elapsed() {
            timer.as_mut().reset(deadline);
        }
        if timer.poll(cx).is_ready() {
            // The deadline passed just now, or it moved while the timer was running.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        let is_closed = self.closing.as_ref().is_some_and(|closing| {
            closing.frame.is_none() && !closing.is_answer_due && self.unwritten.is_done()
        });
        self.is_lost || is_closed
    }

    /// Begins the close handshake after the queued frames, unless it has begun before. `end` is
    /// the reason for the inbox, if it has none yet.
    fn close(&mut self, code: CloseCode, reason: &str, end: Option<SocketEnd>) {
        if let Some(end) = end {
            self.endpoint.end(end);
        }
        self.begin_close(close_payload(code.get(), reason));
    }

    fn begin_close(&mut self, payload: Bytes) {
        if self.closing.is_none() {
            let deadline = after(Instant::now(), self.limits().close_timeout);
            self.closing = Some(Closing { deadline, frame: Some(payload), is_answer_due: true });
        }
    }

    /// Ends the socket without a close handshake.
    fn lose(&mut self, end: SocketEnd) {
        self.endpoint.end(end);
        self.is_lost = true;
    }

    /// Acts on deadlines that have passed. Returns whether there may be more to write or read.
    fn check_time(&mut self, now: Instant) -> bool {
        if let Some(closing) = &self.closing {
            if closing.deadline <= now {
                self.is_lost = true;
            }
            return self.is_lost;
        }
        if self.is_reading_paused {
            // The client may have sent bytes that have not been read.
            self.heard = now;
        }
        if self.idle_end() <= now {
            self.lose(SocketEnd::Silent);
            true
        } else if self.stall_end().is_some_and(|end| end <= now) {
            self.endpoint.discard_frames();
            let reason = "the client does not read its messages";
            self.close(CloseCode::TRY_AGAIN_LATER, reason, Some(SocketEnd::Stalled));
            true
        } else if self.next_ping() <= now {
            self.pinged = now;
            self.is_ping_due = true;
            true
        } else {
            false
        }
    }

    /// Returns the earliest deadline on which [`check_time`](Session::check_time) has to act.
    fn deadline(&self) -> Instant {
        if let Some(closing) = &self.closing {
            return closing.deadline;
        }
        let next = self.next_ping().min(self.idle_end());
        self.stall_end().map_or(next, |end| next.min(end))
    }

    fn next_ping(&self) -> Instant {
        // Without a minimum, a ping would always be due.
        let interval = self.limits().ping_interval.max(Duration::from_millis(1));
        after(self.heard.max(self.pinged), interval)
    }

    fn idle_end(&self) -> Instant {
        after(self.heard, self.limits().idle_timeout)
    }

    fn stall_end(&self) -> Option<Instant> {
        self.stalled.map(|since| after(since, self.limits().stall_timeout))
    }

    /// Writes until all frames are written or the client has to read first.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        while !self.is_lost {
            if self.unwritten.is_done() {
                self.unwritten.frames = self.next_frames();
            }
            if self.unwritten.is_done() {
                return self.poll_flush(cx);
            }
            match self.unwritten.poll_write(Pin::new(&mut self.stream), cx) {
                Poll::Ready(Ok(())) => self.stalled = None,
                Poll::Ready(Err(_)) => self.lose(SocketEnd::Lost),
                Poll::Pending => {
                    self.stalled.get_or_insert_with(Instant::now);
                    break;
                }
            }
        }
    }

    /// Writes the bytes that TLS has in its buffer.
    fn poll_flush(&mut self, cx: &mut Context<'_>) {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.stalled = None,
            Poll::Ready(Err(_)) => self.lose(SocketEnd::Lost),
            Poll::Pending => drop(self.stalled.get_or_insert_with(Instant::now)),
        }
    }

    /// Returns the next frames to write: an answer to a ping, a ping, the application's frames in their order, and the
    /// close frame as the last. Returns an empty queue if there is nothing to write.
    fn next_frames(&mut self) -> VecDeque<Frames> {
        let closed = self.closing.as_ref().is_some_and(|closing| closing.frame.is_none());
        if closed {
            return VecDeque::new();
        }
        let control = if let Some(payload) = self.pong.take() {
            Some(Frames::control(Control::Pong, &payload))
        } else if std::mem::take(&mut self.is_ping_due) {
            Some(Frames::control(Control::Ping, &[]))
        } else {
            None
        };
        if control.is_some() {
            return control.into_iter().collect();
        }
        let frames = self.endpoint.next_frames(TOGETHER_BYTES_MAX);
        if !frames.is_empty() {
            return frames;
        }
        let close = self.closing.as_mut().and_then(|closing| closing.frame.take());
        close.map(|payload| Frames::control(Control::Close, &payload)).into_iter().collect()
    }

    /// Reads until no more bytes have arrived, the inbox is full, or no more bytes of the client are expected.
    fn poll_read(&mut self, cx: &mut Context<'_>) {
        while self.can_read() {
            if !self.unread.is_empty() {
                let unread = std::mem::take(&mut self.unread);
                self.take(&unread);
                continue;
            }
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut bytes) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
                    self.heard = Instant::now();
                    self.take(bytes.filled());
                }
                Poll::Ready(_) => self.lose(SocketEnd::Lost),
            }
        }
    }

    /// Returns whether bytes of the client are expected, and there is room for its messages.
    fn can_read(&mut self) -> bool {
        if self.is_lost {
            return false;
        }
        match &self.closing {
            // Messages are discarded; only the close frame matters.
            Some(closing) => closing.is_answer_due,
            None => {
                self.is_reading_paused = !self.endpoint.has_room();
                !self.is_reading_paused
            }
        }
    }

    /// Handles the messages in `bytes`, and keeps the rest if the inbox gets full.
    fn take(&mut self, mut bytes: &[u8]) {
        while self.can_read() {
            // The limits belong to the endpoint, and the reader to the session.
            let Session { reader, endpoint, .. } = self;
            match reader.read(&mut bytes, endpoint.sockets().limits()) {
                Ok(Some(message)) => self.handle(message),
                Ok(None) => return,
                Err(Violation { code, reason }) => {
                    self.endpoint.discard_frames();
                    self.close(code, reason, Some(SocketEnd::Violation(code)));
                    // Bytes after a violation have no meaning.
                    self.expect_no_answer();
                    return;
                }
            }
        }
        if self.is_reading_paused {
            self.unread = bytes.to_vec();
        }
    }

    fn handle(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::Text(text) if self.closing.is_none() => self.endpoint.deliver(text),
            // The protocol allows the server to answer only the latest of several pings. So a client that
            // sends pings and does not read cannot use up memory.
            ClientMessage::Ping(payload) => self.pong = Some(payload.into()),
            ClientMessage::Text(_) | ClientMessage::Pong => {}
            ClientMessage::Close(code, reason) => {
                if self.closing.is_none() {
                    self.endpoint.end(SocketEnd::Client { code, reason });
                    self.endpoint.discard_frames();
                    self.begin_close(code.map_or_else(Bytes::new, |code| close_payload(code, "")));
                }
                self.expect_no_answer();
            }
        }
    }

    fn expect_no_answer(&mut self) {
        if let Some(closing) = &mut self.closing {
            closing.is_answer_due = false;
        }
    }
}

impl Unwritten {
    fn is_done(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes as much as the stream takes in one call, and removes the entries that are complete.
    fn poll_write(
        &mut self,
        stream: Pin<&mut Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut begun = self.written;
        for (slice, frames) in slices.iter_mut().zip(&self.frames) {
            *slice = IoSlice::new(&frames.as_bytes()[begun..]);
            (count, begun) = (count + 1, 0);
        }
        let written = ready!(stream.poll_write_vectored(cx, &slices[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written += written;
        while let Some(first) = self.frames.front()
            && let Some(rest) = self.written.checked_sub(first.len())
        {
            self.written = rest;
            self.frames.pop_front();
        }
        if self.frames.is_empty() {
            // A burst leaves no memory behind.
            self.frames = VecDeque::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Encodes the payload of a close frame.
fn close_payload(code: u16, reason: &str) -> Bytes {
    [&code.to_be_bytes(), reason.as_bytes()].concat().into()
}

/// Returns the time `duration` after `time`, or a time in the far future if that time cannot be
/// represented.
fn after(time: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
    time.checked_add(duration).unwrap_or(time + FAR)
}
