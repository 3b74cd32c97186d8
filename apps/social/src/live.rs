//! Live timelines: the newest posts of those whom a user follows, kept in memory while the user reads.
//!
//! ```text
//!  User "bob" ──after commit──▶ Relay 0 ─┬─▶ Timeline "alice"   newest posts, newest first
//!   posts, deletes        └───▶ Relay 1  └─▶ Timeline "carol"
//!                                 ▲
//!  Timeline ──subscribes, then asks each author for the newest posts
//! ```
//!
//! A timeline belongs to one relay, which has the list of its subscribers by author, so that a large fan-out is
//! spread over the relays, and each timeline gets the posts of an author in their order. Authors whom no live
//! timeline follows cost a message to each relay, and no more.
//!
//! Invariants:
//! * A timeline has every post above its floor of every author whom it has subscribed to, and no other. Posts
//!   below the floor are asked for when a page needs them.
//! * A post that is acknowledged is in the mailbox of each live timeline that has subscribed to its author, or
//!   was found when the timeline was built.
//! * A timeline whose follows change, or whose relay has failed, is built again before it is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use throng::prelude::*;
use throng::{Registry, Restart, Timeout};

use crate::error::{SocialError, unavailable};
use crate::ids::PostId;
use crate::merge::{Merge, Merged};
use crate::name::Name;
use crate::post::Post;

/// The live timelines of a service; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timelines: Registry<Name, Timeline>,
    /// Supervisor of the relays.
    supervisor: Address<Supervisor>,
    relays: Box<[Child<Relay>]>,
    /// Number of subscriptions of all timelines.
    subscriptions: Arc<AtomicUsize>,
    /// Number of times that a relay has started, or was found dead. A timeline that has subscribed at an earlier
    /// number may have missed posts.
    epoch: Arc<AtomicUsize>,
}

/// Change of an author's posts.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The author has published a post.
    Posted(Arc<Post>),
    /// The author has deleted a post.
    Deleted(PostId),
}

impl Live {
    /// Starts as many relays as the runtime has workers.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable) if the runtime has no room for them.
    pub(crate) fn start(runtime: &RuntimeHandle) -> Result<Live, SocialError> {
        let workers = runtime.metrics().workers;
        let workers = workers.iter().filter(|worker| !worker.guest && !worker.spare);
        let (subscriptions, epoch) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        // A relay has nothing that must not be lost, so it may fail often.
        let mut supervisor = Supervisor::one_for_one().intensity(1_000, Duration::from_secs(1));
        let mut relays = Vec::new();
        for (number, _) in workers.enumerate() {
            let (subscriptions, epoch) = (subscriptions.clone(), epoch.clone());
            let relay = ChildSpec::new(move || Relay::new(&subscriptions, &epoch));
            let relay = relay.restart(Restart::Permanent);
            relays.push(relay.handle());
            supervisor = supervisor.child(number.to_string(), relay);
        }
        let supervisor = supervisor.start(runtime).map_err(unavailable)?;
        let (timelines, relays) = (Registry::new(runtime), relays.into());
        Ok(Live(Arc::new(Shared { timelines, supervisor, relays, subscriptions, epoch })))
    }

