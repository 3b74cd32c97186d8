//! Figures of lines: a line for each runtime, through its medians in the measurements of a series, through what is
//! computed from them, or through the quantiles of a distribution.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::{Axis, BELOW, INK, TOP, WIDTH, chart, color, note, range, text};
use super::plot::name;
use crate::row::Row;
use crate::runtimes::is_tuned;
use crate::suite::Derived;
use crate::workloads::Metric;
use crate::workloads::latency::PROBABILITIES;

/// Least height of a chart, and widths of the labels at its left and the names at its right.
const HEIGHT: u32 = 300;
const LEFT: u32 = 80;
const RIGHT: u32 = 205;

/// Least distance between two names at the end of their lines.
const NAME: i32 = 17;

/// Ratio of the largest to the smallest value beyond which a scale is logarithmic.
const LINEAR_MOST: f64 = 10.0;

/// Nanoseconds of a second, the dividend of rates.
const SECOND: f64 = 1e9;

/// A runtime's line.
struct Line<'a> {
    row: &'a Row,
    points: Vec<Point>,
}

/// A point of a line, and the values of the lowest and the highest run.
struct Point {
    x: f64,
    y: f64,
    range: (f64, f64),
}

/// Draws a metric of rows that differ in a number as an SVG, with a line for each runtime; `None` if the
/// number has a single value.
pub(super) fn series(metric: Metric, over: &str, rows: &[&Row]) -> Option<String> {
    let lines = lines(metric, over, rows);
    let down = heights(&lines, metric.unit())?;
    let title = format!("{} over {over} ({})", metric.name, note(metric.is_rate(), &down));
    draw_over(lines, &title, down)
}

/// Draws what is computed from the medians of a series as an SVG; a point without a dividend is left out.
pub(super) fn derived(of: &Derived, metric: Metric, over: &str, rows: &[&Row]) -> Option<String> {
    let mut lines = lines(metric, over, rows);
    let medians = |line: &Line<'_>| line.points.iter().map(|point| (point.x, point.y)).collect();
    let beside: Option<Vec<(f64, f64)>> = of.beside.map(|runtime| {
        let line = lines.iter().find(|line| line.row.runtime == runtime);
        line.map(medians).unwrap_or_default()
    });
    for line in &mut lines {
        let medians = beside.clone().unwrap_or_else(|| medians(line));
        let at = |x| medians.iter().find(|(known, _)| *known == x).map(|(_, median)| *median);
        line.points.retain_mut(|Point { x, y, range: (low, high) }| {
            let dividend = if of.is_time() { Some(SECOND) } else { at(of.from.unwrap_or(*x)) };
            dividend.map(|of| (*y, *low, *high) = (of / *y, of / *high, of / *low)).is_some()
        });
    }
    lines.retain(|line| !line.points.is_empty());
    let down = heights(&lines, if of.is_time() { "ns" } else { "1" })?;
    let title = format!("{} ({})", of.title, note(!of.is_time(), &down));
    draw_over(lines, &title, down)
}

/// A line for each runtime, through a metric of rows that differ in a number.
fn lines<'a>(metric: Metric, over: &str, rows: &[&'a Row]) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for row in rows {
        let number = row.params.get(over).and_then(|number| number.as_f64());
        let Some((x, y)) = number.zip(row.median(metric.name)) else { continue };
        let point = Point { x, y, range: range(row, metric, y) };
        match lines.iter_mut().find(|line| line.row.runtime == row.runtime) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { row, points: vec![point] }),
        }
    }
    lines
}

fn draw_over(lines: Vec<Line<'_>>, title: &str, down: Axis) -> Option<String> {
    let across = scale(lines.iter().flat_map(|line| &line.points).map(|point| point.x), 1.0, "")?;
    draw(lines, title, across, down)
}

