//! Plot of a run as SVG: latency by percentile, and latency over time.
//!
//! ```text
//! ┌ title ────────────────────────────────────────┐
//! │ latency by percentile     latency over time    │
//! │ 10 ms ┤          ╱ all    10 ms ┤  ╱╲  max     │    both vertical axes: logarithmic, with
//! │  1 ms ┤────────╱           1 ms ┤─╱──╲─ p99    │    the same scale
//! │       └┬────┬────┬──            └┬─────┬────   │
//! │       50%  90%  99%              0 s   5 s     │
//! └────────────────────────────────────────────────┘
//! ```
//!
//! The horizontal axis of percentiles is logarithmic in the share of slower requests, so that each
//! further nine takes the same room. Colours follow the reader's light or dark scheme.

use std::fmt::Write as _;
use std::ops::Range;

use super::report::{Report, time};
use super::tally::{KindTally, Tally};

/// Line of a panel: its name, the class of its colour, and its points on the panel's scales.
struct Line {
    name: String,
    class: String,
    points: Vec<(f64, f64)>,
}

/// Panel with its place and its scales.
struct Panel {
    id: &'static str,
    title: &'static str,
    left: f64,
    /// Scale of the horizontal axis, in its own unit.
    across: Range<f64>,
    /// Scale of the vertical axis: logarithms to base 10 of microseconds.
    up: Range<f64>,
    ticks: Vec<(f64, String)>,
    lines: Vec<Line>,
}

pub(crate) fn draw(report: &Report, tally: &Tally) -> String {
    let up = scale(tally);
    let panels = [percentiles(tally, up.clone()), over_time(report, tally, up)];
    let mut svg = String::new();
    // Writing into a string cannot fail, here and below.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"latency by percentile and over time\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         <text class=\"title\" x=\"24\" y=\"30\">{}</text>\n",
        escape(&report.title()),
    );
    for panel in panels {
        panel.draw(&mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Latencies of all requests and of each kind, by percentile.
fn percentiles(tally: &Tally, up: Range<f64>) -> Panel {
    let mut lines = vec![curve("all", "all", &tally.all)];
    for (index, (kind, tally)) in tally.kinds.iter().enumerate() {
        lines.push(curve(kind.name(), &format!("c{index}"), tally));
    }
    // The last tick is the first power of ten beyond the slowest request.
    let nines = (tally.all.latency.len().max(10) as f64).log10().ceil().max(2.0);
    let mut ticks = vec![(0.5_f64.recip().log10(), "50%".to_owned())];
    for nine in 1..=nines as usize {
        let digits = "9".repeat(nine.saturating_sub(2));
        let text = if nine == 1 { "90%".to_owned() } else { format!("99.{digits}%") };
        ticks.push((nine as f64, text.replace(".%", "%")));
    }
    Panel {
        id: "percentiles",
        title: "latency by percentile",
        left: LEFT,
        across: 0.0..nines,
        up,
        ticks,
        lines,
    }
}

fn curve(name: &str, class: &str, tally: &KindTally) -> Line {
    let count = tally.latency.len() as f64;
    let mut points = Vec::new();
    if count > 0.0 {
        let slowest = count.log10();
        for step in 0..=CURVE_STEPS {
            let nines = slowest * f64::from(step) / f64::from(CURVE_STEPS);
            let latency = tally.latency.value_at_quantile(1.0 - 10.0_f64.powf(-nines));
            points.push((nines, log(latency)));
        }
    }
    Line { name: name.to_owned(), class: class.to_owned(), points }
}

/// Percentiles of the windows, at the middle of each.
fn over_time(report: &Report, tally: &Tally, up: Range<f64>) -> Panel {
    let line = |name: &str, class: &str, latency: fn(&KindTally) -> u64| {
        let windows = tally.windows.iter().enumerate();
        let answered = windows.filter(|(_, window)| !window.latency.is_empty());
        let points = answered.map(|(index, window)| {
            let middle = (index as f64 + 0.5) * tally.window.as_secs_f64();
            (middle.min(report.seconds), log(latency(window)))
        });
        Line { name: name.to_owned(), class: class.to_owned(), points: points.collect() }
    };
    let quarter = |part: u32| {
        let at = report.seconds * f64::from(part) / 4.0;
        (at, if report.seconds < 40.0 { format!("{at:.1} s") } else { format!("{at:.0} s") })
    };
    Panel {
        id: "time",
        title: "latency over time",
        left: LEFT + PANEL_WIDTH + GAP,
        across: 0.0..report.seconds.max(f64::MIN_POSITIVE),
        up,
        ticks: (0..=4).map(quarter).collect(),
        lines: vec![
            line("max", "c1", |window| window.latency.max()),
            line("p99", "c2", |window| window.latency.value_at_quantile(0.99)),
            line("p50", "c0", |window| window.latency.value_at_quantile(0.5)),
        ],
    }
}

/// Returns whole powers of ten around all latencies.
fn scale(tally: &Tally) -> Range<f64> {
    let low = log(tally.all.latency.min()).floor();
    // The windows round more, and may exceed the maximum.
    let high = (log(tally.all.latency.max()) + 0.01).ceil();
    low..high.max(low + 1.0)
}

/// Logarithm of microseconds; times below one microsecond count as one.
fn log(micros: u64) -> f64 {
    (micros.max(1) as f64).log10()
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        let Range { start, end } = self.across;
        self.left + PANEL_WIDTH * (value - start) / (end - start)
    }

    fn y(&self, value: f64) -> f64 {
        let Range { start, end } = self.up;
        TOP + PANEL_HEIGHT * (end - value) / (end - start)
    }

    fn draw(&self, svg: &mut String) {
        let (left, right, bottom) = (self.left, self.left + PANEL_WIDTH, TOP + PANEL_HEIGHT);
        let _ = writeln!(
            svg,
            "<g id=\"{}\">\n<text class=\"head\" x=\"{left}\" y=\"{}\">{}</text>",
            self.id,
            TOP - 34.0,
            self.title
        );
        for power in self.up.start as i32..=self.up.end as i32 {
            let y = self.y(f64::from(power));
            let micros = 10_u64.saturating_pow(power.unsigned_abs());
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>\
                 <text class=\"left\" x=\"{}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                y + 4.0,
                power_of_ten(micros),
            );
        }
        for (at, text) in &self.ticks {
            let x = self.x(*at);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
                 <text class=\"below\" x=\"{x:.1}\" y=\"{}\">{text}</text>",
                bottom + 18.0,
            );
        }
        let mut legend = left;
        for line in &self.lines {
            let mut path = String::new();
            for (index, (x, y)) in line.points.iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{:.1} {:.1}", self.x(*x), self.y(*y));
            }
            let _ = writeln!(
                svg,
                "<path class=\"line {class}\" d=\"{path}\"/>\
                 <path class=\"line {class}\" d=\"M{legend:.1} {y}h14\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{}</text>",
                legend + 18.0,
                TOP - 12.0,
                escape(&line.name),
                class = line.class,
                y = TOP - 16.0,
            );
            legend += 34.0 + 7.0 * line.name.len() as f64;
        }
        svg.push_str("</g>\n");
    }
}

