//! Some hundred users over 64 connections: every timeline is right, and no acknowledged data is
//! lost when the node is killed meanwhile. `cargo xtask stress service-kill` runs it with a
//! thousand users, by `THRONG_POPULATION_USERS`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use fastrand::Rng;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Client, Node, send};

/// Number of users that each user follows, and number of posts of each user: more than fill the
/// largest page.
const FOLLOWS: usize = 12;
const POSTS: usize = 10;
const CONNECTIONS: usize = 64;

fn users() -> usize {
    std::env::var("THRONG_POPULATION_USERS").map_or(150, |users| users.parse().unwrap())
}

#[tokio::test]
async fn timelines_are_whole_and_survive_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &["--unlimited"]);
    let world = World::settle(&node).await;
    world.assert_timelines(&node).await;
    node.client().assert_healthy().await;

    let acts = live_until_killed(&node, &world.tokens).await;
    assert_eq!(node.wait().status.code(), None, "killed, not ended");
    let node = Node::start(data.path(), &["--unlimited"]);
    let world = World::look(&node, world.tokens).await;
    assert_survived(&node, &world, acts).await;

    // The repeated requests have taken effect; all data must still be consistent.
    let world = World::look(&node, world.tokens).await;
    world.assert_timelines(&node).await;
    node.client().assert_healthy().await;
}

/// Expected state of the service: all follows and posts.
struct World {
    tokens: Vec<String>,
    /// Followed users of each user, by number.
    following: Vec<BTreeSet<usize>>,
    /// Posts of each user, newest first.
    posts: Vec<Vec<Post>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Post {
    id: u64,
    author: String,
    text: String,
}

impl Post {
    fn from_json(value: &Value) -> Post {
        let text = |field: &str| value[field].as_str().unwrap().to_owned();
        assert!(value["time"].as_u64() > Some(1_700_000_000_000), "{value}");
        Post { id: text("id").parse().unwrap(), author: text("author"), text: text("text") }
    }
}

impl World {
    /// Registers all users, lets them follow and post, and returns the acknowledged state.
    async fn settle(node: &Node) -> World {
        let tokens =
            for_each_user(node, async |client, user| client.register(&name(user)).await).await;
        let following = for_each_user(node, async |client, user| {
            let following = settled_following(user);
            for &target in &following {
                let path = format!("/api/v1/following/{}", name(target));
                let answer = client.put(&path, &tokens[user]).await;
                assert_eq!(answer.status, 204, "{answer:?}");
            }
            following
        })
        .await;
        let posts = for_each_user(node, async |client, user| {
            let mut posts = Vec::new();
            for number in 0..POSTS {
                let text = format!("{} says {number}", name(user));
                let body = json!({ "text": text });
                let answer = client.post("/api/v1/posts", &tokens[user], &body).await;
                assert_eq!(answer.status, 201, "{answer:?}");
                posts.insert(0, Post::from_json(&answer.body));
                assert_eq!((&posts[0].author, &posts[0].text), (&name(user), &text));
            }
            posts
        })
        .await;
        World { tokens, following, posts }
    }

    /// Reads the followed users and posts of every user.
    async fn look(node: &Node, tokens: Vec<String>) -> World {
        let seen = for_each_user(node, async |client, user| {
            let following = client.get("/api/v1/following", &tokens[user]).await;
            let names = following.body["following"].as_array().unwrap().iter();
            let following = names.map(|name| number(name.as_str().unwrap())).collect();
            let path = format!("/api/v1/users/{}/posts", name(user));
            (following, read_all(client, &path, &tokens[user], 100).await)
        })
        .await;
        let (following, posts) = seen.into_iter().unzip();
        World { tokens, following, posts }
    }

