//! The live side of rooms: the present users, and the way of news to their sockets.
//!
//! ```text
//!                        ┌─► Relay 0 ─┬─► Connection   sockets of the users of relay 0
//!  Room ──after commit───┤      ▲ │   └─► Connection
//!       (one frame)      │ note │ │ presence, at most once a second
//!                        └─► Relay 1 ───► Connection   relay 1 is the home of the room: it counts the present users
//! ```
//!
//! There are as many relays as workers. All sockets of a user belong to one relay, so that a large room is spread
//! over the relays, each socket gets the messages of a room in order, and a user with two sockets counts once. Each
//! room has a relay as its home, to which all relays report the numbers of their users.
//!
//! ```text
//!  mailbox of a relay   hear 1 │ hear 2 │ … │ pass_on │ hear 3 │ …  pass_on
//!                       └ sends itself ───────▲  └─► each socket: 1 2    ▲  └─► each socket: 3
//!                                                └ pause of a large room ┘
//! ```
//!
//! A relay collects the messages of a room that are in its mailbox, and sends them to each socket as one piece of news
//! with joined frames, or as several if they are many. A room with many sockets then pauses, for 25 µs for each of them.
//!
//! Invariants:
//! * A socket that has entered gets every message of the room that is committed after its relay has answered.
//! * If a relay cannot be sent a message, because the runtime's mailbox budget is used up, it is ended by a signal,
//!   except if the message is the exit of a socket or typing.
//!   A relay that cannot send itself a message stops.
//!   The relays share the count of the present users, so they are restarted together. The sockets notice
//!   the end of their relay and enter again, with the last message that they have.
//! * A socket that cannot be sent a message is ended, too.
//! * A relay has a room only while a socket is present in it. The count of the present users is right a
//!   moment after the last change.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use throng::prelude::*;
use throng::{MonitorRef, Restart, Timeout};
use throng_node::http::Frames;

use crate::error::{SocialError, unavailable};
use crate::live::{relay_count, relay_of, unreachable_process};
use crate::name::{Name, RoomName};

use super::message::{RoomMessage, Said, SaidMessage};

/// News of a room for a process that is present in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RoomNews {
    /// Messages were said. They are on disk.
    Said(Arc<Said>),
    /// Users have entered or exited.
    Presence(Arc<Presence>),
    /// A user is typing.
    Typing(Arc<Typing>),
    /// The text of a message was removed. The process may not have the message yet.
    TakenBack(Arc<Said>),
    /// The user of the process is no member any more, and the process is not present any more.
    Removed(RoomName),
}

impl Message for RoomNews {
    type Reply = ();
}

/// Change of the present users of a room, collected for a second.
#[derive(Debug)]
pub struct Presence {
    /// The room.
    pub room: RoomName,
    /// Number of present users.
    pub present: usize,
    /// Users that have entered; empty if many are present. A user that was present before may be named again.
    pub entered: BTreeSet<Name>,
    /// Users that have exited; empty if many are present.
    pub exited: BTreeSet<Name>,
    /// Frame of the news, encoded when the first socket needs it.
    pub(crate) frame: OnceLock<Frames>,
}

/// A user is typing in a room.
#[derive(Debug)]
pub struct Typing {
    /// The room.
    pub room: RoomName,
    /// Name of the user.
    pub name: Name,
    /// Frame of the news, encoded when the first socket needs it.
    pub(crate) frame: OnceLock<Frames>,
}

/// Answer to a process that enters a room.
#[derive(Debug)]
pub struct Entered {
    /// Sequence number of the newest message.
    pub sequence: u64,
    /// Number of members.
    pub members: u32,
    /// Number of present users, the user of the process included.
    pub present: usize,
    /// Messages after the last one that the process has, oldest first. `None` if there are more than 100, or more
    /// than 256 KiB of text: the process must read them as [history](crate::Social::room_messages).
    pub missed: Option<Vec<RoomMessage>>,
    /// Process that sends the news. If it ends, the process that has entered must enter again.
    pub relay: Pid,
}

/// The live side of a service's rooms; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LiveRooms(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    supervisor: Address<Supervisor>,
    relays: Relays,
    /// Number of seats of all sockets in all rooms.
    seats: Arc<AtomicUsize>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.supervisor.exit(ExitReason::Shutdown);
    }
}

