//! The program `throng`: what an operator does with any node on throng. See the [library](throng_cli).
//!
//! Results go to standard output, everything else to standard error. The exit status is 0 if all is well, 1 if a node
//! cannot be reached or a store is damaged, and 2 for a usage error.

use std::process::ExitCode;

use clap::Parser;
use throng_node::args::Log;
use throng_node::log::complain;

/// A look into any node on throng, and the tools for its data.
#[derive(Debug, Parser)]
#[command(name = "throng", version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    log: Log,

    #[command(subcommand)]
    command: throng_cli::Command,
}

fn main() -> ExitCode {
    let Cli { log, command } = Cli::parse();
    log.start(false);
    command.run().unwrap_or_else(|error| {
        complain("throng", log.log_format, &*error);
        ExitCode::FAILURE
    })
}
