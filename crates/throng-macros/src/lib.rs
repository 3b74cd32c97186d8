//! The attribute `#[process]`: messages, handlers and a typed client, made from one impl block. And for
//! entities `#[derive(Durable)]`, for their state, and `#[workflow]`, for async functions that survive.
//!
//! throng re-exports the first and throng-durable the other two; no program depends on this crate
//! directly. Procedural macros must be in a crate of their own, which also keeps syn away from the
//! rest.
//!
//! ```text
//! #[process] impl Account { … }          process: options, the methods one by one
//!     ├─ #[message] fn deposit           message: struct Deposit, its Message and Handle
//!     │                                  client:  its methods on each Client of an Account
//!     ├─ #[hook] fn started              hook:    a method of `impl Process for Account`
//!     └─ any other item                  unchanged
//!
//! #[derive(Durable)] struct Account      durable: `impl Durable for Account`
//!     └─ #[durable(index)] email           indexes: a constant for each index
//!
//! #[workflow] async fn place_order       workflow: struct PlaceOrder, `impl Workflow for PlaceOrder`
//! ```
//!
//! Invariants of the generated code:
//!
//! - Paths are absolute, and variables have names that a user cannot write.
//! - The block itself is unchanged except for the removed attributes; its methods can be called
//!   directly as before.
//! - A message whose method is refused is left out, and all other messages are generated, so that
//!   each mistake is reported once.
//! - A handler is the user's own future, without a wrapper.

mod attributes;
mod borrows;
mod client;
mod durable;
mod generics;
mod hook;
mod indexes;
mod message;
mod process;
mod workflow;

use proc_macro::TokenStream;

/// Makes a type a process: the `#[message]` methods of the impl block become messages, its
/// `#[hook]` methods become hooks of `Process`.
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
///     account.send_deposit(5)?;                           // sends, does not wait
///     assert_eq!(account.deposit(5).await?, 10);          // waits, five seconds at most
///     account.send(Deposit { amount: 5 })?;               // the message as a value
///     assert_eq!(account.balance().await?, 15);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Generated items
///
/// For the process: `impl Process for Account`, with the hooks. For each message method, here
/// `deposit`, all as visible as the method and with its documentation:
///
/// - `struct Deposit { amount: u64 }` with `impl Message`, which can be sent like any message: by a
///   timer, to many processes, or through a recipient. An argument that is a pattern makes a field
///   `_0`, by its position.
/// - `impl Handle<Deposit> for Account`, which calls the method. The handler adds no future and no
///   allocation: a method that does not wait costs as much as a handler written by hand.
/// - `account.deposit(5)`, which returns a `Call`: await it, perhaps `.within(deadline)`.
/// - `account.send_deposit(5)?`, which sends without waiting.
///
/// The handle of a supervised child has the same methods, which go to the running incarnation:
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
/// An entity of `throng-durable` has these methods, too. `node.entity::<Account>("alice").deposit(5)`
/// is an entity's call, with its error, and with a reply that leaves after the changes are on disk.
/// Only a question, a message with a `ReplyTo`, cannot be asked there, because its answer would not
/// wait for the disk. In general, the methods are those of every `throng::client::Client` of an
/// `Account`: a function with an argument `impl AccountClient` takes all of these handles.
///
/// All items are generated in the block's module. The methods on the address belong to a trait
/// `AccountClient`, which other modules import. If methods differ in visibility, the most visible
/// methods are in `AccountClient` and the others in traits of their own, `AccountClientCrate` for
/// `pub(crate)`, `AccountClientSuper`, `AccountClientPrivate`: a private message cannot be sent
/// from outside.
///
/// # Methods
///
/// A message method takes `&mut self` or `&self`, is an `async fn` or a plain `fn`, and takes and
/// returns owned values. With `&self` it reads the state: its handler is `READ_ONLY`, and a durable
/// process is not encoded after it. An argument of type `&mut Context<Self>`, in any position, is the
/// process's context and not part of the message. With an argument of type `ReplyTo<R>` the message
/// is a question that is answered later or by another process: `account.audit(year).await?` asks
/// the question and returns the `R`, and `account.send_audit(year, reply)` passes a question on.
/// The impl block may have type parameters; a message has the parameters that its arguments and its
/// reply need. If a parameter occurs only in the reply, the message is made by `Get::new(key)`.
///
/// # Durable messages
///
/// With `#[message(durable)]`, the message can be stored until an entity of `throng-durable` has handled it: see
/// `throng_durable::DurableMessage`. Its name in the store is that of the method, or the one in
/// `#[message(durable = "…")]`, and must never change. Its arguments implement serde's traits, and none is a `ReplyTo`.
///
/// # Names
///
/// A message has its method's name in camel case and is an item of the block's module. The name
/// must be free there: no type of yours may have it, and no message of another process in the same
/// module. `#[message(name = …)]` gives a message another name:
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
/// The macro refuses a name that it knows to be taken: the name of the process, of its client
/// trait, or of a type in the method's signature. The compiler detects any other clash, with an
/// error (E0428, or E0255 for an imported type) that points at the method.
///
/// The macro also refuses a method that is called like a method that a handle has already: an address
/// (`stop`), the handle of a child (`address`), an entity (`key`, `pin`, `forget`), or any of them by a
/// trait (`clone`, `into`). Otherwise a call of the message might do something else.
///
/// # Hooks
///
/// A method marked `#[hook]` and called `started`, `stopping`, `down`, `exit` or `timeout` is the
/// hook of that name. It may leave out arguments that it does not need.
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
/// | `never_blocks` | the process promises `Process::NEVER_BLOCKS` |
/// | `client = Name` | the trait's name, instead of `AccountClient` |
/// | `crate = path` | the path of throng, instead of `::throng` |
///
/// | `#[message(…)]` | |
/// |---|---|
/// | `send` | the message is only sent: `session.hang_up()?` sends, and there is no call |
/// | `name = Name` | the message's name, instead of the method's in camel case |
/// | `derive(Clone, …)` | traits that the message derives, none by default. `send_every` needs `Clone` |
#[proc_macro_attribute]
pub fn process(options: TokenStream, item: TokenStream) -> TokenStream {
    process::expand(options.into(), item.into()).into()
}

