//! The side of a connection that asks: dialing, calls that wait for their answers, and what a broken connection means
//! for them.
//!
//! ```text
//!  Route     Idle ──call──▶ Dialing ──▶ Up ──idle, left──▶ Idle
//!                              │        └──broken early──▶ Down ──the pause is over, call──▶ Dialing
//!                              └──failed────────────────▶ Down
//!
//!  Outgoing  calls by number │ 1 2 3 4 │ 5 6 7 │        at the end of the connection, 1 to 4 are lost, and 5 to 7
//!                              sent      unsent         have not happened
//!                                     ▲ handed to TLS up to here
//! ```
//!
//! 1. A call is sent once its bytes are in a batch, which is decided under the lock that its caller takes to withdraw.
//! 2. Answers name a call that was sent. Any other number is a peer's fault, but that of a call that was withdrawn.
//! 3. A route dials one at a time; calls that come during a pause fail at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::connection::{BATCH_BYTES, End, Traffic, introduce, run};
use super::frame::{Frame, Hello, Limits, Reason};
use super::stats::count;
use super::{Deadline, Phase, Shared, Target, lock};
use crate::Incarnation;

/// The way to a node: its connection, or the reason for having none.
pub(super) struct Route {
    target: Target,
    state: watch::Sender<State>,
    /// Dials in a row that have failed.
    failures: AtomicU32,
}

enum State {
    Idle,
    Dialing,
    Up(Arc<Outgoing>),
    Down { until: Instant, error: DialError },
}

/// Reason for having no connection to a node.
#[derive(Clone, Debug)]
pub(super) enum DialError {
    Failed(String),
    WrongNode(Incarnation),
    /// This node has as many connections as it may.
    Full,
}

impl State {
    fn may_dial(&self) -> bool {
        match self {
            State::Idle => true,
            State::Dialing => false,
            State::Up(outgoing) => !outgoing.is_open(),
            State::Down { until, .. } => *until <= Instant::now(),
        }
    }
}

impl Route {
    pub(super) fn new(target: Target) -> Route {
        Route { target, state: watch::Sender::new(State::Idle), failures: AtomicU32::new(0) }
    }

    /// Whether the route has a connection, or a pause that later calls have to keep.
    pub(super) fn is_used(&self) -> bool {
        !self.state.borrow().may_dial()
    }

    /// Returns the connection, which is made if there is none. Calls that come meanwhile wait for the same.
    pub(super) async fn connection(
        self: &Arc<Route>,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Outgoing>, DialError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Up(outgoing) if outgoing.is_open() => return Ok(outgoing.clone()),
                State::Down { until, error } if Instant::now() < *until => {
                    return Err(error.clone());
                }
                _ => {}
            }
            let mut begun = Ok(None);
            self.state.send_if_modified(|state| {
                if state.may_dial() {
                    begun = shared.places.clone().try_acquire_owned().map(Some);
                }
                let begins = matches!(begun, Ok(Some(_)));
                if begins {
                    *state = State::Dialing;
                }
                begins
            });
            if let Some(place) = begun.map_err(|_| DialError::Full)? {
                // A task: the calls that wait with the first must not lose the dial when the first is dropped.
                tokio::spawn(keep(self.clone(), shared.clone(), place));
            }
            // The sender is in this very value, so there is no error.
            let _ = state.changed().await;
        }
    }

    fn down(&self, error: DialError, shared: &Shared) -> State {
        // Relaxed: the number is a hint, and only the task that keeps the route changes it.
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(20);
        let (least, most) = (shared.options.backoff.start(), shared.options.backoff.end());
        let pause = least.saturating_mul(1 << failures).min(*most);
        // Between a half and all of it: nodes that have lost the same peer do not come back to it as one.
        State::Down { until: Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0), error }
    }
}

