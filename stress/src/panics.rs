//! A million panics: each is caught, ends a single process, and has it restarted. Every supervisor
//! survives, and every child answers in the end.

use crate::{Outcome, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use throng::prelude::*;

const SUPERVISORS: usize = 100;
const CHILDREN: usize = 100;

#[derive(Default)]
struct Counts {
    /// Number of panics still to come.
    left: AtomicU64,
    starts: AtomicU64,
}

struct Nervous(Arc<Counts>);
#[process]
impl Nervous {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.0.starts.fetch_add(1, Ordering::Relaxed);
        let take = |left: u64| left.checked_sub(1);
        if self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            cx.address().panic().unwrap();
        }
    }
    #[message(send)]
    fn panic(&mut self) {
        panic!("on purpose");
    }
    #[message(name = Ask)]
    fn question(&mut self) -> u64 {
        1
    }
}

pub(crate) fn run(size: u64) -> Outcome {
    // A million reports of intended panics would take longer than the rest of the run.
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = panic_often(size);
    drop(std::panic::take_hook());
    outcome
}

fn panic_often(size: u64) -> Outcome {
    let runtime = Runtime::builder().start().map_err(|error| error.to_string())?;
    let counts = Arc::new(Counts { left: AtomicU64::new(size), starts: AtomicU64::new(0) });
    let mut supervisors = Vec::new();
    let mut children = Vec::new();
    for _ in 0..SUPERVISORS {
        let mut spec = Supervisor::one_for_one().intensity(u32::MAX, Duration::from_secs(1));
        for child in 0..CHILDREN {
            let counts = counts.clone();
            let nervous = ChildSpec::new(move || Nervous(counts.clone()));
            children.push(nervous.handle());
            spec = spec.child(format!("child {child}"), nervous);
        }
        supervisors.push(spec.start(&runtime).map_err(|error| error.to_string())?);
    }
    let expected = children.len() as u64 + size;
    while counts.starts.load(Ordering::Relaxed) < expected {
        std::thread::sleep(Duration::from_millis(10));
    }
    let answers = runtime.block_on(async |_| {
        let mut answers = 0;
        for child in &children {
            answers += child.question().await.unwrap_or(0);
        }
        answers
    });
    let alive = supervisors.iter().filter(|supervisor| supervisor.is_alive()).count();
    let starts = counts.starts.load(Ordering::Relaxed);
    ensure(alive == SUPERVISORS, || format!("{alive} of {SUPERVISORS} supervisors are alive"))?;
    ensure(starts == expected, || format!("{starts} starts instead of {expected}"))?;
    ensure(answers == children.len() as u64, || format!("{answers} children answered"))?;
    Ok(format!("{SUPERVISORS} supervisors are alive, {answers} children answer"))
}
