//! Collectors, which carry posts and likes from the authors to the groups in few durable turns.
//!
//! ```text
//!  User "bob" ──after commit──▶ Collector 0 ──┐  every 200 ms at most     ┌─▶ Group "#rust"
//!    posts, likes, deletes      Collector 1 ──┴─ the changes of a group ──┼─▶ Group "popular"
//!                                              in a single message        └─▶ Trends
//! ```
//!
//! A collector gets all changes of an author's posts, in order, and keeps the best posts of each group until the next
//! flush. So a popular tag costs as many durable turns as a tag that a few users use, and a post that gets many likes
//! at once is written once.
//!
//! Invariants:
//! * A collector has at most [`ROOM`] messages in its mailbox, and the changes of at most [`GROUPS_MAX`] groups in
//!   memory. Further changes are dropped and [counted](Collectors::dropped): authors are never slowed down.
//! * A collector has one flush under way at most. While the disk is slow, a flush has the changes of a longer time.
//! * A collector keeps no node open, except while a flush waits for groups. A shutdown ends these calls, and the
//!   changes that were not sent to a group by then are lost.
//!
//! Changes that are dropped, or lost with the program or a collector, are missing in a ranking and nowhere else. Such
//! a post may be shown only to the author's followers, or be ranked by an earlier number of likes until its next like.
//! A post whose deletion is lost is left out when its author is asked for the text, and sinks in the ranking with time.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use throng::prelude::*;
use throng::{Pool, Restart, Timeout};
use throng_durable::{Node, WeakNode};

use super::group::{Group, GroupClient, GroupKey, Updates};
use super::ranking::{HALF_LIFE_MS, POSTS_MAX, Ranked};
use super::trends::{TRENDS, Trends, TrendsClient};
use crate::clock::Now;
use crate::error::{SocialError, unavailable};
use crate::ids::PostId;
use crate::name::Name;
use crate::tags::Tag;

/// The collectors of a service; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Collectors(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Pool<Collector>,
    supervisor: Address<Supervisor>,
    dropped: Arc<AtomicU64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.supervisor.exit(ExitReason::Shutdown);
    }
}

/// Change of a post, for the rankings.
#[derive(Debug)]
pub(crate) struct PostChange {
    pub(crate) author: Name,
    pub(crate) id: PostId,
    /// Tags in the text of the post.
    pub(crate) tags: Vec<Tag>,
    pub(crate) kind: ChangeKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeKind {
    Posted,
    /// The post has this number of likes.
    Likes(u64),
    Deleted,
}

impl Collectors {
    /// Starts as many collectors as the runtime has workers.
    pub(crate) fn start(runtime: &RuntimeHandle, node: &Node) -> Result<Collectors, SocialError> {
        let workers = runtime.metrics().workers;
        let workers = workers.iter().filter(|worker| !worker.guest && !worker.spare).count();
        let dropped = Arc::<AtomicU64>::default();
        let (pool, supervisor) = Pool::new(workers.max(1), ROOM, || {
            let (node, dropped) = (node.downgrade(), dropped.clone());
            ChildSpec::new(move || Collector::new(node.clone(), dropped.clone()))
                .restart(Restart::Permanent)
        });
        // A collector has nothing that must not be lost, so it may fail often.
        let supervisor = supervisor.intensity(1_000, Duration::from_secs(1));
        let supervisor = supervisor.start(runtime).map_err(unavailable)?;
        Ok(Collectors(Arc::new(Shared { pool, supervisor, dropped })))
    }

