//! Pages of posts: as values for a caller in the program, and as bodies for answers.
//!
//! ```text
//! timeline's or author's process ──► PostPage ──► Listing   a caller in the program
//!        │                               └──────► body ───► answer
//!        └── CachedBody ◄── until a post changes ──┘
//! ```
//!
//! Most reads are of a listing's newest page. A read of a cached body costs one message, and touches no post.
//!
//! Invariants: a cached body is the body that would be made now, because each change of the listing invalidates it, and
//! because its owner is the process that has the listing: a change that is taken back takes the process along. All
//! cached bodies of a service together have at most [`ALL_BYTES_MAX`]; each takes some 200 bytes besides.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use throng_node::http::{Cursor, Signer};

use crate::ids::PostId;
use crate::name::Name;
use crate::post::{PageBudget, Post, Published};

/// Number of entries of a page whose request has no limit.
pub(crate) const LIMIT_DEFAULT: usize = 20;
/// Largest limit of a page.
pub(crate) const LIMIT_MAX: usize = 100;

/// Page of posts, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Posts of the page.
    pub posts: Vec<Post>,
    /// Id to pass as `before` for the next page, or `None` on the last page.
    pub next: Option<PostId>,
}

/// Page of posts as timelines share them, newest first.
#[derive(Debug)]
pub(crate) struct PostPage {
    posts: Vec<Arc<Published>>,
    next: Option<PostId>,
}

impl PostPage {
    /// Builds a page of `limit` from `posts`, of which [`wanted`] were requested; `cut` says that
    /// there are older posts in any case.
    pub(crate) fn of(mut posts: Vec<Arc<Published>>, limit: usize, cut: bool) -> PostPage {
        let found = posts.len();
        posts.truncate(limit.max(1));
        let mut room = PageBudget::default();
        let fitting = posts.iter().take_while(|shared| room.take(&shared.post.text)).count();
        posts.truncate(fitting);
        let more = cut || posts.len() < found;
        let next = if more { posts.last().map(|shared| shared.post.id) } else { None };
        PostPage { posts, next }
    }

    /// Encodes the page as the body of an answer, with a signed cursor of the next page.
    pub(crate) fn encode(&self, name: ListingName<'_>, signer: &Signer) -> Bytes {
        let next_cursor = self.next.map(|id| {
            let cursor = Cursor { time: id.time_ms(), id: id.get() };
            signer.seal_cursor(&name.to_string(), cursor)
        });
        let length: usize = self.posts.iter().map(|post| post.json().len() + 1).sum();
        let mut body = String::with_capacity(length + LISTING_BYTES);
        body.push_str(r#"{"posts":["#);
        for (number, post) in self.posts.iter().enumerate() {
            if number > 0 {
                body.push(',');
            }
            body.push_str(post.json());
        }
        body.push_str(r#"],"next_cursor":"#);
        match next_cursor {
            // The characters of a cursor need no escapes.
            Some(cursor) => body.extend(["\"", &cursor, "\""]),
            None => body.push_str("null"),
        }
        body.push('}');
        body.into()
    }
}

impl From<PostPage> for Listing {
    fn from(PostPage { posts, next }: PostPage) -> Listing {
        let posts = posts.into_iter().map(|shared| match Arc::try_unwrap(shared) {
            Ok(published) => published.post,
            Err(shared) => shared.post.clone(),
        });
        Listing { posts: posts.collect(), next }
    }
}

/// Returns the number of posts to request for a page of `limit`. One post more tells whether there
/// is a next page. A page holds at least one post, so that paging always advances.
pub(crate) fn wanted(limit: usize) -> usize {
    limit.max(1).saturating_add(1)
}

/// Name of a listing, under which its cursors are signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListingName<'n> {
    kind: &'static str,
    owner: &'n Name,
}

impl<'n> ListingName<'n> {
    /// Returns the name of a user's *Following* timeline.
    pub(crate) fn timeline(owner: &'n Name) -> ListingName<'n> {
        ListingName { kind: "timeline", owner }
    }

    pub(crate) fn posts(owner: &'n Name) -> ListingName<'n> {
        ListingName { kind: "posts", owner }
    }
}

impl fmt::Display for ListingName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.owner)
    }
}

/// Memory of the cached bodies of a service; a clone counts the same memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyMemory(Arc<AtomicUsize>);

impl BodyMemory {
    /// Takes memory for a body, unless all bodies together would have too much.
    fn take(&self, bytes: usize) -> Option<BodyPlace> {
        // Relaxed, as for the release: the count guards no other data.
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            Some(taken + bytes).filter(|taken| *taken <= ALL_BYTES_MAX)
        });
        taken.ok().map(|_| BodyPlace { memory: self.clone(), bytes })
    }
}

