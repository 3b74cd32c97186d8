//! Faults that tests inject between two steps of a worker, outside of every handler.
//!
//! A test arms a step for a kind of process. The next worker that reaches that step with a process
//! of that kind panics there, once. In a build without tests a point is empty.

/// The steps at which a fault can be injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Signals are taken out of a process's mailbox.
    Signals,
    /// A suspended turn of a process is dropped.
    Discard,
    /// The exit of a process begins.
    Finish,
    /// A message or a signal of a process that exits is dropped.
    Refuse,
    /// The state of an exiting process is dropped.
    State,
    /// Monitors, links and watchers of the process are notified.
    Obituary,
    /// The cell of a process that has died is given back to the slab.
    Free,
    /// An alarm rings in the scheduler that has this memory address.
    Alarm(usize),
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point(_: Step, _: &'static str) {}

#[cfg(test)]
pub(crate) use armed::{arm, is_armed, point};

#[cfg(test)]
mod armed {
    use super::Step;
    use crate::sync::{Mutex, lock};

    static ARMED: Mutex<Vec<(Step, &'static str)>> = Mutex::new(Vec::new());

    /// Injects a fault into the next process of a kind that reaches a step.
    pub(crate) fn arm(step: Step, kind: &'static str) {
        lock(&ARMED).push((step, kind));
    }

    /// Whether the fault has not happened yet.
    pub(crate) fn is_armed(step: Step, kind: &'static str) -> bool {
        lock(&ARMED).contains(&(step, kind))
    }

    pub(crate) fn point(step: Step, kind: &'static str) {
        let mut armed = lock(&ARMED);
        let Some(place) = armed.iter().position(|&fault| fault == (step, kind)) else { return };
        armed.swap_remove(place);
        drop(armed);
        std::panic::panic_any(format!("a fault injected at the step {step:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, arm, is_armed};
    use crate::prelude::*;
    use std::any::type_name;
    use std::future::{Future, poll_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    /// Time after which a test gives up waiting for an event that must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A process with a type of its own for each case. Its state counts its drops.
    struct Victim<const CASE: usize>(Arc<AtomicUsize>);
    #[process(crate = crate)]
    impl<const CASE: usize> Victim<CASE> {
        /// Waits for ever.
        #[message]
        async fn wait(&mut self) {
            std::future::pending().await
        }
        #[message(send)]
        fn leave(&mut self, cx: &mut Context<Self>) {
            cx.stop(ExitReason::Normal);
        }
    }
    impl<const CASE: usize> Drop for Victim<CASE> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Monitors a victim and is linked to it; passes on both reasons.
    struct Watcher(tokio::sync::mpsc::UnboundedSender<ExitReason>);
    #[process(crate = crate)]
    impl Watcher {
        #[hook]
        fn down(&mut self, down: Down) {
            let _ = self.0.send(down.reason);
        }
        #[hook]
        fn exit(&mut self, exit: Exit) {
            let _ = self.0.send(exit.reason);
        }
        #[message]
        fn watch(&mut self, pid: Pid, cx: &mut Context<Self>) {
            cx.trap_exits(true);
            cx.monitor(pid);
            cx.link(pid);
        }
    }

    /// Ways to end a victim.
    #[derive(Clone, Copy, Debug)]
    enum End {
        /// A kill, in a turn that is suspended, with a call in the mailbox.
        Kill,
        /// A message for which the victim stops itself.
        Stop,
    }

    async fn check<const CASE: usize>(runtime: &RuntimeHandle, step: Step, end: End) {
        let checked = tokio::time::timeout(PATIENCE, exits::<CASE>(runtime, step, end)).await;
        assert!(checked.is_ok(), "{step:?} {end:?}: the process is neither alive nor dead");
    }

    async fn exits<const CASE: usize>(runtime: &RuntimeHandle, step: Step, end: End) {
        let kind = type_name::<Victim<CASE>>();
        let dropped = Arc::new(AtomicUsize::new(0));
        let victim = runtime.spawn(Victim::<CASE>(dropped.clone())).expect("there is room");
        let (sender, mut reasons) = tokio::sync::mpsc::unbounded_channel();
        let watcher = runtime.spawn(Watcher(sender)).expect("there is room");
        watcher.watch(victim.pid()).await.expect("lives");
        let mut exited = Box::pin(victim.pid().exited());
        // The first poll sends the watcher, so the victim has it before it answers `info`.
        assert!(poll_fn(|cx| Poll::Ready(exited.as_mut().poll(cx).is_pending())).await);
        let exited = tokio::spawn(exited);
        runtime.info(victim).await.expect("lives");

        let in_turn = matches!(end, End::Kill).then(|| tokio::spawn(victim.wait()));
        while in_turn.is_some()
            && runtime
                .info(victim)
                .await
                .is_none_or(|info| !matches!(info.state, crate::ProcessState::Suspended { .. }))
        {
            tokio::task::yield_now().await;
        }
        arm(step, kind);
        let waits = match end {
            End::Kill => {
                let waits = tokio::spawn(victim.wait());
                while runtime.info(victim).await.is_some_and(|info| info.mailbox_len == 0) {
                    tokio::task::yield_now().await;
                }
                victim.pid().kill();
                Some(waits)
            }
            End::Stop => {
                let _ = victim.leave();
                None
            }
        };

        // The future, the monitor and the link each get the same reason, once.
        let reason = exited.await.expect("does not panic");
        for _ in 0..2 {
            assert_eq!(reasons.recv().await, Some(reason.clone()), "{step:?} {end:?}");
        }
        for call in in_turn.into_iter().chain(waits) {
            let outcome = call.await.expect("does not panic");
            let died = matches!(outcome, Err(CallError::Died(_) | CallError::NoProcess(_)));
            assert!(died, "{step:?} {end:?}");
        }
        assert!(!is_armed(step, kind), "{step:?} {end:?}: the step is not taken");
        // A fault before the obituary becomes the reason; a later fault does not change the reason.
        let is_fault =
            matches!(&reason, ExitReason::Panicked(panic) if panic.message().contains("injected"));
        let reason_stands = matches!(step, Step::Obituary | Step::Free);
        assert_eq!(is_fault, !reason_stands, "{step:?} {end:?}: {reason}");
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            1,
            "{step:?} {end:?}: the state is dropped once"
        );
        assert!(!victim.is_alive());
    }

    #[test]
    fn a_process_exits_and_its_worker_goes_on_after_a_fault_at_any_step() {
        // No spare worker takes over if the only worker ends.
        let runtime = Runtime::builder().workers(1).spare_workers(0).start().expect("starts");
        runtime.block_on(async |runtime| {
            check::<1>(runtime, Step::Signals, End::Kill).await;
            check::<2>(runtime, Step::Discard, End::Kill).await;
            check::<3>(runtime, Step::Finish, End::Kill).await;
            check::<4>(runtime, Step::Finish, End::Stop).await;
            check::<5>(runtime, Step::Refuse, End::Kill).await;
            check::<6>(runtime, Step::State, End::Kill).await;
            check::<7>(runtime, Step::State, End::Stop).await;
            check::<8>(runtime, Step::Obituary, End::Kill).await;
            check::<9>(runtime, Step::Obituary, End::Stop).await;
            check::<10>(runtime, Step::Free, End::Kill).await;
            check::<11>(runtime, Step::Free, End::Stop).await;
            while runtime.process_count() > 11 {
                tokio::task::yield_now().await;
            }
        });
        let outcome = runtime.shutdown(Duration::from_secs(60));
        assert_eq!(outcome.abandoned, 0, "the watchers alone were left, and stopped");
    }

    #[test]
    fn alarms_ring_even_if_a_fault_interrupts_them() {
        let runtime = Runtime::builder().workers(1).spare_workers(0).start().expect("starts");
        let step = Step::Alarm(std::ptr::from_ref(runtime.scheduler()).addr());
        runtime.block_on(async |runtime| {
            arm(step, "");
            let timers: Vec<_> = (0..10)
                .map(|_| {
                    let victim = runtime.spawn(Victim::<0>(Arc::default())).expect("there is room");
                    drop(runtime.send_after(victim, Duration::from_millis(1), Leave {}));
                    tokio::spawn(victim.pid().exited())
                })
                .collect();
            for exited in timers {
                let exited = tokio::time::timeout(PATIENCE, exited).await;
                exited.expect("the alarm rings").expect("does not panic");
            }
        });
        assert!(!is_armed(step, ""));
        assert_eq!(runtime.shutdown(Duration::from_secs(60)).abandoned, 0);
    }
}