/// Draws the quantiles of a distribution as an SVG, with a line for each runtime that reports them; `None`
/// if there is none.
pub(super) fn quantiles(distribution: &str, rows: &[&Row]) -> Option<String> {
    // A quantile lies at the number of runs of which one is longer, so that the tail has room.
    let most = 1e5;
    let one_in = |probability: f64| (1.0 / (1.0 - probability)).min(most);
    let line = |row: &&'_ Row| -> Option<Vec<Point>> {
        let values = PROBABILITIES.iter().zip(row.quantiles.get(distribution)?);
        Some(values.map(|(of, y)| Point { x: one_in(*of), y: *y, range: (*y, *y) }).collect())
    };
    let lines: Vec<Line<'_>> =
        rows.iter().filter_map(|row| Some(Line { row, points: line(row)? })).collect();
    let down = heights(&lines, "ns")?;
    let ticks = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(one_in).to_vec();
    let mut across = Axis::log([1.0, most].into_iter(), "");
    across.label = Box::new(move |tick| match tick {
        1.0 => "least".to_owned(),
        tick if tick >= most => "most".to_owned(),
        // Rounded, because 1 - 1 / 1e4 has more digits.
        tick => format!("{} %", ((1.0 - 1.0 / tick) * 1e4).round() / 1e2),
    });
    across.ticks = ticks;
    let note = note(false, &down);
    let title = format!("{distribution}: the times that parts of the runs stay below ({note})");
    draw(lines, &title, across, down)
}

fn heights(lines: &[Line<'_>], unit: &'static str) -> Option<Axis> {
    let points = lines.iter().flat_map(|line| &line.points);
    let values = points.flat_map(|point| [point.range.0, point.range.1]);
    scale(values, 0.0, unit)
}

/// The scale for all values, logarithmic if they differ much; `None` if they do not.
fn scale(
    values: impl Iterator<Item = f64> + Clone,
    least: f64,
    unit: &'static str,
) -> Option<Axis> {
    let smallest = values.clone().fold(f64::MAX, f64::min);
    let largest = values.clone().fold(f64::MIN, f64::max);
    if largest <= smallest && least > 0.0 || largest <= 0.0 {
        return None;
    }
    let is_log = smallest > 0.0 && largest / smallest > LINEAR_MOST;
    let begin = if least > 0.0 { smallest } else { smallest.min(0.0) };
    Some(if is_log { Axis::log(values, unit) } else { Axis::linear(begin, largest, least, unit) })
}

fn draw(mut lines: Vec<Line<'_>>, title: &str, across: Axis, down: Axis) -> Option<String> {
    let height = HEIGHT.max(NAME as u32 * lines.len() as u32) + TOP + BELOW;
    let bottom = (height - BELOW) as i32;
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let chart = chart(&area, title, (LEFT, RIGHT), (across, down))?;
    // The highest line first, so that names are moved down only.
    let end = |line: &Line<'_>| line.points.last().map_or(0.0, |point| point.y);
    lines.sort_by(|a, b| end(b).total_cmp(&end(a)));
    let mut free = TOP as i32;
    for (index, line) in lines.iter().enumerate() {
        let color = color(&line.row.runtime);
        let width = if is_tuned(&line.row.workload, &line.row.runtime) { 1 } else { 2 };
        let place = |point: &Point| chart.backend_coord(&(point.x, point.y));
        let path: Vec<_> = line.points.iter().map(place).collect();
        let Some(&(_, level)) = path.last() else { continue };
        for point in &line.points {
            let (low, high) = point.range;
            let ends = [low, high].map(|value| chart.backend_coord(&(point.x, value)));
            area.draw(&PathElement::new(ends.to_vec(), INK.stroke_width(1))).ok()?;
            area.draw(&Circle::new(place(point), 3, color.filled())).ok()?;
        }
        area.draw(&PathElement::new(path, color.stroke_width(width))).ok()?;
        let below = NAME * (lines.len() - index) as i32;
        let level = level.max(free).min(bottom + NAME / 2 - below);
        free = level + NAME;
        let end = ((WIDTH - RIGHT) as i32 + 8, level);
        let style = text(16, HPos::Left).color(&color);
        area.draw_text(&name(line.row), &style, end).ok()?;
    }
    area.present().ok()?;
    drop((chart, area));
    Some(svg)
}
