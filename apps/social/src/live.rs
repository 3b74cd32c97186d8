//! Live timelines: the newest posts of the authors whom a user follows, in memory while the user reads them.
//!
//! ```text
//!  User "bob" ──after commit──▶ Relay 0 ─┬─▶ Timeline "alice"   newest posts, newest first
//!   posts, deletes        └───▶ Relay 1  └─▶ Timeline "carol"
//!                                 ▲                      └──▶ Connection, Connection (sockets)
//!  Timeline ──subscribes, then asks each author for the newest posts
//! ```
//!
//! A timeline belongs to one relay, which lists its timelines by author. So a large fan-out is spread over the
//! relays, and each timeline gets the posts of an author in order. A post of an author whom no live timeline
//! follows costs a message and a call to each relay, and nothing while no timeline follows anybody.
//!
//! The posts of an author with very many followers are pushed as well, and not asked for at each read. With 99,000
//! live followers a push takes a third of the time of such a question (`cost_of_a_large_author` measures both), and a
//! timeline is live only while its user reads. So asking would be cheaper only for an author who posts more than three
//! times as often as each live follower reads.
//!
//! Invariants:
//! * A timeline has every post from its floor on of every author whom its reader follows and who does not block
//!   the reader, and no other post. When a page needs posts below the floor, the authors are asked for them.
//! * When a post is acknowledged, each live timeline that has subscribed to its author has it in its mailbox, or
//!   has found it when it was built, or is to be built again.
//! * A timeline is built again before its next read if the reader's follows have changed or its relay has failed.
//! * A watcher gets every change of its timeline once and in order, or a reset, after which it must read the
//!   timeline.
//!
//! A process that cannot be sent a message, because the runtime's mailbox budget is used up, is ended by a signal,
//! for which there is always room: a timeline is then built by its next read, and the client of a watcher connects
//! again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng::{MonitorRef, Registry, Restart, Timeout};
use throng_node::http::Signer;

use crate::error::{SocialError, unavailable};
use crate::ids::{PostId, unique_micros};
use crate::listing::{BodyMemory, CachedBody, ListingName, PostPage, wanted};
use crate::merge::{Merge, Merged};
use crate::name::Name;
use crate::post::Published;
use crate::shared_posts::SharedPosts;

#[cfg(test)]
mod tests;

/// The live timelines of a service; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timelines: Registry<Name, Timeline>,
    posts: SharedPosts,
    bodies: BodyMemory,
    supervisor: Address<Supervisor>,
    relays: Box<[Child<Relay>]>,
    /// Number of subscriptions of all timelines.
    subscriptions: Arc<AtomicUsize>,
    /// Number of times that a relay has started, or could not be reached. A timeline that has subscribed at an earlier
    /// number may have missed posts.
    epoch: Arc<AtomicUsize>,
}

/// Change in the posts of an author.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Posted(Arc<Published>),
    Deleted(PostId),
}

impl Change {
    fn post(&self) -> PostId {
        match self {
            Change::Posted(published) => published.post.id,
            Change::Deleted(id) => *id,
        }
    }
}

/// Message of a timeline to its watchers.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A change, which increases the sequence number of the watcher's position by 1.
    Change(Change),
    /// The watcher may have missed changes: it must read the timeline, and has this position afterwards.
    Reset(Position),
    /// Tokens of the reader were revoked: the watcher must check its token again.
    Revoked,
}

impl Message for News {
    type Reply = ();
}

/// Position in the changes of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Number of the stream of changes; a timeline begins another stream each time it is built.
    pub(crate) stream: u64,
    /// Number of changes in the stream up to the position.
    pub(crate) sequence: u64,
}

/// Answer to a process that begins to watch a timeline.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) timeline: Pid,
    /// Position of the watcher once it has handled `missed`.
    pub(crate) position: Position,
    /// Changes since the watcher's last position; `None` if it had no position, or if the timeline does not have
    /// all of these changes any more.
    pub(crate) missed: Option<Vec<Change>>,
}

