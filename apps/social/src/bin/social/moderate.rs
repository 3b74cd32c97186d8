//! `social moderate`: what the operator of the message service removes or repairs, on the data of a node that is stopped.
//!
//! ```text
//! data directory (locked) ─► runtime, node, service ─► one operation ─► node at rest, flushed
//! ```
//!
//! Invariants: the lock on the data keeps out a node that serves. An operation is that of the service, so it is durable
//! when the command ends, and leaves followers and members in order.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use social::{Name, Password, PasswordError, PostId, RoomName, Social, SocialError};
use throng::{Runtime, RuntimeHandle, StartError};
use throng_durable::{Node, OpenError};

use crate::serve::NODE_NUMBER;

/// Arguments of `social moderate`.
#[derive(Debug, Args)]
pub(crate) struct ModerateArgs {
    /// Directory of the data of a node, which must be stopped
    #[arg(long, value_name = "DIRECTORY", env = "THRONG_DATA", default_value = "./throng-data")]
    data: PathBuf,

    #[command(subcommand)]
    command: ModerateCommand,
}

#[derive(Debug, Subcommand)]
enum ModerateCommand {
    /// Delete a post
    RemovePost { author: Name, id: PostId },
    /// Remove the text of a message in a room
    RemoveMessage { room: RoomName, number: u64 },
    /// End a room, with its memberships and messages
    RemoveRoom { room: RoomName },
    /// Delete an account, with its posts, follows and memberships; its name is not given out again
    RemoveUser { name: Name },
    /// Replace the password of a user by a line of standard input, and end all sessions of the user
    ResetPassword { name: Name },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ModerateError {
    #[error("there is no data in {path}; name the directory of a node with --data")]
    NoData { path: PathBuf },
    #[error("a node uses the data in {path}; stop it first")]
    InUse { path: PathBuf },
    #[error(transparent)]
    Open(OpenError),
    #[error("cannot start the runtime")]
    Runtime(#[source] StartError),
    #[error("cannot read the password from standard input")]
    Input(#[source] io::Error),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Service(#[from] SocialError),
}

impl ModerateArgs {
    pub(crate) fn run(self) -> Result<(), ModerateError> {
        let ModerateArgs { data, command } = self;
        // Opening would create a store.
        if !data.join("log").is_dir() {
            return Err(ModerateError::NoData { path: data });
        }
        let runtime = Runtime::builder().start().map_err(ModerateError::Runtime)?;
        let outcome = runtime.block_on(async |runtime| {
            let node = Node::options(&data).open(runtime).map_err(|error| match error {
                OpenError::InUse { path } => ModerateError::InUse { path },
                error => ModerateError::Open(error),
            })?;
            let outcome = carry_out(node.clone(), runtime.clone(), command).await;
            node.shutdown().await;
            outcome
        });
        let _ = runtime.shutdown(SHUTDOWN);
        outcome
    }
}

async fn carry_out(
    node: Node,
    runtime: RuntimeHandle,
    command: ModerateCommand,
) -> Result<(), ModerateError> {
    let social = Social::new(node, runtime, NODE_NUMBER)?;
    match command {
        ModerateCommand::RemovePost { author, id } => social.delete_post(&author, id).await?,
        ModerateCommand::RemoveMessage { room, number } => {
            social.remove_message(&room, number).await?;
        }
        ModerateCommand::RemoveRoom { room } => social.remove_room(&room).await?,
        ModerateCommand::RemoveUser { name } => social.remove_user(&name).await?,
        ModerateCommand::ResetPassword { name } => {
            social.reset_password(&name, read_password()?).await?;
        }
    }
    Ok(())
}

/// Reads the password from standard input, so that it is in no list of processes and no history of a shell.
fn read_password() -> Result<Password, ModerateError> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(ModerateError::Input)?;
    Ok(Password::new(text.lines().next().unwrap_or_default())?)
}

/// Maximum number of bytes of a password that are read: more than any password has.
const INPUT_BYTES_MAX: u64 = 4096;

/// Time for which the runtime waits for processes to stop, after the node is at rest.
const SHUTDOWN: Duration = Duration::from_secs(5);
