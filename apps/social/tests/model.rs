//! Random programs of the service's operations against a plain model, restarts included: each reader's timeline
//! is the merge of the posts of those whom the reader follows, and each user's followers are the inverse of the follows.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use hoard::{Hoard, Load};
use social::{IdempotencyKey, Listing, Name, PostId, Social, SocialError, Text};
use support::on;
use throng::prelude::*;

#[path = "support/hoard.rs"]
mod hoard;
mod support;
#[path = "support/users.rs"]
mod users;

/// Data that the service is expected to have.
#[derive(Default)]
struct Model {
    follows: BTreeSet<(usize, usize)>,
    blocks: BTreeSet<(usize, usize)>,
    /// By id; with the author.
    posts: BTreeMap<PostId, (usize, Text)>,
    /// Ids of all posts, also of those that were deleted.
    ids: Vec<PostId>,
    /// Keys of each author: the text, and the post.
    keys: BTreeMap<(usize, u8), (Text, PostId)>,
}

impl Model {
    fn timeline(&self, reader: usize) -> Vec<PostId> {
        let of = |author: &usize| self.follows.contains(&(reader, *author));
        self.posts.iter().rev().filter(|(_, (author, _))| of(author)).map(|(id, _)| *id).collect()
    }
}

const USERS: usize = 6;

fn name(user: usize) -> Name {
    format!("user_{user}").parse().unwrap()
}

/// Carries out a random operation, and compares its outcome with the model's.
async fn step(social: &Social, model: &mut Model, rng: &mut Rng) {
    let (one, other) = (rng.usize(..USERS), rng.usize(..USERS));
    let (me, you) = (&name(one), &name(other));
    match rng.u8(..16) {
        0..4 => {
            let key = rng.bool().then(|| rng.u8(..4));
            let text = Text::new(format!("text {}", rng.u8(..3))).unwrap();
            let header = key.and_then(|key| IdempotencyKey::new(&format!("key-{key}")));
            let outcome = social.post(me, text.clone(), header).await;
            let known = key.and_then(|key| model.keys.get(&(one, key)));
            match (known, outcome) {
                (None, Ok(posted)) => {
                    assert!(!posted.repeated);
                    assert!(model.ids.last().is_none_or(|last| *last < posted.post.id));
                    if let Some(key) = key {
                        model.keys.insert((one, key), (text.clone(), posted.post.id));
                    }
                    model.posts.insert(posted.post.id, (one, text));
                    model.ids.push(posted.post.id);
                }
                (Some((known, id)), Ok(posted)) => {
                    assert!(posted.repeated && *known == text && *id == posted.post.id);
                    assert!(model.posts.contains_key(id));
                }
                (Some((known, id)), Err(SocialError::KeyReused)) => {
                    assert!(*known != text && model.posts.contains_key(id));
                }
                (Some((_, id)), Err(SocialError::PostDeleted)) => {
                    assert!(!model.posts.contains_key(id));
                }
                (known, outcome) => panic!("{known:?} {outcome:?}"),
            }
        }
        4..8 => match social.follow(me, you).await {
            Ok(()) => {
                assert!(one != other);
                assert!(
                    !model.blocks.contains(&(one, other)) && !model.blocks.contains(&(other, one))
                );
                model.follows.insert((one, other));
            }
            Err(SocialError::SelfFollow) => assert_eq!(one, other),
            Err(SocialError::Blocking(name)) => {
                assert!(name == *you && model.blocks.contains(&(one, other)));
            }
            Err(SocialError::Blocked(name)) => {
                assert!(name == *you && model.blocks.contains(&(other, one)));
            }
            Err(error) => panic!("{error}"),
        },
        8..10 if one != other => {
            social.unfollow(me, you).await.unwrap();
            model.follows.remove(&(one, other));
        }
        10 if one != other => {
            social.block(me, you).await.unwrap();
            model.blocks.insert((one, other));
            model.follows.remove(&(one, other));
            model.follows.remove(&(other, one));
        }
        11 if one != other => {
            social.unblock(me, you).await.unwrap();
            model.blocks.remove(&(one, other));
        }
        12..14 => {
            let Some(&id) = rng.choice(&model.ids) else { return };
            let is_own = model.posts.get(&id).is_some_and(|(author, _)| *author == one);
            match social.delete_post(me, id).await {
                Ok(()) => {
                    assert!(is_own);
                    model.posts.remove(&id);
                }
                Err(SocialError::NoSuchPost(_)) => assert!(!is_own),
                Err(error) => panic!("{error}"),
            }
        }
        _ => compare(social, model, one, rng.usize(1..8)).await,
    }
}

