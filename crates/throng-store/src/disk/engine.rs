//! [`Engine`]: LMDB in a claimed directory, which is closed and opened again after a commit that failed.
//!
//! When a commit of LMDB fails half-way, LMDB refuses everything until it is reopened. Reopening must
//! wait until nothing reads from the old map: transactions hold LMDB's environment, an [`Env`], by `Arc`, and
//! it signals when it is closed.
//!
//! The map is as large as the file may ever become: addresses are cheap, and a map of fixed size
//! need not wait for its readers before it grows. So the file grows by itself up to the quota. If
//! that much address space is not available, the map is the largest half, quarter, and so on, that
//! is; and it takes half of what a limit leaves at most, because the process needs the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::ReadError;
use crate::disk::claim::Claim;
use crate::disk::lmdb::{self, Closed, Env, Settings, file_bytes_max};

/// LMDB in a claimed directory; see the file's head. The claim is dropped last.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The open environment of LMDB; `None` while it is reopened.
    current: RwLock<Option<Arc<Env>>>,
    /// Signals when the environment of `current` is closed.
    closed: Mutex<Closed>,
    is_broken: AtomicBool,
    settings: Settings,
    claim: Claim,
}

impl Engine {
    pub(crate) fn new(claim: Claim, settings: Settings, env: Arc<Env>, closed: Closed) -> Engine {
        Engine {
            current: RwLock::new(Some(env)),
            closed: Mutex::new(closed),
            is_broken: AtomicBool::new(false),
            settings,
            claim,
        }
    }

    /// Returns the environment of LMDB, unless it is being reopened.
    pub(crate) fn env(&self) -> Option<Arc<Env>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether LMDB refuses everything until it is reopened.
    pub(crate) fn is_broken(&self) -> bool {
        // Acquire: pairs with the store in `reopen`.
        self.is_broken.load(Ordering::Acquire)
    }

    /// Notes whether LMDB must be reopened after this result of a commit; returns whether it must.
    pub(crate) fn examine<T>(&self, env: &Env, result: &Result<T, lmdb::Error>) -> bool {
        let is_broken = result.is_err() && matches!(env.begin_write(), Err(lmdb::Error::Panic));
        if is_broken {
            self.is_broken.store(true, Ordering::Release);
        }
        is_broken
    }

    /// Takes the environment out, so that it is closed once the last snapshot is dropped.
    pub(crate) fn take(&self) -> Option<Arc<Env>> {
        self.set_current(None)
    }

    /// Waits until LMDB is closed, and opens it again by `open`. The caller has [taken](Self::take) the environment out,
    /// and let go of all readers of its own. Polls `go_on` at each interval, and gives
    /// up if that is false.
    pub(crate) fn reopen(
        &self,
        interval: Duration,
        go_on: impl Fn() -> bool,
        open: impl Fn() -> Option<(Arc<Env>, Closed)>,
    ) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match closed.recv_timeout(interval) {
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) if go_on() => continue,
                Err(RecvTimeoutError::Timeout) => return,
                Ok(never) => match never {},
            }
            if let Some((env, new_closed)) = open() {
                *closed = new_closed;
                self.set_current(Some(env));
                // Release: a thread that sees the engine whole also finds it in `current`.
                self.is_broken.store(false, Ordering::Release);
                return;
            }
            if !go_on() {
                return;
            }
            std::thread::sleep(interval);
        }
    }

    fn set_current(&self, env: Option<Arc<Env>>) -> Option<Arc<Env>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, env)
    }

    /// Returns the size of the map, in bytes, if it is less than the options ask for.
    pub(crate) fn reduced_map_bytes(&self) -> Option<u64> {
        let bytes = self.env()?.map_bytes();
        (bytes < self.settings.map_bytes as u64).then_some(bytes)
    }

    pub(crate) fn file_bytes(&self) -> Result<u64, ReadError> {
        let env = self.env().ok_or(ReadError::Recovering)?;
        env.file_bytes().map_err(ReadError::Io)
    }

    /// Returns the free space on the disk, in bytes, if that is known.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.settings.platform.files.free_bytes(self.claim.path())
    }

    /// Whether the disk reports less free space than `bytes`, or the file size limit is lower.
    pub(crate) fn lacks_room(&self, bytes: u64) -> bool {
        self.free_bytes().is_some_and(|free| free < bytes)
            || file_bytes_max().is_some_and(|longest| {
                self.file_bytes().is_ok_and(|now| now.saturating_add(bytes) > longest)
            })
    }
}