/// Writes a power of ten in the shortest way.
fn power_of_ten(micros: u64) -> String {
    let text = time(micros);
    text.replace(".00", "").replace(".0 ", " ")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Size of the picture and of its parts, in the unit of its view box.
const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const TOP: f64 = 104.0;
const PANEL_WIDTH: f64 = 424.0;
const PANEL_HEIGHT: f64 = 252.0;
const GAP: f64 = 84.0;

/// Points of a curve: one for every two units of its width.
const CURVE_STEPS: u32 = 200;

/// Colours for both schemes; each contrasts with its background by at least 3 to 1.
const STYLE: &str = "\
:root{--page:#fff;--ink:#1b1f24;--soft:#57606a;--grid:#e3e6ea;\
--c0:#0969da;--c1:#cf222e;--c2:#8250df;--c3:#1a7f37;--c4:#9a6700;--c5:#bf3989}\
@media (prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#e6edf3;--soft:#9aa4af;\
--grid:#262c34;--c0:#58a6ff;--c1:#ff7b72;--c2:#bc8cff;--c3:#3fb950;--c4:#d29922;--c5:#f778ba}}\
.page{fill:var(--page)}text{font:12px system-ui,sans-serif;fill:var(--soft)}\
.title{font-size:15px;fill:var(--ink)}.head{font-size:13px;font-weight:600;fill:var(--ink)}\
.left{text-anchor:end}.below{text-anchor:middle}.grid{stroke:var(--grid);fill:none}\
.line{fill:none;stroke-width:1.5;stroke-linejoin:round}.all{stroke:var(--ink);stroke-width:2.5}\
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}\
.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}";
