//! What throng's processes may be given beside their work, so that its cost is seen: the setting
//! `feature` of the workloads that have one.
//!
//! Each is in use and not only switched on, and [`Fixture::check`] proves it afterwards.
//! Supervised processes are reached by their [`Child`] handles, all others by their [`Address`]es;
//! so a workload is generic in what [reaches](SendTarget) its processes.

mod scraper;

use std::io;
use std::time::Duration;

use throng::{
    Address, Call, Child, ChildSpec, Context, Down, Handle, MailboxBound, Message, Overflow, Pid,
    Process, RuntimeHandle, SendError, Supervisor, Turn,
};

use self::scraper::Scraper;
use crate::outcome::Outcome;
use crate::settings::{Key, Kind, Settings};
use crate::workloads::tally::Tally;

/// The setting, for workloads that list it.
pub(crate) const KEY: Key = Key {
    name: "feature",
    kind: Kind::Word(&["none", MONITOR, BOUNDED, SUPERVISOR, METRICS]),
    about: "what the processes that are sent to are given, to see what it costs",
};

/// The features that can be asked for.
pub(crate) const WORDS: &[&str] = &[MONITOR, BOUNDED, SUPERVISOR, METRICS];

/// One process monitors each of them.
const MONITOR: &str = "monitor";

/// Each has a bounded mailbox, whose bound is not reached: a message that is refused is missing in
/// the sum, or among the replies.
const BOUNDED: &str = "bounded";

/// Each is the child of one supervisor, and reached by its handle.
const SUPERVISOR: &str = "supervisor";

/// A process reads the runtime's metrics again and again, as a scraper has them.
const METRICS: &str = "metrics";

/// How many processes a feature takes beside those that have it.
pub(crate) const PROCESSES: u64 = 1;

static DOWNS: Tally = Tally::new();
static CHILDREN: Tally = Tally::new();

/// What reaches a process.
pub(crate) trait SendTarget<P: Process>: Clone + Send + Sync + 'static {
    /// Sends a message.
    ///
    /// # Errors
    /// When there is nobody who takes it.
    fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>>;

    /// Calls.
    fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply>;

    /// The process's own address, if it is alive.
    fn address(&self) -> Option<Address<P>>;
}

impl<P: Process> SendTarget<P> for Address<P> {
    fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        Address::send(*self, message)
    }

    fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply> {
        Address::call(*self, message)
    }

    fn address(&self) -> Option<Address<P>> {
        Some(*self)
    }
}

impl<P: Process> SendTarget<P> for Child<P> {
    fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        Child::send(self, message)
    }

    fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply> {
        Child::call(self, message)
    }

    fn address(&self) -> Option<Address<P>> {
        Child::address(self)
    }
}

/// Some processes and what they were given.
pub(crate) struct Fixture<R> {
    processes: Vec<R>,
    feature: Feature,
}

enum Feature {
    /// Nothing, or what shows in the workload's own checks.
    Plain,
    Monitor,
    Supervisor,
    Scraper(Scraper),
}

/// Whether the settings ask for supervised processes: those of [`Fixture::supervise`], and not of
/// [`Fixture::start`].
pub(crate) fn is_supervised(settings: &Settings) -> bool {
    settings.word(KEY.name) == SUPERVISOR
}

