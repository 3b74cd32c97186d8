/** `churn`: start a process, call it once, make it exit; in sequence. */
final class Churn {
    private static final Tally EXITED = new Tally();

    private Churn() {}

    static void run(Peer peer) throws Exception {
        EXITED.reset();
        long count = peer.count();
        long warmup = peer.setting("warmup");
        long cycles = warmup + count;
        long replies = cycleAll(0, warmup);
        long residentBefore = Memory.resident();

        long clock = System.nanoTime();
        replies += cycleAll(warmup, cycles);
        long elapsed = System.nanoTime() - clock;
        long resident = Memory.resident();

        peer.metric("cycle_ns", (double) elapsed / count);
        peer.metric("rss_growth_bytes", Math.max(0, resident - residentBefore));
        peer.check("correct replies", replies, cycles);
        peer.check("processes that exited", EXITED.count(), cycles);
        peer.check("the sum of their states", EXITED.sum(), Peer.sumBelow(cycles));
    }

    /** Runs a cycle for each value, then waits until all processes so far have exited. */
    private static long cycleAll(long begin, long end) throws InterruptedException {
        long replies = 0;
        EXITED.arm(end);
        for (long value = begin; value < end; value++) {
            Service process = Service.start(value, EXITED);
            long reply = process.call(1);
            process.stop();
            replies += reply == value + 1 ? 1 : 0;
        }
        EXITED.complete();
        return replies;
    }
}
