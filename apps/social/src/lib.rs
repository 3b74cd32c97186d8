//! A message service: users register, follow each other, post, and read the posts of the users they
//! follow. They meet in rooms, and a socket shows them posts and messages as they come.
//!
//! The service demonstrates that throng's public API suffices for an application: one durable
//! process per user and per room, and no database.
//!
//! ```text
//!  http ──► Social ──call──► User "alice"   account, counts
//!   │         │                 └ cells     following, followers, blocked, posts
//!   │         ├─call──► User "bob" ── new posts ──► Relay ──► Timeline "alice"
//!   │         ├─call──► Timeline "alice"    newest posts, in memory while alice reads
//!   │         ├─call──► Group "#rust"       best posts of a tag, by likes and time
//!   page      ├─call──► Room "rust" ── messages ──► Relay ──► sockets that have entered the room
//!             └─call──► Lease               lease of ids
//! ```
//!
//! ```
//! use social::{Password, Social, Text};
//! use throng::prelude::*;
//! use throng_durable::Node;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let data = tempfile::tempdir()?;
//! # let data = data.path();
//! let runtime = Runtime::builder().start()?;
//! runtime.block_on(async |runtime| {
//!     let node = Node::options(data).open(runtime)?;
//!     let social = Social::new(node.clone(), runtime.clone(), 0)?;
//!     let (alice, bob) = ("alice".parse()?, "bob".parse()?);
//!     social.register(&alice, Password::new("correct horse")?).await?;
//!     social.register(&bob, Password::new("battery staple")?).await?;
//!
//!     let posted = social.post(&bob, Text::new("hello, world")?, None).await?;
//!     social.follow(&alice, &bob).await?;
//!     let timeline = social.timeline(&alice, None, 20).await?;
//!     assert_eq!(timeline.posts, [posted.post]);
//!
//!     node.shutdown().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Invariants:
//! * A user's process sends to other users' processes and never calls them, so no two wait for each other. Operations
//!   on several users ([`Social::timeline`]) run outside the users' turns: in the caller, or in the process of a live
//!   timeline, which no user's process calls.
//! * A post or a message is written once, to its own cell, and never rewritten. A turn rewrites only the small
//!   state of the user or room.
//! * Acknowledged data is on disk. A later timeline contains each acknowledged post exactly once.

mod clock;
mod deletion;
mod error;
mod fair_queue;
mod followers;
mod for_you;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod idempotency;
mod ids;
pub mod in_memory;
mod likes;
mod listing;
mod live;
mod merge;
mod name;
mod newest;
mod openapi;
mod page;
mod password;
mod post;
mod problem;
mod revocations;
mod revoked;
mod room;
mod service;
mod shared_posts;
mod socket;
mod tags;
#[cfg(test)]
mod testing;
mod user;
mod visible;

pub use error::SocialError;
pub use for_you::score::{Candidate, DefaultScore, Reader, Reason, Score};
pub use for_you::{ForYou, ForYouPost, VisitPosition};
pub use http::{RateLimits, Rates, Settings, routes};
pub use idempotency::IdempotencyKey;
pub use ids::PostId;
pub use listing::Listing;
pub use name::{Name, NameError, RoomName};
pub use password::{HashError, HashedPassword, Password, PasswordError};
pub use post::{LikedPost, Post, Posted, Text, TextError};
pub use revoked::Issued;
pub use room::live::{Entered, Presence, RoomNews, Typing};
pub use room::{RoomMessage, RoomMessages, RoomProfile, Said, Stored};
pub use service::{Health, Registration, Social, Status};
pub use tags::{Tag, TagError};
pub use user::Profile;
