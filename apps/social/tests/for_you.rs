//! Tags, interests and For you without HTTP: guarantees of their operations, on a real node.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use futures_util::future::join_all;
use social::{
    Candidate, ForYou, ForYouPost, PostId, Reader, Score, Social, SocialError, Tag, VisitPosition,
};

use cpu::cpu_ns;
use nodes::{name, on_a_node, on_data, text, until};
use users::register;

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/nodes.rs"]
mod nodes;
mod support;
#[path = "support/users.rs"]
mod users;

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

#[test]
fn a_user_has_at_most_ten_interests_which_outlive_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let alice = name("alice");
    on_data(data.path(), async |social, _| {
        register(social, &["alice"]).await;
        for number in (0..10).chain([3]) {
            social.add_interest(&alice, &tag(&format!("Tag{number}"))).await.unwrap();
        }
        let full = social.add_interest(&alice, &tag("rust")).await;
        assert!(matches!(full, Err(SocialError::InterestsFull)), "{full:?}");
        for _ in 0..2 {
            social.remove_interest(&alice, &tag("tag3")).await.unwrap();
        }
        social.add_interest(&alice, &tag("rust")).await.unwrap();
        for refused in [
            social.interests(&name("nobody")).await.map(drop),
            social.add_interest(&name("nobody"), &tag("rust")).await,
            social.remove_interest(&name("nobody"), &tag("rust")).await,
        ] {
            assert!(matches!(refused, Err(SocialError::NoSuchUser(_))), "{refused:?}");
        }
    });
    on_data(data.path(), async |social, _| {
        let found = social.interests(&alice).await.unwrap();
        let expected: Vec<Tag> = ["rust", "tag0", "tag1", "tag2", "tag4", "tag5", "tag6"]
            .into_iter()
            .chain(["tag7", "tag8", "tag9"])
            .map(tag)
            .collect();
        assert_eq!(found, expected);
    });
}

async fn post(social: &Social, author: &str, said: &str) -> PostId {
    social.post(&name(author), text(said), None).await.unwrap().post.id
}

/// Reads all pages of a visit, which are of `limit` posts.
async fn read_all(social: &Social, reader: &str, limit: usize) -> Vec<ForYouPost> {
    let (mut all, mut position) = (Vec::new(), None);
    loop {
        let page = social.for_you(&name(reader), position, limit).await.unwrap();
        assert!(page.posts.len() <= limit);
        all.extend(page.posts);
        position = page.next;
        if position.is_none() {
            return all;
        }
    }
}

fn with_reasons(posts: &[ForYouPost]) -> Vec<(PostId, String)> {
    posts.iter().map(|post| (post.liked.post.id, post.reason.to_string())).collect()
}

/// Waits until For you of a reader has these posts, for these reasons.
async fn wait_for(social: &Social, reader: &str, expected: &[(PostId, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(id, reason)| (*id, (*reason).to_owned())).collect();
    until(async || with_reasons(&read_all(social, reader, 100).await) == expected).await;
}

#[test]
fn posts_are_ranked_by_reason_and_likes_and_come_back_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let expected = on_data(data.path(), async |social, _| {
        register(social, &["alice", "bob", "carol", "dave", "erin"]).await;
        social.add_interest(&name("alice"), &tag("rust")).await.unwrap();
        social.follow(&name("alice"), &name("carol")).await.unwrap();
        let plain = post(social, "bob", "plain").await;
        let liked = post(social, "bob", "liked").await;
        let tagged = post(social, "bob", "tagged #Rust").await;
        let followed = post(social, "carol", "followed #rust").await;
        post(social, "alice", "my own #rust").await;
        wait_for(
            social,
            "alice",
            &[
                (followed, "following"),
                (tagged, "tag:rust"),
                (liked, "popular"),
                (plain, "popular"),
            ],
        )
        .await;
        // Four users are worth more than two doublings: 1 + 4 > 4.
        for reader in ["alice", "carol", "dave", "erin"] {
            social.like(&name(reader), &name("bob"), liked).await.unwrap();
        }
        let expected =
            [(liked, "popular"), (followed, "following"), (tagged, "tag:rust"), (plain, "popular")];
        wait_for(social, "alice", &expected).await;
        let likes: Vec<u64> =
            read_all(social, "alice", 1).await.iter().map(|post| post.liked.likes).collect();
        assert_eq!(likes, [4, 0, 0, 0]);
        expected
    });
    on_data(data.path(), async |social, _| {
        assert_eq!(
            with_reasons(&read_all(social, "alice", 2).await),
            expected.map(|(id, why)| (id, why.to_owned()))
        );
        // A like that is taken back takes the rank along.
        for reader in ["alice", "carol", "dave", "erin"] {
            social.unlike(&name(reader), &name("bob"), expected[0].0).await.unwrap();
        }
        let [liked, followed, tagged, plain] = expected;
        wait_for(social, "alice", &[followed, tagged, liked, plain]).await;
    });
}

