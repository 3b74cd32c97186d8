//! Creation of processes.
//!
//! Invariants: a process is created, and counted, only with a permit and while the runtime runs; a
//! refused state is handed back. A process has no address, and so cannot be reached, until it is
//! opened: idle, or with a first turn, which no message can precede.

use super::{RuntimeHandle, Shared};
use crate::address::{Address, RawAddress};
use crate::cell::extension::Extension;
use crate::cell::slab::SlotCache;
use crate::cell::{ClassOf, Token};
use crate::error::SpawnError;
use crate::mailbox::bound::MailboxBound;
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase, Remote};
use crate::sync::lock;
use crate::turn::process::{self, Process, Turn};

impl RuntimeHandle {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn spawn_process<P: Process>(
        &self,
        process: P,
        extension: Option<Box<Extension>>,
        bound: Option<MailboxBound>,
    ) -> Result<Address<P>, SpawnError<P>> {
        Ok(open(self.create(process, extension)?, bound))
    }

    /// Spawns a process without a `started` hook, which has a first turn instead.
    pub(crate) fn spawn_first<P: Process, T: Turn<P>>(
        &self,
        process: P,
        first: T,
        extension: Option<Box<Extension>>,
        bound: Option<MailboxBound>,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        const { assert!(!process::has_started::<P>(), "a process has one first turn") };
        self.spawn_with_first(process, first, extension, bound)
    }

