//! A line to a node that can die without a word to either end.

use std::future::pending;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Line between clients and a node.
pub(crate) struct Line {
    /// Address that clients connect to.
    pub(crate) address: String,
    deaths: watch::Sender<()>,
}

impl Line {
    /// Lays a line to the node at `address`.
    pub(crate) async fn to(address: &str) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let line = Line {
            address: listener.local_addr().unwrap().to_string(),
            deaths: watch::Sender::new(()),
        };
        let (node, deaths) = (address.to_owned(), line.deaths.clone());
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut far = TcpStream::connect(&node).await.unwrap();
                let mut death = deaths.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        // Both connections stay open, and nothing passes.
                        Ok(()) = death.changed() => pending().await,
                    }
                });
            }
        });
        line
    }

    /// Makes all open connections dead. Later ones work.
    pub(crate) fn die(&self) {
        self.deaths.send_replace(());
    }
}
