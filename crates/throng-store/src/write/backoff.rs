//! [`Pause`]: for how long to leave alone what did not pay: each time in a row for twice as long.

/// See the module. It counts groups.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    left: u32,
    next: u32,
}

const MAX: u32 = 64;

impl Pause {
    /// Whether it is over; counts this group if not.
    pub(crate) fn is_over(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }

    /// It did not pay.
    pub(crate) fn begin(&mut self) {
        self.next = (self.next * 2).clamp(1, MAX);
        self.left = self.next;
    }

    /// It paid.
    pub(crate) fn forget(&mut self) {
        self.next = 0;
    }
}
