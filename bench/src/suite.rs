//! The suite: the measurements that `bench run all` makes, in the groups of the report, as `suite.toml` has them.
//!
//! `--quick` makes a smaller selection with small counts: it shows that everything works, and its figures are rough.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::harness::RUNS;
use crate::row::Row;
use crate::runtimes;
use crate::settings::Settings;
use crate::table::number;
use crate::workloads::{self, Workload};

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    /// Rows that variants leave out.
    aside: &'static str,
    /// The parameter that the measurements of a series differ in, by the name of the series. The report draws them as
    /// lines over that number.
    pub(crate) series: BTreeMap<&'static str, &'static str>,
    pub(crate) headline: Vec<Entry>,
    pub(crate) derived: Vec<Derived>,
    pub(crate) group: Vec<Group>,
}

/// A line of a table: a metric, and the work that it is of.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The work, with the names of parameters in place of their values.
    text: String,
    pub(crate) measurement: String,
    pub(crate) metric: String,
    /// Further metrics, which follow the first.
    #[serde(default)]
    pub(crate) tails: Vec<String>,
}

impl Entry {
    /// The work of a row.
    pub(crate) fn text(&self, row: &Row) -> String {
        let params = row.params.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        params.fold(self.text.clone(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), number(value).trim_end_matches(".0"))
        })
    }
}

/// A figure of dividends divided by the medians of a series.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Derived {
    pub(crate) name: &'static str,
    pub(crate) series: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) title: &'static str,
    pub(crate) from: Option<f64>,
    pub(crate) beside: Option<&'static str>,
}

impl Derived {
    /// Whether the figure is the time of one of a rate, and a ratio of times otherwise.
    pub(crate) fn is_time(&self) -> bool {
        self.from.is_none() && self.beside.is_none()
    }
}

/// The measurements that repeat the claim of a source, or belong together.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) published: Vec<Published>,
    pub(crate) measurement: Vec<Measurement>,
}

/// A figure that a source has published for its own machine and program, and the metric of ours closest to it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) measurement: &'static str,
    pub(crate) metric: &'static str,
}

/// A workload with its settings, by a name of its own.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    workload: Option<&'static str>,
    #[serde(default)]
    series: &'static str,
    count: Option<u64>,
    workers: Option<usize>,
    #[serde(default)]
    cores: usize,
    #[serde(default)]
    set: Set,
    quick: Option<u64>,
    #[serde(default)]
    set_quick: Set,
    #[serde(default = "runs")]
    runs: u64,
    #[serde(default = "warms_up")]
    pub(crate) warms_up: bool,
    #[serde(default)]
    variant: bool,
    rows: Option<&'static str>,
}

type Set = BTreeMap<&'static str, toml::Value>;

fn runs() -> u64 {
    RUNS
}

fn warms_up() -> bool {
    true
}

static SUITE: LazyLock<Suite> =
    LazyLock::new(|| runtimes::parse("suite.toml", include_str!("../suite.toml")));

pub(crate) fn suite() -> &'static Suite {
    &SUITE
}

/// All measurements, in the order in which they are made and shown.
pub(crate) fn measurements() -> impl Iterator<Item = &'static Measurement> + Clone {
    grouped().map(|(_, measurement)| measurement)
}

/// The same, each with its group.
pub(crate) fn grouped() -> impl Iterator<Item = (&'static Group, &'static Measurement)> + Clone {
    SUITE.group.iter().flat_map(|group| group.measurement.iter().map(move |one| (group, one)))
}

