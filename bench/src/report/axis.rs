//! Parts of all figures: scales by value with round ticks, the chart with its grid, colours and texts.
//!
//! The page's style sheet colours the figures, so that they fit its light and its dark form: it knows them
//! by the colours that are written here.

use std::ops::Range;
use std::sync::LazyLock;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::row::{Row, SUBJECT};
use crate::runtimes;
use crate::table::human;
use crate::workloads::{self, Metric};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

pub(super) const WIDTH: u32 = 860;

/// Height of the title, and of the labels below an axis.
pub(super) const TOP: u32 = 34;
pub(super) const BELOW: u32 = 26;

/// Colours, for which the page's style sheet may have others.
pub(super) const INK: RGBColor = RGBColor(32, 32, 32);
pub(super) const GRID: RGBColor = RGBColor(216, 216, 216);
pub(super) const OURS: RGBColor = RGBColor(200, 80, 40);
pub(super) const OTHERS: RGBColor = RGBColor(110, 130, 160);

/// Most ticks of an axis.
const TICKS: usize = 8;

/// A scale, logarithmic or linear, and its ticks with their labels.
pub(super) struct Axis {
    from: f64,
    to: f64,
    pub(super) is_log: bool,
    pub(super) ticks: Vec<f64>,
    pub(super) label: Box<dyn Fn(f64) -> String>,
}

impl Axis {
    /// A logarithmic scale between round numbers around all values; a linear one if a value is not positive.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone, unit: &'static str) -> Axis {
        let (smallest, largest) = ends(values);
        if smallest <= 0.0 {
            return Axis::linear(smallest.min(0.0), largest, 0.0, unit);
        }
        let decades = smallest.log10().floor() as i32..=largest.log10().ceil() as i32 + 1;
        let round = |of: &'static [f64]| {
            let decades = decades.clone();
            decades.flat_map(|decade| of.iter().map(move |part| part * 10_f64.powi(decade)))
        };
        let fine: Vec<f64> = round(&[1.0, 2.0, 5.0]).collect();
        let from = fine.iter().rfind(|tick| **tick <= smallest).copied().unwrap_or(smallest);
        let to = fine.iter().find(|tick| **tick > from && **tick >= largest).copied();
        let to = to.unwrap_or(largest);
        let within = |tick: &f64| (from..=to).contains(tick);
        let mut ticks: Vec<f64> = fine.into_iter().filter(within).collect();
        if ticks.len() > TICKS {
            ticks = round(&[1.0]).filter(within).collect();
        }
        let every = ticks.len().div_ceil(TICKS);
        let ticks = ticks.into_iter().step_by(every).collect();
        Axis { from, to, is_log: true, ticks, label: Box::new(move |tick| human(tick, unit)) }
    }

    /// A linear scale whose ticks are round numbers, `least` apart or more.
    pub(super) fn linear(smallest: f64, largest: f64, least: f64, unit: &'static str) -> Axis {
        let wanted = (largest - smallest).max(f64::MIN_POSITIVE) / TICKS as f64;
        let decade = 10_f64.powf(wanted.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade);
        let step = steps.into_iter().find(|step| *step >= wanted).unwrap_or(wanted).max(least);
        let number_of = |value: f64| (value / step).ceil() as i64;
        let ticks = (-number_of(-smallest)..=number_of(largest)).map(|at| at as f64 * step);
        let ticks: Vec<f64> = ticks.collect();
        let (from, to) = ends(ticks.iter().copied());
        Axis { from, to, is_log: false, ticks, label: Box::new(move |tick| human(tick, unit)) }
    }

    /// A scale from the top to the bottom with a tick in the middle of each of the names.
    pub(super) fn names(names: Vec<String>) -> Axis {
        let ticks = (0..names.len()).map(|at| at as f64 + 0.5).collect();
        let (from, to) = (names.len() as f64, 0.0);
        let label = move |tick: f64| names.get(tick as usize).cloned().unwrap_or_default();
        Axis { from, to, is_log: false, ticks, label: Box::new(label) }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        let place = |value: f64| if self.is_log { value.max(self.from).log10() } else { value };
        let (from, to) = (place(self.from), place(self.to));
        let share = ((place(*value) - from) / (to - from)).clamp(0.0, 1.0);
        begin + (share * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let label = (self.label)(*value).replace(".00 ", " ").replace(".0 ", " ");
        label.strip_suffix(".0").map_or(label.clone(), str::to_owned)
    }
}