    /// Sends the change of a post to the author's collector, or counts the change as dropped if that fails.
    pub(crate) fn offer(&self, change: PostChange) {
        let collector = self.0.pool.keyed(&change.author);
        if collector.send(Collect { change }).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of changes that were dropped for want of room, since the service was started.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

/// Authors who have counted for a tag lately. All changes of an author come to the same collector, so an author counts
/// once for a tag in six to twelve hours, however many posts have it. The program forgets it at its end.
#[derive(Default)]
struct Counted {
    hasher: RandomState,
    /// Hashes of authors with tags, since a time in milliseconds since 1970.
    current: HashSet<u64>,
    since_ms: u64,
    /// Hashes from the time before.
    previous: HashSet<u64>,
}

impl Counted {
    /// Returns whether an author counts for a tag, and notes that this has happened.
    fn note(&mut self, author: &Name, tag: &Tag, now: Now) -> bool {
        let is_old = now.ms().abs_diff(self.since_ms) as f64 >= HALF_LIFE_MS;
        if is_old || self.current.len() >= COUNTED_MAX {
            (self.previous, self.since_ms) = (mem::take(&mut self.current), now.ms());
        }
        let pair = self.hasher.hash_one((author, tag));
        !self.previous.contains(&pair) && self.current.insert(pair)
    }
}

/// Process that keeps changes of groups until the next flush.
struct Collector {
    groups: HashMap<GroupKey, Updates>,
    /// Numbers of authors of each tag.
    counts: HashMap<Tag, u64>,
    counted: Counted,
    node: WeakNode,
    /// Process of the flush that is under way.
    flush: Option<Pid>,
    next: Timeout,
    dropped: Arc<AtomicU64>,
}

impl Collector {
    fn new(node: WeakNode, dropped: Arc<AtomicU64>) -> Collector {
        let (groups, counts, counted) = Default::default();
        Collector { groups, counts, counted, node, flush: None, next: Timeout::default(), dropped }
    }

    /// Notes the change of a post for a group; returns `false` if there is no room.
    fn note(&mut self, group: GroupKey, PostChange { author, id, kind, .. }: &PostChange) -> bool {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            return false;
        }
        let updates = self.groups.entry(group).or_default();
        let likes = match *kind {
            ChangeKind::Posted => 0,
            ChangeKind::Likes(likes) => likes,
            ChangeKind::Deleted => {
                updates.ranking.remove(*id);
                let fits = updates.deleted.len() < POSTS_MAX;
                if fits {
                    updates.deleted.push(*id);
                }
                return fits;
            }
        };
        // A refused post is worse than the posts that are kept, all of them or as many of its author as a ranking may
        // have; the group will have those instead.
        updates.ranking.offer(Ranked { id: *id, author: author.clone(), likes });
        true
    }

    /// Sets the timer of the next flush, unless it is set, or there is nothing to flush, or a flush is under way.
    fn arm(&mut self, cx: &mut Context<Self>) {
        if self.flush.is_none() && !self.groups.is_empty() && !self.next.is_set() {
            self.next.set(cx, INTERVAL, Flush {});
        }
    }
}

#[process(client = CollectorClient)]
impl Collector {
    /// Sets the timer of the next flush when a flush has ended, successfully or not.
    #[hook]
    fn down(&mut self, cx: &mut Context<Self>, down: Down) {
        if self.flush == Some(down.pid) {
            self.flush = None;
            self.arm(cx);
        }
    }

    #[message(send)]
    fn collect(&mut self, cx: &mut Context<Self>, change: PostChange) {
        let mut is_complete = self.note(GroupKey::Popular, &change);
        for tag in &change.tags {
            let fits = self.note(GroupKey::Tag(tag.clone()), &change);
            let is_posted = matches!(change.kind, ChangeKind::Posted);
            if fits && is_posted && self.counted.note(&change.author, tag, Now::by_the_clock()) {
                *self.counts.entry(tag.clone()).or_insert(0) += 1;
            }
            is_complete &= fits;
        }
        if !is_complete {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.arm(cx);
    }

    /// Sends each group its changes.
    #[message(send)]
    fn flush(&mut self, cx: &mut Context<Self>) {
        let groups = mem::take(&mut self.groups);
        let counts: Vec<(Tag, u64)> = mem::take(&mut self.counts).into_iter().collect();
        // The changes of a node that has been shut down are lost.
        let Some(node) = self.node.upgrade() else { return };
        let flush = async move {
            if !counts.is_empty() {
                let now = Now::by_the_clock().ms();
                report(node.entity::<Trends>(TRENDS).count(counts, now).await);
            }
            let groups = stream::iter(groups).map(async |(group, updates)| {
                report(node.entity::<Group>(group.entity()).update(updates).await);
            });
            groups.buffer_unordered(CALLS_MAX).collect::<()>().await;
            Flushed {}
        };
        // Without room for another process, the changes are lost.
        if let Ok(pid) = cx.pipe(flush) {
            cx.monitor(pid);
            self.flush = Some(pid);
        }
    }

    /// Receives the result of a flush and does nothing: `down` handles the end of the flush's process.
    #[message(send)]
    fn flushed(&mut self) {}
}

/// Logs why changes were lost.
fn report(outcome: Result<(), throng_durable::EntityError>) {
    // A node that has been shut down between a change and its flush is no fault.
    if let Err(error) = outcome
        && !matches!(error, throng_durable::EntityError::ShutDown)
    {
        tracing::warn!(%error, "changes of a ranking are lost");
    }
}

/// Maximum number of changes that wait in the mailbox of a collector: about half a megabyte.
const ROOM: usize = 4_096;

/// Maximum number of groups for which a collector keeps changes between two flushes.
const GROUPS_MAX: usize = 1_024;

/// Number of authors with tags after which a collector begins to forget the older ones: half a megabyte of hashes, which
/// a single account does not fill within its rate.
const COUNTED_MAX: usize = 32_768;

/// Maximum number of groups that a flush calls at a time.
const CALLS_MAX: usize = 32;

/// Time between two flushes: short against the time in which a reader reads a page, and long enough for a few hundred
/// posts of a busy tag.
const INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::testing::{on_a_node, wait_until};

