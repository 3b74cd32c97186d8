//! The program `social`: a node that serves the message service, and the tools around it.
//!
//! Results (such as the address for the browser) go to standard output, everything else to standard
//! error. The exit status is 0 after a clean stop. It is 1 if a node cannot start, run or be
//! reached, if a second signal stops it before it is at rest, or if a store is damaged or the key
//! is missing, or if a load had errors. It is 2 for a usage error, on the command line,
//! in the environment or in the file of settings.

mod api;
mod config;
mod demo;
mod load;
mod moderate;
mod serve;
mod settings;
mod trust;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use config::LoadError;
use throng_node::args::Log;
use throng_node::log::{Format, complain};

/// A message service on throng: a durable process for each user and each room.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    log: Log,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node that serves the message service over HTTP, until Ctrl-C or SIGTERM
    Serve(Box<serve::ServeArgs>),
    /// Run a node with a busy population of clients, to see it at work
    ///
    /// The clients register, follow, post, like, and talk in rooms, over HTTP and WebSockets. The
    /// addresses of the page and the dashboard are printed, and a login of a user who follows some of the
    /// population. Ctrl-C ends the demo and deletes its data.
    ///
    /// The passwords of the population and of the login follow from the seed: keep the demo away from the network.
    Demo(demo::DemoArgs),
    /// Remove posts, messages, rooms or users, or reset a password, in the data of a stopped node
    Moderate(moderate::ModerateArgs),
    /// Load a running node with requests, and report their latencies
    ///
    /// With --rate, requests are sent at a fixed rate, and a latency is the time since the request was
    /// due: a node that stalls cannot slow the load down to look fast. With --connections alone, each
    /// connection sends a request after the answer to the last.
    ///
    /// The users `load_SEED_NUMBER` are registered on the node, and stay there. Their passwords follow
    /// from the seed, so anybody can log in as one of them: do not load a node that serves people.
    ///
    /// The exit status is 1 if a request had an error. An answer 429 (too many requests) is counted
    /// separately. A node limits the requests of each user and client: to find out what it can serve, start it
    /// with --unlimited.
    Load(load::LoadArgs),
    #[command(flatten)]
    Operator(throng_cli::Command),
}

fn main() -> ExitCode {
    let loaded = match config::load(Cli::command(), std::env::args_os().collect()) {
        Ok(loaded) => loaded,
        Err(LoadError::CommandLine(error)) => error.exit(),
        Err(error) => {
            complain(NAME, Format::Text, &error);
            return ExitCode::from(USAGE);
        }
    };
    let Cli { log, command } =
        Cli::from_arg_matches(&loaded.matches).unwrap_or_else(|error| error.exit());
    let format = log.log_format;
    if matches!(&command, Command::Serve(serve) if serve.config.print_config) {
        if let Err(source) = io::stdout().lock().write_all(loaded.to_toml().as_bytes()) {
            complain(NAME, format, &PrintError(source));
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if let Command::Serve(serve) = &command
        && let Err(error) = serve.node.check()
    {
        complain(NAME, format, &error);
        return ExitCode::from(USAGE);
    }
    log.start(matches!(&command, Command::Serve(serve) if serve.node.access_log));
    let outcome: Result<ExitCode, Box<dyn Error>> = match command {
        Command::Serve(serve) => serve.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Demo(demo) => demo.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Moderate(moderate) => {
            moderate.run().map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Command::Load(load) => load.run().map_err(Into::into),
        Command::Operator(command) => command.run(),
    };
    outcome.unwrap_or_else(|error| {
        complain(NAME, format, &*error);
        ExitCode::FAILURE
    })
}

#[derive(Debug, thiserror::Error)]
#[error("cannot print the settings")]
struct PrintError(#[source] io::Error);

const NAME: &str = "social";

/// Exit status of a usage error, which clap uses, too.
const USAGE: u8 = 2;
