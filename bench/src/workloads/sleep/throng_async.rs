//! `sleep` with throng's async processes: each is a function that receives with a time-out.

use std::io;

use throng::{Address, AsyncProcess, Inbox, Message, RuntimeHandle};

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, settings.count, |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

pub(super) struct Wake;

impl Message for Wake {
    type Reply = ();
}

impl Throng {
    fn start(&self, state: State) -> Address<AsyncProcess<Wake>> {
        let begin = async move |mut inbox: Inbox<Wake>| {
            if inbox.recv_timeout(receive_timeout()).await.is_none() {
                state.time_out();
            }
        };
        match self.runtime.spawn_async(begin) {
            Ok(address) => address,
            Err(error) => panic!("the process limit leaves room for every process: {error}"),
        }
    }
}

impl SleepSteps for Throng {
    type Kept = Vec<Address<AsyncProcess<Wake>>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(|state| Throng::start(&self, state)).collect()
    }
}
