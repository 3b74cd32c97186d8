//! A chat over TCP: a process for each connection and a process for each room.
//!
//! ```text
//!  socket ◄──► client ──join, say──► room ◄──join, say── client ◄──► socket
//!                 ▲                  │  │                   ▲
//!                 └────── Line ──────┘  └────── Line ───────┘
//!           mailbox of 1,000             monitors each client: its end is a line, too
//! ```
//!
//! A client whose mailbox is full reads too slowly: the room ends it, and nobody waits for it.
//!
//! Run it: `cargo run -p throng-examples --bin chat_tcp -- 127.0.0.1:7000`, by default on a free
//! port. Then `nc 127.0.0.1 7000`, with a first line `NAME ROOM`; each other line is said in the room.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use throng::{AsyncProcess, MailboxBound, Overflow, prelude::*};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Longest line of a client, in bytes.
const LINE_MAX: usize = 4096;
/// Lines that may wait for a client; more than a room has clients, for all may speak at once.
const LINES_MAX: usize = 1_000;

/// A line for a client's socket.
struct Line(Arc<str>);

impl Message for Line {
    type Reply = ();
}

type Client = Address<AsyncProcess<Line>>;
type Failure = Box<dyn Error + Send + Sync>;

/// A process for a room; it ends when its last client leaves.
#[derive(Default)]
struct Room {
    clients: HashMap<Pid, (String, Client)>,
}

#[process]
impl Room {
    #[message]
    fn join(&mut self, cx: &mut Context<Self>, name: String, client: Client) {
        cx.monitor(client);
        let line = format!("* {name} joins");
        self.clients.insert(client.pid(), (name, client));
        self.tell(&line);
    }

    #[message]
    fn say(&mut self, from: Client, text: String) {
        if let Some((name, _)) = self.clients.get(&from.pid()) {
            self.tell(&format!("{name}: {text}"));
        }
    }

    #[hook]
    fn down(&mut self, down: Down, cx: &mut Context<Self>) {
        if let Some((name, _)) = self.clients.remove(&down.pid) {
            self.tell(&format!("* {name} leaves: {}", down.reason));
        }
        if self.clients.is_empty() {
            // A message that is in the mailbox keeps the room; a later sender is refused.
            cx.stop_if_idle();
        }
    }

    fn tell(&self, line: &str) {
        let line: Arc<str> = format!("{line}\n").into();
        for (_, client) in self.clients.values() {
            if let Err(SendError::Overloaded(_)) = client.send(Line(line.clone())) {
                client.exit(ExitReason::other("reads too slowly"));
            }
        }
    }
}

/// Joins the room with a name, and opens the room if it does not exist.
async fn join(
    runtime: &RuntimeHandle,
    name: &str,
    client_name: &str,
    client: Client,
) -> Result<Address<Room>, Failure> {
    loop {
        let Some(room) = runtime.whereis::<Room>(name) else {
            let room = runtime.spawn(Room::default())?;
            if runtime.register(name, room).is_err() {
                // Another client was faster.
                room.stop();
            }
            continue;
        };
        match room.join(client_name.to_owned(), client).await {
            // The room closed at this moment: the next look opens another.
            Err(CallError::NoProcess(_)) => {}
            joined => return Ok(joined.map(|()| room)?),
        }
    }
}

/// Serves a connection, as a process that owns both halves of the socket.
async fn serve(mut inbox: Inbox<Line>, socket: TcpStream) -> Result<(), Failure> {
    let (reader, mut writer) = socket.into_split();
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    let (me, runtime) = (inbox.address(), inbox.runtime());

    let hello = read_line(&mut reader, &mut line).await?.unwrap_or_default();
    let Some((name, room_name)) = hello.split_once(' ') else {
        return Ok(writer.write_all(b"the first line is: NAME ROOM\n").await?);
    };
    let room = join(&runtime, room_name, name, me).await?;
    loop {
        tokio::select! {
            biased;
            Line(text) = inbox.recv() => writer.write_all(text.as_bytes()).await?,
            text = read_line(&mut reader, &mut line) => match text? {
                // A call rather than a send: a client is read no faster than its room tells.
                Some(text) => room.say(me, text).await?,
                None => return Ok(()),
            },
        }
    }
}

/// Reads a line; `None` at the end of the stream. A read that is dropped leaves its bytes in `line`,
/// where the next read continues.
async fn read_line(
    reader: &mut BufReader<OwnedReadHalf>,
    line: &mut Vec<u8>,
) -> Result<Option<String>, Failure> {
    let rest = LINE_MAX - line.len();
    reader.take(rest as u64).read_until(b'\n', line).await?;
    if line.len() == LINE_MAX && !line.ends_with(b"\n") {
        return Err("sends too long a line".into());
    }
    let text = line.ends_with(b"\n").then(|| String::from_utf8_lossy(line).trim_end().to_owned());
    line.clear();
    Ok(text)
}

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let bound = MailboxBound::new(LINES_MAX, Overflow::Reject);
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let accepted = listener.accept().await;
            let Ok((socket, _)) = accepted.inspect_err(|error| eprintln!("not accepted: {error}"))
            else {
                // File descriptors may have run out: a connection must end first.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let client = |inbox| serve(inbox, socket);
            if let Err(error) = runtime.spawner().mailbox(bound).spawn_async(client) {
                eprintln!("a connection is closed: {error}");
            }
        }
    })
}
