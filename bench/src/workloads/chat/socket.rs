//! A socket of the client: its handshake, its messages, and the checks of the messages that it receives.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_steps::latency::Latencies;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep_until;

use super::frames::{self, Frame};
use super::{Layout, room_name};

/// Number of sockets that share an address of the client: a system has some 28,000 ports for connections from an
/// address to the server.
const SOCKETS_PER_ADDRESS: u64 = 20_000;

const READ_BYTES: usize = 16 * 1024;

/// The key of the handshake in the standard's example, and the server's answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Filling of a message, so that it is as long as a usual one.
const FILLING: &str = "a short message, as people write them in a hurry";

pub(super) struct Shared {
    pub(super) layout: Layout,
    /// Origin of all times in messages.
    pub(super) clock: Instant,
    pub(super) latencies: Latencies,
}

/// Times at which a sender says its messages.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// Each after the receipt of the last.
    Closed,
    /// The first at a time since the clock's start, and the next ones at an interval.
    Open { first: Duration, interval: Duration },
}

pub(super) struct Socket {
    shared: Arc<Shared>,
    stream: TcpStream,
    number: u64,
    /// Bytes that were received and are not a whole frame yet.
    partial: Vec<u8>,
    /// Number of messages received so far of each sender in the room.
    received: Vec<u64>,
    said: u64,
    outgoing: Vec<u8>,
    times: Vec<u64>,
}

/// Kinds of the server's messages that matter before the clock.
#[derive(PartialEq, Eq)]
enum Expected {
    Welcome,
    Entered,
}