    /// Spawns a process with a first turn, in place of its `started` hook if it has one.
    pub(crate) fn spawn_with_first<P: Process, T: Turn<P>>(
        &self,
        process: P,
        first: T,
        extension: Option<Box<Extension>>,
        bound: Option<MailboxBound>,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        match self.create(process, extension) {
            Ok(token) => Ok(open_with::<P, T>(token, first, bound)),
            Err(error) => Err(error.map(|process| (process, first))),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn create<P: Process>(
        &self,
        process: P,
        extension: Option<Box<Extension>>,
    ) -> Result<Token, SpawnError<P>> {
        // Two closures, each with one caller, so that the common one is inlined.
        scheduler::with_worker(|worker| match self.own_worker(worker) {
            Some(worker) => {
                self.with_resources_of(worker, |resources| resources.create(process, extension))
            }
            None => self.with_guest_resources(|resources| resources.create(process, extension)),
        })
        .map_err(|process| self.refusal(process))
    }

    /// Spawns the processes in order until a spawn is refused.
    pub(crate) fn spawn_each<P: Process>(
        &self,
        processes: &mut impl Iterator<Item = P>,
        mut extension: impl FnMut() -> Option<Box<Extension>>,
        bound: Option<MailboxBound>,
        mut each: impl FnMut(Address<P>),
    ) -> Option<SpawnError<P>> {
        let refused = self.with_spawn_resources::<P, _>(|resources| {
            processes.find_map(|process| match resources.create(process, extension()) {
                Ok(token) => {
                    each(open(token, bound));
                    None
                }
                Err(refused) => Some(refused),
            })
        });
        refused.map(|process| self.refusal(process))
    }

    /// Runs `f` with the resources needed to create processes of a type.
    fn with_spawn_resources<P: Process, R>(
        &self,
        f: impl FnOnce(&mut SpawnResources<'_, P>) -> R,
    ) -> R {
        scheduler::with_worker(|worker| match self.own_worker(worker) {
            Some(worker) => self.with_resources_of(worker, f),
            None => self.with_guest_resources(f),
        })
    }

    /// Returns the worker that the calling thread is, if it is one of this runtime.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn own_worker<'a>(&self, worker: Option<&'a Worker>) -> Option<&'a Worker> {
        worker.filter(|worker| std::ptr::eq(&*worker.shared, &*self.0))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with_resources_of<P: Process, R>(
        &self,
        worker: &Worker,
        f: impl FnOnce(&mut SpawnResources<'_, P>) -> R,
    ) -> R {
        let (shared, remote) = (&*self.0, Some(worker.remote()));
        let mut classes = worker.classes.borrow_mut();
        let class = classes.get::<P>(self);
        let slots = &mut worker.slots.borrow_mut();
        f(&mut SpawnResources { shared, remote, class, slots })
    }

    #[cold]
    fn with_guest_resources<P: Process, R>(
        &self,
        f: impl FnOnce(&mut SpawnResources<'_, P>) -> R,
    ) -> R {
        let shared = &*self.0;
        let class = self.class::<P>();
        let class = class.of().unwrap_or_else(|| unreachable!("the class was looked up by type"));
        let slots = &mut lock(&shared.guest_slots);
        f(&mut SpawnResources { shared, remote: None, class, slots })
    }

    /// Returns the reason for which a spawn was refused, with the state of the process.
    #[cold]
    fn refusal<P>(&self, process: P) -> SpawnError<P> {
        match self.0.scheduler.phase() {
            Phase::Running => SpawnError::Limit { limit: self.0.permits.limit, process },
            _ => SpawnError::ShutDown { process },
        }
    }
}

/// The resources needed to spawn processes of a type, owned by a worker or, outside the workers,
/// shared by all guests.
struct SpawnResources<'a, P> {
    shared: &'a Shared,
    /// The part of the scheduler that belongs to this thread's worker; `None` on a thread that is
    /// not a worker.
    remote: Option<&'a Remote>,
    class: ClassOf<'a, P>,
    slots: &'a mut SlotCache,
}

impl<P: Process> SpawnResources<'_, P> {
    /// Creates a process; returns its state if the limit is reached or the runtime is ending.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn create(&mut self, process: P, extension: Option<Box<Extension>>) -> Result<Token, P> {
        let Shared { scheduler, permits, slab, .. } = self.shared;
        match self.remote {
            Some(remote) => {
                if scheduler.phase() != Phase::Running || !permits.take(&remote.spare_permits) {
                    return Err(process);
                }
                remote.counters.count_spawn();
                if let Some(kinds) = &remote.kinds {
                    kinds.of(self.class.kind()).inspect(|counts| counts.count_spawn());
                }
            }
            None => {
                if scheduler.phase() != Phase::Running || !permits.take_one() {
                    return Err(process);
                }
                if !scheduler.count_guest_spawn() {
                    permits.give_one_back();
                    return Err(process);
                }
                if let Some(kinds) = &scheduler.guests_kinds {
                    // The lock of the slots, which this thread holds, guards the counts, too.
                    kinds.of(self.class.kind()).inspect(|counts| counts.count_spawn());
                }
            }
        }
        Ok(Token::create(slab, self.slots, &self.class, process, extension))
    }
}

/// Opens a created process: makes its address, and queues its `started` hook if it has that hook.
#[cfg_attr(not(debug_assertions), inline(always))]
fn open<P: Process>(token: Token, bound: Option<MailboxBound>) -> Address<P> {
    if const { process::has_started::<P>() } {
        token.set_to_start();
        return open_busy(token, bound);
    }
    let cell = token.as_ref();
    Address::from_raw(RawAddress::new(cell.as_ptr(), token.open_idle(bound)))
}

/// Opens a created process with a first turn and schedules it.
fn open_with<P: Process, T: Turn<P>>(
    token: Token,
    first: T,
    bound: Option<MailboxBound>,
) -> Address<P> {
    token.set_first::<T, P>(first);
    open_busy(token, bound)
}

/// Opens a created process that has a first turn, and schedules it.
#[cfg_attr(not(debug_assertions), inline(always))]
fn open_busy<P: Process>(token: Token, bound: Option<MailboxBound>) -> Address<P> {
    let address = RawAddress::new(token.as_ref().as_ptr(), token.open_busy(bound));
    scheduler::schedule(token);
    Address::from_raw(address)
}
