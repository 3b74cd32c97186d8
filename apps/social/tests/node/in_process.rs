//! The service behind a server in the process of the tests, for tests that look into its runtime.

use std::time::Duration;

use social::{RateLimits, Settings, Social};
use throng::prelude::*;
use throng_node::http::{Limits, Server, Signer, Sockets};

use crate::harness::Client;

pub(crate) struct Service<'r> {
    pub(crate) runtime: &'r RuntimeHandle,
    pub(crate) social: Social,
    /// Router as text for debugging, which lists its paths.
    pub(crate) router: String,
    /// Address, such as `127.0.0.1:40123`.
    pub(crate) address: String,
    pub(crate) client: Client,
}

/// Runs `test` with the service on fresh data.
pub(crate) fn with_the_service(sockets: Sockets, test: impl AsyncFnOnce(&Service<'_>)) {
    let data = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        let node = throng_durable::Node::options(data.path()).open(runtime).unwrap();
        let social = Social::new(node.clone(), runtime.clone(), 0).unwrap();
        let (signer, token_ttl) = (Signer::from_key([7; 32]), Duration::from_secs(3600));
        let settings = Settings { signer, token_ttl, sockets, limits: RateLimits::default() };
        let router = social::routes(social.clone(), settings);
        let text = format!("{router:?}");
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Limits::default()).await.unwrap();
        let serving = server.start(router, runtime.tokio());
        let address = serving.address().to_string();
        let client = Client::new(&address);
        test(&Service { runtime, social, router: text, address, client }).await;
        assert_eq!(serving.drain().await.cut, 0);
        node.shutdown().await;
    });
}