/// Draws the title, axes, ticks and grid of a chart that leaves room for names at both sides.
pub(super) fn chart<'a>(
    area: &Area<'a>,
    title: &str,
    (left, right): (u32, u32),
    (across, down): (Axis, Axis),
) -> Option<Chart<'a>> {
    area.draw_text(title, &text(19, HPos::Left), (4, TOP as i32 / 2 - 2)).ok()?;
    let mut builder = ChartBuilder::on(area);
    builder.margin_top(TOP).margin_right(right);
    builder.y_label_area_size(left).x_label_area_size(BELOW);
    let mut chart = builder.build_cartesian_2d(across, down).ok()?;
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK).bold_line_style(GRID).light_line_style(TRANSPARENT);
    mesh.label_style(("sans-serif", 16).into_font().color(&INK)).draw().ok()?;
    Some(chart)
}

pub(super) fn text(size: i32, horizontal: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", size).into_font();
    TextStyle::from(font).color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

/// Note in a title: the kind of the scale, and which values are better.
pub(super) fn note(is_rate: bool, scale: &Axis) -> String {
    let better = if is_rate { "more" } else { "less" };
    format!("{better} is better; {} scale", if scale.is_log { "logarithmic" } else { "linear" })
}

/// The lowest and the highest run of a metric with this median.
pub(super) fn range(row: &Row, metric: Metric, median: f64) -> (f64, f64) {
    row.values(metric.name).fold((median, median), |(low, high), run| (low.min(run), high.max(run)))
}

/// The runtimes whose names begin rows, in the order of `runtimes.toml`.
static FAMILIES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut families: Vec<&str> = Vec::new();
    for peer in workloads::all().iter().flat_map(|of| runtimes::peers(of.name)) {
        let family = runtimes::family(peer.runtime);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
});

/// The colour of a line, which rows of one runtime share. It is neither light nor dark, so that it fits both forms
/// of the page.
pub(super) fn color(runtime: &str) -> RGBColor {
    let family = runtimes::family(runtime);
    if family == SUBJECT {
        return OURS;
    }
    let at = FAMILIES.iter().position(|known| *known == family).unwrap_or(FAMILIES.len());
    // Steps of the golden ratio keep the hues of any few runtimes apart.
    let hue = (0.45 + 0.618_034 * at as f64).fract();
    let lightness = [0.48, 0.58][at % 2];
    let (red, green, blue) = HSLColor(hue, 0.5, lightness).to_backend_color().rgb;
    RGBColor(red, green, blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.format_ext(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_around_all_values() {
        let log = |values: &[f64]| labels(&Axis::log(values.iter().copied(), "ns"));
        assert_eq!(log(&[37.0, 640.0]), ["20 ns", "50 ns", "100 ns", "200 ns", "500 ns", "1 µs"]);
        assert_eq!(log(&[100.0]), ["100 ns", "200 ns"]);
        let wide = log(&[15.0, 2.5e9]);
        assert_eq!(wide, ["10 ns", "1 µs", "100 µs", "10 ms", "1 s"]);
        assert!(log(&[1.0, 1e12]).len() <= TICKS);
        assert_eq!(log(&[0.0, 400.0]).last().map(String::as_str), Some("400 ns"));
        let linear = Axis::linear(0.0, 2.0, 1.0, "1");
        assert_eq!(linear.ticks, [0.0, 1.0, 2.0]);
        assert_eq!(labels(&Axis::linear(-3e6, 5e6, 0.0, "bytes"))[..2], ["-3 MB", "-2 MB"]);
    }

    #[test]
    fn a_value_lies_where_its_ratio_to_the_ends_puts_it() {
        let axis = Axis::log([10.0, 1000.0].into_iter(), "ns");
        assert_eq!([10.0, 100.0, 1000.0].map(|value| axis.map(&value, (0, 200))), [0, 100, 200]);
        let axis = Axis::linear(0.0, 1000.0, 0.0, "ns");
        assert_eq!([0.0, 250.0, 1000.0].map(|value| axis.map(&value, (200, 0))), [200, 150, 0]);
    }

    #[test]
    fn every_runtime_has_a_colour_of_its_own() {
        let mut colors: Vec<_> = FAMILIES.iter().map(|family| color(family)).collect();
        colors.sort_by_key(|RGBColor(red, green, blue)| (*red, *green, *blue));
        assert!(colors.windows(2).all(|pair| pair[0] != pair[1]), "{colors:?}");
    }
}