    /// Pages through every timeline and compares it with the posts of the followed users.
    async fn assert_timelines(&self, node: &Node) {
        let lengths = for_each_user(node, async |client, user| {
            let followed = self.following[user].iter();
            let mut expected: Vec<&Post> =
                followed.flat_map(|&target| &self.posts[target]).collect();
            expected.sort_by_key(|post| std::cmp::Reverse(post.id));
            let limit = [20, 33, 100][user % 3];
            let timeline = read_all(client, "/api/v1/timeline", &self.tokens[user], limit).await;
            assert_eq!(timeline.len(), expected.len(), "{}", name(user));
            for (found, expected) in timeline.iter().zip(expected) {
                assert_eq!(found, expected, "{}", name(user));
            }
            timeline.len()
        })
        .await;
        let posts: usize = lengths.iter().sum();
        assert!(posts >= users() * FOLLOWS * POSTS, "{posts}");
    }
}

/// Users that [`World::settle`] lets `user` follow.
fn settled_following(user: usize) -> BTreeSet<usize> {
    let mut random = Rng::with_seed(user as u64);
    let mut following = BTreeSet::new();
    while following.len() < FOLLOWS {
        let target = random.usize(..users());
        if target != user {
            following.insert(target);
        }
    }
    following
}

/// Request of a client while the node was killed.
struct Act {
    user: usize,
    what: What,
    /// Response, if there was one.
    acknowledged: Option<Value>,
}

enum What {
    Post { text: String, key: Option<String> },
    Follow(usize),
}

/// Number of acts per user before the node is killed; without the kill, the clients would go on.
const ACTS_BEFORE_KILL: usize = 3;

/// Lets all users post and follow until the node is killed meanwhile.
async fn live_until_killed(node: &Node, tokens: &[String]) -> Vec<Act> {
    let (acts_done, killed) = (Cell::new(0), Cell::new(false));
    let lives = (0..CONNECTIONS).map(async |worker| {
        let client = node.client();
        let mut random = Rng::with_seed(1_000_000 + worker as u64);
        let mut acts = Vec::new();
        for turn in 0.. {
            let user = (worker + turn * CONNECTIONS) % users();
            let what = What::choose(&mut random, worker, turn, user);
            let answer = what.attempt(&client, &tokens[user]).await;
            let lost = answer.is_err();
            let acknowledged = answer.ok().map(|answer| {
                assert!(matches!(answer.status, 201 | 204), "{answer:?}");
                answer.body
            });
            acts.push(Act { user, what, acknowledged });
            if lost {
                assert!(killed.get(), "the node went away by itself");
                break;
            }
            acts_done.set(acts_done.get() + 1);
            if acts_done.get() == ACTS_BEFORE_KILL * users() {
                killed.set(true);
                node.signal("KILL").await; // the others go on meanwhile
            }
        }
        acts
    });
    join_all(lives).await.into_iter().flatten().collect()
}

impl What {
    /// One act in four follows a user; the other acts post, half of them under a key.
    fn choose(random: &mut Rng, worker: usize, turn: usize, user: usize) -> What {
        let (follow, keyed) = (random.usize(..4) == 0, random.bool());
        let target = random.usize(..users());
        if follow && target != user {
            return What::Follow(target);
        }
        let text = format!("{worker}/{turn} of the second load");
        What::Post { key: keyed.then(|| format!("key-{worker}-{turn}")), text }
    }

