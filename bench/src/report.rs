//! The report: a page of HTML, complete in itself, drawn from the rows of one run of the suite.
//!
//! ```text
//! results ─→ standings ──────────┐
//!    │                           ▼
//!    └─→ plot, lines (an SVG each, on axis) ─→ page (sections, tables) ─→ report.html
//! ```
//!
//! Invariants: a row whose checks failed is named and never plotted. Every figure of the page comes from a
//! row, except those that sources have published.

mod axis;
mod lines;
mod page;
mod plot;
mod standings;

use std::fs;
use std::io;
use std::path::Path;

pub(crate) use standings::{Standing, best, standings};

use crate::row::Row;
use crate::suite::{Group, Measurement, grouped, suite};
use crate::workloads::{self, Metric};

pub(crate) const PAGE: &str = "report.html";

/// The rows of a measurement, best first by the first metric.
struct Measured<'a> {
    group: &'static Group,
    measurement: &'static Measurement,
    verified: Vec<&'a Row>,
    unverified: Vec<&'a Row>,
}

/// The style of figures: their colours, in a light and a dark form.
const FIGURE_STYLE: &str = include_str!("report/figure.css");

/// Writes `report.html`, and each figure as an SVG of its own, into a directory. The page marks the ratios
/// that differ in the rows of another run, `again`, which is empty if there is none.
pub(crate) fn write(rows: &[Row], again: &[Row], directory: &Path) -> io::Result<()> {
    let measured = measured(rows);
    fs::write(directory.join(PAGE), page::page(rows, again, &measured).into_string())?;
    for Figure { name, svg } in all_figures(&measured) {
        fs::write(directory.join(format!("{name}.svg")), standing_alone(&svg))?;
    }
    Ok(())
}

/// Draws the figure of a name, as a file of its own; `None` if the rows have no such figure.
pub(crate) fn figure(rows: &[Row], name: &str) -> Option<String> {
    let measured = measured(rows);
    let found = all_figures(&measured).find(|figure| figure.name == name);
    found.map(|figure| standing_alone(&figure.svg))
}

/// The figures of all series, and then of all measurements, each drawn when it is asked for.
fn all_figures(measured: &[Measured<'_>]) -> impl Iterator<Item = Figure> {
    let of_series = in_series(measured, |_| true).into_iter();
    let of_series = of_series.flat_map(|(series, rows)| figures_over(series, &rows));
    of_series.chain(measured.iter().flat_map(figures))
}

/// A figure and its name, which no other figure of the page has.
struct Figure {
    name: String,
    svg: String,
}

/// The figures of a measurement: a metric with its percentiles each, then a distribution each.
fn figures(of: &Measured<'_>) -> Vec<Figure> {
    let name = of.measurement.name;
    let groups = plot::grouped(of.measurement.workload().metrics());
    let dots = groups.iter().filter_map(|metrics| {
        let svg = plot::dots(metrics, &of.verified)?;
        Some(Figure { name: format!("{name}-{}", metrics.first()?.name), svg })
    });
    let mut distributions: Vec<&String> =
        of.verified.iter().flat_map(|row| row.quantiles.keys()).collect();
    distributions.sort();
    distributions.dedup();
    let quantiles = distributions.into_iter().filter(|name| *name != plot::ROUND);
    let quantiles = quantiles.filter_map(|distribution| {
        let svg = lines::quantiles(distribution, &of.verified)?;
        Some(Figure { name: format!("{name}-{distribution}"), svg })
    });
    dots.chain(quantiles).collect()
}

/// The figures of a series; empty if it has a single measurement.
fn figures_over(series: &str, rows: &[&Row]) -> Vec<Figure> {
    let Some(over) = suite().series.get(series) else { return Vec::new() };
    let metrics = metrics(rows);
    let of = |metric: &Metric| {
        let svg = lines::series(*metric, over, rows)?;
        Some(Figure { name: format!("{series}-{}", metric.name), svg })
    };
    let mut figures: Vec<Figure> = metrics.iter().filter_map(of).collect();
    if !figures.is_empty() {
        let of_series = suite().derived.iter().filter(|derived| derived.series == series);
        figures.extend(of_series.filter_map(|derived| {
            let metric = metrics.iter().find(|metric| metric.name == derived.metric)?;
            let svg = lines::derived(derived, *metric, over, rows)?;
            Some(Figure { name: derived.name.to_owned(), svg })
        }));
        figures.extend(metrics.iter().filter_map(|metric| {
            let svg = plot::boxes(*metric, over, rows)?;
            Some(Figure { name: format!("{series}-{}", plot::ROUND), svg })
        }));
    }
    figures
}

/// A figure with the style that the page would give it, for use without the page.
fn standing_alone(svg: &str) -> String {
    let Some(end) = svg.find('>') else { return svg.to_owned() };
    let (tag, rest) = svg.split_at(end + 1);
    format!("{tag}\n<style>\n{FIGURE_STYLE}</style>{rest}")
}

/// Sorts the rows by measurement, in the order of the suite; leaves out measurements without rows.
fn measured(rows: &[Row]) -> Vec<Measured<'_>> {
    let of = |group: &'static Group, measurement: &'static Measurement| {
        let own = rows.iter().filter(|row| row.measurement.as_deref() == Some(measurement.name));
        let (mut verified, unverified): (Vec<_>, Vec<_>) = own.partition(|row| row.verified);
        let first = measurement.workload().metrics().next();
        if let Some(metric) = first {
            let median = |row: &Row| row.median(metric.name).unwrap_or(f64::NAN);
            verified.sort_by(|a, b| metric.order(median(a), median(b)));
        }
        Measured { group, measurement, verified, unverified }
    };
    let all = grouped().map(|(group, one)| of(group, one));
    all.filter(|of| !of.verified.is_empty() || !of.unverified.is_empty()).collect()
}

