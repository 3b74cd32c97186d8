//! The client of `http`: connections of HTTP/1.1 that are kept, each with one request in flight.
//!
//! - The client has threads of its own, a tokio runtime beside the server's. It shares the machine with
//!   the server, so it does as little as it can: a request is one write, and the answer is usually one
//!   read and is parsed in place.
//! - An answer is taken only if it is complete and exact: see [`parse`].

use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::super::answer::{self, malformed, number};
use super::super::records::Random;
use super::super::tally::share;

/// Name of each of the client's threads.
pub(super) const THREAD_NAME: &str = "http-client";

/// Length of the longest answer; an answer of this server has some 140 bytes.
const ANSWER_BYTES: usize = 512;

/// Whether the requests are timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// The requests are not timed separately.
    Together,
    /// The time of each request is kept.
    Each,
}

/// The threads that make requests.
pub(super) struct Client {
    /// `None` only once it is dropped.
    runtime: Option<Runtime>,
}

/// The outcome of a round of requests, and the connections for the next round.
#[derive(Default)]
pub(super) struct Round {
    pub(super) connections: Vec<Connection>,
    pub(super) correct: u64,
    /// Nanoseconds of each request that was timed.
    pub(super) latencies: Vec<u64>,
}

impl Client {
    /// Starts the client of a server with `workers` threads. A request takes less of the client than of
    /// the server, so half as many threads do.
    pub(super) fn start(workers: usize) -> io::Result<Client> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers.div_ceil(2)).thread_name(THREAD_NAME).enable_io();
        Ok(Client { runtime: Some(builder.build()?) })
    }

    /// Opens connections, one after the other, and divides the users among them.
    pub(super) async fn connect(
        &self,
        server: SocketAddr,
        connections: u64,
        users: u64,
    ) -> io::Result<Vec<Connection>> {
        if users < connections {
            return Err(io::Error::other("each connection needs a user: set fewer connections"));
        }
        let connect = async move {
            let mut connected = Vec::new();
            for index in 0..connections {
                let users = share(users, index, connections);
                connected.push(Connection::open(server, users, index).await?);
            }
            Ok(connected)
        };
        let mut tasks = JoinSet::new();
        self.spawn(&mut tasks, connect);
        tasks.join_all().await.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Makes requests on all connections at once, each connection its share.
    pub(super) async fn request(
        &self,
        connections: Vec<Connection>,
        requests: u64,
        timing: Timing,
    ) -> io::Result<Round> {
        let connection_count = connections.len() as u64;
        let mut tasks = JoinSet::new();
        for (index, connection) in (0..).zip(connections) {
            let share = share(requests, index, connection_count);
            self.spawn(&mut tasks, connection.request_all(share.end - share.start, timing));
        }
        let mut round = Round::default();
        while let Some(done) = tasks.join_next().await {
            let (connection, correct, mut latencies) = done.map_err(io::Error::other)??;
            round.connections.push(connection);
            round.correct += correct;
            round.latencies.append(&mut latencies);
        }
        Ok(round)
    }

    fn spawn<T: Send + 'static>(
        &self,
        tasks: &mut JoinSet<T>,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        if let Some(runtime) = &self.runtime {
            tasks.spawn_on(task, runtime.handle());
        }
    }
}

impl Drop for Client {
    /// Ends the threads without waiting for them, since the driver's thread is not to block.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection and its users, whose requests are made on this connection only.
pub(super) struct Connection {
    stream: TcpStream,
    users: Range<u64>,
    /// Number of the requests of each user so far.
    visits: Vec<u32>,
    random: Random,
    request: Vec<u8>,
    answer: [u8; ANSWER_BYTES],
}

impl Connection {
    async fn open(server: SocketAddr, users: Range<u64>, index: u64) -> io::Result<Connection> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let visits = vec![0; (users.end - users.start) as usize];
        let random = Random::new(index);
        Ok(Connection {
            stream,
            users,
            visits,
            random,
            request: Vec::new(),
            answer: [0; ANSWER_BYTES],
        })
    }

    /// Makes requests in sequence; returns the number of correct answers, and the time of each request
    /// if it is asked for.
    async fn request_all(
        mut self,
        requests: u64,
        timing: Timing,
    ) -> io::Result<(Connection, u64, Vec<u64>)> {
        let mut correct = 0;
        let timed = if timing == Timing::Each { requests } else { 0 };
        let mut latencies = Vec::with_capacity(timed as usize);
        for _ in 0..requests {
            correct += u64::from(match timing {
                Timing::Together => self.request().await?,
                Timing::Each => {
                    let clock = Instant::now();
                    let is_correct = self.request().await?;
                    latencies.push(clock.elapsed().as_nanos() as u64);
                    is_correct
                }
            });
        }
        Ok((self, correct, latencies))
    }

    /// Makes a request of one of the users; returns whether the answer is correct.
    async fn request(&mut self) -> io::Result<bool> {
        let index = self.random.below(self.visits.len() as u64);
        let user = self.users.start + index;
        let visits = &mut self.visits[index as usize];
        *visits += 1;
        self.request.clear();
        write!(self.request, "GET /users/{user} HTTP/1.1\r\nhost: bench\r\n\r\n")?;
        self.stream.write_all(&self.request).await?;
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut self.answer[length..]).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            length += read;
            if let Some(answer) = parse(&self.answer[..length])? {
                return Ok(answer == Answer { user, visits: u64::from(*visits) });
            }
            if length == ANSWER_BYTES {
                return Err(malformed("is too long", &self.answer));
            }
        }
    }
}

/// The server's answer: a user's number, and the number of the user's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    user: u64,
    visits: u64,
}

/// Parses an answer; returns `None` if it is not complete.
fn parse(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let Some(answer) = answer::parse(bytes)? else { return Ok(None) };
    if answer.status != 200 {
        return Err(malformed("has another status", bytes));
    }
    let mut numbers = answer.body.splitn(2, |&byte| byte == b' ').map(number);
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(user), Some(visits)) => Ok(Some(Answer { user, visits })),
        _ => Err(malformed("is not two numbers", bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n\
                          Content-Length: 5\r\ndate: now\r\n\r\n123 4";

    #[test]
    fn an_answer_is_taken_when_its_last_byte_is_there() {
        for length in 0..ANSWER.len() {
            let part = parse(&ANSWER.as_bytes()[..length]);
            assert!(matches!(part, Ok(None)), "{length}: {part:?}");
        }
        let answer = parse(ANSWER.as_bytes()).expect("it is well formed");
        assert_eq!(answer, Some(Answer { user: 123, visits: 4 }));
    }

    #[test]
    fn an_answer_that_is_not_exact_is_refused() {
        for (from, to) in [
            ("200 OK", "201 OK"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("date: now", "date"),
            ("date: now", "content-length: 5"),
            ("date: now", "transfer-encoding: chunked"),
            ("Content-Length: 5", "length: 5"),
            ("Content-Length: 5", "content-length: +5"),
            ("Content-Length: 5", "content-length:"),
            ("123 4", "123 45"),
            ("123 4", "12345"),
            ("123 4", "12 -4"),
            ("123 4", "1 2 4"),
            ("123 4", "1234 "),
        ] {
            let answer = ANSWER.replace(from, to);
            let parsed = parse(answer.as_bytes());
            assert!(parsed.is_err(), "{answer:?}: {parsed:?}");
        }
    }
}
