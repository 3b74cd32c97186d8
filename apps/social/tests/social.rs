//! The service without HTTP: guarantees of its operations, on a real node.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::time::Duration;

use futures_util::future::join_all;
use nodes::{name, on_a_node, on_data, text, until};
use social::{IdempotencyKey, Listing, Name, Password, Post, PostId, Social, SocialError, Text};
use throng::prelude::*;
use throng_durable::Node;
use users::register;

#[path = "support/nodes.rs"]
mod nodes;
mod support;
#[path = "support/users.rs"]
mod users;

/// Password of all users that are registered together.
const PASSWORD: &str = "correct horse";

#[test]
fn one_of_two_concurrent_registrations_gets_the_name() {
    on_a_node(async |social, _| {
        let outcomes = join_all(["horse one", "horse two"].map(async |password| {
            (password, social.register(&name("alice"), Password::new(password).unwrap()).await)
        }))
        .await;
        let (won, lost): (Vec<_>, Vec<_>) =
            outcomes.into_iter().partition(|(_, outcome)| outcome.is_ok());
        let ([(winner, _)], [(loser, Err(SocialError::NameTaken(taken)))]) = (&won[..], &lost[..])
        else {
            panic!("{won:?} {lost:?}");
        };
        assert_eq!(taken, &name("alice"));
        social.log_in(&name("alice"), (*winner).to_owned()).await.unwrap();
        let refused = social.log_in(&name("alice"), (*loser).to_owned()).await;
        assert!(matches!(refused, Err(SocialError::WrongCredentials)));
        let refused = social.log_in(&name("nobody"), (*winner).to_owned()).await;
        assert!(matches!(refused, Err(SocialError::WrongCredentials)));
    });
}

#[test]
fn a_repeated_registration_needs_the_same_password() {
    on_a_node(async |social, _| {
        let alice = name("alice");
        let register =
            async |password: &str| social.register(&alice, Password::new(password).unwrap()).await;
        // At once, and one after another.
        let outcomes = join_all((0..3).map(|_| register(PASSWORD))).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let created = social.profile(&alice).await.unwrap().created;
        social.post(&alice, text("hello"), None).await.unwrap();
        register(PASSWORD).await.unwrap();
        let profile = social.profile(&alice).await.unwrap();
        assert_eq!((profile.created, profile.posts), (created, 1), "the account stays");

        let other = register("battery staple").await;
        assert!(matches!(other, Err(SocialError::NameTaken(name)) if name == alice));
        social.log_in(&alice, PASSWORD.to_owned()).await.unwrap();
        let new = Password::new("battery staple").unwrap();
        social.change_password(&alice, PASSWORD.to_owned(), new).await.unwrap();
        assert!(matches!(register(PASSWORD).await, Err(SocialError::NameTaken(_))));
        register("battery staple").await.unwrap();
    });
}

#[test]
fn an_unregistered_name_can_do_nothing_and_nobody_follows_or_blocks_themselves() {
    on_a_node(async |social, _| {
        let (nobody, alice) = (name("nobody"), name("alice"));
        register(social, &["alice"]).await;
        let refused = [
            social.profile(&nobody).await.map(drop),
            social.posts(&nobody, None, 10).await.map(drop),
            social.timeline(&nobody, None, 10).await.map(drop),
            social.following(&nobody).await.map(drop),
            social.post(&nobody, text("x"), None).await.map(drop),
            social.follow(&nobody, &alice).await,
            social.follow(&alice, &nobody).await,
            social.unfollow(&nobody, &alice).await,
            social.unfollow(&alice, &nobody).await,
            social.blocked(&nobody).await.map(drop),
            social.block(&nobody, &alice).await,
            social.block(&alice, &nobody).await,
            social.unblock(&nobody, &alice).await,
            social.unblock(&alice, &nobody).await,
        ];
        for (number, outcome) in refused.into_iter().enumerate() {
            assert!(
                matches!(&outcome, Err(SocialError::NoSuchUser(name)) if name == &nobody),
                "{number}: {outcome:?}"
            );
        }
        let oneself = [social.follow(&alice, &alice).await, social.unfollow(&alice, &alice).await];
        assert!(oneself.iter().all(|refused| matches!(refused, Err(SocialError::SelfFollow))));
        let oneself = [social.block(&alice, &alice).await, social.unblock(&alice, &alice).await];
        assert!(oneself.iter().all(|refused| matches!(refused, Err(SocialError::SelfBlock))));
    });
}

