//! The counters of a server, as its clients reach them: by HTTP/1.1, or by the protocol of Redis.
//!
//! ```text
//! call ──► idle connections ──► request, answer ──► idle connections
//!              └─ none: wait for one
//! ```
//!
//! Invariants: connections are kept, and a connection has one request in flight. A value is taken only from an answer
//! that is complete and exact.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bench_steps::Error;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::workloads::answer::{self, malformed, next_line, number};
use crate::workloads::durable::{Counters, Tasks, key};
use crate::workloads::served::Server;

#[derive(Clone, Copy)]
enum Protocol {
    Http,
    /// RESP, with the commands `INCR` and `GET`.
    Redis,
}

#[derive(Clone, Copy)]
enum Operation {
    Add,
    Read,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

struct Pool {
    protocol: Protocol,
    idle: Mutex<Vec<Connection>>,
    /// A permit for each idle connection.
    permits: Semaphore,
}

/// Counters of another process.
#[derive(Clone)]
pub(super) struct Remote(Arc<Pool>);

impl Remote {
    pub(super) async fn connect(server: &Server, connections: u64) -> io::Result<Remote> {
        let mut idle = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(server.address).await?;
            stream.set_nodelay(true)?;
            idle.push(Connection { stream, request: Vec::new(), answer: Vec::new() });
        }
        let is_redis = server.row.starts_with("redis");
        let protocol = if is_redis { Protocol::Redis } else { Protocol::Http };
        let permits = Semaphore::new(idle.len());
        Ok(Remote(Arc::new(Pool { protocol, idle: Mutex::new(idle), permits })))
    }

    async fn call(&self, operation: Operation, counter: u64) -> io::Result<u64> {
        let Pool { protocol, permits, .. } = &*self.0;
        let _permit = permits.acquire().await.map_err(io::Error::other)?;
        let idle = self.idle().pop();
        let mut connection = idle.ok_or_else(|| io::Error::other("a permit has no connection"))?;
        let value = connection.call(*protocol, operation, counter).await;
        self.idle().push(connection);
        value
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks for Remote {}

impl Counters for Remote {
    async fn add(&self, counter: u64) -> Result<u64, Error> {
        Ok(self.call(Operation::Add, counter).await?)
    }

    async fn read(&self, counter: u64) -> Result<u64, Error> {
        Ok(self.call(Operation::Read, counter).await?)
    }

    async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Connection {
    async fn call(
        &mut self,
        protocol: Protocol,
        operation: Operation,
        counter: u64,
    ) -> io::Result<u64> {
        let Connection { stream, request, answer } = self;
        request.clear();
        protocol.write(request, operation, counter)?;
        answer::exchange(stream, request, answer, protocol.parser()).await
    }
}

impl Protocol {
    fn write(self, request: &mut Vec<u8>, operation: Operation, counter: u64) -> io::Result<()> {
        match (self, operation) {
            (Protocol::Http, Operation::Add) => write!(
                request,
                "POST /counters/{counter} HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n"
            ),
            (Protocol::Http, Operation::Read) => {
                write!(request, "GET /counters/{counter} HTTP/1.1\r\nhost: bench\r\n\r\n")
            }
            (Protocol::Redis, operation) => {
                let name = match operation {
                    Operation::Add => "INCR",
                    Operation::Read => "GET",
                };
                let key = key(counter);
                write!(request, "*2\r\n${}\r\n{name}\r\n${}\r\n", name.len(), key.len())?;
                request.extend_from_slice(&key);
                request.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }

    fn parser(self) -> fn(&[u8]) -> io::Result<Option<u64>> {
        match self {
            Protocol::Http => value_of_http,
            Protocol::Redis => value_of_redis,
        }
    }
}

/// Parses an answer whose body is a value; returns `None` if it is not complete.
fn value_of_http(bytes: &[u8]) -> io::Result<Option<u64>> {
    let Some(answer) = answer::parse(bytes)? else { return Ok(None) };
    let value = number(answer.body).filter(|_| answer.status == 200);
    value.map(Some).ok_or_else(|| malformed("is no value", bytes))
}

/// Parses a reply of Redis: an integer, or a text with a number; returns `None` if it is not complete.
fn value_of_redis(bytes: &[u8]) -> io::Result<Option<u64>> {
    if !bytes.ends_with(b"\r\n") {
        return Ok(None);
    }
    let mut rest = bytes;
    let first = next_line(&mut rest).and_then(<[u8]>::split_first);
    let digits = match first {
        Some((b':', digits)) => Some(digits),
        // A key without a value has no second line.
        Some((b'$', length)) if length != b"-1" => match next_line(&mut rest) {
            Some(text) => Some(text),
            None => return Ok(None),
        },
        _ => None,
    };
    let value = digits.and_then(number).filter(|_| rest.is_empty());
    value.map(Some).ok_or_else(|| malformed("is no value", bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_from_a_complete_reply_of_redis_only() {
        for reply in [":12\r\n", "$2\r\n12\r\n"] {
            for length in 0..reply.len() {
                let part = value_of_redis(&reply.as_bytes()[..length]);
                assert!(matches!(part, Ok(None)), "{length}: {part:?}");
            }
            assert_eq!(value_of_redis(reply.as_bytes()).expect("it is a value"), Some(12));
        }
        for wrong in ["-ERR\r\n", "$-1\r\n", ":-1\r\n", ":\r\n", ":1\r\n:2\r\n", "+OK\r\n"] {
            assert!(value_of_redis(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_value_is_taken_from_an_answer_with_the_status_200_only() {
        let answer = |status: &str, body: &str| {
            let length = body.len();
            let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
            value_of_http(text.as_bytes())
        };
        assert_eq!(answer("200 OK", "12").expect("it is a value"), Some(12));
        assert!(answer("500 Internal Server Error", "12").is_err());
        assert!(answer("200 OK", "12 ").is_err());
    }
}
