//! [`Hosted`]: a node's copy of a shard, as the plan wants it. [`run`]: the task that follows the plan.
//!
//! ```text
//! plan: none ─▶ standby ─▶ owner ─▶ standby ─▶ none
//!          open     │claim      │drain, hand over     │close, remove
//!                   ▼           ▼
//! role:  Standby ─▶ Owner ─▶ Node over the copy ─▶ Standby
//! ```
//!
//! 1. A node claims a shard that the plan gives it once the owner before has handed it over or is no member any more. It
//!    breaks in on a living owner only after a long wait, though the log would bear it at any time.
//! 2. A shard that the plan gives to another node is handed over when its entities have finished what they do.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use throng_durable::Node;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Inner, WeakInner};
use crate::log::ShardLog;
use crate::members::Members;
use crate::placement::Shard;
use crate::record::Incarnation;
use crate::shard::{Role, ShardOptions, ShardReplica, ShardStatus};

/// Interval in which a copy looks at the plan and at its own state, beside their changes.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which the node that the plan names claims a shard from one that lives and does not hand it over.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of attempts to hand a shard over before its copy is closed nevertheless.
const GIVE_UP_TRIES: u32 = 6;
/// Time for an attempt to hand a shard over.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(5);
/// Pause after a copy could not be opened.
const RETRY: Duration = Duration::from_secs(1);

/// Wish of the plan for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To own the shard.
    Own,
    /// To follow the owner, and to hand the shard over to this node if it is owned here.
    Follow(Option<Incarnation>),
    /// To close the copy, and to remove it unless the node leaves.
    End { removes: bool },
}

/// A copy of a shard on this node.
#[derive(Debug)]
pub(super) struct Hosted {
    state: Mutex<State>,
    wish: watch::Sender<Wish>,
    ended: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    replica: Option<ShardReplica>,
    trouble: Option<String>,
}

impl Hosted {
    fn new(wish: Wish) -> Hosted {
        let (state, wish) = (Mutex::default(), watch::Sender::new(wish));
        Hosted { state, wish, ended: watch::Sender::new(false) }
    }

    pub(super) fn status(&self) -> Option<ShardStatus> {
        self.with(|state| state.replica.as_ref().map(ShardReplica::status))
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.with(|state| state.trouble.clone())
    }

    /// Waits until the copy is closed.
    pub(super) async fn ended(&self) {
        // The sender is here.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows the plan until the cluster is left or dropped.
pub(super) async fn run(cluster: WeakInner) {
    let Some((mut members, mut ends)) =
        cluster.upgrade().map(|inner| (inner.membership.members.clone(), inner.ends.subscribe()))
    else {
        return;
    };
    if let Some(directory) = cluster.upgrade().map(|inner| inner.options.directory.clone()) {
        let _ = tokio::task::spawn_blocking(move || sweep(&directory)).await;
    }
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        let now = members.borrow_and_update().clone();
        let is_over = *ends.borrow_and_update();
        inner.follow(&now, is_over);
        drop(inner);
        if is_over {
            return;
        }
        tokio::select! {
            changed = members.changed() => if changed.is_err() { return },
            _ = ends.changed() => {}
        }
    }
}

impl Inner {
    /// Wishes of each copy what the plan says, and begins copies that there are not.
    fn follow(self: &Arc<Inner>, members: &Members, is_over: bool) {
        let me = &self.membership.name;
        let mut hosted = self.hosted();
        for shard in (0..self.options.shards).map(Shard) {
            let copies = members.plan().get(&shard);
            let owner = copies.map(|copies| &copies.owner);
            let next = owner.filter(|owner| *owner != me).and_then(|owner| {
                let nodes = members.nodes().iter();
                nodes.filter(|(_, member)| member.name == *owner).map(|(node, _)| *node).next()
            });
            let wish = match copies {
                _ if is_over => Wish::End { removes: false },
                Some(copies) if copies.owner == *me => Wish::Own,
                Some(copies) if copies.standbys.contains(me) => Wish::Follow(next),
                _ => Wish::End { removes: true },
            };
            match hosted.get(&shard) {
                Some(copy) => {
                    _ = copy.wish.send_if_modified(|before| std::mem::replace(before, wish) != wish)
                }
                None if matches!(wish, Wish::End { .. }) => {}
                None => {
                    let copy = Arc::new(Hosted::new(wish));
                    hosted.insert(shard, copy.clone());
                    self.runtime.tokio().spawn(host(Arc::downgrade(self), shard, copy));
                }
            }
        }
    }

    /// Whether this node may claim a shard that the plan has given it for some time.
    fn may_claim(&self, status: &ShardStatus, for_time: Duration) -> bool {
        let members = self.membership.members.borrow();
        let is_alive = |owner| members.nodes().contains_key(&owner);
        let has_left = |owner| owner == self.membership.me || !is_alive(owner);
        status.tail.owner.is_none_or(|owner| has_left(owner) || for_time >= PATIENCE)
    }
}

/// Beginning of the names of directories whose copies are being removed.
const GONE: &str = "gone-";

fn gone(shard: Shard) -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), shard.0);
    format!("{GONE}{}-{random:016x}", shard.0)
}