impl Measurement {
    pub(crate) fn workload(&self) -> &'static Workload {
        let name = self.workload.unwrap_or(self.name);
        workloads::find(name).unwrap_or_else(|| panic!("suite.toml: {name} is no workload"))
    }

    /// Whether the measurement has the same work as another, with one worker or another allocator.
    pub(crate) fn varies(&self, other: &str) -> bool {
        let rest = self.name.strip_prefix(other);
        self.name == other || self.variant && matches!(rest, Some("-1" | "-mimalloc"))
    }

    pub(crate) fn series(&self) -> impl Iterator<Item = &'static str> {
        self.series.split(' ').filter(|series| !series.is_empty())
    }

    pub(crate) fn runs(&self, quick: bool) -> u64 {
        if quick { 1 } else { self.runs }
    }

    /// Whether the measurement is made of a runtime, unless runtimes are named.
    pub(crate) fn is_of(&self, runtime: &str) -> bool {
        let is_in = |rows: &str| rows.split_whitespace().any(|row| row == runtime);
        self.rows.map_or(!self.variant || !is_in(SUITE.aside), is_in)
    }

    /// The settings; `None` if the measurement is left out.
    pub(crate) fn settings(&self, quick: bool, cores: usize) -> Option<Settings> {
        if cores < self.cores {
            return None;
        }
        let workload = self.workload();
        let count = if quick { self.quick? } else { self.count.unwrap_or(workload.count) };
        let mut settings = Settings::new(workload, count, self.workers.unwrap_or(cores));
        let set_quick = self.set_quick.iter().filter(|_| quick);
        for (name, value) in self.set.iter().chain(set_quick) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let value = workload.key(name).and_then(|key| key.kind.parse(&value));
            let value = value.unwrap_or_else(|| panic!("{}: {name} is no setting", self.name));
            settings.set(name, value);
        }
        Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_a_name_of_its_own_and_settings_of_its_workload() {
        for (index, measurement) in measurements().enumerate() {
            assert!(measurements().take(index).all(|other| other.name != measurement.name));
            let full = measurement.settings(false, 64).expect("all of the suite is measured");
            let quick = measurement.settings(true, 64);
            assert!(quick.is_none_or(|settings| (1..=full.count).contains(&settings.count)));
            assert!(measurement.quick.is_some() || measurement.set_quick.is_empty());
            let peer = |row: &str| runtimes::peer(measurement.workload().name, row);
            assert!(
                measurement
                    .rows
                    .iter()
                    .flat_map(|rows| rows.split(' '))
                    .all(|row| peer(row).is_some())
            );
            let mut quick = measurements().filter(|other| other.quick.is_some());
            assert!(quick.any(|other| other.workload().name == measurement.workload().name));
        }
    }

    #[test]
    fn a_variant_leaves_out_runtimes_that_other_measurements_have() {
        let of =
            |name| measurements().find(|measurement| measurement.name == name).expect("is there");
        assert!(of("send").is_of("kameo") && !of("send-1").is_of("kameo"));
        assert!(of("send-1").is_of("erlang-tuned"));
        for runtime in SUITE.aside.split_whitespace() {
            let has = |measurement: &Measurement| {
                !measurement.variant
                    && runtimes::peer(measurement.workload().name, runtime).is_some()
            };
            assert!(measurements().any(has), "{runtime}");
        }
    }

    #[test]
    fn the_parts_of_a_series_differ_in_its_number() {
        for (series, over) in &SUITE.series {
            let parts = measurements().filter(|other| other.series().any(|name| name == *series));
            let number = |part: &Measurement, quick, cores| {
                let settings = part.settings(quick, cores)?;
                Some(if *over == "workers" { settings.workers as u64 } else { settings.get(over) })
            };
            // A quick run has no measurement with one worker.
            let has_quick = parts.clone().filter(|part| part.quick.is_some()).count() > 1;
            for (quick, cores) in [(false, 2), (false, 64), (true, 2)] {
                let numbers = parts.clone().filter_map(|part| number(part, quick, cores));
                let numbers: Vec<_> = numbers.collect();
                assert!(numbers.len() > 1 || quick && !has_quick, "{numbers:?}");
                assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            }
            assert!(measurements().all(|other| other.name != *series));
        }
        let mut named = measurements().flat_map(Measurement::series);
        assert!(named.all(|series| SUITE.series.contains_key(series)));
    }

    #[test]
    fn every_derived_figure_divides_by_times_or_is_the_time_of_a_rate() {
        for of in &SUITE.derived {
            let mut parts = measurements().filter(|part| part.series().any(|on| on == of.series));
            let workload = parts.next().expect("the series has measurements").workload();
            let metric = workload.metrics().find(|metric| metric.name == of.metric);
            assert_eq!(metric.map(|metric| metric.is_rate()), Some(of.is_time()), "{}", of.name);
            assert!(of.from.is_none() || of.beside.is_none(), "{}", of.name);
            assert!(of.beside.is_none_or(|row| runtimes::peer(workload.name, row).is_some()));
        }
    }

    #[test]
    fn every_published_figure_names_a_metric_of_the_suite() {
        for published in SUITE.group.iter().flat_map(|group| &group.published) {
            let measurement = measurements().find(|known| known.name == published.measurement);
            let metric = measurement.and_then(|known| {
                known.workload().metrics().find(|metric| metric.name == published.metric)
            });
            let metric = metric.unwrap_or_else(|| panic!("{} has no row", published.what));
            assert_eq!(metric.unit(), published.unit, "{}", published.what);
        }
    }
}