/// Dials, and serves the connection until it ends, in its place among all.
async fn keep(route: Arc<Route>, shared: Arc<Shared>, place: OwnedSemaphorePermit) {
    count(&shared.counters.dials);
    let dialed = tokio::select! {
        dialed = timeout(shared.options.handshake_timeout, Box::pin(dial(&route.target, &shared))) => dialed,
        () = shared.reached(Phase::Leaving) => Ok(Err(DialError::Failed(End::Stopped.to_string()))),
    };
    let slow = || Err(DialError::Failed("it does not finish its handshake".to_owned()));
    let dialed = match dialed.unwrap_or_else(|_| slow()) {
        Ok(dialed) => dialed,
        Err(error) => {
            count(&shared.counters.dials_failed);
            route.state.send_replace(route.down(error, &shared));
            return;
        }
    };
    let outgoing = Arc::new(Outgoing::new(dialed.hello.limits, shared.clone()));
    route.state.send_replace(State::Up(outgoing.clone()));
    let begun = Instant::now();
    let end = run(dialed.stream, dialed.arrived, &*outgoing, &shared).await;
    outgoing.close(&end);
    drop(place);
    tracing::debug!(node = %route.target.node, %end, "a connection to a node has ended");
    let state = if end.is_orderly() || begun.elapsed() > *shared.options.backoff.end() {
        route.failures.store(0, Ordering::Relaxed);
        State::Idle
    } else {
        // A peer that takes connections and drops them would otherwise be dialed by each call.
        route.down(DialError::Failed(end.to_string()), &shared)
    };
    route.state.send_if_modified(|now| {
        let is_ours = matches!(now, State::Up(up) if Arc::ptr_eq(up, &outgoing));
        if is_ours {
            *now = state;
        }
        is_ours
    });
}

struct Dialed {
    stream: TlsStream<TcpStream>,
    hello: Hello,
    arrived: BytesMut,
}

async fn dial(target: &Target, shared: &Shared) -> Result<Dialed, DialError> {
    let failed = |error: std::io::Error| DialError::Failed(error.to_string());
    let tcp = TcpStream::connect(&target.address).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let (connector, name) = shared.identity.connector();
    let mut stream = connector.connect(name, tcp).await.map_err(failed)?;
    let introduced = introduce(&mut stream, shared).await;
    let (hello, arrived) = introduced.map_err(|end| DialError::Failed(end.to_string()))?;
    if hello.node != target.node {
        return Err(DialError::WrongNode(hello.node));
    }
    Ok(Dialed { stream, hello, arrived })
}

/// Calls on a connection.
pub(super) struct Outgoing {
    limits: Limits,
    calls: Mutex<Calls>,
    bell: Notify,
    shared: Arc<Shared>,
}

struct Calls {
    waiting: BTreeMap<u64, Call>,
    waiting_bytes: usize,
    /// Number of the last call that was submitted, and of the last that was sent.
    last: u64,
    sent: u64,
    cancelled: Vec<u64>,
    used: Instant,
    /// Whether no call is taken any more, because one of the nodes ends.
    is_leaving: bool,
    is_closed: bool,
}

struct Call {
    request: Bytes,
    deadline: Deadline,
    answer: oneshot::Sender<Outcome>,
}

/// Fate of a call that a connection has taken.
#[derive(Debug)]
pub(super) enum Outcome {
    Reply(Bytes),
    Refusal(Reason, Bytes),
    /// The connection has ended before the call was sent.
    Unsent(String),
    /// The time was over before the call was sent.
    Expired,
    /// The call was sent, and no answer can come any more.
    Lost(String),
}

/// Reason for which a connection has not taken a call.
pub(super) enum SubmitError {
    Closed,
    Busy,
    TooLarge(u32),
}

impl Outgoing {
    fn new(limits: Limits, shared: Arc<Shared>) -> Outgoing {
        let calls = Calls {
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            last: 0,
            sent: 0,
            cancelled: Vec::new(),
            used: Instant::now(),
            is_leaving: false,
            is_closed: false,
        };
        Outgoing { limits, calls: Mutex::new(calls), bell: Notify::new(), shared }
    }

    fn is_open(&self) -> bool {
        let calls = lock(&self.calls);
        !calls.is_closed && !calls.is_leaving
    }

    pub(super) fn submit(
        self: &Arc<Outgoing>,
        request: Bytes,
        deadline: Deadline,
    ) -> Result<Waiting, SubmitError> {
        if request.len() > self.limits.request_bytes as usize {
            return Err(SubmitError::TooLarge(self.limits.request_bytes));
        }
        let options = &self.shared.options;
        let mut calls = lock(&self.calls);
        if calls.is_closed || calls.is_leaving {
            return Err(SubmitError::Closed);
        }
        let bytes = calls.waiting_bytes + request.len();
        if calls.waiting.len() >= options.requests_max.min(self.limits.requests) as usize
            || (bytes > options.queued_bytes_max as usize && !calls.waiting.is_empty())
        {
            return Err(SubmitError::Busy);
        }
        let (answer, receiver) = oneshot::channel();
        calls.last += 1;
        calls.waiting_bytes = bytes;
        calls.used = Instant::now();
        let id = calls.last;
        calls.waiting.insert(id, Call { request, deadline, answer });
        drop(calls);
        self.bell.notify_one();
        Ok(Waiting { outgoing: self.clone(), id, receiver })
    }

