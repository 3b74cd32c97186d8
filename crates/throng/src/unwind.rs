//! Unwind safety of handles: a closure that holds a handle may be passed to
//! [`catch_unwind`](std::panic::catch_unwind) without `AssertUnwindSafe`.
//!
//! A handle names a process, a group, a timer or a runtime, and changes it by messages, by atomics
//! or under a lock of this crate, under which no user code runs. So a panic of the handle's holder
//! leaves nothing half-changed behind the handle. The compiler cannot know this: it sees a pointer
//! to a process's cell, or interior mutability behind a shared pointer.
//!
//! State, contexts, inboxes and futures are not handles: they are as unwind safe as their contents.

use crate::address::RawAddress;
use crate::address::ask::ReplyTo;
use crate::address::message_timer::Timer;
use crate::runtime::{Runtime, RuntimeHandle};
use std::panic::{RefUnwindSafe, UnwindSafe};

impl UnwindSafe for RawAddress {}
impl RefUnwindSafe for RawAddress {}

impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl UnwindSafe for RuntimeHandle {}
impl RefUnwindSafe for RuntimeHandle {}

impl UnwindSafe for Timer {}
impl RefUnwindSafe for Timer {}

// A `ReplyTo` holds no answer; if a panic drops it, the asker gets an error.
impl<R> UnwindSafe for ReplyTo<R> {}
impl<R> RefUnwindSafe for ReplyTo<R> {}

/// Asserts at compile time that all handles are unwind safe, even handles of processes and messages
/// that are not.
const _: () = {
    use crate::{
        Address, Child, ChildRef, Down, Exit, ExitReason, Group, GroupEvent, GroupMonitor, Message,
        MonitorRef, Name, Pid, Process, ProcessList, Recipient, Registered,
    };

    struct Fragile(#[expect(dead_code, reason = "only its type matters")] std::cell::Cell<u8>);
    impl Process for Fragile {}
    impl Message for Fragile {
        type Reply = ();
    }

    const fn crosses<T: UnwindSafe + RefUnwindSafe>() {}
    crosses::<(Address<Fragile>, Pid, Recipient<Fragile>, ReplyTo<Fragile>)>();
    crosses::<(
        Child<Fragile>,
        ChildRef,
        Group<Address<Fragile>>,
        Group<Recipient<Fragile>>,
        GroupEvent<Address<Fragile>>,
        GroupMonitor,
    )>();
    crosses::<(Name, Registered, MonitorRef, Down, Exit, ExitReason)>();
    crosses::<(Runtime, RuntimeHandle, ProcessList, Timer)>();
};
