//! `chat` with tokio and tungstenite: a task for each socket, and no process, store or user.
//!
//! A message is encoded once, and all sockets of the room share its bytes. A socket has a bounded channel, from
//! which its task takes all frames that wait, and writes them together.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::workloads::prelude::*;
use crate::workloads::served;

/// Number of frames that may wait for a client that does not read; beyond them the client is dropped.
const WAITING_MAX: usize = 256;

/// Buffer for reading of each socket. The default of 128 KiB is for large messages.
const READ_BYTES: usize = 4 * 1024;

type Error = tokio_tungstenite::tungstenite::Error;

#[derive(Default)]
struct Room {
    sequence: u64,
    members: HashMap<u64, mpsc::Sender<Utf8Bytes>>,
}

type Rooms = Arc<Mutex<HashMap<String, Arc<Mutex<Room>>>>>;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FromClient<'a> {
    Hello { token: String },
    Enter { room: String },
    Say { room: &'a str, text: &'a str, key: Option<&'a str> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToClient<'a> {
    Welcome { name: &'a str },
    Entered { room: &'a str, sequence: u64 },
    Stored { room: &'a str, key: Option<&'a str>, sequence: u64 },
    Said { room: &'a str, message: Said<'a> },
}

#[derive(Serialize)]
struct Said<'a> {
    sequence: u64,
    author: &'a str,
    text: &'a str,
    time: u64,
}

impl ToClient<'_> {
    fn frame(&self) -> Utf8Bytes {
        // These types always encode.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::tokio::drive(settings, true, |settings| async move {
        served::allow_open_files()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(accept(listener));
        let client = spawn_blocking(move || served::run_client("tokio", address, &settings));
        let outcome = client.await?;
        server.abort();
        outcome
    })
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let rooms = Rooms::default();
    for number in 0.. {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, rooms.clone(), number));
    }
    Ok(())
}

async fn serve(stream: TcpStream, rooms: Rooms, number: u64) -> Result<(), Error> {
    let config = WebSocketConfig::default().read_buffer_size(READ_BYTES);
    let mut socket = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await?;
    let (sender, mut frames) = mpsc::channel(WAITING_MAX);
    let mut client = Client { number, name: String::new(), sender, rooms, entered: HashMap::new() };
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            // Nothing is received once the rooms have dropped a client that is too far behind.
            count = frames.recv_many(&mut waiting, WAITING_MAX) => {
                if count == 0 {
                    return Ok(());
                }
                for frame in waiting.drain(..) {
                    socket.feed(Message::Text(frame)).await?;
                }
                socket.flush().await?;
                // An idle socket keeps no buffer.
                waiting = Vec::new();
            }
            received = socket.next() => match received {
                Some(Ok(Message::Text(text))) => {
                    if let Some(answer) = client.receive(&text) {
                        socket.send(Message::Text(answer)).await?;
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
    }
}

struct Client {
    number: u64,
    name: String,
    sender: mpsc::Sender<Utf8Bytes>,
    rooms: Rooms,
    entered: HashMap<String, Arc<Mutex<Room>>>,
}

impl Client {
    fn receive(&mut self, text: &str) -> Option<Utf8Bytes> {
        match serde_json::from_str(text).ok()? {
            FromClient::Hello { token } => {
                self.name = token;
                Some(ToClient::Welcome { name: &self.name }.frame())
            }
            FromClient::Enter { room: name } => {
                let room = lock(&self.rooms).entry(name.clone()).or_default().clone();
                let sequence = {
                    let mut room = lock(&room);
                    room.members.insert(self.number, self.sender.clone());
                    room.sequence
                };
                let answer = ToClient::Entered { room: &name, sequence }.frame();
                self.entered.insert(name, room);
                Some(answer)
            }
            FromClient::Say { room: name, text, key } => {
                // The lock gives all members the same order.
                let mut room = lock(self.entered.get(name)?);
                room.sequence += 1;
                let sequence = room.sequence;
                let time = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
                let message = Said { sequence, author: &self.name, text, time };
                let frame = ToClient::Said { room: name, message }.frame();
                // A member whose queue is full is dropped.
                room.members.retain(|_, member| member.try_send(frame.clone()).is_ok());
                Some(ToClient::Stored { room: name, key, sequence }.frame())
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for room in self.entered.values() {
            lock(room).members.remove(&self.number);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
