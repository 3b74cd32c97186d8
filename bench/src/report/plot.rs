//! Figures of bars: each runtime's median, and a thin line from the lowest to the highest run. [`lines`](super::lines)
//! draws with the same colours and scales.
//!
//! The page's style sheet colours the figures, so that they fit its light and its dark form: it knows them
//! by the colours that are written here.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::row::{Row, SUBJECT};
use crate::table::number;
use crate::workloads::Metric;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) const WIDTH: u32 = 760;
const BAR: i32 = 22;
pub(super) const TOP: i32 = 30;
const LABELS: i32 = 180;
const VALUES: i32 = 110;

/// Colours, for which the page's style sheet may have others.
pub(super) const INK: RGBColor = RGBColor(32, 32, 32);
pub(super) const OURS: RGBColor = RGBColor(200, 80, 40);
pub(super) const OTHERS: RGBColor = RGBColor(110, 130, 160);

/// Ratio of the largest to the smallest value beyond which the bars are on a logarithmic scale.
const LINEAR_MOST: f64 = 50.0;

/// A scale from the smallest to the largest value, which is logarithmic if they differ much.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    smallest: f64,
    largest: f64,
    pub(super) is_log: bool,
}

impl Scale {
    pub(super) fn of(smallest: f64, largest: f64) -> Scale {
        let is_log = smallest > 0.0 && largest / smallest > LINEAR_MOST;
        Scale { smallest, largest, is_log }
    }

    /// The logarithm at the scale's origin. The smallest bar has a tenth of a decade, so that it can be
    /// seen.
    fn log_origin(self) -> f64 {
        self.smallest.log10() - 0.1
    }

    /// The share of the scale's length that a value takes.
    pub(super) fn share(self, value: f64) -> f64 {
        let share = if self.is_log {
            let from = self.log_origin();
            (value.max(self.smallest).log10() - from) / (self.largest.log10() - from)
        } else {
            value / self.largest
        };
        share.clamp(0.0, 1.1)
    }

    /// The value at a share of the scale's length.
    pub(super) fn value(self, share: f64) -> f64 {
        if self.is_log {
            let from = self.log_origin();
            10.0_f64.powf(from + share * (self.largest.log10() - from))
        } else {
            share * self.largest
        }
    }
}

pub(super) fn title(metric: Metric, scale: Scale) -> String {
    let note = if scale.is_log { ", logarithmic scale" } else { "" };
    let better = if metric.is_rate() { "higher" } else { "lower" };
    format!("{} ({}; {better} is better{note})", metric.name, metric.unit())
}

pub(super) fn text(size: i32, horizontal: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", size).into_font();
    TextStyle::from(font).color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

/// The lowest and the highest run of a metric with this median.
pub(super) fn range(row: &Row, metric: Metric, median: f64) -> (f64, f64) {
    let runs = row.runs.iter().filter_map(|run| run.get(metric.name)?.as_f64());
    runs.fold((median, median), |(low, high), run| (low.min(run), high.max(run)))
}

/// A line of a figure of bars.
enum Entry<'a> {
    Heading(&'a str),
    Bar(&'a Row, f64),
}

/// Draws a metric of all rows as an SVG; `None` if no row has it. With `by_class` the bars are sorted by the class of the
/// runtime's processes, with a heading for each, on a logarithmic scale: different classes give different things, so they
/// are not one race.
pub(super) fn bars(metric: Metric, rows: &[&Row], by_class: bool) -> Option<String> {
    let values: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((*row, row.median(metric.name)?))).collect();
    let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let smallest = values.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min);
    if values.is_empty() || largest <= 0.0 {
        return None;
    }
    let mut scale = Scale::of(smallest, largest);
    scale.is_log |= by_class && smallest > 0.0;
    let entries = if by_class {
        in_classes(values)
    } else {
        values.into_iter().map(|(row, value)| Entry::Bar(row, value)).collect()
    };
    let room = f64::from(WIDTH as i32 - LABELS - VALUES);
    let length = |value: f64| (scale.share(value) * room) as i32;
    let mut svg = String::new();
    let height = TOP + BAR * entries.len() as i32 + 6;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        area.draw_text(&title(metric, scale), &text(17, HPos::Left), (4, TOP / 2)).ok()?;
        for (index, entry) in entries.iter().enumerate() {
            let middle = TOP + BAR * index as i32 + BAR / 2;
            let (row, value) = match entry {
                Entry::Heading(class) => {
                    area.draw_text(class, &text(14, HPos::Left), (4, middle)).ok()?;
                    continue;
                }
                Entry::Bar(row, value) => (*row, *value),
            };
            let color = if row.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
            area.draw_text(&row.runtime, &text(16, HPos::Right), (LABELS - 8, middle)).ok()?;
            let bar = [(LABELS, middle - 7), (LABELS + length(value).max(1), middle + 7)];
            area.draw(&Rectangle::new(bar, color.filled())).ok()?;
            let (low, high) = range(row, metric, value);
            let line = vec![(LABELS + length(low), middle), (LABELS + length(high), middle)];
            area.draw(&PathElement::new(line, INK.stroke_width(1))).ok()?;
            let end = (LABELS + length(value).max(length(high)) + 6, middle);
            area.draw_text(&number(value), &text(15, HPos::Left), end).ok()?;
        }
        area.present().ok()?;
    }
    Some(svg)
}

