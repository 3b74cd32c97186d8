//! The attribute `#[process]`: messages, handlers and a typed client, made from one impl block.
//!
//! throng re-exports all of this and documents it there; nobody depends on this crate directly. It
//! is a crate of its own because procedural macros must be, and it keeps syn away from the rest.
//!
//! ```text
//! #[process] impl Account { … }          process: options, the methods one by one
//!     ├─ #[message] fn deposit           message: struct Deposit, its Message and Handle
//!     │                                  client:  what an Address<Account> offers for it
//!     ├─ #[hook] fn started              hook:    a method of `impl Process for Account`
//!     └─ anything else                   as it was
//! ```
//!
//! Invariants of what is generated:
//!
//! - It names everything by absolute path, and its own variables by names that no user can write.
//! - The block itself stays as it was, less our attributes; methods can be called as ever.
//! - A message whose method is refused is left out; the others are still made, so that one mistake
//!   is reported once.
//! - A handler is the user's own future, wrapped in nothing.

#![forbid(unsafe_code)]

mod attributes;
mod borrows;
mod client;
mod generics;
mod hook;
mod message;
mod process;

use proc_macro::TokenStream;

/// Makes a process of an impl block: its `#[message]` methods become messages, its `#[hook]`
/// methods the hooks of `Process`.
///
/// ```
/// use throng::prelude::*;
///
/// struct Account { balance: u64 }
///
/// #[process]
/// impl Account {
///     /// Adds to the balance and returns it.
///     #[message]
///     async fn deposit(&mut self, amount: u64) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
///
///     #[message]
///     fn balance(&self) -> u64 {
///         self.balance
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let account = runtime.spawn(Account { balance: 0 })?;
/// runtime.block_on(async |_| {
///     account.send_deposit(5)?;                           // goes its way
///     assert_eq!(account.deposit(5).await?, 10);          // waits, five seconds at most
///     account.send(Deposit { amount: 5 })?;               // the message as a value
///     assert_eq!(account.balance().await?, 15);
///     Ok(())
/// })
/// # }
/// ```
///
/// # What it makes
///
/// For the process: `impl Process for Account`, with the hooks. For each message method, here
/// `deposit`, all as visible as the method and with its documentation:
///
/// - `struct Deposit { amount: u64 }` with `impl Message`, to be sent as any other: later by a timer,
///   to many, or through a recipient. An argument that is a pattern makes a field `_0`, by its place.
/// - `impl Handle<Deposit> for Account`, which calls the method. It adds no future and no
///   allocation of its own: a method that does not wait costs as much as a handler written by hand.
/// - `account.deposit(5)`, a `Call`: await it, perhaps `.within(deadline)`.
/// - `account.send_deposit(5)?`, which sends and does not wait.
///
/// The handle of a supervised child has the same methods, which go to whichever incarnation runs:
///
/// ```
/// use throng::prelude::*;
///
/// #[derive(Default)]
/// struct Account { balance: u64 }
///
/// #[process]
/// impl Account {
///     #[message]
///     fn deposit(&mut self, amount: u64) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let spec = ChildSpec::new(Account::default);
/// let account: Child<Account> = spec.handle();
/// Supervisor::one_for_one().child("account", spec).start(&runtime)?;
/// runtime.block_on(async |_| {
///     assert_eq!(account.deposit(5).await?, 5);
///     Ok(())
/// })
/// # }
/// ```
///
/// Everything is made where the block stands. The methods on the address are those of a trait
/// `AccountClient`, which other modules import. If methods differ in visibility, the widest are in
/// `AccountClient` and the others in traits of their own, `AccountClientCrate` for `pub(crate)`,
/// `AccountClientSuper`, `AccountClientPrivate`: a private message cannot be sent from outside.
///
/// # Methods
///
/// A message method takes `&mut self` or `&self`, is an `async fn` or a plain `fn`, and owns what it
/// takes and returns. An argument of type `&mut Context<Self>`, anywhere, is the process's context
/// and no part of the message. With an argument of type `ReplyTo<R>` the message is a question, to be
/// answered later or by another process: `account.audit(year).await?` asks it and brings the `R`, and
/// `account.send_audit(year, reply)` hands a question on. The impl block may have type parameters; a message has those that
/// its arguments and its reply need. If a parameter occurs in the reply only, the message is made
/// by `Get::new(key)`.
///
/// # Names
///
/// A message is called as its method is, in camel case, and is an item of the module in which the
/// block stands. The name must be free there: no type of yours has it, and no message of another
/// process in the same module. `#[message(name = …)]` gives a message another name:
///
/// ```
/// use throng::prelude::*;
///
/// struct Deposit { amount: u64, from: String }
/// struct Account { balance: u64 }
/// struct Till { sum: u64 }
///
/// #[process]
/// impl Account {
///     #[message(name = TakeDeposit)]
///     fn deposit(&mut self, deposit: Deposit) -> u64 {
///         self.balance += deposit.amount;
///         self.balance
///     }
/// }
///
/// #[process]
/// impl Till {
///     #[message(name = TillDeposit)]
///     fn deposit(&mut self, amount: u64) {
///         self.sum += amount;
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// # let account = runtime.spawn(Account { balance: 0 })?;
/// let deposit = Deposit { amount: 5, from: "ann".to_owned() };
/// runtime.block_on(async |_| {
///     assert_eq!(account.deposit(deposit).await?, 5);
///     Ok(())
/// })
/// # }
/// ```
///
/// The macro refuses a name that it can see to be taken: that of the process, of its client's trait, of a
/// type in the method's own signature. Any other clash is found by the compiler, whose complaint
/// (E0428, or E0255 for an imported type) points at the method.
///
/// # Hooks
///
/// A method marked `#[hook]` and called `started`, `stopping`, `down`, `exit` or `timeout` is that
/// hook of the process. It may leave out arguments that it does not need.
///
/// ```
/// use throng::prelude::*;
///
/// struct Session { greetings: u32 }
///
/// #[process]
/// impl Session {
///     #[hook]
///     fn started(&mut self) {
///         self.greetings = 1;
///     }
///
///     #[message(send)]
///     fn hang_up(&mut self, cx: &mut Context<Self>) {
///         cx.stop(ExitReason::other("hung up"));
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let session = runtime.spawn(Session { greetings: 0 })?;
/// session.hang_up()?;
/// # Ok(())
/// # }
/// ```
///
/// # Options
///
/// | `#[process(…)]` | |
/// |---|---|
/// | `manual` | `impl Process` is written by hand, or made by another block |
/// | `client = Name` | the trait's name, instead of `AccountClient` |
/// | `crate = path` | where throng is, instead of `::throng` |
///
/// | `#[message(…)]` | |
/// |---|---|
/// | `send` | it is only sent: `session.hang_up()?` sends, and nothing calls |
/// | `name = Name` | the message's name, instead of the method's in camel case |
/// | `derive(Clone, …)` | what the message derives; nothing by itself. `Clone` is what `send_every` needs |
#[proc_macro_attribute]
pub fn process(options: TokenStream, item: TokenStream) -> TokenStream {
    process::expand(options.into(), item.into()).into()
}

/// Marks a method of a [`#[process]`](macro@process) block as a message; see there.
#[proc_macro_attribute]
pub fn message(_: TokenStream, item: TokenStream) -> TokenStream {
    attributes::outside("message", item.into()).into()
}

/// Marks a method of a [`#[process]`](macro@process) block as a hook; see there.
#[proc_macro_attribute]
pub fn hook(_: TokenStream, item: TokenStream) -> TokenStream {
    attributes::outside("hook", item.into()).into()
}
