//! State of the live view and its reaction to keys, without a terminal or a clock.
//!
//! Rates are differences between two reports, divided by the difference of the node's uptime, so a
//! late answer does not distort them.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::client::{Query, Report, Rows, ViewMode};
use throng_node::admin::wire::{Metrics, Order, Process};

/// State of the live view.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Location of the node, for display.
    pub(crate) place: String,
    pub(crate) mode: ViewMode,
    pub(crate) report: Option<Report>,
    pub(crate) rates: Rates,
    /// Messages per second, the latest last.
    pub(crate) history: VecDeque<u64>,
    /// Error of the last query, which left the report out of date.
    pub(crate) error: Option<String>,
    pub(crate) paused: bool,
    pub(crate) shows_info: bool,
    /// Text that the processes of the table must have in kind, label or name.
    pub(crate) filter: String,
    /// Filter that is being typed.
    pub(crate) typing: Option<String>,
    selected: Option<String>,
    order: Order,
    limit: usize,
}

/// Events per second between the last two reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) turns: f64,
    pub(crate) spawned: f64,
    pub(crate) exited: f64,
    /// Share of time for which each worker was busy, from 0 to 1.
    pub(crate) busy: Vec<f64>,
}

/// Action that a key requests from the event loop.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Nothing,
    /// The query has changed: ask the node at once.
    Ask,
    Quit,
}

impl Screen {
    pub(crate) fn new(place: String, order: Order, limit: usize) -> Screen {
        Screen {
            place,
            mode: ViewMode::Top(order),
            report: None,
            rates: Rates::default(),
            history: VecDeque::new(),
            error: None,
            paused: false,
            shows_info: false,
            filter: String::new(),
            typing: None,
            selected: None,
            order,
            limit,
        }
    }

    /// Returns the query for the node.
    pub(crate) fn query(&self) -> Query {
        let pid = self.selected.clone().filter(|_| self.shows_info);
        Query { rows: self.mode, limit: self.limit, filter: self.filter.clone(), pid }
    }

    /// Takes the node's answer.
    pub(crate) fn show(&mut self, report: Report) {
        self.error = None;
        if let Some(rates) =
            self.report.as_ref().and_then(|before| Rates::between(&before.metrics, &report.metrics))
        {
            self.history.push_back(rates.turns as u64);
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
            self.rates = rates;
        }
        self.report = Some(report);
    }

    /// Records that the node did not answer; the previous report stays on the screen.
    pub(crate) fn fail(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Returns the index of the selected row, if there is one.
    pub(crate) fn selected_row(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.pids().iter().position(|pid| pid == selected)
    }

    /// Returns the pid of the selected process, which may have exited.
    pub(crate) fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }

    /// Returns the details of the selected process, if the node has sent them.
    pub(crate) fn info(&self) -> Option<&Process> {
        let info = self.report.as_ref()?.info.as_ref()?;
        (Some(info.pid.as_str()) == self.selected()).then_some(info)
    }

    /// Handles a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') {
                KeyAction::Quit
            } else {
                KeyAction::Nothing
            };
        }
        if let Some(typed) = &mut self.typing {
            match key.code {
                KeyCode::Char(letter) => typed.push(letter),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Esc => self.typing = None,
                KeyCode::Enter => {
                    self.filter = self.typing.take().unwrap_or_default();
                    return KeyAction::Ask;
                }
                _ => {}
            }
            return KeyAction::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Char('/') => self.typing = Some(self.filter.clone()),
            KeyCode::Char('g') => {
                self.mode = match self.mode {
                    ViewMode::Sums(_) => ViewMode::Top(self.order),
                    ViewMode::Top(_) | ViewMode::Tree => ViewMode::Sums(self.order),
                };
                return KeyAction::Ask;
            }
            KeyCode::Esc if self.shows_info => self.shows_info = false,
            KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return if self.paused { KeyAction::Nothing } else { KeyAction::Ask };
            }
            KeyCode::Char('v') | KeyCode::Tab => {
                self.mode = match self.mode {
                    ViewMode::Top(_) | ViewMode::Sums(_) => ViewMode::Tree,
                    ViewMode::Tree => ViewMode::Top(self.order),
                };
                return KeyAction::Ask;
            }
            KeyCode::Enter | KeyCode::Char('i') => {
                self.shows_info = !self.shows_info;
                if self.selected_row().is_none() {
                    self.select(0);
                }
                return KeyAction::Ask;
            }
            KeyCode::Down | KeyCode::Char('j') => return self.step(1),
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1),
            KeyCode::PageDown => return self.step(PAGE),
            KeyCode::PageUp => return self.step(-PAGE),
            KeyCode::Home => return self.step(isize::MIN),
            KeyCode::End => return self.step(isize::MAX),
            KeyCode::Char(letter) => {
                if let Some((_, order, _)) = ORDERS.iter().find(|(key, ..)| *key == letter) {
                    self.order = *order;
                    self.mode = match self.mode {
                        ViewMode::Sums(_) => ViewMode::Sums(*order),
                        ViewMode::Top(_) | ViewMode::Tree => ViewMode::Top(*order),
                    };
                    return KeyAction::Ask;
                }
            }
            _ => {}
        }
        KeyAction::Nothing
    }

    fn step(&mut self, by: isize) -> KeyAction {
        let row = match self.selected_row() {
            Some(row) => row.saturating_add_signed(by),
            None => 0,
        };
        self.select(row);
        if self.shows_info { KeyAction::Ask } else { KeyAction::Nothing }
    }

    fn select(&mut self, row: usize) {
        let pids = self.pids();
        self.selected = pids.get(row.min(pids.len().saturating_sub(1))).map(|&pid| pid.to_owned());
    }

    fn pids(&self) -> Vec<&str> {
        match self.report.as_ref().map(|report| &report.rows) {
            Some(Rows::Top(processes)) => processes.iter().map(|one| one.pid.as_str()).collect(),
            Some(Rows::Tree(branches)) => branches.iter().map(|one| one.pid.as_str()).collect(),
            // A kind is no process.
            Some(Rows::Sums(_)) | None => Vec::new(),
        }
    }
}