    /// Ends the connection for its callers.
    fn close(&self, end: &End) {
        let mut calls = lock(&self.calls);
        calls.is_closed = true;
        calls.end_unsent(end);
        for (_, call) in std::mem::take(&mut calls.waiting) {
            // The caller may be gone, here and below.
            let _ = call.answer.send(Outcome::Lost(end.to_string()));
        }
    }

    /// Withdraws a call; tells whether it was sent, or nothing if it has its outcome.
    fn withdraw(&self, id: u64) -> Option<bool> {
        let mut calls = lock(&self.calls);
        calls.take(id)?;
        let is_sent = id <= calls.sent;
        if is_sent {
            calls.cancelled.push(id);
        }
        // Without calls a connection that leaves can end.
        self.bell.notify_one();
        Some(is_sent)
    }

    fn answer(&self, id: u64, outcome: Outcome) -> Result<(), End> {
        let mut calls = lock(&self.calls);
        if id == 0 || id > calls.sent {
            return Err(End::Forbidden("an answer to what it was not asked"));
        }
        match calls.take(id) {
            Some(call) => drop(call.answer.send(outcome)),
            None => count(&self.shared.counters.answers_late),
        }
        if calls.is_leaving {
            self.bell.notify_one();
        }
        Ok(())
    }
}

impl Calls {
    fn take(&mut self, id: u64) -> Option<Call> {
        let call = self.waiting.remove(&id)?;
        self.waiting_bytes -= call.request.len();
        Some(call)
    }

    fn end_unsent(&mut self, end: &End) {
        for (_, call) in self.waiting.split_off(&(self.sent + 1)) {
            self.waiting_bytes -= call.request.len();
            let _ = call.answer.send(Outcome::Unsent(end.to_string()));
        }
    }
}

impl Traffic for Outgoing {
    fn fill(&self, batch: &mut BytesMut) -> Result<(), End> {
        let mut calls = lock(&self.calls);
        // First, so that the peer has the room of these before it gets others.
        for id in calls.cancelled.drain(..) {
            Frame::Cancel { id }.encode(batch);
        }
        while batch.len() < BATCH_BYTES {
            let Some((&id, call)) = calls.waiting.range(calls.sent + 1..).next() else { break };
            let within = call.deadline.remaining();
            if within.as_millis() > 0 {
                Frame::Request { id, within, payload: call.request.clone() }.encode(batch);
                calls.sent = id;
            } else if let Some(call) = calls.take(id) {
                let _ = call.answer.send(Outcome::Expired);
            }
        }
        if !batch.is_empty() || !calls.waiting.is_empty() {
            return Ok(());
        }
        let is_idle = calls.used.elapsed() >= self.shared.options.idle_timeout;
        calls.is_closed = calls.is_leaving || is_idle;
        match calls.is_closed {
            true if calls.is_leaving => Err(End::Left),
            true => Err(End::Idle),
            false => Ok(()),
        }
    }

    fn arrived(&self, frame: Frame) -> Result<(), End> {
        match frame {
            Frame::Reply { id, payload } => self.answer(id, Outcome::Reply(payload)),
            Frame::Refusal { id, reason, payload } => {
                self.answer(id, Outcome::Refusal(reason, payload))
            }
            Frame::Heartbeat => Ok(()),
            Frame::Goodbye => {
                let mut calls = lock(&self.calls);
                calls.is_leaving = true;
                calls.end_unsent(&End::Left);
                self.bell.notify_one();
                Ok(())
            }
            Frame::Hello(_) => Err(End::Forbidden("a second HELLO")),
            Frame::Request { .. } | Frame::Cancel { .. } => {
                Err(End::Forbidden("a request on a connection for answers"))
            }
        }
    }

    fn leave(&self) {
        lock(&self.calls).is_leaving = true;
    }

    fn bell(&self) -> &Notify {
        &self.bell
    }
}

/// A call that waits for its answer. Dropped, it is withdrawn.
pub(super) struct Waiting {
    outgoing: Arc<Outgoing>,
    id: u64,
    receiver: oneshot::Receiver<Outcome>,
}

impl Waiting {
    pub(super) async fn outcome(mut self, deadline: Deadline) -> Outcome {
        let lost = || Outcome::Lost("no answer has come in time".to_owned());
        if let Ok(Ok(outcome)) = timeout_at(deadline.0, &mut self.receiver).await {
            return outcome;
        }
        match self.outgoing.withdraw(self.id) {
            Some(false) => Outcome::Expired,
            Some(true) => lost(),
            // The outcome has come between the deadline and the withdrawal.
            None => self.receiver.try_recv().unwrap_or_else(|_| lost()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.outgoing.withdraw(self.id) == Some(true) {
            count(&self.outgoing.shared.counters.calls_cancelled);
        }
    }
}