/// Memory of one body, released when dropped.
#[derive(Debug)]
struct BodyPlace {
    memory: BodyMemory,
    bytes: usize,
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Body of a listing's newest page, cached by the process that has the listing.
#[derive(Debug, Default)]
pub(crate) struct CachedBody(Mutex<Option<Box<Cached>>>);

#[derive(Debug)]
struct Cached {
    limit: usize,
    signer: Signer,
    body: Bytes,
    _place: BodyPlace,
}

impl CachedBody {
    /// Returns the body of a page of `limit` posts below `before`. Only the body of the newest page is cached, and only
    /// up to [`BODY_BYTES_MAX`].
    pub(crate) fn get_or_make<E>(
        &self,
        memory: &BodyMemory,
        signer: &Signer,
        before: Option<PostId>,
        limit: usize,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if before.is_some() {
            return make();
        }
        let fits = |cached: &&Cached| cached.limit == limit && cached.signer.is_clone_of(signer);
        if let Some(cached) = self.cached().as_deref().filter(fits) {
            return Ok(cached.body.clone());
        }
        let body = make()?;
        if body.len() <= BODY_BYTES_MAX {
            // Frees the memory of an earlier body first.
            self.invalidate();
            *self.cached() = memory.take(body.len()).map(|place| {
                Box::new(Cached {
                    limit,
                    signer: signer.clone(),
                    body: body.clone(),
                    _place: place,
                })
            });
        }
        Ok(body)
    }

    pub(crate) fn invalidate(&self) {
        *self.cached() = None;
    }

    fn cached(&self) -> MutexGuard<'_, Option<Box<Cached>>> {
        // Each change is a single step, so a panic leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for the braces, names and cursor of a listing.
const LISTING_BYTES: usize = 128;

/// Maximum bytes of a cached body: 20 posts of up to 700 bytes. A process with a larger page would take far more memory
/// than others.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of all cached bodies: 15,000 pages of 20 short posts. A page beyond them is made for each read.
const ALL_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::Value;

    use super::*;
    use crate::testing::{register, with_the_service};
    use crate::user::UserClient;
    use crate::{Social, Text};

    struct Cache {
        newest: CachedBody,
        memory: BodyMemory,
        signer: Signer,
    }

    impl Cache {
        fn new(memory: BodyMemory) -> Cache {
            Cache { newest: CachedBody::default(), memory, signer: Signer::from_key([7; 32]) }
        }

        /// Asks for a page of `limit`, whose body has `bytes` if it is made now. Returns the number of bytes of the
        /// answer, and whether it was made now.
        fn get(&self, before: Option<u64>, limit: usize, bytes: usize) -> (usize, bool) {
            let (before, mut is_made) = (before.map(PostId::new), false);
            let make = || {
                is_made = true;
                Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))
            };
            let Ok(body) = self.newest.get_or_make(&self.memory, &self.signer, before, limit, make);
            (body.len(), is_made)
        }

