//! Groups: membership, its count, broadcasts, monitors, and the exit of members.

use crate::{Actor, Counter, eventually, runtime, scaled};
use std::sync::mpsc;
use throng::prelude::*;
use throng::{GroupChange, GroupEvent};

/// Forwards the events of a group to the test.
struct Doorman(mpsc::Sender<(GroupChange, Address<Counter>)>);
impl Process for Doorman {}
impl Handle<GroupEvent<Address<Counter>>> for Doorman {
    async fn handle(&mut self, event: GroupEvent<Address<Counter>>, _: &mut Context<Self>) {
        assert_eq!(&*event.group, "kitchen");
        let _ = self.0.send((event.change, event.member));
    }
}

#[test]
fn members_leave_when_they_exit_and_the_dead_cannot_join() {
    let runtime = runtime();
    let group = runtime.group::<Address<Counter>>("kitchen");
    let members: Vec<_> = (0..3).map(|_| runtime.spawn(Counter::default()).unwrap()).collect();
    members.iter().for_each(|&member| assert!(group.join(member) && group.join(member)));
    runtime.block_on(async |_| {
        // Leaves twice and joins again: only this last membership counts.
        assert!(group.leave(members[0]) && group.leave(members[0]) && group.join(members[0]));
        members[0].kill();
        members[0].pid().exited().await;
        assert_eq!(group.len(), 2);
        members[1].stop();
        members[1].pid().exited().await;
        assert_eq!(group.members(), [members[2], members[2]]);
        assert!(!group.join(members[0]) && !group.leave(members[0]));
    });
}

#[test]
fn groups_of_one_name_are_one_group_if_they_are_of_one_type() {
    let runtime = runtime();
    let member = runtime.spawn(Counter::default()).unwrap();
    // No handle exists in between: the member keeps the group.
    assert!(runtime.group::<Address<Counter>>("kitchen").join(member));
    assert_eq!(runtime.group::<Address<Counter>>("kitchen").members(), [member]);
    assert!(runtime.group::<Address<Actor>>("kitchen").is_empty());
    assert!(runtime.group::<Address<Counter>>("bar").is_empty());
}

#[test]
fn monitors_receive_all_changes_in_order() {
    let runtime = runtime();
    let group = runtime.group::<Address<Counter>>("kitchen");
    let (first, second) =
        (runtime.spawn(Counter::default()).unwrap(), runtime.spawn(Counter::default()).unwrap());
    assert!(group.join(first));
    let (sender, events) = mpsc::channel();
    let doorman = runtime.spawn(Doorman(sender)).unwrap();
    let (monitor, present) = group.monitor(doorman);
    assert_eq!(present, [first]);
    assert!(group.join(first) && group.join(second) && group.leave(second));
    let next = || events.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(next(), (GroupChange::Joined, first));
    assert_eq!(next(), (GroupChange::Joined, second));
    assert_eq!(next(), (GroupChange::Left, second));
    first.kill();
    assert_eq!([next(), next()], [(GroupChange::Left, first); 2], "two joins, but not two events");
    assert!(group.demonitor(monitor) && !group.demonitor(monitor));
    assert!(group.join(second));
    runtime.block_on(async |_| {
        doorman.stop();
        doorman.pid().exited().await;
    });
    assert!(events.recv().is_err(), "an event came after the monitor was removed");
}

#[test]
fn a_monitor_ends_with_its_receiver() {
    let runtime = runtime();
    let group = runtime.group::<Address<Counter>>("kitchen");
    let (sender, _events) = mpsc::channel();
    let doorman = runtime.spawn(Doorman(sender)).unwrap();
    let (monitor, _) = group.monitor(doorman);
    runtime.block_on(async |_| {
        doorman.kill();
        doorman.pid().exited().await;
    });
    assert!(!group.demonitor(monitor), "the monitor has outlived its receiver");
    let (monitor, _) = group.monitor(doorman);
    assert!(!group.demonitor(monitor), "a dead process has got a monitor");
}

#[test]
fn joins_leaves_and_exits_at_once_leave_an_empty_group_and_balanced_events() {
    runtime().block_on(async |runtime| {
        let group = runtime.group::<Address<Counter>>("kitchen");
        let (sender, events) = mpsc::channel();
        let doorman = runtime.spawn(Doorman(sender)).unwrap();
        group.monitor(doorman);
        let mut tasks = Vec::new();
        for task in 0..4 {
            let (runtime, group) = (runtime.clone(), group.clone());
            tasks.push(tokio::spawn(async move {
                for round in 0..scaled(2_000) {
                    let member = runtime.spawn(Counter::default()).unwrap();
                    assert!(group.join(member));
                    match (round + task) % 3 {
                        0 => assert!(group.leave(member)),
                        1 => assert!(group.join(member)),
                        _ => {}
                    }
                    member.kill();
                    group.join(member);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        eventually(|| runtime.process_count() == 1).await;
        assert!(group.is_empty());
        doorman.stop();
        doorman.pid().exited().await;
        let (mut joined, mut left) = (0, 0);
        for (change, _) in events {
            match change {
                GroupChange::Joined => joined += 1,
                GroupChange::Left => left += 1,
            }
            assert!(left <= joined, "a member has left before it joined");
        }
        assert_eq!(joined, left);
        assert!(joined >= 4 * scaled(2_000));
    });
}