/// Handles of the relays, set before the first relay starts.
type Relays = Arc<OnceLock<Box<[Child<Relay>]>>>;

impl LiveRooms {
    /// Starts as many relays as the runtime has workers.
    pub(crate) fn start(runtime: &RuntimeHandle) -> Result<LiveRooms, SocialError> {
        let (relays, seats) = (Relays::default(), Arc::<AtomicUsize>::default());
        // A relay has nothing that must not be lost, so it may fail often.
        let mut supervisor = Supervisor::one_for_all().intensity(1_000, Duration::from_secs(1));
        let mut children = Vec::new();
        for number in 0..relay_count(runtime) {
            let (relays, seats) = (relays.clone(), seats.clone());
            let relay = ChildSpec::new(move || Relay::new(number, relays.clone(), seats.clone()));
            let relay = relay.restart(Restart::Permanent);
            children.push(relay.handle());
            supervisor = supervisor.child(number.to_string(), relay);
        }
        relays.get_or_init(|| children.into());
        let supervisor = supervisor.start(runtime).map_err(unavailable)?;
        Ok(LiveRooms(Arc::new(Shared { supervisor, relays, seats })))
    }

    /// Sends a message to all processes that are present in its room.
    pub(crate) fn publish(&self, said: &Arc<SaidMessage>) {
        if self.0.seats.load(Ordering::Relaxed) == 0 {
            return;
        }
        for relay in all(&self.0.relays) {
            send(relay, Hear { said: said.clone() });
        }
    }

    /// Shows all processes that are present in a room that the text of a message was removed.
    pub(super) fn take_back(&self, unsaid: &Arc<SaidMessage>) {
        for relay in all(&self.0.relays) {
            send(relay, TakeBack { unsaid: unsaid.clone() });
        }
    }

    /// Ends the presence of all processes in a room that has ended.
    pub(super) fn close(&self, room: &RoomName) {
        for relay in all(&self.0.relays) {
            send(relay, Close { room: room.clone() });
        }
    }

    /// Makes a process of a user present in a room. Returns the relay, from which the process gets the news.
    pub(super) async fn enter(
        &self,
        room: &RoomName,
        user: &Name,
        socket: Recipient<RoomNews>,
    ) -> Result<Pid, SocialError> {
        let enter = Enter { room: room.clone(), user: user.clone(), socket };
        let entered = of(&self.0.relays, user).call(enter).await;
        entered.map_err(|error| unavailable(throng::Error::from(error)))
    }

    /// Ends the presence of a process in a room. If the relay cannot be sent the message, the process counts as present
    /// until it ends: ending the relay would make all sockets enter again, while there is no room for that.
    pub(super) fn exit(&self, room: RoomName, user: Name, socket: Pid) {
        let _ = of(&self.0.relays, &user).send(Vacate { room, user, socket });
    }

    /// Ends the presence of all processes of a user in a room, because the user is no member any more.
    pub(super) fn remove(&self, room: RoomName, user: Name) {
        send(of(&self.0.relays, &user), Remove { room, user });
    }

    /// Shows the other present users of a room that a present user is typing.
    pub(super) fn typing(&self, room: RoomName, user: Name) {
        // Nothing is lost without it.
        let _ = of(&self.0.relays, &user).send(Type { room, user });
    }

    pub(super) async fn present(&self, room: &RoomName) -> Result<usize, SocialError> {
        let counted = of(&self.0.relays, room).call(Count { room: room.clone() }).await;
        counted.map_err(|error| unavailable(throng::Error::from(error)))
    }
}

fn all(relays: &Relays) -> &[Child<Relay>] {
    relays.get().map_or(&[], |relays| relays)
}

/// Returns the relay of a user, or the home of a room.
fn of<'r>(relays: &'r Relays, name: &impl Hash) -> &'r Child<Relay> {
    relay_of(all(relays), name)
}

/// Sends a message to a relay, which ends if there is no room for it. A relay that is not running has no
/// socket that needs the message.
fn send<T: Turn<Relay>>(relay: &Child<Relay>, message: T) {
    if relay.send(message).is_err()
        && let Some(relay) = relay.address()
    {
        relay.exit(unreachable_process());
    }
}

