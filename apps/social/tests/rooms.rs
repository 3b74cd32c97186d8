//! Rooms without HTTP: guarantees of their operations on a real node, and random programs against a plain model.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{join_all, maybe_done, poll_fn};
use hoard::{Hoard, Load};
use nodes::{name, on_a_node, text, until};
use social::{IdempotencyKey, Name, RoomMessage, RoomName, RoomNews, Social, SocialError, Text};
use support::on;
use throng::prelude::*;
use users::register;

#[path = "support/hoard.rs"]
mod hoard;
#[path = "support/nodes.rs"]
mod nodes;
mod support;
#[path = "support/users.rs"]
mod users;

fn room(text: &str) -> RoomName {
    text.parse().unwrap()
}

/// Process that is present in a room, as the documentation of `enter_room` asks for.
struct Observer {
    social: Social,
    user: Name,
    room: RoomName,
    relay: Option<Pid>,
    view: View,
}

/// The room as an observer sees it.
#[derive(Clone, Debug, Default)]
struct View {
    /// Messages, in the order in which they came.
    seen: Vec<RoomMessage>,
    /// Number of users present, and the names in the news.
    present: usize,
    names: BTreeSet<Name>,
    typing: Vec<Name>,
    is_removed: bool,
    is_present: bool,
    /// Number of times that news left a message out.
    gaps: usize,
}

#[process(client = ObserverClient)]
impl Observer {
    #[hook]
    async fn down(&mut self, cx: &mut Context<Self>, down: Down) {
        if self.relay == Some(down.pid) && self.view.is_present {
            self.enter(cx).await;
        }
    }

