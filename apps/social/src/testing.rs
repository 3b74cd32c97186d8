//! Nodes for the unit tests.

use std::time::{Duration, Instant};

use throng::prelude::*;
use throng_durable::Node;

use crate::name::Name;
use crate::password::Password;
use crate::service::Social;

/// Runs `test` on a node in a directory of its own.
pub(crate) fn on_a_node(workers: usize, test: impl AsyncFnOnce(&RuntimeHandle, &Node)) {
    let data = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(workers).start().unwrap();
    runtime.block_on(async |runtime| {
        let node = Node::options(data.path()).open(runtime).unwrap();
        test(runtime, &node).await;
        node.shutdown().await;
    });
}

pub(crate) fn with_the_service(workers: usize, test: impl AsyncFnOnce(&Social)) {
    on_a_node(workers, async |runtime, node| {
        test(&Social::new(node.clone(), runtime.clone(), 0).unwrap()).await;
    });
}

/// Registers users with one password, which is hashed once.
pub(crate) async fn register<const N: usize>(social: &Social, names: [&str; N]) -> [Name; N] {
    let hash = social.hash(Password::new("correct horse").unwrap()).await.unwrap();
    let names = names.map(|name| name.parse::<Name>().unwrap());
    for name in &names {
        social.register_hashed(name, hash.clone()).await.unwrap();
    }
    names
}

pub(crate) async fn wait_until(is_so: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never so");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
