//! The types, traits and macros that most programs use, for a glob import.

pub use crate::{
    Address, CallError, Child, ChildSpec, Context, Down, Exit, ExitReason, Group, Handle, Inbox,
    Message, MonitorRef, Pid, Process, Recipient, ReplyTo, Restart, Runtime, RuntimeHandle,
    SendAll, SendError, SpawnError, Supervisor, Timer, Turn,
};
#[cfg(feature = "macros")]
pub use crate::{hook, message, process};
