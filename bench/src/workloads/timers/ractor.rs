//! `timers` with ractor: `ActorRef::send_after`, whose handle is aborted.

use std::io;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};

use super::{Owner, Timers, fire, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, |settings| {
        let start = async || {
            let process = runtimes::ractor::start(TimerActor, Owner::new()).await;
            // A process that does not begin is missing in the checks.
            let _ = process.send_message(Request::Slice);
        };
        measure(start, settings)
    })
}

struct TimerActor;

enum Request {
    Slice,
    Fire(u64),
}

type Handle = JoinHandle<Result<(), MessagingErr<Request>>>;

impl Actor for TimerActor {
    type Msg = Request;
    type State = Owner<Handle>;
    type Arguments = Owner<Handle>;

    async fn pre_start(
        &self,
        _: ActorRef<Request>,
        owner: Owner<Handle>,
    ) -> Result<Owner<Handle>, ActorProcessingErr> {
        Ok(owner)
    }

    async fn handle(
        &self,
        mut myself: ActorRef<Request>,
        request: Request,
        owner: &mut Owner<Handle>,
    ) -> Result<(), ActorProcessingErr> {
        match request {
            Request::Fire(number) => fire(number),
            Request::Slice => {
                if owner.slice(&mut myself) {
                    let _ = myself.send_message(Request::Slice);
                }
            }
        }
        Ok(())
    }
}

impl Timers for ActorRef<Request> {
    type Timer = Handle;

    fn start(&mut self, delay: Duration, number: u64) -> Handle {
        self.send_after(delay, move || Request::Fire(number))
    }

    fn cancel(&mut self, timer: Handle) -> bool {
        timer.abort();
        true
    }
}
