//! Limits of rows: the greatest sizes with which a row is measured. Beyond them a run takes more than a minute
//! or so, or the system cannot hold it, and the row is unsupported.

use std::fmt;

use crate::memory;
use crate::settings::Settings;
use crate::workloads::Workload;

/// The greatest size with which a row is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Names of the workloads that have the limit.
    workloads: &'static [&'static str],
    /// The limited setting: [`COUNT`] or a key that is a number.
    setting: &'static str,
    /// The setting's greatest value; with [`Reason::Memory`] the bytes that each unit takes.
    most: u64,
    reason: Reason,
}

/// The setting of `--count` in a [`Limit`].
pub(crate) const COUNT: &str = "count";

/// The reason of a [`Limit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Time,
    Threads,
    Memory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Time => "a larger run takes a minute or more",
            Reason::Threads => "an operating system holds some 32,000 threads by default",
            Reason::Memory => "a larger run takes more memory than there is",
        })
    }
}

/// A setting beyond a limit of a row.
#[derive(Debug, thiserror::Error)]
#[error("this row is measured with {} {} at most, and not with {value}: {}", limit.setting, limit.most, limit.reason)]
pub(crate) struct Beyond {
    limit: Limit,
    value: u64,
}

impl Limit {
    /// Creates a limit that keeps a run short.
    pub(crate) const fn of_time(
        workloads: &'static [&'static str],
        setting: &'static str,
        most: u64,
    ) -> Limit {
        Limit { workloads, setting, most, reason: Reason::Time }
    }

    /// Creates a limit that keeps a run within what the system can hold.
    pub(crate) const fn of_threads(
        workloads: &'static [&'static str],
        setting: &'static str,
        most: u64,
    ) -> Limit {
        Limit { workloads, setting, most, reason: Reason::Threads }
    }

    /// Creates a limit of `--count` that depends on the machine's memory, given the bytes that each unit
    /// takes.
    pub(crate) const fn of_memory(workloads: &'static [&'static str], bytes: u64) -> Limit {
        Limit { workloads, setting: COUNT, most: bytes, reason: Reason::Memory }
    }

    /// The limit on this machine.
    fn here(self) -> Limit {
        match self.reason {
            // Without knowledge of the memory a run is tried.
            Reason::Memory => {
                let most = memory::available_bytes().map_or(u64::MAX, |bytes| bytes / self.most);
                Limit { most, ..self }
            }
            Reason::Time | Reason::Threads => self,
        }
    }
}

/// Checks that the settings of a workload are within the limits of a row.
///
/// # Errors
/// If a setting is beyond its limit.
pub(crate) fn check(
    limits: &[Limit],
    workload: &Workload,
    settings: &Settings,
) -> Result<(), Beyond> {
    let own = limits.iter().filter(|limit| limit.workloads.contains(&workload.name));
    for limit in own.map(|limit| limit.here()) {
        let value = match limit.setting {
            COUNT => settings.count,
            key => settings.get(key),
        };
        if value > limit.most {
            return Err(Beyond { limit, value });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Key, Kind, Value};
    use crate::workloads;

    #[test]
    fn a_limit_is_of_a_workload_that_the_row_has_and_of_a_number_among_its_settings() {
        for peer in workloads::ALL.iter().flat_map(|workload| workload.all_peers()) {
            let of_all = peer
                .limits
                .iter()
                .flat_map(|limit| limit.workloads.iter().map(move |workload| (limit, *workload)));
            for (limit, name) in of_all {
                let context = format!("{}: {} of {name}", peer.runtime, limit.setting);
                let workload = workloads::find(name).expect(&context);
                assert!(workload.peer(peer.runtime).is_some(), "{context}");
                let is_number = |key: &Key| matches!(key.kind, Kind::Number(_) | Kind::Count(_));
                let is_setting = workload.key(limit.setting).is_some_and(is_number);
                assert!(is_setting || limit.setting == COUNT, "{context}");
            }
        }
    }

    #[test]
    fn a_setting_beyond_a_limit_is_named() {
        let workload = workloads::find("fairness").expect("the workload exists");
        let limits = [Limit::of_time(&["fairness"], "flooders", 1000)];
        let mut settings = Settings::new(5, 1, workload.keys);
        let beyond = check(&limits, workload, &settings).expect_err("the default is beyond");
        let sentence = "this row is measured with flooders 1000 at most, and not with 10000: a larger \
                        run takes a minute or more";
        assert_eq!(beyond.to_string(), sentence);
        settings.set("flooders", Value::Number(1000));
        check(&limits, workload, &settings).expect("this is the limit itself");
    }

    #[test]
    fn a_run_that_needs_more_memory_than_there_is_is_beyond_the_limit() {
        let workload = workloads::find("processes").expect("the workload exists");
        let settings = Settings::new(1000, 1, workload.keys);
        let of = |bytes| check(&[Limit::of_memory(&["processes"], bytes)], workload, &settings);
        assert!(of(1).is_ok());
        if memory::available_bytes().is_ok() {
            let beyond = of(1 << 50).expect_err("no machine has an exabyte");
            assert!(beyond.to_string().ends_with("more memory than there is"), "{beyond}");
        }
    }
}
