//! `throng top`: shows the state of a running node, live or once.
//!
//! ```text
//! node ──admin socket──► poller (a thread that asks) ──► screen ──► terminal
//!                             ▲                          ▲
//!                             └───────── query ──────────┴── keys
//! ```
//!
//! Invariants: keys take effect at once, however long the node takes to answer. The terminal is
//! restored at the end, also after a panic. A node that stops and starts again is found again.

pub(crate) mod client;
mod figures;
mod rows;
mod screen;
mod text;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use throng_node::admin::SOCKET_FILE;
use throng_node::admin::wire::Order;
use throng_node::args::parse_positive;
use throng_node::log::error_chain;

use client::{Client, ClientError, Query, Report, ViewMode};
use screen::{KeyAction, Screen};

/// Arguments of `throng top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Data directory of the node
    #[arg(long, value_name = "DIRECTORY", env = "THRONG_DATA", default_value = "./throng-data")]
    data: PathBuf,

    /// Path of the node's admin socket, if it is not in the data directory
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Order of the processes, largest first
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::MailboxLen)]
    by: Order,

    /// Show a tree: each process below the process that spawned it
    #[arg(long)]
    tree: bool,

    /// Show the processes of each kind together, in one row
    #[arg(long, conflicts_with = "tree")]
    group: bool,

    /// Show only processes whose kind, label or name contains a text, in upper or lower case; a durable process has the
    /// label `KIND/KEY`
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "tree")]
    #[arg(hide_default_value = true)]
    filter: String,

    /// Maximum number of processes to show
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,

    /// Time between two updates
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    #[arg(value_parser = parse_positive)]
    interval: Duration,

    /// Print the current state once as plain text and exit
    #[arg(long)]
    once: bool,
}

/// Error of `throng top`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("standard output is not a terminal; use --once to print plain text")]
    NoTerminal,
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

impl TopArgs {
    /// Shows the node until the user quits, or once.
    ///
    /// # Errors
    /// No node answers at the start, or the terminal cannot be used.
    pub(crate) fn run(self) -> Result<(), TopError> {
        let path = self.socket.clone().unwrap_or_else(|| self.data.join(SOCKET_FILE));
        let mut client = Client::connect(&path)?;
        let mut screen = Screen::new(path.display().to_string(), self.by, self.limit);
        if self.tree {
            screen.mode = ViewMode::Tree;
        } else if self.group {
            screen.mode = ViewMode::Sums(self.by);
        }
        screen.filter.clone_from(&self.filter);
        if self.once {
            let report = client.report(&screen.query())?;
            return print(&report).map_err(TopError::Print);
        }
        if !io::stdout().is_terminal() {
            return Err(TopError::NoTerminal);
        }
        let poller = Poller::start(path, client);
        // This sets a panic hook, too, which restores the terminal before it prints.
        let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
        let outcome = run_live(&mut terminal, &mut screen, &poller, self.interval);
        ratatui::restore();
        outcome.map_err(TopError::Terminal)
    }
}

fn print(report: &Report) -> io::Result<()> {
    let text = text::write(report).map_err(io::Error::other)?;
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader of the output has closed it, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Queries the node, draws the screen and handles keys, until the user quits.
fn run_live(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    poller: &Poller,
    interval: Duration,
) -> io::Result<()> {
    let mut asked = Some(Instant::now());
    poller.ask(screen.query());
    loop {
        terminal.draw(|frame| view::draw(frame, screen))?;
        if event::poll(KEY_POLL_INTERVAL)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match screen.press(key) {
                    KeyAction::Quit => return Ok(()),
                    KeyAction::Ask => asked = None,
                    KeyAction::Nothing => {}
                },
                // Other events, such as a new size, take effect at the next drawing.
                _ => {}
            }
        }
        while let Some(answer) = poller.answer() {
            match answer {
                Ok(report) => screen.show(report),
                Err(error) => screen.fail(error_chain(&error)),
            }
        }
        let due = asked.is_none_or(|asked| !screen.paused && asked.elapsed() >= interval);
        if due && poller.ask(screen.query()) {
            asked = Some(Instant::now());
        }
    }
}

/// Thread that queries the node, so that a slow answer does not delay keys.
struct Poller {
    queries: mpsc::SyncSender<Query>,
    answers: mpsc::Receiver<Result<Report, ClientError>>,
}

impl Poller {
    fn start(path: PathBuf, client: Client) -> Poller {
        let (queries, asked) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::channel();
        // The thread is detached; it ends with this program at the latest.
        thread::spawn(move || {
            let mut client = Some(client);
            while let Ok(query) = asked.recv() {
                let outcome = ask(&path, &mut client, &query);
                if outcome.is_err() {
                    client = None;
                }
                if answer.send(outcome).is_err() {
                    return;
                }
            }
        });
        Poller { queries, answers }
    }

    /// Queues a query; returns false if another query is waiting.
    fn ask(&self, query: Query) -> bool {
        self.queries.try_send(query).is_ok()
    }

    fn answer(&self) -> Option<Result<Report, ClientError>> {
        self.answers.try_recv().ok()
    }
}

/// Sends a query over the existing connection, or over a new connection.
fn ask(path: &Path, client: &mut Option<Client>, query: &Query) -> Result<Report, ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(path)?),
    };
    client.report(query)
}

/// Time to wait for a key before checking for an answer.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(50);
