//! A program of its own with dashboard, metrics, probes, a graceful stop, and the commands of an operator: a durable
//! counter for each name. Run it: `cargo run -p throng-examples --bin counters -- serve`; then `… -- top`.

use axum::extract::{Path, State};
use axum::{Router, http::StatusCode, routing::post};
use std::process::ExitCode;
use throng::prelude::*;
use throng_durable::{Durable, Node};

#[derive(Default, Durable, serde::Serialize, serde::Deserialize)]
#[durable(kind = "counter")]
struct Counter(u64);

#[process]
impl Counter {
    #[message]
    fn add(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

async fn add(State(node): State<Node>, Path(name): Path<String>) -> Result<String, StatusCode> {
    let count = node.entity::<Counter>(name).add().await;
    count.map(|count| count.to_string()).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

#[derive(clap::Parser)]
enum Cli {
    /// Serve until Ctrl-C: `POST /add/NAME` adds one
    Serve(Box<throng_node::args::NodeArgs>),
    #[command(flatten)]
    Operator(throng_cli::Command),
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    match clap::Parser::parse() {
        Cli::Operator(command) => command.run(),
        Cli::Serve(args) => {
            Runtime::builder().kind_metrics(true).start()?.block_on(async |runtime| {
                let node = Node::options("./throng-data").open(runtime)?;
                let router = Router::new().route("/add/{name}", post(add)).with_state(node.clone());
                throng_node::serve(runtime, node, args.options()?, router).await?;
                Ok(ExitCode::SUCCESS)
            })
        }
    }
}
