//! The class: data that all processes of a type in a runtime share, and the layout of their state.
//!
//! Cells, tokens and messages are type-erased; the class keeps the parts of the type they still
//! need.
//!
//! Invariants: a class outlives all processes of its type, and does not change. Whether a state is
//! in its slot or in a box behind it follows from its size and alignment alone, so all code generic
//! over the type agrees.

use super::{Cell, Token};
use crate::cell::slab::SlotClass;
use crate::exit::ExitReason;
use crate::mailbox::Link;
use crate::mailbox::envelope::Cast;
use crate::runtime::RuntimeHandle;
use crate::scheduler::kinds::KindNumber;
use crate::scheduler::watchdog::TurnTitle;
use crate::turn::after::Progress;
use crate::turn::process::{Exit, ExitTurn, Process};
use std::any::TypeId;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Data that all processes of a type in a runtime share.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// Number of the class in its runtime, for counts by kind.
    pub(crate) kind: KindNumber,
    pub(super) process: TypeId,
    pub(super) slot: SlotClass,
    pub(crate) runtime: RuntimeHandle,
    /// Bytes of a state outside of its slot: the size of its box, or zero.
    pub(super) boxed_bytes: usize,
    pub(super) drop_state: unsafe fn(NonNull<Cell>),
    pub(crate) started: Option<fn(&Token) -> Progress>,
    pub(crate) stopping: Option<fn(&Token, ExitReason) -> Progress>,
    pub(crate) timeout: Option<fn(&Token) -> Progress>,
    /// Title, for the watchdog, of acting on signals: no turn, but it may run user code.
    pub(crate) signalled: &'static TurnTitle,
    pub(crate) ending: &'static TurnTitle,
    exit_message: fn(Exit) -> NonNull<Link>,
    /// Whether the type promises that no turn blocks its thread; see `guest`.
    pub(crate) never_blocks: bool,
}

pub(crate) struct ClassOf<'a, P> {
    pub(super) class: &'a Class,
    process: PhantomData<fn(P)>,
}

/// Layout of the state of a `P` behind its cell.
pub(super) struct StateLayout<P>(P);

impl<P> StateLayout<P> {
    pub(super) const OFFSET: usize = size_of::<Cell>().next_multiple_of(align_of::<P>());
    pub(super) const BOXED: bool =
        align_of::<P>() > 64 || SlotClass::fitting(Self::OFFSET + size_of::<P>()).is_none();
    const SLOT: SlotClass = {
        let bytes = if Self::BOXED { size_of::<Cell>() + 8 } else { Self::OFFSET + size_of::<P>() };
        match SlotClass::fitting(bytes) {
            Some(class) => class,
            None => panic!("the smallest slot holds a box"),
        }
    };
}

/// Returns a pointer to the state of a cell's process.
///
/// # Safety
/// The cell is that of a `P`, or is about to be given a `P`.
#[inline(always)]
pub(super) unsafe fn state<P>(cell: NonNull<Cell>) -> *mut P {
    if StateLayout::<P>::BOXED {
        // SAFETY: by the contract the cell is a `P`'s; the box's pointer stands right behind the
        // header.
        unsafe { cell.add(1).cast::<*mut P>().read() }
    } else {
        // SAFETY: by `StateLayout::SLOT` the slot is long enough for a state at this offset.
        unsafe { cell.byte_add(StateLayout::<P>::OFFSET).cast::<P>().as_ptr() }
    }
}

/// Drops the state of a cell's process, and frees its box, if it has one.
///
/// # Safety
/// The cell holds the state of a `P`, which is not used again.
unsafe fn drop_state<P>(cell: NonNull<Cell>) {
    // SAFETY: by the caller's contract the state exists and is not used again.
    unsafe {
        let state = state::<P>(cell);
        if StateLayout::<P>::BOXED {
            drop(Box::from_raw(state));
        } else {
            state.drop_in_place();
        }
    }
}

impl<P> ClassOf<'_, P> {
    pub(crate) fn kind(&self) -> KindNumber {
        self.class.kind
    }
}

impl Class {
    pub(crate) fn new<P: Process>(
        runtime: RuntimeHandle,
        kind: KindNumber,
        started: Option<fn(&Token) -> Progress>,
        stopping: Option<fn(&Token, ExitReason) -> Progress>,
        timeout: Option<fn(&Token) -> Progress>,
    ) -> Class {
        Class {
            name: std::any::type_name::<P>(),
            kind,
            process: TypeId::of::<P>(),
            slot: StateLayout::<P>::SLOT,
            runtime,
            boxed_bytes: if StateLayout::<P>::BOXED { size_of::<P>() } else { 0 },
            drop_state: drop_state::<P>,
            started,
            stopping,
            timeout,
            signalled: const { &TurnTitle::signalled::<P>() },
            ending: const { &TurnTitle::ending::<P>() },
            exit_message: |exit| Cast::<P, _>::allocate(ExitTurn(exit)),
            never_blocks: P::NEVER_BLOCKS,
        }
    }

    /// Returns the class as that of `P`, if it is.
    #[inline(always)]
    pub(crate) fn of<P: Process>(&self) -> Option<ClassOf<'_, P>> {
        let is_of = self.process == TypeId::of::<P>();
        is_of.then_some(ClassOf { class: self, process: PhantomData })
    }

    /// Makes a message to a process of this class from a trapped exit signal.
    pub(crate) fn exit_message(&self, exit: Exit) -> NonNull<Link> {
        (self.exit_message)(exit)
    }
}
