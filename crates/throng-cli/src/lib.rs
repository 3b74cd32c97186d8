//! Commands of an operator that work with every node on throng, whatever program it is.
//!
//! The program `throng` has them. A program of its own can have them, too, so that an operator needs a single file:
//!
//! ```
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! enum Cli {
//!     /// Serve until Ctrl-C
//!     Serve,
//!     #[command(flatten)]
//!     Operator(throng_cli::Command),
//! }
//!
//! assert!(matches!(Cli::parse_from(["my-node", "top", "--once"]), Cli::Operator(_)));
//! ```

mod entity;
mod queue;
mod store;
mod token;
mod top;

use std::error::Error;
use std::process::ExitCode;

use clap::Subcommand;

/// Commands for a node, or for its data.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the processes, messages and workers of a running node
    Top(top::TopArgs),
    /// Look into durable entities, retry or skip their messages, copy or remove them
    Entity(entity::EntityArgs),
    /// Look into queues of jobs, retry or remove their jobs, pause them
    Queue(queue::QueueArgs),
    /// Inspect, verify or back up a store, even while a node uses it
    Store(store::StoreArgs),
    /// Replace the token of a node's dashboard and print it; the one before opens nothing any more
    AdminToken(token::AdminTokenArgs),
}

impl Command {
    /// Carries out the command, and returns the status with which the program should exit.
    ///
    /// Results go to standard output. The status is 1 if a store is damaged.
    ///
    /// # Errors
    /// The node cannot be reached, or the store or the directory cannot be used.
    pub fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        match self {
            Command::Top(top) => Ok(top.run().map(|()| ExitCode::SUCCESS)?),
            Command::Entity(entity) => Ok(entity.run().map(|()| ExitCode::SUCCESS)?),
            Command::Queue(queue) => Ok(queue.run().map(|()| ExitCode::SUCCESS)?),
            Command::Store(store) => Ok(store.run()?),
            Command::AdminToken(token) => Ok(token.run().map(|()| ExitCode::SUCCESS)?),
        }
    }
}