/// Removes what an earlier run has not removed.
fn sweep(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(GONE)) {
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, "a copy that is of no use is not removed");
        }
    }
}

/// Runs a copy of a shard until the plan does not have it any more, or the cluster ends.
async fn host(cluster: WeakInner, shard: Shard, hosted: Arc<Hosted>) {
    let mut wish = hosted.wish.subscribe();
    let replica = loop {
        if matches!(*wish.borrow(), Wish::End { .. }) {
            break None;
        }
        let Some(inner) = cluster.upgrade() else { break None };
        match inner.open(shard).await {
            Ok(replica) => break Some(replica),
            Err(trouble) => {
                tracing::warn!(shard = shard.0, %trouble, "a copy of a shard cannot be opened");
                hosted.with(|state| state.trouble = Some(trouble));
            }
        }
        drop(inner);
        let _ = timeout(RETRY, wish.changed()).await;
    };
    if let Some(replica) = replica {
        if let Some(inner) = cluster.upgrade() {
            let (id, outcomes) = (replica.store().id(), replica.store().outcomes());
            inner.outcomes().insert(id, outcomes);
        }
        hosted.with(|state| (state.replica, state.trouble) = (Some(replica.clone()), None));
        let mut copy = CopyOfShard {
            cluster: cluster.clone(),
            shard,
            replica,
            hosted: hosted.clone(),
            term: None,
            wanted_since: None,
            reported: None,
        };
        copy.run(&mut wish).await;
        hosted.with(|state| state.replica = None);
    }
    if let Some(inner) = cluster.upgrade() {
        let wish = *hosted.wish.borrow();
        if wish == (Wish::End { removes: true }) {
            // The plan has it elsewhere, where all of it is.
            let (directory, gone) =
                (inner.directory(shard), inner.options.directory.join(gone(shard)));
            let removed = tokio::task::spawn_blocking(move || {
                // A copy of which a part is left could not be opened.
                std::fs::rename(&directory, &gone).and_then(|()| std::fs::remove_dir_all(&gone))
            });
            if let Ok(Err(error)) = removed.await {
                tracing::warn!(shard = shard.0, %error, "a copy that is of no use is not removed");
            }
        }
        inner.hosted().retain(|_, other| !Arc::ptr_eq(other, &hosted));
        // The plan may have wished for the copy again while it ended.
        let now = inner.membership.members.borrow().clone();
        inner.follow(&now, *inner.ends.borrow());
    }
    hosted.ended.send_replace(true);
}

impl Inner {
    fn directory(&self, shard: Shard) -> std::path::PathBuf {
        self.options.directory.join(format!("shard-{}", shard.0))
    }

    async fn open(&self, shard: Shard) -> Result<ShardReplica, String> {
        let log: Arc<dyn ShardLog> =
            self.logs.shard(shard).await.map_err(|error| error.to_string())?;
        let (me, directory) = (self.membership.me, self.directory(shard));
        // A standby applies the records of a node elsewhere.
        let options = ShardOptions { prepare: Node::prepare, ..self.options.shard.clone() };
        let handle = self.runtime.tokio().clone();
        let opened = tokio::task::spawn_blocking(move || {
            let _entered = handle.enter();
            ShardReplica::open(log, me, &directory, options).map_err(|error| error.to_string())
        });
        opened.await.map_err(|error| error.to_string())?
    }
}

/// A copy that is open.
struct CopyOfShard {
    cluster: WeakInner,
    shard: Shard,
    replica: ShardReplica,
    hosted: Arc<Hosted>,
    /// Number of the ownership whose node runs.
    term: Option<u64>,
    /// Time since which the plan wants this node to be the owner, and it is not.
    wanted_since: Option<Instant>,
    /// How far behind the copy was when that was told last.
    reported: Option<Option<Duration>>,
}

impl CopyOfShard {
    async fn run(&mut self, wish: &mut watch::Receiver<Wish>) {
        let (mut role, mut tries) = (self.replica.role(), 0);
        loop {
            let (wanted, now) = (*wish.borrow_and_update(), role.borrow_and_update().clone());
            if self.cluster.strong_count() == 0 {
                break;
            }
            self.keep_term(&now).await;
            self.wanted_since = match (wanted, &now) {
                (Wish::Own, Role::Standby | Role::Claiming) => {
                    self.wanted_since.or(Some(Instant::now()))
                }
                _ => None,
            };
            match (wanted, &now) {
                (Wish::Own, Role::Standby) => self.claim(),
                (Wish::Follow(Some(next)), Role::Owner { .. }) => self.yield_to(next).await,
                (Wish::End { .. }, Role::Owner { .. }) if tries < GIVE_UP_TRIES => {
                    // Closed as its owner, the copy would leave the shard to a node that does not serve it.
                    tries += 1;
                    self.give_up().await;
                    continue;
                }
                (Wish::End { .. }, Role::Claiming) if tries < 10 * GIVE_UP_TRIES => tries += 1,
                (Wish::End { .. }, _) => break,
                _ => {}
            }
            self.report(self.lag());
            tokio::select! {
                _ = wish.changed() => {}
                _ = role.changed() => {}
                () = sleep(LOOK) => {}
            }
        }
        self.end_term().await;
        // A copy that is gone is no candidate for the owner.
        self.report(None);
        self.replica.clone().close().await;
    }

