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

use std::io;

use super::prelude::*;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "tokio" => tokio::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Sockets and rooms, numbered from 0: those of a room follow each other.
#[derive(Clone, Copy, Debug)]
struct Layout {
    sockets: u64,
    room: u64,
    /// Number of sockets in a room that say messages: the first ones.
    senders: u64,
}

impl Layout {
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

fn user_name(socket: u64) -> String {
    format!("user_{socket}")
}

fn room_name(room: u64) -> String {
    format!("room_{room}")
}
