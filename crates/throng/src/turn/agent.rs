//! Agents: processes that hold a value, and whose messages are closures that run on it.

use crate::address::Address;
use crate::address::call::Call;
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use std::fmt;
use std::marker::PhantomData;

/// A process that holds a value and runs closures on it, for a small state that many processes share. The
/// equivalent in Elixir is `Agent`.
///
/// ```
/// use throng::{Agent, prelude::*};
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let scores = runtime.spawn(Agent(vec![3, 1, 2]))?;
/// runtime.block_on(async |_| {
///     scores.with(|scores| scores.push(5)).await?;
///     assert_eq!(scores.with(|scores| scores.iter().max().copied()).await?, Some(5));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Agent<T>(pub T);

impl<T: Send + 'static> Process for Agent<T> {}

impl<T: Send + 'static> Address<Agent<T>> {
    /// Runs a closure on the agent's value and waits for its result. Closures run one at a time, in the order in
    /// which they arrive.
    ///
    /// A slow closure blocks a worker, like any handler that does not wait.
    ///
    /// # Errors
    /// The same as for [`Address::call`]. Errors that hand the message back hand back the closure in a [`With`].
    ///
    /// # Panics
    /// The same as for [`Address::call`]. A panic of the closure ends the agent, and the caller gets
    /// [`CallError::Died`](crate::CallError::Died).
    ///
    /// Cost: a call, in a pooled block with room for the closure.
    pub fn with<R, F>(self, f: F) -> Call<With<F, R>, R>
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.call(With { closure: f, result: PhantomData })
    }
}

/// A message that runs a closure on the value of an [`Agent`], for example to send it without waiting for the
/// result, or by a timer.
///
/// ```
/// # use throng::{Agent, With, prelude::*};
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let count = runtime.spawn(Agent(1))?;
/// count.send(With::new(|count: &mut u32| *count += 1))?;
/// # runtime.block_on(async |_| {
/// #     assert_eq!(count.with(|count| *count).await?, 2);
/// #     Ok(())
/// # })
/// # }
/// ```
pub struct With<F, R> {
    closure: F,
    result: PhantomData<fn() -> R>,
}

impl<F, R> With<F, R> {
    /// Returns the message that runs a closure.
    pub fn new<T>(closure: F) -> With<F, R>
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
    {
        With { closure, result: PhantomData }
    }

    /// Returns the closure that was not run.
    pub fn into_closure(self) -> F {
        self.closure
    }
}

impl<F, R> fmt::Debug for With<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("With(a closure)")
    }
}

impl<T, F, R> Turn<Agent<T>> for With<F, R>
where
    T: Send + 'static,
    F: FnOnce(&mut T) -> R + Send + 'static,
    R: Send + 'static,
{
    type Reply = R;

    async fn run(self, Agent(value): &mut Agent<T>, _: &mut Context<Agent<T>>) -> R {
        (self.closure)(value)
    }
}
