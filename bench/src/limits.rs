//! Limits of rows: the greatest sizes with which a row is measured. Beyond them a run takes more than a minute
//! or so, or the system cannot hold it, and the row is unsupported.

use std::fmt;

use serde::Deserialize;

use crate::memory;
use crate::settings::Settings;

/// The greatest size with which a row is measured, as `runtimes.toml` has it.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) workloads: &'static str,
    pub(crate) setting: &'static str,
    most: u64,
    because: Reason,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Reason {
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
#[error("this row is measured with {} {} at most, and not with {value}: {}", limit.setting, limit.most, limit.because)]
pub(crate) struct Beyond {
    limit: Limit,
    value: u64,
}

pub(crate) fn check(limits: &[Limit], settings: &Settings) -> Result<(), Beyond> {
    let is_own =
        |limit: &&Limit| limit.workloads.split(' ').any(|name| name == settings.workload.name);
    for mut limit in limits.iter().filter(is_own).copied() {
        if limit.because == Reason::Memory {
            // Without knowledge of the memory a run is tried.
            limit.most = memory::available_bytes().map_or(u64::MAX, |bytes| bytes / limit.most);
        }
        let value = settings.get(limit.setting);
        if value > limit.most {
            return Err(Beyond { limit, value });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Value;
    use crate::workloads;

    #[test]
    fn a_setting_beyond_a_limit_is_named() {
        let workload = workloads::find("fairness").expect("the workload exists");
        let [workloads, setting] = ["fairness", "flooders"];
        let limits = [Limit { workloads, setting, most: 1000, because: Reason::Time }];
        let mut settings = Settings::new(workload, 5, 1);
        let beyond = check(&limits, &settings).expect_err("the default is beyond");
        let sentence = "this row is measured with flooders 1000 at most, and not with 10000: a larger \
                        run takes a minute or more";
        assert_eq!(beyond.to_string(), sentence);
        settings.set("flooders", Value::Number(1000));
        check(&limits, &settings).expect("this is the limit itself");
    }

    #[test]
    fn a_run_that_needs_more_memory_than_there_is_is_beyond_the_limit() {
        let workload = workloads::find("processes").expect("the workload exists");
        let settings = Settings::new(workload, 1000, 1);
        let [workloads, setting] = ["processes", "count"];
        let of =
            |most| check(&[Limit { workloads, setting, most, because: Reason::Memory }], &settings);
        assert!(of(1).is_ok());
        if memory::available_bytes().is_ok() {
            let beyond = of(1 << 50).expect_err("no machine has an exabyte");
            assert!(beyond.to_string().ends_with("more memory than there is"), "{beyond}");
        }
    }
}
