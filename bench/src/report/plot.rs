//! Figures: a bar for each runtime's median, or a line through its medians in the measurements of a series;
//! and a thin line from the lowest to the highest run.
//!
//! The page's style sheet colours the figures, so that they fit its light and its dark form: it knows them
//! by the colours that are written here.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::row::{Row, SUBJECT};
use crate::table::number;
use crate::workloads::Metric;

const WIDTH: u32 = 760;
const BAR: i32 = 22;
const TOP: i32 = 30;
const LABELS: i32 = 180;
const VALUES: i32 = 110;

/// Colours, for which the page's style sheet may have others.
const INK: RGBColor = RGBColor(32, 32, 32);
const OURS: RGBColor = RGBColor(200, 80, 40);
const OTHERS: RGBColor = RGBColor(110, 130, 160);

/// Ratio of the largest to the smallest value beyond which the bars are on a logarithmic scale.
const LINEAR_MOST: f64 = 50.0;

/// A scale from the smallest to the largest value, which is logarithmic if they differ much.
#[derive(Clone, Copy)]
struct Scale {
    smallest: f64,
    largest: f64,
    is_log: bool,
}

impl Scale {
    fn of(smallest: f64, largest: f64) -> Scale {
        let is_log = smallest > 0.0 && largest / smallest > LINEAR_MOST;
        Scale { smallest, largest, is_log }
    }

    /// The logarithm at the scale's origin. The smallest bar has a tenth of a decade, so that it can be
    /// seen.
    fn log_origin(self) -> f64 {
        self.smallest.log10() - 0.1
    }

    /// The share of the scale's length that a value takes.
    fn share(self, value: f64) -> f64 {
        let share = if self.is_log {
            let from = self.log_origin();
            (value.max(self.smallest).log10() - from) / (self.largest.log10() - from)
        } else {
            value / self.largest
        };
        share.clamp(0.0, 1.1)
    }

    /// The value at a share of the scale's length.
    fn value(self, share: f64) -> f64 {
        if self.is_log {
            let from = self.log_origin();
            10.0_f64.powf(from + share * (self.largest.log10() - from))
        } else {
            share * self.largest
        }
    }
}

fn title(metric: Metric, scale: Scale) -> String {
    let note = if scale.is_log { ", logarithmic scale" } else { "" };
    let better = if metric.is_rate() { "higher" } else { "lower" };
    format!("{} ({}; {better} is better{note})", metric.name, metric.unit())
}

fn text(size: i32, horizontal: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", size).into_font();
    TextStyle::from(font).color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

/// The lowest and the highest run of a metric with this median.
fn range(row: &Row, metric: Metric, median: f64) -> (f64, f64) {
    let runs = row.runs.iter().filter_map(|run| run.get(metric.name)?.as_f64());
    runs.fold((median, median), |(low, high), run| (low.min(run), high.max(run)))
}

/// Draws a metric of all rows as an SVG; `None` if no row has it.
pub(super) fn bars(metric: Metric, rows: &[&Row]) -> Option<String> {
    let values: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((*row, row.median(metric.name)?))).collect();
    let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let smallest = values.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min);
    if values.is_empty() || largest <= 0.0 {
        return None;
    }
    let scale = Scale::of(smallest, largest);
    let room = f64::from(WIDTH as i32 - LABELS - VALUES);
    let length = |value: f64| (scale.share(value) * room) as i32;
    let mut svg = String::new();
    let height = TOP + BAR * values.len() as i32 + 6;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        area.draw_text(&title(metric, scale), &text(17, HPos::Left), (4, TOP / 2)).ok()?;
        for (index, (row, value)) in values.iter().enumerate() {
            let middle = TOP + BAR * index as i32 + BAR / 2;
            let color = if row.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
            area.draw_text(&row.runtime, &text(16, HPos::Right), (LABELS - 8, middle)).ok()?;
            let bar = [(LABELS, middle - 7), (LABELS + length(*value).max(1), middle + 7)];
            area.draw(&Rectangle::new(bar, color.filled())).ok()?;
            let (low, high) = range(row, metric, *value);
            let line = vec![(LABELS + length(low), middle), (LABELS + length(high), middle)];
            area.draw(&PathElement::new(line, INK.stroke_width(1))).ok()?;
            let end = (LABELS + length(*value).max(length(high)) + 6, middle);
            area.draw_text(&number(*value), &text(15, HPos::Left), end).ok()?;
        }
        area.present().ok()?;
    }
    Some(svg)
}