impl Live {
    /// Starts as many relays as the runtime has workers.
    pub(crate) fn start(runtime: &RuntimeHandle) -> Result<Live, SocialError> {
        let (subscriptions, epoch) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        // A relay has nothing that must not be lost, so it may fail often.
        let mut supervisor = Supervisor::one_for_one().intensity(1_000, Duration::from_secs(1));
        let mut relays = Vec::new();
        for number in 0..relay_count(runtime) {
            let (subscriptions, epoch) = (subscriptions.clone(), epoch.clone());
            let relay = ChildSpec::new(move || Relay::new(&subscriptions, &epoch));
            let relay = relay.restart(Restart::Permanent);
            relays.push(relay.handle());
            supervisor = supervisor.child(number.to_string(), relay);
        }
        let (timelines, relays) = (Registry::new(runtime), relays.into());
        let (posts, bodies) = (SharedPosts::default(), BodyMemory::default());
        let supervisor = supervisor.start(runtime).map_err(unavailable)?;
        Ok(Live(Arc::new(Shared {
            timelines,
            posts,
            bodies,
            supervisor,
            relays,
            subscriptions,
            epoch,
        })))
    }

    /// Sends a change in an author's posts to all live timelines that follow the author.
    pub(crate) fn publish(&self, author: &Name, change: Change) {
        if self.0.subscriptions.load(Ordering::Relaxed) == 0 {
            return;
        }
        for relay in &self.0.relays {
            if relay.send(Publish { author: author.clone(), change: change.clone() }).is_err() {
                self.end_all();
            }
        }
    }

    /// Ends all timelines, because one of their relays may have lost a change.
    fn end_all(&self) {
        self.0.epoch.fetch_add(1, Ordering::Relaxed);
        for timeline in self.0.timelines.range::<Name>(..) {
            timeline.address.exit(unreachable_process());
        }
    }

    /// Waits until all changes that were published before are in the mailboxes of their timelines. A timeline whose
    /// relay has failed is to be built again instead.
    pub(crate) async fn settle(&self) {
        if self.0.subscriptions.load(Ordering::Relaxed) == 0 {
            return;
        }
        for relay in &self.0.relays {
            if relay.call(Settle {}).await.is_err() {
                self.end_all();
            }
        }
    }

    /// Requests that a reader's timeline is built again before its next read, because the follows have changed.
    pub(crate) fn refresh(&self, reader: &Name) {
        if let Some(timeline) = self.0.timelines.get(reader)
            && timeline.send(Refresh {}).is_err()
        {
            timeline.exit(unreachable_process());
        }
    }

    /// Requests that the watchers of a reader's timeline check their tokens again, because tokens were revoked.
    pub(crate) fn revoke(&self, reader: &Name) {
        // The watchers of a timeline that has ended close their sockets.
        if let Some(timeline) = self.0.timelines.get(reader)
            && timeline.send(Revoke {}).is_err()
        {
            timeline.exit(unreachable_process());
        }
    }

    /// Makes a process watch a reader's timeline, from its last position on.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable) if there are too many live timelines, or if the relay is not
    /// running; otherwise an error of the user or of an author that was asked.
    pub(crate) async fn watch(
        &self,
        merge: &Merge,
        reader: &Name,
        watcher: Recipient<News>,
        last: Option<Position>,
    ) -> Result<Watching, SocialError> {
        let watch = || Watch { merge: merge.clone(), watcher, last };
        let watching = self.ask(reader, watch).await?.transpose()?.flatten();
        watching.ok_or_else(|| unavailable(Unwatchable))
    }

    /// Calls a reader's timeline, which is started if necessary. Returns `None` if there are too many live timelines,
    /// or if the timeline ends again and again before it answers.
    async fn ask<T: Turn<Timeline>>(
        &self,
        reader: &Name,
        question: impl Fn() -> T,
    ) -> Result<Option<T::Reply>, SocialError> {
        for _ in 0..ATTEMPTS {
            let Some(timeline) = self.timeline(reader)? else { return Ok(None) };
            match timeline.call(question()).within(BUILD).await {
                Ok(answer) => return Ok(Some(answer)),
                // The timeline has ended, for instance because nobody read it: start another.
                Err(CallError::NoProcess(_) | CallError::Died(_)) => {}
                Err(error) => return Err(unavailable(throng::Error::from(error))),
            }
        }
        Ok(None)
    }

