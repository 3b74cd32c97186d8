//! Followers of a user: a view of other users' follows, which the followers' outboxes keep up to date.
//!
//! ```text
//!  User "alice"                                         User "bob"
//!  follow(bob), a turn:
//!    cell following  bob → ()
//!    cell outbox     bob → 7   ──after the commit──►    note_follower(alice, 7, true), a turn:
//!                                                         cell followers   alice → 7
//!    acknowledge(bob, 7):      ◄──after the commit──      (after an unfollow: cell unfollowed  alice → 7)
//!    deletes the cell outbox, if it still has the 7
//! ```
//!
//! The cells "following" are the truth. Each change of a follow has a number from a counter in the follower's state,
//! and leaves a cell in the outbox in the same commit. The target keeps the highest number that it has seen of each
//! follower, also after an unfollow, and ignores messages with lower ones. So messages may be lost, repeated and
//! reordered: a process that starts sends again for each cell that is left, and a process that stays sends again after
//! [`RETRY`].
//!
//! Invariants:
//! * A number leaves its user only after its commit, so no number stands for two states of a follow.
//! * A user whose follow has changed has a cell in the outbox until the target has the change on disk. So **when all
//!   outboxes are empty, the followers of each user are the users who follow it**. A follow that has a cell may be
//!   missing in the target's list, or still be there after its end. The cell is deleted once follower and target have
//!   handled their messages and committed; a follower that is not in memory resumes when it is next activated.
//! * The turn of a target reads and writes a constant number of cells, however many followers it has.

use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Timeout;
use throng::prelude::*;
use throng_durable::{CellError, DurableContext, Str};

use crate::error::SocialError;
use crate::name::Name;

use super::{Acknowledge, FOLLOWING, NoteFollower, Resend, User, name};

/// State of a user's outbox; the changes that wait in it are cells.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Outbox {
    /// Number of the last change of a follow.
    sequence: u64,
    #[serde(skip)]
    retry: Timeout,
}

