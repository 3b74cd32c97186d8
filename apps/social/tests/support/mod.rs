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
    let node = Node::open(data).start(runtime).unwrap();
    let social = Social::new(node.clone(), runtime.clone(), 0).unwrap();
    let result = test(&social).await;
    node.shutdown().await;
    result
}

/// Process that handles none of its messages, to use up the mailbox budget.
pub(crate) struct Hoard;

impl Process for Hoard {
    async fn started(&mut self, _: &mut Context<Self>) {
        std::future::pending::<()>().await;
    }
}

/// Message for a [`Hoard`].
pub(crate) struct Load;

impl Message for Load {
    type Reply = ();
}

impl Handle<Load> for Hoard {
    async fn handle(&mut self, _: Load, _: &mut Context<Self>) {}
}
