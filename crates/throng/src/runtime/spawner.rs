//! Spawning with options: the kind of process, its tie to the spawning process, its mailbox bound, its label.
//!
//! Invariant: a tie is recorded in both processes, or on its way, before the child can run. So
//! however soon the child ends, the process tied to it learns the reason.

use crate::address::Address;
use crate::cell::CurrentProcess;
use crate::cell::extension::{Extension, TellDown};
use crate::error::{Error, SpawnError, debug_and_convert};
use crate::mailbox::bound::MailboxBound;
use crate::runtime::RuntimeHandle;
use crate::scheduler;
use crate::signal::monitors::{MonitorNumber, Watcher};
use crate::turn::context::{Context, tell_down};
use crate::turn::process::{Process, Turn};
use std::cell::Cell;
use std::fmt;
use thiserror::Error;

/// Spawns processes with options: linked or monitored, with a bounded mailbox, and with a label. Made by
/// [`RuntimeHandle::spawner`], [`Context::linked`] and [`Context::monitored`].
///
/// Every spawning method can be combined with every option:
///
/// ```
/// use throng::{MailboxBound, Overflow, prelude::*};
///
/// # #[derive(Default)]
/// struct Bank { tellers: Vec<Address<Teller>>, ended: usize }
/// # struct Teller;
/// # impl Process for Teller {}
/// # struct Line(String);
/// # impl Message for Line { type Reply = (); }
/// # struct Ended;
/// # impl Message for Ended { type Reply = usize; }
/// # impl Handle<Ended> for Bank {
/// #     async fn handle(&mut self, _: Ended, _: &mut Context<Self>) -> usize { self.ended }
/// # }
/// impl Process for Bank {
///     async fn started(&mut self, cx: &mut Context<Self>) {
///         let bound = MailboxBound::new(100, Overflow::Wait);
///         // Many processes, linked to this one, each with a bounded mailbox.
///         match cx.linked().mailbox(bound).spawn_many((0..3).map(|_| Teller)) {
///             Ok(tellers) => self.tellers = tellers,
///             Err(error) => return cx.stop(ExitReason::other(error.to_string())),
///         }
///         // A process written as a future, monitored by this one.
///         let printer = cx.monitored().mailbox(bound).spawn_async(|mut inbox: Inbox<Line>| async move {
///             let Line(line) = inbox.recv().await;
///             println!("{line}");
///         });
/// #       printer.expect("there is room").send(Line("hello".to_owned())).expect("it lives");
///     }
///     async fn down(&mut self, _: Down, _: &mut Context<Self>) {
///         self.ended += 1;
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let bound = MailboxBound::new(1000, Overflow::DropOldest);
/// let bank = runtime.spawner().mailbox(bound).spawn(Bank::default())?;
/// # runtime.block_on(async |_| {
/// #     while bank.call(Ended).await? < 1 {}
/// #     Ok(())
/// # })
/// # }
/// ```
#[must_use = "a spawner spawns nothing until one of its `spawn` methods is called"]
pub struct Spawner<'a> {
    runtime: &'a RuntimeHandle,
    tie: Option<Tie>,
    mailbox: Option<MailboxBound>,
    label: Option<Box<str>>,
}

/// The tie of a process to its parent, which spawns it within its own turn.
#[derive(Clone, Copy)]
struct Tie {
    parent: CurrentProcess,
    /// Sends `Down` to the parent when a monitored child ends; `None` if the child is linked.
    monitor: Option<TellDown>,
}

impl RuntimeHandle {
    /// Returns a [`Spawner`] of processes without a parent, with options that
    /// [`spawn`](Self::spawn) does not have.
    pub fn spawner(&self) -> Spawner<'_> {
        Spawner { runtime: self, tie: None, mailbox: None, label: None }
    }
}

impl<P: Process> Context<P> {
    /// Returns a [`Spawner`] of processes [linked](Self::link) to this process, their parent.
    pub fn linked(&mut self) -> Spawner<'_> {
        self.tied(None)
    }

    /// Returns a [`Spawner`] of processes [monitored](Self::monitor) by this process, their parent.
    ///
    /// [`Down::pid`](crate::Down::pid) identifies the process that has ended;
    /// [`monitor_of`](Self::monitor_of) returns the monitor, to remove it.
    pub fn monitored(&mut self) -> Spawner<'_> {
        self.tied(Some(tell_down::<P>()))
    }

    fn tied(&mut self, monitor: Option<TellDown>) -> Spawner<'_> {
        let tie = Tie { parent: self.current(), monitor };
        Spawner { runtime: self.runtime(), tie: Some(tie), mailbox: None, label: None }
    }
}

