//! The side of a connection that answers: handshakes, requests in flight, replies that wait for being written.
//!
//! ```text
//!  accept ─ a place among `handshakes` ─ TLS ─ a place among `connections` ─ HELLO ─▶ run
//!  REQUEST ─ number rises? room? time? ─▶ task: Service ── reply ─ room for its bytes ─▶ queue ─▶ REPLY
//!               │         │                 ▲ aborted by CANCEL, by the deadline, by the end of the connection
//!               cut       REFUSAL
//! ```
//!
//! 1. A peer without a certificate costs a place among the handshakes for the time of one, and never one of the others.
//! 2. A request has a slot until its answer is in the queue, and the answers in the queue have a limit: a peer that
//!    does not read ends up with no slots, and is cut by the time for writing.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout, timeout_at};

use super::connection::{BATCH_BYTES, End, Traffic, introduce, run};
use super::frame::{Frame, Limits, Reason};
use super::stats::count;
use super::{Deadline, Peer, Phase, Shared, lock};

/// Bytes that an answer in the queue costs beside its payload.
const ANSWER_BYTES: usize = 128;

/// Accepts connections until the node leaves.
pub(super) async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let accept_all = async {
        loop {
            match listener.accept().await {
                Ok((tcp, address)) => begin(tcp, address, &shared),
                Err(error) => {
                    count(&shared.counters.accepts_failed);
                    tracing::warn!(%error, "cannot accept a connection of a node");
                    // Without open files to spare, the next attempt would fail at once.
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = shared.reached(Phase::Leaving) => {}
    }
}

fn begin(tcp: TcpStream, address: SocketAddr, shared: &Arc<Shared>) {
    count(&shared.counters.accepts);
    let Ok(place) = shared.handshakes.clone().try_acquire_owned() else {
        return count(&shared.counters.connections_refused);
    };
    let shared = shared.clone();
    tokio::spawn(async move {
        // Boxed, because an open connection would keep the memory of the handshake.
        let handshake = Box::pin(timeout(
            shared.options.handshake_timeout,
            shake_hands(tcp, address, place, shared.clone()),
        ));
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            () = shared.reached(Phase::Leaving) => return,
        };
        match shaken {
            Ok(Ok(serve)) => serve.await,
            Ok(Err(end)) => {
                count(match end {
                    End::Full => &shared.counters.connections_refused,
                    _ => &shared.counters.handshakes_failed,
                });
                tracing::debug!(%address, %end, "a node was refused");
            }
            Err(_) => count(&shared.counters.handshakes_slow),
        }
    });
}

/// Finds out whom the connection is with, and returns the service of it.
async fn shake_hands(
    tcp: TcpStream,
    address: SocketAddr,
    handshake: OwnedSemaphorePermit,
    shared: Arc<Shared>,
) -> Result<impl Future<Output = ()>, End> {
    let closed = |error| End::Closed(Some(error));
    tcp.set_nodelay(true).map_err(closed)?;
    let mut stream = shared.identity.acceptor().accept(tcp).await.map_err(closed)?;
    // Taken before our HELLO: a node that has got it may send requests.
    let place = shared.places.clone().try_acquire_owned().map_err(|_| End::Full)?;
    let (hello, arrived) = introduce(&mut stream, &shared).await?;
    drop(handshake);
    let incoming = Arc::new(Incoming {
        peer: Peer { node: hello.node, levels: hello.levels, address },
        limits: hello.limits,
        room: Arc::new(Semaphore::new(shared.options.queued_bytes_max as usize)),
        state: Mutex::default(),
        bell: Notify::new(),
        shared: shared.clone(),
    });
    Ok(async move {
        let end = run(stream, arrived, &incoming, &shared).await;
        tracing::debug!(node = %incoming.peer.node, %end, "a connection of a node has ended");
        let running = std::mem::take(&mut lock(&incoming.state).running);
        running.into_values().for_each(|(task, _)| task.abort());
        drop(place);
    })
}

struct Incoming {
    peer: Peer,
    limits: Limits,
    /// One permit for each byte of replies that may wait for being written.
    room: Arc<Semaphore>,
    state: Mutex<State>,
    bell: Notify,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct State {
    /// Number of the last request.
    last: u64,
    running: HashMap<u64, (AbortHandle, usize)>,
    running_bytes: usize,
    answers: VecDeque<Answer>,
    is_leaving: bool,
    has_said_goodbye: bool,
}

struct Answer {
    frame: Frame,
    deadline: Deadline,
    _room: Option<OwnedSemaphorePermit>,
}

impl Traffic for Arc<Incoming> {
    fn fill(&self, batch: &mut BytesMut) -> Result<(), End> {
        let mut state = lock(&self.state);
        while batch.len() < BATCH_BYTES {
            match state.answers.pop_front() {
                Some(answer) if answer.deadline.is_over() => {
                    count(&self.shared.counters.replies_late);
                }
                Some(answer) => answer.frame.encode(batch),
                None => break,
            }
        }
        if state.is_leaving && !state.has_said_goodbye {
            state.has_said_goodbye = true;
            Frame::Goodbye.encode(batch);
        }
        Ok(())
    }

    fn arrived(&self, frame: Frame) -> Result<(), End> {
        match frame {
            Frame::Request { id, within, payload } => {
                self.begin(id, Deadline::after(within), payload)
            }
            Frame::Cancel { id } => {
                let task = self.free(&mut lock(&self.state), id);
                if let Some(task) = task {
                    count(&self.shared.counters.requests_cancelled);
                    task.abort();
                }
                Ok(())
            }
            Frame::Heartbeat => Ok(()),
            Frame::Hello(_) => Err(End::Forbidden("a second HELLO")),
            Frame::Reply { .. } | Frame::Refusal { .. } | Frame::Goodbye => {
                Err(End::Forbidden("an answer to a node that asks nothing"))
            }
        }
    }

    fn leave(&self) {
        lock(&self.state).is_leaving = true;
    }

    fn bell(&self) -> &Notify {
        &self.bell
    }
}

impl Incoming {
    fn begin(self: &Arc<Self>, id: u64, deadline: Deadline, payload: Bytes) -> Result<(), End> {
        let Shared { options, counters, .. } = &*self.shared;
        count(&counters.requests);
        let mut state = lock(&self.state);
        if id <= state.last {
            return Err(End::Forbidden("a request whose number does not rise"));
        }
        state.last = id;
        let bytes = state.running_bytes + payload.len();
        let is_full = state.running.len() >= options.requests_max as usize
            || (bytes > options.queued_bytes_max as usize && !state.running.is_empty());
        if state.is_leaving || is_full {
            // Refusals have no slot, so a peer that asks for ever and never reads would fill the memory with them.
            if state.answers.len() >= 2 * options.requests_max as usize {
                return Err(End::Forbidden("requests beyond all limits"));
            }
            let (reason, counter) = match state.is_leaving {
                true => (Reason::Leaving, &counters.requests_leaving),
                false => (Reason::Busy, &counters.requests_busy),
            };
            count(counter);
            let frame = Frame::Refusal { id, reason, payload: Bytes::new() };
            state.answers.push_back(Answer { frame, deadline, _room: None });
            drop(state);
            self.bell.notify_one();
            return Ok(());
        }
        let length = payload.len();
        state.running_bytes = bytes;
        // The task cannot end before its slot is there, because its end needs the lock.
        let task = tokio::spawn(serve(self.clone(), id, deadline, payload));
        state.running.insert(id, (task.abort_handle(), length));
        Ok(())
    }

    fn free(&self, state: &mut State, id: u64) -> Option<AbortHandle> {
        let (task, bytes) = state.running.remove(&id)?;
        state.running_bytes -= bytes;
        Some(task)
    }
}

/// Place of a request among those in flight. Dropped, it is free for another, and the answer is in the queue unless the
/// request was cancelled.
struct Slot<'i> {
    incoming: &'i Incoming,
    id: u64,
    deadline: Deadline,
    answer: Option<(Frame, Option<OwnedSemaphorePermit>)>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let Slot { incoming, id, deadline, .. } = *self;
        if std::thread::panicking() {
            count(&incoming.shared.counters.requests_failed);
            let frame = Frame::Refusal { id, reason: Reason::Failed, payload: Bytes::new() };
            self.answer = Some((frame, None));
        }
        let mut state = lock(&incoming.state);
        let is_free = incoming.free(&mut state, id).is_some();
        if let Some((frame, room)) = self.answer.take().filter(|_| is_free) {
            state.answers.push_back(Answer { frame, deadline, _room: room });
            drop(state);
            incoming.bell.notify_one();
        }
    }
}

