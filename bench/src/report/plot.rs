//! Figures: a bar for each runtime's median, and a line from the lowest to the highest run.
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

/// Draws a metric of all rows as an SVG; `None` if no row has it.
pub(super) fn bars(metric: Metric, rows: &[&Row]) -> Option<String> {
    let values: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((*row, row.median(metric.name)?))).collect();
    let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let smallest = values.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min);
    if values.is_empty() || largest <= 0.0 {
        return None;
    }
    let is_log = smallest > 0.0 && largest / smallest > LINEAR_MOST;
    let room = f64::from(WIDTH as i32 - LABELS - VALUES);
    let length = |value: f64| {
        let share = if is_log {
            // The smallest bar has a tenth of a decade, so that it can be seen.
            let from = smallest.log10() - 0.1;
            (value.max(smallest).log10() - from) / (largest.log10() - from)
        } else {
            value / largest
        };
        (share.clamp(0.0, 1.1) * room) as i32
    };
    let mut svg = String::new();
    let height = TOP + BAR * values.len() as i32 + 6;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        let scale = if is_log { ", logarithmic scale" } else { "" };
        let better = if metric.is_rate() { "higher" } else { "lower" };
        let title = format!("{} ({}; {better} is better{scale})", metric.name, metric.unit());
        let text = |size: i32, h| {
            TextStyle::from(("sans-serif", size).into_font())
                .color(&INK)
                .pos(Pos::new(h, VPos::Center))
        };
        area.draw_text(&title, &text(17, HPos::Left), (4, TOP / 2)).ok()?;
        for (index, (row, value)) in values.iter().enumerate() {
            let middle = TOP + BAR * index as i32 + BAR / 2;
            let color = if row.runtime.starts_with(SUBJECT) { OURS } else { OTHERS };
            area.draw_text(&row.runtime, &text(16, HPos::Right), (LABELS - 8, middle)).ok()?;
            let bar = [(LABELS, middle - 7), (LABELS + length(*value).max(1), middle + 7)];
            area.draw(&Rectangle::new(bar, color.filled())).ok()?;
            let runs = row.runs.iter().filter_map(|run| run.get(metric.name)?.as_f64());
            let (low, high) =
                runs.fold((*value, *value), |(low, high), run| (low.min(run), high.max(run)));
            let line = vec![(LABELS + length(low), middle), (LABELS + length(high), middle)];
            area.draw(&PathElement::new(line, INK.stroke_width(1))).ok()?;
            let end = (LABELS + length(*value).max(length(high)) + 6, middle);
            area.draw_text(&number(*value), &text(15, HPos::Left), end).ok()?;
        }
        area.present().ok()?;
    }
    Some(svg)
}