#[test]
fn deleted_posts_and_blocked_authors_are_left_out_at_once() {
    on_a_node(async |social, _| {
        register(social, &["alice", "bob", "carol"]).await;
        let first = post(social, "bob", "#rust first").await;
        let second = post(social, "bob", "#rust second").await;
        let third = post(social, "carol", "#rust third").await;
        social.add_interest(&name("alice"), &tag("rust")).await.unwrap();
        let why = "tag:rust";
        wait_for(social, "alice", &[(third, why), (second, why), (first, why)]).await;
        let begun = social.for_you(&name("alice"), None, 1).await.unwrap();
        assert_eq!(begun.posts[0].liked.post.id, third);

        // From a page of a visit, and from a visit.
        social.delete_post(&name("bob"), second).await.unwrap();
        let page = social.for_you(&name("alice"), begun.next, 5).await.unwrap();
        assert_eq!((with_reasons(&page.posts), page.next), (vec![(first, why.to_owned())], None));
        assert_eq!(read_all(social, "alice", 5).await.len(), 2);

        for (blocker, blocked) in [("alice", "bob"), ("bob", "alice")] {
            let begun = social.for_you(&name("alice"), None, 1).await.unwrap();
            social.block(&name(blocker), &name(blocked)).await.unwrap();
            let page = social.for_you(&name("alice"), begun.next, 5).await.unwrap();
            assert_eq!((page.posts, page.next), (vec![], None), "{blocker}");
            assert_eq!(
                with_reasons(&read_all(social, "alice", 5).await),
                [(third, why.to_owned())]
            );
            social.unblock(&name(blocker), &name(blocked)).await.unwrap();
            assert_eq!(read_all(social, "alice", 5).await.len(), 2);
        }
    });
}

#[test]
fn a_visit_has_no_post_twice_while_posts_and_likes_arrive() {
    on_a_node(async |social, _| {
        register(social, &["alice", "bob", "carol", "dave", "erin", "frank", "gina"]).await;
        let authors = ["bob", "carol", "dave", "erin", "frank", "gina"];
        let mut expected = Vec::new();
        for number in 0..40 {
            expected.insert(0, (post(social, authors[number % 6], "hello").await, "popular"));
        }
        wait_for(social, "alice", &expected).await;
        for limit in [1, 3, 7, 40] {
            let (mut seen, mut position) = (Vec::new(), None);
            loop {
                let page = social.for_you(&name("alice"), position, limit).await.unwrap();
                assert!(page.posts.len() == limit || page.next.is_none());
                seen.extend(page.posts);
                // The oldest post gets likes, and there is another post.
                for reader in authors {
                    social.like(&name(reader), &name("bob"), expected[39].0).await.unwrap();
                }
                post(social, "carol", "another").await;
                position = page.next;
                if position.is_none() {
                    break;
                }
                let ids = async || {
                    let page = social.for_you(&name("alice"), position, limit).await.unwrap();
                    (with_reasons(&page.posts), page.next)
                };
                assert_eq!(ids().await, ids().await);
            }
            let mut ids: Vec<PostId> = seen.iter().map(|post| post.liked.post.id).collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count, "limit {limit}");
            assert!(count >= 40);
        }
    });
}