    async fn attempt(&self, client: &Client, token: &str) -> reqwest::Result<Answer> {
        let request = match self {
            What::Follow(target) => {
                client.request(Method::PUT, &format!("/api/v1/following/{}", name(*target)))
            }
            What::Post { text, key } => {
                let request = client.request(Method::POST, "/api/v1/posts");
                let request = match key {
                    Some(key) => request.header("idempotency-key", key),
                    None => request,
                };
                request.json(&json!({ "text": text }))
            }
        };
        send(request.bearer_auth(token)).await
    }
}

/// Compares the data of the killed node with the acknowledged state, and repeats posts without a
/// response under their keys.
async fn assert_survived(node: &Node, world: &World, acts: Vec<Act>) {
    let client = node.client();
    let kept: HashMap<&str, Vec<&Post>> =
        world.posts.iter().flatten().fold(HashMap::new(), |mut by_text, post| {
            by_text.entry(post.text.as_str()).or_default().push(post);
            by_text
        });
    let mut ids = BTreeSet::new();
    for posts in &world.posts {
        assert!(posts.is_sorted_by(|newer, older| newer.id > older.id));
        assert!(posts.iter().all(|post| ids.insert(post.id)), "an id was given twice");
    }
    let mut attempted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut lost = 0;
    for Act { user, what, acknowledged } in acts {
        match (&what, &acknowledged) {
            (What::Follow(target), acknowledged) => {
                attempted.entry(user).or_default().insert(*target);
                let follows = world.following[user].contains(target);
                assert!(follows || acknowledged.is_none(), "{user} no longer follows {target}");
            }
            (What::Post { text, .. }, Some(answer)) => {
                let kept = kept.get(text.as_str()).map_or(&[][..], Vec::as_slice);
                assert_eq!(kept, [&Post::from_json(answer)], "acknowledged: {text}");
            }
            (What::Post { text, key }, None) => {
                lost += 1;
                let kept = kept.get(text.as_str()).map_or(&[][..], Vec::as_slice);
                assert!(kept.len() <= 1, "twice: {kept:?}");
                if key.is_none() {
                    continue;
                }
                let first = what.attempt(&client, &world.tokens[user]).await.unwrap();
                let again = what.attempt(&client, &world.tokens[user]).await.unwrap();
                assert_eq!(first.status, if kept.is_empty() { 201 } else { 200 }, "{first:?}");
                assert_eq!((again.status, &again.body), (200, &first.body));
                if let [post] = kept {
                    assert_eq!(**post, Post::from_json(&first.body));
                }
                let path = format!("/api/v1/users/{}/posts", name(user));
                let posts = read_all(&client, &path, &world.tokens[user], 100).await;
                assert_eq!(posts.iter().filter(|post| post.text == *text).count(), 1);
            }
        }
    }
    assert!(lost > 0, "the kill came between all requests: nothing was tested");
    for (user, following) in world.following.iter().enumerate() {
        let nobody = BTreeSet::new();
        let attempted = attempted.get(&user).unwrap_or(&nobody);
        let settled = settled_following(user);
        assert!(settled.is_subset(following), "user {user} lost somebody");
        let unknown: Vec<_> =
            following.difference(&settled).filter(|target| !attempted.contains(target)).collect();
        assert!(unknown.is_empty(), "user {user} follows {unknown:?} unasked");
    }
}

/// Reads a listing to its end, page by page, as posts newest first.
async fn read_all(client: &Client, path: &str, token: &str, limit: usize) -> Vec<Post> {
    let mut all: Vec<Post> = Vec::new();
    let mut cursor = None;
    loop {
        let page = match &cursor {
            None => client.get(&format!("{path}?limit={limit}"), token).await,
            Some(cursor) => {
                client.get(&format!("{path}?limit={limit}&cursor={cursor}"), token).await
            }
        };
        assert_eq!(page.status, 200, "{page:?}");
        let posts = page.body["posts"].as_array().unwrap();
        all.extend(posts.iter().map(Post::from_json));
        match page.body["next_cursor"].as_str() {
            // A page is full if another page follows.
            Some(next) => {
                assert_eq!(posts.len(), limit);
                cursor = Some(next.to_owned());
            }
            None => return all,
        }
    }
}

/// Runs `work` for every user, 64 at once, each over its own connection; returns the results in the
/// order of users.
async fn for_each_user<R>(node: &Node, work: impl AsyncFn(&Client, usize) -> R) -> Vec<R> {
    let workers = (0..CONNECTIONS).map(async |worker| {
        let client = node.client();
        let mut results = Vec::new();
        for user in (worker..users()).step_by(CONNECTIONS) {
            results.push((user, work(&client, user).await));
        }
        results
    });
    let mut results: Vec<(usize, R)> = join_all(workers).await.into_iter().flatten().collect();
    results.sort_by_key(|(user, _)| *user);
    results.into_iter().map(|(_, result)| result).collect()
}

fn name(user: usize) -> String {
    format!("user_{user}")
}

fn number(name: &str) -> usize {
    name.strip_prefix("user_").unwrap().parse().unwrap()
}
