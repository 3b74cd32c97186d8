//! `throng entity`: the durable entities of a node, by the names of their kinds and without the program's types.
//!
//! | command | running node | stopped node |
//! |---|---|---|
//! | `list`, `show`, `inbox`, `reminders`, `steps` | asks the admin socket | reads the store |
//! | `retry`, `skip` | asks the admin socket | – |
//! | `forget` | asks the admin socket | writes the store |
//! | `export` | reads the store | reads the store |
//! | `import`, `restore` | – | write the store |
//!
//! Lists are read page by page, so that a kind with any number of entities can be listed.

mod copy;
pub(crate) mod text;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use throng_durable::{JobId, Pending, Records, RecordsError};
use throng_node::admin::SOCKET_FILE;
use throng_node::admin::entities::{EntityAnswer, EntityRequest, PAGE_MAX};
use throng_store::{DATABASES_MAX, OpenError, Store};

use crate::store::{DATA_FILE, StoreError};
use crate::top::client::{Client, ClientError};
use copy::{ExportArgs, ImportArgs, RestoreArgs};

/// The node that a command is about, and the form of its output.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Data directory of the node
    #[arg(long, global = true, value_name = "DIRECTORY", env = "THRONG_DATA")]
    #[arg(default_value = "./throng-data")]
    data: PathBuf,

    /// Path of the node's admin socket, if it is not in the data directory
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
}

/// Arguments of `throng entity`.
#[derive(Debug, Args)]
pub struct EntityArgs {
    #[command(flatten)]
    at: At,

    /// Read keys on the command line as JSON strings, such as `"a\u0000b"`
    #[arg(long, global = true)]
    json_keys: bool,

    #[command(subcommand)]
    command: EntityCommand,
}

#[derive(Debug, Subcommand)]
enum EntityCommand {
    /// Print the kinds of entities with their numbers, or the entities of a kind
    List(ListArgs),
    /// Print the state of an entity, what it has, and its first cells
    Show(ShowArgs),
    /// Print the messages that wait for an entity, and those that were parked, with the reasons
    Inbox(Named),
    /// Print the reminders of an entity
    Reminders(Named),
    /// Print the steps of a workflow's run, with their results
    Steps(Named),
    /// Have a message handled that was parked, or waits for its next attempt
    Retry(MessageArgs),
    /// Remove a message that was parked, or waits
    Skip(MessageArgs),
    /// Remove everything that is stored of an entity, whether it can be loaded or not; export it first
    Forget(Named),
    /// Print everything that is stored of an entity as lines of JSON, for `import`
    Export(ExportArgs),
    /// Write an exported entity into the store of a stopped node
    Import(ImportArgs),
    /// Write an entity of a backup, or of a moment after it, into the store of a stopped node, under another key
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Kind of the entities; without it, the kinds are listed
    kind: Option<String>,

    /// Print only entities whose keys begin with this prefix
    #[arg(long, value_name = "KEY", default_value = "")]
    prefix: String,

    /// Print only entities whose keys come after this one
    #[arg(long, value_name = "KEY")]
    after: Option<String>,

    /// Maximum number of entities to print
    #[arg(long, value_name = "NUMBER", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,

    /// Print only entities whose records are damaged
    #[arg(long)]
    damaged: bool,

    /// Print only entities with parked messages, messages that wait, or reminders; shorter keys come first
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["prefix", "damaged"], requires = "kind")]
    #[arg(value_parser = pending)]
    with: Option<Pending>,
}

fn pending(which: &str) -> std::result::Result<Pending, String> {
    match which {
        "parked" => Ok(Pending::Parked),
        "waiting" => Ok(Pending::Waiting),
        "reminders" => Ok(Pending::Reminders),
        _ => Err("`parked`, `waiting` or `reminders`".into()),
    }
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    name: Named,

    /// Maximum number of cells to print
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    cells: usize,
}

/// Name of an entity.
#[derive(Clone, Debug, Args)]
pub(crate) struct Named {
    /// Kind of the entity
    kind: String,

    /// Key of the entity
    key: String,
}

#[derive(Debug, Args)]
struct MessageArgs {
    #[command(flatten)]
    name: Named,

    /// Number of the message, as `inbox` prints it
    sequence: u64,
}

