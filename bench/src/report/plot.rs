//! Figures of dots: each runtime's median on a logarithmic scale, a thin line from the lowest to the highest run,
//! and percentiles beside their mean. Different classes of processes give different things, so they stand apart.
//! A few rounds have no tail: a box with a line at each end shows their quartiles.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::{Axis, BELOW, INK, OTHERS, OURS, TOP, WIDTH, chart, note, range, text};
use crate::row::{Row, SUBJECT};
use crate::runtimes::is_tuned;
use crate::table::human;
use crate::workloads::{Metric, latency};

/// The distribution of the times of rounds, each as long as all requests of it.
pub(super) const ROUND: &str = "round";

/// Ratio of the greatest to the least time from which on they differ: a histogram that counts a single one has closer
/// ends.
const DIFFER: f64 = 1.002;

const LINE: u32 = 20;

/// Half the height of a box.
const BOX: i32 = 7;

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

/// A row beside its name.
struct Mark<'a> {
    row: &'a Row,
    median: f64,
    /// The ends of the thin line: the lowest and the highest run, or the least and the greatest value of a distribution.
    range: (f64, f64),
    /// The ends of the middle half of a distribution.
    middle: Option<(f64, f64)>,
}

impl<'a> Mark<'a> {
    fn of(row: &'a Row, metric: Metric) -> Option<Mark<'a>> {
        let median = row.median(metric.name)?;
        let is_of_rounds = latency::distribution(metric.name) == Some((ROUND, 0.5));
        let at = |of| {
            let values = row.quantiles.get(ROUND).filter(|_| is_of_rounds)?;
            values.get(latency::PROBABILITIES.iter().position(|at| *at == of)?).copied()
        };
        let ends = |low, high| at(low).zip(at(high));
        Some(match ends(0.0, 1.0).filter(|(least, most)| least * DIFFER < *most) {
            Some(range) => Mark { row, median, range, middle: ends(0.25, 0.75) },
            None => Mark { row, median, range: range(row, metric, median), middle: None },
        })
    }
}

/// Draws the metrics of a group as an SVG, sorted by the first; `None` if no row has it.
pub(super) fn dots(metrics: &[Metric], rows: &[&Row]) -> Option<String> {
    draw(metrics, under(sorted(*metrics.first()?, rows), |row| row.class.clone()))
}

/// Draws the times of rounds of the rows of a series as an SVG, under each of its numbers; `None` if they have no boxes.
pub(super) fn boxes(metric: Metric, over: &str, rows: &[&Row]) -> Option<String> {
    let mut marks = sorted(metric, rows);
    marks.sort_by_key(|mark| mark.row.params.get(over).and_then(|number| number.as_u64()));
    marks.iter().find(|mark| mark.middle.is_some())?;
    let heading = |row: &Row| format!("{over} = {}", row.params.get(over).unwrap_or_default());
    draw(&[metric], under(marks, heading))
}

fn sorted<'a>(metric: Metric, rows: &[&'a Row]) -> Vec<Mark<'a>> {
    let mut marks: Vec<_> = rows.iter().filter_map(|row| Mark::of(row, metric)).collect();
    marks.sort_by(|a, b| metric.order(a.median, b.median));
    marks
}

fn draw(metrics: &[Metric], lines: Vec<(String, Option<Mark<'_>>)>) -> Option<String> {
    let (first, tails) = metrics.split_first()?;
    let marks = || lines.iter().filter_map(|(_, mark)| mark.as_ref());
    let values: Vec<f64> = marks()
        .flat_map(|Mark { row, range: (low, high), .. }| {
            let tails = tails.iter().filter_map(|tail| row.median(tail.name));
            [*low, *high].into_iter().chain(tails).collect::<Vec<_>>()
        })
        .collect();
    if values.iter().all(|value| *value == 0.0) {
        return None;
    }
    let scale = Axis::log(values.iter().copied(), first.unit());
    let with = match marks().any(|mark| mark.middle.is_some()) {
        true => ": least, middle half, median and greatest",
        false if tails.is_empty() => "",
        false => " ● with percentiles ○",
    };
    let title = format!("{}{with} ({})", first.name, note(first.is_rate(), &scale));
    let mut svg = String::new();
    let height = TOP + LINE * lines.len() as u32 + BELOW;
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let columns = COLUMN * metrics.len() as u32 + 4;
    let labels = lines.iter().map(|(name, _)| name.clone()).collect();
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
    for (line, (_, mark)) in lines.iter().enumerate() {
        let Some(Mark { row, median, range: (low, high), middle }) = mark else { continue };
        let place = |value: f64| chart.backend_coord(&(value, line as f64 + 0.5));
        let color = if row.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
        for (column, metric) in metrics.iter().enumerate() {
            let Some(value) = row.median(metric.name) else { continue };
            let at = place(value);
            let shown = (right(column), at.1);
            area.draw_text(&human(value, metric.unit()), &text(16, HPos::Right), shown).ok()?;
            if column > 0 {
                let path = vec![place(*median), at];
                area.draw(&PathElement::new(path, color.stroke_width(1))).ok()?;
                area.draw(&Circle::new(at, 3, color.stroke_width(1))).ok()?;
            }
        }
        let (x, y) = place(*median);
        match middle.map(|(low, high)| (place(low).0, place(high).0)) {
            Some((low, high)) => {
                let corners = [(low, y - BOX), (high.max(low + 1), y + BOX)];
                area.draw(&Rectangle::new(corners, color.filled())).ok()?;
                let line = vec![(x, y - BOX), (x, y + BOX)];
                area.draw(&PathElement::new(line, INK.stroke_width(2))).ok()?;
            }
            None => area.draw(&Circle::new((x, y), 5, color.filled())).ok()?,
        }
        let range = vec![place(*low), place(*high)];
        area.draw(&PathElement::new(range, INK.stroke_width(1))).ok()?;
    }
    area.present().ok()?;
    drop((chart, area));
    Some(svg)
}

/// The lines of a figure: the headings in the order of their first marks, each before its own.
fn under<'a>(
    marks: Vec<Mark<'a>>,
    heading: impl Fn(&Row) -> String,
) -> Vec<(String, Option<Mark<'a>>)> {
    let mut groups: Vec<(String, Vec<Mark<'a>>)> = Vec::new();
    for mark in marks {
        let heading = format!("— {} —", heading(mark.row));
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, marks)) => marks.push(mark),
            None => groups.push((heading, vec![mark])),
        }
    }
    let lines = groups.into_iter().flat_map(|(heading, marks)| {
        let marks = marks.into_iter().map(|mark| (name(mark.row), Some(mark)));
        [(heading, None)].into_iter().chain(marks)
    });
    lines.collect()
}

/// Returns the name of a row, with a mark if its settings differ from its runtime's defaults.
pub(super) fn name(row: &Row) -> String {
    let mark = if is_tuned(&row.workload, &row.runtime) { "◇ " } else { "" };
    format!("{mark}{}", row.runtime)
}