impl Socket {
    pub(super) async fn open(
        shared: Arc<Shared>,
        server: SocketAddr,
        number: u64,
        token: &str,
    ) -> io::Result<Socket> {
        let socket = TcpSocket::new_v4()?;
        let address = (number / SOCKETS_PER_ADDRESS) as u8;
        // A socket without an address of its own may have a port that still waits for late packets of an earlier run.
        if address > 0 {
            socket.bind((Ipv4Addr::new(127, 0, 0, 1 + address), 0).into())?;
        }
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        let senders = shared.layout.senders as usize;
        let mut socket = Socket {
            shared,
            stream,
            number,
            partial: Vec::new(),
            received: vec![0; senders],
            said: 0,
            outgoing: Vec::new(),
            times: Vec::new(),
        };
        socket.upgrade().await?;
        socket.ask(&format!(r#"{{"type":"hello","token":"{token}","last":null}}"#)).await?;
        socket.expect(Expected::Welcome).await?;
        let room = room_name(socket.shared.layout.room_of(number));
        socket.ask(&format!(r#"{{"type":"enter","room":"{room}","last":null}}"#)).await?;
        socket.expect(Expected::Entered).await?;
        // An idle socket keeps no buffer.
        (socket.outgoing, socket.partial) = (Vec::new(), Vec::from(&*socket.partial));
        Ok(socket)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    async fn upgrade(&mut self) -> io::Result<()> {
        let request = format!(
            "GET /api/v1/socket HTTP/1.1\r\nhost: bench\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            if self.stream.read_buf(&mut self.partial).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let ended = self.partial.windows(4).position(|end| end == b"\r\n\r\n");
            let Some(end) = ended else { continue };
            let head = String::from_utf8_lossy(&self.partial[..end]).into_owned();
            if !head.starts_with("HTTP/1.1 101") || !head.contains(ACCEPTED) {
                return Err(io::Error::other(format!("no socket was opened: {head:?}")));
            }
            self.partial.drain(..end + 4);
            return Ok(());
        }
    }

    async fn ask(&mut self, text: &str) -> io::Result<()> {
        frames::write_text(&mut self.outgoing, text);
        self.stream.write_all(&self.outgoing).await?;
        self.outgoing.clear();
        Ok(())
    }

    /// Waits for a message of the server. Messages of another kind that come before are passed over.
    async fn expect(&mut self, expected: Expected) -> io::Result<()> {
        let start = match expected {
            Expected::Welcome => &br#"{"type":"welcome""#[..],
            Expected::Entered => br#"{"type":"entered""#,
        };
        loop {
            let (mut rest, mut is_found) = (&self.partial[..], false);
            while !is_found && let Some(frame) = frames::next(&mut rest)? {
                is_found = match frame {
                    Frame::Text(text) if text.starts_with(start) => true,
                    Frame::Text(text) if text.starts_with(br#"{"type":"refused""#) => {
                        return Err(unexpected(text));
                    }
                    Frame::Close => return Err(io::Error::other("the server closed a socket")),
                    _ => false,
                };
            }
            let taken = self.partial.len() - rest.len();
            self.partial.drain(..taken);
            if is_found {
                return Ok(());
            }
            if self.stream.read_buf(&mut self.partial).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Says `messages` messages, if the socket is a sender, and receives those of all senders of the room.
    pub(super) async fn converse(mut self, messages: u64, pace: Pace) -> io::Result<Socket> {
        let layout = self.shared.layout;
        let place = (self.number % layout.room) as usize;
        let mut unsaid = if (place as u64) < layout.senders { messages } else { 0 };
        let each = self.received[0] + messages;
        let mut missing: u64 = self.received.iter().map(|received| each - received).sum();
        let mut due = match pace {
            Pace::Closed => {
                if unsaid > 0 {
                    self.say(self.shared.clock.elapsed()).await?;
                    unsaid -= 1;
                }
                None
            }
            Pace::Open { first, .. } => Some(first),
        };
        while missing > 0 || unsaid > 0 {
            let mut buffer = [0; READ_BYTES];
            let time = due.filter(|_| unsaid > 0);
            let read = match (time, pace) {
                (Some(time), Pace::Open { interval, .. }) => {
                    let due_at = (self.shared.clock + time).into();
                    tokio::select! {
                        biased;
                        () = sleep_until(due_at) => {
                            self.say(time).await?;
                            unsaid -= 1;
                            due = Some(time + interval);
                            continue;
                        }
                        read = self.stream.read(&mut buffer) => read?,
                    }
                }
                _ => self.stream.read(&mut buffer).await?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let own = self.received.get(place).copied();
            missing = missing
                .checked_sub(self.take(&buffer[..read])?)
                .ok_or_else(|| io::Error::other("more messages came than were said"))?;
            let is_back = self.received.get(place).copied() > own;
            if matches!(pace, Pace::Closed) && is_back && unsaid > 0 {
                self.say(self.shared.clock.elapsed()).await?;
                unsaid -= 1;
            } else if !self.outgoing.is_empty() {
                self.stream.write_all(&self.outgoing).await?;
                self.outgoing.clear();
            }
        }
        Ok(self)
    }

    /// Says a message that counts from a time since the clock's start.
    async fn say(&mut self, time: Duration) -> io::Result<()> {
        let room = room_name(self.shared.layout.room_of(self.number));
        let Socket { number, said, .. } = *self;
        let text = format!("{number} {said} {} {FILLING}", time.as_nanos());
        self.said += 1;
        self.ask(&format!(r#"{{"type":"say","room":"{room}","text":"{text}","key":null}}"#)).await
    }

    /// Handles received bytes; returns the number of deliveries among them.
    fn take(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let now = self.shared.clock.elapsed().as_nanos() as u64;
        let mut kept = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        if !kept.is_empty() {
            kept.extend_from_slice(bytes);
            rest = &kept;
        }
        let mut deliveries = 0;
        while let Some(frame) = frames::next(&mut rest)? {
            match frame {
                Frame::Text(text) => deliveries += u64::from(self.hear(text, now)?),
                Frame::Ping(payload) => frames::write_pong(&mut self.outgoing, payload),
                Frame::Pong => {}
                Frame::Close => return Err(io::Error::other("the server closed a socket")),
            }
        }
        self.partial = rest.to_vec();
        if !self.times.is_empty() {
            let mut latencies = self.shared.latencies.lock();
            self.times.drain(..).for_each(|time| latencies.saturating_record(time));
        }
        Ok(deliveries)
    }

    /// Checks a message; returns whether it is a delivery.
    fn hear(&mut self, text: &[u8], now: u64) -> io::Result<bool> {
        let Some(said) = text.strip_prefix(br#"{"type":"said","#) else {
            let passed_over = ["stored", "presence", "reset", "welcome"];
            let kind = text.strip_prefix(br#"{"type":""#).unwrap_or_default();
            return match passed_over.iter().any(|known| kind.starts_with(known.as_bytes())) {
                true => Ok(false),
                false => Err(unexpected(text)),
            };
        };
        let Said { room, sender, number, time } = parse(said).ok_or_else(|| unexpected(text))?;
        let Layout { room: sockets, .. } = self.shared.layout;
        let place = (sender % sockets) as usize;
        let own_room = self.number / sockets;
        let received = self.received.get_mut(place).ok_or_else(|| unexpected(text))?;
        if room != own_room || sender / sockets != own_room || number != *received {
            return Err(unexpected(text));
        }
        *received += 1;
        self.times.push(now.saturating_sub(time));
        Ok(true)
    }

    /// Checks that no further message comes within a time.
    pub(super) async fn check_silence(mut self, time: Duration) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        while let Ok(read) = tokio::time::timeout(time, self.stream.read(&mut buffer)).await {
            let read = read?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.take(&buffer[..read])? > 0 {
                return Err(io::Error::other("a message came that nobody said"));
            }
        }
        Ok(())
    }
}

/// The parts of a message that the client wrote into its text, and its room.
#[derive(PartialEq, Eq, Debug)]
struct Said {
    room: u64,
    sender: u64,
    number: u64,
    time: u64,
}

fn parse(said: &[u8]) -> Option<Said> {
    let said = std::str::from_utf8(said).ok()?;
    let (_, room) = said.split_once(r#""room":"room_"#)?;
    let (room, rest) = room.split_once('"')?;
    let (_, text) = rest.split_once(r#""text":""#)?;
    let mut numbers = text.split(' ').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Said { room: room.parse().ok()?, sender: next()?, number: next()?, time: next()? })
}

fn unexpected(text: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(text);
    io::Error::other(format!("the server sent an unexpected message: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_parsed_with_its_fields_in_any_place() {
        let said = br#""room":"room_3","message":{"sequence":9,"author":"user_31","text":"31 4 159 a","time":5}}"#;
        let parsed = Some(Said { room: 3, sender: 31, number: 4, time: 159 });
        assert_eq!(parse(said), parsed);
        assert_eq!(parse(&said[..40]), None);
    }
}
