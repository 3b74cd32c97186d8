//! The microblog in memory: typical sessions, and random programs of concurrent clients against a plain model.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::collections::BTreeSet;

use fastrand::Rng;
use futures_util::future::join_all;
use social::in_memory::{Network, Posts, RequestError, User};
use social::{Name, Text};
use throng::prelude::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn text(text: impl Into<String>) -> Text {
    Text::new(text).unwrap()
}

fn texts(posts: &Posts) -> Vec<&str> {
    posts.iter().map(|post| post.text.as_str()).collect()
}

/// Runs a test on networks with one user per process, with few, and with all users in one process.
fn with_networks(test: impl AsyncFn(Network)) {
    for users_per_process in [1, 3, 1000] {
        let runtime = Runtime::builder().workers(2).start().unwrap();
        runtime.block_on(async |runtime| {
            test(Network::start(runtime, users_per_process).unwrap()).await;
        });
    }
}

#[test]
fn a_session_of_a_single_user() {
    with_networks(async |network| {
        let registered = network.register_user(name("jennifer")).await.unwrap();
        assert!(registered.get_timeline().await.unwrap().is_empty());
        assert!(registered.get_profile().await.unwrap().is_empty());

        let jennifer = network.log_in(name("jennifer")).await.unwrap();
        jennifer.send_message(text("first"), 1).await.unwrap();
        jennifer.send_message(text("second"), 2).await.unwrap();
        assert_eq!(texts(&jennifer.get_profile().await.unwrap()), ["second", "first"]);
        assert!(jennifer.get_timeline().await.unwrap().is_empty(), "one's own posts are no news");
    });
}

#[test]
fn a_session_of_users_that_follow_each_other() {
    with_networks(async |network| {
        let ada = network.register_user(name("ada")).await.unwrap();
        let bob = network.register_user(name("bob")).await.unwrap();
        let cem = network.register_user(name("cem")).await.unwrap();

        bob.send_message(text("bob 1"), 1).await.unwrap();
        cem.send_message(text("cem 2"), 2).await.unwrap();
        ada.follow(&bob).await.unwrap();
        assert_eq!(texts(&ada.get_timeline().await.unwrap()), ["bob 1"], "following back-fills");
        ada.follow(&cem).await.unwrap();
        assert_eq!(bob.send_message_to_all(text("bob 3"), 3).await, Ok(1));
        assert_eq!(cem.send_message_to_all(text("cem 4"), 4).await, Ok(1));

        let timeline = ada.get_timeline().await.unwrap();
        assert_eq!(texts(&timeline), ["cem 4", "bob 3", "cem 2", "bob 1"]);
        let authors: Vec<&str> = timeline.iter().map(|post| post.author.as_str()).collect();
        assert_eq!(authors, ["cem", "bob", "cem", "bob"]);
        assert_eq!(texts(&bob.get_profile().await.unwrap()), ["bob 3", "bob 1"]);
        assert!(bob.get_timeline().await.unwrap().is_empty());
    });
}

#[test]
fn unknown_and_taken_names_are_errors() {
    with_networks(async |network| {
        let unknown = network.log_in(name("ada")).await;
        assert_eq!(unknown.unwrap_err(), RequestError::NoSuchUser);
        let ada = network.register_user(name("ada")).await.unwrap();
        ada.send_message(text("kept"), 1).await.unwrap();
        let taken = network.register_user(name("ada")).await;
        assert_eq!(taken.unwrap_err(), RequestError::NameTaken);
        let ada = network.log_in(name("ada")).await.unwrap();
        assert_eq!(texts(&ada.get_profile().await.unwrap()), ["kept"]);
    });
}

#[test]
fn following_twice_delivers_once() {
    with_networks(async |network| {
        let ada = network.register_user(name("ada")).await.unwrap();
        let bob = network.register_user(name("bob")).await.unwrap();
        bob.send_message(text("old"), 1).await.unwrap();
        for _ in 0..2 {
            ada.follow(&bob).await.unwrap();
        }
        assert_eq!(bob.send_message_to_all(text("new"), 2).await, Ok(1));
        assert_eq!(texts(&ada.get_timeline().await.unwrap()), ["new", "old"]);
    });
}

#[test]
fn a_snapshot_does_not_change() {
    with_networks(async |network| {
        let ada = network.register_user(name("ada")).await.unwrap();
        ada.follow(&ada).await.unwrap();
        assert_eq!(ada.send_message_to_all(text("old"), 1).await, Ok(1));
        let (timeline, profile) =
            (ada.get_timeline().await.unwrap(), ada.get_profile().await.unwrap());
        assert_eq!(ada.send_message_to_all(text("new"), 2).await, Ok(1));
        assert_eq!((texts(&timeline), texts(&profile)), (vec!["old"], vec!["old"]));
        assert_eq!(texts(&ada.get_timeline().await.unwrap()), ["new", "old"]);
    });
}

