//! The two bounded queues between a socket and the application, and their handles.
//!
//! | side | may |
//! |---|---|
//! | [`SocketInbox`] | take messages, and the end after the last of them |
//! | [`Outbox`], many | queue frames, ask for a close |
//! | [`Endpoint`], one, in the connection's task | queue messages, take frames, end the socket |
//!
//! ```text
//! open ──Outbox::close──► close requested ──task──► ended: the inbox gets its last item
//!   └───────────────────────task──────────────────────▲
//! ```
//!
//! Both queues and all wakers are in one allocation behind one lock, because an idle socket should
//! cost little, and the application and the socket's task seldom contend for the lock. Wakers run
//! outside the lock.
//!
//! Invariants: frames enter the outgoing queue only while the socket is open, before a close is
//! requested. The first reason for the end stays. The task is woken for each change that it has to
//! act on.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tungstenite::Utf8Bytes;

use super::frames::Frames;
use super::reader::CONTROL_BYTES_MAX;
use super::{CloseCode, SocketEnd, SocketLimits, SocketPlace, Sockets};

/// Stream of the text messages of one client: `Ok` for each message, then one `Err` with the reason
/// for the end, then `None`.
///
/// If the application does not take the messages, the server stops reading from the client at the limit
/// [`SocketLimits::inbox_messages_max`]. Dropping the inbox closes the socket with code 1011, unless the
/// socket is closing already.
pub struct SocketInbox(Arc<Shared>);

/// Handle that sends frames to a client. Clones send to the same client.
///
/// Dropping all handles does not close the socket.
#[derive(Clone)]
pub struct Outbox(Arc<Shared>);

/// Error of [`Outbox::send`], with the frames that were not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// The queue has no room, because the client reads too slowly; there may be room later.
    #[error("the socket's queue is full")]
    Full(Frames),
    /// The frames exceed [`SocketLimits::outbox_bytes_max`] or [`SocketLimits::outbox_frames_max`] and never fit.
    #[error("the frames are larger than the socket's queue")]
    TooLarge(Frames),
    /// The socket is closed or about to close.
    #[error("the socket is closed")]
    Closed(Frames),
}

impl OutboxError {
    /// Returns the frames that were not queued.
    pub fn into_frames(self) -> Frames {
        match self {
            OutboxError::Full(frames)
            | OutboxError::TooLarge(frames)
            | OutboxError::Closed(frames) => frames,
        }
    }
}

/// The connection's side of the queues. Dropping it ends the inbox.
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    /// Whether the connection has become a socket.
    is_open: bool,
    _place: SocketPlace,
}

/// Request of the application to its socket's task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CloseRequest {
    /// Close with this code and reason, after the queued frames.
    Outbox(CloseCode, String),
    /// Close because the application has dropped the inbox.
    InboxDropped,
}

struct Shared {
    sockets: Sockets,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Utf8Bytes>,
    message_bytes: usize,
    /// Waker of the task that polls the inbox.
    inbox: Option<Waker>,
    /// Whether the socket's task waits for room in the inbox.
    is_reading_paused: bool,
    frames: VecDeque<Frames>,
    /// Number of messages in `frames`.
    frame_count: usize,
    frame_bytes: usize,
    frames_dropped: u64,
    /// Waker of the socket's task.
    task: Option<Waker>,
    close: CloseState,
}

#[derive(Default)]
enum CloseState {
    #[default]
    Open,
    /// The application has requested a close, and the socket's task has not seen the request yet.
    Requested(CloseRequest),
    /// The socket has ended, and the inbox has not delivered the reason yet.
    Ended(SocketEnd),
    Delivered,
}

/// Creates the queues of a socket, whose end gives `place` back.
pub(crate) fn queues(place: SocketPlace) -> (Endpoint, SocketInbox, Outbox) {
    let state = Mutex::default();
    let shared = Arc::new(Shared { sockets: place.0.clone(), state });
    let endpoint = Endpoint { shared: shared.clone(), is_open: false, _place: place };
    (endpoint, SocketInbox(shared.clone()), Outbox(shared))
}

impl Stream for SocketInbox {
    type Item = Result<Utf8Bytes, SocketEnd>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock();
        if let Some(message) = state.messages.pop_front() {
            state.message_bytes -= message.len();
            if state.messages.is_empty() {
                // A burst leaves no memory behind.
                state.messages = VecDeque::new();
            }
            let task = if state.is_reading_paused && state.has_room(self.0.limits()) {
                state.is_reading_paused = false;
                state.task.take()
            } else {
                None
            };
            drop(state);
            wake(task);
            return Poll::Ready(Some(Ok(message)));
        }
        match std::mem::replace(&mut state.close, CloseState::Delivered) {
            CloseState::Ended(end) => Poll::Ready(Some(Err(end))),
            CloseState::Delivered => Poll::Ready(None),
            open => {
                state.close = open;
                // The replaced waker is dropped outside the lock.
                let replaced = state.inbox.replace(cx.waker().clone());
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }
}

impl Drop for SocketInbox {
    fn drop(&mut self) {
        self.0.request(CloseRequest::InboxDropped);
    }
}

impl fmt::Debug for SocketInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketInbox").field("queued", &self.0.lock().messages.len()).finish()
    }
}