#[test]
fn a_key_posts_once_however_many_posts_follow() {
    on_a_node(async |social, _| {
        let alice = name("alice");
        register(social, &["alice"]).await;
        let post = async |number: usize| {
            let key = IdempotencyKey::new(&format!("key-{number}"));
            social.post(&alice, text(&format!("text {number}")), key).await.unwrap()
        };
        // Ten concurrent requests with the same key make a single post.
        let first = join_all((0..10).map(|_| post(0))).await;
        assert_eq!(first.iter().filter(|posted| !posted.repeated).count(), 1);
        assert!(first.iter().all(|posted| posted.post == first[0].post));
        for number in 1..80 {
            assert!(!post(number).await.repeated);
        }
        for number in 0..80 {
            assert!(post(number).await.repeated, "{number}");
        }
        assert_eq!(post(0).await.post, first[0].post);
        let posts = social.posts(&alice, None, 100).await.unwrap().posts;
        assert_eq!(posts.len(), 80);
        assert_eq!(social.profile(&alice).await.unwrap().posts, 80);

        let reused = social.post(&alice, text("another"), IdempotencyKey::new("key-9")).await;
        assert!(matches!(reused, Err(SocialError::KeyReused)));
        // A refusal leaves the key unused.
        let (bob, key) = (name("bob"), || IdempotencyKey::new("key"));
        let refused = social.post(&bob, text("hello"), key()).await;
        assert!(matches!(refused, Err(SocialError::NoSuchUser(_))), "{refused:?}");
        register(social, &["bob"]).await;
        assert!(!social.post(&bob, text("hello"), key()).await.unwrap().repeated);
    });
}

#[test]
fn pages_of_every_size_make_the_same_listing_while_others_post() {
    on_a_node(async |social, _| {
        let reader = name("reader");
        let authors = ["a", "b", "c", "d", "e"];
        register(social, &["reader", "a", "b", "c", "d", "e"]).await;
        let mut expected = Vec::new();
        for number in 0..60 {
            // Of ten posts, four are by `a`, then three, two and one; `e` posts nothing.
            let author = name(authors[[0, 0, 0, 0, 1, 1, 1, 2, 2, 3][number % 10]]);
            let posted = social.post(&author, text(&format!("{number}")), None).await.unwrap();
            expected.insert(0, posted.post);
        }
        for author in authors {
            social.follow(&reader, &name(author)).await.unwrap();
        }
        for limit in [0, 1, 2, 7, 59, 60, 61, usize::MAX] {
            let mut page = social.timeline(&reader, None, limit).await.unwrap();
            let begun_at = page.posts[0].id;
            let mut all = Vec::new();
            loop {
                let Listing { posts, next } = page;
                assert!(posts.len() == limit.max(1) || next.is_none());
                all.extend(posts);
                let Some(before) = next else { break };
                // These posts are newer than all posts in the pages.
                let newer = social.post(&name("b"), text("newer"), None).await.unwrap();
                assert!(newer.post.id > begun_at);
                page = social.timeline(&reader, Some(before), limit).await.unwrap();
            }
            let old: Vec<Post> =
                all.into_iter().filter(|post| post.text != text("newer")).collect();
            assert_eq!(old, expected, "limit {limit}");
        }
        social.unfollow(&reader, &name("a")).await.unwrap();
        let rest = social.timeline(&reader, None, 1000).await.unwrap();
        assert!(rest.posts.iter().all(|post| post.author != name("a")) && rest.next.is_none());
    });
}

