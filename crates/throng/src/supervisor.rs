//! Supervisors: processes that start other processes and restart them when they die.
//!
//! ```text
//!  SupervisorSpec ──start──▶ Supervisor (a process) ──asks──▶ Engine: children to stop and start
//!    ChildSpec ───────▶ Starter ─┘ │ linked                     │
//!       └─ Place ◀── sets ─────────┤ spawns, stops  ◀───────────┘
//!            ▲                     ▼
//!          Child (handle) ──────▶ the incarnation that runs
//! ```
//! Semantics and terms are OTP's, with two differences: a spec holds a closure instead of a
//! module's name, and any child may go without an id.

mod child;
mod engine;
mod error;
mod manage;
mod pool;
mod process;
mod spec;

pub use self::child::Child;
pub use self::error::{ChildError, SupervisorError};
pub use self::manage::{ChildInfo, ChildRef, ChildState};
pub use self::pool::{KeyedWorker, Pool};
pub use self::process::Supervisor;
pub use self::spec::{AutoShutdown, ChildSpec, Restart, SupervisorSpec};
