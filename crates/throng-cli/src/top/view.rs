//! Layout and drawing of a [`Screen`].
//!
//! ```text
//! title     location of the node, uptime
//! counts    processes, messages, memory
//! workers   a gauge each, or a column each if there are many
//! sparkline messages per second
//! rows      table or tree
//! info      the selected process, on request
//! help      the keys
//! ```

use std::mem;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::client::{Report, ViewMode};
use super::figures;
use super::rows::{self, Column};
use super::screen::{ORDERS, Rates, Screen};
use throng_node::admin::wire::{Metrics, Process};

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let worker_rows = match &screen.report {
        Some(report) => worker_rows(report.metrics.workers.len(), frame.area().width),
        None => 0,
    };
    let info_rows = if screen.shows_info { INFO_ROWS } else { 0 };
    let [title, counts, workers, spark, table, info, help] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(worker_rows),
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(info_rows),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, screen);
    draw_help(frame, help, screen);
    let Some(report) = &screen.report else {
        frame.render_widget(Paragraph::new("waiting for the node …"), counts);
        return;
    };
    draw_counts(frame, counts, &report.metrics, &screen.rates);
    draw_workers(frame, workers, &screen.rates.busy, report.metrics.workers.len());
    let history: Vec<u64> = screen.history.iter().copied().collect();
    let shown = history.len().saturating_sub(usize::from(spark.width));
    frame.render_widget(
        Sparkline::default().data(&history[shown..]).style(Style::new().fg(Color::Cyan)),
        spark,
    );
    draw_rows(frame, table, screen, report);
    if screen.shows_info {
        draw_info(frame, info, screen);
    }
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let mut spans = vec![
        Span::styled("throng top", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {}", screen.place)),
    ];
    if let Some(report) = &screen.report {
        spans.push(Span::raw(format!("  up {}", figures::uptime(report.metrics.uptime_seconds))));
    }
    if !screen.filter.is_empty() {
        let filter = format!("  only {:?}", screen.filter);
        spans.push(Span::styled(filter, Style::new().fg(Color::Yellow)));
    }
    if screen.paused {
        spans.push(Span::styled("  paused", Style::new().fg(Color::Yellow)));
    }
    if let Some(error) = &screen.error {
        spans.push(Span::styled(format!("  {error}"), Style::new().fg(Color::Red)));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_counts(frame: &mut Frame<'_>, area: Rect, metrics: &Metrics, rates: &Rates) {
    let count = |number: u64| figures::count(number as f64);
    let rate = |number: f64| format!("{}/s", figures::count(number));
    let limit = format!(" of {}", figures::bytes(metrics.mailbox_bytes_limit));
    let lines = [
        figures_line(&[
            (
                "processes",
                format!("{} of {}", count(metrics.processes), count(metrics.process_limit)),
                false,
            ),
            ("spawned", rate(rates.spawned), false),
            ("exited", rate(rates.exited), false),
            ("panics", count(metrics.panicked), metrics.panicked > 0),
        ]),
        figures_line(&[
            ("messages", rate(rates.turns), false),
            ("mailboxes", figures::bytes(metrics.mailbox_bytes) + &limit, false),
            ("ready", count(metrics.ready()), false),
            ("stuck", count(metrics.stuck_turns()), metrics.stuck_turns() > 0),
        ]),
    ];
    frame.render_widget(Paragraph::new(lines.to_vec()), area);
}

/// Formats names and numbers in columns of equal width; alarming numbers are red.
fn figures_line(pairs: &[(&'static str, String, bool)]) -> Line<'static> {
    let spans = pairs.iter().flat_map(|(name, number, alarms)| {
        let style = if *alarms { Style::new().fg(Color::Red) } else { Style::new() };
        let style = style.add_modifier(Modifier::BOLD);
        [
            Span::styled(format!("{name} "), Style::new().fg(Color::DarkGray)),
            Span::styled(format!("{number:<width$}", width = FIGURE_WIDTH - name.len()), style),
        ]
    });
    Line::from(spans.collect::<Vec<_>>())
}

/// Returns the number of rows for the workers.
fn worker_rows(workers: usize, width: u16) -> u16 {
    let gauges = usize::from(width / GAUGE_WIDTH).max(1);
    let rows = workers.div_ceil(gauges);
    if rows <= WORKER_ROWS_MAX { rows as u16 } else { 1 }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, busy: &[f64], workers: usize) {
    let busy = |worker: usize| busy.get(worker).copied().unwrap_or(0.0);
    let gauges = usize::from(area.width / GAUGE_WIDTH).max(1);
    if workers.div_ceil(gauges) > WORKER_ROWS_MAX {
        const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let columns: String =
            (0..workers).map(|worker| HEIGHTS[(busy(worker) * 8.0).round() as usize]).collect();
        frame.render_widget(Line::from(format!("workers {columns}")), area);
        return;
    }
    for worker in 0..workers {
        let (row, column) = (worker / gauges, worker % gauges);
        let place = Rect {
            x: area.x + column as u16 * GAUGE_WIDTH,
            y: area.y + row as u16,
            width: GAUGE_WIDTH,
            height: 1,
        };
        let filled = (busy(worker) * BAR_CELLS as f64).round() as usize;
        let gauge = Line::from(vec![
            Span::raw(format!("{worker:>3} ")),
            Span::styled("█".repeat(filled), Style::new().fg(Color::Green)),
            Span::styled("░".repeat(BAR_CELLS - filled), Style::new().fg(Color::DarkGray)),
            Span::raw(format!(" {:>3.0}% ", busy(worker) * 100.0)),
        ]);
        frame.render_widget(gauge, place.intersection(area));
    }
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, screen: &Screen, report: &Report) {
    let columns = rows::columns(&report.rows);
    let sorted_by = match screen.mode {
        ViewMode::Top(order) | ViewMode::Sums(order) => {
            ORDERS.iter().find(|(_, by, _)| *by == order).map(|(.., name)| *name)
        }
        ViewMode::Tree => None,
    };
    let fitting = rows::fitting(columns, area.width, sorted_by);
    let shown = || columns.iter().enumerate().filter(|(at, _)| fitting[*at]);
    let header = Row::new(shown().map(|(_, column)| {
        let sorts = Some(column.name) == sorted_by;
        let name = if sorts { format!("▼{}", column.name) } else { column.name.to_owned() };
        Cell::from(aligned(column, name))
    }))
    .style(Style::new().add_modifier(Modifier::REVERSED));
    let body = rows::of(&report.rows);
    let body = body.into_iter().map(|mut row| {
        Row::new(shown().map(|(at, column)| Cell::from(aligned(column, mem::take(&mut row[at])))))
    });
    let widths = shown().map(|(_, column)| match column.width {
        0 => Constraint::Min(1),
        width => Constraint::Length(width),
    });
    let table = Table::new(body, widths)
        .header(header)
        .row_highlight_style(Style::new().bg(Color::Blue).fg(Color::White));
    let mut state = TableState::default().with_selected(screen.selected_row());
    frame.render_stateful_widget(table, area, &mut state);
}

fn aligned(column: &Column, text: String) -> Line<'static> {
    let line = Line::from(text);
    if column.is_number { line.right_aligned() } else { line }
}

fn draw_info(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let title = screen.selected().map_or_else(String::new, |pid| format!(" {pid} "));
    let text = match (screen.info(), screen.selected()) {
        (Some(process), _) => info_lines(process),
        (None, Some(_)) => {
            vec![Line::from("the process has exited, or the node has not answered yet")]
        }
        (None, None) => vec![Line::from("select a process with the arrow keys")],
    };
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}

fn info_lines(process: &Process) -> Vec<Line<'static>> {
    rows::facts(process)
        .into_iter()
        .map(|(name, fact)| {
            Line::from(vec![
                Span::styled(format!("{name:<14}"), Style::new().fg(Color::DarkGray)),
                Span::raw(fact),
            ])
        })
        .collect()
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    if let Some(typed) = &screen.typing {
        let prompt = Span::styled("filter ", Style::new().add_modifier(Modifier::BOLD));
        let keys = Span::styled("  enter apply  esc cancel", Style::new().fg(Color::DarkGray));
        frame.render_widget(Line::from(vec![prompt, Span::raw(format!("{typed}▏")), keys]), area);
        return;
    }
    let view = match screen.mode {
        ViewMode::Top(_) | ViewMode::Sums(_) => "tree",
        ViewMode::Tree => "table",
    };
    let grouped = if matches!(screen.mode, ViewMode::Sums(_)) { "single" } else { "group" };
    let orders = ORDERS.iter().map(|(key, _, name)| (key.to_string(), name.to_lowercase()));
    let rest = [
        ("v", view),
        ("g", grouped),
        ("/", "filter"),
        ("q", "quit"),
        ("enter", "info"),
        ("space", "pause"),
        ("↑↓", "select"),
    ];
    let rest = rest.map(|(key, what)| (key.to_owned(), what.to_owned()));
    let spans = orders.chain(rest).flat_map(|(key, what)| {
        let key = Span::styled(key, Style::new().add_modifier(Modifier::BOLD));
        [key, Span::raw(format!(" {what}  "))]
    });
    frame.render_widget(Line::from(spans.collect::<Vec<_>>()), area);
}

/// Height of the panel for the selected process, in rows.
const INFO_ROWS: u16 = 12;

/// Maximum number of rows of gauges; beyond it, each worker is a column of a single row.
const WORKER_ROWS_MAX: usize = 4;

/// Width of a gauge: number, bar, percentage.
const GAUGE_WIDTH: u16 = 24;
const BAR_CELLS: usize = 14;

/// Width of a name and its number together.
const FIGURE_WIDTH: usize = 27;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::top::client::Rows;
    use crate::top::screen::tests::{report, screen, tree};
    use throng_node::admin::wire::{KindSums, Order, Worker};

    /// Returns the lines of the screen, drawn in the given size.
    fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        buffer
            .content
            .chunks(usize::from(width))
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) {
        let _ = screen.press(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn the_table_is_drawn_with_counts_gauges_and_keys() {
        let mut screen = screen();
        screen.show(report(10.0, 100, "ab"));
        screen.show(report(12.0, 100_100, "ab"));
        let lines = drawn(&screen, 110, 14);
        let expected = [
            "throng top  here  up 00:00:12",
            "processes 2 of 1.0k        spawned 500.0k/s           exited 0/s                 panics 0",
            "messages 50.0k/s           mailboxes 0 B of 0 B              ready 0                    stuck 0",
            "  0 ███████░░░░░░░  50%   1 ░░░░░░░░░░░░░░   0%",
            "█",
            "█",
            "PID            KIND                                     STATE      MAILBOX      BYTES    ▼MEMORY    TURNS  LONGEST",
            "a              A                                        idle             0        0 B    2.0 KiB        –        –",
            "b              B                                        idle             0        0 B    2.0 KiB        –        –",
        ];
        for (line, expected) in lines.iter().zip(expected) {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed(line), squeezed(expected), "{lines:#?}");
        }
        let help = lines.last().unwrap();
        for word in ["l mailbox", "m memory", "v tree", "q quit"] {
            assert!(help.contains(word), "{help}");
        }
    }

    #[test]
    fn no_width_cuts_a_number() {
        let process = Process {
            mailbox_len: 12_345,
            mailbox_bytes: 1023,
            memory_bytes: 944,
            ..Process::default()
        };
        let mut screen = screen();
        screen.show(Report { rows: Rows::Top(vec![process]), ..report(1.0, 0, "a") });
        let mut shown = 0;
        for width in 1..=120 {
            let lines = drawn(&screen, width, 14);
            let at = lines.iter().position(|line| line.contains("KIND"));
            let Some(at) = at else { continue };
            for (name, text) in [("MEMORY", " 944 B"), ("BYTES", " 1023 B"), ("MAILBOX", " 12.3k")]
            {
                let has_column = lines[at].contains(name);
                assert_eq!(lines[at + 1].contains(text), has_column, "{width}: {lines:#?}");
                shown += usize::from(has_column);
            }
        }
        // The order is by memory, so that column goes last; the others leave room for the title.
        assert!(shown > 200, "{shown}");
    }

    #[test]
    fn sums_are_drawn_and_a_filter_is_shown_while_it_is_typed_and_afterwards() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Char('g'));
        let sums = KindSums {
            kind: Some("Feeder<Connection>".to_owned()),
            processes: 40,
            ..KindSums::default()
        };
        screen.show(Report { rows: Rows::Sums(vec![sums]), ..report(1.0, 0, "a") });
        for key in ['/', 'f', 'e'] {
            press(&mut screen, KeyCode::Char(key));
        }
        let lines = drawn(&screen, 110, 12);
        let row = lines.iter().find(|line| line.starts_with("Feeder<Connection>")).unwrap();
        assert_eq!(row.split_whitespace().nth(1), Some("40"), "{lines:#?}");
        assert!(lines.last().unwrap().starts_with("filter fe"), "{lines:#?}");
        press(&mut screen, KeyCode::Enter);
        assert!(drawn(&screen, 110, 12)[0].contains("only \"fe\""));
    }

    #[test]
    fn the_tree_is_indented() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Char('v'));
        screen.show(tree("abc"));
        let lines = drawn(&screen, 80, 16).join("\n");
        assert!(lines.contains("\nA ") && lines.contains("\n  B ") && lines.contains("\n    C "));
        assert!(lines.contains("PROCESS") && lines.contains("v table"), "{lines}");
    }

    #[test]
    fn the_selected_process_is_shown_in_full() {
        let mut screen = screen();
        let info = Process {
            pid: "a".to_owned(),
            r#type: Some("app::A".to_owned()),
            handler: Some("Deposit".to_owned()),
            links: vec!["b".to_owned(), "c".to_owned()],
            turns: Some(12),
            longest_turn_seconds: Some(0.25),
            ..Process::default()
        };
        screen.show(report(1.0, 0, "ab"));
        press(&mut screen, KeyCode::Enter);
        let waiting = drawn(&screen, 80, 30).join("\n");
        assert!(waiting.contains("has not answered"), "{waiting}");
        screen.show(Report { info: Some(info), ..report(2.0, 0, "ab") });
        let lines = drawn(&screen, 80, 30).join("\n");
        for fact in ["app::A", "idle in Deposit", "b c", "12, longest 250.0ms"] {
            assert!(lines.contains(fact), "{fact}: {lines}");
        }
    }

    #[test]
    fn errors_and_pauses_are_shown() {
        let mut screen = screen();
        assert!(drawn(&screen, 80, 10)[1].contains("waiting"));
        screen.show(report(1.0, 0, "a"));
        screen.fail("no node is running".to_owned());
        press(&mut screen, KeyCode::Char(' '));
        let title = &drawn(&screen, 80, 10)[0];
        assert!(title.contains("paused") && title.contains("no node is running"), "{title}");
        screen.show(report(2.0, 0, "a"));
        assert!(!drawn(&screen, 80, 10)[0].contains("no node"));
    }

    #[test]
    fn any_size_and_any_number_of_workers_can_be_drawn() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (24, 9), (23, 9), (300, 100)] {
            for workers in [0, 1, 7, 64, 500] {
                let mut screen = screen();
                let mut report = report(1.0, 0, "abc");
                report.metrics.workers = vec![Worker::default(); workers];
                screen.show(report);
                press(&mut screen, KeyCode::Enter);
                drawn(&screen, width, height);
            }
        }
        let mut screen = screen();
        for busy in [0.0, 1.0] {
            let mut report = report(1.0 + busy, 0, "a");
            let worker = Worker { busy_seconds: busy, ..Worker::default() };
            report.metrics.workers = vec![worker; 64];
            screen.show(report);
        }
        let lines = drawn(&screen, 80, 12);
        assert!(lines[3].ends_with(&"█".repeat(64)), "{lines:#?}");
    }

    #[test]
    fn each_order_is_marked_in_the_header_that_names_it() {
        for (key, order, name) in ORDERS {
            let mut screen = screen();
            press(&mut screen, KeyCode::Char(key));
            assert_eq!(screen.mode, ViewMode::Top(order));
            screen.show(report(1.0, 0, "a"));
            let lines = drawn(&screen, 110, 12).join("\n");
            assert!(lines.contains(&format!("▼{name}")), "{lines}");
            assert!(rows::TOP.iter().any(|column| column.name == name));
        }
        assert!(matches!(ORDERS[0].1, Order::MailboxLen));
    }
}