impl Rates {
    /// Computes the rates between two reports, or `None` if they are from different runs of a node.
    fn between(before: &Metrics, now: &Metrics) -> Option<Rates> {
        let seconds = now.uptime_seconds - before.uptime_seconds;
        if seconds <= 0.0 || now.spawned < before.spawned {
            return None;
        }
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let busy = before.workers.iter().zip(&now.workers).map(|(before, now)| {
            ((now.busy_seconds - before.busy_seconds) / seconds).clamp(0.0, 1.0)
        });
        Some(Rates {
            turns: rate(before.turns(), now.turns()),
            spawned: rate(before.spawned, now.spawned),
            exited: rate(before.exited, now.exited),
            busy: busy.collect(),
        })
    }
}

/// Keys that choose an order, and the names of the columns.
pub(crate) const ORDERS: [(char, Order, &str); 5] = [
    ('l', Order::MailboxLen, "MAILBOX"),
    ('b', Order::MailboxBytes, "BYTES"),
    ('m', Order::Memory, "MEMORY"),
    ('t', Order::Turns, "TURNS"),
    ('x', Order::LongestTurn, "LONGEST"),
];

/// Maximum number of rates in the history: more than any screen has columns.
const HISTORY_MAX: usize = 512;

/// Number of rows that a page key moves.
const PAGE: isize = 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use throng_node::admin::wire::{TreeRow, Worker};

    /// Builds a report of processes that are named by the letters of `pids`, after `seconds`.
    pub(crate) fn report(seconds: f64, turns: u64, pids: &str) -> Report {
        let worker = |busy_seconds| Worker { turns: turns / 2, busy_seconds, ..Worker::default() };
        let process = |pid: char| Process {
            pid: pid.to_string(),
            kind: Some(pid.to_uppercase().to_string()),
            memory_bytes: 2048,
            ..Process::default()
        };
        Report {
            metrics: Metrics {
                uptime_seconds: seconds,
                processes: pids.len() as u64,
                process_limit: 1000,
                spawned: 10 * turns,
                workers: vec![worker(seconds / 2.0), worker(0.0)],
                ..Metrics::default()
            },
            rows: Rows::Top(pids.chars().map(process).collect()),
            info: None,
        }
    }

    /// Builds a report with the processes as a tree, each below the previous process.
    pub(crate) fn tree(pids: &str) -> Report {
        let branch = |(depth, pid): (usize, char)| TreeRow {
            depth,
            pid: pid.to_string(),
            kind: Some(pid.to_uppercase().to_string()),
            children: 1,
            ..TreeRow::default()
        };
        let rows = Rows::Tree(pids.chars().enumerate().map(branch).collect());
        Report { rows, ..report(1.0, 0, pids) }
    }

    pub(crate) fn screen() -> Screen {
        Screen::new("here".to_owned(), Order::Memory, 7)
    }

    fn press(screen: &mut Screen, code: KeyCode) -> KeyAction {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn rates_use_the_uptime_and_a_restarted_node_has_none() {
        let mut screen = screen();
        screen.show(report(10.0, 100, "a"));
        assert_eq!(screen.rates, Rates::default());
        screen.show(report(12.0, 300, "a"));
        let rates = Rates { turns: 100.0, spawned: 1000.0, exited: 0.0, busy: vec![0.5, 0.0] };
        assert_eq!(screen.rates, rates);
        screen.show(report(1.0, 4, "a"));
        assert_eq!((&screen.rates, screen.history.len()), (&rates, 1));
        for second in 2..1000 {
            screen.show(report(f64::from(second), 4, "a"));
        }
        assert_eq!(screen.history.len(), HISTORY_MAX);
    }

    #[test]
    fn keys_choose_the_query() {
        let mut screen = screen();
        assert_eq!(
            screen.query(),
            Query {
                rows: ViewMode::Top(Order::Memory),
                limit: 7,
                filter: String::new(),
                pid: None
            }
        );
        for (key, order, _) in ORDERS {
            assert_eq!(press(&mut screen, KeyCode::Char(key)), KeyAction::Ask);
            assert_eq!(screen.query().rows, ViewMode::Top(order));
        }
        assert_eq!(press(&mut screen, KeyCode::Tab), KeyAction::Ask);
        assert_eq!(screen.query().rows, ViewMode::Tree);
        assert_eq!(press(&mut screen, KeyCode::Char('v')), KeyAction::Ask);
        assert_eq!(screen.query().rows, ViewMode::Top(Order::LongestTurn));
        assert_eq!(press(&mut screen, KeyCode::Char('?')), KeyAction::Nothing);
        assert_eq!(press(&mut screen, KeyCode::Char('g')), KeyAction::Ask);
        assert_eq!(press(&mut screen, KeyCode::Char('m')), KeyAction::Ask);
        assert_eq!(screen.query().rows, ViewMode::Sums(Order::Memory));
        assert_eq!(press(&mut screen, KeyCode::Char('g')), KeyAction::Ask);
        assert_eq!(screen.query().rows, ViewMode::Top(Order::Memory));
    }

    #[test]
    fn a_filter_is_typed_and_asked_for_when_it_is_complete() {
        let mut screen = screen();
        let typed = |screen: &mut Screen, text: &str| {
            for letter in text.chars() {
                assert_eq!(press(screen, KeyCode::Char(letter)), KeyAction::Nothing);
            }
        };
        typed(&mut screen, "/quit");
        assert_eq!(press(&mut screen, KeyCode::Backspace), KeyAction::Nothing);
        assert_eq!(screen.query().filter, "", "it is not complete");
        assert_eq!(press(&mut screen, KeyCode::Enter), KeyAction::Ask);
        assert_eq!(screen.query().filter, "qui");
        typed(&mut screen, "/x");
        assert_eq!(press(&mut screen, KeyCode::Esc), KeyAction::Nothing);
        assert_eq!(screen.query().filter, "qui", "the one before stays");
        assert_eq!(press(&mut screen, KeyCode::Char('q')), KeyAction::Quit);
    }

    #[test]
    fn the_selection_stays_with_its_process() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, KeyCode::Down), KeyAction::Nothing);
        screen.show(report(1.0, 0, "abc"));
        for (key, row) in [
            (KeyCode::Down, 0),
            (KeyCode::Down, 1),
            (KeyCode::Up, 0),
            (KeyCode::Up, 0),
            (KeyCode::End, 2),
            (KeyCode::Down, 2),
            (KeyCode::Home, 0),
            (KeyCode::PageDown, 2),
        ] {
            assert_eq!(press(&mut screen, key), KeyAction::Nothing);
            assert_eq!(screen.selected_row(), Some(row), "{key:?}");
        }
        screen.show(report(2.0, 0, "cab"));
        assert_eq!((screen.selected(), screen.selected_row()), (Some("c"), Some(0)));
        screen.show(tree("bac"));
        assert_eq!(screen.selected_row(), Some(2));
        screen.show(report(3.0, 0, "ab"));
        assert_eq!((screen.selected(), screen.selected_row()), (Some("c"), None));
    }

    #[test]
    fn the_selected_process_is_asked_for_while_it_is_shown() {
        let mut screen = screen();
        screen.show(report(1.0, 0, "ab"));
        assert_eq!(press(&mut screen, KeyCode::Enter), KeyAction::Ask);
        assert_eq!(screen.query().pid.as_deref(), Some("a"));
        assert_eq!(press(&mut screen, KeyCode::Down), KeyAction::Ask);
        assert_eq!(screen.query().pid.as_deref(), Some("b"));
        // Details of a process that is no longer selected are not shown.
        let info = Process { pid: "a".to_owned(), ..Process::default() };
        screen.show(Report { info: Some(info), ..report(2.0, 0, "ab") });
        assert_eq!(screen.info(), None);
        let info = Process { pid: "b".to_owned(), ..Process::default() };
        screen.show(Report { info: Some(info.clone()), ..report(3.0, 0, "ab") });
        assert_eq!(screen.info(), Some(&info));
        assert_eq!(press(&mut screen, KeyCode::Esc), KeyAction::Nothing);
        assert_eq!(screen.query().pid, None);
    }

    #[test]
    fn keys_pause_and_quit() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, KeyCode::Char(' ')), KeyAction::Nothing);
        assert!(screen.paused);
        assert_eq!(press(&mut screen, KeyCode::Char(' ')), KeyAction::Ask);
        assert_eq!(press(&mut screen, KeyCode::Char('q')), KeyAction::Quit);
        assert_eq!(press(&mut screen, KeyCode::Esc), KeyAction::Quit);
        let with_control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(screen.press(with_control('c')), KeyAction::Quit);
        assert_eq!(screen.press(with_control('q')), KeyAction::Nothing);
    }
}
