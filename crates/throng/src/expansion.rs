//! What the expansion of `#[process]` names beside the public API: bounds on the parts of a
//! message, checked where the user wrote them, with a sentence on what to do.
//!
//! They ask for nothing that [`Message`](crate::Message) and [`Handle`](crate::Handle) do not ask
//! for; only their complaints are better.

/// What can be a field of a message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a message",
    label = "does not own what it holds, or cannot change threads",
    note = "a message must be `Send + 'static`: use `Arc` for `Rc`, and a lock or an atomic for a cell"
)]
pub trait Argument {}

#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Argument for T {}

/// The message that a method makes: it is one if its name is its own. Where something else in the
/// module has the name, the implementation of [`Message`](crate::Message) is that thing's.
#[diagnostic::on_unimplemented(
    message = "the name of the message `{Self}` is taken: something else in this module has it",
    label = "name this method's message with `#[message(name = …)]`",
    note = "a message is called as its method is, in camel case, wherever the process stands"
)]
pub trait Named {}

#[diagnostic::do_not_recommend]
impl<T: crate::Message> Named for T {}

/// What can be a reply.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a reply",
    label = "does not own what it holds, or cannot change threads",
    note = "a reply must be `Send + 'static`: use `Arc` for `Rc`, and add `+ Send` to a boxed trait object"
)]
pub trait Reply {}

#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Reply for T {}

/// The state of a process whose async methods take `&self`.
#[diagnostic::on_unimplemented(
    message = "an async message with `&self` needs a state that is `Sync`, which `{Self}` is not",
    label = "take `&mut self` here, or leave out `async`",
    note = "the method's future holds the reference, and may change threads while it waits"
)]
pub trait SharedState {}

#[diagnostic::do_not_recommend]
impl<T: Sync> SharedState for T {}

pub const fn argument<T: Argument + ?Sized>() {}

pub const fn reply<T: Reply + ?Sized>() {}

pub const fn shared_state<T: SharedState + ?Sized>() {}
