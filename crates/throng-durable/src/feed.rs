//! [`Changes`]: the entities of a kind that change, in the order of their commits; and [`Node::for_each`], which reaches
//! those that are stored already.
//!
//! ```text
//!  a program that begins:  position ──▶ for_each: all that is stored ──▶ changes behind the position
//!  one that goes on:       stored position ────────────────────────────▶ changes behind it
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use throng_store::{Change, Feed, FeedError, FeedPosition, ReadError};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::catalogue::Numbered;
use crate::durable::decode_state;
use crate::layout;
use crate::node::Inner;
use crate::users::catch;
use crate::{Durable, Entity, Node, StateError, WeakNode};

/// Time after which a feed asks whether its node was shut down.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Number of groups of the log that are read without a pause.
const GROUPS: usize = 64;
/// Number of keys that [`Node::for_each`] reads at a time.
const PAGE: usize = 1_000;

/// The changes of the entities of a kind behind a position, from [`Node::changes`]. For a search engine, a cache or a
/// table of another database that follows the entities.
///
/// A change that is shown is on disk. Each comes once, in the order of the commits, unless the reader goes on from an
/// earlier position. Several changes of an entity in one commit are one. The feed does not keep the node open.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Durable, Node};
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "account")]
/// struct Account {
///     balance: u64,
/// }
///
/// #[process]
/// impl Account {
///     #[message]
///     fn deposit(&mut self, amount: u64) {
///         self.balance += amount;
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let runtime = Runtime::builder().workers(1).start()?;
/// let node = Node::options(path).open(&runtime)?;
/// runtime.block_on(async |_| {
///     let mut changes = node.changes::<Account>(None)?;
///     node.entity::<Account>("ada").deposit(5).await?;
///     let mut balances = BTreeMap::new();
///     for change in changes.next().await?.expect("the node is open").changed {
///         match change.state()? {
///             Some(account) => balances.insert(change.key().to_owned(), account.balance),
///             None => balances.remove(change.key()),
///         };
///     }
///     assert_eq!(balances["ada"], 5);
///     // Stored with the balances, it is where the next program goes on.
///     let _position = changes.position();
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Changes<P> {
    node: WeakNode,
    feed: Feed,
    kind: Arc<Numbered>,
    process: PhantomData<fn() -> P>,
}

/// Entities that were changed in one commit, from [`Changes::next`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Commit<P> {
    /// Time of the commit on the system's clock, to the millisecond.
    pub time: SystemTime,
    /// The entities, in the order of their keys.
    pub changed: Vec<Changed<P>>,
}

/// Result of reading a part of the log.
enum Read<P> {
    Commit(Commit<P>),
    /// There is more to read.
    Part,
    All,
}

/// An entity that was changed, from [`Changes::next`].
pub struct Changed<P> {
    key: String,
    what: What,
    kind: Arc<Numbered>,
    process: PhantomData<fn() -> P>,
}

/// Change of an entity in a commit.
enum What {
    State(Box<[u8]>),
    Removed,
    Cells,
}

impl<P: Durable> Changed<P> {
    /// Returns the key of the entity.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the state as of the commit; `None` if the entity was removed, or only cells were changed. The entity may
    /// have another one by now.
    ///
    /// # Errors
    ///
    /// [`StateError`]: this program cannot read the state.
    pub fn state(&self) -> Result<Option<P>, StateError> {
        let What::State(record) = &self.what else { return Ok(None) };
        let panicked = |panic: throng::Panic| StateError::Undecodable {
            kind: P::KIND,
            found: P::VERSION,
            reason: panic.to_string(),
        };
        catch(|| decode_state(&self.kind, record)).map_err(panicked)?.map(Some)
    }

    /// Whether the entity was removed.
    pub fn is_removed(&self) -> bool {
        matches!(self.what, What::Removed)
    }
}

