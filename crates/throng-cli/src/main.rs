//! The `throng` command: a node in one binary.
//!
//! Results (such as the address for the browser) go to standard output, everything else to standard
//! error. The exit status is 0 after a clean stop. It is 1 if a node cannot start, run or be
//! reached, if a second signal stops it before it is at rest, or if a store is damaged or the key
//! is missing, or if a load had errors. It is 2 for a usage error, on the command line,
//! in the environment or in the file of settings.

mod admin;
mod api;
mod certificate;
mod config;
mod dashboard;
mod demo;
mod duration;
mod files;
mod load;
mod log;
mod metrics;
mod moderate;
mod notify;
mod private;
mod probe;
mod process;
mod serve;
mod settings;
mod signals;
mod store;
mod top;
mod trust;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use config::LoadError;
use log::complain;
use settings::LogFormat;

/// A runtime of durable processes, and the message service that runs on it.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    log: settings::Log,

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
    /// Show the processes, messages and workers of a running node
    Top(top::TopArgs),
    /// Inspect, verify or back up a store, even while a node uses it
    Store(store::StoreArgs),
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
    /// Replace the token of a node's dashboard and print it; the one before opens nothing any more
    AdminToken(dashboard::AdminTokenArgs),
}

fn main() -> ExitCode {
    process::begin();
    let loaded = match config::load(Cli::command(), std::env::args_os().collect()) {
        Ok(loaded) => loaded,
        Err(LoadError::CommandLine(error)) => error.exit(),
        Err(error) => {
            complain(LogFormat::Text, &error);
            return ExitCode::from(USAGE);
        }
    };
    let Cli { log, command } =
        Cli::from_arg_matches(&loaded.matches).unwrap_or_else(|error| error.exit());
    let format = log.log_format;
    if matches!(&command, Command::Serve(serve) if serve.config.print_config) {
        if let Err(source) = io::stdout().lock().write_all(loaded.to_toml().as_bytes()) {
            complain(format, &PrintError(source));
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if let Command::Serve(serve) = &command
        && let Err(error) = serve.tls.check()
    {
        complain(format, &error);
        return ExitCode::from(USAGE);
    }
    log::start(log, matches!(&command, Command::Serve(serve) if serve.access.access_log));
    let outcome: Result<ExitCode, Box<dyn Error>> = match command {
        Command::Serve(serve) => serve.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Demo(demo) => demo.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Top(top) => top.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Store(store) => store.run().map_err(Into::into),
        Command::Moderate(moderate) => {
            moderate.run().map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Command::Load(load) => load.run().map_err(Into::into),
        Command::AdminToken(token) => token.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            complain(format, &*error);
            ExitCode::FAILURE
        }
    }
}

/// Error in printing the settings.
#[derive(Debug, thiserror::Error)]
#[error("cannot print the settings")]
struct PrintError(#[source] io::Error);

/// Exit status of a usage error, which clap uses, too.
const USAGE: u8 = 2;

/// Returns the error and its sources on one line.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let reason = source.to_string();
        // Some errors include the text of their source.
        if !text.ends_with(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        next = source.source();
    }
    text
}