/// Sorts rows by class, in the order in which classes first appear, and by value within a class.
fn in_classes(values: Vec<(&Row, f64)>) -> Vec<Entry<'_>> {
    let mut classes: Vec<(&str, Vec<(&Row, f64)>)> = Vec::new();
    for (row, value) in values {
        match classes.iter_mut().find(|(class, _)| *class == row.class) {
            Some((_, rows)) => rows.push((row, value)),
            None => classes.push((&row.class, vec![(row, value)])),
        }
    }
    let mut entries = Vec::new();
    for (class, mut rows) in classes {
        entries.push(Entry::Heading(class));
        rows.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        entries.extend(rows.into_iter().map(|(row, value)| Entry::Bar(row, value)));
    }
    entries
}

/// Colours of the lines of other runtimes: neither light nor dark, so that they fit both forms of the page.
/// Rows of one runtime have one colour.
const FAMILIES: &[(&str, RGBColor)] = &[
    ("tokio", RGBColor(76, 120, 200)),
    ("actix", RGBColor(58, 154, 74)),
    ("kameo", RGBColor(176, 74, 154)),
    ("ractor", RGBColor(154, 138, 42)),
    ("tellus", RGBColor(42, 154, 154)),
    ("smol", RGBColor(122, 106, 208)),
    ("threads", RGBColor(128, 128, 128)),
    ("axum", RGBColor(76, 120, 160)),
    ("erlang", RGBColor(176, 70, 80)),
    ("elixir", RGBColor(138, 90, 176)),
    ("go", RGBColor(42, 144, 184)),
    ("java", RGBColor(184, 134, 42)),
    ("pekko", RGBColor(106, 154, 58)),
    ("caf", RGBColor(90, 122, 154)),
    ("node", RGBColor(74, 160, 122)),
    ("bun", RGBColor(192, 112, 154)),
    ("python", RGBColor(160, 120, 80)),
    ("fjall", RGBColor(184, 134, 42)),
    ("skip", RGBColor(48, 92, 160)),
    ("apalis", RGBColor(150, 60, 130)),
    ("durare", RGBColor(60, 140, 90)),
    ("redis", RGBColor(190, 50, 40)),
    ("postgres", RGBColor(50, 95, 145)),
    ("sqlite", RGBColor(90, 170, 200)),
    ("rocksdb", RGBColor(200, 150, 30)),
    ("temporal", RGBColor(176, 96, 48)),
    ("restate", RGBColor(96, 84, 176)),
    ("heed", RGBColor(76, 120, 200)),
    ("redb", RGBColor(58, 154, 74)),
];

pub(super) fn color(runtime: &str) -> RGBColor {
    let family = runtime.split(['-', '+']).next().unwrap_or(runtime);
    if family == SUBJECT {
        return OURS;
    }
    FAMILIES.iter().find(|(name, _)| *name == family).map_or(OTHERS, |(_, color)| *color)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;
    use crate::suite::measurements;

    #[test]
    fn every_runtime_of_the_suite_has_a_colour() {
        for peer in measurements().flat_map(|of| runtimes::peers(of.workload().name)) {
            assert_ne!(color(peer.runtime), OTHERS, "{}", peer.runtime);
        }
    }
}
