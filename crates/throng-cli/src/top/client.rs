//! Client of the admin socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use throng_node::admin::entities::{EntityAnswer, EntityRequest};
use throng_node::admin::wire::{
    self, Answer, KindSums, LineError, Metrics, Order, Process, Refusal, RefusalKind, Request,
    TreeRow,
};

/// Connection to a node.
#[derive(Debug)]
pub(crate) struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Error in querying a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(
        "no node is running: {path} does not exist; start the node, or name its directory with --data or its socket \
         with --socket"
    )]
    NoNode { path: PathBuf },
    #[error("no node is running: nothing listens on {path}; start the node")]
    Ended { path: PathBuf },
    #[error("permission denied: {path} belongs to another user")]
    Denied { path: PathBuf },
    #[error("cannot talk to the node at {path}")]
    Socket { path: PathBuf, source: io::Error },
    #[error("the node at {path} stopped or closed the connection")]
    Closed { path: PathBuf },
    #[error("the node at {path} sent an answer that this program does not understand")]
    Line { path: PathBuf, source: LineError },
    #[error("the node refused the request: {0}")]
    Refused(String),
}

/// Query for a report of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) rows: ViewMode,
    pub(crate) limit: usize,
    /// Text that the processes of a table must have in kind, label or name.
    pub(crate) filter: String,
    /// Process to report in detail.
    pub(crate) pid: Option<String>,
}

/// Selection of the processes in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewMode {
    Top(Order),
    Sums(Order),
    Tree,
}

/// Answers of a node to a [`Query`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) metrics: Metrics,
    pub(crate) rows: Rows,
    /// Details of the queried process; `None` if it has exited.
    pub(crate) info: Option<Process>,
}

/// Processes of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rows {
    Top(Vec<Process>),
    Sums(Vec<KindSums>),
    Tree(Vec<TreeRow>),
}

impl Client {
    /// Connects to the node whose socket is at `path`.
    ///
    /// # Errors
    /// There is no node, or the user has no permission to connect.
    pub(crate) fn connect(path: &Path) -> Result<Client, ClientError> {
        let path = path.to_owned();
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) => {
                return Err(match error.kind() {
                    io::ErrorKind::NotFound => ClientError::NoNode { path },
                    io::ErrorKind::ConnectionRefused => ClientError::Ended { path },
                    io::ErrorKind::PermissionDenied => ClientError::Denied { path },
                    _ => ClientError::Socket { path, source: error },
                });
            }
        };
        let bounded = stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)));
        match bounded {
            Ok(()) => Ok(Client { path, stream: BufReader::new(stream) }),
            Err(source) => Err(ClientError::Socket { path, source }),
        }
    }

    /// Requests everything that a report contains.
    ///
    /// # Errors
    /// The node does not answer; connect again.
    pub(crate) fn report(&mut self, query: &Query) -> Result<Report, ClientError> {
        let (limit, filter) = (query.limit, query.filter.clone());
        let Answer::Metrics(metrics) = self.ask(&Request::Metrics)? else {
            return Err(self.wrong_answer());
        };
        let rows = match query.rows {
            ViewMode::Top(by) => match self.ask(&Request::Top { by, limit, offset: 0, filter })? {
                Answer::Top(processes) => Rows::Top(processes),
                _ => return Err(self.wrong_answer()),
            },
            ViewMode::Sums(by) => match self.ask(&Request::Sums { by, limit, filter })? {
                Answer::Sums(sums) => Rows::Sums(sums),
                _ => return Err(self.wrong_answer()),
            },
            ViewMode::Tree => match self.ask(&Request::Tree { limit })? {
                Answer::Tree(branches) => Rows::Tree(branches),
                _ => return Err(self.wrong_answer()),
            },
        };
        let info = match &query.pid {
            Some(pid) => self.info(pid)?,
            None => None,
        };
        Ok(Report { metrics, rows, info })
    }

    /// Requests something of the node's entities.
    ///
    /// # Errors
    /// The node does not answer, or refuses the request.
    pub(crate) fn ask_entity(
        &mut self,
        request: EntityRequest,
    ) -> Result<EntityAnswer, ClientError> {
        match self.ask(&Request::Entity(request))? {
            Answer::Entity(answer) => Ok(answer),
            _ => Err(self.wrong_answer()),
        }
    }

    fn info(&mut self, pid: &str) -> Result<Option<Process>, ClientError> {
        match self.exchange(&Request::Info { pid: pid.to_owned() })? {
            Answer::Info(process) => Ok(Some(process)),
            Answer::Error(Refusal { kind: RefusalKind::NoProcess, .. }) => Ok(None),
            Answer::Error(refusal) => Err(ClientError::Refused(refusal.detail)),
            _ => Err(self.wrong_answer()),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        match self.exchange(request)? {
            Answer::Error(refusal) => Err(ClientError::Refused(refusal.detail)),
            answer => Ok(answer),
        }
    }

    fn exchange(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let path = || self.path.clone();
        let failed = |source| ClientError::Socket { path: path(), source };
        let asked = wire::write(request).map_err(|error| failed(error.into()))?;
        match self.stream.get_ref().write_all(asked.as_bytes()) {
            Ok(()) => {}
            // The node may have sent a reason before it closed the connection.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(failed(error)),
        }
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                wire::read(&line).map_err(|source| ClientError::Line { path: path(), source })
            }
            Ok(_) => Err(ClientError::Closed { path: path() }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(ClientError::Closed { path: path() })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the error for an answer that does not belong to the request.
    fn wrong_answer(&self) -> ClientError {
        ClientError::Refused(format!(
            "the node at {} sent the answer to a different request",
            self.path.display()
        ))
    }
}

/// Maximum time for an answer of the node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
