//! A node with the message service of `apps/social`, for the workloads that measure it as a server: without limits of
//! clients, with tokens that the client makes itself, and with users of one password.

use std::future::ready;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use social::{Name, Password, RateLimits, Settings as ServiceSettings, Social};
use throng::RuntimeHandle;
use throng_durable::Node;
use throng_node::http::{Signer, Sockets};

use super::prelude::*;
use super::served;

/// Key that signs the tokens: the client makes its own, because a login costs a hash of a password.
const KEY: [u8; 32] = *b"a key for the benchmark's tokens";

/// Time for which a token is valid; no run takes as long.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);

const AT_ONCE: usize = 512;

pub(crate) struct Tokens(Signer);

impl Tokens {
    pub(crate) fn new() -> Tokens {
        Tokens(Signer::from_key(KEY))
    }

    pub(crate) fn of(&self, name: &str) -> String {
        self.0.issue_token(name, TOKEN_TTL).0
    }
}

pub(crate) fn on_node(
    settings: &Settings,
    directory: &Path,
    work: impl AsyncFnOnce(&RuntimeHandle, Social) -> Measured,
) -> Measured {
    served::on_throng(settings, async |runtime| {
        let node = Node::options(directory).open(runtime)?;
        let social = Social::new(node.clone(), runtime.clone(), 0)?;
        let outcome = work(runtime, social).await;
        node.shutdown().await;
        outcome
    })
}

pub(crate) async fn serve(runtime: &RuntimeHandle, social: Social, settings: Settings) -> Measured {
    let service = ServiceSettings {
        signer: Tokens::new().0,
        token_ttl: TOKEN_TTL,
        sockets: Sockets::default(),
        // They limit nothing.
        limits: RateLimits::default(),
    };
    served::serve_on_throng(runtime, social::routes(social, service), settings).await
}

/// Registers users, numbered from 0, with one password because hashing it takes long.
pub(crate) async fn register(
    social: &Social,
    count: u64,
    name: impl Fn(u64) -> io::Result<Name>,
) -> io::Result<()> {
    let password = Password::new("correct horse battery staple").map_err(io::Error::other)?;
    let password = social.hash(password).await.map_err(io::Error::other)?;
    each(count, async |user| {
        let name = name(user)?;
        social.register_hashed(&name, password.clone()).await.map_err(io::Error::other)
    })
    .await
}

/// Prepares things that are numbered from 0, some of them at a time.
pub(crate) async fn each(
    count: u64,
    prepare: impl AsyncFn(u64) -> io::Result<()>,
) -> io::Result<()> {
    let prepare = &prepare;
    let numbers = stream::iter(0..count).map(|number| async move { prepare(number).await });
    numbers.buffer_unordered(AT_ONCE).try_for_each(|()| ready(Ok(()))).await
}