/// Process that sends news of rooms to the sockets of its users, and counts the present users of the rooms whose
/// home it is.
struct Relay {
    number: usize,
    relays: Relays,
    /// Number of seats of all sockets in all rooms, over all relays.
    seats: Arc<AtomicUsize>,
    /// Rooms in which a socket of this relay's users is present.
    rooms: HashMap<Arc<RoomName>, Hall>,
    sockets: HashMap<Pid, Socket>,
    /// Rooms whose home did not get the last report.
    unreported: HashSet<RoomName>,
    retry: Timeout,
    /// Rooms whose home this is, while users are present.
    homes: HashMap<RoomName, Home>,
    /// Rooms whose home this is, and whose presence has changed since the last tick.
    changed: HashSet<RoomName>,
    /// Users that were shown typing since the last tick.
    typing: HashSet<(RoomName, Name)>,
    tick: Timeout,
}

/// A room with the sockets of a relay's users.
#[derive(Default)]
struct Hall {
    /// Users that are present, each with one socket or more.
    users: IndexMap<Arc<Name>, Vec<Recipient<RoomNews>>>,
    /// Messages that the next [`PassOn`] sends.
    said: Vec<Arc<SaidMessage>>,
    /// Time before which no further messages are sent.
    resume: Option<Instant>,
    pause: Timeout,
}

/// Places of a socket's process.
struct Socket {
    monitor: MonitorRef,
    seats: Vec<(Arc<RoomName>, Arc<Name>)>,
}

/// Presence in a room, as its home knows it.
#[derive(Debug, Default)]
struct Home {
    /// Number of the users of each relay.
    counts: HashMap<usize, usize>,
    /// Number of users in the last news.
    shown: usize,
    entered: BTreeSet<Name>,
    exited: BTreeSet<Name>,
}

impl Home {
    fn present(&self) -> usize {
        self.counts.values().sum()
    }

    /// Records that a user has entered or exited since the last tick.
    fn note(&mut self, user: Name, has_entered: bool) {
        let (same, opposite) = match has_entered {
            true => (&mut self.entered, &mut self.exited),
            false => (&mut self.exited, &mut self.entered),
        };
        // One name more than is ever shown tells that there are too many.
        if !opposite.remove(&user) && same.len() <= NAMES_MAX {
            same.insert(user);
        }
    }

    /// Returns the news since the last tick, if there are any.
    fn news(&mut self, room: &RoomName) -> Option<Presence> {
        let present = self.present();
        let (mut entered, mut exited) = (mem::take(&mut self.entered), mem::take(&mut self.exited));
        if present == self.shown && entered.is_empty() && exited.is_empty() {
            return None;
        }
        self.shown = present;
        if present.max(entered.len()).max(exited.len()) > NAMES_MAX {
            (entered, exited) = (BTreeSet::new(), BTreeSet::new());
        }
        Some(Presence { room: room.clone(), present, entered, exited, frame: OnceLock::new() })
    }
}

impl Relay {
    fn new(number: usize, relays: Relays, seats: Arc<AtomicUsize>) -> Relay {
        Relay {
            number,
            relays,
            seats,
            rooms: HashMap::new(),
            sockets: HashMap::new(),
            unreported: HashSet::new(),
            retry: Timeout::default(),
            homes: HashMap::new(),
            changed: HashSet::new(),
            typing: HashSet::new(),
            tick: Timeout::default(),
        }
    }

    /// Removes the sockets of a user for which `is_out` holds from a room, and returns them.
    fn unseat(
        &mut self,
        cx: &mut Context<Self>,
        room: &RoomName,
        user: &Name,
        is_out: impl Fn(Pid) -> bool,
    ) -> Vec<Recipient<RoomNews>> {
        let Some(hall) = self.rooms.get_mut(room) else { return Vec::new() };
        let Some(sockets) = hall.users.get_mut(user) else { return Vec::new() };
        let out: Vec<_> = sockets.extract_if(.., |socket| is_out(socket.pid())).collect();
        self.seats.fetch_sub(out.len(), Ordering::Relaxed);
        for socket in &out {
            let Some(known) = self.sockets.get_mut(&socket.pid()) else { continue };
            known.seats.retain(|(its, name)| **its != *room || **name != *user);
            if known.seats.is_empty() {
                cx.demonitor(known.monitor);
                self.sockets.remove(&socket.pid());
            }
        }
        if sockets.is_empty() {
            hall.users.swap_remove(user);
            if hall.users.is_empty() {
                self.rooms.remove(room);
            }
            self.report(cx, room, Some((user.clone(), false)));
        }
        out
    }