/// Error of a `throng entity` command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntityCommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("nothing is stored of the {} {:?}", .0.kind, .0.key)]
    NoEntity(Box<Named>),
    #[error("the {} {:?} has no message {sequence}", name.kind, name.key)]
    NoMessage { name: Box<Named>, sequence: u64 },
    #[error("there is no queue {0:?}")]
    NoQueue(String),
    #[error("the queue {queue:?} has no job {id} to {what}")]
    NoJob { queue: String, id: JobId, what: &'static str },
    #[error("the key {0} is no JSON string")]
    JsonKey(String),
    #[error("the node sent the answer to a different request")]
    WrongAnswer,
    #[error("cannot read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("line {line} of {} is damaged: {reason}", path.display())]
    Line { path: PathBuf, line: usize, reason: String },
    #[error("a record is damaged: {0}; `--damaged` exports what is left of it")]
    Damaged(String),
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

pub(crate) type Result<T> = std::result::Result<T, EntityCommandError>;

/// Source of answers.
pub(crate) enum Source {
    Node(Client),
    Stopped(Records),
}

impl Source {
    pub(crate) fn ask(&mut self, request: EntityRequest) -> Result<EntityAnswer> {
        match self {
            Source::Node(client) => Ok(client.ask_entity(request)?),
            Source::Stopped(records) => Ok(request.read(records)?),
        }
    }
}

impl At {
    /// Runs a command that prints.
    ///
    /// # Errors
    /// The command's.
    pub(crate) fn print(
        &self,
        command: impl FnOnce(&mut Out<io::StdoutLock<'static>>) -> Result<()>,
    ) -> Result<()> {
        let mut out = Out { out: BufWriter::new(io::stdout().lock()), is_json: self.json };
        let done = command(&mut out).and_then(|()| out.flush());
        match done {
            // The reader of the output has closed it, as `head` does.
            Err(EntityCommandError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
            done => done,
        }
    }

    /// Connects to the node, or opens the store of a node that does not run.
    pub(crate) fn open(&self) -> Result<Source> {
        match self.connect() {
            Ok(client) => Ok(Source::Node(client)),
            Err(ClientError::NoNode { .. } | ClientError::Ended { .. })
                if self.socket.is_none() =>
            {
                Ok(Source::Stopped(read_only(&self.data, true)?))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn connect(&self) -> std::result::Result<Client, ClientError> {
        Client::connect(&self.socket.clone().unwrap_or_else(|| self.data.join(SOCKET_FILE)))
    }
}

impl EntityArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// There is neither a node nor a store, no such entity, or a file cannot be used.
    pub(crate) fn run(mut self) -> Result<()> {
        self.read_keys()?;
        self.at.print(|out| self.carry_out(out))
    }

    fn carry_out(&self, out: &mut Out<impl Write>) -> Result<()> {
        match &self.command {
            EntityCommand::List(list) => self.list(list, out),
            EntityCommand::Show(ShowArgs { name, cells }) => self.show(name, *cells, out),
            EntityCommand::Inbox(name) => self.inbox(name, out),
            EntityCommand::Reminders(name) => self.reminders(name, out),
            EntityCommand::Steps(name) => self.steps(name, out),
            EntityCommand::Retry(MessageArgs { name: Named { kind, key }, sequence }) => {
                let (kind, key, sequence) = (kind.clone(), key.clone(), *sequence);
                self.change(EntityRequest::Retry { kind, key, sequence }, "to be handled", out)
            }
            EntityCommand::Skip(MessageArgs { name: Named { kind, key }, sequence }) => {
                let (kind, key, sequence) = (kind.clone(), key.clone(), *sequence);
                self.change(EntityRequest::Skip { kind, key, sequence }, "skipped", out)
            }
            EntityCommand::Forget(name) => self.forget(name, out),
            EntityCommand::Export(export) => export.run(&self.at.data, out),
            EntityCommand::Import(import) => import.run(&self.at.data, out),
            EntityCommand::Restore(restore) => restore.run(&self.at.data, out),
        }
    }

    /// Reads the keys of the command line, if they are JSON.
    fn read_keys(&mut self) -> Result<()> {
        if !self.json_keys {
            return Ok(());
        }
        let keys: Vec<&mut String> = match &mut self.command {
            EntityCommand::List(list) => {
                let prefix = Some(&mut list.prefix).filter(|prefix| !prefix.is_empty());
                prefix.into_iter().chain(&mut list.after).collect()
            }
            EntityCommand::Show(show) => vec![&mut show.name.key],
            EntityCommand::Retry(own) | EntityCommand::Skip(own) => vec![&mut own.name.key],
            EntityCommand::Inbox(own)
            | EntityCommand::Reminders(own)
            | EntityCommand::Steps(own)
            | EntityCommand::Forget(own) => vec![&mut own.key],
            EntityCommand::Export(export) => vec![&mut export.name.key],
            EntityCommand::Import(import) => import.key.iter_mut().collect(),
            EntityCommand::Restore(restore) => vec![&mut restore.name.key, &mut restore.new_key],
        };
        for key in keys {
            let read = serde_json::from_str(key);
            *key = read.map_err(|_| EntityCommandError::JsonKey(key.clone()))?;
        }
        Ok(())
    }

    fn list(&self, list: &ListArgs, out: &mut Out<impl Write>) -> Result<()> {
        let mut source = self.at.open()?;
        let Some(kind) = &list.kind else {
            let EntityAnswer::Kinds(kinds) = source.ask(EntityRequest::Kinds)? else {
                return Err(EntityCommandError::WrongAnswer);
            };
            return kinds.iter().try_for_each(|(kind, entities)| {
                let json = serde_json::json!({ "kind": kind, "entities": entities });
                out.line(&json, format_args!("{}\t{entities}", kind.escape_debug()))
            });
        };
        let (mut after, mut left) = (list.after.clone(), list.limit);
        while left > 0 {
            let (kind, limit) = (kind.clone(), left.min(PAGE_MAX));
            let request = match list.with {
                Some(which) => EntityRequest::Pending { kind, which, after: after.take(), limit },
                None => {
                    let (prefix, after) = (list.prefix.clone(), after.take());
                    EntityRequest::List { kind, prefix, after, limit }
                }
            };
            match source.ask(request)? {
                EntityAnswer::List(page) => {
                    for record in page {
                        if !list.damaged || record.state.is_err() {
                            text::record(&record, source.is_node(), out)?;
                            left -= 1;
                        }
                        after = Some(record.key);
                    }
                }
                EntityAnswer::Pending(page) => {
                    for key in page {
                        let json = serde_json::json!({ "key": key });
                        out.line(&json, format_args!("{}", key.escape_debug()))?;
                        left -= 1;
                        after = Some(key);
                    }
                }
                _ => return Err(EntityCommandError::WrongAnswer),
            }
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn show(&self, name: &Named, cells: usize, out: &mut Out<impl Write>) -> Result<()> {
        let mut source = self.at.open()?;
        let (kind, key) = (name.kind.clone(), name.key.clone());
        let EntityAnswer::Show(found) = source.ask(EntityRequest::Show { kind, key })? else {
            return Err(EntityCommandError::WrongAnswer);
        };
        let found = found.ok_or_else(|| EntityCommandError::NoEntity(Box::new(name.clone())))?;
        text::inspection(&found, source.is_node(), out)?;
        let cells_of = |kind, key, after, limit| EntityRequest::Cells { kind, key, after, limit };
        let mut left = cells;
        self.pages(&mut source, name, cells_of, |answer, after| {
            let EntityAnswer::Cells(page) = answer else {
                return Err(EntityCommandError::WrongAnswer);
            };
            for cell in page.into_iter().take(left) {
                text::cell(&cell, out)?;
                left -= 1;
                *after = (left > 0).then_some(cell.cursor);
            }
            Ok(())
        })
    }

    fn inbox(&self, name: &Named, out: &mut Out<impl Write>) -> Result<()> {
        let mut source = self.at.open()?;
        for which in [Pending::Waiting, Pending::Parked] {
            let request = |kind, key, after, limit| EntityRequest::Messages {
                kind,
                key,
                which,
                after,
                limit,
            };
            self.pages(&mut source, name, request, |answer, after| {
                let EntityAnswer::Messages(page) = answer else {
                    return Err(EntityCommandError::WrongAnswer);
                };
                for message in page {
                    *after = Some(message.sequence);
                    text::message(&message, which, out)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn reminders(&self, name: &Named, out: &mut Out<impl Write>) -> Result<()> {
        let request =
            |kind, key, after, limit| EntityRequest::Reminders { kind, key, after, limit };
        self.pages(&mut self.at.open()?, name, request, |answer, after| {
            let EntityAnswer::Reminders(page) = answer else {
                return Err(EntityCommandError::WrongAnswer);
            };
            for reminder in page {
                text::reminder(&reminder, out)?;
                *after = Some(reminder.key);
            }
            Ok(())
        })
    }

    fn steps(&self, name: &Named, out: &mut Out<impl Write>) -> Result<()> {
        let request = |kind, key, after, limit| EntityRequest::Steps { kind, key, after, limit };
        self.pages(&mut self.at.open()?, name, request, |answer, after| {
            let EntityAnswer::Steps(page) = answer else {
                return Err(EntityCommandError::WrongAnswer);
            };
            for step in page {
                *after = Some(step.order);
                text::step(&step, out)?;
            }
            Ok(())
        })
    }

    /// Asks for one page after the other, until `print` sets no cursor.
    fn pages<A>(
        &self,
        source: &mut Source,
        Named { kind, key }: &Named,
        request: impl Fn(String, String, Option<A>, usize) -> EntityRequest,
        mut print: impl FnMut(EntityAnswer, &mut Option<A>) -> Result<()>,
    ) -> Result<()> {
        let mut after = None;
        loop {
            let answer = source.ask(request(kind.clone(), key.clone(), after.take(), PAGE_MAX))?;
            print(answer, &mut after)?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Has the node change a message.
    fn change(&self, request: EntityRequest, done: &str, out: &mut Out<impl Write>) -> Result<()> {
        let (EntityRequest::Retry { kind, key, sequence }
        | EntityRequest::Skip { kind, key, sequence }) = request.clone()
        else {
            return Err(EntityCommandError::WrongAnswer);
        };
        match self.at.connect()?.ask_entity(request)? {
            EntityAnswer::Changed(true) => {
                let json = serde_json::json!({ "sequence": sequence, "done": done });
                out.line(&json, format_args!("{done}: {sequence}"))
            }
            EntityAnswer::Changed(false) => {
                let name = Box::new(Named { kind, key });
                Err(EntityCommandError::NoMessage { name, sequence })
            }
            _ => Err(EntityCommandError::WrongAnswer),
        }
    }

    fn forget(&self, name: &Named, out: &mut Out<impl Write>) -> Result<()> {
        let (kind, key) = (name.kind.clone(), name.key.clone());
        let json = serde_json::json!({ "forgotten": key, "kind": kind });
        let is_forgotten = match self.at.open()? {
            Source::Node(mut client) => {
                match client.ask_entity(EntityRequest::Forget { kind, key })? {
                    EntityAnswer::Changed(is_forgotten) => is_forgotten,
                    _ => return Err(EntityCommandError::WrongAnswer),
                }
            }
            Source::Stopped(reading) => {
                drop(reading);
                writable(&self.at.data)?.forget(&kind, &key)?
            }
        };
        if !is_forgotten {
            return Err(EntityCommandError::NoEntity(Box::new(name.clone())));
        }
        out.line(&json, format_args!("forgotten: {} {}", name.kind, name.key.escape_debug()))
    }
}

impl Source {
    fn is_node(&self) -> bool {
        matches!(self, Source::Node(_))
    }
}

/// Opens a store for reading, which works beside a node.
fn read_only(path: &Path, verifies: bool) -> Result<Records> {
    open(path, |options| options.read_only(true).verify_reads(verifies))
}

/// Opens the store of a stopped node.
fn writable(path: &Path) -> Result<Records> {
    open(path, |options| options)
}

fn open(
    path: &Path,
    set: impl FnOnce(throng_store::Options) -> throng_store::Options,
) -> Result<Records> {
    if !path.join(DATA_FILE).exists() {
        return Err(StoreError::NoStore(path.into()).into());
    }
    let opened = set(Store::options().databases_max(DATABASES_MAX)).open(path);
    Ok(Records::of(opened.map_err(|error: OpenError| StoreError::Open(error))?))
}

/// Standard output, in one of the two formats.
pub(crate) struct Out<W: Write> {
    out: BufWriter<W>,
    is_json: bool,
}

impl<W: Write> Out<W> {
    /// Prints a line.
    pub(crate) fn line(
        &mut self,
        json: &impl Serialize,
        text: std::fmt::Arguments<'_>,
    ) -> Result<()> {
        let written = match self.is_json {
            true => serde_json::to_writer(&mut self.out, json).map_err(io::Error::from),
            false => self.out.write_fmt(text),
        };
        written.and_then(|()| self.out.write_all(b"\n")).map_err(EntityCommandError::Print)
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(EntityCommandError::Print)
    }
}
