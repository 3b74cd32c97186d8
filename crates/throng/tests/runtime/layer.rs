//! Layers: a layer surrounds every turn of its process, whatever woke it, and can defer the reply.

use crate::{Actor, Await, runtime, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use throng::layer::{HeldReply, Layer, TurnEnd};
use throng::prelude::*;

/// The events of the layer and the process, in order, and the replies that the layer holds.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>, Arc<Mutex<Vec<HeldReply>>>);

impl Log {
    fn note(&self, event: &'static str) {
        self.0.lock().unwrap().push(event);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn held(&self) -> Vec<HeldReply> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

struct Notes {
    log: Log,
    /// Whether turns may begin.
    closed: bool,
    /// Result of the next settlement.
    verdict: Result<(), ExitReason>,
    gate: Arc<tokio::sync::Semaphore>,
    next: Next,
    /// Whether the layer panics as it settles or holds.
    panics: bool,
}

/// The end of a turn that has a caller.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Over,
    Hold,
    Settle,
}

struct Worker {
    log: Log,
}

#[process]
impl Worker {
    #[hook]
    fn started(&mut self) {
        self.log.note("started");
    }
    #[hook]
    fn stopping(&mut self) {
        self.log.note("stopping");
    }
    #[hook]
    fn down(&mut self) {
        self.log.note("down");
    }
    #[hook]
    fn exit(&mut self) {
        self.log.note("exit");
    }
    #[hook]
    fn timeout(&mut self) {
        self.log.note("timeout");
    }
    #[message(send, derive(Clone))]
    fn tick(&mut self) {
        self.log.note("tick");
    }
}

impl Layer<Worker> for Notes {
    fn begin(cx: &mut Context<Worker>) -> Result<(), ExitReason> {
        let notes = cx.attachment::<Notes>().unwrap();
        if notes.closed {
            return Err(ExitReason::other("closed"));
        }
        notes.log.note("begin");
        Ok(())
    }

    fn end(
        _: &mut Worker,
        cx: &mut Context<Worker>,
        outcome: Result<(), &ExitReason>,
        has_caller: bool,
    ) -> TurnEnd {
        let notes = cx.attachment::<Notes>().unwrap();
        match outcome {
            Err(_) if notes.next == Next::Hold => TurnEnd::Hold,
            Err(_) => {
                notes.log.note("panicked");
                TurnEnd::Refused(ExitReason::other("it panicked, but goes on"))
            }
            Ok(()) if notes.next == Next::Settle => TurnEnd::Settle,
            Ok(()) if notes.next == Next::Hold && has_caller => TurnEnd::Hold,
            Ok(()) => {
                notes.log.note(if has_caller { "end of a call" } else { "end" });
                TurnEnd::Over
            }
        }
    }

    fn hold(cx: &mut Context<Worker>, reply: HeldReply) {
        let notes = cx.attachment::<Notes>().unwrap();
        assert!(!notes.panics, "as it holds");
        match notes.next {
            Next::Hold => {
                // Whoever has seen the note takes the reply.
                notes.log.1.lock().unwrap().push(reply);
                notes.log.note("hold");
            }
            Next::Over | Next::Settle => reply.send(),
        }
    }

    async fn settle(_: &mut Worker, cx: &mut Context<Worker>) -> Result<(), ExitReason> {
        let notes = cx.attachment::<Notes>().unwrap();
        notes.log.note("settle");
        let gate = notes.gate.clone();
        gate.acquire().await.unwrap().forget();
        let notes = cx.attachment::<Notes>().unwrap();
        assert!(!notes.panics, "as it settles");
        notes.log.note("settled");
        notes.verdict.clone()
    }
}

/// First turn of the process, which no layer surrounds.
struct First;
impl Turn<Worker> for First {
    type Reply = ();
    const LAYERED: bool = false;
    async fn run(self, process: &mut Worker, cx: &mut Context<Worker>) {
        Process::started(process, cx).await;
    }
}

/// Runs a closure.
struct Do<F>(F);
impl<R: Send + 'static, F> Turn<Worker> for Do<F>
where
    F: FnOnce(&mut Worker, &mut Context<Worker>) -> R + Send + 'static,
{
    type Reply = R;
    async fn run(self, process: &mut Worker, cx: &mut Context<Worker>) -> R {
        process.log.note("turn");
        (self.0)(process, cx)
    }
}

/// A turn that changes the notes.
fn note(change: impl FnOnce(&mut Notes) + Send + 'static) -> impl Turn<Worker, Reply = ()> {
    Do(|_: &mut Worker, cx: &mut Context<Worker>| change(cx.attachment::<Notes>().unwrap()))
}

/// A turn with this reply.
fn reply<R: Send + 'static>(reply: R) -> impl Turn<Worker, Reply = R> {
    Do(|_: &mut Worker, _: &mut Context<Worker>| reply)
}

fn layered(runtime: &RuntimeHandle) -> (Address<Worker>, Log, Arc<tokio::sync::Semaphore>) {
    let (log, gate) = (Log::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let notes = Notes {
        log: log.clone(),
        closed: false,
        verdict: Ok(()),
        gate: gate.clone(),
        next: Next::Over,
        panics: false,
    };
    let worker = Worker { log: log.clone() };
    (runtime.spawn_layered(worker, notes, First).unwrap(), log, gate)
}

async fn wait_for(log: &Log, last: &'static str) -> Vec<&'static str> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.extend(log.take());
        tokio::task::yield_now().await;
    }
    seen
}

#[test]
fn a_layer_surrounds_every_turn_whatever_woke_the_process() {
    runtime().block_on(async |runtime| {
        let (worker, log, _) = layered(runtime);
        worker.call(reply(())).await.unwrap();
        assert_eq!(log.take(), ["started", "end", "begin", "turn", "end of a call"]);

        let around = |middle| ["begin", "turn", "end", "begin", middle, "end"];
        type Wake = fn(&mut Worker, &mut Context<Worker>);
        let wake: [(&str, Wake); 6] = [
            ("timeout", |_, cx| cx.receive_timeout(Duration::ZERO)),
            ("tick", |_, cx| drop(cx.send_after(Duration::ZERO, Tick))),
            ("tick", |_, cx| {
                cx.pipe(async { Tick }).unwrap();
            }),
            ("tick", |_, cx| cx.address().tick().unwrap()),
            ("down", |_, cx| {
                let gone = gone(cx);
                cx.monitor(gone);
            }),
            ("exit", |_, cx| {
                cx.trap_exits(true);
                let gone = gone(cx);
                cx.link(gone);
            }),
        ];
        for (woken, how) in wake {
            worker.send(Do(how)).unwrap();
            let mut seen = wait_for(&log, "end").await;
            while seen.len() < 6 {
                seen.extend(wait_for(&log, "end").await);
            }
            assert_eq!(seen, around(woken));
        }
        worker.stop();
        assert_eq!(wait_for(&log, "stopping").await, ["end", "stopping"]);
    });
}

/// A process that has exited.
fn gone(cx: &mut Context<Worker>) -> Pid {
    let brief = cx.runtime().spawn(Actor).unwrap();
    brief.kill();
    until(|| !brief.is_alive());
    brief.pid()
}

#[test]
fn a_reply_waits_for_the_settlement_and_a_bad_one_replaces_it() {
    runtime().block_on(async |runtime| {
        let (worker, log, gate) = layered(runtime);
        let call = worker.call(Do(|_: &mut Worker, cx: &mut Context<Worker>| {
            cx.attachment::<Notes>().unwrap().next = Next::Settle;
            // The time-out is kept across the settlement.
            cx.receive_timeout(Duration::ZERO);
            7
        }));
        let call = tokio::spawn(call);
        wait_for(&log, "settle").await;
        assert!(!call.is_finished());
        gate.add_permits(1);
        assert_eq!(call.await.unwrap().unwrap(), 7);
        assert_eq!(wait_for(&log, "settle").await, ["settled", "begin", "timeout", "settle"]);
        gate.add_permits(1);

        let refused = worker.call(note(|notes| notes.verdict = Err(ExitReason::other("no"))));
        gate.add_permits(1);
        let refused = refused.await.unwrap_err();
        assert!(matches!(refused, CallError::Died(reason) if reason == ExitReason::other("no")));

        // If the process ends during the settlement, the call fails with the reason, once.
        log.take();
        let call = worker.call(reply(()));
        let call = tokio::spawn(call);
        wait_for(&log, "settle").await;
        worker.kill();
        let killed = call.await.unwrap().unwrap_err();
        assert!(matches!(killed, CallError::Died(ExitReason::Killed)));
    });
}

#[test]
fn a_layer_that_panics_ends_its_process_and_the_caller_learns_of_it() {
    runtime().block_on(async |runtime| {
        for (next, text) in [(Next::Hold, "given up"), (Next::Settle, "as it settles")] {
            let (worker, _, gate) = layered(runtime);
            gate.add_permits(1);
            let called = worker.call(Do(move |_: &mut Worker, cx: &mut Context<Worker>| {
                assert!(cx.attachment::<u32>().is_none(), "another type is not there");
                let notes = cx.attachment::<Notes>().unwrap();
                (notes.next, notes.panics) = (next, true);
            }));
            let refused = called.await.unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
            until(|| !worker.is_alive());
        }
        assert_eq!(runtime.metrics().panicked, 2);
    });
}

/// A layer that leaves what it may to the trait.
struct Plain(Next);

impl Layer<Worker> for Plain {
    fn begin(_: &mut Context<Worker>) -> Result<(), ExitReason> {
        Ok(())
    }

    fn end(
        _: &mut Worker,
        cx: &mut Context<Worker>,
        _: Result<(), &ExitReason>,
        _: bool,
    ) -> TurnEnd {
        match cx.attachment::<Plain>().unwrap().0 {
            Next::Over => TurnEnd::Over,
            Next::Hold => TurnEnd::Hold,
            Next::Settle => TurnEnd::Settle,
        }
    }
}

#[test]
fn a_layer_without_functions_of_its_own_gives_each_reply() {
    runtime().block_on(async |runtime| {
        for next in [Next::Over, Next::Hold, Next::Settle] {
            let worker = Worker { log: Log::default() };
            let worker = runtime.spawn_layered(worker, Plain(next), First).unwrap();
            let reply = worker.call(reply(7)).await;
            assert_eq!(reply.unwrap(), 7);
        }
    });
}

#[test]
fn a_held_reply_closes_no_ring() {
    runtime().block_on(async |runtime| {
        let (worker, log, _) = layered(runtime);
        worker.send(note(|notes| notes.next = Next::Hold)).unwrap();
        let asker = runtime.spawn(Actor).unwrap();
        let ask = async move { worker.call(reply(1)).await.unwrap() };
        let asked = tokio::spawn(asker.call(Await(ask)));
        wait_for(&log, "hold").await;
        // The asker waits for the layer; the worker goes on, and waits for the asker.
        let call_back = async move { asker.call(Await(async { 2 })).await.unwrap() };
        let called = tokio::spawn(worker.call(Await(call_back)));
        // Time for several searches for a ring.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!asked.is_finished() && !called.is_finished());
        log.held().into_iter().for_each(HeldReply::send);
        assert_eq!(asked.await.unwrap().unwrap(), 1);
        // The layer holds the reply of this turn, too.
        wait_for(&log, "hold").await;
        log.held().into_iter().for_each(HeldReply::send);
        assert_eq!(called.await.unwrap().unwrap(), 2);
    });
}

#[test]
fn a_reply_that_is_held_is_given_by_anyone_while_the_process_goes_on_or_is_gone() {
    let runtime = runtime();
    runtime.block_on(async |_| {
        let (worker, log, _) = layered(&runtime);
        worker.send(note(|notes| notes.next = Next::Hold)).unwrap();
        let mut calls = Vec::new();
        for number in 0..4 {
            calls.push(tokio::spawn(worker.call(reply(number))));
            assert_eq!(wait_for(&log, "hold").await.last(), Some(&"hold"));
        }
        let mut held = log.held();
        worker.kill();
        worker.pid().exited().await;
        assert!(calls.iter().all(|call| !call.is_finished()));
        drop(held.pop());
        held.pop().unwrap().refuse(&ExitReason::other("no"));
        held.into_iter().for_each(HeldReply::send);
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.unwrap().map_err(|error| error.to_string()));
        }
        assert_eq!(outcomes[..2], [Ok(0), Ok(1)]);
        assert!(outcomes[2].as_ref().unwrap_err().contains("no"));
        assert!(outcomes[3].as_ref().unwrap_err().contains("given up"));
    });
}

#[test]
fn a_layer_decides_on_panics_and_may_close_the_process() {
    runtime().block_on(async |runtime| {
        let (worker, log, _) = layered(runtime);
        let panicked = worker.call(Do(|_: &mut Worker, _: &mut Context<Worker>| panic!("boom")));
        let panicked = panicked.await.unwrap_err();
        assert!(panicked.to_string().contains("goes on"), "{panicked}");
        worker.call(note(|notes| notes.closed = true)).await.unwrap();
        log.take();
        let refused = worker.call(reply(())).await;
        assert!(matches!(
            refused.unwrap_err(),
            CallError::Died(reason) if reason == ExitReason::other("closed")
        ));
        assert_eq!(wait_for(&log, "stopping").await, ["stopping"]);
    });
}
