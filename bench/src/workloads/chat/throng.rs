//! `chat` with the rooms of the message service: a durable process for each room, and a process for each socket. A
//! message is on the disk before any socket gets it.
//!
//! Users, rooms and memberships are stored by a process of its own before the server starts, so that its memory
//! has only what it needs.

use std::io;
use std::path::Path;

use social::{Name, RoomName};

use super::{Layout, room_name, user_name};
use crate::stores::Directory;
use crate::workloads::message_node::{each, on_node, register, serve};
use crate::workloads::prelude::*;
use crate::workloads::{part, served};

pub(super) fn run(settings: &Settings) -> Measured {
    if let Some((_, directory)) = part::own() {
        return seed(settings, &directory);
    }
    Layout::of(settings)?;
    served::allow_open_files()?;
    let directory = Directory::make(settings)?;
    part::run("seed", directory.path(), false)?;
    on_node(settings, directory.path(), async |runtime, social| {
        serve(runtime, social, settings.clone()).await
    })
}

fn seed(settings: &Settings, directory: &Path) -> Measured {
    let layout = Layout::of(settings)?;
    on_node(settings, directory, async |_, social| {
        register(&social, layout.sockets, name).await?;
        each(layout.rooms(), async |room| {
            let owner = name(room * layout.room)?;
            social.create_room(&room_of(room)?, &owner).await.map_err(io::Error::other)
        })
        .await?;
        each(layout.sockets, async |socket| {
            let room = room_of(layout.room_of(socket))?;
            social.join_room(&room, &name(socket)?).await.map_err(io::Error::other)
        })
        .await?;
        Ok(Outcome::default())
    })
}

fn name(socket: u64) -> io::Result<Name> {
    user_name(socket).parse().map_err(io::Error::other)
}

fn room_of(room: u64) -> io::Result<RoomName> {
    room_name(room).parse().map_err(io::Error::other)
}
