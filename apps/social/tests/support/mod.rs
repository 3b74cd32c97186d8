//! Parts that several tests use.

use std::path::Path;

use social::Social;
use throng::prelude::*;
use throng_durable::Node;

/// Runs `test` with the service on a node with the data in `data`, and shuts the node down.
pub(crate) async fn on<R>(
    runtime: &RuntimeHandle,
    data: &Path,
    test: impl AsyncFnOnce(&Social) -> R,
) -> R {
    let node = Node::options(data).open(runtime).unwrap();
    let social = Social::new(node.clone(), runtime.clone(), 0).unwrap();
    let result = test(&social).await;
    node.shutdown().await;
    result
}