        fn taken(&self) -> usize {
            self.memory.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_newest_page_is_cached_until_it_changes() {
        let mut cache = Cache::new(BodyMemory::default());
        assert_eq!(cache.get(None, 20, 1), (1, true));
        assert_eq!(cache.get(None, 20, 2), (1, false));
        assert_eq!(cache.get(Some(9), 20, 3), (3, true), "an older page is not cached");
        assert_eq!(cache.get(None, 20, 4), (1, false), "and does not replace the newest");
        assert_eq!(cache.get(None, 21, 5), (5, true), "a page of another length");
        assert_eq!(cache.get(None, 20, 6), (6, true));
        cache.signer = Signer::from_key([7; 32]);
        assert_eq!(cache.get(None, 20, 7), (7, true), "a page with another signature");
        cache.newest.invalidate();
        assert_eq!(cache.taken(), 0);
        assert_eq!(cache.get(None, 20, 8), (8, true));
        assert_eq!(cache.taken(), 8);
        let memory = cache.memory.clone();
        drop(cache);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn neither_a_large_page_nor_an_error_is_cached() {
        let cache = Cache::new(BodyMemory::default());
        assert_eq!(cache.get(None, 20, BODY_BYTES_MAX + 1), (BODY_BYTES_MAX + 1, true));
        let Cache { newest, memory, signer } = &cache;
        let failed = newest.get_or_make(memory, signer, None, 20, || Err("no user"));
        assert_eq!(failed, Err("no user"));
        assert_eq!(cache.get(None, 20, BODY_BYTES_MAX), (BODY_BYTES_MAX, true));
        assert_eq!(cache.get(None, 20, 1), (BODY_BYTES_MAX, false));
    }

    #[test]
    fn all_cached_bodies_together_have_a_maximum() {
        let memory = BodyMemory::default();
        let all: Vec<Cache> = (0..=ALL_BYTES_MAX / BODY_BYTES_MAX)
            .map(|_| {
                let cache = Cache::new(memory.clone());
                cache.get(None, 20, BODY_BYTES_MAX);
                cache
            })
            .collect();
        let (last, others) = all.split_last().unwrap();
        assert!(others.iter().all(|cache| !cache.get(None, 20, 1).1));
        assert_eq!(last.taken(), ALL_BYTES_MAX);
        assert_eq!(last.get(None, 20, 1), (1, true), "there is no room");
        others[0].newest.invalidate();
        assert_eq!(last.get(None, 20, 1), (1, true));
        assert_eq!(last.get(None, 20, 2), (1, false));
    }

    /// Checks the bodies after each kind of change, while bodies of the earlier pages are cached.
    #[test]
    fn a_body_has_the_posts_of_the_page_after_every_change() {
        with_the_service(1, async |social| {
            let users = register(social, ["alice", "bob", "carol"]).await;
            let [alice, bob, carol] = &users;
            let signer = Signer::from_key([7; 32]);
            let post = async |user: &Name, text: &str| {
                social.post(user, Text::new(text).unwrap(), None).await.unwrap().post.id
            };
            let check = async |change: &str, newest: usize| {
                let found = check_bodies(social, &users, &signer).await;
                assert_eq!(found, [newest, 0, 0], "posts of the timelines after: {change}");
            };
            check("nothing", 0).await;
            let first = post(bob, "a post before the follow").await;
            check("a post that nobody follows", 0).await;
            social.follow(alice, bob).await.unwrap();
            check("a follow", 1).await;
            let second = post(bob, "a live post").await;
            check("a live post", 2).await;
            post(carol, "a post of a stranger").await;
            check("a post of a stranger", 2).await;
            social.follow(alice, carol).await.unwrap();
            check("a second follow", 3).await;
            social.delete_post(bob, second).await.unwrap();
            check("a deletion of the newest", 2).await;
            social.delete_post(bob, first).await.unwrap();
            check("a deletion of an older post", 1).await;
            post(bob, "another").await;
            check("another post", 2).await;
            // The author's part of a block, as if the reader could not be reached for the end of the follow.
            social.user(bob).block(alice.clone()).await.unwrap().unwrap();
            check("a block", 1).await;
            social.unblock(bob, alice).await.unwrap();
            check("the end of the block", 2).await;
            social.unfollow(alice, bob).await.unwrap();
            check("the end of the follow", 1).await;
            for _ in 0..4 {
                post(carol, &"long ".repeat(900)).await;
            }
            check("more text than is cached", 5).await;
        });
    }

    /// Compares all bodies with the pages, and returns the number of posts of each timeline.
    async fn check_bodies(social: &Social, users: &[Name; 3], signer: &Signer) -> [usize; 3] {
        let mut found = [0; 3];
        for (user, found) in users.iter().zip(&mut found) {
            // The first body was cached before the change, because it is also the last.
            for limit in [20, 1, 20] {
                let timeline = social.timeline(user, None, limit).await.unwrap();
                let posts = social.posts(user, None, limit).await.unwrap();
                // The second body of a page is the cached one.
                for _ in 0..2 {
                    let body = social.timeline_body(user, None, limit, signer).await.unwrap();
                    check_body(&body, &timeline, ListingName::timeline(user), signer);
                    let body = social.posts_body(user, None, limit, signer).await.unwrap();
                    check_body(&body, &posts, ListingName::posts(user), signer);
                }
                *found = timeline.posts.len();
            }
        }
        found
    }

    fn check_body(body: &[u8], page: &Listing, name: ListingName<'_>, signer: &Signer) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let posts: Vec<_> = body["posts"].as_array().unwrap().iter().collect();
        let field = |field: &str| -> Vec<_> {
            posts.iter().map(|post| post[field].as_str().unwrap().to_owned()).collect()
        };
        let expected =
            |field: fn(&Post) -> String| -> Vec<_> { page.posts.iter().map(field).collect() };
        assert_eq!(field("id"), expected(|post| post.id.to_string()));
        assert_eq!(field("author"), expected(|post| post.author.to_string()));
        assert_eq!(field("text"), expected(|post| post.text.as_str().to_owned()));
        let next = body["next_cursor"]
            .as_str()
            .map(|sealed| PostId::new(signer.open_cursor(&name.to_string(), sealed).unwrap().id));
        assert_eq!(next, page.next);
    }
}
