//! Erlang/OTP, in the release that `escript` starts; a process is an Erlang process.

use crate::peer::{Peer, Program};
use crate::settings::Settings;

/// The Erlang peer; its script implements every workload that lists the peer.
pub(crate) const PEER: Peer = Peer {
    runtime: "erlang",
    program: Program::Script { interpreter: "escript", script: "erlang.escript", environment },
    words: &[],
};

/// The emulator's flags: a process limit that is just above the number of processes that any
/// workload could start with these settings, since the process table counts as the emulator's
/// memory; and as many schedulers as workers.
fn environment(settings: &Settings) -> Vec<(&'static str, String)> {
    let asked = settings.numbers().fold(settings.count, u64::saturating_add);
    let limit = asked.saturating_add(1024).min(MAX_PROCESSES);
    let workers = settings.workers;
    vec![("ERL_FLAGS", format!("+P {limit} +S {workers}:{workers}"))]
}

/// The largest process limit that the emulator accepts.
const MAX_PROCESSES: u64 = 134_217_727;
