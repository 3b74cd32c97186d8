//! [`Steps`]: the work of a store's threads, in steps, for a store without threads.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::checkpoint::worker::{self, Progress};
use crate::disk::environment::Environment;
use crate::write::queue::Wait;
use crate::write::writer::{Step, Writer};

#[derive(Debug)]
pub(crate) struct Steps {
    writer: Writer,
    environment: Arc<Environment>,
    progress: Progress,
    is_over: bool,
}

impl Steps {
    pub(crate) fn new(writer: Writer, environment: Arc<Environment>) -> Steps {
        let progress = Progress::at(environment.view().position());
        Steps { writer, environment, progress, is_over: false }
    }

    pub(crate) fn write(&mut self) -> Step {
        if self.is_over {
            return Step::End;
        }
        let step = self.writer.step(Wait::Never);
        if step == Step::End {
            self.abandon();
        }
        step
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.is_over
    }

    pub(crate) fn checkpoint(&mut self) {
        if self.is_over {
            return;
        }
        worker::step(&self.environment, &mut self.progress);
        if self.environment.engine().is_broken() {
            // A later step tries again.
            self.environment.reopen(Duration::ZERO, || false);
        }
    }

    /// Whether the next step of the checkpoints has something to write.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let memtables = self.environment.view().memtables();
        !self.is_over
            && (self.environment.engine().is_broken()
                || memtables.iter().any(|memtable| memtable.changes() > 0))
    }

    pub(crate) fn wakes(&self, writer: Waker, checkpoints: Waker) {
        self.writer.wakes(writer);
        self.environment.checkpoints().wakes(checkpoints);
    }

    /// Makes steps of the writer until it ends. The queue is closed.
    pub(crate) fn end(&mut self) {
        while self.write() == Step::Commit {}
        self.abandon();
    }

    /// Ends without any further step, as a thread does that unwinds.
    pub(crate) fn abandon(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.writer.abandon();
        }
    }
}