#[test]
fn a_visit_is_over_when_two_others_have_begun_or_the_node_has_stopped() {
    let data = tempfile::tempdir().unwrap();
    let alice = name("alice");
    let is_over = |page: Result<ForYou, SocialError>| matches!(page, Err(SocialError::VisitOver));
    let next = on_data(data.path(), async |social, _| {
        register(social, &["alice", "bob"]).await;
        let (first, second) =
            (post(social, "bob", "first").await, post(social, "bob", "second").await);
        wait_for(social, "alice", &[(second, "popular"), (first, "popular")]).await;
        let mut visits = Vec::new();
        for _ in 0..3 {
            visits.push(social.for_you(&alice, None, 1).await.unwrap().next);
        }
        assert!(visits.iter().all(Option::is_some));
        assert!(is_over(social.for_you(&alice, visits[0], 1).await));
        for position in &visits[1..] {
            let page = social.for_you(&alice, *position, 1).await.unwrap();
            assert_eq!(with_reasons(&page.posts), [(first, "popular".to_owned())]);
        }
        // A visit belongs to its reader, and a position beyond its end is the end.
        assert!(is_over(social.for_you(&name("bob"), visits[2], 1).await));
        let beyond = visits[2].map(|position| VisitPosition { offset: u64::MAX, ..position });
        let page = social.for_you(&alice, beyond, 1).await.unwrap();
        assert_eq!((page.posts, page.next), (vec![], None));
        let nobody = social.for_you(&name("nobody"), None, 1).await;
        assert!(matches!(nobody, Err(SocialError::NoSuchUser(_))));
        visits[2]
    });
    on_data(data.path(), async |social, _| {
        assert!(is_over(social.for_you(&alice, next, 1).await));
    });
}

#[test]
fn a_program_sets_the_order() {
    struct Alphabetical;
    impl Score for Alphabetical {
        fn score(&self, candidate: &Candidate, reader: &Reader) -> f64 {
            assert_eq!(reader.interests, [tag("rust")]);
            -f64::from(candidate.author.as_str().as_bytes()[0])
        }
    }
    on_a_node(async |social, _| {
        register(social, &["reader", "a", "b", "c"]).await;
        social.add_interest(&name("reader"), &tag("rust")).await.unwrap();
        let (b, a, c) = (
            post(social, "b", "b").await,
            post(social, "a", "a").await,
            post(social, "c", "#rust").await,
        );
        wait_for(social, "reader", &[(c, "tag:rust"), (a, "popular"), (b, "popular")]).await;
        let social = social.clone().with_score(Alphabetical);
        wait_for(&social, "reader", &[(a, "popular"), (b, "popular"), (c, "tag:rust")]).await;
    });
}

#[test]
fn the_most_active_tags_come_first() {
    on_a_node(async |social, _| {
        register(social, &["alice", "bob", "carol"]).await;
        assert_eq!(social.tags().await.unwrap(), []);
        for (author, said) in [
            ("alice", "#a #b #c"),
            ("bob", "#b #c"),
            ("carol", "#c"),
            ("alice", "#a"),
            ("alice", "no tag"),
        ] {
            post(social, author, said).await;
        }
        until(async || social.tags().await.unwrap() == [tag("c"), tag("b"), tag("a")]).await;
    });
}

/// Prints the rate and the cost of posts without a tag, and of posts that all have the same tag:
/// `cargo test --release -p social --test for_you -- --ignored --nocapture cost_of_a_post`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_post() {
    const AUTHORS: usize = 64;
    const POSTS: usize = 400;
    on_a_node(async |social, _| {
        let authors: Vec<String> = (0..AUTHORS).map(|number| format!("user_{number}")).collect();
        register(social, &authors.iter().map(String::as_str).collect::<Vec<_>>()).await;
        for round in 0..5 {
            for said in ["hello, world", "hello, #hot world"] {
                let (begun, busy) = (std::time::Instant::now(), cpu_ns());
                join_all(authors.iter().map(async |author| {
                    for _ in 0..POSTS {
                        post(social, author, said).await;
                    }
                }))
                .await;
                let posts = (AUTHORS * POSTS) as f64;
                let rate = posts / begun.elapsed().as_secs_f64();
                let cost = (cpu_ns() - busy) / posts / 1e3;
                println!("round {round}: {rate:.0} posts/s, {cost:.1} µs of CPU each, of {said:?}");
            }
        }
    });
}
