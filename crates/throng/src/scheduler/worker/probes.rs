//! Probes that have met the running process: how a turn learns that it waits in a cycle of calls.

use super::Worker;
use crate::address::cycle::Probe;
use std::cell::{Cell, RefCell};

/// Probes that have met the running process in its turn, and the numbers of those that it has sent.
#[derive(Default)]
pub(super) struct Probes {
    met: RefCell<Vec<Probe>>,
    has_met: Cell<bool>,
    numbered: Cell<u64>,
}

impl Worker {
    #[inline(always)]
    pub(crate) fn has_probes(&self) -> bool {
        self.probes.has_met.get()
    }

    #[inline(always)]
    pub(super) fn forget_probes(&self) {
        if self.has_probes() {
            self.probes.has_met.set(false);
            self.probes.met.borrow_mut().clear();
        }
    }

    pub(crate) fn probes(&self) -> Vec<Probe> {
        self.probes.met.borrow().clone()
    }

    pub(crate) fn show_probe(&self, probe: Probe) {
        self.probes.met.borrow_mut().push(probe);
        self.probes.has_met.set(true);
    }

    /// Returns a number that no other probe of this runtime has.
    pub(crate) fn number_probe(&self) -> u64 {
        let number = self.probes.numbered.get() + 1;
        self.probes.numbered.set(number);
        (self.index as u64) << 48 | number
    }
}