    /// Returns a reader's timeline, which it starts if necessary; `None` if there are too many live timelines.
    fn timeline(&self, reader: &Name) -> Result<Option<Address<Timeline>>, SocialError> {
        if let Some(timeline) = self.0.timelines.get(reader) {
            return Ok(Some(timeline));
        }
        if self.0.timelines.len() >= TIMELINES_MAX {
            return Ok(None);
        }
        let make = || Timeline::new(self.clone(), reader.clone());
        let spawned = self.0.timelines.get_or_spawn(reader.clone(), make);
        spawned.map(Some).map_err(|error| unavailable(throng::Error::from(error)))
    }

    /// Returns the newest `limit` posts with ids below `before` of a reader's timeline. Returns `None` if the
    /// timeline does not reach that far back, if its relay is not running, or if there are too many live timelines.
    pub(crate) async fn page(
        &self,
        merge: &Merge,
        reader: &Name,
        before: Option<PostId>,
        limit: usize,
    ) -> Result<Option<PostPage>, SocialError> {
        let page = || Page { merge: merge.clone(), before, limit };
        Ok(self.ask(reader, page).await?.transpose()?.flatten())
    }

    /// Returns the body of the answer with the [`page`](Live::page).
    pub(crate) async fn body(
        &self,
        merge: &Merge,
        reader: &Name,
        before: Option<PostId>,
        limit: usize,
        signer: &Signer,
    ) -> Result<Option<Bytes>, SocialError> {
        let body = || Body { merge: merge.clone(), before, limit, signer: signer.clone() };
        Ok(self.ask(reader, body).await?.transpose()?.flatten())
    }

    pub(crate) fn posts(&self) -> &SharedPosts {
        &self.0.posts
    }

    pub(crate) fn bodies(&self) -> &BodyMemory {
        &self.0.bodies
    }

    fn relay(&self, reader: &Name) -> &Child<Relay> {
        relay_of(&self.0.relays, reader)
    }
}

/// Returns the number of relays that spread news over the workers of a runtime: one for each.
pub(crate) fn relay_count(runtime: &RuntimeHandle) -> usize {
    let workers = runtime.metrics().workers;
    workers.iter().filter(|worker| !worker.guest && !worker.spare).count()
}

/// Returns the relay of a name, which is always the same.
pub(crate) fn relay_of<'r, R>(relays: &'r [R], name: &impl Hash) -> &'r R {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    &relays[hasher.finish() as usize % relays.len()]
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.supervisor.exit(ExitReason::Shutdown);
    }
}

/// Process that sends changes of authors to the timelines that belong to it.
struct Relay {
    /// Timelines that follow each author.
    readers: HashMap<Name, HashSet<Address<Timeline>>>,
    /// Each timeline, and the authors whom it follows.
    authors: HashMap<Pid, Following>,
    subscriptions: Arc<AtomicUsize>,
}

/// Timeline with the authors whom it follows; at least one.
struct Following {
    reader: Address<Timeline>,
    monitor: MonitorRef,
    authors: HashSet<Name>,
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

