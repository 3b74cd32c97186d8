import java.util.function.Supplier;

/**
 * Parts that the workloads of Savina share. The class of a workload W does the steps of
 * bench/src/workloads/savina/W.rs; its first process starts all others, and returns a report. Counts that a process
 * reports are in the order in which the workload checks them.
 */
final class Savina {
    /** The last number that nobody needs; never read. */
    private static volatile long used;

    private Savina() {}

    /** Savina's generator of numbers below 65536, started with an actor's index. */
    static final class Random {
        private long value;

        Random(long index) {
            value = index + 1;
        }

        long next() {
            value = (value * 1309 + 13849) & 65535;
            return value;
        }

        long below(long bound) {
            return next() % bound;
        }

        /** Draws some numbers; returns the last. */
        long advance(long steps) {
            for (; steps > 0; steps--) {
                next();
            }
            return value;
        }

        void add(long number) {
            value += number;
        }
    }

    /** Runs the first process until it returns its report, and records the time. */
    static <R> R measure(Peer peer, Supplier<R> first) {
        Mailbox<R> reports = new Mailbox<>();
        long clock = System.nanoTime();
        Processes.start(() -> reports.send(first.get()));
        R report = reports.receive(300);
        peer.metric("wall_s", (System.nanoTime() - clock) / 1e9);
        if (report == null) {
            throw new IllegalStateException("no report within 300 s");
        }
        return report;
    }

    /** Keeps the thread for some steps of a generator. */
    static void busy(long steps) {
        use(new Random(0).advance(steps));
    }

    /** Makes the compiler compute a number that nobody needs. */
    static void use(long number) {
        used = number;
    }

    /** Mailboxes for some processes. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static <M> Mailbox<M>[] mailboxes(long count) {
        Mailbox<M>[] mailboxes = new Mailbox[(int) count];
        for (int index = 0; index < count; index++) {
            mailboxes[index] = new Mailbox<>();
        }
        return mailboxes;
    }

    /** Receives reports and adds up their parts. */
    static long[] sum(Mailbox<long[]> reports, long count, int parts) {
        long[] sum = new long[parts];
        for (; count > 0; count--) {
            long[] report = reports.receive();
            for (int part = 0; part < parts; part++) {
                sum[part] += report[part];
            }
        }
        return sum;
    }

    /** 1 if a number is not the expected one, otherwise 0. */
    static long wrong(long found, long expected) {
        return found == expected ? 0 : 1;
    }
}
