//! [`next_plan`]: the change of the plan that the present members call for.
//!
//! ```text
//! members ──▶ owners of the living ──▶ place ──▶ next moves ──▶ shards that change
//!             at once                  once the cluster is settled
//! ```
//!
//! 1. A shard whose owner has ended gets an owner that lives, whatever else goes on: the most advanced standby.
//! 2. A shard whose owner drains goes to a standby as soon as one is caught up.
//! 3. Nothing else moves in a cluster that is not settled, so that a node which is started again finds its shards.
//! 4. A plan that was carried out calls for the next one, until there is nothing to change.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::members::Members;
use crate::placement::{Copies, NodeName, Shard, next_moves, place};

/// Returns the shards that change, with their nodes; `None` if none does. The first plan decides the number of shards.
pub fn next_plan(
    members: &Members,
    shards: u16,
    standbys: usize,
    is_settled: bool,
) -> Option<BTreeMap<Shard, Copies>> {
    let plan = members.plan();
    let shards = if plan.is_empty() { shards } else { plan.len() as u16 };
    let wanted = place(shards, standbys, &members.candidates());
    if plan.is_empty() {
        return Some(wanted).filter(|wanted| !wanted.is_empty());
    }
    let mut next = plan.clone();
    for (shard, copies) in &mut next {
        let wanted = wanted.get(shard).map(|copies| &copies.owner);
        if let Some(owner) = next_owner(members, *shard, copies, wanted) {
            copies.hand_over(&owner);
        }
    }
    let lives = |node: &NodeName| members.named(node).is_some();
    let mut moving = next.clone();
    if is_settled {
        // A node that has not come back by now is no standby.
        moving.values_mut().for_each(|copies| copies.standbys.retain(lives));
    } else {
        moving.retain(|_, copies| drains(members, &copies.owner));
    }
    for step in
        next_moves(&moving.clone(), &wanted, |shard, node| members.is_caught_up(shard, node))
    {
        step.apply(&mut moving);
    }
    next.extend(moving);
    next.retain(|shard, copies| plan.get(shard) != Some(copies));
    Some(next).filter(|changed| !changed.is_empty())
}

/// Returns the node that a shard is to have as its owner at once; `None` if its owner may stay.
fn next_owner(
    members: &Members,
    shard: Shard,
    copies: &Copies,
    wanted: Option<&NodeName>,
) -> Option<NodeName> {
    let living = copies.standbys.iter().filter_map(|name| Some((name, members.named(name)?.1)));
    // Of those that are equally far, the newest program: then a deploy moves the shard once.
    let best = living.min_by_key(|(name, member)| {
        let lag = members.lag(shard, name).unwrap_or(u32::MAX);
        (member.is_draining, lag, Reverse(member.levels.1))
    });
    match members.named(&copies.owner) {
        Some((_, owner)) => {
            let (name, standby) = best.filter(|_| owner.is_draining)?;
            let is_better = !standby.is_draining && members.is_caught_up(shard, name);
            is_better.then(|| name.clone())
        }
        // Without any standby a node begins with nothing but the log.
        None => best.map(|(name, _)| name.clone()).or_else(|| wanted.cloned()),
    }
}