/// Reads all pages of a listing, and returns the ids of its posts, which must be as in the model.
async fn read_all(
    model: &Model,
    page: impl AsyncFn(Option<PostId>) -> Result<Listing, SocialError>,
) -> Vec<PostId> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let Listing { posts, next } = page(before).await.unwrap();
        for post in posts {
            let (author, text) = &model.posts[&post.id];
            assert_eq!((&post.author, &post.text), (&name(*author), text));
            found.push(post.id);
        }
        before = next;
        if before.is_none() {
            return found;
        }
    }
}

/// Compares all that the service shows of a user with the model, in pages of `limit` posts.
async fn compare(social: &Social, model: &Model, user: usize, limit: usize) {
    let me = &name(user);
    let timeline = read_all(model, async |before| social.timeline(me, before, limit).await).await;
    assert_eq!(timeline, model.timeline(user), "the timeline of {user}");
    // A user's own posts are public, whomever the user blocks.
    let own = read_all(model, async |before| social.posts(me, before, limit).await).await;
    let of_user = model.posts.iter().rev().filter(|(_, (author, _))| *author == user);
    assert!(own.iter().eq(of_user.map(|(id, _)| id)), "the posts of {user}: {own:?}");

    let others = |pairs: &BTreeSet<(usize, usize)>| {
        let of = pairs.iter().filter(|(one, _)| *one == user);
        of.map(|(_, other)| name(*other)).collect::<Vec<_>>()
    };
    assert_eq!(social.following(me).await.unwrap(), others(&model.follows));
    assert_eq!(social.blocked(me).await.unwrap(), others(&model.blocks));
    let profile = social.profile(me).await.unwrap();
    assert_eq!(
        (profile.posts, profile.following as usize),
        (own.len() as u64, others(&model.follows).len())
    );
}

/// Waits until each user's followers are the users of whom the model says so, in pages of every size.
async fn compare_followers(social: &Social, follows: &BTreeSet<(usize, usize)>) {
    for user in 0..USERS {
        let of = follows.iter().filter(|(_, target)| *target == user);
        let expected: Vec<Name> = of.map(|(follower, _)| name(*follower)).collect();
        for limit in [1, 2, USERS] {
            let mut attempts = 0;
            loop {
                let (mut found, mut more) = (Vec::<Name>::new(), true);
                while more {
                    let page;
                    (page, more) =
                        social.followers(&name(user), found.last(), limit).await.unwrap();
                    assert!(page.len() <= limit && (!more || page.len() == limit));
                    found.extend(page);
                }
                let count = social.profile(&name(user)).await.unwrap().followers;
                if found == expected && count == expected.len() as u64 {
                    break;
                }
                attempts += 1;
                assert!(attempts < 10_000, "the followers of {user}: {found:?}, not {expected:?}");
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
    }
}

async fn register(social: &Social) {
    let names: Vec<Name> = (0..USERS).map(name).collect();
    users::register(social, &names).await;
}

#[test]
fn timelines_are_the_merge_of_those_followed_through_random_programs_and_restarts() {
    let seeds = std::env::var("THRONG_SOCIAL_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let runtime = Runtime::builder().workers(2).start().unwrap();
    for seed in 0..seeds {
        let data = tempfile::tempdir().unwrap();
        let (mut rng, mut model) = (Rng::with_seed(seed), Model::default());
        println!("seed {seed}");
        runtime.block_on(async |runtime| {
            on(runtime, data.path(), async |social| {
                register(social).await;
            })
            .await;
            for _ in 0..5 {
                on(runtime, data.path(), async |social| {
                    for _ in 0..120 {
                        step(social, &mut model, &mut rng).await;
                    }
                    for user in 0..USERS {
                        compare(social, &model, user, 1_000).await;
                    }
                    compare_followers(social, &model.follows).await;
                })
                .await;
            }
        });
    }
}

/// Carries out a random operation of one user, whatever comes of it.
async fn act(social: &Social, one: usize, rng: &mut Rng) {
    let (me, you) = (&name(one), &name(rng.usize(..USERS)));
    match rng.u8(..12) {
        0..4 => {
            let text = Text::new(format!("text {}", rng.u8(..))).unwrap();
            social.post(me, text, None).await.unwrap();
        }
        4..6 => drop(social.follow(me, you).await),
        6 => drop(social.unfollow(me, you).await),
        7 => drop(social.block(me, you).await),
        8 => drop(social.unblock(me, you).await),
        9 => {
            let posts = social.posts(me, None, 5).await.unwrap().posts;
            if let Some(post) = rng.choice(&posts) {
                // Another client of the user may be the first.
                let deleted = social.delete_post(me, post.id).await;
                assert!(matches!(deleted, Ok(()) | Err(SocialError::NoSuchPost(_))), "{deleted:?}");
            }
        }
        _ => {
            let posts = social.timeline(me, None, 20).await.unwrap().posts;
            assert!(posts.windows(2).all(|pair| pair[0].id > pair[1].id), "{posts:?}");
        }
    }
}

/// Checks that a timeline is the merge of the posts of those whom the reader follows.
async fn is_merge(social: &Social, reader: usize) {
    let mut expected = Vec::new();
    for author in social.following(&name(reader)).await.unwrap() {
        if !social.blocked(&author).await.unwrap().contains(&name(reader)) {
            expected.extend(social.posts(&author, None, usize::MAX).await.unwrap().posts);
        }
    }
    expected.sort_unstable_by_key(|post| std::cmp::Reverse(post.id));
    for limit in [100, usize::MAX] {
        let found = social.timeline(&name(reader), None, limit).await.unwrap().posts;
        let wanted = &expected[..expected.len().min(limit)];
        assert!(found == wanted, "the timeline of {reader}: {found:?}, not {wanted:?}");
    }
}

#[test]
fn timelines_are_the_merge_after_all_users_have_acted_at_once() {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let data = tempfile::tempdir().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            register(social).await;
            for round in 0..40 {
                let users = (0..2 * USERS).map(|task| {
                    let (social, mut rng) =
                        (social.clone(), Rng::with_seed(100 * round + task as u64));
                    tokio::spawn(async move {
                        for _ in 0..20 {
                            act(&social, task % USERS, &mut rng).await;
                        }
                    })
                });
                // Some rounds lose the relays, and with them the changes that they have not sent.
                if round % 4 == 3 {
                    for process in runtime.top(1_000, throng::SortBy::Turns).await {
                        if process.kind.is_some_and(|kind| kind.ends_with("live::Relay")) {
                            process.pid.kill();
                        }
                    }
                }
                for user in users.collect::<Vec<_>>() {
                    user.await.unwrap();
                }
                for reader in 0..USERS {
                    is_merge(social, reader).await;
                }
            }
            let mut follows = BTreeSet::new();
            for user in 0..USERS {
                for target in social.following(&name(user)).await.unwrap() {
                    follows.insert((user, (0..USERS).find(|user| name(*user) == target).unwrap()));
                }
            }
            compare_followers(social, &follows).await;
        })
        .await;
    });
}

