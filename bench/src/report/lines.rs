//! Figures of lines: a line for each runtime, through its medians in the measurements of a series, or through
//! the quantiles of a distribution.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::plot::{Area, INK, Scale, TOP, WIDTH, color, range, text, title};
use crate::row::Row;
use crate::table::number;
use crate::workloads::Metric;
use crate::workloads::latency::PROBABILITIES;

/// Least height of a figure, and the height of the part below its axis.
const HEIGHT: i32 = 340;
const BELOW: i32 = 40;

/// Widths of the values at the left of a figure, and of the names at its right.
const LEFT: i32 = 90;
const RIGHT: i32 = 190;

/// Least distance between two names at the end of their lines.
const NAME: i32 = 17;

/// A figure: a line for each runtime, over positions that have labels.
struct Figure<'a> {
    title: String,
    scale: Scale,
    /// Name of the number or the distribution that the labels belong to.
    under: &'a str,
    labels: Vec<String>,
    lines: Vec<Line<'a>>,
}

/// A runtime's line.
struct Line<'a> {
    runtime: &'a str,
    points: Vec<Point>,
}

/// A point of a line, and the values of the lowest and the highest run.
struct Point {
    at: usize,
    value: f64,
    range: (f64, f64),
}

/// Draws a metric of rows that differ in a number as an SVG, with a line for each runtime; `None` if the
/// number has a single value.
pub(super) fn series(metric: Metric, over: &str, rows: &[&Row]) -> Option<String> {
    let number_of = |row: &Row| row.params.get(over)?.as_f64();
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| number_of(row)).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in rows {
        let Some((of, value)) = number_of(row).zip(row.median(metric.name)) else { continue };
        let at = numbers.iter().position(|number| *number == of)?;
        let point = Point { at, value, range: range(row, metric, value) };
        match lines.iter_mut().find(|line| line.runtime == row.runtime) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { runtime: &row.runtime, points: vec![point] }),
        }
    }
    let scale = scale_of(&lines)?;
    let label = |of: &f64| if *of < 1000.0 { format!("{of:.0}") } else { number(*of) };
    let labels = numbers.iter().map(label).collect();
    Figure { title: title(metric, scale), scale, under: over, labels, lines }.draw()
}

/// Draws the quantiles of a distribution as an SVG, with a line for each runtime that reports them; `None`
/// if there is none.
pub(super) fn quantiles(name: &str, rows: &[&Row]) -> Option<String> {
    let line = |row: &&'_ Row| -> Option<Vec<Point>> {
        let values = row.quantiles.get(name)?.iter().copied().enumerate();
        Some(values.map(|(at, value)| Point { at, value, range: (value, value) }).collect())
    };
    let lines: Vec<Line<'_>> = rows
        .iter()
        .filter_map(|row| Some(Line { runtime: &row.runtime, points: line(row)? }))
        .collect();
    let scale = scale_of(&lines)?;
    let label = |probability: &f64| match *probability {
        0.0 => "least".to_owned(),
        1.0 => "most".to_owned(),
        // Rounded, because 0.9999 * 100.0 has more digits.
        of => format!("{} %", (of * 1e4).round() / 1e2),
    };
    let labels = PROBABILITIES.iter().map(label).collect();
    let note = if scale.is_log { ", logarithmic scale" } else { "" };
    let title = format!("{name}: the times that parts of the runs stay below (ns{note})");
    Figure { title, scale, under: "part of all", labels, lines }.draw()
}

/// The scale for all values of lines; `None` if there is none.
fn scale_of(lines: &[Line<'_>]) -> Option<Scale> {
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.value);
    let (smallest, largest) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    (largest > 0.0).then(|| Scale::of(smallest, largest))
}

impl Figure<'_> {
    fn draw(mut self) -> Option<String> {
        if self.labels.len() < 2 {
            return None;
        }
        let mut svg = String::new();
        let size = (WIDTH, (self.bottom() + BELOW) as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        self.draw_axes(&area)?;
        // The highest line first, so that names are moved down only.
        let end = |line: &Line<'_>| line.points.last().map_or(0.0, |point| point.value);
        self.lines.sort_by(|a, b| end(b).total_cmp(&end(a)));
        let mut free = TOP;
        for (index, line) in self.lines.iter().enumerate() {
            let color = color(line.runtime);
            let place = |point: &Point| (self.across(point.at), self.height(point.value));
            let path: Vec<_> = line.points.iter().map(place).collect();
            area.draw(&PathElement::new(path.clone(), color.stroke_width(2))).ok()?;
            for point in &line.points {
                let (low, high) = point.range;
                let ends = [low, high].map(|value| (self.across(point.at), self.height(value)));
                area.draw(&PathElement::new(ends.to_vec(), INK.stroke_width(1))).ok()?;
                area.draw(&Circle::new(place(point), 3, color.filled())).ok()?;
            }
            let Some(&(end, level)) = path.last() else { continue };
            let below = NAME * (self.lines.len() - index) as i32;
            let level = level.max(free).min(self.bottom() + NAME / 2 - below);
            free = level + NAME;
            let end = (end.max(WIDTH as i32 - RIGHT) + 8, level);
            area.draw_text(line.runtime, &text(15, HPos::Left), end).ok()?;
        }
        area.present().ok()?;
        drop(area);
        Some(svg)
    }

    fn draw_axes(&self, area: &Area<'_>) -> Option<()> {
        let (bottom, right) = (self.bottom(), WIDTH as i32 - RIGHT);
        area.draw_text(&self.title, &text(17, HPos::Left), (4, TOP / 2)).ok()?;
        let axis = vec![(LEFT, TOP), (LEFT, bottom), (right, bottom)];
        area.draw(&PathElement::new(axis, INK.stroke_width(1))).ok()?;
        for quarter in 0..=4 {
            let value = self.scale.value(f64::from(quarter) / 4.0);
            let at = (LEFT - 8, self.height(value));
            area.draw_text(&number(value), &text(14, HPos::Right), at).ok()?;
        }
        for (at, label) in self.labels.iter().enumerate() {
            let below = (self.across(at), bottom + 12);
            area.draw_text(label, &text(14, HPos::Center), below).ok()?;
        }
        let middle = ((LEFT + right) / 2, bottom + 30);
        area.draw_text(self.under, &text(14, HPos::Center), middle).ok()
    }

    fn across(&self, at: usize) -> i32 {
        let room = WIDTH as i32 - RIGHT - LEFT - 30;
        LEFT + 20 + room * at as i32 / (self.labels.len() as i32 - 1)
    }

    fn height(&self, value: f64) -> i32 {
        let room = f64::from(self.bottom() - TOP - 10);
        self.bottom() - (self.scale.share(value) * room) as i32
    }

    /// The vertical position of the axis, below which no name has to be.
    fn bottom(&self) -> i32 {
        (TOP + NAME * self.lines.len() as i32).max(HEIGHT - BELOW)
    }
}
