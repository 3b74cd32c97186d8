//! `http-social` with the message service as `social serve` runs it, on a store in a directory of its own.

use std::io;

use social::{Name, Social, Text};

use super::population::{self, Population};
use crate::stores::Directory;
use crate::workloads::message_node::{each, on_node, register, serve};
use crate::workloads::prelude::*;
use crate::workloads::served;

pub(super) fn run(settings: &Settings) -> Measured {
    served::allow_open_files()?;
    let directory = Directory::make(settings)?;
    on_node(settings, directory.path(), async |runtime, social| {
        seed(&social, Population::of(settings)).await?;
        serve(runtime, social, settings.clone()).await
    })
}

async fn seed(social: &Social, population: Population) -> io::Result<()> {
    register(social, population.users, name).await?;
    each(population.users, async |user| {
        let author = name(user)?;
        for followed in population.followed(user) {
            social.follow(&author, &name(followed)?).await.map_err(io::Error::other)?;
        }
        for post in 0..population.posts {
            let text = Text::new(population::text(user, post)).map_err(io::Error::other)?;
            social.post(&author, text, None).await.map_err(io::Error::other)?;
        }
        Ok(())
    })
    .await
}

fn name(user: u64) -> io::Result<Name> {
    population::name(user).parse().map_err(io::Error::other)
}
