//! Tests of message timers that read the lists of processes and the wheels of workers.

use crate::prelude::*;
use std::time::Duration;

const AN_HOUR: Duration = Duration::from_secs(3600);

/// Sets a timer, cancels others, and exits.
struct Visitor;
#[process(crate = crate)]
impl Visitor {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        drop(cx.send_after(AN_HOUR, Wake { numbers: [7; 4] }));
        drop(cx.send_every(AN_HOUR, Wake { numbers: [8; 4] }));
        assert!(cx.send_after(AN_HOUR, Wake { numbers: [9; 4] }).cancel());
        cx.stop(ExitReason::Normal);
    }
    #[message(send, derive(Clone))]
    fn wake(&mut self, numbers: [u64; 4]) {
        unreachable!("{numbers:?} is not due");
    }
}

fn wait(mut holds: impl FnMut() -> bool) {
    let patience = std::time::Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "this never comes true");
        std::thread::yield_now();
    }
}

fn entries(runtime: &Runtime) -> usize {
    runtime.scheduler().alarms.iter().map(|alarms| alarms.len()).sum()
}

#[test]
fn short_lived_processes_leave_no_entries_in_the_wheels() {
    let runtime = Runtime::builder().workers(2).start().expect("starts");
    let (rounds, many) = if cfg!(miri) { (2, 5) } else { (20, 1_000) };
    for _ in 0..rounds {
        for _ in 0..many {
            let visitor = runtime.spawn(Visitor).expect("there is room");
            // A timer set from outside of the process.
            drop(runtime.send_after(visitor, AN_HOUR, Wake { numbers: [1; 4] }));
        }
        wait(|| runtime.process_count() == 0);
    }
    // An insertion into a wheel of fewer than 256 entries drops none.
    let left = entries(&runtime);
    assert!(left <= 2 * 256, "{left} entries are left of {}", 4 * rounds * many);
}

#[test]
fn a_timer_that_has_rung_or_was_cancelled_is_on_no_list() {
    struct Teller;
    #[process(crate = crate)]
    impl Teller {
        #[message(send)]
        fn tick(&mut self) {}
        /// Returns the length of the list, as its own process finds it.
        #[message]
        fn listed(&mut self, cx: &mut Context<Self>) -> usize {
            cx.current().if_extension(|own| own.rare().timers.0.len()).unwrap_or(0)
        }
        #[message]
        fn set_and_cancel(&mut self, count: u64, cx: &mut Context<Self>) {
            let timers: Vec<_> = (0..count).map(|_| cx.send_after(AN_HOUR, Tick)).collect();
            // Every third is cancelled first, so that other timers move on the list.
            let (thirds, others): (Vec<_>, Vec<_>) =
                timers.iter().enumerate().partition(|(index, _)| index % 3 == 0);
            let cancel = |(index, timer): (usize, &Timer)| {
                if index % 2 == 0 { timer.cancel() } else { cx.cancel_timer(timer) }
            };
            assert!(thirds.into_iter().chain(others).all(cancel));
        }
    }
    let runtime = Runtime::builder().workers(2).start().expect("starts");
    let teller = runtime.spawn(Teller).expect("there is room");
    let listed =
        || runtime.block_on(async |_| teller.listed().await).expect("answers within seconds");
    assert_eq!(listed(), 0);
    let count = if cfg!(miri) { 5 } else { 1_000 };
    let timers: Vec<_> = (0..count).map(|_| runtime.send_after(teller, AN_HOUR, Tick)).collect();
    assert_eq!(listed(), count as usize);
    assert!(timers.iter().all(Timer::cancel));
    assert_eq!(listed(), 0, "cancelled from outside");
    let set = teller.set_and_cancel(count);
    runtime.block_on(async |_| set.await).expect("answers");
    assert_eq!(listed(), 0, "cancelled by itself");
    assert_eq!(entries(&runtime), 0, "no alarm is left of a timer that was cancelled");
    let fired: Vec<_> =
        (0..count).map(|_| runtime.send_after(teller, Duration::ZERO, Tick)).collect();
    wait(|| listed() == 0);
    assert!(!fired.iter().any(Timer::cancel));
    drop((timers, fired));
    assert_eq!(entries(&runtime), 0);
}

#[test]
fn alarms_of_timers_that_another_runtime_has_set_do_not_pile_up() {
    struct Other;
    #[process(crate = crate)]
    impl Other {
        #[message]
        fn seen(&mut self) {}
    }
    impl Handle<Wake> for Other {
        async fn handle(&mut self, Wake { numbers }: Wake, _: &mut Context<Self>) {
            unreachable!("{numbers:?} is not due");
        }
    }
    let [sets, has] = [(); 2].map(|()| Runtime::builder().workers(1).start().expect("starts"));
    let other = has.spawn(Other).expect("there is room");
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        for _ in 0..100 {
            assert!(sets.send_after(other, AN_HOUR, Wake { numbers: [1; 4] }).cancel());
        }
        // A process that leaves too many signals unread is killed.
        has.block_on(async |_| other.seen().await).expect("answers within seconds");
    }
    // Entries are checked from 256 on.
    let left = entries(&sets);
    assert!(left <= 3 * 256, "{left} entries are left");
}
