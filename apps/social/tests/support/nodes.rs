//! The service on a node of its own, for tests of its operations.

use std::path::Path;
use std::time::Duration;

use social::{Name, Social, Text};
use throng::prelude::*;

/// Runs `test` with the service on `data`, from start to shutdown.
pub(crate) fn on_data<R>(data: &Path, test: impl AsyncFnOnce(&Social, &RuntimeHandle) -> R) -> R {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        crate::support::on(runtime, data, async |social| test(social, runtime).await).await
    })
}

/// Runs `test` with the service on fresh data.
pub(crate) fn on_a_node(test: impl AsyncFnOnce(&Social, &RuntimeHandle)) {
    on_data(tempfile::tempdir().unwrap().path(), test);
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

pub(crate) async fn until(is_so: impl AsyncFn() -> bool) {
    for _ in 0..30_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it was never so");
}
