//! `http` with axum alone: the counts are a table of atomic numbers, which the handler reaches itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;

use super::Users;
use crate::workloads::prelude::*;

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::tokio::drive(settings, true, |settings| {
        let table = (0..settings.get("users")).map(|_| AtomicU64::new(0)).collect();
        super::measure(Table(table), settings)
    })
}

/// The count of each user.
#[derive(Clone)]
struct Table(Arc<[AtomicU64]>);

impl Users for Table {
    async fn visit(&self, user: u64) -> Result<u64, StatusCode> {
        let visits = self.0.get(user as usize).ok_or(StatusCode::NOT_FOUND)?;
        Ok(visits.fetch_add(1, Ordering::Relaxed) + 1)
    }

    async fn visits(&self) -> u64 {
        // The answers to the requests, which the client has received, order the additions before this.
        self.0.iter().map(|visits| visits.load(Ordering::Relaxed)).sum()
    }
}