#[test]
fn an_acknowledged_post_is_in_every_later_read_of_a_follower() {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let data = tempfile::tempdir().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            register(social).await;
            for reader in 1..USERS {
                social.follow(&name(reader), &name(0)).await.unwrap();
            }
            // More posts than a live timeline keeps.
            for number in 0..1_000 {
                let text = Text::new(format!("text {number}")).unwrap();
                let post = social.post(&name(0), text, None).await.unwrap().post;
                let reader = name(1 + number % (USERS - 1));
                let newest = social.timeline(&reader, None, 1).await.unwrap().posts;
                assert_eq!(newest, [post]);
            }
            for reader in 1..USERS {
                is_merge(social, reader).await;
            }
        })
        .await;
    });
}

#[test]
fn an_acknowledged_post_is_read_although_the_mailboxes_had_no_room() {
    let runtime = Runtime::builder().workers(2).mailbox_budget(64 * 1024).start().unwrap();
    let data = tempfile::tempdir().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            register(social).await;
            social.follow(&name(1), &name(0)).await.unwrap();
            for round in 0..20 {
                social.timeline(&name(1), None, 10).await.unwrap();
                let text = Text::new(format!("text {round}")).unwrap();
                let author = name(0);
                let posting = social.post(&author, text, None);
                let hoard = runtime.spawn(Hoard).unwrap();
                // The budget is used up at any moment of the post.
                let filling = async {
                    for _ in 0..round {
                        tokio::task::yield_now().await;
                    }
                    while hoard.send(Load).is_ok() {}
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    hoard.kill();
                };
                let (posted, ()) = futures_util::future::join(posting, filling).await;
                hoard.pid().exited().await;
                let newest = loop {
                    match social.timeline(&name(1), None, 1).await {
                        Ok(page) => break page.posts,
                        Err(SocialError::Unavailable(_)) => tokio::task::yield_now().await,
                        Err(error) => panic!("{error}"),
                    }
                };
                if let Ok(posted) = posted {
                    assert_eq!(newest, [posted.post], "round {round}");
                }
            }
        })
        .await;
    });
}