#[test]
fn requests_after_the_end_of_the_runtime_are_errors() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let ada = runtime.block_on(async |runtime| {
        let network = Network::start(runtime, 1).unwrap();
        network.register_user(name("ada")).await.unwrap()
    });
    runtime.shutdown(std::time::Duration::from_secs(10));
    let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(waiting.block_on(ada.get_profile()).unwrap_err(), RequestError::Ended);
}

/// Number of users in a random program, each with a client of its own.
const USERS: usize = 12;

/// A post as the model knows it: time, author, the author's count of posts, and text.
type Known = (u64, String, u64, String);

/// Requests that a client has made of its user.
struct Made {
    follows: BTreeSet<usize>,
    posts: Vec<Known>,
}

/// Makes random requests for one user, while the other clients do the same.
async fn client(users: &[User], me: usize, seed: u64) -> Made {
    let mut rng = Rng::with_seed(seed);
    let mut made = Made { follows: BTreeSet::new(), posts: Vec::new() };
    let user = &users[me];
    for _ in 0..40 {
        match rng.u8(..8) {
            0..2 => {
                let target = rng.usize(..USERS);
                user.follow(&users[target]).await.unwrap();
                made.follows.insert(target);
            }
            2..6 => {
                // Few different times, so that many posts have the same, and many are late.
                let (time, number) = (rng.u64(..8), made.posts.len() as u64);
                let content = format!("{me} says {number}");
                if rng.bool() {
                    user.send_message(text(&content), time).await.unwrap();
                } else {
                    let reached = user.send_message_to_all(text(&content), time).await.unwrap();
                    assert!(reached <= USERS as u64);
                }
                made.posts.push((time, user.name().as_str().to_owned(), number, content));
            }
            _ => {
                let timeline = known(&user.get_timeline().await.unwrap());
                assert!(timeline.is_sorted_by(|newer, older| newer > older), "{timeline:?}");
                assert_eq!(known(&user.get_profile().await.unwrap()), newest_first(&made.posts));
            }
        }
    }
    made
}

fn known(posts: &Posts) -> Vec<Known> {
    let known = posts.iter().map(|post| {
        let (author, content) = (post.author.as_str().to_owned(), post.text.as_str().to_owned());
        (post.time, author, post.number, content)
    });
    known.collect()
}

fn newest_first<'a>(posts: impl IntoIterator<Item = &'a Known>) -> Vec<Known> {
    let mut posts: Vec<Known> = posts.into_iter().cloned().collect();
    posts.sort_unstable_by(|one, other| other.cmp(one));
    posts
}

#[test]
fn each_timeline_is_the_merge_of_the_posts_of_the_followed_users() {
    for seed in 0..20 {
        with_networks(async |network| {
            let mut users = Vec::new();
            for user in 0..USERS {
                users.push(network.register_user(name(&format!("user_{user}"))).await.unwrap());
            }
            // Each client is a task of its own, so that the requests of all overlap on several threads.
            let clients = (0..USERS).map(|me| {
                let users = users.clone();
                tokio::spawn(async move { client(&users, me, seed * 100 + me as u64).await })
            });
            let made: Vec<Made> =
                join_all(clients).await.into_iter().map(|made| made.unwrap()).collect();

            // The answer to this post says that the author's shards of followers have received all before it.
            let last = u64::MAX;
            let mut posts: Vec<Vec<Known>> = made.iter().map(|made| made.posts.clone()).collect();
            for (author, user) in users.iter().enumerate() {
                let followers = made.iter().filter(|made| made.follows.contains(&author)).count();
                let reached = user.send_message_to_all(text("last"), last).await.unwrap();
                assert_eq!(reached, followers as u64, "seed {seed}");
                let number = posts[author].len() as u64;
                let author_name = user.name().as_str().to_owned();
                posts[author].push((last, author_name, number, "last".to_owned()));
            }
            for (me, user) in users.iter().enumerate() {
                let expected = newest_first(made[me].follows.iter().flat_map(|&you| &posts[you]));
                assert_eq!(known(&user.get_timeline().await.unwrap()), expected, "seed {seed}");
                let profile = known(&user.get_profile().await.unwrap());
                assert_eq!(profile, newest_first(&posts[me]), "seed {seed}");
            }
        });
    }
}
