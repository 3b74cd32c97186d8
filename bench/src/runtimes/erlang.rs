//! Erlang/OTP, whichever release `escript` starts; a process is a process.

use crate::peer::{Peer, Program};
use crate::settings::Settings;

/// The Erlang peer; its script knows every workload that lists it.
pub(crate) const PEER: Peer = Peer {
    runtime: "erlang",
    program: Program::Script { interpreter: "escript", script: "erlang.escript", environment },
    words: &[],
};

/// Room for as many processes as any workload could start with these settings, and little more,
/// since the emulator's table of them counts as its memory; and as many schedulers as workers.
fn environment(settings: &Settings) -> Vec<(&'static str, String)> {
    let asked = settings.numbers().fold(settings.count, u64::saturating_add);
    let limit = asked.saturating_add(1024).min(MAX_PROCESSES);
    let workers = settings.workers;
    vec![("ERL_FLAGS", format!("+P {limit} +S {workers}:{workers}"))]
}

/// The largest process limit that the emulator takes.
const MAX_PROCESSES: u64 = 134_217_727;