impl Outbox {
    /// Queues frames: all of them, or none. Clones of frames share their memory, so an application can encode a
    /// message once and send clones of it to many sockets.
    ///
    /// # Errors
    /// The frames, with the reason for which they were not queued. Frames that are refused as
    /// [`Full`](OutboxError::Full) or [`TooLarge`](OutboxError::TooLarge) count as dropped.
    pub fn send(&self, frames: impl Into<Frames>) -> Result<(), OutboxError> {
        self.queue(frames.into())
    }

    fn queue(&self, frames: Frames) -> Result<(), OutboxError> {
        let limits = self.0.limits();
        let mut state = self.0.lock();
        if !matches!(state.close, CloseState::Open) {
            return Err(OutboxError::Closed(frames));
        }
        if frames.is_empty() {
            return Ok(());
        }
        let count = state.frame_count.saturating_add(frames.messages());
        let bytes = state.frame_bytes.saturating_add(frames.len());
        if !limits.can_hold(count, bytes) {
            state.frames_dropped += frames.messages() as u64;
            drop(state);
            self.0.sockets.count_dropped_frames(frames.messages());
            return Err(match self.can_hold(&frames) {
                true => OutboxError::Full(frames),
                false => OutboxError::TooLarge(frames),
            });
        }
        (state.frame_count, state.frame_bytes) = (count, bytes);
        state.frames.push_back(frames);
        let task = state.task.take();
        drop(state);
        wake(task);
        Ok(())
    }

    /// Closes the socket once the queued frames are written. Only the first close of a socket
    /// counts. A `reason` beyond the protocol's 123 bytes is cut.
    pub fn close(&self, code: CloseCode, reason: &str) {
        let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
        self.0.request(CloseRequest::Outbox(code, reason.to_owned()));
    }

    /// Returns whether the queue can hold the frames when it is empty.
    pub fn can_hold(&self, frames: &Frames) -> bool {
        self.0.limits().can_hold(frames.messages(), frames.len())
    }

    /// Returns the number of frames that wait in the queue.
    pub fn queued(&self) -> usize {
        self.0.lock().frame_count
    }

    /// Returns the bytes of the frames that wait in the queue, with their heads.
    pub fn queued_bytes(&self) -> usize {
        self.0.lock().frame_bytes
    }

    /// Returns the number of this socket's frames that found no room.
    pub fn frames_dropped(&self) -> u64 {
        self.0.lock().frames_dropped
    }

    /// Returns whether the socket is closed or about to close.
    pub fn is_closed(&self) -> bool {
        !matches!(self.0.lock().close, CloseState::Open)
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("queued", &self.queued())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

impl Endpoint {
    /// Records that the connection has become a socket.
    pub(crate) fn open(&mut self) {
        self.is_open = true;
    }

    /// Returns the configuration.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.shared.sockets
    }

    /// Registers the task to be woken at the next change that it has to act on. If the application has
    /// requested a close, ends the inbox and returns the request.
    pub(crate) fn watch(&self, task: &Waker) -> Option<CloseRequest> {
        let mut state = self.shared.lock();
        if !state.task.as_ref().is_some_and(|registered| registered.will_wake(task)) {
            state.task = Some(task.clone());
        }
        if !matches!(state.close, CloseState::Requested(_)) {
            return None;
        }
        let ended = CloseState::Ended(SocketEnd::Application);
        let CloseState::Requested(request) = std::mem::replace(&mut state.close, ended) else {
            return None;
        };
        let inbox = state.inbox.take();
        drop(state);
        wake(inbox);
        Some(request)
    }

    /// Takes frames from the front of the outgoing queue, at most `bytes_max` bytes. Frames of one `send` stay together;
    /// the first entry is taken even if it is larger.
    pub(crate) fn next_frames(&self, bytes_max: usize) -> VecDeque<Frames> {
        let mut state = self.shared.lock();
        if state.frame_bytes <= bytes_max {
            return state.take_frames();
        }
        let mut taken = VecDeque::new();
        let mut bytes = 0;
        while let Some(next) = state.frames.front()
            && (taken.is_empty() || bytes + next.len() <= bytes_max)
        {
            bytes += next.len();
            state.frame_count -= next.messages();
            taken.extend(state.frames.pop_front());
        }
        state.frame_bytes -= bytes;
        if state.frames.is_empty() {
            // A burst leaves no memory behind.
            state.frames = VecDeque::new();
        }
        taken
    }

    /// Discards the outgoing queue.
    pub(crate) fn discard_frames(&self) {
        let discarded = self.shared.lock().take_frames();
        drop(discarded);
    }

    /// Returns whether the inbox has room for a message. If not, the task is woken once there is room.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.shared.lock();
        let has_room = state.has_room(self.shared.limits());
        state.is_reading_paused = !has_room;
        has_room
    }

    /// Queues a message for the application.
    pub(crate) fn deliver(&self, message: Utf8Bytes) {
        let mut state = self.shared.lock();
        state.message_bytes += message.len();
        state.messages.push_back(message);
        let inbox = state.inbox.take();
        drop(state);
        wake(inbox);
    }

