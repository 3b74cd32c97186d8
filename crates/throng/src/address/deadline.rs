//! The deadline of a waiting future.
//!
//! Inside a process the wheel of the worker that polls the process keeps it, which costs almost nothing;
//! anywhere else the table of waits outside of processes does (`timer::outside`). Neither needs tokio. In a
//! simulation the time is the virtual clock of its tokio runtime.

use crate::cell::CellRef;
use crate::scheduler::worker::Worker;
use crate::timer::Tick;
use crate::timer::outside::Wait;
use std::task::Context;
use std::time::Duration;

/// Default deadline of a call; a hundred times as long under Miri, which is that much slower.
const USUAL: Duration = Duration::from_secs(if cfg!(miri) { 500 } else { 5 });

/// A deadline that begins to count when it is first checked.
pub(crate) struct Deadline {
    /// Time that the user has set; `None` for [`USUAL`].
    within: Option<Duration>,
    /// Tick of the deadline, once a process has checked it.
    at: Option<Tick>,
    /// Wait of the deadline, once a task that is no process has checked it.
    wait: Option<Wait>,
    /// The same in a simulation.
    #[cfg(feature = "sim")]
    sleep: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl Deadline {
    #[inline(always)]
    pub(crate) fn usual() -> Deadline {
        Deadline::new(None)
    }

    pub(crate) fn within(time: Duration) -> Deadline {
        Deadline::new(Some(time))
    }

    #[inline(always)]
    fn new(within: Option<Duration>) -> Deadline {
        Deadline {
            within,
            at: None,
            wait: None,
            #[cfg(feature = "sim")]
            sleep: None,
        }
    }

    /// Returns whether the deadline has passed. If not, the task, which is no process, is woken at the
    /// deadline.
    #[cold]
    pub(crate) fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.at = None;
        let time = self.within.unwrap_or(USUAL);
        #[cfg(feature = "sim")]
        if crate::sync::is_simulated_here() {
            use std::future::Future;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
            return sleep.as_mut().poll(cx).is_ready();
        }
        match &self.wait {
            Some(wait) => wait.is_over(cx.waker()),
            None if time.is_zero() => true,
            None => {
                self.wait = Some(Wait::begin(time, self.within.is_none(), cx.waker()));
                false
            }
        }
    }

    /// Returns whether the deadline has passed. If not, sets an alarm that wakes the running
    /// process at the deadline.
    pub(crate) fn is_late_in(&mut self, worker: &Worker, cell: CellRef) -> bool {
        let deadline = self.tick_in(worker);
        worker.set_alarm(cell, deadline)
    }

    /// Returns the tick of the deadline, for a check in the process that the worker runs.
    #[inline(always)]
    pub(crate) fn tick_in(&mut self, worker: &Worker) -> Tick {
        match self.at {
            Some(at) => at,
            None => {
                if self.wait.is_some() {
                    self.wait = None;
                }
                *self.at.insert(worker.deadline(self.within, USUAL))
            }
        }
    }
}
