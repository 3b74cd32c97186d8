//! End-to-end tests of the real binary: started, used over HTTP, stopped, killed, started again.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

mod abuse;
mod admin;
mod bad_input;
mod browser;
mod config;
mod dashboard;
mod dashboard_browser;
mod demo;
mod deploy;
mod draining;
mod files;
mod flood;
mod for_you;
mod harness;
mod in_process;
mod lifecycle;
mod limits;
mod line;
mod load;
mod log;
mod looks;
mod moderate;
mod openapi;
mod population;
mod privacy;
mod rooms;
mod secrets;
mod sockets;
mod store;
mod tls;
mod transcript;
mod users;
#[path = "../../../../crates/throng-node/tests/support/webdriver.rs"]
mod webdriver;