impl Spawner<'_> {
    /// Bounds the mailbox, which is unbounded by default.
    pub fn mailbox(mut self, bound: MailboxBound) -> Self {
        self.mailbox = Some(bound);
        self
    }

    /// Labels the process; see [`Context::set_label`].
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Spawns a process.
    ///
    /// # Errors
    /// The same as [`RuntimeHandle::spawn`].
    pub fn spawn<P: Process>(self, process: P) -> Result<Address<P>, SpawnError<P>> {
        let number = Cell::default();
        let extension = extension(self.tie, self.label, &number);
        let child = self.runtime.spawn_process(process, extension, self.mailbox)?;
        tie_up(self.tie, child, &number);
        Ok(child)
    }

    /// Spawns many processes of the same type, and returns their addresses in the order of the states.
    ///
    /// # Errors
    /// If there is not room for all, [`SpawnManyError`] holds the addresses of the processes that
    /// were spawned, and hands back the other states.
    ///
    /// Cost: a spawn of each process; less from outside of the workers, because the locks are taken
    /// once. All states are collected in memory before the first process lives.
    pub fn spawn_many<P: Process>(
        self,
        processes: impl IntoIterator<Item = P>,
    ) -> Result<Vec<Address<P>>, SpawnManyError<P>> {
        // The iterator runs before any lock is taken: its `next` may itself spawn a process, which
        // takes the same locks.
        let mut processes = processes.into_iter().collect::<Vec<_>>().into_iter();
        let mut spawned = Vec::with_capacity(processes.len());
        let number = Cell::default();
        let refused = scheduler::batched(|| {
            self.runtime.spawn_each(
                &mut processes,
                || extension(self.tie, self.label.clone(), &number),
                self.mailbox,
                |child| {
                    tie_up(self.tie, child, &number);
                    spawned.push(child);
                },
            )
        });
        match refused {
            None => Ok(spawned),
            Some(error) => Err(SpawnManyError::new(spawned, error, processes)),
        }
    }

    /// Spawns a process that has a first turn instead of a `started` hook.
    pub(crate) fn spawn_first<P: Process, T: Turn<P>>(
        self,
        process: P,
        first: T,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        let number = Cell::default();
        let extension = extension(self.tie, self.label, &number);
        let child = self.runtime.spawn_first(process, first, extension, self.mailbox)?;
        tie_up(self.tie, child, &number);
        Ok(child)
    }
}

/// Returns the extension of a child with a tie, a label or both. For a monitor, stores its number in `number`.
fn extension(
    tie: Option<Tie>,
    label: Option<Box<str>>,
    number: &Cell<MonitorNumber>,
) -> Option<Box<Extension>> {
    if tie.is_none() && label.is_none() {
        return None;
    }
    let mut extension = tie.map_or_else(Extension::default, |tie| child_end(tie, number));
    if label.is_some() {
        extension.rare().label = label;
    }
    Some(Box::new(extension))
}

fn child_end(tie: Tie, number: &Cell<MonitorNumber>) -> Extension {
    let Tie { mut parent, monitor } = tie;
    let me = parent.pid();
    match monitor {
        Some(tell) => {
            let next = parent.with_extension(|own| own.monitors().next());
            number.set(next);
            Extension::monitored_by(Watcher { pid: me, number: next, tell })
        }
        None => Extension::linked_to(me),
    }
}

/// Records the parent's end of a tie. The parent is in its turn and reads no signals until the turn
/// is over, so a `Down` or an exit of the child cannot be missed.
fn tie_up<P: Process>(tie: Option<Tie>, child: Address<P>, number: &Cell<MonitorNumber>) {
    let Some(Tie { mut parent, monitor }) = tie else { return };
    parent.with_extension(|own| match monitor {
        Some(_) => {
            let given = own.monitors().insert(child.pid());
            assert_eq!(given, number.get(), "the parent sets no other monitor meanwhile");
        }
        None => own.on_link(child.pid()),
    });
}

/// Processes of which not all could be spawned.
#[derive(Error)]
#[error("{} of the processes were not spawned: {reason}", rest.len())]
pub struct SpawnManyError<P> {
    /// Addresses of the processes that were spawned.
    pub spawned: Vec<Address<P>>,
    /// States of the processes that were not spawned, in their order.
    pub rest: Vec<P>,
    /// The error of the first process that was not spawned.
    pub reason: SpawnError<()>,
}

impl<P> SpawnManyError<P> {
    fn new(spawned: Vec<Address<P>>, error: SpawnError<P>, later: impl Iterator<Item = P>) -> Self {
        let mut rest = Vec::new();
        let reason = error.map(|process| rest.push(process));
        rest.extend(later);
        SpawnManyError { spawned, rest, reason }
    }
}

debug_and_convert!(SpawnManyError);
