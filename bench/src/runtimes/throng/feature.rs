//! What a throng process may be given beside its work, so that its cost is seen: the setting
//! `feature` of the workloads that have one.
//!
//! Each is in use and not only switched on, and [`Equipment::check`] proves it afterwards.

use std::io;

use throng::{
    Address, Context, Down, Handle, MailboxBound, Message, Overflow, Pid, Process, RuntimeHandle,
    SpawnOptions,
};

use crate::outcome::Outcome;
use crate::settings::{Key, Kind, Settings};
use crate::workloads::tally::Tally;

/// The setting, for workloads that list it.
pub(crate) const KEY: Key = Key {
    name: "feature",
    kind: Kind::Word(&["none", MONITOR, BOUNDED]),
    about: "what the processes that are sent to are given, to see what it costs",
};

/// The features that can be asked for.
pub(crate) const WORDS: &[&str] = &[MONITOR, BOUNDED];

/// One process monitors each of them.
const MONITOR: &str = "monitor";

/// Each has a bounded mailbox, whose bound is not reached: a message that is refused is missing in
/// the sum, or among the replies.
const BOUNDED: &str = "bounded";

static DOWNS: Tally = Tally::new();

/// Starts a process that is sent to, with room for this many messages if its mailbox is to be bounded.
///
/// # Panics
/// When there is no room for the process.
pub(crate) fn start<P: Process>(
    runtime: &RuntimeHandle,
    settings: &Settings,
    capacity: u64,
    process: P,
) -> Address<P> {
    if settings.word(KEY.name) != BOUNDED {
        return super::start(runtime, process);
    }
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    let options = SpawnOptions::new().mailbox(MailboxBound::new(capacity, Overflow::Reject));
    match runtime.spawn_with(process, options) {
        Ok(address) => address,
        Err(error) => panic!("the process limit leaves room for every process: {error}"),
    }
}

/// Some processes and what they were given.
pub(crate) struct Equipment<P: Process> {
    processes: Vec<Address<P>>,
    monitored: bool,
}

impl<P: Process> Equipment<P> {
    /// Gives these processes what the settings ask for. There must be room for one process more.
    ///
    /// # Errors
    /// When the process that should monitor them does not.
    pub(crate) async fn give(
        runtime: &RuntimeHandle,
        settings: &Settings,
        processes: Vec<Address<P>>,
    ) -> io::Result<Equipment<P>> {
        let monitored = settings.word(KEY.name) == MONITOR;
        if monitored {
            let pids = processes.iter().map(|process| process.pid()).collect();
            let watched = super::start(runtime, Watcher).call(Watch(pids)).await;
            watched.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(Equipment { processes, monitored })
    }

    /// Stops the processes if that is what shows that they had it, and adds what is found.
    pub(crate) async fn check(self, outcome: &mut Outcome) {
        if self.monitored {
            let count = self.processes.len() as u64;
            DOWNS.arm(count);
            for process in self.processes {
                process.stop();
            }
            DOWNS.complete().await;
            outcome.check("monitors that told of an exit", DOWNS.count(), count);
        }
    }
}

struct Watcher;

impl Process for Watcher {
    async fn down(&mut self, _: Down, _: &mut Context<Self>) {
        DOWNS.add(1);
    }
}

struct Watch(Vec<Pid>);

impl Message for Watch {
    type Reply = ();
}

impl Handle<Watch> for Watcher {
    async fn handle(&mut self, Watch(pids): Watch, cx: &mut Context<Self>) {
        for pid in pids {
            cx.monitor(pid);
        }
    }
}
