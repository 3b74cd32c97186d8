//! Names that the expansion of `#[process]` uses beside the public API: bounds on the parts of a
//! message, checked at the place in the user's code where the part is, with advice in the error.
//!
//! The bounds require nothing that [`Message`](crate::Message) and [`Handle`](crate::Handle) do not
//! require; they only give better compiler errors.

/// A type that can be a field of a message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a message",
    label = "does not own what it holds, or cannot change threads",
    note = "a message must be `Send + 'static`: use `Arc` for `Rc`, and a lock or an atomic for a cell"
)]
pub trait Argument {}

#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Argument for T {}

/// The message type that a method makes. If another item in the module has its name, the name leads
/// to that item, which is no [`Message`](crate::Message).
#[diagnostic::on_unimplemented(
    message = "the name of the message `{Self}` is taken: something else in this module has it",
    label = "name this method's message with `#[message(name = …)]`",
    note = "a message is called as its method is, in camel case, wherever the process stands"
)]
pub trait Named {}

#[diagnostic::do_not_recommend]
impl<T: crate::Message> Named for T {}

/// A type that can be a reply.
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