    /// Sends a change of an author's posts to all live timelines that follow the author.
    pub(crate) fn publish(&self, author: &Name, change: Change) {
        if self.0.subscriptions.load(Ordering::Relaxed) == 0 {
            return;
        }
        for relay in &self.0.relays {
            if relay.send(Publish { author: author.clone(), change: change.clone() }).is_err() {
                self.0.epoch.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until the timelines have all changes in their mailboxes that were published before, or are to be built
    /// again.
    pub(crate) async fn settle(&self) {
        if self.0.subscriptions.load(Ordering::Relaxed) == 0 {
            return;
        }
        for relay in &self.0.relays {
            if relay.call(Settle {}).await.is_err() {
                self.0.epoch.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes a reader's timeline build again before it is read, because the reader's follows have changed.
    pub(crate) fn refresh(&self, reader: &Name) {
        if let Some(timeline) = self.0.timelines.get(reader) {
            let _ = timeline.send(Refresh {});
        }
    }

    /// Returns the newest `wanted` posts with ids below `before` of a reader's timeline, or `None` if the
    /// timeline does not reach that far back, or there are too many live timelines.
    pub(crate) async fn page(
        &self,
        merge: &Merge,
        reader: &Name,
        before: Option<PostId>,
        wanted: usize,
    ) -> Result<Option<Vec<Post>>, SocialError> {
        for _ in 0..ATTEMPTS {
            let timeline = match self.0.timelines.get(reader) {
                Some(timeline) => timeline,
                None if self.0.timelines.len() >= TIMELINES_MAX => return Ok(None),
                None => {
                    let make = || Timeline::new(self.clone(), reader.clone());
                    let spawned = self.0.timelines.get_or_spawn(reader.clone(), make);
                    spawned.map_err(|error| unavailable(throng::Error::from(error)))?
                }
            };
            match timeline.page(merge.clone(), before, wanted).within(BUILD).await {
                Ok(page) => return page,
                // It has just ended, for want of readers.
                Err(CallError::NoProcess(_) | CallError::Died(_)) => {}
                Err(error) => return Err(unavailable(throng::Error::from(error))),
            }
        }
        Ok(None)
    }

    /// Returns the relay of a reader's timeline.
    fn relay(&self, reader: &Name) -> &Child<Relay> {
        let mut hasher = DefaultHasher::new();
        reader.hash(&mut hasher);
        &self.0.relays[hasher.finish() as usize % self.0.relays.len()]
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.supervisor.exit(ExitReason::Shutdown);
    }
}

/// Process that sends the changes of all authors to its share of the timelines.
struct Relay {
    /// Timelines that follow an author.
    readers: HashMap<Name, HashSet<Address<Timeline>>>,
    /// Authors whom a timeline follows.
    authors: HashMap<Pid, (Address<Timeline>, HashSet<Name>)>,
    subscriptions: Arc<AtomicUsize>,
}

impl Relay {
    fn new(subscriptions: &Arc<AtomicUsize>, epoch: &AtomicUsize) -> Relay {
        epoch.fetch_add(1, Ordering::Relaxed);
        Relay {
            readers: HashMap::new(),
            authors: HashMap::new(),
            subscriptions: subscriptions.clone(),
        }
    }

    /// Replaces the authors whom a timeline follows.
    fn replace(&mut self, reader: Address<Timeline>, authors: HashSet<Name>) {
        let (added, removed) = (authors.len(), self.remove(reader.pid()));
        for author in &authors {
            self.readers.entry(author.clone()).or_default().insert(reader);
        }
        if !authors.is_empty() {
            self.authors.insert(reader.pid(), (reader, authors));
        }
        self.subscriptions.fetch_add(added, Ordering::Relaxed);
        self.subscriptions.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Removes a timeline, and returns the number of authors whom it followed.
    fn remove(&mut self, reader: Pid) -> usize {
        let Some((address, authors)) = self.authors.remove(&reader) else { return 0 };
        for author in &authors {
            if let Some(readers) = self.readers.get_mut(author) {
                readers.remove(&address);
                if readers.is_empty() {
                    self.readers.remove(author);
                }
            }
        }
        authors.len()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let left = self.authors.values().map(|(_, authors)| authors.len()).sum();
        self.subscriptions.fetch_sub(left, Ordering::Relaxed);
    }
}

#[process(client = RelayClient)]
impl Relay {
    /// A timeline has ended.
    #[hook]
    fn down(&mut self, down: Down) {
        let removed = self.remove(down.pid);
        self.subscriptions.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Sends the changes of these authors to a timeline from now on, and of no others. Returns the present epoch.
    #[message]
    fn subscribe(
        &mut self,
        cx: &mut Context<Self>,
        reader: Address<Timeline>,
        authors: HashSet<Name>,
        epoch: Arc<AtomicUsize>,
    ) -> usize {
        if !self.authors.contains_key(&reader.pid()) {
            cx.monitor(reader);
        }
        self.replace(reader, authors);
        epoch.load(Ordering::Relaxed)
    }

    #[message(send)]
    fn publish(&mut self, author: Name, change: Change) {
        for reader in self.readers.get(&author).into_iter().flatten() {
            // A timeline that has ended is about to be removed.
            let _ = reader.send(Apply { author: author.clone(), change: change.clone() });
        }
    }

    #[message]
    fn settle(&mut self) {}
}

/// Process that keeps the newest posts of those whom a user follows.
struct Timeline {
    live: Live,
    reader: Name,
    /// Authors whose changes come; `None` before the timeline is built, and once it has to be built again.
    authors: Option<HashSet<Name>>,
    /// Epoch of the subscription.
    epoch: usize,
    posts: BTreeMap<PostId, Arc<Post>>,
    /// Bytes of the texts.
    bytes: usize,
    /// Posts with lower ids may be missing.
    floor: Option<PostId>,
    /// Set by each read.
    idle: Timeout,
}

impl Timeline {
    fn new(live: Live, reader: Name) -> Timeline {
        let (posts, bytes) = (BTreeMap::new(), 0);
        let idle = Timeout::default();
        Timeline { live, reader, authors: None, epoch: 0, posts, bytes, floor: None, idle }
    }

    /// Subscribes to the authors whom the user follows, and asks them for their newest posts. Changes that come
    /// meanwhile wait in the mailbox. Returns `false` if the relay is not running.
    async fn build(&mut self, cx: &mut Context<Self>, merge: &Merge) -> Result<bool, SocialError> {
        let mut authors: HashSet<Name> = merge.following(&self.reader).await?.into_iter().collect();
        let epoch = self.live.0.epoch.clone();
        let relay = self.live.relay(&self.reader);
        let subscribed =
            relay.call(Subscribe { reader: cx.address(), authors: authors.clone(), epoch });
        let Ok(epoch) = subscribed.await else { return Ok(false) };
        self.epoch = epoch;
        let list = authors.iter().cloned().collect();
        let Merged { posts, is_cut, hidden } =
            merge.newest(&self.reader, list, None, POSTS_MAX).await?;
        for author in hidden {
            authors.remove(&author);
        }
        let is_whole = !is_cut && posts.len() < POSTS_MAX;
        self.floor = if is_whole { None } else { posts.last().map(|post| post.id) };
        self.bytes = posts.iter().map(|post| post.text.as_str().len()).sum();
        self.posts = posts.into_iter().map(|post| (post.id, Arc::new(post))).collect();
        self.authors = Some(authors);
        self.trim();
        Ok(true)
    }

    /// Removes the oldest posts while there are too many.
    fn trim(&mut self) {
        while self.posts.len() > POSTS_MAX || (self.bytes > BYTES_MAX && self.posts.len() > 1) {
            let Some((_, oldest)) = self.posts.pop_first() else { return };
            self.bytes -= oldest.text.as_str().len();
            self.floor = self.posts.keys().next().copied();
        }
    }
}

#[process(client = TimelineClient)]
impl Timeline {
    /// Ends the timeline after a time without reads.
    #[message(send)]
    fn leave(&mut self, cx: &mut Context<Self>) {
        cx.stop_if_idle();
        // If a message waits, it is a change or a read.
        self.idle.set(cx, IDLE, Leave {});
    }

    /// Returns the newest `wanted` posts below `before`, or `None` if some of them may be below the floor. The
    /// merge comes with the message, so that a timeline at rest keeps no node open.
    #[message]
    async fn page(
        &mut self,
        cx: &mut Context<Self>,
        merge: Merge,
        before: Option<PostId>,
        wanted: usize,
    ) -> Result<Option<Vec<Post>>, SocialError> {
        self.idle.set(cx, IDLE, Leave {});
        if self.authors.is_none() || self.epoch != self.live.0.epoch.load(Ordering::Relaxed) {
            self.authors = None;
            match self.build(cx, &merge).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    cx.stop(ExitReason::Normal);
                    return Err(error);
                }
            }
        }
        let end = before.unwrap_or(PostId::new(u64::MAX));
        let posts = self.posts.range(..end).rev().take(wanted);
        let posts: Vec<Post> = posts.map(|(_, post)| Post::clone(post)).collect();
        let is_whole = posts.len() == wanted || self.floor.is_none();
        Ok(is_whole.then_some(posts))
    }

    /// Makes the timeline build again before it is read.
    #[message(send)]
    fn refresh(&mut self) {
        self.authors = None;
    }

    /// Applies a change of an author's posts.
    #[message(send)]
    fn apply(&mut self, author: Name, change: Change) {
        // A former author may have published before the relay knew.
        if !self.authors.as_ref().is_some_and(|authors| authors.contains(&author)) {
            return;
        }
        match change {
            Change::Posted(post) => {
                if self.floor.is_none_or(|floor| post.id > floor) {
                    self.bytes += post.text.as_str().len();
                    if let Some(known) = self.posts.insert(post.id, post) {
                        self.bytes -= known.text.as_str().len();
                    }
                    self.trim();
                }
            }
            Change::Deleted(id) => {
                if let Some(deleted) = self.posts.remove(&id) {
                    self.bytes -= deleted.text.as_str().len();
                }
            }
        }
    }
}

/// Maximum number of posts of a live timeline.
const POSTS_MAX: usize = 400;

/// Maximum bytes of text of a live timeline, unless a single post has more.
const BYTES_MAX: usize = 256 * 1024;

/// Maximum number of live timelines; further readers are served by asking the authors.
const TIMELINES_MAX: usize = 100_000;

/// Time after which a timeline that is not read ends.
const IDLE: Duration = Duration::from_secs(60);

/// Maximum time to build a timeline.
const BUILD: Duration = Duration::from_secs(30);

/// Number of times that a timeline is started for a read, if it ends meanwhile.
const ATTEMPTS: usize = 3;
