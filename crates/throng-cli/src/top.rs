//! `throng top`: what goes on in a running node, live or once.
//!
//! ```text
//! node ──admin socket──► feed (a thread that asks) ──► screen ──► terminal
//!                             ▲                          ▲
//!                             └──── what is wanted ──────┴── keys
//! ```
//!
//! Invariants: keys are answered at once, however long the node takes; the terminal is given back
//! as it was, also after a panic; a node that ends and starts again is found again.

mod client;
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

use crate::admin::SOCKET_FILE;
use crate::admin::wire::Order;
use crate::duration;
use client::{Client, ClientError, Picture, Query, Wanted};
use screen::{Next, Screen};

/// The flags of `throng top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
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

    /// Maximum number of processes to show
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,

    /// Time between two updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,

    /// Print the current state once as plain text and exit
    #[arg(long)]
    once: bool,
}

/// Why there is no view.
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

impl Top {
    /// Shows the node until told to quit, or once.
    ///
    /// # Errors
    /// No node answers at the start, or the terminal cannot be used.
    pub(crate) fn run(self) -> Result<(), TopError> {
        let path = self.socket.clone().unwrap_or_else(|| self.data.join(SOCKET_FILE));
        let mut client = Client::connect(&path)?;
        let mut screen = Screen::new(path.display().to_string(), self.by, self.limit);
        if self.tree {
            screen.wanted = Wanted::Tree;
        }
        if self.once {
            let picture = client.picture(&screen.query())?;
            return print(&picture).map_err(TopError::Print);
        }
        if !io::stdout().is_terminal() {
            return Err(TopError::NoTerminal);
        }
        let feed = Feed::start(path, client);
        // Sets a panic hook, too, which gives the terminal back before it prints.
        let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
        let outcome = watch(&mut terminal, &mut screen, &feed, self.interval);
        ratatui::restore();
        outcome.map_err(TopError::Terminal)
    }
}

fn print(picture: &Picture) -> io::Result<()> {
    let text = text::write(picture).map_err(io::Error::other)?;
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Asks, draws and listens to keys, until told to quit.
fn watch(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    feed: &Feed,
    interval: Duration,
) -> io::Result<()> {
    let mut asked = Some(Instant::now());
    feed.ask(screen.query());
    loop {
        terminal.draw(|frame| view::draw(frame, screen))?;
        if event::poll(KEY_PATIENCE)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match screen.press(key) {
                    Next::Quit => return Ok(()),
                    Next::Ask => asked = None,
                    Next::Nothing => {}
                },
                // Anything else, such as another size, is seen at the next drawing.
                _ => {}
            }
        }
        while let Some(answer) = feed.answer() {
            match answer {
                Ok(picture) => screen.show(picture),
                Err(error) => screen.fail(crate::sentence(&error)),
            }
        }
        let due = asked.is_none_or(|asked| !screen.paused && asked.elapsed() >= interval);
        if due && feed.ask(screen.query()) {
            asked = Some(Instant::now());
        }
    }
}

/// A thread that asks the node, so that a slow answer keeps no key waiting.
struct Feed {
    queries: mpsc::SyncSender<Query>,
    answers: mpsc::Receiver<Result<Picture, ClientError>>,
}

impl Feed {
    fn start(path: PathBuf, client: Client) -> Feed {
        let (queries, asked) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::channel();
        // It ends with this program at the latest; nobody waits for it.
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
        Feed { queries, answers }
    }

    /// Asks soon; false if a question waits already.
    fn ask(&self, query: Query) -> bool {
        self.queries.try_send(query).is_ok()
    }

    fn answer(&self) -> Option<Result<Picture, ClientError>> {
        self.answers.try_recv().ok()
    }
}

/// Asks over the connection there is, or over another one.
fn ask(path: &Path, client: &mut Option<Client>, query: &Query) -> Result<Picture, ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(path)?),
    };
    client.picture(query)
}

/// How long to wait for a key before looking for an answer.
const KEY_PATIENCE: Duration = Duration::from_millis(50);
