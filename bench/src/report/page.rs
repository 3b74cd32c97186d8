//! The page: its sections, tables and style.

use std::ptr;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::name;
use super::{
    FIGURE_STYLE, Measured, Standing, best, figures, figures_over, in_series, metrics, of_group,
    standings,
};
use crate::compare::{self, Repeated};
use crate::row::{RUNS, Row, SUBJECT, find};
use crate::suite::{Entry, Group, Published, suite};
use crate::table::{human, number, ratio};
use crate::workloads::{self, Metric};

/// The runtimes beside which the headline puts throng.
const RIVALS: [&str; 8] = ["tokio", "actix", "kameo", "ractor", "tellus", "go", "erlang", "java"];

/// Number of losses that the page shows at once.
const WORST: usize = 15;

const STYLE: &str = include_str!("report.css");

pub(super) fn page(rows: &[Row], again: &[Row], measured: &[Measured<'_>]) -> Markup {
    let page = Page { rows, again };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "throng beside other runtimes" }
                style { (PreEscaped(FIGURE_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "throng beside other runtimes" }
                    (origin(rows))
                    (headline(rows))
                    (lost(rows))
                    (contents(measured))
                    (page.repeated())
                    @for group in &suite().group {
                        section id=(group.name) {
                            h2 { (group.title) }
                            p { (group.text) }
                            (published_table(group, rows))
                            @for (series, rows) in in_series(measured, |of| of.group.name == group.name) {
                                (lines_over(series, &rows))
                            }
                            @for of in of_group(measured, group) { (page.measurement(of)) }
                        }
                    }
                }
            }
        }
    }
}

fn origin(rows: &[Row]) -> Markup {
    let distinct = |of: &dyn Fn(&Row) -> Option<String>| {
        let mut all: Vec<String> = rows.iter().filter_map(of).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    };
    let unverified = rows.iter().filter(|row| !row.verified).count();
    html! {
        dl {
            dt { "Machine" } dd { (distinct(&|row| Some(row.machine.clone()))) }
            dt { "Commit" } dd { (distinct(&|row| row.commit.clone())) }
            dt { "Rows" } dd { (rows.len()) ", of which " (unverified) " failed a check and are not drawn" }
        }
        p {
            "Each run is a process of its own that checks its answers. Runs of all runtimes alternate. A full dot is "
            "the median, the thin line through it reaches from the lowest run to the highest, and rings are "
            "percentiles. A row with ◇ has other settings than its runtime's defaults. Different classes of processes "
            "give different things, and stand apart. Times of different machines or hours can not be compared; ratios "
            "within a measurement can."
        }
        details {
            summary { "Versions" }
            p { (distinct(&|row| Some(format!("{} {}", row.runtime, row.version.as_deref()?)))) }
        }
        @let moved = rows.iter().filter(|row| row.cores_moved()).count();
        @if moved > 0 {
            p {
                "The cores of a virtual machine may share a cache at one time and not at another, which changes the "
                "times of work that two workers share. In " (moved) " of the rows the time from core to core differs "
                "between the runs by more than a factor of two; their tables say \"cores moved\"."
            }
        }
    }
}

/// A table with the ratio of each rival's best row to throng, and that of its default.
fn headline(rows: &[Row]) -> Markup {
    let cell = |of: &Entry, family: &str, ours: f64| {
        let row = best(rows, &of.measurement, &of.metric, family)?;
        let default = find(rows, &of.measurement, family).filter(|default| !ptr::eq(*default, row));
        let ratio = |row: &Row| Some(row.median(&of.metric)? / ours);
        let variant = row.runtime.strip_prefix(family)?.strip_prefix(['-', '+']);
        let setting = row.measurement.as_ref()?.strip_prefix(&of.measurement)?.strip_prefix('-');
        let setting = setting.map(|setting| if setting == "1" { "1 worker" } else { setting });
        Some(html! { td.number {
            strong.failed[ratio(row)? < 1.0] { (number(ratio(row)?)) }
            @for note in variant.into_iter().chain(setting) { br; small { (note) } }
            @if let Some(ratio) = default.and_then(ratio) { br; small { "default " (number(ratio)) } }
        } })
    };
    let known = suite().headline.iter().filter_map(|of| {
        let row = find(rows, &of.measurement, SUBJECT)?;
        Some((of, row, row.median(&of.metric)?))
    });
    html! {
        section id="headline" {
            h2 { "The main ratios" }
            p {
                "How many times as much as throng a rival takes, by the best of its rows, also with one worker or "
                "mimalloc; the row of its defaults stands below. Below 1 throng is behind."
            }
            table {
                thead { tr { th {} th.number { (SUBJECT) } @for family in RIVALS { th.number { (family) } } } }
                tbody { @for (of, row, ours) in known { tr {
                    td { a href={ "#" (of.measurement) } { (of.text(row)) } br; small { (of.metric) } }
                    td.number { (human(ours, workloads::unit(&of.metric))) }
                    @for family in RIVALS {
                        @if let Some(cell) = cell(of, family, ours) { (cell) } @else { td.number { "–" } }
                    }
                } } }
            }
        }
    }
}

