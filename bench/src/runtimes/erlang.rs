//! Erlang/OTP, in the release that `escript` starts; a process is an Erlang process. The variant
//! `erlang-tuned` runs the emulator as operators of busy nodes often do: a scheduler without work sleeps
//! at once, and a receiver keeps its queue of messages off its heap.

use crate::peer::{Peer, Program};
use crate::settings::Settings;

/// Creates the Erlang peer of a workload, given the number of processes that the workload starts, at
/// most. The script implements every workload that lists the peer.
pub(crate) const fn peer(processes: fn(&Settings) -> u64) -> Peer {
    with("erlang", processes, |limit, workers| vec![("ERL_FLAGS", flags(limit, workers))])
}

/// Creates the tuned Erlang peer of a workload.
pub(crate) const fn tuned_peer(processes: fn(&Settings) -> u64) -> Peer {
    with("erlang-tuned", processes, |limit, workers| {
        let flags = flags(limit, workers) + " +sbwt none +sbwtdcpu none +sbwtdio none";
        // The script reads the second variable, and starts receivers accordingly.
        vec![("ERL_FLAGS", flags), ("MESSAGE_QUEUE_DATA", "off_heap".to_owned())]
    })
}

/// The sum of a workload's settings: no workload starts more processes, unless it says so.
pub(crate) fn sum_of_settings(settings: &Settings) -> u64 {
    settings.numbers().fold(settings.count, u64::saturating_add)
}

const fn with(
    runtime: &'static str,
    processes: fn(&Settings) -> u64,
    environment: fn(u64, usize) -> Vec<(&'static str, String)>,
) -> Peer {
    let script = "erlang.escript";
    let program = Program::Script { interpreter: "escript", script, processes, environment };
    Peer { runtime, program, words: &[] }
}

/// The emulator's flags: a process limit that is just above the number of processes, since the
/// process table counts as the emulator's memory; and as many schedulers as workers.
fn flags(processes: u64, workers: usize) -> String {
    let limit = processes.saturating_add(1024).min(MAX_PROCESSES);
    format!("+P {limit} +S {workers}:{workers}")
}

/// The largest process limit that the emulator accepts.
const MAX_PROCESSES: u64 = 134_217_727;