fn drains(members: &Members, name: &str) -> bool {
    members.named(name).is_some_and(|(_, member)| member.is_draining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Entry, Member};
    use crate::record::Incarnation;

    const SHARDS: u16 = 8;

    fn member(name: &str, level: u32) -> Member {
        Member {
            name: name.into(),
            address: String::new(),
            zone: name.into(),
            weight: 1,
            levels: (0, level),
            renewal: 0,
            is_draining: false,
        }
    }

    fn cluster(names: &[&str]) -> Members {
        let mut members = Members::default();
        for (number, name) in (1..).zip(names) {
            assert!(members.apply(&Entry::Join(Incarnation(number), member(name, 1))));
        }
        members
    }

    fn plan(members: &mut Members, is_settled: bool) -> bool {
        let next = next_plan(members, SHARDS, 1, is_settled);
        next.is_some_and(|next| members.apply(&Entry::Plan(members.plans() + 1, next)))
    }

    fn report(members: &mut Members, node: u128, number: u64, lag: impl Fn(Shard) -> u32) {
        let lags = (0..SHARDS).map(Shard).map(|shard| (shard, lag(shard))).collect();
        assert!(members.apply(&Entry::Report(Incarnation(node), number, lags)));
    }

    fn copies(owner: &str, standbys: &[&str]) -> Copies {
        let standbys = standbys.iter().map(|name| (*name).to_owned()).collect();
        Copies { owner: owner.into(), standbys }
    }

    #[test]
    fn of_the_standbys_of_a_dead_owner_the_most_advanced_is_next_and_then_the_newest() {
        let mut members = cluster(&["a", "b", "c"]);
        assert!(members.apply(&Entry::Join(Incarnation(4), member("d", 2))));
        let of_all = (0..SHARDS).map(|shard| (Shard(shard), copies("a", &["b", "c", "d"])));
        assert!(members.apply(&Entry::Plan(1, of_all.collect())));
        report(&mut members, 2, 1, |_| 9);
        report(&mut members, 3, 1, |_| 0);
        report(&mut members, 4, 1, |shard| u32::from(shard.0 % 2));
        assert!(!plan(&mut members, false));
        assert!(members.apply(&Entry::Expire(Incarnation(1), 0)));
        assert!(plan(&mut members, false));
        for (shard, has) in members.plan() {
            let owner = if shard.0 % 2 == 0 { "d" } else { "c" };
            // The dead node stays a standby until the cluster is settled.
            assert_eq!((has.owner.as_str(), has.standbys[0].as_str()), (owner, "a"));
        }
        assert!(!plan(&mut members, false));
    }

    #[test]
    fn nothing_moves_to_a_node_that_came_before_the_cluster_is_settled() {
        let mut members = cluster(&["a", "b"]);
        assert!(plan(&mut members, false));
        assert!(members.apply(&Entry::Join(Incarnation(3), member("c", 1))));
        assert!(!plan(&mut members, false));
        assert!(plan(&mut members, true));
        // All that is asked for is copies, and none moves on before it is caught up.
        assert!(members.plan().values().all(|copies| copies.owner != "c"));
        assert!(!plan(&mut members, true));
        let mut plans = 0;
        while {
            (1..4).for_each(|node| report(&mut members, node, plans + 1, |_| 0));
            plan(&mut members, true)
        } {
            plans += 1;
            assert!(plans < 50, "the moves do not end");
        }
        assert!(members.plan().values().any(|copies| copies.owner == "c"));
    }

    #[test]
    fn a_node_that_drains_hands_over_what_others_have_and_has_the_rest_copied() {
        let mut members = cluster(&["a", "b", "c"]);
        let mut of_all: BTreeMap<_, _> =
            (1..SHARDS).map(|shard| (Shard(shard), copies("a", &["b"]))).collect();
        of_all.insert(Shard(0), copies("a", &[]));
        assert!(members.apply(&Entry::Plan(1, of_all)));
        (1..4).for_each(|node| report(&mut members, node, 1, |_| 0));
        assert!(members.apply(&Entry::Drain(Incarnation(1), true)));
        while plan(&mut members, false) {}
        assert!(members.plan().values().all(|copies| copies.owner != "a"), "{:?}", members.plan());
    }

    #[test]
    fn a_shard_without_any_living_copy_gets_an_owner_that_lives() {
        let mut members = cluster(&["a", "b"]);
        let of_all = (0..SHARDS).map(|shard| (Shard(shard), copies("x", &["y"]))).collect();
        assert!(members.apply(&Entry::Plan(1, of_all)));
        assert!(plan(&mut members, false));
        assert!(members.plan().values().all(|copies| copies.owner != "x"));
        assert!(members.apply(&Entry::Drain(Incarnation(1), true)));
        assert!(members.apply(&Entry::Drain(Incarnation(2), true)));
        // There is no candidate: all stays as it is.
        assert!(!plan(&mut members, false));
    }
}