/// Height of a figure of lines, and of the part below its axis.
const HEIGHT: i32 = 340;
const BELOW: i32 = 40;

/// Widths of the values at the left of a figure of lines, and of the names at its right.
const LEFT: i32 = 90;
const RIGHT: i32 = 190;

/// Least distance between two names at the end of their lines.
const NAME: i32 = 17;

/// A runtime's line: the position of the number on the axis, and the row, of each measurement.
struct Line<'a> {
    runtime: &'a str,
    points: Vec<(usize, &'a Row, f64)>,
}

/// Draws a metric of rows that differ in a number as an SVG, with a line for each runtime; `None` if the
/// number has a single value.
pub(super) fn lines(metric: Metric, over: &str, rows: &[&Row]) -> Option<String> {
    let number_of = |row: &Row| row.params.get(over)?.as_f64();
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| number_of(row)).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut all: Vec<Line<'_>> = Vec::new();
    for row in rows {
        let Some((of, value)) = number_of(row).zip(row.median(metric.name)) else { continue };
        let point = (numbers.iter().position(|number| *number == of)?, *row, value);
        match all.iter_mut().find(|line| line.runtime == row.runtime) {
            Some(line) => line.points.push(point),
            None => all.push(Line { runtime: &row.runtime, points: vec![point] }),
        }
    }
    let values = || all.iter().flat_map(|line| &line.points).map(|(_, _, value)| *value);
    let (smallest, largest) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    if numbers.len() < 2 || largest <= 0.0 {
        return None;
    }
    let scale = Scale::of(smallest, largest);
    let (bottom, right) = (HEIGHT - BELOW, WIDTH as i32 - RIGHT);
    let room = f64::from(bottom - TOP - 10);
    let height = |value: f64| bottom - (scale.share(value) * room) as i32;
    let across =
        |at: usize| LEFT + 20 + (right - LEFT - 30) * at as i32 / (numbers.len() as i32 - 1);

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT as u32)).into_drawing_area();
        area.draw_text(&title(metric, scale), &text(17, HPos::Left), (4, TOP / 2)).ok()?;
        let axis = vec![(LEFT, TOP), (LEFT, bottom), (right, bottom)];
        area.draw(&PathElement::new(axis, INK.stroke_width(1))).ok()?;
        for quarter in 0..=4 {
            let value = scale.value(f64::from(quarter) / 4.0);
            let at = (LEFT - 8, height(value));
            area.draw_text(&number(value), &text(14, HPos::Right), at).ok()?;
        }
        for (at, of) in numbers.iter().enumerate() {
            let label = format!("{of:.0}");
            let label = if *of < 1000.0 { label } else { number(*of) };
            area.draw_text(&label, &text(14, HPos::Center), (across(at), bottom + 12)).ok()?;
        }
        area.draw_text(over, &text(14, HPos::Center), ((LEFT + right) / 2, bottom + 30)).ok()?;
        // The highest line first, so that names are moved down only.
        all.sort_by_key(|line| line.points.last().map(|(_, _, value)| height(*value)));
        let mut free = TOP;
        for line in &all {
            let color = if line.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
            let path: Vec<_> =
                line.points.iter().map(|(at, _, value)| (across(*at), height(*value))).collect();
            area.draw(&PathElement::new(path.clone(), color.stroke_width(2))).ok()?;
            for (at, row, value) in &line.points {
                let (low, high) = range(row, metric, *value);
                let ends = vec![(across(*at), height(low)), (across(*at), height(high))];
                area.draw(&PathElement::new(ends, INK.stroke_width(1))).ok()?;
                let dot = Circle::new((across(*at), height(*value)), 3, color.filled());
                area.draw(&dot).ok()?;
            }
            let Some(&(end, level)) = path.last() else { continue };
            let level = level.max(free);
            free = level + NAME;
            area.draw_text(line.runtime, &text(15, HPos::Left), (end.max(right) + 8, level))
                .ok()?;
        }
        area.present().ok()?;
    }
    Some(svg)
}
