//! `queens`: all ways to place N queens on a board of N × N. Savina's `nqueenk`.
//!
//! ```text
//! master ── board ─→ solver (round robin) ── boards with a queen more ─→ master    below the threshold
//!                    solver ── solution × n, done ─→ master                         from the threshold on
//! ```
//!
//! - From `threshold` queens on a solver finds all solutions of a board by itself. Each is a message to the
//!   master, which has finished when as many boards are done as it has sent.
//! - Boards have no priorities here.
//! - The driver counts the solutions by another method: with sets of columns and diagonals as bits.

use super::*;

pub(crate) struct Queens;

impl OnActors for Queens {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let make = |reporter| Master::<H> {
            size: settings.count as usize,
            count: settings.get("solvers"),
            threshold: settings.get("threshold") as usize,
            solvers: Vec::new(),
            next: 0,
            sent: 0,
            report: Report::default(),
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("solutions", report.solutions, solutions(settings.count, 0, 0, 0));
        Ok(outcome)
    }
}

/// Counts the solutions of a board whose taken columns and diagonals are sets of bits.
fn solutions(size: u64, columns: u64, rising: u64, falling: u64) -> u64 {
    let all = (1 << size) - 1;
    if columns == all {
        return 1;
    }
    let mut free = all & !(columns | rising | falling);
    let mut count = 0;
    while free > 0 {
        let queen = free & free.wrapping_neg();
        free -= queen;
        count += solutions(size, columns | queen, (rising | queen) << 1, (falling | queen) >> 1);
    }
    count
}

/// The columns of the queens in the first rows.
type Board = Vec<u32>;

/// Whether a queen in a column of the next row threatens none of the board.
fn is_safe(board: &[u32], column: u32) -> bool {
    let distances = (1..).zip(board.iter().rev());
    distances
        .into_iter()
        .all(|(distance, &queen)| queen.abs_diff(column) != distance && queen != column)
}

#[derive(Default)]
struct Report {
    solutions: u64,
    done: u64,
}

struct Master<H: ActorHost> {
    size: usize,
    count: u64,
    threshold: usize,
    solvers: Vec<H::ActorAddress<Solver<H>>>,
    next: usize,
    sent: u64,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToMaster {
    Board(Board),
    Solution,
    Done,
}

impl<H: ActorHost> Master<H> {
    fn send(&mut self, board: Board) {
        H::tell(&self.solvers[self.next], ToSolver::Board(board));
        self.next = (self.next + 1) % self.solvers.len();
        self.sent += 1;
    }
}

impl<H: ActorHost> Actor<H> for Master<H> {
    type Message = ToMaster;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        for _ in 0..self.count {
            let (master, size, threshold) = (context.address(), self.size, self.threshold);
            self.solvers.push(context.start(Solver { master, size, threshold }));
        }
        self.send(Board::new());
    }

    fn handle(&mut self, message: ToMaster, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToMaster::Board(board) => self.send(board),
            ToMaster::Solution => self.report.solutions += 1,
            ToMaster::Done => {
                self.report.done += 1;
                if self.report.done == self.sent {
                    self.reporter.report(std::mem::take(&mut self.report));
                    self.solvers.iter().for_each(|solver| H::tell(solver, ToSolver::Exit));
                    context.stop();
                }
            }
        }
    }
}

struct Solver<H: ActorHost> {
    master: H::ActorAddress<Master<H>>,
    size: usize,
    threshold: usize,
}

enum ToSolver {
    Board(Board),
    Exit,
}

impl<H: ActorHost> Solver<H> {
    /// Sends each board with a queen more to the master.
    fn divide(&self, board: &[u32]) {
        for column in (0..self.size as u32).filter(|column| is_safe(board, *column)) {
            H::tell(&self.master, ToMaster::Board([board, &[column]].concat()));
        }
    }

    /// Sends each solution of the board to the master.
    fn solve(&self, board: &mut Board) {
        if board.len() == self.size {
            return H::tell(&self.master, ToMaster::Solution);
        }
        for column in 0..self.size as u32 {
            if is_safe(board, column) {
                board.push(column);
                self.solve(board);
                board.pop();
            }
        }
    }
}

impl<H: ActorHost> Actor<H> for Solver<H> {
    type Message = ToSolver;

    fn handle(&mut self, message: ToSolver, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToSolver::Board(mut board) => {
                if board.len() < self.threshold.min(self.size) {
                    self.divide(&board);
                } else {
                    self.solve(&mut board);
                }
                H::tell(&self.master, ToMaster::Done);
            }
            ToSolver::Exit => context.stop(),
        }
    }
}