    /// Reports the number of this relay's users in a room to the room's home.
    fn report(&mut self, cx: &mut Context<Self>, room: &RoomName, change: Option<(Name, bool)>) {
        let present = self.rooms.get(room).map_or(0, |hall| hall.users.len());
        let note = Note { relay: self.number, room: room.clone(), present, change };
        if of(&self.relays, room).send(note).is_err() {
            self.unreported.insert(room.clone());
            self.retry.set(cx, RETRY, ReportAgain {});
        }
    }

    /// Sends news to the relays that have users in a room whose home this is. Returns whether all have got it.
    fn spread(&self, room: &RoomName, news: &RoomNews) -> bool {
        let Some(home) = self.homes.get(room) else { return true };
        let relays = home.counts.keys().filter_map(|number| all(&self.relays).get(*number));
        let show = || Show { room: room.clone(), news: news.clone() };
        // All relays get the news, also those after a relay that has no room.
        relays.filter(|relay| relay.send(show()).is_err()).count() == 0
    }

    /// Sends news to all sockets in a room, except to the sockets of the typing user. Returns their number.
    async fn show_all(&self, room: &RoomName, news: RoomNews) -> u32 {
        let typist = if let RoomNews::Typing(typing) = &news { Some(&typing.name) } else { None };
        let users = self.rooms.get(room).into_iter().flat_map(|hall| &hall.users);
        let others = users.filter(|(user, _)| Some(&***user) != typist);
        let mut sent = 0;
        for socket in others.flat_map(|(_, sockets)| sockets) {
            sent += 1;
            if sent % SENDS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            send_news(socket, news.clone());
        }
        sent
    }

    fn ensure_tick(&mut self, cx: &mut Context<Self>) {
        if !self.tick.is_set() {
            self.tick.set(cx, TICK, Tick {});
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let left = self.sockets.values().map(|socket| socket.seats.len()).sum();
        self.seats.fetch_sub(left, Ordering::Relaxed);
    }
}

#[process(client = RelayClient)]
impl Relay {
    /// Removes a socket that has ended from its rooms.
    #[hook]
    fn down(&mut self, cx: &mut Context<Self>, down: Down) {
        for (room, user) in
            self.sockets.remove(&down.pid).map(|socket| socket.seats).into_iter().flatten()
        {
            self.unseat(cx, &room, &user, |pid| pid == down.pid);
        }
    }

    /// Makes a socket of one of this relay's users present in a room. Returns the pid of this relay.
    #[message]
    fn enter(
        &mut self,
        cx: &mut Context<Self>,
        room: RoomName,
        user: Name,
        socket: Recipient<RoomNews>,
    ) -> Pid {
        let room = shared(&self.rooms, room);
        let users = &mut self.rooms.entry(room.clone()).or_default().users;
        let (user, is_first) = match users.get_full_mut(&user) {
            Some((_, _, sockets)) if sockets.iter().any(|its| its.pid() == socket.pid()) => {
                return cx.pid();
            }
            Some((_, user, sockets)) => {
                sockets.push(socket);
                (user.clone(), false)
            }
            None => {
                let user = Arc::new(user);
                users.insert(user.clone(), vec![socket]);
                (user, true)
            }
        };
        let known = self.sockets.entry(socket.pid());
        let known = known.or_insert_with(|| Socket {
            monitor: cx.monitor(socket),
            seats: Vec::with_capacity(1),
        });
        known.seats.push((room.clone(), user.clone()));
        self.seats.fetch_add(1, Ordering::Relaxed);
        if is_first {
            self.report(cx, &room, Some(((*user).clone(), true)));
        }
        cx.pid()
    }

    #[message(send)]
    fn vacate(&mut self, cx: &mut Context<Self>, room: RoomName, user: Name, socket: Pid) {
        self.unseat(cx, &room, &user, |pid| pid == socket);
    }

