//! A fleet of devices: a supervised process for each, which reports on a timer; a device that
//! crashes is started again, under the same name and in the same group.
//!
//! ```text
//!  supervisor (one for one)
//!    ├─ station ◄──booted, reading── every device
//!    └─ fleet (dynamic supervisor)
//!         ├─ device-0     each: a name for lookup, a place in the group "devices",
//!         ├─ device-1           a timer that makes it report every 10 ms
//!         └─ …
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin device_fleet`. Output: the fleet before and after the
//! crash of a device, whose panic is reported on standard error.

use std::collections::HashMap;
use std::time::Duration;
use throng::prelude::*;

const DEVICES: u32 = 1_000;
const PERIOD: Duration = Duration::from_millis(10);

/// A process for a device.
struct Device {
    id: u32,
    station: Child<Station>,
    readings: u64,
}

#[process]
impl Device {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        cx.runtime().group("devices").join(cx.address());
        cx.send_every(PERIOD, Tick {});
        // A station that is being started again misses it; the readings go on.
        let _ = self.station.booted(self.id);
    }

    /// Takes a reading and reports it.
    #[message(send, derive(Clone))]
    fn tick(&mut self) {
        self.readings += 1;
        let _ = self.station.reading(self.id, self.readings);
    }

    /// Panics, as a bug would.
    #[message]
    fn break_down(&mut self) {
        panic!("device {} has a fault", self.id);
    }
}

/// Log of a device at the station.
#[derive(Default)]
struct Log {
    boots: u32,
    /// Number of the latest reading since the latest boot.
    reading: u64,
}

/// The process that every device reports to.
#[derive(Default)]
struct Station {
    logs: HashMap<u32, Log>,
    /// Questions about boots: answered when the devices have booted this often and report.
    asked: Vec<(u32, ReplyTo<usize>)>,
}

#[process]
impl Station {
    #[message(send)]
    fn booted(&mut self, id: u32) {
        let log = self.logs.entry(id).or_default();
        *log = Log { boots: log.boots + 1, reading: 0 };
    }

    #[message(send)]
    fn reading(&mut self, id: u32, reading: u64) {
        self.logs.entry(id).or_default().reading = reading;
        self.answer();
    }

    /// Replies with the number of devices once there were `boots` boots and every device has
    /// reported since its latest.
    #[message]
    fn all_report(&mut self, boots: u32, reply: ReplyTo<usize>) {
        self.asked.push((boots, reply));
    }

    fn answer(&mut self) {
        if self.asked.is_empty() || self.logs.values().any(|log| log.reading == 0) {
            return;
        }
        let boots: u32 = self.logs.values().map(|log| log.boots).sum();
        for (_, reply) in self.asked.extract_if(.., |(wanted, _)| *wanted <= boots) {
            // A caller that has given up needs no answer.
            let _ = reply.send(self.logs.len());
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let station = ChildSpec::new(Station::default);
        let reports: Child<Station> = station.handle();
        let fleet = Supervisor::dynamic().intensity(10, Duration::from_secs(1));
        let top = Supervisor::one_for_one()
            .child("station", station)
            .child("fleet", fleet)
            .start_async(runtime)
            .await?;

        let fleet = top.child::<Supervisor>("fleet").await?;
        let fleet = fleet.address().ok_or("the fleet's supervisor does not run")?;
        for id in 0..DEVICES {
            let station = reports.clone();
            let device = move || Device { id, station: station.clone(), readings: 0 };
            let device = ChildSpec::new(device).register(format!("device-{id}"));
            fleet.spawn_child(device).await?;
        }
        println!("{} devices report", reports.all_report(DEVICES).await?);

        let device = runtime.whereis::<Device>("device-7").ok_or("device-7 does not run")?;
        if let Err(error) = device.break_down().await {
            println!("device-7: {error}");
        }

        println!("{} devices report", reports.all_report(DEVICES + 1).await?);
        println!("{} devices supervised", fleet.count_children().await?);
        println!("{} devices in the group", runtime.group::<Address<Device>>("devices").len());
        let successor = runtime.whereis::<Device>("device-7");
        println!("device-7 is another process: {}", successor.is_some_and(|next| next != device));
        Ok(())
    })
}
