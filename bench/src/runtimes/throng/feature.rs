//! The setting `feature`: features of throng that a workload's processes use in addition to their
//! work, so that the cost of a feature can be measured.
//!
//! A feature is in use, not merely enabled, and [`Fixture::check`] proves it afterwards. Supervised
//! processes are reached through their [`Child`] handles, all others through their [`Address`]es;
//! so a workload is generic over the [`SendTarget`].

mod scraper;

use std::io;
use std::ops::Range;
use std::time::Duration;

use throng::{
    Address, Call, Child, ChildSpec, Context, Down, MailboxBound, Overflow, Pid, Process,
    RuntimeHandle, SendError, Supervisor, Turn, process,
};

use self::scraper::Scraper;
use super::{Inbox, Request, Server, Tell, Throng};
use crate::host::Successor;
use crate::outcome::Outcome;
use crate::runtimes::Measured;
use crate::settings::Settings;
use crate::workloads::call::{self, Callees};
use crate::workloads::send::{self, Adder};
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

/// Capacity of the bounded mailbox of a callee: more than the single message that the only caller has in flight.
const CAPACITY: u64 = 1000;

/// Number of processes that a feature needs besides the receiving processes, at most.
const PROCESSES: u64 = 1;

static DOWNS: Tally = Tally::new();
static CHILDREN: Tally = Tally::new();

/// A handle through which a process receives messages.
trait SendTarget<P: Process>: Clone + Send + Sync + Unpin + 'static {
    fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>>;

    fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply>;

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
struct Fixture<R> {
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

pub(crate) fn is_none(settings: &Settings) -> bool {
    settings.word("feature") == "none"
}

pub(crate) fn send(settings: &Settings) -> Measured {
    let processes = settings.get("senders") + 1 + PROCESSES;
    super::drive_with(settings, processes, false, |runtime, settings| async move {
        let count = settings.count;
        let adder = move || Inbox(Adder::new(count));
        if is_supervised(&settings) {
            let fixture = Fixture::supervise(&runtime, 1, adder).await?;
            measure_send(fixture, runtime, settings).await
        } else {
            let fixture = Fixture::start(&runtime, &settings, 1, count + 1, adder).await?;
            measure_send(fixture, runtime, settings).await
        }
    })
}

async fn measure_send<R: SendTarget<Inbox<Adder>>>(
    fixture: Fixture<R>,
    runtime: RuntimeHandle,
    settings: Settings,
) -> Measured {
    let (senders, messages) = (settings.get("senders"), settings.count);
    let receiver = fixture.processes[0].clone();
    // A message without a receiver is missing in the sum.
    let send_all = move |values: Range<u64>| {
        values.for_each(|value| drop(receiver.send(Tell(value))));
    };
    let mut outcome = send::measure(Throng { runtime }, send_all, settings).await?;
    // Started: the driver, the receiver and the senders, each of which handles its share.
    fixture.check(2 + senders, senders + messages, &mut outcome).await;
    Ok(outcome)
}

pub(crate) fn call(settings: &Settings) -> Measured {
    let count = settings.get("callees");
    super::drive_with(settings, count + PROCESSES, false, move |runtime, settings| async move {
        let make = || Server(Successor);
        if is_supervised(&settings) {
            measure_call(Fixture::supervise(&runtime, count, make).await?, settings).await
        } else {
            let fixture = Fixture::start(&runtime, &settings, count, CAPACITY, make).await?;
            measure_call(fixture, settings).await
        }
    })
}

async fn measure_call<R: SendTarget<Server<Successor>>>(
    fixture: Fixture<R>,
    settings: Settings,
) -> Measured {
    let (callees, calls) = (settings.get("callees"), settings.count + settings.get("samples"));
    let mut outcome = call::measure(Featured(fixture.processes.clone()), settings).await?;
    // Started: the driver and the callees. Each callee was called once before the clock started.
    fixture.check(1 + callees, callees + calls, &mut outcome).await;
    Ok(outcome)
}

struct Featured<R>(Vec<R>);

impl<R: SendTarget<Server<Successor>>> Callees for Featured<R> {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.0[callee].call(Request(value)).await.ok()
    }
}

/// Whether the settings ask for supervised processes, which [`Fixture::supervise`] starts; all
/// others are started by [`Fixture::start`].
fn is_supervised(settings: &Settings) -> bool {
    settings.word("feature") == SUPERVISOR
}

impl<P: Process> Fixture<Address<P>> {
    /// Starts `count` receiving processes with the feature that the settings ask for. A bounded
    /// mailbox has room for `capacity` messages. The process limit must leave room for
    /// [`PROCESSES`] more.
    /// # Panics
    /// If the process limit is reached.
    async fn start(
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
                let monitoring = super::start(runtime, MonitoringProcess);
                monitoring.monitor_all(pids).await.map_err(io::Error::other)?;
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
    async fn supervise(
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
    /// Checks that the feature was in use, and adds the result to the outcome. For monitors it stops
    /// the processes, for a supervisor it kills them. The workload has started `started` processes
    /// in all, none of which has exited, and they have handled at least `handled` messages.
    async fn check<P: Process>(self, started: u64, handled: u64, outcome: &mut Outcome)
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

#[process]
impl MonitoringProcess {
    #[message]
    fn monitor_all(&mut self, pids: Vec<Pid>, cx: &mut Context<Self>) {
        for pid in pids {
            cx.monitor(pid);
        }
    }

    #[hook]
    async fn down(&mut self, _: Down, _: &mut Context<Self>) {
        DOWNS.add(1);
    }
}
