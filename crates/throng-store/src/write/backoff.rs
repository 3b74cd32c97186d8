//! [`Backoff`]: exponential back-off, counted in groups.

/// Suspends an optimization after it did not pay, for twice as many groups after each failure in a
/// row.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Groups left until the optimization is tried again.
    left: u32,
    /// Length of the last suspension, in groups.
    next: u32,
}

const MAX: u32 = 64;

impl Backoff {
    /// Whether the suspension is over. Counts this group otherwise.
    pub(crate) fn is_over(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }

    /// Starts a suspension twice as long as the last one.
    pub(crate) fn grow(&mut self) {
        self.next = (self.next * 2).clamp(1, MAX);
        self.left = self.next;
    }

    /// Makes the next suspension the shortest, because the optimization paid.
    pub(crate) fn reset(&mut self) {
        self.next = 0;
    }
}
