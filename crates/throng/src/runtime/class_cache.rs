//! Classes by type: a runtime makes a class for each type of process at the type's first spawn.
//!
//! Invariants: all workers and guests use the same class for a type. The table of classes is behind
//! a lock; a worker caches the classes it has used, and takes no lock for them again.

use super::RuntimeHandle;
use crate::cell::{Class, ClassOf, Token};
use crate::exit::ExitReason;
use crate::scheduler::Phase;
use crate::scheduler::kinds::KindNumber;
use crate::sync::lock;
use crate::turn::after::Progress;
use crate::turn::frame;
use crate::turn::process::{self, Process, Started, Stopping, TimedOut};
use std::any::TypeId;
use std::sync::Arc;

/// A worker's cache of the classes it has used; lookups take no lock.
pub(crate) struct ClassCache([Option<Arc<Class>>; ClassCache::SIZE]);

impl ClassCache {
    const SIZE: usize = 32;

    pub(crate) fn new() -> ClassCache {
        ClassCache([const { None }; ClassCache::SIZE])
    }

    #[inline(always)]
    pub(super) fn get<P: Process>(&mut self, runtime: &RuntimeHandle) -> ClassOf<'_, P> {
        // The address of the name mostly differs between types. Types whose names share an address
        // only share a place in the cache.
        let place = std::any::type_name::<P>().as_ptr().addr() / 8 % Self::SIZE;
        let entry = &mut self.0[place];
        if entry.as_ref().is_none_or(|known| known.of::<P>().is_none()) {
            *entry = Some(runtime.class::<P>());
        }
        match entry.as_ref().and_then(|class| class.of()) {
            Some(class) => class,
            None => unreachable!("filled above"),
        }
    }
}

impl RuntimeHandle {
    /// Returns the class of a type, made on first use. Takes the lock of the table.
    pub(super) fn class<P: Process>(&self) -> Arc<Class> {
        let started = const { process::has_started::<P>() }.then_some(started::<P> as fn(&_) -> _);
        let stopping =
            const { process::has_stopping::<P>() }.then_some(stopping::<P> as fn(&_, _) -> _);
        let timeout = const { process::has_timeout::<P>() }.then_some(timeout::<P> as fn(&_) -> _);
        let mut classes = lock(&self.0.classes);
        if let Some(class) = classes.get(&TypeId::of::<P>()) {
            return class.clone();
        }
        let kind = KindNumber::new(classes.len());
        let class = Arc::new(Class::new::<P>(self.clone(), kind, started, stopping, timeout));
        // A class requested in `Phase::Over` creates no process, and the table would keep it, and
        // with it the runtime, for ever: `free_if_over` may already have emptied the table.
        if self.0.scheduler.phase() != Phase::Over {
            classes.insert(TypeId::of::<P>(), class.clone());
        }
        class
    }
}

impl RuntimeHandle {
    pub(super) fn kinds(&self) -> Vec<(&'static str, KindNumber)> {
        lock(&self.0.classes).values().map(|class| (class.name, class.kind)).collect()
    }
}

/// Begins [`Process::started`].
fn started<P: Process>(token: &Token) -> Progress {
    frame::begin_hook::<P, _>(token, Started)
}

/// Begins [`Process::stopping`].
fn stopping<P: Process>(token: &Token, reason: ExitReason) -> Progress {
    frame::begin_last::<P, _>(token, Stopping(reason))
}

/// Begins [`Process::timeout`].
fn timeout<P: Process>(token: &Token) -> Progress {
    frame::begin_hook::<P, _>(token, TimedOut)
}
