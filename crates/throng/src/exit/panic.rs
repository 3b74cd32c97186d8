//! Panics of user code: the message, and the place in the source.
//!
//! ```text
//! panic!(..) ──▶ hook: notes the place and the payload, in a list of the thread
//!     │
//!     └─ unwinds ──▶ catch: looks for the note of the payload that it has caught
//! ```
//!
//! The payload of a caught panic does not contain the place; only the panic hook gets it. A note may outlive
//! its panic, because user code may catch a panic itself. A payload may have no note, because `resume_unwind`
//! runs no hook, and the program may have replaced the hook. Therefore a note fits a payload only if both have
//! the same turn, the same type and the same message, or no message.
//!
//! Invariants: only the thread that wrote a note sees it. Code that does not panic runs nothing of this
//! file.

use crate::sync::is_unwinding;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Maximum number of notes of a thread. There are several if user code catches panics itself, also
/// while it unwinds from another panic.
const NOTES_MOST: usize = 4;

thread_local! {
    /// The notes of this thread, the newest last.
    static NOTES: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
}

/// A panic of user code: its message, and its place in the source.
///
/// ```
/// use throng::prelude::*;
/// use throng::CallError;
///
/// struct Divider;
///
/// #[process]
/// impl Divider {
///     #[message]
///     fn divide(&self, a: u32, b: u32) -> u32 { a / b }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let divider = runtime.spawn(Divider)?;
/// let Err(CallError::Died(ExitReason::Panicked(panic))) =
///     runtime.block_on(async |_| divider.divide(1, 0).await)
/// else { panic!("the process did not panic") };
/// assert_eq!(panic.message(), "attempt to divide by zero");
/// assert_eq!(panic.place().map(|place| &*place.file), Some(file!()));
/// # Ok(())
/// # }
/// ```
///
/// Two panics are equal if their messages are equal, because the place changes with each edit of the
/// source. A panic that is made from a text has no place, and serves for comparisons:
/// `ExitReason::Panicked("torn".into())`.
///
/// Cost: without a panic, nothing. A clone is a reference count.
#[derive(Clone)]
pub struct Panic(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    message: Box<str>,
    place: Option<PanicPlace>,
}

impl Panic {
    /// Makes a panic from a caught payload, and finds its place.
    ///
    /// ```
    /// use throng::Panic;
    ///
    /// let payload = std::panic::catch_unwind(|| panic!("out of paper")).unwrap_err();
    /// assert_eq!(Panic::from_payload(payload).message(), "out of paper");
    /// ```
    ///
    /// The place is found only on the thread that has caught the payload, and in the turn of the panic.
    pub fn from_payload(payload: Box<dyn Any + Send>) -> Panic {
        let message = message_of(&*payload).unwrap_or("a panic without a message");
        let panic =
            Panic(Arc::new(Parts { message: message.into(), place: take_place(&*payload) }));
        // The payload is a value of the user's, too: its drop may panic.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
        panic
    }

    /// Returns the panic's message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the place in the source, if it is known.
    ///
    /// The first start of a runtime installs a panic hook that notes the place of each panic and
    /// then calls the previous hook. The place is `None` if the hook has noted none:
    ///
    /// - The program has installed a hook of its own later, which does not call the previous hook.
    /// - The panic was raised by [`resume_unwind`](std::panic::resume_unwind), which runs no hook. A payload
    ///   that was caught earlier in the same turn keeps its place, though.
    /// - The value was made from a text.
    pub fn place(&self) -> Option<&PanicPlace> {
        self.0.place.as_ref()
    }
}

impl From<&str> for Panic {
    fn from(message: &str) -> Panic {
        Panic(Arc::new(Parts { message: message.into(), place: None }))
    }
}

impl From<String> for Panic {
    fn from(message: String) -> Panic {
        Panic::from(&*message)
    }
}

impl PartialEq for Panic {
    fn eq(&self, other: &Panic) -> bool {
        self.message() == other.message()
    }
}

impl Eq for Panic {}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { message, place } = &*self.0;
        f.debug_struct("Panic").field("message", message).field("place", place).finish()
    }
}

/// Writes `panicked at src/x.rs:10:5: message`, or `panicked: message` without a place.
impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "panicked at {place}: {}", self.message()),
            None => write!(f, "panicked: {}", self.message()),
        }
    }
}

/// Place of a [`Panic`] in the source, written `file:line:column`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PanicPlace {
    /// Path of the source file, as it was passed to the compiler.
    pub file: Box<str>,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in the line, from 1.
    pub column: u32,
}

impl fmt::Display for PanicPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A place, and the data that identify the payload that it belongs to.
struct Note {
    place: PanicPlace,
    turn: Option<u32>,
    payload: TypeId,
    message: Option<Box<str>>,
}

impl Note {
    fn fits(&self, payload: &(dyn Any + Send), turn: Option<u32>) -> bool {
        self.turn == turn
            && self.payload == payload.type_id()
            && self.message.as_deref() == message_of(payload)
    }
}

/// Returns the text of a payload, or `None` if the panic was raised with another type of value.
fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Number of the turn that the calling thread runs, if it runs one.
type TurnNumber = fn() -> Option<u32>;

/// The function by which notes learn their turn, from the first start of a runtime on.
static TURN_NUMBER: OnceLock<TurnNumber> = OnceLock::new();

fn current_turn() -> Option<u32> {
    TURN_NUMBER.get().and_then(|turn_number| turn_number())
}

/// Installs the panic hook that notes places, at the first call in the program.
pub(crate) fn note_places(turn_number: TurnNumber) {
    // A thread that unwinds must not change the hook. The next start of a runtime changes it.
    if !is_unwinding() {
        TURN_NUMBER.get_or_init(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                note(info);
                before(info);
            }));
            turn_number
        });
    }
}

fn note(info: &PanicHookInfo<'_>) {
    let Some(location) = info.location() else { return };
    let note = Note {
        place: PanicPlace {
            file: location.file().into(),
            line: location.line(),
            column: location.column(),
        },
        turn: current_turn(),
        payload: info.payload().type_id(),
        message: message_of(info.payload()).map(Box::from),
    };
    // A thread that is ending has no list any more; the place then stays unknown.
    let _ = NOTES.try_with(|notes| {
        if let Ok(mut notes) = notes.try_borrow_mut() {
            if notes.len() == NOTES_MOST {
                notes.remove(0);
            }
            notes.push(note);
        }
    });
}

/// Returns the place of the panic with this payload, which this thread has caught.
fn take_place(payload: &(dyn Any + Send)) -> Option<PanicPlace> {
    let turn = current_turn();
    let take = |notes: &RefCell<Vec<Note>>| {
        let mut notes = notes.borrow_mut();
        let found = notes.iter().rposition(|note| note.fits(payload, turn))?;
        // Newer notes belong to panics that began later and are over. Older notes may belong to panics
        // from which this thread still unwinds.
        notes.drain(found..).next().map(|note| note.place)
    };
    NOTES.try_with(take).ok().flatten()
}

/// Forgets the panics of this thread so far, for a thread that runs no turns.
pub(crate) fn forget_places() {
    let _ = NOTES.try_with(|notes| notes.borrow_mut().clear());
}