impl<P: Durable> Changes<P> {
    /// Waits for the next commit that has changed entities of the kind; returns `None` once the node is shut down. May be
    /// dropped and called again.
    ///
    /// # Errors
    ///
    /// [`FeedError`]. After [`Lost`](FeedError::Lost) take a new feed, and read all entities.
    pub async fn next(&mut self) -> Result<Option<Commit<P>>, FeedError> {
        loop {
            let Some(node) = self.node.upgrade() else { return Ok(None) };
            let outcomes = node.store().outcomes();
            // In this order: what settles behind this submission wakes, and all else is in the log.
            let settled = outcomes.settled_through();
            match self.read(node.inner())? {
                Read::Commit(commit) => return Ok(Some(commit)),
                Read::Part => tokio::task::yield_now().await,
                Read::All => {
                    drop(node);
                    let _ = timeout(LOOK_AGAIN, outcomes.settled_after(settled)).await;
                }
            }
        }
    }

    /// Reads up to the next commit that has changed entities of the kind, or some groups of other kinds.
    fn read(&mut self, node: &Inner) -> Result<Read<P>, FeedError> {
        let damaged = |error: ReadError| FeedError::Lost { reason: error.to_string() };
        let number = self.kind.number();
        let (states, cells) = (layout::states(number), layout::cells_of_kind(number));
        for _ in 0..GROUPS {
            let Some(group) = self.feed.next_group()? else { return Ok(Read::All) };
            let mut changed = BTreeMap::new();
            for change in group.changes(node.tables.at(&states)) {
                let (key, change) = change.map_err(damaged)?;
                let what = match change {
                    Change::Put(record) => What::State(record.into()),
                    _ => What::Removed,
                };
                if key.starts_with(&states) {
                    changed.insert(layout::own_key(key), what);
                }
            }
            for change in group.changes(node.tables.at(&cells)) {
                let (key, _) = change.map_err(damaged)?;
                if let Some(key) = layout::key_of_record(key).filter(|_| key.starts_with(&cells)) {
                    changed.entry(key).or_insert(What::Cells);
                }
            }
            if changed.is_empty() {
                continue;
            }
            let (kind, process) = (&self.kind, self.process);
            let changed = changed.into_iter().map(|(key, what)| {
                let key = String::from_utf8_lossy(key).into_owned();
                Changed { key, what, kind: kind.clone(), process }
            });
            return Ok(Read::Commit(Commit { time: group.time(), changed: changed.collect() }));
        }
        Ok(Read::Part)
    }

    /// Returns the position behind the last commit that was read.
    pub fn position(&self) -> FeedPosition {
        self.feed.position()
    }
}

impl Node {
    /// Returns the changes of the entities of a kind behind a position, or behind all that is on disk now.
    ///
    /// The log of the store has changes since the last checkpoint and some before. A reader that has to go on after a
    /// restart wants `Node::options(path).store(Store::options().keep_log(true))`, which keeps all.
    ///
    /// Cost: nothing for those who change entities. The reader reads the log, also of other kinds, on its thread, 64 groups
    /// between two pauses.
    ///
    /// # Errors
    ///
    /// [`FeedError::Lost`] if the log does not have the changes behind the position: take a feed without one, and read
    /// all entities by [`for_each`](Node::for_each).
    ///
    /// # Panics
    ///
    /// If another type of this node has the same [`KIND`](Durable::KIND).
    pub fn changes<P: Durable>(
        &self,
        after: Option<FeedPosition>,
    ) -> Result<Changes<P>, FeedError> {
        let kind = self.inner().directory::<P>().kind().clone();
        let feed = self.store().feed(after)?;
        Ok(Changes { node: self.downgrade(), feed, kind, process: PhantomData })
    }