    /// Ends the inbox after the messages that wait in it. Only the first reason counts.
    pub(crate) fn end(&self, end: SocketEnd) {
        let mut state = self.shared.lock();
        if matches!(state.close, CloseState::Open | CloseState::Requested(_)) {
            state.close = CloseState::Ended(end);
        }
        let inbox = state.inbox.take();
        drop(state);
        wake(inbox);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.end(if self.is_open { SocketEnd::Lost } else { SocketEnd::NotOpened });
        self.discard_frames();
        // The waker would keep the task's memory until the last outbox is dropped.
        let task = self.shared.lock().task.take();
        drop(task);
    }
}

impl Shared {
    fn limits(&self) -> &SocketLimits {
        self.sockets.limits()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a close from the task, unless the socket is closing already.
    fn request(&self, request: CloseRequest) {
        let mut state = self.lock();
        if matches!(state.close, CloseState::Open) {
            state.close = CloseState::Requested(request);
            let task = state.task.take();
            drop(state);
            wake(task);
        }
    }
}

impl State {
    /// Takes all frames with the queue's memory, so that an idle socket keeps none from a burst.
    fn take_frames(&mut self) -> VecDeque<Frames> {
        (self.frame_count, self.frame_bytes) = (0, 0);
        std::mem::take(&mut self.frames)
    }

    fn has_room(&self, limits: &SocketLimits) -> bool {
        self.messages.len() < limits.inbox_messages_max.max(1)
            && self.message_bytes < limits.message_bytes_max.max(1)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Proof that processes on other threads can have the handles.
const _: () = {
    const fn travels<T: Send + Unpin + 'static>() {}
    const fn is_shared<T: Clone + Send + Sync + 'static>() {}
    travels::<SocketInbox>();
    is_shared::<Outbox>();
};

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(
        outbox_frames_max: usize,
        outbox_bytes_max: usize,
    ) -> (Endpoint, SocketInbox, Outbox) {
        let limits =
            SocketLimits { outbox_frames_max, outbox_bytes_max, ..SocketLimits::default() };
        let sockets = Sockets::new(limits, None::<String>);
        queues(sockets.place().unwrap())
    }

    /// Joins `count` messages of 10 bytes on the wire.
    fn joined(count: usize) -> Frames {
        Frames::join(&vec![Frames::from("12345678"); count])
    }

    #[test]
    fn joined_frames_are_queued_all_or_none() {
        let (endpoint, _inbox, outbox) = limited(8, 1_000);
        assert_eq!(outbox.send(Frames::default()), Ok(()));
        assert_eq!((outbox.queued(), endpoint.next_frames(1_000).len()), (0, 0), "nothing to send");

        assert_eq!(outbox.send(joined(7)), Ok(()));
        assert_eq!(outbox.send(joined(2)), Err(OutboxError::Full(joined(2))));
        assert_eq!((outbox.queued(), outbox.queued_bytes(), outbox.frames_dropped()), (7, 70, 2));
        assert_eq!(outbox.send("12345678"), Ok(()));
        assert_eq!(outbox.send(joined(9)), Err(OutboxError::TooLarge(joined(9))));
        assert!(outbox.can_hold(&joined(8)) && !outbox.can_hold(&joined(9)));
        assert_eq!((outbox.queued(), outbox.frames_dropped()), (8, 11));
        assert_eq!(endpoint.sockets().frames_dropped(), 11);

        endpoint.discard_frames();
        assert_eq!((outbox.queued(), outbox.queued_bytes()), (0, 0));
        assert_eq!(outbox.send(joined(8)), Ok(()));
        outbox.close(CloseCode::NORMAL, "");
        assert_eq!(outbox.send("12345678"), Err(OutboxError::Closed("12345678".into())));
        assert_eq!(endpoint.next_frames(1_000), [joined(8)], "those before the close are written");
    }

    #[test]
    fn frames_are_taken_in_batches_and_leave_no_memory() {
        for (sent, batches) in [
            (vec![3], vec![vec![3]]),
            (vec![1, 1, 1], vec![vec![1, 1, 1]]),
            (vec![4, 2, 5, 1], vec![vec![4, 2], vec![5, 1]]),
            (vec![4, 3, 5, 1], vec![vec![4], vec![3], vec![5, 1]]),
            // An entry that is larger than a batch is one of its own.
            (vec![1, 9], vec![vec![1], vec![9]]),
            (vec![9, 1], vec![vec![9], vec![1]]),
        ] {
            let (endpoint, _inbox, outbox) = limited(100, 1_000);
            sent.iter().for_each(|count| outbox.send(joined(*count)).unwrap());
            for batch in batches {
                let taken = endpoint.next_frames(60);
                assert!(taken.iter().map(Frames::messages).eq(batch), "{sent:?}");
            }
            assert_eq!((outbox.queued(), outbox.queued_bytes()), (0, 0));
            assert_eq!(endpoint.shared.lock().frames.capacity(), 0, "{sent:?}");
        }
    }
}
