//! A process that uses up the mailbox budget.

use throng::prelude::*;

/// Process that handles none of its messages, to use up the mailbox budget.
pub(crate) struct Hoard;

impl Process for Hoard {
    async fn started(&mut self, _: &mut Context<Self>) {
        std::future::pending::<()>().await;
    }
}

pub(crate) struct Load;

impl Message for Load {
    type Reply = ();
}

impl Handle<Load> for Hoard {
    async fn handle(&mut self, _: Load, _: &mut Context<Self>) {}
}