impl Outbox {
    /// Returns the number of the next change.
    pub(super) fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl User {
    /// Puts the change of a follow into the outbox, and sends it once it is on disk.
    pub(super) fn follow_changed(
        &mut self,
        cx: &mut Context<Self>,
        target: &Name,
        follows: bool,
    ) -> Result<(), CellError> {
        let mut outbox = cx.cells::<Str, u64>(OUTBOX);
        if !outbox.contains(target.as_str())? {
            self.unfinished += 1;
        }
        let sequence = self.outbox.next();
        outbox.put(target.as_str(), &sequence);
        self.send_follow(cx, target, sequence, follows);
        self.retry_later(cx);
        Ok(())
    }

    /// Resumes the work that an earlier activation left, or that was not acknowledged in time: sends the changes in the
    /// outbox behind `after` again, a bounded number in a turn, and removes likes.
    pub(super) fn resume(
        &mut self,
        cx: &mut Context<Self>,
        after: Option<String>,
    ) -> Result<(), CellError> {
        if self.unfinished == 0 {
            return Ok(());
        }
        self.retry_later(cx);
        self.remove_next_likes(cx)?;
        let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut outbox = cx.cells::<Str, u64>(OUTBOX);
        let left = outbox.range((start, Bound::Unbounded)).take(RESENT_AT_ONCE);
        let left = left.map(|cell| cell.map(|(target, sequence)| (target.to_owned(), sequence)));
        let left: Vec<(String, u64)> = left.collect::<Result<_, _>>()?;
        for (target, sequence) in &left {
            let follows = cx.cells::<Str, ()>(FOLLOWING).contains(target)?;
            if let Ok(target) = target.parse() {
                self.send_follow(cx, &target, *sequence, follows);
            }
        }
        if left.len() == RESENT_AT_ONCE
            && let Some((last, _)) = left.into_iter().next_back()
        {
            let me = cx.entity();
            cx.after_commit(move || drop(me.send(Resend { after: Some(last) })));
        }
        Ok(())
    }

    /// Removes a change from the outbox that the target has on disk, unless there is a later change.
    pub(super) fn acknowledged(
        &mut self,
        cx: &mut Context<Self>,
        target: &Name,
        sequence: u64,
    ) -> Result<(), CellError> {
        let mut outbox = cx.cells::<Str, u64>(OUTBOX);
        if outbox.get(target.as_str())? == Some(sequence) {
            outbox.delete(target.as_str());
            self.finished();
        }
        Ok(())
    }

    /// Counts a piece of work as finished.
    pub(super) fn finished(&mut self) {
        self.unfinished = self.unfinished.saturating_sub(1);
        if self.unfinished == 0 {
            self.outbox.retry.cancel();
        }
    }

    /// Records whether another user follows this user, unless a later change is known, and acknowledges it.
    pub(super) fn follower_changed(
        &mut self,
        cx: &mut Context<Self>,
        follower: Name,
        sequence: u64,
        follows: bool,
    ) -> Result<(), CellError> {
        // A name without an account stores nothing.
        if self.account.is_some() {
            let key = follower.as_str();
            let listed = cx.cells::<Str, u64>(FOLLOWERS).get(key)?;
            let known = listed.or(cx.cells::<Str, u64>(UNFOLLOWED).get(key)?);
            if known.is_none_or(|known| known < sequence) {
                let (into, from) =
                    if follows { (FOLLOWERS, UNFOLLOWED) } else { (UNFOLLOWED, FOLLOWERS) };
                cx.cells::<Str, u64>(into).put(key, &sequence);
                if known.is_some() && listed.is_some() != follows {
                    cx.cells::<Str, u64>(from).delete(key);
                }
                self.followers = self.followers + u64::from(follows) - u64::from(listed.is_some());
            }
        }
        let (me, follower) = (name(cx), cx.node().entity::<User>(follower.as_str()));
        cx.after_commit(move || drop(follower.send(Acknowledge { target: me, sequence })));
        Ok(())
    }

    /// Returns the first `limit` followers after a name, in alphabetical order, and whether there are more.
    pub(super) fn followers_page(
        &self,
        cx: &mut Context<Self>,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), SocialError> {
        self.account(cx)?;
        Ok(self.some_followers(cx, after, limit)?)
    }

    /// Returns followers as [`followers_page`](User::followers_page) does, also of a closed account.
    pub(super) fn some_followers(
        &self,
        cx: &mut Context<Self>,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), CellError> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let mut found = Vec::new();
        let mut followers = cx.cells::<Str, u64>(FOLLOWERS);
        for cell in followers.range((start, Bound::Unbounded)).take(limit.saturating_add(1)) {
            found.extend(cell?.0.parse::<Name>());
        }
        let more = found.len() > limit;
        found.truncate(limit);
        Ok((found, more))
    }

    /// Removes followers of a closed account, who have learned of its end.
    pub(super) fn forget_followers(
        &mut self,
        cx: &mut Context<Self>,
        followers: &[Name],
    ) -> Result<(), CellError> {
        let mut cells = cx.cells::<Str, u64>(FOLLOWERS);
        for follower in followers {
            if cells.contains(follower.as_str())? {
                cells.delete(follower.as_str());
                self.followers -= 1;
            }
        }
        Ok(())
    }

    /// Sends a change of a follow to its target, once everything up to this turn is on disk.
    fn send_follow(&self, cx: &mut Context<Self>, target: &Name, sequence: u64, follows: bool) {
        let (follower, target) = (name(cx), cx.node().entity::<User>(target.as_str()));
        // A message that finds no room is sent again later.
        cx.after_commit(move || drop(target.send(NoteFollower { follower, sequence, follows })));
    }