    /// Removes all sockets of a user from a room, of which the user is no member any more.
    #[message(send)]
    fn remove(&mut self, cx: &mut Context<Self>, room: RoomName, user: Name) {
        // The user was a member when these were said.
        let said = self.rooms.get(&room).into_iter().flat_map(|hall| pieces(&room, &hall.said));
        let last: Vec<RoomNews> = said.chain([RoomNews::Removed(room.clone())]).collect();
        for socket in self.unseat(cx, &room, &user, |_| true) {
            last.iter().for_each(|news| send_news(&socket, news.clone()));
        }
    }

    /// Removes all sockets from a room that has ended.
    #[message(send)]
    fn close(&mut self, cx: &mut Context<Self>, room: RoomName) {
        let users = self.rooms.get(&room).into_iter().flat_map(|hall| hall.users.keys());
        for user in users.map(|user| (**user).clone()).collect::<Vec<_>>() {
            self.remove(cx, room.clone(), user);
        }
    }

    /// Shows that the text of a message was removed, and removes it from the messages that wait.
    #[message(send)]
    async fn take_back(&mut self, unsaid: Arc<SaidMessage>) {
        let Some(hall) = self.rooms.get_mut(&unsaid.room) else { return };
        for said in &mut hall.said {
            if said.message.sequence == unsaid.message.sequence {
                *said = unsaid.clone();
            }
        }
        let news = Arc::new(Said::new(unsaid.room.clone(), vec![unsaid]));
        self.show_all(&news.room, RoomNews::TakenBack(news.clone())).await;
    }

    /// Collects a message. The next [`PassOn`] sends it with the messages that arrive until then.
    #[message(send)]
    fn hear(&mut self, cx: &mut Context<Self>, said: Arc<SaidMessage>) {
        let Some(hall) = self.rooms.get_mut(&said.room) else { return };
        if hall.said.is_empty() {
            let pass_on = PassOn { room: said.room.clone() };
            let wait = hall.resume.map(|resume| resume.saturating_duration_since(Instant::now()));
            match wait {
                Some(wait) if !wait.is_zero() => hall.pause.set(cx, wait, pass_on),
                _ if cx.address().send(pass_on).is_err() => return cx.stop(unreachable_process()),
                _ => {}
            }
        }
        hall.said.push(said);
    }

    /// Sends the collected messages of a room, and sets the pause of a large room.
    #[message(send)]
    async fn pass_on(&mut self, room: RoomName) {
        let Some(hall) = self.rooms.get_mut(&room) else { return };
        let said = mem::take(&mut hall.said);
        let mut sockets = 0;
        for (number, news) in pieces(&room, &said).enumerate() {
            if number > 0 {
                tokio::task::yield_now().await;
            }
            sockets = self.show_all(&room, news).await;
        }
        if let Some(hall) = self.rooms.get_mut(&room).filter(|_| !said.is_empty()) {
            let pause = PAUSE_PER_SOCKET * sockets;
            hall.resume = (pause >= PAUSE_MIN).then(|| Instant::now() + pause);
        }
    }

    /// Sends news to all sockets in a room, except to the sockets of the typing user.
    #[message(send)]
    async fn show(&mut self, room: RoomName, news: RoomNews) {
        self.show_all(&room, news).await;
    }

    /// Reports to the homes that did not get the last report.
    #[message(send)]
    fn report_again(&mut self, cx: &mut Context<Self>) {
        for room in mem::take(&mut self.unreported) {
            self.report(cx, &room, None);
        }
    }

    /// Takes the report of a relay on a room whose home this is.
    #[message(send)]
    fn note(
        &mut self,
        cx: &mut Context<Self>,
        relay: usize,
        room: RoomName,
        present: usize,
        change: Option<(Name, bool)>,
    ) {
        let home = self.homes.entry(room.clone()).or_default();
        match present {
            0 => drop(home.counts.remove(&relay)),
            _ => drop(home.counts.insert(relay, present)),
        }
        if let Some((user, has_entered)) = change {
            home.note(user, has_entered);
        }
        self.changed.insert(room);
        self.ensure_tick(cx);
    }

    /// Returns the number of present users of a room whose home this is.
    #[message]
    fn count(&self, room: RoomName) -> usize {
        self.homes.get(&room).map_or(0, Home::present)
    }