fn contents(measured: &[Measured<'_>]) -> Markup {
    html! {
        nav {
            @for group in &suite().group {
                a href={ "#" (group.name) } { (group.title) }
                small { (of_group(measured, group).count()) " measurements" }
            }
        }
    }
}

fn lost(rows: &[Row]) -> Markup {
    let all = standings(rows, "");
    let losses: Vec<&Standing<'_>> = all.iter().filter(|standing| standing.is_lost()).collect();
    let (worst, others) = losses.split_at(losses.len().min(WORST));
    html! {
        section id="losses" {
            h2 { "Where throng is not first" }
            @if losses.is_empty() { p { "Nowhere in these rows." } } @else {
                p { "In " (losses.len()) " of " (all.len()) " metrics that throng shares with another row." }
                (losses_table(worst))
                @if !others.is_empty() {
                    details { summary { "The other " (others.len()) } (losses_table(others)) }
                }
            }
        }
    }
}

fn losses_table(losses: &[&Standing<'_>]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "measurement" } th { "metric" } th { "first" }
                th { "its median" } th { "throng's" } th { "times" } th {}
            } }
            tbody { @for loss in losses { tr {
                td { a href={ "#" (loss.measurement) } { (loss.measurement) } }
                td { (loss.metric.name) } td { (name(loss.rival)) }
                td.number { (human(loss.best, loss.metric.unit())) }
                td.number { (human(loss.throng, loss.metric.unit())) }
                td.number { @if loss.factor.is_finite() { (format!("{:.2}", loss.factor)) } @else { "∞" } }
                td { @if loss.overlaps { "the runs overlap" } }
            } } }
        }
    }
}

fn published_table(group: &Group, rows: &[Row]) -> Markup {
    let measured = |published: &Published| {
        find(rows, published.measurement, SUBJECT)?.median(published.metric)
    };
    html! {
        @if !group.published.is_empty() {
            table {
                thead { tr { th { "published there" } th {} th { "throng here" } th { "metric" } } }
                tbody { @for published in &group.published { tr {
                    td { (published.what) }
                    td.number { (human(published.value, published.unit)) }
                    td.number { (measured(published).map_or("–".to_owned(), |value| human(value, published.unit))) }
                    td { (published.measurement) ": " (published.metric) }
                } } }
            }
        }
    }
}

fn lines_over(series: &str, rows: &[&Row]) -> Markup {
    let figures = figures_over(series, rows);
    html! {
        @if !figures.is_empty() {
            article id=(series) {
                h3 { (series) }
                @for figure in figures { figure { (PreEscaped(figure.svg)) } }
            }
        }
    }
}

/// The parameters that all runtimes have in common.
fn params(row: &Row) -> String {
    let own = |name: &&String| !["workers", RUNS, "allocator"].contains(&name.as_str());
    let all = row.params.iter().filter(|(name, _)| own(name));
    all.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

/// The mean of the rounds that are not dropped, their deviation, and the interval that contains the mean of all possible
/// rounds with a probability of 95 %.
fn rounds(rows: &[&Row]) -> Markup {
    let of = |row: &Row| {
        let [mean, deviation] =
            ["round_mean_ns", "round_deviation_ns"].map(|name| row.median(name));
        let [rounds, dropped] = ["rounds", "dropped"].map(|name| row.params.get(name)?.as_f64());
        let rounds = rounds? - dropped?;
        let half = student(rounds - 1.0) * deviation? / rounds.sqrt();
        Some((name(row), rounds, [mean?, deviation?, mean? - half, mean? + half]))
    };
    let rows: Vec<_> = rows.iter().filter_map(|row| of(row)).collect();
    html! { @if !rows.is_empty() {
        table {
            thead { tr {
                th { "runtime" } th { "rounds" } th { "mean" } th { "deviation" } th { "95 % interval of the mean" }
            } }
            tbody { @for (name, rounds, times) in rows {
                @let [mean, deviation, low, high] = times.map(|time| human(time, "ns"));
                tr {
                    td { (name) } td.number { (rounds) } td.number { (mean) } td.number { (deviation) }
                    td.number { (low) "–" (high) }
                }
            } }
        }
    } }
}

/// The 97.5 % quantile of Student's t distribution, by the first terms of its expansion around that of the normal
/// distribution: less than 1 % too small from five degrees of freedom on.
fn student(degrees: f64) -> f64 {
    let z: f64 = 1.959_964;
    let [first, second] = [z.powi(3) + z, 5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z];
    z + first / (4.0 * degrees) + second / (96.0 * degrees.powi(2))
}

fn usage(row: &Row) -> Markup {
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), number);
    html! { tr {
        td { (name(row)) } td { (row.version.as_deref().unwrap_or("–")) }
        td { (row.class) }
        td.number { (row.params.get("workers").map(ToString::to_string).unwrap_or_default()) }
        td.number { (row.runs.len()) } td.number { (shown(row.cores_used)) }
        td.number { (row.max_rss_bytes.map_or("–".to_owned(), |bytes| human(bytes, "bytes"))) }
        td.number { (shown(row.instructions_per_op)) }
        td.number { @if let Some((least, greatest)) = row.core_distances() {
            (number(least)) "–" (number(greatest))
        } }
    } }
}