/// Marks a method of a [`#[process]`](macro@process) block as a message.
#[proc_macro_attribute]
pub fn message(_: TokenStream, item: TokenStream) -> TokenStream {
    attributes::outside("message", item.into()).into()
}

/// Marks a method of a [`#[process]`](macro@process) block as a hook.
#[proc_macro_attribute]
pub fn hook(_: TokenStream, item: TokenStream) -> TokenStream {
    attributes::outside("hook", item.into()).into()
}

/// Implements `Durable` of `throng-durable`, where the trait's page has an example.
///
/// | `#[durable(…)]` | |
/// |---|---|
/// | `kind = "…"` | the name of the kind in the store, 1 to 64 bytes; required |
/// | `version = …` | the version of the state, 1 to 65535; 1 by default |
/// | `migrate = path` | the function `fn(OldState<'_>) -> Result<Self, StateError>` that converts older states |
/// | `crate = path` | the path of throng-durable, instead of `::throng_durable` |
///
/// | `#[durable(…)]` on a field | |
/// |---|---|
/// | `index`, `index = "…"` | an index of the entities by the field; its name is that of the field, or the one given |
/// | `unique` | two entities never have the same key in the index |
///
/// Each index is a constant of the type, with the name of the field in capitals: see `throng_durable::Index`.
///
/// The type is a struct or an enum without parameters, and also implements `Process`, `Serialize`,
/// `Deserialize` and `Default`.
#[proc_macro_derive(Durable, attributes(durable))]
pub fn durable(item: TokenStream) -> TokenStream {
    durable::expand(item.into()).into()
}

/// Makes an async function a workflow: a type that implements `Workflow` of `throng-durable`, where the trait's page
/// has an example.
///
/// The type has the function's name in camel case, its visibility and its documentation. The function itself is
/// unchanged. It takes `cx: &Steps` and one input or none, and returns a `Result`, whose error converts into
/// `Failure`. A workflow whose steps need clients or settings is a type with fields and `impl Workflow` instead.
///
/// | `#[workflow(…)]` | |
/// |---|---|
/// | `stored = "…"` | the name in the store, which must never change; that of the function by default |
/// | `name = Name` | the type's name, instead of the function's in camel case |
/// | `crate = path` | the path of throng-durable, instead of `::throng_durable` |
#[proc_macro_attribute]
pub fn workflow(options: TokenStream, item: TokenStream) -> TokenStream {
    workflow::expand(options.into(), item.into()).into()
}
