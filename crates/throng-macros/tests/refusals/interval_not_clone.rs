//! Messages without `Clone` cannot be sent by an interval.

use std::time::Duration;
use throng::prelude::*;

struct Tick;
impl Message for Tick {
    type Reply = ();
}

struct Clock;
impl Handle<Tick> for Clock {
    async fn handle(&mut self, _: Tick, _: &mut Context<Self>) {}
}

#[process]
impl Clock {
    #[message]
    fn strike(&mut self, times: u8) {}

    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        cx.send_every(Duration::from_secs(1), Tick);
        cx.send_every(Duration::from_secs(3600), Strike { times: 1 });
    }
}

fn beat(runtime: &RuntimeHandle, clock: Address<Clock>) {
    runtime.send_every(clock, Duration::from_secs(1), Tick);
}

fn main() {}