    /// Sets the timer that sends again, unless it is set.
    fn retry_later(&mut self, cx: &mut Context<Self>) {
        if !self.outbox.retry.is_set() {
            self.outbox.retry.set(cx, RETRY, Resend { after: None });
        }
    }
}

/// Logs why a turn without a caller has failed. The counts that the turn has changed match the cells that it has
/// changed, and the outbox makes another attempt.
pub(super) fn report(outcome: Result<(), CellError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "a change of a follow or the removal of likes has to wait for another attempt");
    }
}

/// Time after which a message that was not acknowledged is sent again. Messages are lost only where the runtime or the
/// store has no room, so a short time would add to the load.
const RETRY: Duration = Duration::from_secs(10);

/// Maximum number of cells for which a turn sends again: as many names and messages as fit a few kilobytes.
const RESENT_AT_ONCE: usize = 100;

/// Names of the maps of cells; see also `user.rs`.
const OUTBOX: &str = "outbox";
const FOLLOWERS: &str = "followers";
const UNFOLLOWED: &str = "unfollowed";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use throng_durable::sim::{self, Sim};
    use throng_durable::{Entity, Node};

    use super::*;
    use crate::for_you::collector::Collectors;
    use crate::live::Live;
    use crate::user::tests::{deps_with, with_a_user};
    use crate::user::{Account, UserClient};

    const USERS: u64 = 4;

    fn user(number: u64) -> Name {
        format!("user_{number}").parse().unwrap()
    }

    fn entity(node: &Node, number: u64) -> Entity<User> {
        node.entity(user(number).as_str())
    }

    /// Starts a node with the users' dependencies.
    async fn start(sim: &Sim) -> Node {
        let node = sim.start(Node::options("").idle_after(Duration::from_secs(1))).unwrap();
        let live = Live::start_simulated(sim.runtime()).await;
        let collectors = Collectors::start_simulated(sim.runtime(), &node).await;
        node.register::<User>(deps_with(live, collectors));
        node
    }

    /// Changes follows until the power is cut, in any order, each user's by two clients at once.
    async fn act(sim: Sim, node: Node, number: u64) {
        for _ in 0..12 {
            let me = entity(&node, number);
            let other = user((number + 1 + sim.random(USERS - 1)) % USERS);
            let outcome = match sim.random(5) {
                0 | 1 => me.follow(other).await,
                2 => me.unfollow(other).await,
                3 => me.block(other).await,
                _ => me.unblock(other).await,
            };
            if outcome.is_err() && sim.disk().is_down() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(sim.random(400))).await;
        }
    }

    /// Asks a user for the number of cells in the outbox.
    struct Waiting;
    impl Message for Waiting {
        type Reply = usize;
    }
    impl Handle<Waiting> for User {
        async fn handle(&mut self, _: Waiting, cx: &mut Context<Self>) -> usize {
            let waiting = cx.cells::<Str, u64>(OUTBOX).range(..).count();
            // There are no likes in these tests.
            assert_eq!(waiting, self.unfinished as usize);
            waiting
        }
    }

    /// Activates all users, and returns the number of cells in their outboxes.
    async fn waiting(node: &Node) -> usize {
        let mut waiting = 0;
        for number in 0..USERS {
            waiting += entity(node, number).call(Waiting).await.unwrap();
        }
        waiting
    }

    /// Returns the pairs of follower and target, by the followers and by the targets.
    async fn edges(node: &Node) -> (BTreeSet<(Name, Name)>, BTreeSet<(Name, Name)>) {
        let (mut following, mut followed) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..USERS {
            let (me, name) = (entity(node, number), user(number));
            let targets = me.following().await.unwrap().unwrap();
            following.extend(targets.into_iter().map(|target| (name.clone(), target)));
            let (followers, more) = me.followers(None, usize::MAX).await.unwrap().unwrap();
            assert!(!more && followers.is_sorted());
            let profile = me.describe().await.unwrap().unwrap();
            assert_eq!(profile.followers, followers.len() as u64);
            followed.extend(followers.into_iter().map(|follower| (follower, name.clone())));
        }
        (following, followed)
    }

    #[test]
    fn messages_in_any_order_and_number_leave_the_latest_change() {
        with_a_user(async |_, alice| {
            let mut rng = fastrand::Rng::with_seed(7);
            let note = |sequence: u64| {
                let (follower, follows) = (user(0), sequence.is_multiple_of(3));
                alice.send(NoteFollower { follower, sequence, follows }).unwrap();
            };
            let (mut last, mut highest) = (0, 0);
            for _ in 0..300 {
                let mut sequences: Vec<u64> = (last..last + rng.u64(1..6)).collect();
                last += sequences.len() as u64;
                sequences.extend_from_within(..rng.usize(..=sequences.len()));
                rng.shuffle(&mut sequences);
                for sequence in sequences {
                    note(sequence);
                    highest = highest.max(sequence);
                    let expected =
                        if highest.is_multiple_of(3) { vec![user(0)] } else { Vec::new() };
                    let found = alice.followers(None, 9).await.unwrap().unwrap();
                    assert_eq!(found, (expected.clone(), false), "{sequence} of {highest}");
                    let profile = alice.describe().await.unwrap().unwrap();
                    assert_eq!(profile.followers, expected.len() as u64);
                }
            }
        });
    }

    #[test]
    fn an_acknowledgement_of_an_earlier_change_leaves_the_later_change_in_the_outbox() {
        with_a_user(async |node, alice| {
            // A target that never answers: its state cannot be loaded.
            let damaged = entity(node, 0);
            let account = Account { password_hash: String::new(), created_ms: 0 };
            damaged.register(account).await.unwrap().unwrap();
            damaged.forget().await.unwrap();
            let state = [b"S\0\x01".as_slice(), user(0).as_str().as_bytes()].concat();
            let entries =
                node.store().default_database::<throng_store::Bytes, throng_store::Bytes>();
            entries.put(&state, b"\xff").await.unwrap();
            assert!(damaged.describe().await.is_err());

            alice.follow(user(0)).await.unwrap().unwrap();
            alice.unfollow(user(0)).await.unwrap().unwrap();
            let acknowledge = |sequence| {
                alice.send(Acknowledge { target: user(0), sequence }).unwrap();
            };
            for (sequence, left) in [(1, 1), (3, 1), (2, 0), (2, 0)] {
                acknowledge(sequence);
                assert_eq!(alice.call(Waiting).await.unwrap(), left, "after {sequence}");
            }
        });
    }

    #[test]
    fn followers_are_the_inverse_of_follows_once_the_outboxes_are_empty() {
        let seeds = std::env::var("THRONG_SOCIAL_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
        sim::check(seeds, |sim| async move {
            let node = start(&sim).await;
            for number in 0..USERS {
                let account = Account { password_hash: String::new(), created_ms: 0 };
                entity(&node, number).register(account).await.unwrap().unwrap();
            }
            node.shutdown().await;
            drop(node);
            for life in 0..4 {
                let node = start(&sim).await;
                if life < 3 {
                    sim.disk().cut_at(1 + sim.random(120));
                    sim.faults().crash::<User>(5).delay(Duration::from_millis(20), 100);
                }
                for number in 0..2 * USERS {
                    sim.spawn("client", act(sim.clone(), node.clone(), number % USERS));
                }
                tokio::time::sleep(Duration::from_secs(3)).await;
                sim.faults().stop();
                if life < 3 {
                    sim.crash();
                    continue;
                }
                // A read activates its user, which sends again for the cells that are left.
                let mut attempts = 0;
                while waiting(&node).await > 0 {
                    attempts += 1;
                    assert!(attempts < 100, "an outbox is never empty");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let (following, followed) = edges(&node).await;
                assert_eq!(followed, following);
            }
        });
    }
}