async fn serve(incoming: Arc<Incoming>, id: u64, deadline: Deadline, payload: Bytes) {
    let mut slot = Slot { incoming: &incoming, id, deadline, answer: None };
    let Shared { service, options, counters, .. } = &*incoming.shared;
    if deadline.is_over() {
        return count(&counters.requests_expired);
    }
    let call = service.call(incoming.peer.clone(), payload, deadline);
    let Ok(answer) = timeout_at(deadline.0, call).await else {
        return count(&counters.replies_late);
    };
    let (reason, payload) = match answer {
        Ok(reply) => (None, reply),
        Err(refusal) => (Some(Reason::Service), refusal.0),
    };
    let (reason, payload) =
        if payload.len() > options.limits().reply_bytes.min(incoming.limits.reply_bytes) as usize {
            count(&counters.replies_too_large);
            // A refusal stays one without its reason: the caller must not believe that something has happened.
            (reason.or(Some(Reason::ReplyTooLarge)), Bytes::new())
        } else {
            (reason, payload)
        };
    let bytes = (payload.len() + ANSWER_BYTES).min(options.queued_bytes_max as usize);
    let room = incoming.room.clone().acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
    let Ok(Ok(room)) = timeout_at(deadline.0, room).await else {
        return count(&counters.replies_late);
    };
    let frame = match reason {
        None => Frame::Reply { id, payload },
        Some(reason) => Frame::Refusal { id, reason, payload },
    };
    slot.answer = Some((frame, Some(room)));
}