    /// Passes on to the home of a room that a present user is typing.
    #[message(name = Type, send)]
    fn typing(&mut self, room: RoomName, user: Name) {
        if self.rooms.get(&room).is_some_and(|hall| hall.users.contains_key(&user)) {
            let _ = of(&self.relays, &room).send(ShowTyping { room, user });
        }
    }

    /// Shows that a user is typing in a room whose home this is.
    #[message(send)]
    fn show_typing(&mut self, cx: &mut Context<Self>, room: RoomName, user: Name) {
        let Some(home) = self.homes.get(&room) else { return };
        if home.present() <= TYPING_MAX && self.typing.insert((room.clone(), user.clone())) {
            let typing = Typing { room: room.clone(), name: user, frame: OnceLock::new() };
            // Nothing is lost without it.
            self.spread(&room, &RoomNews::Typing(Arc::new(typing)));
            self.ensure_tick(cx);
        }
    }

    /// Sends the changes of presence since the last tick.
    #[message(send)]
    fn tick(&mut self, cx: &mut Context<Self>) {
        self.typing.clear();
        for room in mem::take(&mut self.changed) {
            let Some(home) = self.homes.get_mut(&room) else { continue };
            if let Some(presence) = home.news(&room)
                && !self.spread(&room, &RoomNews::Presence(Arc::new(presence)))
            {
                // The next tick sends the number again.
                if let Some(home) = self.homes.get_mut(&room) {
                    home.shown = usize::MAX;
                }
                self.changed.insert(room.clone());
                self.ensure_tick(cx);
            }
            if self.homes.get(&room).is_some_and(|home| home.counts.is_empty()) {
                self.homes.remove(&room);
            }
        }
    }
}

/// Sends news to a socket, which ends if there is no room for them.
fn send_news(socket: &Recipient<RoomNews>, news: RoomNews) {
    if socket.send(news).is_err() {
        socket.pid().exit(unreachable_process());
    }
}

/// Divides messages of a room into pieces of news, each of which takes a small part of a socket's queue.
fn pieces(room: &RoomName, said: &[Arc<SaidMessage>]) -> impl Iterator<Item = RoomNews> {
    let mut rest = said;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fit = |part: &&Arc<SaidMessage>| {
            bytes += part.frame().len();
            bytes <= PIECE_BYTES_MAX
        };
        // A message that is larger is a piece of its own.
        let count = rest.iter().take(PIECE_MESSAGES_MAX).take_while(fit).count().max(1);
        let (piece, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(RoomNews::Said(Arc::new(Said::new(room.clone(), piece.to_vec()))))
    })
}

/// Returns the key of the map that is equal to `key`, or else `key`.
fn shared<K: Hash + Eq, V>(map: &HashMap<Arc<K>, V>, key: K) -> Arc<K>
where
    Arc<K>: Borrow<K>,
{
    match map.get_key_value(&key) {
        Some((key, _)) => key.clone(),
        None => Arc::new(key),
    }
}

/// Time for which changes of presence are collected, and for which a typing user is shown once.
const TICK: Duration = Duration::from_secs(1);

/// Time until a report that a home did not get is sent again.
const RETRY: Duration = Duration::from_millis(200);

/// Maximum number of users present, entering and exiting with whose names the news of presence come. A list of more
/// names is of little use to a reader, and the frame grows with every name for every socket.
const NAMES_MAX: usize = 100;

/// Maximum number of users present in a room in which typing is shown. Each typing user costs a frame a second
/// for every socket, so the cost grows with the square of the users.
const TYPING_MAX: usize = 100;

/// Pause of a room after its messages are sent, for each of its sockets at the relay. A write to
/// a socket costs about as much for one message as for ten, so messages that come while the last piece is still being
/// written are better sent together afterwards. On two cores with clients on the same machine, measured in one run
/// (`bench run chat`) without a pause, with 10 µs, and with 25 µs:
///
/// | present, load | deliveries per second | p50 | p99 |
/// |---|---|---|---|
/// | 10,000, ten authors that wait for their own message | 370,000, 490,000, 685,000 | 233, 196, 152 ms | 822, 586, 310 ms |
/// | 10,000, 20 messages per second | 197,000 | 154, 185, 117 ms | 425, 531, 239 ms |
/// | 10,000, 10 messages per second | 100,000 | 95, 113, 123 ms | 324, 360, 237 ms |
/// | 1,000, ten authors that wait for their own message | 610,000, 665,000, 647,000 | 16, 16, 17 ms | 63, 55, 42 ms |
/// | 1,000, 300 messages per second | 298,000 | 26, –, 16 ms | 113, –, 38 ms |
/// | 1,000, 100 messages per second | 100,000 | 10, –, 15 ms | 34, –, 26 ms |
pub(super) const PAUSE_PER_SOCKET: Duration = Duration::from_micros(25);

