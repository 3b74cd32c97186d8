//! The traits that the derive does not implement, and a function that is not a migration.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, OldState};

#[derive(Serialize, Deserialize, Default, Durable)]
#[durable(kind = "state")]
struct State;

#[derive(Serialize, Deserialize, Durable)]
#[durable(kind = "account")]
struct Account;
impl Process for Account {}

#[derive(Serialize, Deserialize, Default, Durable)]
#[durable(kind = "safe", version = 2, migrate = from_first)]
struct Safe;
impl Process for Safe {}

fn from_first(_: OldState<'_>) -> Safe {
    Safe
}

fn main() {}
