//! `chat`: sockets in rooms, in which members say messages; a server delivers each message to all sockets of its room.
//!
//! ```text
//! server                       │ serve ──────────────────────────────────────────────────────────┐
//! client   memory of the server │ connect all, enter │ wait, memory │ a few messages │ N deliveries │ nothing more comes
//!                              ├─ bytes_per_idle_connection ───────┤                ├─ deliveries_per_s, p50_ns … ─┤
//! ```
//!
//! - The client and the protocol are the same for all servers: the part of the message service's protocol that rooms
//!   need (`apps/social/src/socket/protocol.rs`). A server answers `hello`, `enter` and `say`, and sends each message
//!   to all sockets of the room, the author's own included.
//! - In each room `senders` sockets say messages, each the next one when it has received its last one; with
//!   `rate=R`, R messages per second are said in all, whether the last ones have arrived or not, and their latency
//!   counts from the time at which they were due.
//! - A latency is the time from the say of a message to its receipt by a socket. Every delivery is a sample.
//! - Each socket checks that it gets each message of its room exactly once, and those of a sender in order.

mod client;
mod frames;
mod socket;
mod throng;
mod tokio;

pub(crate) use client::run as client;
pub(crate) use throng::seed;

use std::io;

use super::Workload;
use super::message_node::IO_THREADS;
use crate::peer::{Class, Peer, Threads};
use crate::runtimes;
use crate::settings::{Key, Kind, Settings};
use crate::stores::Directory;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "chat",
    about: "N deliveries of messages to WebSockets in rooms, each checked",
    counts: "deliveries",
    count: 1_000_000,
    keys: &[
        Key {
            name: "sockets",
            kind: Kind::Number(1_000),
            about: "number of sockets, each in one room",
        },
        Key { name: "room", kind: Kind::Number(10), about: "number of sockets in a room" },
        Key {
            name: "senders",
            kind: Kind::Number(10),
            about: "number of sockets in a room that say messages, at most",
        },
        Key {
            name: "rate",
            kind: Kind::Count(0),
            about: "messages per second in all, at fixed times [0: each after the receipt of the last]",
        },
        Key {
            name: "settle",
            kind: Kind::Count(2),
            about: "seconds between the last entry into a room and the reading of the memory",
        },
        IO_THREADS,
        Directory::KEY,
    ],
    metrics: "deliveries_per_s p50_ns p99_ns p999_ns bytes_per_idle_connection server_cpu_ns client_cpu_ns",
    processes: |settings| settings.get("sockets").saturating_mul(4),
    peers: &[
        runtimes::throng::peer(throng::run),
        Peer::here(
            "tokio",
            env!("VERSION_TOKIO_TUNGSTENITE"),
            Class::StacklessTask,
            Threads::Workers,
            tokio::run,
        ),
    ],
};

/// Sockets and rooms, numbered from 0: those of a room follow each other.
#[derive(Clone, Copy, Debug)]
struct Layout {
    sockets: u64,
    /// Number of sockets in a room.
    room: u64,
    /// Number of sockets in a room that say messages: the first ones.
    senders: u64,
}

impl Layout {
    /// # Errors
    /// If the sockets do not fill the rooms.
    fn of(settings: &Settings) -> io::Result<Layout> {
        let (sockets, room) = (settings.get("sockets"), settings.get("room"));
        if !sockets.is_multiple_of(room) {
            let error = format!("{sockets} sockets do not fill rooms of {room}: set a multiple");
            return Err(io::Error::other(error));
        }
        Ok(Layout { sockets, room, senders: settings.get("senders").min(room) })
    }

    fn rooms(&self) -> u64 {
        self.sockets / self.room
    }

    fn room_of(&self, socket: u64) -> u64 {
        socket / self.room
    }

    /// Number of messages that each sender says, so that there are at least `deliveries` deliveries.
    fn messages(&self, deliveries: u64) -> u64 {
        deliveries.div_ceil(self.sockets * self.senders)
    }
}

/// Name of the user of a socket.
fn user_name(socket: u64) -> String {
    format!("user_{socket}")
}

fn room_name(room: u64) -> String {
    format!("room_{room}")
}