    /// Keeps a collector busy until the sender is dropped.
    struct Block(oneshot::Receiver<()>);

    impl Message for Block {
        type Reply = ();
    }

    impl Handle<Block> for Collector {
        async fn handle(&mut self, Block(held): Block, _: &mut Context<Self>) {
            let _ = held.await;
        }
    }

    struct Fail;

    impl Message for Fail {
        type Reply = ();
    }

    impl Handle<Fail> for Collector {
        async fn handle(&mut self, _: Fail, _: &mut Context<Self>) {
            panic!("this panic is a part of the test");
        }
    }

    fn change(number: u64, tags: &[&str], kind: ChangeKind) -> PostChange {
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        let author = "bob".parse().unwrap();
        PostChange { author, id: PostId::new(number << 22), tags, kind }
    }

    fn with_collectors(test: impl AsyncFnOnce(&Node, &Collectors)) {
        on_a_node(1, async |runtime, node| {
            test(node, &Collectors::start(runtime, node).unwrap()).await;
        });
    }

    async fn wait_for(node: &Node, group: GroupKey, expected: &[(u64, u64)]) {
        let expected: Vec<_> =
            expected.iter().map(|(number, likes)| (PostId::new(number << 22), *likes)).collect();
        wait_until(async || {
            let found = node.entity::<Group>(group.entity()).best().await.unwrap();
            found.iter().map(|post| (post.id, post.likes)).eq(expected.iter().copied())
        })
        .await;
    }

    #[test]
    fn an_author_counts_once_for_a_tag_in_some_hours() {
        let (bob, rust): (Name, Tag) = ("bob".parse().unwrap(), "rust".parse().unwrap());
        let mut counted = Counted::default();
        let mut note = |author: &Name, tag: &Tag, hours: u64| {
            counted.note(author, tag, Now::at(hours * 3_600_000))
        };
        assert!(note(&bob, &rust, 1_000_000));
        for later in [0, 1, 5, 6, 11] {
            assert!(!note(&bob, &rust, 1_000_000 + later), "{later} hours later");
        }
        assert!(note(&bob, &rust, 1_000_012));
        assert!(note(&bob, &"go".parse().unwrap(), 1_000_012));
        for number in 0..3 * COUNTED_MAX {
            assert!(note(&format!("user_{number}").parse().unwrap(), &rust, 1_000_012));
        }
        assert!(counted.current.len().max(counted.previous.len()) <= COUNTED_MAX);
    }

