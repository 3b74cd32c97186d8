//! Work beside a process's turns: futures whose results come back as messages, and blocking
//! closures.

use crate::address::{Address, Pid};
use crate::error::{BlockingError, SpawnError};
use crate::exit::{ExitReason, catch, catch_panic, drop_users, panic};
use crate::sync::{Mutex, lock};
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

impl<P: Process> Context<P> {
    /// Runs a future beside this process and sends the process its result.
    ///
    /// ```
    /// use throng::prelude::*;
    /// # async fn look_up(name: &str) -> usize { name.len() }
    ///
    /// struct Directory { found: usize }
    /// impl Process for Directory {}
    /// struct Find(String);
    /// impl Message for Find { type Reply = (); }
    /// struct Found(usize);
    /// impl Message for Found { type Reply = (); }
    /// # struct Count;
    /// # impl Message for Count { type Reply = usize; }
    /// # impl Handle<Count> for Directory {
    /// #     async fn handle(&mut self, _: Count, _: &mut Context<Self>) -> usize { self.found }
    /// # }
    ///
    /// impl Handle<Find> for Directory {
    ///     async fn handle(&mut self, Find(name): Find, cx: &mut Context<Self>) {
    ///         // Goes on in parallel; other messages are handled meanwhile.
    ///         if cx.pipe(async move { Found(look_up(&name).await) }).is_err() {
    ///             cx.stop(ExitReason::other("too many processes"));
    ///         }
    ///     }
    /// }
    /// impl Handle<Found> for Directory {
    ///     async fn handle(&mut self, Found(size): Found, _: &mut Context<Self>) {
    ///         self.found += size;
    ///     }
    /// }
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// # let directory = runtime.spawn(Directory { found: 0 })?;
    /// # directory.send(Find("ann".into()))?;
    /// # runtime.block_on(async |_| {
    /// #     while directory.call(Count).await? < 3 {}
    /// #     Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// The future runs in a process of its own, whose pid is returned. The two processes are not
    /// linked: if this process exits first, the future runs to its end and the result is dropped.
    /// If the future panics, the panic is logged and no message comes. [Monitor](Self::monitor) the
    /// pid to learn of a panic; [kill](Pid::kill) it to cancel the future.
    ///
    /// The result counts against no bound, because this process has asked for it: a full mailbox
    /// takes it, also when the budget of all mailboxes is used up.
    ///
    /// # Errors
    /// [`SpawnError`] hands the future back.
    ///
    /// Cost: a spawn, and a pooled block for the future.
    pub fn pipe<T, F>(&self, future: F) -> Result<Pid, SpawnError<F>>
    where
        T: Turn<P>,
        F: Future<Output = T> + Send + 'static,
    {
        let piped = Piped { future, to: self.address() };
        match self.runtime().spawner().spawn_first(Pipe, piped) {
            Ok(pipe) => {
                self.current().note_pipe(pipe.pid());
                Ok(pipe.pid())
            }
            Err(error) => Err(error.map(|(Pipe, piped)| piped.future)),
        }
    }

    /// Runs a closure that may block, on tokio's blocking threads, and waits for its result.
    ///
    /// Only this process's turn waits; other processes run. Dropping the future does not stop a
    /// closure that has begun. The future does not borrow the context, so it can be
    /// [piped](Self::pipe) as well.
    ///
    /// # Errors
    /// [`BlockingError::Panicked`] if the closure panics; [`BlockingError::ShutDown`] and
    /// [`BlockingError::NoThread`] hand the closure back if it could not run.
    ///
    /// Cost: tens of microseconds, for two changes of thread.
    pub fn blocking<R, F>(
        &self,
        f: F,
    ) -> impl Future<Output = Result<R, BlockingError<F>>> + Send + use<P, R, F>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let tokio = self.runtime().tokio().clone();
        async move { run_blocking(&tokio, f).await }
    }
}

/// Runs a closure on tokio's blocking threads, and waits for its result; see [`Context::blocking`].
pub(crate) async fn run_blocking<R, F>(tokio: &Handle, f: F) -> Result<R, BlockingError<F>>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    // The closure stays within reach until a thread takes it, because tokio drops what it cannot run.
    let unrun = Arc::new(Mutex::new(Some(f)));
    let (sender, result) = oneshot::channel();
    let run = {
        let unrun = unrun.clone();
        move || {
            let taken = lock(&unrun).take();
            let Some(f) = taken else { return };
            panic::forget_places();
            // The panic is caught on the thread that knows its place.
            if let Err(unwanted) = sender.send(catch_panic(f)) {
                drop_users(unwanted);
            }
        }
    };
    // Tokio panics if it has no thread, and keeps what it should run.
    if catch(|| drop(tokio.spawn_blocking(run))).is_err() {
        let taken = lock(&unrun).take();
        if let Some(f) = taken {
            return Err(BlockingError::NoThread(f));
        }
        // A thread was started meanwhile.
    }
    match result.await {
        Ok(result) => result.map_err(BlockingError::Panicked),
        Err(_) => match lock(&unrun).take() {
            Some(f) => Err(BlockingError::ShutDown(f)),
            None => unreachable!("a closure that has begun sends its result"),
        },
    }
}

/// The process that a piped future runs in.
struct Pipe;

impl Process for Pipe {}

/// The only turn of a [`Pipe`]: runs the future and sends the result.
struct Piped<P, F> {
    future: F,
    to: Address<P>,
}

impl<P, T, F> Turn<Pipe> for Piped<P, F>
where
    P: Process,
    T: Turn<P>,
    F: Future<Output = T> + Send + 'static,
{
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(self, _: &mut Pipe, cx: &mut Context<Pipe>) {
        cx.has_begun();
        // The process that piped the future may have exited: then the result is dropped.
        self.to.push_or_lose(self.future.await);
        cx.stop(ExitReason::Normal);
    }
}