    /// Enters the room, with the last message that was seen.
    #[message]
    async fn enter(&mut self, cx: &mut Context<Self>) {
        let last = self.view.seen.len() as u64;
        let entered = loop {
            let socket = cx.address().recipient();
            match self.social.enter_room(&self.room, &self.user, socket, Some(last)).await {
                Ok(entered) => break entered,
                // The relay is just being restarted.
                Err(SocialError::Unavailable(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let missed = match entered.missed {
            Some(missed) => missed,
            None => self.history(last, entered.sequence).await,
        };
        self.view.seen.extend(missed);
        assert_eq!(self.view.seen.len() as u64, entered.sequence);
        self.view.present = entered.present;
        self.view.is_present = true;
        if self.relay.replace(entered.relay) != Some(entered.relay) {
            cx.monitor(entered.relay);
        }
    }

    #[message]
    fn leave(&mut self, cx: &mut Context<Self>) {
        self.view.is_present = false;
        self.social.exit_room(&self.room, &self.user, cx.pid());
    }

    #[message]
    fn look(&self) -> View {
        self.view.clone()
    }
}

impl Observer {
    fn spawn(
        social: &Social,
        runtime: &RuntimeHandle,
        user: &Name,
        room: &RoomName,
    ) -> Address<Observer> {
        let observer = Observer {
            social: social.clone(),
            user: user.clone(),
            room: room.clone(),
            relay: None,
            view: View::default(),
        };
        runtime.spawn(observer).unwrap()
    }

    /// Reads the messages after `last`, up to `end`.
    async fn history(&self, last: u64, end: u64) -> Vec<RoomMessage> {
        let (mut found, mut before) = (Vec::new(), Some(end + 1));
        while before.is_some_and(|before| before > last + 1) {
            let page =
                self.social.room_messages(&self.room, &self.user, before, 100).await.unwrap();
            found.extend(page.messages);
            before = page.next;
        }
        found.retain(|message| message.sequence > last);
        found.reverse();
        found
    }
}

impl Handle<RoomNews> for Observer {
    async fn handle(&mut self, news: RoomNews, cx: &mut Context<Self>) {
        match news {
            RoomNews::Said(said) => {
                for message in said.messages() {
                    let next = self.view.seen.len() as u64 + 1;
                    if message.sequence == next {
                        self.view.seen.push(message.clone());
                    } else if message.sequence > next {
                        self.view.gaps += 1;
                        self.enter(cx).await;
                    }
                }
            }
            RoomNews::Presence(presence) => {
                self.view.present = presence.present;
                self.view.names.extend(presence.entered.iter().cloned());
                self.view.names.retain(|name| !presence.exited.contains(name));
            }
            RoomNews::TakenBack(unsaid) => {
                let taken: Vec<u64> = unsaid.messages().map(|message| message.sequence).collect();
                let seen = self.view.seen.iter_mut().filter(|seen| taken.contains(&seen.sequence));
                seen.for_each(|seen| seen.text = None);
            }
            RoomNews::Typing(typing) => self.view.typing.push(typing.name.clone()),
            RoomNews::Removed(_) => self.view.is_removed = true,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_of_two_concurrent_creations_gets_the_room() {
    on_a_node(async |social, _| {
        let (alice, bob, rust) = (name("alice"), name("bob"), room("rust"));
        register(social, &["alice", "bob"]).await;
        let outcomes = join_all([&alice, &bob].map(|user| social.create_room(&rust, user))).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        let (owner, other) = if outcomes[0].is_ok() { (alice, bob) } else { (bob, alice) };
        let profile = social.room_profile(&rust).await.unwrap();
        assert_eq!((&profile.owner, profile.members, profile.messages), (&owner, 1, 0));
        assert_eq!(social.memberships(&owner).await.unwrap(), [rust]);
        assert_eq!(social.memberships(&other).await.unwrap(), [], "the loser is no member");
    });
}

#[test]
fn only_members_say_read_and_enter() {
    on_a_node(async |social, runtime| {
        let (alice, bob, rust) = (name("alice"), name("bob"), room("rust"));
        register(social, &["alice", "bob"]).await;
        social.create_room(&rust, &alice).await.unwrap();
        let observer = Observer::spawn(social, runtime, &bob, &rust);
        let refused = async || {
            let socket = observer.recipient();
            let outcomes = [
                social.say(&rust, &bob, text("x"), None).await.map(drop),
                social.room_messages(&rust, &bob, None, 10).await.map(drop),
                social.enter_room(&rust, &bob, socket, None).await.map(drop),
            ];
            for (number, outcome) in outcomes.into_iter().enumerate() {
                assert!(matches!(outcome, Err(SocialError::NotMember(_))), "{number}: {outcome:?}");
            }
            assert_eq!(social.room_profile(&rust).await.unwrap().present, 0);
        };
        refused().await;
        social.join_room(&rust, &bob).await.unwrap();
        social.say(&rust, &bob, text("hello"), None).await.unwrap();
        observer.enter().await.unwrap();
        assert_eq!(observer.look().await.unwrap().seen.len(), 1);
        assert_eq!(social.room_profile(&rust).await.unwrap().present, 1);
        // A member who leaves is not present any more.
        social.leave_room(&rust, &bob).await.unwrap();
        until(async || observer.look().await.unwrap().is_removed).await;
        refused().await;
        social.say(&rust, &alice, text("among us"), None).await.unwrap();
        assert_eq!(observer.look().await.unwrap().seen.len(), 1);
    });
}

#[test]
fn a_room_is_in_the_list_of_each_member_after_a_join_and_a_leave_at_the_same_time() {
    on_a_node(async |social, _| {
        let (alice, bob, rust) = (name("alice"), name("bob"), room("rust"));
        register(social, &["alice", "bob"]).await;
        social.create_room(&rust, &alice).await.unwrap();
        let change = async |joins: bool| match joins {
            true => social.join_room(&rust, &bob).await,
            false => social.leave_room(&rust, &bob).await,
        };
        // The first one stops after each of its steps, while the second one runs from its beginning to its end.
        for (was_member, first_joins, steps) in
            (0..28).map(|case| (case % 2 == 0, case % 4 < 2, case / 4))
        {
            change(was_member).await.unwrap();
            let mut first = pin!(maybe_done(change(first_joins)));
            for _ in 0..steps {
                poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_ready())).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            change(!first_joins).await.unwrap();
            first.as_mut().await;
            first.take_output().unwrap().unwrap();
            let (members, _) = social.room_members(&rust, None, 10).await.unwrap();
            let listed = social.memberships(&bob).await.unwrap();
            let case = (was_member, first_joins, steps);
            assert_eq!(listed.contains(&rust), members.contains(&bob), "{case:?}");
        }
        for steps in 0..7 {
            let new = room(&format!("new_{steps}"));
            let mut creation = pin!(maybe_done(social.create_room(&new, &bob)));
            for _ in 0..steps {
                poll_fn(|cx| Poll::Ready(creation.as_mut().poll(cx).is_ready())).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let left = social.leave_room(&new, &bob).await;
            assert!(matches!(left, Ok(()) | Err(SocialError::NoSuchRoom(_))), "{left:?}");
            creation.as_mut().await;
            creation.take_output().unwrap().unwrap();
            // A leave after the creation has ended the room.
            let members = match social.room_members(&new, None, 10).await {
                Err(SocialError::NoSuchRoom(_)) => Vec::new(),
                members => members.unwrap().0,
            };
            let listed = social.memberships(&bob).await.unwrap();
            assert_eq!(listed.contains(&new), members.contains(&bob), "{steps} steps");
        }
    });
}

#[test]
fn a_room_ends_with_its_last_member_and_leaves_nothing_to_the_next_of_its_name() {
    on_a_node(async |social, _| {
        let (alice, bob, rust) = (name("alice"), name("bob"), room("rust"));
        register(social, &["alice", "bob"]).await;
        // Nobody holds more names than memberships.
        for number in 0..600 {
            let other = room(&format!("room_{number}"));
            social.create_room(&other, &alice).await.unwrap();
            social.leave_room(&other, &alice).await.unwrap();
        }
        assert_eq!(social.search_rooms("", None, 100).unwrap(), (vec![], false));

        social.create_room(&rust, &alice).await.unwrap();
        social.join_room(&rust, &bob).await.unwrap();
        social.say(&rust, &alice, text("among us"), IdempotencyKey::new("one")).await.unwrap();
        social.leave_room(&rust, &alice).await.unwrap();
        assert_eq!(social.room_profile(&rust).await.unwrap().members, 1);
        social.leave_room(&rust, &bob).await.unwrap();
        let gone = social.room_profile(&rust).await;
        assert!(matches!(gone, Err(SocialError::NoSuchRoom(_))), "{gone:?}");

        social.create_room(&rust, &bob).await.unwrap();
        let profile = social.room_profile(&rust).await.unwrap();
        assert_eq!((profile.owner, profile.members, profile.messages), (bob.clone(), 1, 0));
        assert_eq!(social.room_messages(&rust, &bob, None, 10).await.unwrap().messages, []);
    });
}

#[test]
fn an_owner_removes_members_and_messages_and_ends_the_room() {
    on_a_node(async |social, runtime| {
        let (alice, bob, carol, rust) = (name("alice"), name("bob"), name("carol"), room("rust"));
        register(social, &["alice", "bob", "carol"]).await;
        social.create_room(&rust, &alice).await.unwrap();
        social.block(&alice, &carol).await.unwrap();
        let blocked = social.join_room(&rust, &carol).await;
        assert!(matches!(blocked, Err(SocialError::Blocked(_))), "{blocked:?}");
        social.join_room(&rust, &bob).await.unwrap();
        let observer = Observer::spawn(social, runtime, &bob, &rust);
        observer.enter().await.unwrap();
        for (author, words) in [(&bob, "one"), (&alice, "two"), (&bob, "three")] {
            social.say(&rust, author, text(words), IdempotencyKey::new(words)).await.unwrap();
        }
        // An author removes a message of their own, and the owner any.
        for (by, sequence) in [(&bob, 1), (&alice, 3), (&alice, 3)] {
            social.unsay(&rust, by, sequence).await.unwrap();
        }
        for outcome in [
            social.unsay(&rust, &bob, 2).await,
            social.remove_member(&rust, &bob, &alice).await,
            social.end_room(&rust, &bob).await,
        ] {
            assert!(matches!(outcome, Err(SocialError::NotOwner(_))), "{outcome:?}");
        }
        let expected = [None, Some(text("two")), None];
        let texts = |messages: Vec<RoomMessage>| messages.into_iter().map(|its| its.text);
        let page = social.room_messages(&rust, &bob, None, 10).await.unwrap();
        assert!(texts(page.messages).rev().eq(expected.clone()));
        until(async || texts(observer.look().await.unwrap().seen).eq(expected.clone())).await;
        let again = social.say(&rust, &bob, text("three"), IdempotencyKey::new("three")).await;
        assert!(again.unwrap().repeated);

        social.remove_member(&rust, &alice, &bob).await.unwrap();
        until(async || observer.look().await.unwrap().is_removed).await;
        assert_eq!(social.memberships(&bob).await.unwrap(), []);
        social.join_room(&rust, &bob).await.unwrap();
        let observer = Observer::spawn(social, runtime, &bob, &rust);
        observer.enter().await.unwrap();
        social.end_room(&rust, &alice).await.unwrap();
        until(async || observer.look().await.unwrap().is_removed).await;
        assert_eq!(social.memberships(&bob).await.unwrap(), []);
        assert_eq!(social.search_rooms("", None, 100).unwrap(), (vec![], false));
    });
}

#[test]
fn a_refusal_leaves_a_key_unused_however_long_key_and_name_are() {
    on_a_node(async |social, _| {
        let (alice, rust) = (name("alice"), room("rust"));
        let (long, key) = (name(&"n".repeat(32)), || IdempotencyKey::new(&"k".repeat(128)));
        register(social, &["alice", long.as_str()]).await;
        social.create_room(&rust, &alice).await.unwrap();
        let refused = social.say(&rust, &long, text("hello"), key()).await;
        assert!(matches!(refused, Err(SocialError::NotMember(_))), "{refused:?}");
        social.join_room(&rust, &long).await.unwrap();
        // At the same time, and one after another.
        let said = join_all((0..10).map(|_| social.say(&rust, &long, text("hello"), key()))).await;
        let again = social.say(&rust, &long, text("hello"), key()).await;
        let said: Vec<_> = said.into_iter().chain([again]).map(Result::unwrap).collect();
        assert_eq!(said.iter().filter(|stored| !stored.repeated).count(), 1);
        assert!(said.iter().all(|stored| stored.message == said[0].message));
    });
}

#[test]
fn users_are_present_once_with_any_number_of_sockets() {
    on_a_node(async |social, runtime| {
        let (alice, bob, rust) = (name("alice"), name("bob"), room("rust"));
        register(social, &["alice", "bob"]).await;
        social.create_room(&rust, &alice).await.unwrap();
        social.join_room(&rust, &bob).await.unwrap();
        let watcher = Observer::spawn(social, runtime, &alice, &rust);
        watcher.enter().await.unwrap();
        let sockets = [0, 1].map(|_| Observer::spawn(social, runtime, &bob, &rust));
        for socket in &sockets {
            socket.enter().await.unwrap();
            socket.enter().await.unwrap();
            assert_eq!(socket.look().await.unwrap().present, 2);
        }
        let both = BTreeSet::from([alice.clone(), bob.clone()]);
        let shows = async |names: &BTreeSet<Name>| {
            let view = watcher.look().await.unwrap();
            view.present == names.len() && view.names == *names
        };
        until(async || shows(&both).await).await;
        // Typing is shown to others, and not to the user who types.
        social.type_in_room(&rust, &bob);
        until(async || watcher.look().await.unwrap().typing == [bob.clone()]).await;
        sockets[0].leave().await.unwrap();
        social.say(&rust, &alice, text("one is left"), None).await.unwrap();
        until(async || sockets[1].look().await.unwrap().seen.len() == 1).await;
        assert_eq!(sockets[0].look().await.unwrap().seen, []);
        assert_eq!(social.room_profile(&rust).await.unwrap().present, 2);
        assert_eq!(sockets[1].look().await.unwrap().typing, []);
        // The end of a process ends its presence.
        sockets[1].kill();
        let alone = BTreeSet::from([alice]);
        until(async || shows(&alone).await).await;
    });
}

/// Returns the number of times that news left a message out.
async fn gaps(sockets: &[Address<Observer>]) -> usize {
    let views = join_all(sockets.iter().map(|socket| socket.look())).await;
    views.into_iter().map(|view| view.unwrap().gaps).sum()
}

/// Kills a relay: with it, all relays are restarted.
async fn kill_a_relay(runtime: &RuntimeHandle) {
    for process in runtime.top(100_000, throng::SortBy::Turns).await {
        if process.kind.is_some_and(|kind| kind.ends_with("room::live::Relay")) {
            process.pid.kill();
            return;
        }
    }
    panic!("there is no relay");
}

#[test]
fn every_socket_sees_each_message_once_while_sockets_enter_and_relays_end() {
    enter_and_end_relays(12, 12);
}

/// The room has so many sockets at a relay that it pauses after each piece of news.
#[test]
fn every_socket_sees_each_message_once_in_a_room_that_pauses() {
    enter_and_end_relays(240, 3);
}

fn enter_and_end_relays(sockets: usize, rounds: usize) {
    const SAID: usize = 60;
    on_a_node(async |social, runtime| {
        let (rust, users) = (room("rust"), ["alice", "bob", "carol", "dave"]);
        register(social, &users).await;
        social.create_room(&rust, &name("alice")).await.unwrap();
        for user in &users[1..] {
            social.join_room(&rust, &name(user)).await.unwrap();
        }
        let sockets: Vec<_> = (0..sockets)
            .map(|number| Observer::spawn(social, runtime, &name(users[number % 4]), &rust))
            .collect();
        for round in 0..rounds {
            let saying = users.map(|user| {
                let (social, rust) = (social.clone(), rust.clone());
                tokio::spawn(async move {
                    for number in 0..SAID / users.len() {
                        let words = text(&format!("{user} {round} {number}"));
                        social.say(&rust, &name(user), words, None).await.unwrap();
                    }
                })
            });
            let entering = sockets.iter().enumerate().map(|(number, socket)| {
                let (socket, mut rng) = (*socket, Rng::with_seed((100 * round + number) as u64));
                tokio::spawn(async move {
                    for _ in 0..rng.usize(1..30) {
                        socket.enter().within(Duration::from_secs(60)).await.unwrap();
                        for _ in 0..rng.usize(..20) {
                            tokio::task::yield_now().await;
                        }
                        if rng.bool() {
                            socket.leave().await.unwrap();
                        }
                    }
                })
            });
            let tasks: Vec<_> = saying.into_iter().chain(entering).collect();
            let before = gaps(&sockets).await;
            let has_kill = round % 3 == 2;
            if has_kill {
                kill_a_relay(runtime).await;
            }
            for task in tasks {
                task.await.unwrap();
            }
            // The sockets that are present miss nothing, although no further message tells them of a gap.
            let total = ((round + 1) * SAID) as u64;
            for (number, socket) in sockets.iter().enumerate() {
                if number % 2 == round % 2 {
                    socket.enter().within(Duration::from_secs(60)).await.unwrap();
                }
                if socket.look().await.unwrap().is_present {
                    until(async || socket.look().await.unwrap().seen.len() as u64 == total).await;
                }
            }
            assert!(
                has_kill || gaps(&sockets).await == before,
                "a message left out without a reason"
            );
        }
        let total = (rounds * SAID) as u64;
        for socket in &sockets {
            socket.enter().within(Duration::from_secs(60)).await.unwrap();
            let seen = socket.look().await.unwrap().seen;
            let sequences: Vec<u64> = seen.iter().map(|message| message.sequence).collect();
            assert_eq!(sequences, (1..=total).collect::<Vec<_>>());
            let texts: BTreeSet<_> =
                seen.iter().filter_map(|message| message.text.as_ref()).map(Text::as_str).collect();
            assert_eq!(texts.len() as u64, total);
        }
        // Without another enter, the next messages come as news, also after the relays have ended.
        for number in 1..=10 {
            if number == 5 {
                kill_a_relay(runtime).await;
            }
            social.say(&rust, &name("alice"), text(&format!("news {number}")), None).await.unwrap();
        }
        for socket in &sockets {
            until(async || socket.look().await.unwrap().seen.len() as u64 == total + 10).await;
        }
        assert_eq!(social.room_profile(&rust).await.unwrap().present, users.len());
    });
}

/// Data that the service is expected to have.
#[derive(Default)]
struct Model {
    members: BTreeSet<(usize, usize)>,
    rooms: BTreeMap<usize, Vec<(usize, Text)>>,
    owners: BTreeMap<usize, usize>,
    /// By room, author and key: the text and the sequence number.
    keys: BTreeMap<(usize, usize, u8), (Text, u64)>,
}

impl Model {
    /// Ends a membership, and with the last one the room.
    fn leave(&mut self, user: usize, room: usize) {
        self.members.remove(&(user, room));
        if !self.members.iter().any(|(_, its)| *its == room) {
            self.rooms.remove(&room);
            self.owners.remove(&room);
            self.keys.retain(|(its, _, _), _| *its != room);
        }
    }
}

const USERS: usize = 4;
const ROOMS: usize = 4;

fn user_of(number: usize) -> Name {
    name(&format!("user_{number}"))
}

fn room_of(number: usize) -> RoomName {
    room(&format!("room_{number}"))
}

/// Polls a future at most `polls` times, and gives it up if it is not done by then.
async fn give_up_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Carries out a random operation, and compares its outcome with the model's.
async fn step(social: &Social, model: &mut Model, rng: &mut Rng) {
    let (one, its) = (rng.usize(..USERS), rng.usize(..ROOMS));
    let (me, room) = (&user_of(one), &room_of(its));
    let (exists, is_member) = (model.rooms.contains_key(&its), model.members.contains(&(one, its)));
    match rng.u8(..16) {
        0 => match social.create_room(room, me).await {
            Ok(()) => {
                assert!(!exists);
                model.rooms.insert(its, Vec::new());
                model.owners.insert(its, one);
                model.members.insert((one, its));
            }
            Err(SocialError::RoomTaken(_)) => assert!(exists),
            Err(error) => panic!("{error}"),
        },
        1..4 => match social.join_room(room, me).await {
            Ok(()) => {
                assert!(exists);
                model.members.insert((one, its));
            }
            Err(SocialError::NoSuchRoom(_)) => assert!(!exists),
            Err(error) => panic!("{error}"),
        },
        4 => match social.leave_room(room, me).await {
            Ok(()) => {
                assert!(exists);
                model.leave(one, its);
            }
            Err(SocialError::NoSuchRoom(_)) => assert!(!exists),
            Err(error) => panic!("{error}"),
        },
        // An operation that is given up at some step, as by a crash. The room decides whether it has happened.
        5..8 if exists => {
            let polls = rng.usize(1..6);
            match rng.bool() {
                true => drop(give_up_after(polls, social.join_room(room, me)).await),
                false => drop(give_up_after(polls, social.leave_room(room, me)).await),
            }
            // Calls of one caller are handled in their order, so this one comes after the steps that were taken.
            match social.room_members(room, None, 100).await {
                Ok((members, _)) if members.contains(me) => drop(model.members.insert((one, its))),
                Ok(_) => model.leave(one, its),
                Err(SocialError::NoSuchRoom(_)) => {
                    // Repeating the leave completes the end of the room.
                    let left = social.leave_room(room, me).await;
                    assert!(matches!(left, Err(SocialError::NoSuchRoom(_))), "{left:?}");
                    model.leave(one, its);
                    assert!(!model.rooms.contains_key(&its));
                }
                Err(error) => panic!("{error}"),
            }
        }
        8..14 => {
            let key = rng.bool().then(|| rng.u8(..4));
            let words = text(&format!("text {}", rng.u8(..3)));
            let header = key.and_then(|key| IdempotencyKey::new(&format!("key-{key}")));
            let outcome = social.say(room, me, words.clone(), header).await;
            let known = key.and_then(|key| model.keys.get(&(its, one, key)));
            match (known, outcome) {
                (_, Err(SocialError::NoSuchRoom(_))) => assert!(!exists),
                (_, Err(SocialError::NotMember(_))) => assert!(exists && !is_member),
                (Some((known, _)), Err(SocialError::KeyReused)) => assert!(*known != words),
                (Some((known, sequence)), Ok(stored)) => {
                    assert!(is_member && stored.repeated && *known == words);
                    assert_eq!(stored.message.sequence, *sequence);
                }
                (None, Ok(stored)) => {
                    assert!(is_member && !stored.repeated);
                    let said = model.rooms.get_mut(&its).unwrap();
                    said.push((one, words.clone()));
                    assert_eq!(stored.message.sequence, said.len() as u64);
                    if let Some(key) = key {
                        model.keys.insert((its, one, key), (words, said.len() as u64));
                    }
                }
                (known, outcome) => panic!("{known:?} {outcome:?}"),
            }
        }
        _ => compare(social, model, rng.usize(1..8)).await,
    }
}

/// Compares all that the service shows of rooms with the model, in pages of `limit`.
async fn compare(social: &Social, model: &Model, limit: usize) {
    for one in 0..USERS {
        let rooms = model.members.iter().filter(|(user, _)| *user == one);
        let rooms: Vec<RoomName> = rooms.map(|(_, its)| room_of(*its)).collect();
        assert_eq!(social.memberships(&user_of(one)).await.unwrap(), rooms);
    }
    let rooms: Vec<RoomName> = model.rooms.keys().map(|its| room_of(*its)).collect();
    let (mut found, mut more) = (Vec::<RoomName>::new(), true);
    while more {
        let page;
        (page, more) = social.search_rooms("room_", found.last(), limit).unwrap();
        assert!(page.len() <= limit && (!more || page.len() == limit));
        found.extend(page);
    }
    assert_eq!(found, rooms);
    assert_eq!(social.search_rooms("room_9", None, limit).unwrap(), (vec![], false));
    for (its, said) in &model.rooms {
        let room = &room_of(*its);
        let members = (0..USERS).filter(|user| model.members.contains(&(*user, *its)));
        let members: Vec<Name> = members.map(user_of).collect();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, more) = social.room_members(room, after.as_ref(), limit).await.unwrap();
            after = page.last().cloned();
            found.extend(page);
            if !more {
                break;
            }
        }
        assert_eq!(found, members);
        let profile = social.room_profile(room).await.unwrap();
        assert_eq!(profile.owner, user_of(model.owners[its]));
        assert_eq!(
            (profile.members as usize, profile.messages),
            (members.len(), said.len() as u64)
        );
        let Some(reader) = members.first() else { continue };
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = social.room_messages(room, reader, before, limit).await.unwrap();
            found.extend(page.messages);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let found =
            found.into_iter().rev().map(|message| (message.sequence, message.author, message.text));
        let said = (1..)
            .zip(said)
            .map(|(sequence, (author, text))| (sequence, user_of(*author), Some(text.clone())));
        assert_eq!(found.collect::<Vec<_>>(), said.collect::<Vec<_>>());
    }
}

#[test]
fn rooms_have_what_the_model_has_through_random_programs_and_restarts() {
    let seeds = std::env::var("THRONG_SOCIAL_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let runtime = Runtime::builder().workers(2).start().unwrap();
    for seed in 0..seeds {
        let data = tempfile::tempdir().unwrap();
        let (mut rng, mut model) = (Rng::with_seed(seed), Model::default());
        println!("seed {seed}");
        runtime.block_on(async |runtime| {
            on(runtime, data.path(), async |social| {
                register(social, &["user_0", "user_1", "user_2", "user_3"]).await;
            })
            .await;
            for _ in 0..5 {
                on(runtime, data.path(), async |social| {
                    for _ in 0..120 {
                        step(social, &mut model, &mut rng).await;
                    }
                    compare(social, &model, 1_000).await;
                })
                .await;
            }
        });
    }
}

#[test]
fn a_message_that_finds_no_room_ends_its_receivers_or_reaches_them() {
    let runtime = Runtime::builder().workers(2).mailbox_budget(64 * 1024).start().unwrap();
    let data = tempfile::tempdir().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            let (alice, rust) = (name("alice"), room("rust"));
            register(social, &["alice"]).await;
            social.create_room(&rust, &alice).await.unwrap();
            let mut said = 0;
            for round in 0..30 {
                let sockets = [0; 3].map(|_| Observer::spawn(social, runtime, &alice, &rust));
                for socket in &sockets {
                    socket.enter().await.unwrap();
                }
                let saying = social.say(&rust, &alice, text("hello"), None);
                let hoard = runtime.spawn(Hoard).unwrap();
                // The budget is used up at any moment of the message.
                let filling = async {
                    for _ in 0..round {
                        tokio::task::yield_now().await;
                    }
                    while hoard.send(Load).is_ok() {}
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    hoard.kill();
                };
                let (outcome, ()) = futures_util::future::join(saying, filling).await;
                hoard.pid().exited().await;
                said += u64::from(outcome.is_ok());
                for socket in sockets {
                    until(async || match socket.look().await {
                        Ok(view) => view.seen.len() as u64 >= said,
                        Err(CallError::NoProcess(_) | CallError::Died(_)) => true,
                        Err(_) => false,
                    })
                    .await;
                    socket.kill();
                }
            }
        })
        .await;
    });
}