    /// Does some work for each stored entity of a kind, in the order of their keys, behind a key if there is one, and for
    /// so many at the same time. Returns the number of entities.
    ///
    /// An entity that is stored meanwhile is reached if its key is still to come. The first error ends the work, once that
    /// which is under way has ended.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, EntityError, ForEachError, Node};
    ///
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// #[process]
    /// impl Account {
    ///     #[message]
    ///     fn add_interest(&mut self) {
    ///         self.balance += self.balance / 100;
    ///     }
    /// }
    ///
    /// async fn add_interest(node: &Node) -> Result<u64, ForEachError<EntityError>> {
    ///     node.for_each(64, None, async |account: throng_durable::Entity<Account>| {
    ///         account.add_interest().once("interest of 2026").await
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForEachError`] says behind which key to go on.
    ///
    /// # Panics
    ///
    /// If another type of this node has the same [`KIND`](Durable::KIND).
    pub async fn for_each<P, W, E>(
        &self,
        parallel: usize,
        after: Option<&str>,
        work: impl Fn(Entity<P>) -> W,
    ) -> Result<u64, ForEachError<E>>
    where
        P: Durable,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Send + 'static,
    {
        let mut under_way = UnderWay::new(after);
        let mut read = after.unwrap_or("").to_owned();
        let mut failure = None;
        'pages: loop {
            let page = self.stored::<P>().and_then(|stored| {
                let keys = stored.keys().after(&read).take(PAGE);
                keys.map(|key| key.map(str::to_owned)).collect::<Result<Vec<_>, _>>()
            });
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    failure = Some(ForEachCause::Read(error));
                    break;
                }
            };
            let Some(last) = page.last() else { break };
            read.clone_from(last);
            for key in page {
                if under_way.tasks.len() >= parallel.max(1) {
                    failure = under_way.end_one().await;
                }
                if failure.is_some() {
                    break 'pages;
                }
                let work = work(self.entity::<P>(&key));
                under_way.begin(key, work, self.inner().runtime.tokio());
            }
        }
        while !under_way.tasks.is_empty() {
            let ended = under_way.end_one().await;
            failure = failure.or(ended);
        }
        match failure {
            None => Ok(under_way.done),
            Some(cause) => {
                Err(ForEachError { after: under_way.after, done: under_way.done, cause })
            }
        }
    }
}

/// Work for entities, in the order of their keys.
struct UnderWay<E> {
    tasks: JoinSet<(u64, Result<(), E>)>,
    /// The keys from the first one on whose work has not ended well, and whether that of each has.
    keys: VecDeque<(String, bool)>,
    /// Number of keys before these.
    first: u64,
    /// The key before these.
    after: Option<String>,
    done: u64,
}

impl<E: Send + 'static> UnderWay<E> {
    fn new(after: Option<&str>) -> UnderWay<E> {
        let (tasks, keys, after) = (JoinSet::new(), VecDeque::new(), after.map(str::to_owned));
        UnderWay { tasks, keys, first: 0, after, done: 0 }
    }

    fn begin(
        &mut self,
        key: String,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
        tokio: &tokio::runtime::Handle,
    ) {
        let number = self.first + self.keys.len() as u64;
        self.keys.push_back((key, false));
        self.tasks.spawn_on(async move { (number, work.await) }, tokio);
    }

    /// Waits for the end of the work for an entity; returns its failure.
    async fn end_one(&mut self) -> Option<ForEachCause<E>> {
        let (number, outcome) = match self.tasks.join_next().await? {
            Ok(ended) => ended,
            Err(error) => return Some(ForEachCause::Panicked(error.to_string())),
        };
        if let Err(error) = outcome {
            return Some(ForEachCause::Work(error));
        }
        self.done += 1;
        if let Some((_, is_done)) = self.keys.get_mut((number - self.first) as usize) {
            *is_done = true;
        }
        while self.keys.front().is_some_and(|(_, is_done)| *is_done) {
            self.after = self.keys.pop_front().map(|(key, _)| key);
            self.first += 1;
        }
        None
    }
}

/// Error of [`Node::for_each`].
#[derive(Debug, thiserror::Error)]
#[error("{cause}; the work is done for all entities up to {after:?}, and for {done} in all")]
#[non_exhaustive]
pub struct ForEachError<E> {
    /// Key behind which to go on: the work for all entities up to there is done.
    pub after: Option<String>,
    /// Number of entities for which the work is done, also behind that key.
    pub done: u64,
    /// The first failure.
    #[source]
    pub cause: ForEachCause<E>,
}

/// Reason why [`Node::for_each`] has ended.
#[derive(Debug, thiserror::Error)]
pub enum ForEachCause<E> {
    /// The work for an entity has failed.
    #[error(transparent)]
    Work(E),
    /// The work for an entity has panicked.
    #[error("the work for an entity has panicked: {0}")]
    Panicked(String),
    /// The store cannot be read.
    #[error(transparent)]
    Read(ReadError),
}

impl<P> fmt::Debug for Changes<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("position", &self.feed.position()).finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for Changed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("key", &self.key).finish_non_exhaustive()
    }
}
