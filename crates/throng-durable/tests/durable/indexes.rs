//! Indexes: entries and states agree, whatever fails, and a unique key has one owner.
//!
//! `THRONG_INDEX_SEEDS` is the number of seeds of the simulated members, `THRONG_SIM_SEED` the only one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    CommitError, Durable, EntityError, INDEX_KEY_BYTES_MAX, IndexError, IndexInfo, IndexState,
    Node, OldState, Records, StateError,
};
use throng_store::Store;
use tokio::time::sleep;

use crate::{
    BlockedWriter, begin, busy_options, draw_faults, end, mend, number_or, on_node, program,
    start_again, until,
};

const MEMBERS: u64 = 6;
const NAMES: u64 = 4;
const LIVES: u64 = 3;

#[derive(Durable, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[durable(kind = "member")]
struct Member {
    #[durable(index, unique)]
    name: Option<String>,
    #[durable(index = "points")]
    score: i64,
    visits: u64,
}

#[process]
impl Member {
    #[message]
    fn rename(&mut self, name: Option<String>) {
        self.name = name;
    }

    #[message]
    fn score(&mut self, points: i64) {
        self.score = points;
    }

    /// Changes the state and no key.
    #[message]
    fn visit(&mut self) -> u64 {
        self.visits += 1;
        self.visits
    }

    #[message]
    fn read(&self) -> Member {
        self.clone()
    }

    #[message]
    fn die(&self, cx: &mut Context<Self>) {
        cx.pid().kill();
    }

    #[message]
    fn fail(&mut self) {
        self.name = Some("never".to_owned());
        panic!("asked for");
    }
}

/// The member of a program before it had indexes.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "member")]
struct Plain {
    name: Option<String>,
    score: i64,
    visits: u64,
}

#[process]
impl Plain {
    #[message]
    fn set(&mut self, name: Option<String>, score: i64) {
        (self.name, self.score) = (name, score);
    }
}

/// The member of a later program, whose names are written in small letters.
#[derive(Durable, Clone, Default, Serialize, Deserialize)]
#[durable(kind = "member", version = 2, migrate = Later::from_member)]
struct Later {
    #[durable(index, unique)]
    name: Option<String>,
}

#[process]
impl Later {
    fn from_member(old: OldState<'_>) -> Result<Later, StateError> {
        let member: Member = old.decode()?;
        Ok(Later { name: member.name.map(|name| name.to_lowercase()) })
    }

    #[message(name = RenameLater)]
    fn rename(&mut self, name: Option<String>) {
        self.name = name;
    }
}

/// Entities in an index, in its order.
fn keys_in<P: Durable, K: throng_durable::IndexKey + ?Sized>(
    node: &Node,
    index: throng_durable::Index<P, K>,
) -> Vec<String> {
    let view = node.index(index).unwrap();
    view.iter().map(|found| found.unwrap().key().to_owned()).collect()
}