#[test]
fn pages_cut_short_by_long_posts_make_the_same_listing() {
    on_a_node(async |social, _| {
        register(social, &["all", "some", "a", "b", "c"]).await;
        let long = "😀".repeat(Text::CHARACTERS_MAX);
        let mut posted = Vec::new();
        for number in 0..90 {
            // `a` has long posts, and none among the last 30; `b` has short posts; `c` has both.
            let (author, is_long) = match number % 6 {
                0 | 1 if number < 60 => ("a", true),
                5 => ("c", true),
                4 => ("c", false),
                _ => ("b", false),
            };
            let said = if is_long { text(&long) } else { text(&format!("{number}")) };
            posted.insert(0, social.post(&name(author), said, None).await.unwrap().post);
        }
        for (reader, authors) in [("all", &["a", "b", "c"][..]), ("some", &["a", "b"])] {
            let (reader, authors) = (name(reader), authors.iter().map(|author| name(author)));
            let authors: Vec<Name> = authors.collect();
            for author in &authors {
                social.follow(&reader, author).await.unwrap();
            }
            let expected = posted.iter().filter(|post| authors.contains(&post.author));
            let expected: Vec<&Post> = expected.collect();
            for limit in [1, 7, 14, 40, 100] {
                let timeline = async |before| social.timeline(&reader, before, limit).await;
                let (all, pages_cut) = read_all(limit, timeline).await;
                assert!(all.iter().eq(expected.iter().copied()), "{reader}, limit {limit}");
                assert!(pages_cut > 0 || limit < 100, "{reader}");
            }
        }
        let a = name("a");
        let (all, pages_cut) =
            read_all(100, async |before| social.posts(&a, before, 100).await).await;
        assert!(all.iter().eq(posted.iter().filter(|post| post.author == a)));
        assert_eq!(pages_cut, 1);
    });
}

/// Reads all pages of a listing. Each page has a post, and neither too many posts nor too much
/// text. Also returns the number of pages with fewer posts than `limit` that are not the last.
async fn read_all(
    limit: usize,
    listing: impl AsyncFn(Option<PostId>) -> Result<Listing, SocialError>,
) -> (Vec<Post>, usize) {
    let (mut all, mut before, mut pages_cut) = (Vec::new(), None, 0);
    loop {
        let Listing { posts, next } = listing(before).await.unwrap();
        assert!((1..=limit).contains(&posts.len()));
        let bytes: usize = posts.iter().map(|post| post.text.as_str().len()).sum();
        assert!(bytes <= 256 * 1024, "{bytes}");
        pages_cut += usize::from(next.is_some() && posts.len() < limit);
        all.extend(posts);
        before = next;
        if before.is_none() {
            return (all, pages_cut);
        }
    }
}

#[test]
fn a_like_needs_a_post_and_no_block() {
    on_a_node(async |social, _| {
        let (alice, bob, nobody) = (name("alice"), name("bob"), name("nobody"));
        register(social, &["alice", "bob"]).await;
        let id = social.post(&alice, text("of alice"), None).await.unwrap().post.id;
        let likes = async || social.find_post(&alice, id).await.unwrap().likes;
        for reader in [&bob, &bob, &alice] {
            social.like(reader, &alice, id).await.unwrap();
        }
        assert_eq!(likes().await, 2);
        for (reader, author) in [(&nobody, &alice), (&alice, &nobody)] {
            let refused = social.like(reader, author, id).await;
            assert!(matches!(refused, Err(SocialError::NoSuchUser(name)) if name == nobody));
        }
        let not_his = social.like(&alice, &bob, id).await;
        assert!(matches!(not_his, Err(SocialError::NoSuchPost(post)) if post == id));
        social.unlike(&alice, &bob, id).await.unwrap();

        social.block(&alice, &bob).await.unwrap();
        assert_eq!(likes().await, 2, "a block removes no like");
        let blocked = social.like(&bob, &alice, id).await;
        assert!(matches!(blocked, Err(SocialError::Blocked(name)) if name == alice));
        for _ in 0..2 {
            social.unlike(&bob, &alice, id).await.unwrap();
            assert_eq!(likes().await, 1);
        }
        let his = social.post(&bob, text("of bob"), None).await.unwrap().post.id;
        let blocking = social.like(&alice, &bob, his).await;
        assert!(matches!(blocking, Err(SocialError::Blocking(name)) if name == bob));

        social.delete_post(&alice, id).await.unwrap();
        for gone in
            [social.like(&alice, &alice, id).await, social.find_post(&alice, id).await.map(drop)]
        {
            assert!(matches!(gone, Err(SocialError::NoSuchPost(post)) if post == id));
        }
    });
}

