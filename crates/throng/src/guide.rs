//! The guide: pages to read, without any code of their own but examples, which are all tested.
//!
//! - [`tutorial`]: from nothing to processes that survive each other, in ten minutes
//! - [`testing`]: schedules from a seed, virtual time and crashes, for your own tests
//! - [`erlang`]: what is what, for those who know OTP
//! - [`costs`]: what everything costs, and the command that measures it

#[doc = include_str!("guide/tutorial.md")]
pub mod tutorial {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/erlang.md")]
pub mod erlang {}

#[doc = include_str!("guide/costs.md")]
pub mod costs {}