    /// Runs a node while the shard is owned, another one in each ownership.
    async fn keep_term(&mut self, role: &Role) {
        let term = match role {
            Role::Owner { term, .. } => Some(*term),
            _ => None,
        };
        if self.term == term {
            return;
        }
        self.end_term().await;
        let (Some(term), Some(inner)) = (term, self.cluster.upgrade()) else { return };
        let (store, runtime) = (self.replica.store().clone(), inner.runtime.clone());
        let (directory, shard) = (inner.directory(self.shard), self.shard);
        let (name, shards) = (inner.options.name.clone(), inner.options.shards);
        let opened = tokio::task::spawn_blocking(move || {
            let has = move |slot_key: &str| super::shard_of(&name, shards, slot_key) == shard;
            Node::options(directory).shard(has).open_over(store, &runtime)
        });
        match opened.await {
            Ok(Ok(node)) => {
                inner.kinds.register_at(&node);
                inner.set_term(self.shard, Some(node));
                self.term = Some(term);
                self.hosted.with(|state| state.trouble = None);
            }
            Ok(Err(error)) => self.is_not_served(error.to_string()),
            Err(error) => self.is_not_served(error.to_string()),
        }
    }

    /// Notes why a shard that is owned here has no node. The next look tries again.
    fn is_not_served(&self, trouble: String) {
        let is_known = self.hosted.with(|state| {
            state.trouble.replace(trouble.clone()).is_some_and(|before| before == trouble)
        });
        if !is_known {
            tracing::error!(shard = self.shard.0, %trouble, "a shard is not served");
        }
    }

    /// Ends the node, whose entities may finish what they do for a while.
    async fn end_term(&mut self) {
        self.term = None;
        let Some(inner) = self.cluster.upgrade() else { return };
        if let Some(node) = inner.set_term(self.shard, None) {
            if timeout(inner.options.drain_within, node.shutdown()).await.is_err() {
                let shard = self.shard.0;
                tracing::warn!(shard, "entities of a shard were still busy as it was left");
            }
            // Handlers that go on have their changes refused, also if this node owns the shard again.
            node.fence();
        }
    }

    fn claim(&mut self) {
        let Some(inner) = self.cluster.upgrade() else { return };
        let for_time = self.wanted_since.map_or(Duration::ZERO, |since| since.elapsed());
        if inner.may_claim(&self.replica.status(), for_time) {
            self.replica.claim();
        }
    }

    /// Hands the shard over, once its entities have finished.
    async fn yield_to(&mut self, next: Incarnation) {
        self.end_term().await;
        let mut role = self.replica.role();
        self.replica.hand_over(next);
        // A handover that is lost leaves the node the owner, which then serves again.
        let left = role.wait_for(|role| !matches!(role, Role::Owner { .. }));
        let _ = timeout(HAND_OVER_WITHIN, left).await;
    }

    /// Hands the shard over to whoever the plan names, as the node ends.
    async fn give_up(&mut self) {
        let next = self.cluster.upgrade().and_then(|inner| {
            let members = inner.membership.members.borrow();
            let copies = members.plan().get(&self.shard)?;
            let mut nodes = members.nodes().iter();
            let is_next = |name: &str| {
                name != inner.membership.name
                    && (copies.owner == name || copies.standbys.iter().any(|other| other == name))
            };
            nodes.find(|(_, member)| is_next(&member.name)).map(|(node, _)| *node)
        });
        // Without another node, the log says that nobody owns the shard.
        self.yield_to(next.unwrap_or_default()).await;
    }

    /// How far the copy is behind: nothing if it has all records, `None` if that is not known.
    fn lag(&self) -> Option<Duration> {
        let ShardStatus { known, end, role, trouble, .. } = self.replica.status();
        let is_well = trouble.is_none() && !matches!(role, Role::Stopped(_));
        (is_well && end.is_some_and(|end| known >= end)).then_some(Duration::ZERO)
    }

    fn report(&mut self, lag: Option<Duration>) {
        let Some(inner) = self.cluster.upgrade() else { return };
        if self.reported.replace(lag) != Some(lag) {
            (inner.membership.report)(self.shard, lag);
        }
    }
}