#[test]
fn a_deleted_account_is_gone_and_leaves_no_timeline_that_cannot_be_read() {
    on_a_node(async |social, _| {
        let (alice, bob, carol) = (name("alice"), name("bob"), name("carol"));
        register(social, &["alice", "bob", "carol"]).await;
        social.follow(&alice, &bob).await.unwrap();
        social.follow(&bob, &alice).await.unwrap();
        social.follow(&bob, &carol).await.unwrap();
        social.block(&carol, &alice).await.unwrap();
        for number in 0..250 {
            social.post(&alice, text(&number.to_string()), None).await.unwrap();
        }
        let kept = social.post(&carol, text("stays"), None).await.unwrap().post;
        for (room, members) in [("tea", vec![&bob]), ("alone", vec![])] {
            let room = room.parse().unwrap();
            social.create_room(&room, &alice).await.unwrap();
            for member in members {
                social.join_room(&room, member).await.unwrap();
            }
            social.say(&room, &alice, text("hello"), None).await.unwrap();
        }
        assert_eq!(social.timeline(&bob, None, 10).await.unwrap().posts.len(), 10);

        let wrong = social.delete_account(&alice, "wrong horse".to_owned()).await;
        assert!(matches!(wrong, Err(SocialError::WrongCredentials)), "{wrong:?}");
        let since = social.log_in(&alice, PASSWORD.to_owned()).await.unwrap();
        social.delete_account(&alice, PASSWORD.to_owned()).await.unwrap();

        assert_eq!(
            social.timeline(&bob, None, 10).await.unwrap().posts,
            std::slice::from_ref(&kept)
        );
        // Bob learns of the end by messages.
        until(async || {
            social.following(&bob).await.unwrap() == [carol.clone()]
                && social.followers(&bob, None, 10).await.unwrap().0.is_empty()
        })
        .await;
        let revoked = social.check_token(&alice, since).await;
        assert!(matches!(revoked, Err(SocialError::TokenRevoked)), "{revoked:?}");
        let login = social.log_in(&alice, PASSWORD.to_owned()).await;
        assert!(matches!(login, Err(SocialError::WrongCredentials)), "{login:?}");
        let again = social.register(&alice, Password::new(PASSWORD).unwrap()).await;
        assert!(matches!(again, Err(SocialError::NameTaken(_))), "{again:?}");
        assert_eq!(social.search("", None, 10).unwrap().0, [bob.clone(), carol.clone()]);
        let unblocked = social.unblock(&carol, &alice).await;
        assert!(matches!(unblocked, Err(SocialError::NoSuchUser(_))), "{unblocked:?}");
        assert_eq!(social.blocked(&carol).await.unwrap(), []);

        // The room of others goes on, and the other has ended.
        let tea = "tea".parse().unwrap();
        assert_eq!(
            social.room_members(&tea, None, 10).await.unwrap().0,
            std::slice::from_ref(&bob)
        );
        assert_eq!(social.room_messages(&tea, &bob, None, 10).await.unwrap().messages.len(), 1);
        social.join_room(&tea, &carol).await.unwrap();
        assert_eq!(social.search_rooms("", None, 10).unwrap().0, [tea]);
    });
}

#[test]
fn a_search_finds_registered_names_by_prefix_in_pages() {
    on_a_node(async |social, _| {
        let names = ["a", "al", "alice", "alina", "bob", "z"];
        register(social, &names).await;
        // A name that was only asked for is not found.
        assert!(social.profile(&name("alba")).await.is_err());
        for prefix in ["", "a", "al", "ali", "alice", "b", "c", "A", "a%"] {
            let expected: Vec<Name> = names
                .iter()
                .filter(|name| name.starts_with(prefix))
                .map(|text| name(text))
                .collect();
            for limit in [0, 1, 2, 100, usize::MAX] {
                let (mut all, mut after) = (Vec::new(), None);
                loop {
                    let (found, more) = social.search(prefix, after.as_ref(), limit).unwrap();
                    assert!(found.len() <= limit.max(1) && (!more || !found.is_empty()));
                    all.extend(found);
                    if !more {
                        break;
                    }
                    after = all.last().cloned();
                }
                assert_eq!(all, expected, "{prefix:?}, limit {limit}");
            }
        }
    });
}

