//! The process cell: a header of 48 bytes, and the user's state behind it.
//!
//! ```text
//!  0         8        16        24       32           40      44      48 (aligned for the state)
//! ┌─────────┬────────┬─────────┬────────┬────────────┬───────┬───────┬───────────────┐
//! │ mailbox │ class  │ pending │ frame  │ extension  │ turn  │ alarm │ state, or its │
//! │ word    │        │         │        │            │ state │       │ box           │
//! └─────────┴────────┴─────────┴────────┴────────────┴───────┴───────┴───────────────┘
//! ```
//!
//! Access by threads:
//!
//! | field | free slot | live, token held | live, token not held |
//! |---|---|---|---|
//! | mailbox, turn, alarm | any thread (atomics) | any thread | any thread |
//! | class, pending, frame, extension, state | no thread | token's holder | no thread |
//!
//! The *token* (see `mailbox` and `turn_state`) is the type [`Token`]: made where the word changes
//! hands, moved through the run queues, consumed where it is given back. The accessors below are
//! sound because their caller holds it.
//!
//! Parts: [`CellRef`] is the cell seen from any thread, [`CurrentProcess`] from its own turn; [`Class`] is
//! the state's type; `frame_word` marks how a turn begins, `queue` holds the messages and signals to be
//! handled, `death` ends a process; `inspect` reads a cell for other threads.

pub(crate) mod extension;

mod class;
mod current;
mod death;
mod frame_word;
pub(crate) mod inspect;
mod losses;
mod queue;
mod reference;
pub(crate) mod slab;
mod token;

pub(crate) use self::class::{Class, ClassOf};
pub(crate) use self::current::CurrentProcess;
pub(crate) use self::queue::MessageList;
pub(crate) use self::reference::CellRef;
pub(crate) use self::token::{Stranded, Token};

pub(crate) use self::losses::Losses;
use crate::address::{Pid, RawAddress};
use crate::cell::extension::Extension;
use crate::mailbox::{Link, Mailbox};
use crate::sync::UnsafeCell;
use crate::sync::atomic::AtomicU32;
use crate::turn::frame::FrameHead;
use crate::turn::turn_state::TurnState;
use std::ptr::NonNull;

/// Header of a slot, in front of the state. See the file's head.
#[repr(C)]
pub(crate) struct Cell {
    pub(crate) mailbox: Mailbox,
    class: UnsafeCell<*const Class>,
    /// Messages taken from the mailbox and not yet run, oldest first.
    pending: UnsafeCell<*mut Link>,
    /// A turn that has begun and is not over, or a mark; see `frame_word`.
    frame: UnsafeCell<Option<NonNull<FrameHead>>>,
    extension: UnsafeCell<Option<Box<Extension>>>,
    turn: TurnState,
    /// Tick at which the timer wheel will wake this process; zero for none.
    alarm: AtomicU32,
}

const _: () = assert!(size_of::<Cell>() == 48, "the header's size is a promise to users");

/// Pid of the process that lives in a cell, or has just stopped living there. For the token's
/// holder.
fn pid(cell: NonNull<Cell>) -> Pid {
    // SAFETY: the caller has the cell from a `CellRef` or a token; slots stay cells and are never
    // unmapped.
    let generation = match unsafe { cell.as_ref() }.mailbox.peek() {
        (generation, true) => generation,
        // The mailbox of a free slot has the next process's number.
        (generation, false) => generation.previous(),
    };
    Pid::from_raw(RawAddress::new(cell, generation))
}
