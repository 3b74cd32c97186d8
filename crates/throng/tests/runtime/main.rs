//! The guarantees of the runtime, tested through the public API alone.

// Helpers of tests may unwrap like tests.
#![allow(clippy::unwrap_used)]

mod attach;
mod blocking;
mod bounded;
mod calls;
mod cycles;
mod dropped;
mod durations;
mod exits;
mod fairness;
mod groups;
mod guests;
mod inbox;
mod inspect;
mod kept;
mod kinds;
mod layer;
mod lent;
mod limits;
mod order;
mod pools;
mod recipients;
mod registries;
mod registry;
mod replies;
mod room;
mod shutdowns;
mod signals;
mod spawning;
mod stress;
mod supervisors;
mod timers;
mod topics;
mod work;

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{self, Poll, Waker};
use std::time::Duration;
use throng::prelude::*;
use throng::{AsyncProcess, MailboxBound, Overflow, Spawner};
use tokio::sync::oneshot;

/// Longest wait for an event that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A process that counts.
#[derive(Default)]
pub(crate) struct Counter {
    pub(crate) count: u64,
}

impl Process for Counter {}

#[derive(Clone)]
pub(crate) struct Add(pub(crate) u64);
impl Message for Add {
    type Reply = u64;
}
impl Handle<Add> for Counter {
    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
        self.count += number;
        self.count
    }
}

pub(crate) struct Fail(pub(crate) &'static str);
impl Message for Fail {
    type Reply = ();
}
impl Handle<Fail> for Counter {
    async fn handle(&mut self, Fail(text): Fail, _: &mut Context<Self>) {
        panic!("{text}");
    }
}

/// Adds after a delay, during which other messages must wait.
pub(crate) struct AddSlowly(pub(crate) u64, pub(crate) Duration);
impl Message for AddSlowly {
    type Reply = u64;
}
impl Handle<AddSlowly> for Counter {
    async fn handle(&mut self, AddSlowly(number, time): AddSlowly, _: &mut Context<Self>) -> u64 {
        let before = self.count;
        tokio::time::sleep(time).await;
        self.count = before + number;
        self.count
    }
}

/// A process that only runs what it is sent: a [`Do`] or an [`Await`].
pub(crate) struct Actor;
impl Process for Actor {}

/// Runs a closure in a turn of any process.
pub(crate) struct Do<F>(pub(crate) F);
impl<P: Process, R: Send + 'static, F> Turn<P> for Do<F>
where
    F: FnOnce(&mut P, &mut Context<P>) -> R + Send + 'static,
{
    type Reply = R;
    async fn run(self, process: &mut P, cx: &mut Context<P>) -> R {
        (self.0)(process, cx)
    }
}

/// Runs a future in a turn of any process.
pub(crate) struct Await<F>(pub(crate) F);
impl<P: Process, F: Future<Output: Send + 'static> + Send + 'static> Turn<P> for Await<F> {
    type Reply = F::Output;
    async fn run(self, _: &mut P, _: &mut Context<P>) -> F::Output {
        self.0.await
    }
}

/// Runs a future in a turn of a process of its own, which has exited when this returns.
pub(crate) async fn in_turn<F>(runtime: &RuntimeHandle, turn: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let actor = runtime.spawn(Actor).unwrap();
    let mut turn = Await(turn);
    loop {
        match actor.call(turn).within(10 * PATIENCE).await {
            // The budget of all mailboxes is used up.
            Err(CallError::Overloaded(refused)) => turn = refused,
            output => {
                actor.stop();
                actor.pid().exited().await;
                return output.unwrap();
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Spawns an async process. The receiver gets what its body returns.
pub(crate) fn spawn_async<M: Message<Reply = ()>, F: Future<Output: Send> + Send + 'static>(
    runtime: &RuntimeHandle,
    body: impl FnOnce(Inbox<M>) -> F + Send + 'static,
) -> (Address<AsyncProcess<M>>, oneshot::Receiver<F::Output>) {
    let (sender, receiver) = oneshot::channel();
    let body = |inbox| async move { drop(sender.send(body(inbox).await)) };
    (runtime.spawner().spawn_async(body).unwrap(), receiver)
}

/// A wait on a thread: [`Hold::wait`] blocks until the other end lets it go, or is dropped.
pub(crate) struct Hold(mpsc::Sender<()>, mpsc::Receiver<()>);

/// The end of a [`Hold`] that lets it go.
pub(crate) struct Held(mpsc::Receiver<()>, mpsc::Sender<()>);

pub(crate) fn hold() -> (Hold, Held) {
    let ((begins, begun), (let_go, until)) = (mpsc::channel(), mpsc::channel());
    (Hold(begins, until), Held(begun, let_go))
}

impl Hold {
    pub(crate) fn wait(self) {
        let _ = self.0.send(());
        let waited = self.1.recv_timeout(PATIENCE);
        assert_ne!(waited, Err(mpsc::RecvTimeoutError::Timeout), "nobody lets go");
    }
}

impl Held {
    /// Waits until the thread is held.
    #[track_caller]
    pub(crate) fn has_begun(&self) {
        self.0.recv_timeout(PATIENCE).expect("the wait begins");
    }

    pub(crate) fn let_go(self) {
        let _ = self.1.send(());
    }
}

/// Returns the number of repetitions of a test: `number`, but far fewer under Miri, which is slow.
pub(crate) fn scaled(number: u64) -> u64 {
    if cfg!(miri) { (number / 200).clamp(2, 50) } else { number }
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within about a minute.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        for _ in 0..100 {
            if holds() {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition does not hold in time");
}

/// Waits until a condition holds, on a thread without tokio.
///
/// # Panics
/// If it does not within two minutes.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 120, "the condition does not hold in time");
        std::thread::yield_now();
    }
}

/// Polls a future once, with a waker that wakes nobody.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut task::Context::from_waker(Waker::noop()))
}

/// A waker whose drop panics.
pub(crate) struct DropPanics;
impl task::Wake for DropPanics {
    fn wake(self: Arc<Self>) {}
}
impl Drop for DropPanics {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// All that a full mailbox may do.
pub(crate) const OVERFLOWS: [Overflow; 4] =
    [Overflow::Wait, Overflow::Reject, Overflow::DropNewest, Overflow::DropOldest];

/// Returns a spawner of processes with this bound, if there is one.
pub(crate) fn bounded_by(runtime: &RuntimeHandle, bound: Option<MailboxBound>) -> Spawner<'_> {
    let spawner = runtime.spawner();
    bound.map_or(runtime.spawner(), |bound| spawner.mailbox(bound))
}

/// Silences the panics of workers: intended ones would drown all other output.
pub(crate) fn quiet() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("throng-")) {
                default(info);
            }
        }));
    });
}

pub(crate) fn runtime() -> Runtime {
    quiet();
    Runtime::builder().workers(2).start().expect("starts")
}