#[test]
fn tokens_are_revoked_singly_all_and_by_a_new_password() {
    let data = tempfile::tempdir().unwrap();
    let alice = name("alice");
    let now = || {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(now.as_millis()).unwrap()
    };
    // No two tokens, and no revocation, are of the same millisecond.
    let next = async || {
        tokio::time::sleep(Duration::from_millis(2)).await;
        now()
    };
    let accepted = async |social: &Social, issued: &[u64]| {
        let checks = issued.iter().map(|issued| social.check_token(&alice, *issued));
        join_all(checks).await.iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    let (created, issued) = on_data(data.path(), async |social, _| {
        register(social, &["alice"]).await;
        let issued = [next().await, next().await, next().await];
        assert_eq!(accepted(social, &issued).await, [true; 3]);
        let token = social::Issued { at: issued[1], expires: issued[1] + 60_000 };
        social.log_out(&alice, Some(token)).await.unwrap();
        assert_eq!(accepted(social, &issued).await, [true, false, true]);
        assert!(social.check_token(&name("nobody"), now()).await.is_err());
        (social.profile(&alice).await.unwrap().created, issued)
    });
    on_data(data.path(), async |social, _| {
        assert_eq!(accepted(social, &issued).await, [true, false, true], "after a restart");
        assert_eq!(social.profile(&alice).await.unwrap().created, created);
        next().await;
        social.log_out(&alice, None).await.unwrap();
        let later = next().await;
        assert_eq!(accepted(social, &issued).await, [false; 3]);
        assert_eq!(accepted(social, &[later]).await, [true]);

        let new = || Password::new("battery staple").unwrap();
        let wrong = social.change_password(&alice, "battery staple".into(), new()).await;
        assert!(matches!(wrong, Err(SocialError::WrongCredentials)));
        assert_eq!(accepted(social, &[later]).await, [true]);
        social.change_password(&alice, PASSWORD.to_owned(), new()).await.unwrap();
        assert_eq!(accepted(social, &[later]).await, [false]);
        social.log_in(&alice, "battery staple".to_owned()).await.unwrap();
        assert!(social.log_in(&alice, PASSWORD.to_owned()).await.is_err());
    });
}

#[test]
fn health_counts_live_processes() {
    on_a_node(async |social, _| {
        let empty = social.health().unwrap();
        assert_eq!((empty.status, empty.live_entities), (social::Status::Ok, 0));
        register(social, &["alice", "bob"]).await;
        let health = social.health().unwrap();
        assert_eq!(health.live_entities, 2);
        assert!((2..health.process_limit).contains(&health.processes));
        assert!(health.records >= empty.records.map(|records| records + 2));
        assert!(health.file_bytes > Some(0));
        social.post(&name("alice"), text("first"), None).await.unwrap();
        let records = social.health().unwrap().records;
        social.post(&name("alice"), text("second"), None).await.unwrap();
        let one_more = records.map(|records| records + 1);
        assert_eq!(social.health().unwrap().records, one_more, "a post is one record");
    });
}

#[test]
fn health_reports_a_read_only_store_even_if_it_is_unreadable() {
    const SNAPSHOTS: u32 = 8;
    let data = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let store = throng_store::Options::default().snapshots_max(SNAPSHOTS);
        let node = Node::options(data.path()).store(store).open(runtime).unwrap();
        let social = Social::new(node.clone(), runtime.clone(), 0).unwrap();
        let snapshots: Vec<_> = std::iter::from_fn(|| node.store().snapshot().ok()).collect();
        assert!(!snapshots.is_empty());
        assert!(matches!(social.health(), Err(SocialError::Unavailable(_))));

        node.store().close();
        let health = social.health().unwrap();
        assert_eq!((health.status, health.records), (social::Status::ReadOnly, None));
        drop(snapshots);
        let health = social.health().unwrap();
        assert_eq!(health.status, social::Status::ReadOnly);
        assert!(health.records.is_some());
        node.shutdown().await;
    });
}
