//! Cycles of calls: processes that wait for each other in a ring.

use crate::{Actor, Add, AddSlowly, Await, Counter, runtime, scaled, spawn_async};
use std::sync::Arc;
use std::time::Duration;
use throng::prelude::*;

/// A deadline that never passes: only a failed call can break a ring.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Calls the next processes, and returns how many visits below completed, and how many calls failed
/// with a cycle.
struct Member {
    next: Vec<Recipient<Visit>>,
    /// The kind of call.
    way: Way,
}
#[derive(Clone, Copy)]
enum Way {
    Call,
    Ask,
    /// A call joined with another future.
    Join,
}
#[process]
impl Member {
    /// A visit. It has a `ReplyTo` if it was sent by `ask`, and is answered by the handler's result if
    /// it was called.
    #[message]
    async fn visit(&mut self, reply: Option<ReplyTo<Visited>>) -> Visited {
        let mut visited = Visited { through: 1, cycles: 0 };
        for next in &self.next {
            let call = || next.call(Visit { reply: None }).within(FOR_EVER);
            let outcome = match self.way {
                Way::Call => call().await,
                Way::Ask => next.ask(|reply| Visit { reply: Some(reply) }).within(FOR_EVER).await,
                Way::Join => {
                    let beside = tokio::time::sleep(Duration::from_millis(1));
                    tokio::join!(call(), beside).0
                }
            };
            match outcome {
                Ok(below) => {
                    visited.through += below.through;
                    visited.cycles += below.cycles;
                }
                Err(CallError::Cycle(_)) => visited.cycles += 1,
                Err(error) => panic!("neither a reply nor a cycle: {error}"),
            }
        }
        if let Some(reply) = reply {
            let _ = reply.send(visited);
        }
        visited
    }
    #[message]
    fn before(&mut self, next: Vec<Recipient<Visit>>) {
        self.next = next;
    }
    #[message]
    async fn both(&mut self, keeper: Address<Keeper>, next: Address<Member>) -> bool {
        let ask = keeper.ask(|reply| Keep { reply, detaches: true }).within(FOR_EVER);
        let call = next.call(Visit { reply: None }).within(FOR_EVER);
        // The call fails, or the one that calls back does.
        tokio::select! {
            _ = ask => unreachable!("nobody answers"),
            visited = call => match visited {
                Ok(visited) => visited.cycles == 1,
                Err(error) => matches!(error, CallError::Cycle(_)),
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Visited {
    through: u64,
    cycles: u64,
}

/// Spawns a ring with a process for each of `ways`.
async fn ring(runtime: &RuntimeHandle, ways: &[Way]) -> Vec<Address<Member>> {
    let members = ways.iter().map(|&way| Member { next: Vec::new(), way });
    let members = runtime.spawner().spawn_many(members).unwrap();
    for (index, member) in members.iter().enumerate() {
        let next = members[(index + 1) % members.len()];
        member.before(vec![next.into()]).within(FOR_EVER).await.unwrap();
    }
    members
}

/// Visits the first process of a ring, and checks that exactly one member gets the cycle error.
fn check(ways: &[Way]) {
    let runtime = runtime();
    let visited = runtime.block_on(async |runtime| {
        let members = ring(runtime, ways).await;
        let visited = members[0].visit(None).within(FOR_EVER).await.unwrap();
        // All members become idle again. Visits queued in the ring are handled, and find it again.
        for member in members {
            member.before(Vec::new()).within(FOR_EVER).await.unwrap();
        }
        visited
    });
    assert_eq!(visited.cycles, 1, "{visited:?}");
    assert!((1..=ways.len() as u64).contains(&visited.through), "{visited:?}");
}

#[test]
fn rings_of_any_length_and_kind_of_call_are_found() {
    for ways in [
        &[Way::Call; 2][..],
        &[Way::Call; 3],
        &[Way::Call; 10],
        &[Way::Ask; 2],
        &[Way::Ask, Way::Call, Way::Ask, Way::Call],
        &[Way::Join; 2],
        &[Way::Call, Way::Join, Way::Ask],
    ] {
        check(ways);
    }
}

#[test]
fn a_ring_that_closes_from_all_sides_at_once_is_broken() {
    runtime().block_on(async |runtime| {
        for _ in 0..scaled(400).min(20) {
            let members = ring(runtime, &[Way::Call; 3]).await;
            let visits: Vec<_> = members
                .iter()
                .map(|member| tokio::spawn(member.visit(None).within(FOR_EVER)))
                .collect();
            let mut cycles = 0;
            for visit in visits {
                cycles += visit.await.unwrap().unwrap().cycles;
            }
            assert!(cycles > 0, "no call failed with a cycle");
            // A cancelled visit is handled all the same, and calls the next member.
            for member in &members {
                member.before(Vec::new()).within(FOR_EVER).await.unwrap();
            }
            members.iter().for_each(|member| assert!(member.stop()));
        }
    });
}

/// A caller that waits for a member of a ring, without being in the ring, gets its reply once the
/// ring is broken.
#[test]
fn only_a_member_of_the_ring_gets_the_error() {
    runtime().block_on(async |runtime| {
        let members = ring(runtime, &[Way::Call; 2]).await;
        let outside = Member { next: vec![members[0].into()], way: Way::Call };
        let outside = runtime.spawn(outside).unwrap();
        let far = runtime.spawn(Member { next: vec![outside.into()], way: Way::Call }).unwrap();
        let visited = far.visit(None).within(FOR_EVER).await.unwrap();
        assert_eq!(visited.cycles, 1);
        assert!(visited.through >= 3, "{visited:?}");
    });
}

#[test]
fn a_call_that_waits_for_long_but_in_no_ring_is_left_alone() {
    struct Chain(Option<Address<Chain>>, Address<Counter>);
    #[process]
    impl Chain {
        #[message]
        async fn descend(&mut self) -> u64 {
            match self.0 {
                Some(next) => next.descend().within(FOR_EVER).await.unwrap(),
                None => self.1.call(Add(1)).within(FOR_EVER).await.unwrap(),
            }
        }
    }
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let mut first = runtime.spawn(Chain(None, counter)).unwrap();
        for _ in 0..5 {
            first = runtime.spawn(Chain(Some(first), counter)).unwrap();
        }
        let slow = counter.call(AddSlowly(1, Duration::from_millis(200)));
        // Two calls at a time, so that each process has a queue, and all waiting callers probe.
        let first = (first.descend().within(FOR_EVER), first.descend().within(FOR_EVER));
        let (slow, one, two) = tokio::join!(slow, first.0, first.1);
        assert_eq!((slow.unwrap(), one.unwrap(), two.unwrap()), (1, 2, 3));
    });
}

#[test]
fn async_processes_in_a_ring_get_the_error_too() {
    struct Ping(Option<Address<throng::AsyncProcess<Ping>>>);
    impl Message for Ping {
        type Reply = ();
    }
    let runtime = runtime();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let pinger = || {
        let (sender, both) = (sender.clone(), both.clone());
        spawn_async(&runtime, |mut inbox| async move {
            let Ping(Some(other)) = inbox.recv().await else {
                panic!("the first ping has an address")
            };
            both.wait().await;
            // The reply comes when the other process receives, which it does not while it calls.
            let pinged = other.call(Ping(None)).within(FOR_EVER).await;
            sender.send(matches!(pinged, Err(CallError::Cycle(None)))).unwrap();
            inbox.recv().await;
        })
    };
    let ((one, _), (two, _)) = (pinger(), pinger());
    one.send(Ping(Some(two))).unwrap();
    two.send(Ping(Some(one))).unwrap();
    let outcomes = runtime
        .block_on(async |_| [receiver.recv().await.unwrap(), receiver.recv().await.unwrap()]);
    assert!(outcomes.contains(&true));
}

#[derive(Debug, PartialEq)]
enum Failed {
    Cycle,
    Otherwise,
}
impl<T> From<CallError<T>> for Failed {
    fn from(error: CallError<T>) -> Failed {
        if matches!(error, CallError::Cycle(None)) { Failed::Cycle } else { Failed::Otherwise }
    }
}

/// Hands each `ReplyTo` over to the test, which answers.
struct Keeper(tokio::sync::mpsc::UnboundedSender<ReplyTo<u64>>);
#[process]
impl Keeper {
    #[message]
    fn keep(&mut self, reply: ReplyTo<u64>, detaches: bool) {
        if detaches {
            reply.detach();
        }
        self.0.send(reply).unwrap();
    }
    #[message]
    async fn ping_back(&mut self, asker: Address<Actor>) -> Result<(), Failed> {
        asker.call(Await(async {})).within(FOR_EVER).await.map_err(Failed::from)
    }
    /// Keeps the keeper in a turn.
    #[message(send)]
    async fn linger(&mut self, ends: tokio::sync::oneshot::Receiver<()>) {
        let _ = ends.await;
    }
}

/// Waits until a process's turn has been suspended in this handler for some poll of the test.
async fn suspended(runtime: &RuntimeHandle, pid: Pid, handler: &str) {
    loop {
        match runtime.info(pid).await.unwrap().state {
            throng::ProcessState::Suspended { handler: in_turn } if in_turn.contains(handler) => {
                return;
            }
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Has an asker ask a keeper, whose next turn calls the asker, and returns the outcomes of both. The
/// answer comes when a call has failed, or 200 ms later if it is detached.
fn ask_and_ping_back(is_busy: bool, detaches: bool) -> (Result<u64, Failed>, Result<(), Failed>) {
    let runtime = runtime();
    runtime.block_on(async |runtime| {
        let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
        let keeper = runtime.spawn(Keeper(keep)).unwrap();
        let asker = runtime.spawn(Actor).unwrap();
        let (end, ends) = tokio::sync::oneshot::channel();
        if is_busy {
            // The question finds the keeper in a turn, and so sends probes of its own.
            keeper.linger(ends).unwrap();
            suspended(runtime, keeper.pid(), "Linger").await;
        }
        let ask = async move {
            let asked = keeper.ask(|reply| Keep { reply, detaches }).within(FOR_EVER).await;
            asked.map_err(Failed::from)
        };
        let mut asking = tokio::spawn(asker.call(Await(ask)).within(FOR_EVER));
        suspended(runtime, asker.pid(), "Await").await;
        drop(end);
        let reply = kept.recv().await.unwrap();
        let mut pinging = tokio::spawn(keeper.ping_back(asker).within(FOR_EVER));
        let while_kept = async {
            suspended(runtime, keeper.pid(), "PingBack").await;
            // Time for several probes, or until they have found the ring.
            let kept_for = if detaches { Duration::from_millis(200) } else { FOR_EVER };
            tokio::time::sleep(kept_for).await;
        };
        let (asked, pinged) = tokio::select! {
            asked = &mut asking => (Some(asked.unwrap()), None),
            pinged = &mut pinging => (None, Some(pinged.unwrap())),
            () = while_kept => (None, None),
        };
        // Comes back if the question was the call that failed.
        let _ = reply.send(7);
        let asked = match asked {
            Some(asked) => asked,
            None => asking.await.unwrap(),
        };
        let pinged = match pinged {
            Some(pinged) => pinged,
            None => pinging.await.unwrap(),
        };
        (asked.unwrap(), pinged.unwrap())
    })
}

#[test]
fn a_detached_answer_closes_no_ring() {
    for is_busy in [false, true] {
        assert_eq!(ask_and_ping_back(is_busy, true), (Ok(7), Ok(())));
    }
}

#[test]
fn an_answer_that_is_kept_but_not_detached_closes_a_ring() {
    for is_busy in [false, true] {
        let (asked, pinged) = ask_and_ping_back(is_busy, false);
        let is_cycle = asked == Err(Failed::Cycle) || pinged == Err(Failed::Cycle);
        assert!(is_cycle, "{asked:?} {pinged:?}");
    }
}

/// The turn waits for a detached answer and for a call at once; the call closes a ring.
#[test]
fn a_ring_beside_a_detached_answer_is_found() {
    let runtime = runtime();
    let found = runtime.block_on(async |runtime| {
        let (keep, _kept) = tokio::sync::mpsc::unbounded_channel();
        let keeper = runtime.spawn(Keeper(keep)).unwrap();
        let members = ring(runtime, &[Way::Call; 2]).await;
        members[0].both(keeper, members[1]).within(FOR_EVER).await.unwrap()
    });
    assert!(found);
}
