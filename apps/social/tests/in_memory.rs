//! The microblog in memory: typical sessions, and random programs of concurrent clients against a plain model.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::collections::BTreeSet;

use fastrand::Rng;
use futures_util::FutureExt;
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
        assert_eq!(texts(&network.get_profile(name("ada")).await.unwrap()), ["kept"]);
        let unknown = network.get_profile(name("bob")).await;
        assert_eq!(unknown.unwrap_err(), RequestError::NoSuchUser);
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

/// Registers a user in a process of its own, and returns the process as well.
async fn register_alone(runtime: &RuntimeHandle, network: &Network, text: &str) -> (User, Pid) {
    let before: BTreeSet<String> = runtime.list().map(|pid| pid.to_string()).collect();
    let user = network.register_user(name(text)).await.unwrap();
    let process = runtime.list().find(|pid| !before.contains(&pid.to_string()));
    (user, process.unwrap())
}

fn with_runtime(test: impl AsyncFn(RuntimeHandle)) {
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).start().unwrap();
        runtime.block_on(async |runtime| test(runtime.clone()).await);
    }
}

#[test]
fn a_post_reaches_every_follower_however_many_share_a_process() {
    // One more follower in a process than fit into a message, as many, and far more.
    for followers in [0, 1, 5, 6, 300] {
        with_networks(async |network| {
            let star = network.register_user(name("star")).await.unwrap();
            let mut fans = Vec::new();
            for fan in 0..followers {
                let fan = network.register_user(name(&format!("fan_{fan}"))).await.unwrap();
                // The last comes first, so that slots are inserted before others.
                fans.insert(0, fan);
            }
            for (fan, number) in fans.iter().zip(0..) {
                fan.follow(&star).await.unwrap();
                // Posts between the follows share the lists of followers with their messages.
                let reached = star.send_message_to_all(text("early"), number).await;
                assert_eq!(reached, Ok(number + 1));
            }
            assert_eq!(star.send_message_to_all(text("late"), u64::MAX).await, Ok(followers));
            for fan in &fans {
                let timeline = fan.get_timeline().await.unwrap();
                assert_eq!(timeline.len() as u64, followers + 1);
                assert_eq!(timeline.iter().next().unwrap().text.as_str(), "late");
            }
        });
    }
}

#[test]
fn a_follower_whose_process_was_killed_is_not_counted_and_not_waited_for() {
    with_runtime(async |runtime| {
        let network = Network::start(&runtime, 1).unwrap();
        let (bob, _) = register_alone(&runtime, &network, "bob").await;
        let (ada, process) = register_alone(&runtime, &network, "ada").await;
        let (cem, _) = register_alone(&runtime, &network, "cem").await;
        ada.follow(&bob).await.unwrap();
        cem.follow(&bob).await.unwrap();
        assert_eq!(bob.send_message_to_all(text("both"), 1).await, Ok(2));
        process.kill();
        process.exited().await;
        assert_eq!(bob.send_message_to_all(text("one"), 2).await, Ok(1));
        assert_eq!(texts(&cem.get_timeline().await.unwrap()), ["one", "both"]);
        assert_eq!(ada.get_timeline().await.unwrap_err(), RequestError::Ended);
        // The target of a follow lives, and the follower does not.
        assert_eq!(ada.follow(&cem).await, Err(RequestError::Uncertain));
        assert_eq!(cem.send_message_to_all(text("nobody"), 3).await, Ok(0));
    });
}

#[test]
fn posts_to_a_process_that_is_killed_meanwhile_all_have_an_answer() {
    with_runtime(async |runtime| {
        let network = Network::start(&runtime, 1).unwrap();
        let (bob, _) = register_alone(&runtime, &network, "bob").await;
        let (ada, process) = register_alone(&runtime, &network, "ada").await;
        ada.follow(&bob).await.unwrap();
        let posts = (0..200).map(|time| {
            let bob = bob.clone();
            tokio::spawn(async move { bob.send_message_to_all(text("post"), time).await })
        });
        let posts: Vec<_> = posts.collect();
        process.kill();
        for post in posts {
            let reached = post.await.unwrap().unwrap();
            assert!(reached <= 1);
        }
        assert_eq!(bob.get_profile().await.unwrap().len(), 200);
    });
}