/// The rows of the page, and those of another run, which may be none.
struct Page<'a> {
    rows: &'a [Row],
    again: &'a [Row],
}

impl Page<'_> {
    fn measurement(&self, of: &Measured<'_>) -> Markup {
        let workload = of.measurement.workload();
        let any = of.verified.first().or(of.unverified.first());
        html! {
            article id=(of.measurement.name) {
                h3 { (of.measurement.name) }
                p { (workload.about) "." }
                @if let Some(row) = any { p.params { (params(row)) } }
                @for figure in figures(of) { figure { (PreEscaped(figure.svg)) } }
                (rounds(&of.verified))
                details {
                    summary { "All figures" }
                    table {
                        thead { tr {
                            th { "metric" } th { "runtime" } th { "median" } th { "interval" } th { "÷ throng" } th {}
                        } }
                        tbody { @for metric in workload.metrics() {
                            @for row in &of.verified { (self.figures_of(metric, row, &of.verified)) }
                        } }
                    }
                    table {
                        thead { tr {
                            th { "runtime" } th { "version" } th { "class" } th { "threads" } th { "runs" } th { "cores used" }
                            th { "peak memory" } th { "instructions per operation" } th { "core to core, ns" }
                        } }
                        tbody { @for row in &of.verified { (usage(row)) } }
                    }
                }
                @for row in &of.unverified {
                    p.failed {
                        (row.runtime) ": a check failed, so the row is not shown. " (row.failures.join("; "))
                    }
                }
            }
        }
    }

    fn figures_of(&self, metric: Metric, row: &Row, rows: &[&Row]) -> Markup {
        let subject = rows.iter().find(|row| row.runtime == SUBJECT);
        let subject = subject.and_then(|row| row.median(metric.name));
        html! {
            @if let Some(median) = row.median(metric.name) { tr {
                td { (metric.name) } td { (name(row)) } td.number { (human(median, metric.unit())) }
                @if let Some(interval) = row.interval(metric.name) {
                    td.number title=(format!("contains the median with probability {:.3}", interval.confidence)) {
                        (human(interval.low, metric.unit())) " – " (human(interval.high, metric.unit()))
                    }
                } @else { td.number { "–" } }
                td.number { (ratio(median, subject)) }
                td {
                    @if let Some(again) = self.again(row, metric) { "noisy: " (format!("{:.2}", again.is)) " " }
                    @if row.cores_moved() { "cores moved" }
                }
            } }
        }
    }

    /// The ratio of a metric to throng's in both runs, if it differs.
    fn again(&self, row: &Row, metric: Metric) -> Option<Repeated> {
        let repeated = compare::repeated(self.rows, row, self.again, metric.name);
        repeated.filter(|repeated| repeated.differs)
    }

    fn repeated(&self) -> Markup {
        let of = |row| {
            let repeated =
                |metric: Metric| compare::repeated(self.rows, row, self.again, metric.name);
            metrics(&[row]).into_iter().filter_map(repeated).collect::<Vec<_>>()
        };
        let all: Vec<Repeated> = self.rows.iter().flat_map(of).collect();
        let noisy = all.iter().filter(|repeated| repeated.differs).count();
        html! { @if !self.again.is_empty() {
            p id="again" {
                "The suite was run twice. " (noisy) " of " (all.len()) " ratios to throng differ by more than 15 %; the "
                "tables mark them as noisy, with the ratio of the other run, and " code { "bench compare" } " lists them."
            }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::student;

    #[test]
    fn the_quantiles_of_students_distribution_are_those_of_its_tables() {
        for (degrees, quantile) in [(5.0, 2.571), (9.0, 2.262), (24.0, 2.064), (1000.0, 1.962)] {
            assert!((student(degrees) / quantile - 1.0).abs() < 0.01, "{degrees}");
        }
    }
}
