//! The time for which a process waits for a message: the timeout of its `receive`.
//!
//! The timeout is set at the end of a turn and ended by any turn that comes after. So it is kept in
//! the cell's word for the turn under way (see `Cell::frame`), which is unused between two turns,
//! and any write of a turn there ends the timeout at no further cost.
//!
//! The cell's one alarm wakes the process when the time is over: the ring finds the bit `TIMEOUT`
//! in the turn word and queues the message below, behind all messages sent before. When that
//! message runs, it checks whether the time is still set and really over. An alarm that was set for
//! an earlier time, and rings too early, sets itself again this way: a process that waits a minute
//! for each of a million messages a second puts one entry into the wheel a minute.

use crate::cell::{CellRef, CurrentProcess, Token};
use crate::exit::ExitReason;
use crate::mailbox::Gone;
use crate::mailbox::envelope::{Dispatch, Envelope};
use crate::memory::block;
use crate::scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::worker::Worker;
use crate::timer::Tick;
use crate::turn::after::{After, Progress};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

/// Ends the turn with a timeout: the process is notified when so much time has passed without a
/// message.
pub(crate) fn set(current: CurrentProcess, time: Duration) {
    scheduler::with_worker(|worker| {
        // A turn is always run by a worker.
        let Some(worker) = worker else { return };
        let clock = &worker.scheduler().clock;
        let at = if time.is_zero() { clock.now() } else { clock.deadline(time) };
        current.wait_until(at);
        arm(worker, current.as_ref(), at);
    });
}

/// Ends a turn that has not ended the wait for a message: the wait until `at` goes on.
pub(crate) fn resume(current: CurrentProcess, at: Tick) {
    scheduler::with_worker(|worker| {
        let Some(worker) = worker else { return };
        current.wait_until(at);
        arm(worker, current.as_ref(), at);
    });
}

/// Sets the alarm that queues the timeout message at a tick. For the token's holder.
fn arm(worker: &Worker, cell: CellRef, at: Tick) {
    // Before the alarm is read: a ring that comes between finds the bit, or this call finds the
    // alarm gone.
    cell.expect_timeout();
    if worker.set_alarm(cell, at)
        && let Some(token) = queue(cell)
    {
        scheduler::schedule(token);
    }
}

/// Queues the message by which the process learns that the alarm has rung. Returns the token if no
/// thread held it.
pub(crate) fn queue(cell: CellRef) -> Option<Token> {
    let generation = cell.generation()?;
    let message = block::allocate(LAYOUT).cast::<Envelope>();
    // SAFETY: the block was just allocated with this layout, and the message fits any type of
    // process; if it was not queued, it still belongs to this call.
    unsafe {
        message.write(Envelope::new(&DISPATCH));
        cell.push(generation, message.cast()).unwrap_or_else(|Gone| {
            free(message);
            None
        })
    }
}

const LAYOUT: Layout = Layout::new::<Envelope>();

static DISPATCH: Dispatch = Dispatch::aside(run, discard, TurnTitle::TIMEOUT);

/// Frees the block of a timeout message.
///
/// # Safety
/// The message was made by `queue` and belongs to the caller.
unsafe fn free(message: NonNull<Envelope>) {
    // SAFETY: by the contract the block was allocated in `queue` with this layout, and the caller
    // owns it.
    unsafe { block::free(message.cast(), LAYOUT) };
}

unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
    // SAFETY: dispatch functions are called with messages of their own kind, which pass to them.
    unsafe { free(message) };
    scheduler::with_worker(|worker| {
        let next = Progress::Done(After::Next);
        let Some(worker) = worker else { return next };
        match token.waits_until() {
            Some(at) if at.is_due(worker.scheduler().clock.now()) => {
                token.set_frame(None);
                token.class().timeout.map_or(next, |begin| begin(token))
            }
            Some(at) => {
                arm(worker, token.as_ref(), at);
                next
            }
            None => {
                token.forget_timeout();
                next
            }
        }
    })
}

unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) -> u64 {
    // SAFETY: dispatch functions are called with messages of their own kind, which pass to them.
    unsafe { free(message) };
    0
}