    #[test]
    fn a_tag_of_several_authors_is_more_active_than_one_of_many_posts() {
        with_collectors(async |node, collectors| {
            let offer = |author: &str, number, tag| {
                let author = author.parse().unwrap();
                collectors
                    .offer(PostChange { author, ..change(number, &[tag], ChangeKind::Posted) });
            };
            (0..40).for_each(|number| offer("bob", number, "spam"));
            ["alice", "carol", "dave"].into_iter().for_each(|author| offer(author, 50, "birds"));
            let tags = |tags: &[&str]| -> Vec<Tag> {
                tags.iter().map(|tag| tag.parse().unwrap()).collect()
            };
            let top = async || node.entity::<Trends>(TRENDS).top(9).await.unwrap();
            wait_until(async || top().await == tags(&["birds", "spam"])).await;
        });
    }

    #[test]
    fn a_change_that_finds_no_room_is_dropped_and_counted() {
        with_collectors(async |node, collectors| {
            let (release, held) = oneshot::channel();
            let bob: Name = "bob".parse().unwrap();
            assert!(collectors.0.pool.keyed(&bob).send(Block(held)).is_ok());
            let room = ROOM as u64 - 1;
            for number in 1..=room + 7 {
                collectors.offer(change(1, &[], ChangeKind::Likes(number)));
            }
            assert_eq!(collectors.dropped(), 7);
            drop(release);
            // The newest are dropped.
            wait_for(node, GroupKey::Popular, &[(1, room)]).await;
        });
    }

    #[test]
    fn a_collector_that_fails_loses_only_what_it_had() {
        with_collectors(async |node, collectors| {
            let bob: Name = "bob".parse().unwrap();
            collectors.offer(change(1, &["rust"], ChangeKind::Posted));
            wait_for(node, GroupKey::Tag("rust".parse().unwrap()), &[(1, 0)]).await;
            assert!(collectors.0.pool.keyed(&bob).call(Fail).await.is_err());
            wait_until(async || {
                collectors.offer(change(2, &["rust"], ChangeKind::Likes(3)));
                node.entity::<Group>("popular").best().await.unwrap().len() == 2
            })
            .await;
            for group in [GroupKey::Popular, GroupKey::Tag("rust".parse().unwrap())] {
                wait_for(node, group, &[(2, 3), (1, 0)]).await;
            }
        });
    }

    #[test]
    fn a_deleted_post_leaves_its_groups_whether_they_have_it_already_or_not() {
        with_collectors(async |node, collectors| {
            let rust = || GroupKey::Tag("rust".parse().unwrap());
            collectors.offer(change(1, &["rust"], ChangeKind::Posted));
            wait_for(node, rust(), &[(1, 0)]).await;
            collectors.offer(change(1, &["rust"], ChangeKind::Deleted));
            collectors.offer(change(2, &["rust"], ChangeKind::Posted));
            collectors.offer(change(2, &["rust"], ChangeKind::Deleted));
            collectors.offer(change(3, &["rust"], ChangeKind::Posted));
            for group in [rust(), GroupKey::Popular] {
                wait_for(node, group, &[(3, 0)]).await;
            }
        });
    }

    /// A collector has changes for up to 200 ms after the last post, and must not keep the node open meanwhile.
    #[test]
    fn a_node_opens_again_right_after_its_shutdown_although_changes_wait() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(2).start().unwrap();
        runtime.block_on(async |runtime| {
            for number in 1..=10 {
                let node = Node::options(data.path()).open(runtime).unwrap();
                let collectors = Collectors::start(runtime, &node).unwrap();
                collectors.offer(change(number, &["rust"], ChangeKind::Posted));
                if number % 2 == 0 {
                    // The shutdown meets the flush.
                    tokio::time::sleep(INTERVAL).await;
                }
                node.shutdown().await;
            }
        });
    }

    #[test]
    fn changes_of_too_many_groups_are_dropped_and_counted() {
        with_collectors(async |node, _| {
            let mut collector = Collector::new(node.downgrade(), Arc::default());
            for number in 0..GROUPS_MAX {
                let group = GroupKey::Tag(format!("tag{number}").parse().unwrap());
                assert!(collector.note(group, &change(1, &[], ChangeKind::Posted)));
            }
            assert!(!collector.note(GroupKey::Popular, &change(1, &[], ChangeKind::Posted)));
            let known = GroupKey::Tag("tag7".parse().unwrap());
            assert!(collector.note(known, &change(2, &[], ChangeKind::Posted)));
        });
    }
}
