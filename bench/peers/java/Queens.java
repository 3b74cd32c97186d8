import java.util.Arrays;

/** `queens`: solvers place queens; they send boards with few queens back to the master, and solve the others. */
final class Queens {
    /** The columns of the queens in the first rows. */
    private record Board(int[] queens) {}

    private static final Board SOLUTION = new Board(null);
    private static final Board DONE = new Board(null);
    private static final Board STOP = new Board(null);

    private final int size;
    private final long threshold;
    private final Mailbox<Board> master = new Mailbox<>();

    private Queens(int size, long threshold) {
        this.size = size;
        this.threshold = threshold;
    }

    static void run(Peer peer) {
        Queens queens = new Queens((int) peer.count(), peer.setting("threshold"));
        long solutions = Savina.measure(peer, () -> queens.distribute(peer.setting("solvers")));
        peer.check("solutions", solutions, queens.count(0, 0, 0));
    }

    /** The master: it gives boards to the solvers in turn, until all have been worked on. */
    private long distribute(long count) {
        Mailbox<Board>[] solvers = Savina.mailboxes(count);
        for (Mailbox<Board> solver : solvers) {
            Processes.start(() -> solve(solver));
        }
        solvers[0].send(new Board(new int[0]));
        int turn = 1;
        long solutions = 0;
        for (long open = 1; open > 0;) {
            Board message = master.receive();
            if (message == SOLUTION) {
                solutions++;
            } else if (message == DONE) {
                open--;
            } else {
                open++;
                solvers[turn++ % solvers.length].send(message);
            }
        }
        for (Mailbox<Board> solver : solvers) {
            solver.send(STOP);
        }
        return solutions;
    }

    private void solve(Mailbox<Board> mailbox) {
        Board board;
        while ((board = mailbox.receive()) != STOP) {
            int depth = board.queens.length;
            if (depth < Math.min(threshold, size)) {
                divide(board.queens);
            } else {
                search(Arrays.copyOf(board.queens, size), depth);
            }
            master.send(DONE);
        }
    }

    /** Sends each board with a further queen to the master. */
    private void divide(int[] queens) {
        int depth = queens.length;
        for (int column = 0; column < size; column++) {
            if (isSafe(column, queens, depth)) {
                int[] further = Arrays.copyOf(queens, depth + 1);
                further[depth] = column;
                master.send(new Board(further));
            }
        }
    }

    /** Sends each solution of a board to the master. */
    private void search(int[] queens, int depth) {
        if (depth == size) {
            master.send(SOLUTION);
            return;
        }
        for (int column = 0; column < size; column++) {
            if (isSafe(column, queens, depth)) {
                queens[depth] = column;
                search(queens, depth + 1);
            }
        }
    }

    private static boolean isSafe(int column, int[] queens, int depth) {
        for (int distance = 1; distance <= depth; distance++) {
            int step = Math.abs(queens[depth - distance] - column);
            if (step == 0 || step == distance) {
                return false;
            }
        }
        return true;
    }

    /** Counts the solutions of a board whose taken columns and diagonals are sets of bits. */
    private long count(long columns, long rising, long falling) {
        long all = (1L << size) - 1;
        if (columns == all) {
            return 1;
        }
        long solutions = 0;
        for (long free = all & ~(columns | rising | falling); free != 0; free &= free - 1) {
            long queen = free & -free;
            solutions += count(columns | queen, (rising | queen) << 1, (falling | queen) >> 1);
        }
        return solutions;
    }
}
