//! `http` with a throng process for each user, which the handler calls; the runtime is attached to the
//! server's.

use std::sync::Arc;

use axum::http::StatusCode;
use throng::prelude::*;

use super::Users;
use crate::workloads::prelude::*;

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::throng::drive_with(settings, settings.get("users"), true, measure)
}

async fn measure(runtime: RuntimeHandle, settings: Settings) -> Measured {
    let start = |_| runtimes::throng::start(&runtime, User { visits: 0 });
    let users: Arc<[Address<User>]> = (0..settings.get("users")).map(start).collect();
    super::measure(Processes(users), settings).await
}

struct User {
    visits: u64,
}

#[process(never_blocks)]
impl User {
    #[message]
    fn visit(&mut self) -> u64 {
        self.visits += 1;
        self.visits
    }

    #[message]
    fn visits(&self) -> u64 {
        self.visits
    }
}

/// The process of each user.
#[derive(Clone)]
struct Processes(Arc<[Address<User>]>);

impl Users for Processes {
    async fn visit(&self, user: u64) -> Result<u64, StatusCode> {
        let user = self.0.get(user as usize).ok_or(StatusCode::NOT_FOUND)?;
        user.visit().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    }

    async fn visits(&self) -> u64 {
        let mut sum = 0;
        for user in &*self.0 {
            // A user without a reply is missing in the sum.
            sum += user.visits().await.unwrap_or(0);
        }
        sum
    }
}
