//! `chat` with the rooms of the message service: a durable process for each room, and a process for each socket. A
//! message is on the disk before any socket gets it.
//!
//! Users, rooms and memberships are stored by a process of its own before the server starts, so that its memory
//! has only what it needs.

use std::env;
use std::future::ready;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use social::{Name, Password, RateLimits, RoomName, Settings as ServiceSettings, Social};
use throng::{Runtime, RuntimeHandle};
use throng_durable::Node;
use throng_server::{Limits, Server, Signer, Sockets};
use tokio::task::spawn_blocking;

use super::{Layout, WORKLOAD, room_name, user_name};
use crate::outcome::Outcome;
use crate::runtimes::Measured;
use crate::settings::Settings;
use crate::stores::Directory;
use crate::workloads::served;

/// Key that signs the tokens: the client makes its own, because a login costs a hash of a password.
const KEY: [u8; 32] = *b"a key for the benchmark's tokens";

/// Time for which a token is valid; no run takes as long.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);

/// Number of users that are prepared at once.
const AT_ONCE: usize = 512;

/// Time for processes to end; they do so at once.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn signer() -> Signer {
    Signer::from_key(KEY)
}

/// Token of a user.
pub(super) fn token(signer: &Signer, name: &str) -> String {
    signer.issue_token(name, TOKEN_TTL).0
}

pub(super) fn run(settings: &Settings) -> Measured {
    Layout::of(settings)?;
    served::allow_open_files()?;
    let directory = Directory::make(settings)?;
    seed_in_process(settings, directory.path())?;
    on_node(settings, directory.path(), async |runtime, node| {
        serve(runtime, node, settings.clone()).await
    })
}

/// Starts a node on a directory, runs `work` on it, and ends it.
fn on_node(
    settings: &Settings,
    directory: &Path,
    work: impl AsyncFnOnce(&RuntimeHandle, &Node) -> io::Result<Outcome>,
) -> io::Result<Outcome> {
    let runtime = Runtime::builder().workers(settings.workers).start().map_err(io::Error::other)?;
    let outcome = runtime.block_on(async |runtime| {
        let node = Node::open(directory).start(runtime).map_err(io::Error::other)?;
        let outcome = work(runtime, &node).await;
        node.shutdown().await;
        outcome
    });
    let mut outcome = outcome?;
    let shutdown = runtime.shutdown(DEADLINE);
    outcome.check("processes that did not end", shutdown.abandoned, 0);
    Ok(outcome)
}

async fn serve(runtime: &RuntimeHandle, node: &Node, settings: Settings) -> io::Result<Outcome> {
    let social = Social::new(node.clone(), runtime.clone(), 0).map_err(io::Error::other)?;
    let limits = Limits { connections_max: usize::MAX, ..Limits::default() };
    let server = Server::bind(([127, 0, 0, 1], 0).into(), limits).await?;
    let address = server.address();
    let service = ServiceSettings {
        signer: signer(),
        token_ttl: TOKEN_TTL,
        sockets: Sockets::default(),
        limits: RateLimits::default(),
    };
    let serving = server.start(social::routes(social, service), runtime.tokio());
    let client =
        spawn_blocking(move || served::run_client(&WORKLOAD, "throng", address, &settings));
    let outcome = client.await.map_err(io::Error::other)?;
    let drained = serving.drain().await;
    let mut outcome = outcome?;
    outcome.check("connections that were cut", drained.cut as u64, 0);
    Ok(outcome)
}

/// Runs [`seed`] in a process of its own.
fn seed_in_process(settings: &Settings, directory: &Path) -> io::Result<()> {
    let mut seeder = Command::new(env::current_exe()?);
    seeder.arg("seed").arg("--directory").arg(directory).arg(WORKLOAD.name);
    seeder.args(["--workers", &settings.workers.to_string()]);
    for (key, value) in settings.keys() {
        seeder.arg("--set").arg(format!("{key}={value}"));
    }
    let status = seeder.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the users could not be stored ({status})"))),
    }
}

/// Stores all users, with one password because hashing it takes long, their rooms and their memberships.
///
/// # Errors
/// If the directory cannot be used, or the service refuses.
pub(crate) fn seed(settings: &Settings, directory: &Path) -> io::Result<()> {
    let layout = Layout::of(settings)?;
    on_node(settings, directory, async |runtime, node| {
        let social = Social::new(node.clone(), runtime.clone(), 0).map_err(io::Error::other)?;
        let password = Password::new("correct horse battery staple").map_err(io::Error::other)?;
        let password = social.hash(password).await.map_err(io::Error::other)?;
        each(layout.sockets, async |socket| {
            let name = name(socket)?;
            social.register_hashed(&name, password.clone()).await.map_err(io::Error::other)
        })
        .await?;
        each(layout.rooms(), async |room| {
            let owner = name(room * layout.room)?;
            social.create_room(&room_of(room)?, &owner).await.map_err(io::Error::other)
        })
        .await?;
        each(layout.sockets, async |socket| {
            let room = room_of(layout.room_of(socket))?;
            social.join_room(&room, &name(socket)?).await.map_err(io::Error::other)
        })
        .await?;
        Ok(Outcome::default())
    })
    .map(drop)
}

async fn each(count: u64, prepare: impl AsyncFn(u64) -> io::Result<()>) -> io::Result<()> {
    let prepare = &prepare;
    let numbers = stream::iter(0..count).map(|number| async move { prepare(number).await });
    numbers.buffer_unordered(AT_ONCE).try_for_each(|()| ready(Ok(()))).await
}

fn name(socket: u64) -> io::Result<Name> {
    user_name(socket).parse().map_err(io::Error::other)
}

fn room_of(room: u64) -> io::Result<RoomName> {
    room_name(room).parse().map_err(io::Error::other)
}
