//! Figures that the sources have published, for their own machines and programs.

use crate::suite::Group;

/// A published figure, and the metric of ours that is the closest to it.
pub(super) struct Published {
    pub(super) group: Group,
    /// The program and machine that it was measured with.
    pub(super) what: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) measurement: &'static str,
    pub(super) metric: &'static str,
}

/// All of them. `facts` about each are in the sources; machines differ, so only the order of magnitude
/// can be compared.
pub(super) const ALL: &[Published] = &[
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: processor time per process, 200k processes",
        value: 1_960.0,
        unit: "ns",
        measurement: "processes-200k",
        metric: "cpu_ns",
    },
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: wall time per process, 200k processes",
        value: 2_405.0,
        unit: "ns",
        measurement: "processes-200k",
        metric: "wall_ns",
    },
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: processor time per process, 1M processes",
        value: 2_253.0,
        unit: "ns",
        measurement: "processes-1m",
        metric: "cpu_ns",
    },
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: wall time per process, 1M processes",
        value: 2_951.0,
        unit: "ns",
        measurement: "processes-1m",
        metric: "wall_ns",
    },
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: processor time per process, 5M processes",
        value: 2_518.2,
        unit: "ns",
        measurement: "processes-5m",
        metric: "cpu_ns",
    },
    Published {
        group: Group::Processes,
        what: "Erlang/OTP 26 on a Ryzen 4600G: wall time per process, 5M processes",
        value: 3_478.4,
        unit: "ns",
        measurement: "processes-5m",
        metric: "wall_ns",
    },
    Published {
        group: Group::Messages,
        what: "Elixir on a MacBook Air of 2015: a local call, loops of 500 ms",
        value: 57.7,
        unit: "ns",
        measurement: "send-cost",
        metric: "local_ns",
    },
    Published {
        group: Group::Messages,
        what: "Elixir on a MacBook Air of 2015: a local call, loops of 3 s",
        value: 55.1,
        unit: "ns",
        measurement: "send-cost-3s",
        metric: "local_ns",
    },
    Published {
        group: Group::Messages,
        what: "Elixir on a MacBook Air of 2015: a send to another process, the sender's time, loops of 500 ms",
        value: 392.5,
        unit: "ns",
        measurement: "send-cost",
        metric: "send_ns",
    },
    Published {
        group: Group::Messages,
        what: "Elixir on a MacBook Air of 2015: a send to another process, the sender's time, loops of 3 s",
        value: 454.0,
        unit: "ns",
        measurement: "send-cost-3s",
        metric: "send_ns",
    },
    Published {
        group: Group::Store,
        what: "elmdb's own run: puts per second of 16 writers, by its own formula",
        value: 52_123.0,
        unit: "1/s",
        measurement: "store-mega",
        metric: "original_puts_per_s",
    },
    Published {
        group: Group::Store,
        what: "elmdb's own run: gets that found an entry per second of 20 readers, by its own formula",
        value: 17_706.0,
        unit: "1/s",
        measurement: "store-mega",
        metric: "original_gets_per_s",
    },
    Published {
        group: Group::Shapes,
        what: "skynet with Go on an i7-4771",
        value: 0.212,
        unit: "s",
        measurement: "skynet",
        metric: "wall_s",
    },
    Published {
        group: Group::Shapes,
        what: "skynet with Erlang on an i7-4771",
        value: 0.9,
        unit: "s",
        measurement: "skynet",
        metric: "wall_s",
    },
];
