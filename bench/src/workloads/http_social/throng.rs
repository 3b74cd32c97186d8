//! `http-social` with the message service as `throng serve` runs it, on a store in a directory of its own.

use std::future::ready;
use std::io;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use social::{Name, Password, RateLimits, Settings as ServiceSettings, Social, Text};
use throng::{Runtime, RuntimeHandle};
use throng_durable::Node;
use throng_server::{Limits, Server, Sockets};
use tokio::task::spawn_blocking;

use super::WORKLOAD;
use super::population::{self, Population};
use crate::outcome::Outcome;
use crate::runtimes::Measured;
use crate::settings::Settings;
use crate::stores::Directory;
use crate::workloads::served;

/// Number of users that are prepared at once.
const AT_ONCE: usize = 256;

/// Time for processes to end; they do so at once.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn run(settings: &Settings) -> Measured {
    served::allow_open_files()?;
    let directory = Directory::make(settings)?;
    let runtime = Runtime::builder().workers(settings.workers).start().map_err(io::Error::other)?;
    let outcome = runtime.block_on(async |runtime| {
        let node = Node::open(directory.path()).start(runtime).map_err(io::Error::other)?;
        let outcome = serve(runtime, &node, settings.clone()).await;
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
    seed(&social, Population::of(&settings)).await?;
    let limits = Limits { connections_max: usize::MAX, ..Limits::default() };
    let server = Server::bind(([127, 0, 0, 1], 0).into(), limits).await?;
    let address = server.address();
    let service = ServiceSettings {
        signer: population::signer(),
        token_ttl: population::TOKEN_TTL,
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

/// Registers all users, with one password because hashing it takes long, and makes their follows and posts.
async fn seed(social: &Social, population: Population) -> io::Result<()> {
    let password = Password::new("correct horse battery staple").map_err(io::Error::other)?;
    let password = social.hash(password).await.map_err(io::Error::other)?;
    each_user(population, async |_, name| {
        social.register_hashed(&name, password.clone()).await.map_err(io::Error::other)
    })
    .await?;
    each_user(population, async |user, name| {
        for followed in population.followed(user) {
            social.follow(&name, &parsed(followed)?).await.map_err(io::Error::other)?;
        }
        for post in 0..population.posts {
            let text = Text::new(population::text(user, post)).map_err(io::Error::other)?;
            social.post(&name, text, None).await.map_err(io::Error::other)?;
        }
        Ok(())
    })
    .await
}

async fn each_user(
    population: Population,
    prepare: impl AsyncFn(u64, Name) -> io::Result<()>,
) -> io::Result<()> {
    let prepare = &prepare;
    let users = stream::iter(0..population.users)
        .map(|user| async move { prepare(user, parsed(user)?).await });
    users.buffer_unordered(AT_ONCE).try_for_each(|()| ready(Ok(()))).await
}

fn parsed(user: u64) -> io::Result<Name> {
    population::name(user).parse().map_err(io::Error::other)
}
