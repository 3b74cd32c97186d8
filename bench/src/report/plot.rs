//! Figures of dots: each runtime's median on a logarithmic scale, a thin line from the lowest to the highest run,
//! and percentiles beside their mean. Different classes of processes give different things, so they stand apart.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::{Axis, BELOW, INK, OTHERS, OURS, TOP, WIDTH, chart, note, range, text};
use crate::row::{Row, SUBJECT};
use crate::runtimes::is_tuned;
use crate::table::human;
use crate::workloads::{Metric, latency};

const LINE: u32 = 20;

/// Widths of the names at the left of a figure, and of a column of values at its right.
const NAMES: u32 = 205;
const COLUMN: u32 = 76;

/// Groups the metrics of a workload into figures: the percentiles of a distribution share one, with the mean before them
/// if it has their unit.
pub(super) fn grouped(metrics: impl Iterator<Item = Metric>) -> Vec<Vec<Metric>> {
    let mut groups: Vec<Vec<Metric>> = Vec::new();
    for metric in metrics {
        let of = |metric: &str| latency::distribution(metric).map(|(name, _)| name.to_owned());
        let own = of(metric.name);
        let belongs = |last: &Metric| match of(last.name) {
            None => own.as_deref() == Some(latency::UNNAMED) && last.unit() == "ns",
            of => of == own,
        };
        match groups.last_mut().filter(|group| group.last().is_some_and(belongs)) {
            Some(group) => group.push(metric),
            None => groups.push(vec![metric]),
        }
    }
    groups
}

/// Draws the metrics of a group as an SVG, sorted by the first; `None` if no row has it.
pub(super) fn dots(metrics: &[Metric], rows: &[&Row]) -> Option<String> {
    let (first, tails) = metrics.split_first()?;
    let entries = in_classes(*first, rows);
    let shown: Vec<(&Row, f64)> = entries.iter().filter_map(|(_, shown)| *shown).collect();
    let values: Vec<f64> = shown
        .iter()
        .flat_map(|(row, median)| {
            let (low, high) = range(row, *first, *median);
            let tails = tails.iter().filter_map(|tail| row.median(tail.name));
            [low, high].into_iter().chain(tails).collect::<Vec<_>>()
        })
        .collect();
    if shown.is_empty() || values.iter().all(|value| *value == 0.0) {
        return None;
    }
    let scale = Axis::log(values.iter().copied(), first.unit());
    let with = if tails.is_empty() { "" } else { " ● with percentiles ○" };
    let title = format!("{}{with} ({})", first.name, note(first.is_rate(), &scale));
    let mut svg = String::new();
    let height = TOP + LINE * entries.len() as u32 + BELOW;
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let columns = COLUMN * metrics.len() as u32 + 4;
    let labels = entries.iter().map(|(name, _)| name.clone()).collect();
    let chart = chart(&area, &title, (NAMES, columns), (scale, Axis::names(labels)))?;
    let right = |column: usize| (WIDTH - columns + COLUMN * (column as u32 + 1)) as i32;
    for (column, metric) in metrics.iter().enumerate().filter(|_| !tails.is_empty()) {
        let name = match latency::distribution(metric.name) {
            Some((_, 1.0)) => "most".to_owned(),
            Some((_, of)) => format!("p{}", (of * 1e4).round() / 1e2),
            None => "mean".to_owned(),
        };
        area.draw_text(&name, &text(16, HPos::Right), (right(column), TOP as i32 - 6)).ok()?;
    }
    for (line, (_, shown)) in entries.iter().enumerate() {
        let Some((row, median)) = *shown else { continue };
        let place = |value: f64| chart.backend_coord(&(value, line as f64 + 0.5));
        let color = if row.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
        for (column, metric) in metrics.iter().enumerate() {
            let Some(value) = row.median(metric.name) else { continue };
            let at = place(value);
            let shown = (right(column), at.1);
            area.draw_text(&human(value, metric.unit()), &text(16, HPos::Right), shown).ok()?;
            if column > 0 {
                let path = vec![place(median), at];
                area.draw(&PathElement::new(path, color.stroke_width(1))).ok()?;
                area.draw(&Circle::new(at, 3, color.stroke_width(1))).ok()?;
            }
        }
        let (low, high) = range(row, *first, median);
        let runs = vec![place(low), place(high)];
        area.draw(&Circle::new(place(median), 5, color.filled())).ok()?;
        area.draw(&PathElement::new(runs, INK.stroke_width(1))).ok()?;
    }
    area.present().ok()?;
    drop((chart, area));
    Some(svg)
}

/// The lines of a figure: the classes, best first, each before its rows, which are sorted by a metric.
fn in_classes<'a>(metric: Metric, rows: &[&'a Row]) -> Vec<(String, Option<(&'a Row, f64)>)> {
    let mut values: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((*row, row.median(metric.name)?))).collect();
    values.sort_by(|(_, a), (_, b)| metric.order(*a, *b));
    let mut classes: Vec<&str> = Vec::new();
    for (row, _) in &values {
        if !classes.contains(&row.class.as_str()) {
            classes.push(&row.class);
        }
    }
    let mut entries = Vec::new();
    for class in classes {
        entries.push((format!("— {class} —"), None));
        let own = values.iter().filter(|(row, _)| row.class == class);
        entries.extend(own.map(|(row, value)| (name(row), Some((*row, *value)))));
    }
    entries
}

/// The name of a row, with a mark if its settings are not its runtime's defaults.
pub(super) fn name(row: &Row) -> String {
    let mark = if is_tuned(&row.workload, &row.runtime) { "◇ " } else { "" };
    format!("{mark}{}", row.runtime)
}
