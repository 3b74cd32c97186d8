//! The setting `feature`: features of throng that a workload's processes use in addition to their
//! work, so that the cost of a feature can be measured.
//!
//! A feature is in use, not merely enabled, and [`Fixture::check`] proves it afterwards. Supervised
//! processes are reached through their [`Child`] handles, all others through their [`Address`]es;
//! so a workload is generic over the [`SendTarget`].

mod scraper;

use std::io;
use std::time::Duration;

use throng::{
    Address, Call, Child, ChildSpec, Context, Down, Handle, MailboxBound, Message, Overflow, Pid,
    Process, RuntimeHandle, SendError, Supervisor, Turn,
};

use self::scraper::Scraper;
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::workloads::tally::Tally;

/// A single process monitors each receiving process.
const MONITOR: &str = "monitor";

/// Each receiving process has a bounded mailbox, whose bound is never reached: a rejected message
/// would be missing in the sum or among the replies.
const BOUNDED: &str = "bounded";

/// Each receiving process is a child of the same supervisor and is reached through its handle.
const SUPERVISOR: &str = "supervisor";

/// A process reads the runtime's metrics periodically, in the text form that a scraper gets.
const METRICS: &str = "metrics";

/// Number of processes that a feature needs besides the receiving processes, at most.
pub(crate) const PROCESSES: u64 = 1;

static DOWNS: Tally = Tally::new();
static CHILDREN: Tally = Tally::new();

/// A handle through which a process receives messages.
pub(crate) trait SendTarget<P: Process>: Clone + Send + Sync + 'static {
    /// Sends a message.
    ///
    /// # Errors
    /// If no process accepts the message.
    fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>>;

    /// Calls the process.
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

/// The receiving processes of a workload, with their feature.
pub(crate) struct Fixture<R> {
    processes: Vec<R>,
    feature: Feature,
}

enum Feature {
    /// No feature, or a feature that the workload's own checks prove.
    Plain,
    Monitor,
    Supervisor,
    Scraper(Scraper),
}

/// Whether the settings ask for supervised processes, which [`Fixture::supervise`] starts; all
/// others are started by [`Fixture::start`].
pub(crate) fn is_supervised(settings: &Settings) -> bool {
    settings.word("feature") == SUPERVISOR
}

impl<P: Process> Fixture<Address<P>> {
    /// Starts `count` receiving processes with the feature that the settings ask for. A bounded
    /// mailbox has room for `capacity` messages. The process limit must leave room for
    /// [`PROCESSES`] more.
    ///
    /// # Errors
    /// If the monitoring process does not reply, or the scraper does not start.
    ///
    /// # Panics
    /// If the process limit is reached.
    pub(crate) async fn start(
        runtime: &RuntimeHandle,
        settings: &Settings,
        count: u64,
        capacity: u64,
        make: impl Fn() -> P,
    ) -> io::Result<Self> {
        let feature = settings.word("feature");
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
    /// Starts `count` receiving processes under a supervisor. The process limit must leave room for
    /// [`PROCESSES`] more.
    ///
    /// # Errors
    /// If the supervisor or a child does not start.
    pub(crate) async fn supervise(
        runtime: &RuntimeHandle,
        count: u64,
        make: impl Fn() -> P + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // The check kills each child once.
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
    /// The handles of the receiving processes.
    pub(crate) fn processes(&self) -> &[R] {
        &self.processes
    }

    /// Checks that the feature was in use, and adds the result to the outcome. For monitors it stops
    /// the processes, for a supervisor it kills them. The workload has started `started` processes
    /// in all, none of which has exited, and they have handled at least `handled` messages.
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
                outcome.check("monitors that reported an exit", DOWNS.count(), count);
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
                // The scraper's own process is not in the workload's count.
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