impl<P: Process> Fixture<Address<P>> {
    /// Starts so many processes that are sent to, with what the settings ask for; each with room for
    /// `capacity` messages if its mailbox is to be bounded. There must be room for [`PROCESSES`]
    /// more.
    ///
    /// # Errors
    /// When the process that should monitor them does not.
    ///
    /// # Panics
    /// When there is no room for a process.
    pub(crate) async fn start(
        runtime: &RuntimeHandle,
        settings: &Settings,
        count: u64,
        capacity: u64,
        make: impl Fn() -> P,
    ) -> io::Result<Self> {
        let feature = settings.word(KEY.name);
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let bound = (feature == BOUNDED).then(|| MailboxBound::new(capacity, Overflow::Reject));
        let processes: Vec<_> = (0..count).map(|_| start(runtime, bound, make())).collect();
        let feature = match feature {
            MONITOR => {
                let pids = processes.iter().map(|process| process.pid()).collect();
                super::start(runtime, MonitoringProcess)
                    .call(MonitorAll(pids))
                    .await
                    .map_err(io::Error::other)?;
                Feature::Monitor
            }
            METRICS => Feature::Scraper(Scraper::start(runtime)?),
            _ => Feature::Plain,
        };
        Ok(Fixture { processes, feature })
    }
}

impl<P: Process> Fixture<Child<P>> {
    /// Has a supervisor start so many processes that are sent to. There must be room for
    /// [`PROCESSES`] more.
    ///
    /// # Errors
    /// When one of them does not start.
    pub(crate) async fn supervise(
        runtime: &RuntimeHandle,
        count: u64,
        make: impl Fn() -> P + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // The check lets each of them die once.
        let deaths = u32::try_from(count).unwrap_or(u32::MAX);
        let supervisor = Supervisor::dynamic().intensity(deaths, Duration::from_secs(3600));
        let supervisor = supervisor.start_async(runtime).await.map_err(io::Error::other)?;
        let mut processes = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let make = make.clone();
            let child = ChildSpec::new(move || {
                CHILDREN.add(1);
                make()
            });
            processes.push(supervisor.spawn_child(child).await.map_err(io::Error::other)?);
        }
        Ok(Fixture { processes, feature: Feature::Supervisor })
    }
}

impl<R> Fixture<R> {
    /// The processes themselves.
    pub(crate) fn processes(&self) -> &[R] {
        &self.processes
    }

    /// Stops the processes if that is what shows that they had it, and adds what is found. The
    /// workload has started `started` processes in all, none has exited, and they have handled
    /// `handled` messages at least.
    pub(crate) async fn check<P: Process>(self, started: u64, handled: u64, outcome: &mut Outcome)
    where
        R: SendTarget<P>,
    {
        let count = self.processes.len() as u64;
        let addresses = self.processes.iter().filter_map(SendTarget::address);
        match self.feature {
            Feature::Plain => {}
            Feature::Monitor => {
                DOWNS.arm(count);
                for address in addresses {
                    address.stop();
                }
                DOWNS.complete().await;
                outcome.check("monitors that told of an exit", DOWNS.count(), count);
            }
            Feature::Supervisor => {
                CHILDREN.arm(2 * count);
                for address in addresses {
                    address.kill();
                }
                CHILDREN.complete().await;
                outcome.check("starts and restarts of children", CHILDREN.count(), 2 * count);
            }
            Feature::Scraper(scraper) => {
                // Its own process is one more than the workload knows of.
                scraper.check(started + PROCESSES, handled, outcome).await;
            }
        }
    }
}

fn start<P: Process>(
    runtime: &RuntimeHandle,
    bound: Option<MailboxBound>,
    process: P,
) -> Address<P> {
    let Some(bound) = bound else { return super::start(runtime, process) };
    match runtime.spawner().mailbox(bound).spawn(process) {
        Ok(address) => address,
        Err(error) => panic!("the process limit leaves room for every process: {error}"),
    }
}

struct MonitoringProcess;

impl Process for MonitoringProcess {
    async fn down(&mut self, _: Down, _: &mut Context<Self>) {
        DOWNS.add(1);
    }
}

struct MonitorAll(Vec<Pid>);

impl Message for MonitorAll {
    type Reply = ();
}

impl Handle<MonitorAll> for MonitoringProcess {
    async fn handle(&mut self, MonitorAll(pids): MonitorAll, cx: &mut Context<Self>) {
        for pid in pids {
            cx.monitor(pid);
        }
    }
}