fn of_group<'a, 'b>(
    measured: &'b [Measured<'a>],
    group: &Group,
) -> impl Iterator<Item = &'b Measured<'a>> {
    measured.iter().filter(move |of| of.group.name == group.name)
}

/// The series that have rows, each with the verified rows of its measurements.
fn in_series<'a>(
    measured: &[Measured<'a>],
    is_wanted: impl Fn(&Measured<'a>) -> bool,
) -> Vec<(&'static str, Vec<&'a Row>)> {
    let mut all: Vec<(&'static str, Vec<&'a Row>)> = Vec::new();
    for of in measured.iter().filter(|of| is_wanted(of)) {
        for series in of.measurement.series() {
            match all.iter_mut().find(|(known, _)| *known == series) {
                Some((_, rows)) => rows.extend(&of.verified),
                None => all.push((series, of.verified.clone())),
            }
        }
    }
    all
}

/// The metrics of the workload that rows belong to.
fn metrics(rows: &[&Row]) -> Vec<Metric> {
    let workload = rows.first().and_then(|row| workloads::find(&row.workload));
    workload.map_or_else(Vec::new, |workload| workload.metrics().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::style::RGBColor;
    use serde_json::json;

    fn row(runtime: &str, median: f64, verified: bool) -> Row {
        Row::with(json!({
            "measurement": "ring", "workload": "ring", "runtime": runtime, "version": "1 <b>",
            "commit": "abc", "params": {"count": 1, "workers": 2}, "verified": verified,
            "metrics": {"wall_s": {"median": median, "min": median, "max": median, "unit": "s"}},
            "runs": [{"wall_s": median}]
        }))
    }

    fn written(rows: &[Row]) -> (String, Vec<String>) {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        write(rows, &[], directory.path()).expect("it can be written");
        let page = fs::read_to_string(directory.path().join(PAGE)).expect("there is a page");
        let files = fs::read_dir(directory.path()).expect("it is a directory").flatten();
        let mut names: Vec<_> =
            files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        (page, names)
    }

    #[test]
    fn a_page_has_the_rows_in_order_and_names_the_losses() {
        let (page, names) = written(&[row("throng", 2.0, true), row("tokio", 1.0, true)]);
        assert_eq!(names, [PAGE, "ring-wall_s.svg"]);
        assert!(page.contains(r#"<article id="ring">"#) && page.contains("1 &lt;b&gt;"), "{page}");
        let dots = &page[page.find("<figure>").expect("there is a figure")..];
        assert!(dots.find("tokio") < dots.find("throng"), "{page}");
        // Ticks of the axis, and values beside it.
        for text in ["1 s", "2 s", "1.00 s", "2.00 s"] {
            assert_eq!(dots.matches(&format!("\n{text}\n")).count(), 1, "{text}: {dots}");
        }
        let lost = &page[page.find("id=\"losses\"").expect("there is a table")..];
        assert!(lost.contains(">tokio</td>") && lost.contains(">2.00</td>"), "{page}");
        // The style sheet knows the figures by their colours.
        for color in ["#C85028", "#6E82A0", "#202020", "#D8D8D8"] {
            assert!(dots.contains(color) && page.matches(color).count() > 1, "{color}");
        }
    }

    #[test]
    fn the_measurements_of_a_series_are_drawn_as_lines_over_its_number() {
        let row = |runtime: &str, count: u64, measurement: &str| {
            let mut row = row(runtime, 1.0, true);
            row.measurement = Some(measurement.to_owned());
            row.workload = "processes".to_owned();
            row.params["count"] = count.into();
            row.metrics.insert("wall_ns".to_owned(), json!({"median": count as f64 / 1e3}));
            row
        };
        let of = |runtime| {
            [(1000, "200k"), (5000, "1m")]
                .map(|(count, name)| row(runtime, count, &format!("processes-{name}")))
        };
        let (page, names) = written(&[of("throng"), of("tokio")].concat());
        assert!(names.contains(&"processes-by-count-wall_ns.svg".to_owned()), "{names:?}");
        let article = &page[page.find("id=\"processes-by-count\"").expect("there is one")..];
        let article = &article[..article.find("</article>").expect("it ends")];
        let color = axis::color("tokio");
        for RGBColor(red, green, blue) in [axis::OURS, color] {
            let stroke = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\" stroke-width=\"2\"");
            assert_eq!(article.matches(&stroke).count(), 1, "{article}");
        }
        assert!(article.contains("1,000") && article.contains("5,000"), "{article}");
        // A single measurement makes no line.
        let (page, names) = written(&of("throng")[..1]);
        assert!(!page.contains("processes-by-count") && names.len() == 2, "{names:?}");
    }

    #[test]
    fn rounds_have_boxes_an_interval_and_a_speed_up_over_workers() {
        let row = |runtime: &str, workers: u64, measurement: &str, time: f64| {
            let mut row = row(runtime, 1.0, true);
            row.measurement = Some(measurement.to_owned());
            row.workload = "social".to_owned();
            let params = json!({"workers": workers, "rounds": 30, "dropped": 5});
            row.params = params.as_object().cloned().expect("it is an object");
            // The rounds of the source, whose interval is 231.8 to 238.3 ms.
            for (name, value) in [
                ("round_p50_ns", time),
                ("round_mean_ns", 235_076_840.0),
                ("round_deviation_ns", 7_926_000.0),
            ] {
                row.metrics.insert(name.to_owned(), json!({"median": value}));
            }
            let values = (1..=10).map(|at| f64::from(at) * time).collect();
            row.quantiles = [("round".to_owned(), values)].into();
            row
        };
        let of = |runtime, one, two| {
            [row(runtime, 1, "social-timelines-1", one), row(runtime, 2, "social-timelines", two)]
        };
        let rows = [of("throng", 600.0, 150.0), of("erlang-central", 900.0, 1050.0)].concat();
        let (page, names) = written(&rows);
        let draws = |name: &str, values: &[&str]| {
            assert!(names.contains(&format!("{name}.svg")), "{name}: {names:?}");
            let svg = figure(&rows, name).expect("it is one of the figures");
            assert!(values.iter().all(|value| svg.contains(&format!("\n{value}\n"))), "{svg}");
        };
        // The axes end at the greatest speed-up.
        draws("social-timelines-speedup", &["4", "throng", "◇ erlang-central"]);
        draws("social-timelines-beside-central", &["7"]);
        draws("social-timelines-by-workers-round", &["— workers = 1 —", "— workers = 2 —"]);
        draws("social-timelines-round_p50_ns", &["throng"]);
        let found = page.find("95 % interval of the mean").expect("there is a table");
        let table = &page[found..][..600];
        assert!(table.contains(">232 ms–238 ms<"), "{table}");
    }

    #[test]
    fn distributions_are_drawn_as_lines_over_their_quantiles() {
        let with = |runtime: &str, factor: f64| {
            let mut row = row(runtime, 1.0, true);
            let values = (1..=10).map(|at| f64::from(at) * factor).collect();
            row.quantiles = [("latency".to_owned(), values)].into();
            row
        };
        let (page, names) =
            written(&[with("throng", 10.0), with("tokio", 20.0), row("go", 2.0, true)]);
        assert_eq!(names, [PAGE, "ring-latency.svg", "ring-wall_s.svg"]);
        let figure = &page[page.find("<figure>").expect("there is a figure")..];
        let figure = &figure[figure.find("latency").expect("it is drawn")..];
        let figure = &figure[..figure.find("</figure>").expect("it ends")];
        for text in ["least", "99.99 %", "throng", "tokio"] {
            assert_eq!(figure.matches(&format!("\n{text}\n")).count(), 1, "{text}: {figure}");
        }
        assert!(!figure.contains("\ngo\n"), "{figure}");
    }

    #[test]
    fn the_main_ratios_are_to_the_best_row_of_a_rival_with_its_default_beside_it() {
        let call = |runtime: &str, measurement: &str, median: f64| {
            let mut row = row(runtime, 1.0, true);
            row.measurement = Some(measurement.to_owned());
            row.workload = "call".to_owned();
            row.metrics.insert("round_trip_ns".to_owned(), json!({"median": median}));
            row
        };
        let (page, _) = written(&[
            call("throng", "call", 100.0),
            call("tokio", "call", 300.0),
            call("tokio", "call-1", 250.0),
            call("tokio-futures", "call-1", 150.0),
            call("kameo", "call", 50.0),
        ]);
        let table = &page[page.find("id=\"headline\"").expect("there is a table")..];
        let table = &table[..table.find("</section>").expect("it ends")];
        assert!(
            table.contains(">1.5</strong><br><small>futures</small><br><small>1 worker<"),
            "{table}"
        );
        assert!(
            table.contains("default 3.0<") && table.contains("class=\"failed\">0.500<"),
            "{table}"
        );
    }

    #[test]
    fn percentiles_stand_beside_their_mean_classes_apart_and_tuned_rows_are_marked() {
        let call = |runtime: &str, class: &str, [mean, p99]: [f64; 2]| {
            let mut row = row(runtime, 1.0, true);
            (row.measurement, row.workload) = (Some("call".to_owned()), "call".to_owned());
            row.class = class.to_owned();
            for (name, value) in [("round_trip_ns", mean), ("p99_ns", p99)] {
                row.metrics.insert(name.to_owned(), json!({"median": value}));
            }
            row
        };
        let rows = [
            call("go", "green thread", [20.0, 3e3]),
            call("tokio", "task", [50.0, 4e3]),
            call("tokio-kanal", "task", [40.0, 5e6]),
            call("throng", "actor", [30.0, 6e3]),
        ];
        let (page, names) = written(&rows);
        assert_eq!(names, ["call-round_trip_ns.svg", PAGE]);
        let figure = &page[page.find("<figure>").expect("there is a figure")..];
        let texts =
            ["— green thread —", "go", "— actor —", "throng", "— task —", "◇ tokio-kanal", "tokio"];
        let at = texts.map(|text| figure.find(&format!("\n{text}\n")));
        assert!(at.is_sorted() && at[0].is_some(), "{at:?}: {figure}");
        assert!(["\nmean\n", "\np99\n", "\n5.00 ms\n"].iter().all(|text| figure.contains(text)));
        assert_eq!(figure.matches("r=\"3\"").count(), 4, "a ring for each percentile: {figure}");
    }

    #[test]
    fn ratios_that_differ_in_another_run_are_marked() {
        let rows = [row("throng", 1.0, true), row("tokio", 2.0, true), row("go", 3.0, true)];
        let again = [row("throng", 2.0, true), row("tokio", 6.0, true), row("go", 6.1, true)];
        let directory = tempfile::tempdir().expect("there is room for a directory");
        write(&rows, &again, directory.path()).expect("it can be written");
        let page = fs::read_to_string(directory.path().join(PAGE)).expect("there is a page");
        assert!(page.contains("1 of 2 ratios"), "{page}");
        assert_eq!(page.matches("noisy: 3.00").count(), 1, "{page}");
        assert!(!written(&rows).0.contains("id=\"again\""));
    }

    #[test]
    fn a_figure_in_a_file_has_the_style_of_the_page() {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        write(&[row("throng", 1.0, true)], &[], directory.path()).expect("it can be written");
        let figure = fs::read_to_string(directory.path().join("ring-wall_s.svg"));
        let figure = figure.expect("there is a figure");
        assert!(figure.starts_with("<svg ") && figure.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn a_row_whose_cores_moved_is_marked() {
        let far = |ns: [f64; 2]| {
            let mut row = row("throng", 1.0, true);
            let run = |ns| json!({"wall_s": 1.0, "core_to_core_ns": ns});
            row.runs = ns.iter().filter_map(|ns| run(ns).as_object().cloned()).collect();
            row
        };
        let (page, _) = written(&[far([40.0, 90.0])]);
        assert!(page.contains(">40.0–90.0</td>") && page.contains(">cores moved</td>"), "{page}");
        assert!(page.contains("In 1 of the rows"), "{page}");
        let (page, _) = written(&[far([40.0, 70.0])]);
        assert!(!page.contains("cores moved"), "{page}");
    }

    #[test]
    fn a_row_whose_checks_failed_is_named_and_not_drawn() {
        let mut failed = row("tokio", 1.0, false);
        failed.failures = vec!["3 answers instead of 4".to_owned()];
        let (page, names) = written(&[row("throng", 2.0, true), failed]);
        assert!(page.contains("3 answers instead of 4"), "{page}");
        assert_eq!(names, [PAGE, "ring-wall_s.svg"]);
        assert!(page.contains("tokio: a check failed") && page.contains("of which 1 failed"));
        assert!(page.contains("Nowhere in these rows."), "{page}");
        let figure = &page[page.find("<figure>").expect("there is a figure")..];
        assert!(!figure[..figure.find("</figure>").expect("it ends")].contains("tokio"), "{page}");
        let (_, names) = written(&[row("throng", 2.0, false)]);
        assert_eq!(names, [PAGE]);
    }
}