/// Waits until all indexes are complete, and no other is left.
async fn built(node: &Node) -> Vec<IndexInfo> {
    loop {
        let infos = node.indexes().unwrap();
        if infos.iter().all(|info| info.state == IndexState::Complete) {
            return infos;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Asserts that the indexes are those of the stored states.
async fn assert_agrees(node: &Node) -> BTreeMap<String, Member> {
    let stored: Vec<String> = {
        let stored = node.stored::<Member>().unwrap();
        stored.keys().map(|key| key.unwrap().to_owned()).collect()
    };
    let mut members = BTreeMap::new();
    for key in stored {
        let member = node.entity::<Member>(&key).read().await.unwrap();
        members.insert(key, member);
    }
    let mut scores: Vec<_> =
        members.iter().map(|(key, member)| (member.score, key.clone())).collect();
    scores.sort();
    let in_order: Vec<_> = scores.iter().map(|(_, key)| key.clone()).collect();
    assert_eq!(keys_in(node, Member::SCORE), in_order, "{members:?}");
    let names = |(key, member): (&String, &Member)| Some((member.name.clone()?, key.clone()));
    let mut names: Vec<_> = members.iter().filter_map(names).collect();
    names.sort();
    let in_order: Vec<_> = names.iter().map(|(_, key)| key.clone()).collect();
    assert_eq!(keys_in(node, Member::NAME), in_order, "{members:?}");
    let unique: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(unique.len(), names.len(), "a name is used twice: {members:?}");
    let (by_score, by_name) =
        (node.index(Member::SCORE).unwrap(), node.index(Member::NAME).unwrap());
    for (name, key) in &names {
        assert_eq!(by_name.get(name).unwrap().unwrap().key(), key);
    }
    for (score, _) in &scores {
        let expected = scores.iter().filter(|(other, _)| other == score).count() as u64;
        assert_eq!(by_score.find(score).total().unwrap(), expected);
    }
    members
}

/// Makes changes of all sorts, and notes the names that members had and have given up.
async fn change(sim: Sim, node: Node, conflicts: std::sync::Arc<AtomicU64>) {
    for _ in 0..12 {
        let member = node.entity::<Member>(sim.random(MEMBERS).to_string());
        // An error may leave it changed or not: the indexes agree with the state.
        match sim.random(10) {
            0 => drop(member.forget().await),
            1 => drop(member.rename(None).await),
            2 => drop(member.score(sim.random(3) as i64 - 1).await),
            3 => drop(member.visit().await),
            4 => drop(member.die().await),
            5 => drop(member.fail().await),
            _ => {
                let name = sim.random(NAMES).to_string();
                if let Err(EntityError::Conflict(conflict)) =
                    member.rename(Some(name.clone())).await
                {
                    assert_eq!(conflict.key, format!("{name:?}"));
                    assert_ne!(conflict.owner, member.key());
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        sleep(Duration::from_micros(sim.random(3_000))).await;
    }
}

#[test]
fn simulated_members_and_their_indexes_agree_at_each_start() {
    let seeds = number_or("THRONG_INDEX_SEEDS", 30);
    let (conflicts, named) = (std::sync::Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    sim::check(seeds, |sim: Sim| {
        let (conflicts, named) = (conflicts.clone(), &named);
        async move {
            // The first program may have no indexes.
            if sim.random(2) == 0 {
                let node = start_again(&sim, busy_options);
                for member in 0..sim.random(MEMBERS) {
                    let plain = node.entity::<Plain>(member.to_string());
                    // A name that no turn takes: while an index is built, it does not guard it.
                    plain.set(Some(format!("plain {member}")), member as i64).await.unwrap();
                }
                sim.crash();
            }
            for _ in 0..LIVES {
                let node = start_again(&sim, busy_options);
                draw_faults::<Member>(&sim, 120);
                for _ in 0..3 {
                    let task = change(sim.clone(), node.clone(), conflicts.clone());
                    sim.spawn("member", task);
                }
                sleep(Duration::from_millis(sim.random(60))).await;
                end(&sim, node).await;
                let node = start_again(&sim, busy_options);
                // The kind is named by this, so that its indexes are built.
                drop(node.index(Member::NAME));
                built(&node).await;
                let members = assert_agrees(&node).await;
                named.fetch_add(members.len() as u64, Ordering::Relaxed);
                sim.crash();
                mend(&sim);
            }
        }
    });
    let (conflicts, named) = (conflicts.load(Ordering::Relaxed), named.into_inner());
    assert!(conflicts > seeds && named > 2 * seeds, "{conflicts} and {named} show little");
}

#[test]
fn of_two_turns_in_a_commit_one_gets_the_unique_key() {
    on_node(async |node| {
        let writer = BlockedWriter::new(node).await;
        let [ann, bob] = ["ann", "bob"].map(|key| node.entity::<Member>(key));
        let first = begin(ann.rename(Some("x".into())).into_future()).await;
        until(async || node.live() == 1 && node.store().submitted_through() != Default::default())
            .await;
        let second = bob.rename(Some("x".into())).await;
        let Err(EntityError::Conflict(conflict)) = second else { panic!("{second:?}") };
        let found = (conflict.kind, conflict.index, &*conflict.key, &*conflict.owner);
        assert_eq!(found, ("member", "name", "\"x\"", "ann"));
        assert_eq!(
            conflict.to_string(),
            "\"x\" is taken in the unique index name of member: by \"ann\""
        );
        // The view shows what is on disk.
        assert!(node.index(Member::NAME).unwrap().get("x").unwrap().is_none());
        drop(writer);
        first.await.unwrap().unwrap();
        assert_eq!(node.index(Member::NAME).unwrap().get("x").unwrap().unwrap().key(), "ann");
        // Nothing of the turn was kept, and a name that is given up is free.
        assert_eq!(bob.read().await.unwrap(), Member::default());
        ann.rename(None).await.unwrap();
        bob.rename(Some("x".into())).await.unwrap();
        bob.forget().await.unwrap();
        ann.rename(Some("x".into())).await.unwrap();
        assert_agrees(node).await;
    });
}

#[test]
fn turns_that_leave_the_keys_alone_write_no_entries() {
    on_node(async |node| {
        let ann = node.entity::<Member>("ann");
        ann.rename(Some("x".into())).await.unwrap();
        let before = node.stat().unwrap().store.entries;
        let entry = node.index(Member::NAME).unwrap().iter().total().unwrap();
        for _ in 0..10 {
            ann.visit().await.unwrap();
        }
        assert_eq!(node.stat().unwrap().store.entries, before);
        assert_eq!(node.index(Member::NAME).unwrap().iter().total().unwrap(), entry);
    });
}

#[test]
fn entities_are_found_by_key_range_and_prefix_in_order_page_by_page() {
    on_node(async |node| {
        for (key, name, score) in
            [("1", "ann", -300), ("2", "anna", 0), ("3", "an\0", 70_000), ("4", "bob", 0)]
        {
            let member = node.entity::<Member>(key);
            member.rename(Some(name.into())).await.unwrap();
            member.score(score).await.unwrap();
        }
        let keys = |found: throng_durable::Found<'_, Member>| -> Vec<String> {
            found.map(|found| found.unwrap().key().to_owned()).collect()
        };
        let names = node.index(Member::NAME).unwrap();
        assert_eq!(keys(names.iter()), ["3", "1", "2", "4"]);
        assert_eq!(keys(names.prefix("ann")), ["1", "2"]);
        assert_eq!(keys(names.prefix("an")), ["3", "1", "2"]);
        assert_eq!(keys(names.range("ann"..="anna")), ["1", "2"]);
        assert_eq!(keys(names.range("ann".."anna")), ["1"]);
        assert_eq!(keys(names.range("b".."a")), Vec::<String>::new());
        assert!(names.get("an").unwrap().is_none());
        let scores = node.index(Member::SCORE).unwrap();
        assert_eq!(Member::SCORE.name(), "points");
        assert_eq!(keys(scores.range(..&0)), ["1"]);
        assert_eq!(keys(scores.range(&0..)), ["2", "4", "3"]);
        assert_eq!(keys(scores.find(&0)), ["2", "4"]);
        assert_eq!(scores.range(&-300..&1).total().unwrap(), 3);
        let backwards: Vec<_> = scores.iter().rev().map(|found| found.unwrap()).collect();
        assert_eq!(backwards[0].key(), "3");
        let (mut cursor, mut seen) = (Vec::new(), Vec::new());
        loop {
            let view = node.index(Member::SCORE).unwrap();
            let mut page = view.range(&-300..&70_000).after(&cursor);
            seen.extend(page.by_ref().take(1).map(|found| found.unwrap().key().to_owned()));
            if page.cursor().is_empty() {
                break;
            }
            cursor = page.cursor().to_vec();
        }
        assert_eq!(seen, ["1", "2", "4"]);
    });
}

#[test]
fn a_key_that_is_too_long_fails_its_turn_and_is_never_cut() {
    on_node(async |node| {
        let ann = node.entity::<Member>("a".repeat(255));
        let longest = "x".repeat(INDEX_KEY_BYTES_MAX);
        ann.rename(Some(longest.clone())).await.unwrap();
        let refused = ann.rename(Some(format!("{longest}x"))).await;
        let Err(EntityError::NotCommitted(CommitError::IndexKey { index: "name", bytes })) =
            refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(bytes, INDEX_KEY_BYTES_MAX + 4);
        let names = node.index(Member::NAME).unwrap();
        assert_eq!(names.get(&longest).unwrap().unwrap().key(), ann.key());
        assert_eq!(names.iter().total().unwrap(), 1);
    });
}

#[test]
fn an_index_of_a_field_that_has_none_is_built_beside_running_turns() {
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        let calls = (0..1_000).map(|number| {
            let plain = node.entity::<Plain>(format!("{number:04}"));
            tokio::spawn(plain.set(Some(format!("n{number}")), number % 7).into_future())
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        // Two entities that are in conflict from the begin, and one whose name is too long.
        node.entity::<Plain>("twin").set(Some("n1".into()), 0).await.unwrap();
        node.entity::<Plain>("long").set(Some("x".repeat(1_000)), 0).await.unwrap();
    });
    program(Node::options(directory.path()), async |node| {
        let building = node.index(Member::NAME);
        let Err(IndexError::Building { index: "name", done, of: 1_002 }) = building else {
            panic!("{building:?}")
        };
        assert!(done <= 1_002);
        for number in 0..1_000 {
            let member = node.entity::<Member>(format!("{number:04}"));
            match number % 4 {
                0 => member.rename(Some(format!("m{number}"))).await.unwrap(),
                1 => drop(member.visit().await.unwrap()),
                2 if number % 8 == 2 => member.forget().await.unwrap(),
                _ => {}
            }
        }
        let infos = built(node).await;
        let name = infos.iter().find(|info| info.name == "name").unwrap();
        assert_eq!((name.skipped, name.is_unique), (1, true));
        assert!(name.conflicts <= 1, "{name:?}");
        // A change of another field is no matter of a name that was too long.
        node.entity::<Member>("long").score(1).await.unwrap();
        node.entity::<Member>("twin").rename(Some("other".into())).await.unwrap();
        node.entity::<Member>("long").rename(None).await.unwrap();
        assert_agrees(node).await;
    });
    // From here on the indexes are complete from the begin.
    program(Node::options(directory.path()), async |node| drop(assert_agrees(node).await));
}

#[test]
fn an_index_that_is_gone_is_deleted_and_never_taken_for_complete_again() {
    let directory = tempfile::tempdir().unwrap();
    let entries = |directory: &tempfile::TempDir| {
        let store = Store::options().read_only(true).open(directory.path()).unwrap();
        let snapshot = store.snapshot().unwrap();
        let table = store.default_database::<throng_durable::Bytes, throng_durable::Bytes>();
        let indexes =
            store.database::<throng_durable::Bytes, throng_durable::Bytes>("durable indexes");
        let count = |letter: &str| table.prefix(&snapshot, letter.as_bytes()).count();
        [indexes.unwrap().range(&snapshot, ..).count(), count("F"), count("G"), count("H")]
    };
    program(Node::options(directory.path()), async |node| {
        for number in 0..600 {
            let member = node.entity::<Member>(number.to_string());
            let call = member.rename(Some(number.to_string()));
            drop(begin(call.into_future()).await);
        }
        node.entity::<Member>("last").rename(Some("last".into())).await.unwrap();
    });
    assert_eq!(entries(&directory), [1_202, 2, 0, 2]);
    // A program without the indexes, which ends soon after its first turn.
    program(Node::options(directory.path()), async |node| {
        node.entity::<Plain>("0").set(Some("other".into()), 5).await.unwrap();
    });
    let [_, _, gone, _] = entries(&directory);
    assert_eq!(gone, 2);
    program(Node::options(directory.path()), async |node| {
        drop(node.index(Member::NAME));
        built(node).await;
        let members = assert_agrees(node).await;
        assert_eq!(members["0"].name.as_deref(), Some("other"));
    });
    assert_eq!(entries(&directory), [1_202, 2, 0, 2]);
    program(Node::options(directory.path()), async |node| {
        node.entity::<Plain>("0").set(None, 5).await.unwrap();
        built(node).await;
    });
    assert_eq!(entries(&directory), [0, 0, 0, 0]);
}

#[test]
fn an_index_of_another_version_of_the_state_is_built_anew() {
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        node.entity::<Member>("1").rename(Some("Ann".into())).await.unwrap();
        node.entity::<Member>("2").rename(Some("bob".into())).await.unwrap();
    });
    program(Node::options(directory.path()), async |node| {
        assert!(matches!(node.index(Later::NAME), Err(IndexError::Building { .. })));
        built(node).await;
        let names = node.index(Later::NAME).unwrap();
        assert!(names.get("Ann").unwrap().is_none());
        assert_eq!(names.get("ann").unwrap().unwrap().key(), "1");
        let taken = node.entity::<Later>("2").rename(Some("ann".into())).await;
        assert!(matches!(taken, Err(EntityError::Conflict(_))), "{taken:?}");
        node.entity::<Later>("1").forget().await.unwrap();
        assert_eq!(keys_in(node, Later::NAME), ["2"]);
    });
}

#[test]
fn an_entity_that_cannot_be_loaded_leaves_no_entries_when_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        for key in ["1", "2", "3"] {
            node.entity::<Member>(key).rename(Some(format!("n{key}"))).await.unwrap();
        }
    });
    let store = Store::open(directory.path()).unwrap();
    let table = store.default_database::<throng_durable::Bytes, throng_durable::Bytes>();
    // The states of the kind with the number 1.
    for key in ["1", "2"] {
        let state_key = [b"S\x00\x01", key.as_bytes()].concat();
        table.put(&state_key, b"\x01\xff").wait().unwrap();
    }
    assert!(Records::of(store.clone()).forget("member", "1").unwrap());
    drop((table, store));
    program(Node::options(directory.path()), async |node| {
        assert_eq!(keys_in(node, Member::NAME), ["2", "3"]);
        node.forget_unreadable::<Member>("2").await.unwrap();
        assert_eq!(keys_in(node, Member::NAME), ["3"]);
        assert_eq!(keys_in(node, Member::SCORE), ["3"]);
        node.entity::<Member>("4").rename(Some("n2".into())).await.unwrap();
    });
}

#[test]
fn an_imported_entity_is_found_once_its_indexes_are_built_anew() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let name = |name: &str| Some(name.to_owned());
    program(Node::options(from.path()), async |node| {
        node.entity::<Member>("a").rename(name("ada")).await.unwrap()
    });
    program(Node::options(to.path()), async |node| {
        node.entity::<Member>("b").rename(name("bob")).await.unwrap();
        built(node).await;
    });
    let open = |directory: &tempfile::TempDir| Records::of(Store::open(directory.path()).unwrap());
    let export = open(&from).export("member", "a").unwrap().unwrap();
    open(&to).import("member", "a", export).unwrap();
    program(Node::options(to.path()), async |node| {
        node.entity::<Member>("b").visit().await.unwrap();
        built(node).await;
        assert_eq!(keys_in(node, Member::NAME), ["a", "b"]);
    });
}

#[test]
fn what_a_turn_has_replied_is_found() {
    on_node(async |node| {
        for number in 0..100 {
            let member = node.entity::<Member>("it");
            member.rename(Some(number.to_string())).await.unwrap();
            let names = node.index(Member::NAME).unwrap();
            assert_eq!(names.get(&number.to_string()).unwrap().unwrap().key(), "it");
            assert_eq!(names.iter().total().unwrap(), 1);
        }
    });
}
