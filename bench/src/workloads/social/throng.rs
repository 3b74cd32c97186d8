//! `social` with throng: the microblog in memory of the crate `social`, as its users have it.

use std::io;

use social::in_memory::{Network, Posts, User};
use social::{Name, Text};

use super::{Microblog, measure, name, text};
use crate::workloads::prelude::*;

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::throng::drive(settings, false, async |host, settings| {
        let users_per_process = settings.get("users_per_process") as usize;
        let network = Network::start(&host.runtime, users_per_process).map_err(io::Error::other)?;
        measure(host, network, &settings).await
    })
}

impl Microblog for Network {
    type User = User;
    type Posts = Posts;

    async fn register(&self, number: u64) -> Option<User> {
        self.register_user(name(number).parse::<Name>().ok()?).await.ok()
    }

    async fn follow(&self, user: &User, target: &User) -> Option<()> {
        user.follow(target).await.ok()
    }

    async fn post(&self, user: &User, time: u64) -> Option<u64> {
        user.send_message_to_all(Text::new(text(time)).ok()?, time).await.ok()
    }

    async fn timeline(&self, user: &User) -> Option<Posts> {
        user.get_timeline().await.ok()
    }

    async fn profile(&self, user: &User) -> Option<Posts> {
        user.get_profile().await.ok()
    }

    async fn redirect(&self, number: u64) -> Option<Posts> {
        self.get_profile(name(number).parse::<Name>().ok()?).await.ok()
    }
}

impl super::Posts for Posts {
    fn newest_first(&self) -> impl Iterator<Item = (u64, &str)> {
        self.iter().map(|post| (post.time, post.text.as_str()))
    }
}