#[test]
fn a_post_whose_sender_gives_up_is_delivered() {
    with_runtime(async |runtime| {
        let network = Network::start(&runtime, 1).unwrap();
        let (bob, _) = register_alone(&runtime, &network, "bob").await;
        let (ada, _) = register_alone(&runtime, &network, "ada").await;
        ada.follow(&bob).await.unwrap();
        // The message is sent when the future is first polled, and the future is dropped then.
        let _ = bob.send_message_to_all(text("given up"), 1).now_or_never();
        assert_eq!(bob.send_message_to_all(text("last"), 2).await, Ok(1));
        assert_eq!(texts(&ada.get_timeline().await.unwrap()), ["last", "given up"]);
    });
}

#[test]
fn a_network_that_is_full_keeps_its_users() {
    // The directory and two users.
    let runtime = Runtime::builder().workers(1).process_limit(3).start().unwrap();
    runtime.block_on(async |runtime| {
        let network = Network::start(runtime, 1).unwrap();
        let ada = network.register_user(name("ada")).await.unwrap();
        let bob = network.register_user(name("bob")).await.unwrap();
        let full = network.register_user(name("cem")).await;
        assert_eq!(full.unwrap_err(), RequestError::Overloaded);
        assert_eq!(network.log_in(name("cem")).await.unwrap_err(), RequestError::NoSuchUser);
        ada.follow(&bob).await.unwrap();
        assert_eq!(bob.send_message_to_all(text("post"), 1).await, Ok(1));
    });
}

#[test]
fn requests_are_made_from_processes_tasks_and_threads() {
    struct Guest(User);

    #[process]
    impl Guest {
        #[message]
        async fn post(&mut self, time: u64) -> Result<u64, RequestError> {
            self.0.send_message_to_all(text("from a process"), time).await
        }
    }

    with_runtime(async |runtime| {
        let network = Network::start(&runtime, 10).unwrap();
        let bob = network.register_user(name("bob")).await.unwrap();
        let ada = network.register_user(name("ada")).await.unwrap();
        ada.follow(&bob).await.unwrap();
        let guest = runtime.spawn(Guest(bob.clone())).unwrap();
        assert_eq!(guest.post(1).await.unwrap(), Ok(1));
        let sender = bob.clone();
        let task = async move { sender.send_message_to_all(text("from a task"), 2).await };
        assert_eq!(tokio::spawn(task).await.unwrap(), Ok(1));
        let thread = std::thread::spawn(move || {
            let waiting =
                tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            waiting.block_on(bob.send_message_to_all(text("from a thread"), 3))
        });
        let joined = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        assert_eq!(joined, Ok(1));
        let timeline = ada.get_timeline().await.unwrap();
        assert_eq!(texts(&timeline), ["from a thread", "from a task", "from a process"]);
    });
}

#[test]
fn posts_are_freed_with_their_network_but_for_those_that_a_reader_holds() {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let (held, freed) = runtime.block_on(async |runtime| {
        let network = Network::start(runtime, 1).unwrap();
        let bob = network.register_user(name("bob")).await.unwrap();
        for fan in 0..50 {
            let fan = network.register_user(name(&format!("fan_{fan}"))).await.unwrap();
            fan.follow(&bob).await.unwrap();
        }
        bob.send_message_to_all(text("held"), 1).await.unwrap();
        let held = bob.get_profile().await.unwrap();
        bob.send_message_to_all(text("freed"), 2).await.unwrap();
        let freed =
            std::sync::Arc::downgrade(bob.get_profile().await.unwrap().iter().next().unwrap());
        (held, freed)
    });
    runtime.shutdown(std::time::Duration::from_secs(10));
    assert_eq!(texts(&held), ["held"]);
    assert_eq!(std::sync::Arc::strong_count(held.iter().next().unwrap()), 1);
    assert!(freed.upgrade().is_none(), "no process holds the post");
}