    /// Replaces the authors whom a timeline follows. A timeline is monitored while it follows some.
    fn replace(
        &mut self,
        cx: &mut Context<Self>,
        reader: Address<Timeline>,
        authors: HashSet<Name>,
    ) {
        let monitor = self.authors.get(&reader.pid()).map(|known| known.monitor);
        let (added, removed) = (authors.len(), self.remove(reader.pid()));
        for author in &authors {
            self.readers.entry(author.clone()).or_default().insert(reader);
        }
        if !authors.is_empty() {
            let monitor = monitor.unwrap_or_else(|| cx.monitor(reader));
            self.authors.insert(reader.pid(), Following { reader, monitor, authors });
        } else if let Some(monitor) = monitor {
            cx.demonitor(monitor);
        }
        self.subscriptions.fetch_add(added, Ordering::Relaxed);
        self.subscriptions.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Removes a timeline, and returns the number of authors whom it followed.
    fn remove(&mut self, reader: Pid) -> usize {
        let Some(Following { reader, authors, .. }) = self.authors.remove(&reader) else {
            return 0;
        };
        for author in &authors {
            if let Some(readers) = self.readers.get_mut(author) {
                readers.remove(&reader);
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
        let left = self.authors.values().map(|known| known.authors.len()).sum();
        self.subscriptions.fetch_sub(left, Ordering::Relaxed);
    }
}

#[process(client = RelayClient)]
impl Relay {
    /// Removes a timeline that has ended.
    #[hook]
    fn down(&mut self, down: Down) {
        let removed = self.remove(down.pid);
        self.subscriptions.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Subscribes a timeline to these authors, and ends its subscriptions to all others. Returns the current epoch,
    /// and the pid of this relay.
    #[message]
    fn subscribe(
        &mut self,
        cx: &mut Context<Self>,
        reader: Address<Timeline>,
        authors: HashSet<Name>,
        epoch: Arc<AtomicUsize>,
    ) -> (usize, Pid) {
        self.replace(cx, reader, authors);
        (epoch.load(Ordering::Relaxed), cx.pid())
    }

    #[message(send)]
    fn publish(&mut self, author: Name, change: Change) {
        for reader in self.readers.get(&author).into_iter().flatten() {
            if reader.send(Apply { author: author.clone(), change: change.clone() }).is_err() {
                reader.exit(unreachable_process());
            }
        }
    }

    #[message]
    fn settle(&mut self) {}
}

/// Reason for the exit of a process that could not be sent a message.
pub(crate) fn unreachable_process() -> ExitReason {
    ExitReason::other("a message found no room")
}

#[derive(Debug, thiserror::Error)]
#[error("the timeline cannot be watched at present")]
struct Unwatchable;

/// Process that keeps the newest posts of the authors whom a user follows.
struct Timeline {
    live: Live,
    reader: Name,
    /// Authors whose changes are applied; `None` while the timeline is to be built.
    authors: Option<HashSet<Name>>,
    /// Epoch in which the timeline has subscribed.
    epoch: usize,
    /// The monitored relay, to which the timeline has subscribed.
    relay: Option<Pid>,
    posts: BTreeMap<PostId, Arc<Published>>,
    /// Total bytes of the posts' texts.
    bytes: usize,
    /// Id below which posts may be missing; `None` if no posts are missing.
    floor: Option<PostId>,
    /// Timer of the next [`Leave`].
    idle: Timeout,
    /// Whether the timeline was read since the last [`Leave`], or since its start.
    was_read: bool,
    watchers: HashMap<Pid, Recipient<News>>,
    /// Access to the authors, for building the timeline again for its watchers; `None` without watchers.
    merge: Option<Merge>,
    position: Position,
    /// Posts of the latest changes, oldest first; the last one led to `position`.
    changes: VecDeque<PostId>,
    newest: CachedBody,
}

impl Timeline {
    fn new(live: Live, reader: Name) -> Timeline {
        let (posts, bytes) = (BTreeMap::new(), 0);
        let idle = Timeout::default();
        Timeline {
            live,
            reader,
            authors: None,
            epoch: 0,
            relay: None,
            posts,
            bytes,
            floor: None,
            idle,
            was_read: false,
            watchers: HashMap::new(),
            merge: None,
            position: Position { stream: 0, sequence: 0 },
            changes: VecDeque::new(),
            newest: CachedBody::default(),
        }
    }

    /// Subscribes to the authors whom the user follows, and asks them for their newest posts. Changes that arrive
    /// in the meantime wait in the mailbox. Returns `false` if the relay is not running.
    async fn build(&mut self, cx: &mut Context<Self>, merge: &Merge) -> Result<bool, SocialError> {
        let mut authors: HashSet<Name> = merge.following(&self.reader).await?.into_iter().collect();
        let epoch = self.live.0.epoch.clone();
        let relay = self.live.relay(&self.reader);
        let subscribed =
            relay.call(Subscribe { reader: cx.address(), authors: authors.clone(), epoch });
        let Ok((epoch, relay)) = subscribed.await else { return Ok(false) };
        self.epoch = epoch;
        // One monitor for each relay, however often the timeline is built.
        if self.relay.replace(relay) != Some(relay) {
            cx.monitor(relay);
        }
        let list = authors.iter().cloned().collect();
        let Merged { posts, is_cut, hidden } =
            merge.newest(&self.reader, list, None, POSTS_MAX).await?;
        for author in hidden {
            authors.remove(&author);
        }
        let is_whole = !is_cut && posts.len() < POSTS_MAX;
        self.floor = if is_whole { None } else { posts.last().map(|post| post.id) };
        self.bytes = posts.iter().map(|post| post.text.as_str().len()).sum();
        let posts = posts.into_iter().map(|post| (post.id, self.live.posts().share(post)));
        self.posts = posts.collect();
        self.authors = Some(authors);
        self.trim();
        self.position = Position { stream: unique_micros(), sequence: 0 };
        self.changes.clear();
        self.newest.invalidate();
        self.tell(&News::Reset(self.position));
        Ok(true)
    }

    /// Builds the timeline, unless it is up to date; returns `false` if the relay is not running.
    async fn ensure_built(
        &mut self,
        cx: &mut Context<Self>,
        merge: &Merge,
    ) -> Result<bool, SocialError> {
        if self.authors.is_some() && self.epoch == self.live.0.epoch.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.authors = None;
        let built = self.build(cx, merge).await;
        if built.is_err() {
            cx.stop(ExitReason::Normal);
        }
        built
    }

    /// Builds the timeline again at once if it is watched, and otherwise at the next read.
    async fn renew(&mut self, cx: &mut Context<Self>) {
        self.authors = None;
        if let Some(merge) = self.merge.clone()
            && !matches!(self.build(cx, &merge).await, Ok(true))
        {
            // The sockets notice the end and close, and their clients connect again.
            cx.stop(ExitReason::Normal);
        }
    }

    /// Records a change that has been applied, and sends it to the watchers.
    fn note(&mut self, change: Change) {
        self.newest.invalidate();
        self.position.sequence += 1;
        if self.changes.len() == POSTS_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change.post());
        self.tell(&News::Change(change));
    }

    /// Returns the change that brings a watcher up to date with a post; `None` if the post is below the floor, because
    /// the timeline does not know then whether the post was deleted.
    fn present(&self, id: PostId) -> Option<Change> {
        match self.posts.get(&id) {
            Some(published) => Some(Change::Posted(published.clone())),
            None if self.floor.is_some_and(|floor| id < floor) => None,
            None => Some(Change::Deleted(id)),
        }
    }

    /// Returns a page of posts below `before`; `None` if some of them may be below the floor.
    fn page_below(&self, before: Option<PostId>, limit: usize) -> Option<PostPage> {
        let (end, wanted) = (before.unwrap_or(PostId::new(u64::MAX)), wanted(limit));
        let posts = self.posts.range(..end).rev().take(wanted);
        let posts: Vec<Arc<Published>> = posts.map(|(_, published)| published.clone()).collect();
        let is_whole = posts.len() == wanted || self.floor.is_none();
        is_whole.then(|| PostPage::of(posts, limit, false))
    }

    fn tell(&self, news: &News) {
        for watcher in self.watchers.values() {
            if watcher.send(news.clone()).is_err() {
                watcher.pid().exit(unreachable_process());
            }
        }
    }

    /// Keeps the timeline in memory for at least [`IDLE`] more. A read sets a flag and no timer, because setting the
    /// timer costs 3 % of a read.
    fn stay(&mut self, cx: &mut Context<Self>) {
        self.was_read = true;
        if !self.idle.is_set() {
            self.idle.set(cx, IDLE, Leave {});
        }
    }

    /// Removes the oldest posts while there are too many.
    fn trim(&mut self) {
        while self.posts.len() > POSTS_MAX || (self.bytes > BYTES_MAX && self.posts.len() > 1) {
            let Some((_, oldest)) = self.posts.pop_first() else { return };
            self.bytes -= oldest.post.text.as_str().len();
            self.floor = self.posts.keys().next().copied();
        }
    }
}

#[process(never_blocks, client = TimelineClient)]
impl Timeline {
    /// Removes a watcher that has ended, or builds the timeline again if its relay has ended.
    #[hook]
    async fn down(&mut self, cx: &mut Context<Self>, down: Down) {
        if self.relay == Some(down.pid) {
            self.relay = None;
            self.renew(cx).await;
        } else if self.watchers.remove(&down.pid).is_some() && self.watchers.is_empty() {
            self.merge = None;
        }
    }

    /// Ends the timeline if nobody has read it since the last `Leave`; a watched timeline only drops its cached body.
    #[message(send)]
    fn leave(&mut self, cx: &mut Context<Self>) {
        if !std::mem::take(&mut self.was_read) {
            self.newest.invalidate();
            if self.watchers.is_empty() {
                cx.stop_if_idle();
            }
        }
        // The timeline goes on if a message waits in the mailbox: a change or a read.
        self.idle.set(cx, IDLE, Leave {});
    }

    /// Returns a page of the posts below `before`; `None` if some of them may be below the floor, or if the relay is
    /// not running. The message brings the merge along, so that an idle timeline keeps no node open.
    #[message]
    async fn page(
        &mut self,
        cx: &mut Context<Self>,
        merge: Merge,
        before: Option<PostId>,
        limit: usize,
    ) -> Result<Option<PostPage>, SocialError> {
        self.stay(cx);
        if !self.ensure_built(cx, &merge).await? {
            return Ok(None);
        }
        Ok(self.page_below(before, limit))
    }

    /// Returns the body of the answer with a page.
    #[message]
    async fn body(
        &mut self,
        cx: &mut Context<Self>,
        merge: Merge,
        before: Option<PostId>,
        limit: usize,
        signer: Signer,
    ) -> Result<Option<Bytes>, SocialError> {
        self.stay(cx);
        if !self.ensure_built(cx, &merge).await? {
            return Ok(None);
        }
        let bodies = &self.live.0.bodies;
        let body = self.newest.get_or_make(bodies, &signer, before, limit, || {
            let page = self.page_below(before, limit);
            page.map(|page| page.encode(ListingName::timeline(&self.reader), &signer)).ok_or(())
        });
        // Without a page, there is no body.
        Ok(body.ok())
    }

    /// Sends the changes of this timeline to a watcher until the watcher ends. Returns `None` if the relay is not
    /// running.
    #[message]
    async fn watch(
        &mut self,
        cx: &mut Context<Self>,
        merge: Merge,
        watcher: Recipient<News>,
        last: Option<Position>,
    ) -> Result<Option<Watching>, SocialError> {
        self.stay(cx);
        if !self.ensure_built(cx, &merge).await? {
            return Ok(None);
        }
        if self.watchers.insert(watcher.pid(), watcher).is_none() {
            cx.monitor(watcher);
        }
        self.merge = Some(merge);
        let known = last.filter(|last| last.stream == self.position.stream);
        let behind = known.and_then(|last| self.position.sequence.checked_sub(last.sequence));
        let behind = behind.and_then(|behind| usize::try_from(behind).ok());
        let first = behind.and_then(|behind| self.changes.len().checked_sub(behind));
        let missed = first
            .and_then(|first| self.changes.range(first..).map(|id| self.present(*id)).collect());
        let timeline = cx.address().pid();
        Ok(Some(Watching { timeline, position: self.position, missed }))
    }

    /// Builds the timeline again, now or at the next read, because the follows have changed.
    #[message(send)]
    async fn refresh(&mut self, cx: &mut Context<Self>) {
        self.renew(cx).await;
    }

    /// Has the watchers check their tokens again.
    #[message(send)]
    fn revoke(&self) {
        self.tell(&News::Revoked);
    }

    #[message(send)]
    fn apply(&mut self, author: Name, change: Change) {
        // The author may have published before the relay heard of the end of the follow, or blocks the reader.
        if !self.authors.as_ref().is_some_and(|authors| authors.contains(&author)) {
            return;
        }
        match change {
            Change::Posted(ref published) => {
                let id = published.post.id;
                // A post that was found when the timeline was built may arrive as a change as well.
                if self.floor.is_none_or(|floor| id > floor) && !self.posts.contains_key(&id) {
                    self.bytes += published.post.text.as_str().len();
                    self.posts.insert(id, published.clone());
                    self.trim();
                    self.note(change);
                }
            }
            Change::Deleted(id) => {
                if let Some(deleted) = self.posts.remove(&id) {
                    self.bytes -= deleted.post.text.as_str().len();
                }
                // A watcher may show posts that the timeline has removed from memory.
                self.note(change);
            }
        }
    }
}

const POSTS_MAX: usize = 400;

/// Maximum bytes of text of a live timeline, unless a single post has more.
const BYTES_MAX: usize = 256 * 1024;

/// Maximum number of live timelines. Further readers get pages by a merge, and cannot watch.
const TIMELINES_MAX: usize = 100_000;

/// Minimum time without reads after which a timeline ends, unless it is watched. The maximum is twice as long.
const IDLE: Duration = Duration::from_secs(60);

/// Maximum time of a call to a timeline, which may have to be built first.
const BUILD: Duration = Duration::from_secs(30);

/// Maximum number of calls for a read, each to a timeline that ends before it answers.
const ATTEMPTS: usize = 3;
