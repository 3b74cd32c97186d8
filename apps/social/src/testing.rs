//! Nodes for the unit tests.

use throng::prelude::*;
use throng_durable::Node;

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