/// Shortest pause, because timers have a resolution of a millisecond. A room with fewer than 40 sockets at a relay has
/// none.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Maximum number of messages in a piece of news: a quarter of a socket's queue with default limits. A full queue
/// refuses whole pieces, so larger ones would cost slow clients more messages.
const PIECE_MESSAGES_MAX: usize = 32;

/// Maximum bytes of the frames in a piece: a quarter of a socket's queue with default limits. A larger message is a
/// piece of its own.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Number of sends after which a relay lets other processes run: about a millisecond.
const SENDS_AT_ONCE: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::post::Text;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn news_of_presence_name_each_user_who_is_not_where_the_last_news_left_them() {
        let room: RoomName = "rust".parse().unwrap();
        let mut home = Home::default();
        home.counts.insert(0, 2);
        for user in ["alice", "bob", "carol"] {
            home.note(name(user), true);
        }
        home.note(name("bob"), false);
        let news = home.news(&room).unwrap();
        assert_eq!((news.present, news.entered.len(), news.exited.len()), (2, 2, 0));
        home.note(name("alice"), false);
        home.note(name("alice"), true);
        assert!(home.news(&room).is_none(), "nothing has changed");
        home.counts.insert(1, 1);
        home.note(name("dave"), true);
        let news = home.news(&room).unwrap();
        assert_eq!((news.present, news.entered), (3, BTreeSet::from([name("dave")])));
    }

    #[test]
    fn messages_are_divided_into_pieces_that_fit_a_part_of_a_queue() {
        let room: RoomName = "rust".parse().unwrap();
        let said = |sequence: u64, length: usize| {
            let text = Text::new("😀".repeat(length)).unwrap();
            let message =
                RoomMessage { sequence, author: name("alice"), text: Some(text), time: 0 };
            Arc::new(SaidMessage::new(room.clone(), message))
        };
        // A text of 5,000 of these characters has 20,000 bytes, and three of them less than 64 KiB.
        for (lengths, expected) in [
            (vec![], vec![]),
            (vec![1], vec![1]),
            (vec![1; 70], vec![32, 32, 6]),
            (vec![5_000; 7], vec![3, 3, 1]),
            (vec![1, 5_000, 5_000, 5_000, 5_000, 1], vec![4, 2]),
        ] {
            let messages: Vec<_> = (1..).zip(lengths).map(|(n, length)| said(n, length)).collect();
            let (mut counts, mut next) = (Vec::new(), 1);
            for news in pieces(&room, &messages) {
                let RoomNews::Said(said) = news else { unreachable!() };
                assert!(
                    said.messages()
                        .map(|message| message.sequence)
                        .eq(next..next + said.messages().len() as u64)
                );
                assert_eq!(said.frames().messages(), said.messages().len());
                next += said.messages().len() as u64;
                counts.push(said.messages().len());
            }
            assert_eq!(counts, expected);
        }
    }

    #[test]
    fn many_users_are_counted_and_not_named() {
        let room: RoomName = "rust".parse().unwrap();
        let mut home = Home::default();
        for (present, named) in [(NAMES_MAX, NAMES_MAX), (2 * NAMES_MAX + 1, 0)] {
            for user in 0..present {
                home.note(name(&format!("user_{present}_{user}")), true);
            }
            home.counts.insert(0, present);
            let news = home.news(&room).unwrap();
            assert_eq!((news.present, news.entered.len()), (present, named));
        }
        // Few are left, but too many have exited to be named.
        for user in 0..2 * NAMES_MAX {
            home.note(name(&format!("user_201_{user}")), false);
        }
        home.counts.insert(0, 1);
        let news = home.news(&room).unwrap();
        assert_eq!((news.present, news.exited.len()), (1, 0));
    }
}
