/** `sleep`: processes wait for a message with a time-out, until all have timed out. */
final class Sleep {
    private static final Tally TIMED_OUT = new Tally();
    private static final Tally EARLY = new Tally();
    /** Start of the clock, and the time-out; static, so that no process holds either. */
    private static long begun;
    private static long seconds;

    private Sleep() {}

    static void run(Peer peer) throws Exception {
        TIMED_OUT.reset();
        int count = (int) peer.count();
        seconds = peer.setting("seconds");
        TIMED_OUT.arm(count);
        begun = System.nanoTime();
        Object[] kept = new Object[count];
        for (int value = 0; value < count; value++) {
            kept[value] = start(value);
        }
        TIMED_OUT.complete();
        long finished = System.nanoTime();

        long started = 0;
        for (Object mailbox : kept) {
            started += mailbox == null ? 0 : 1;
        }
        peer.metric("peak_rss_bytes", Memory.peak());
        peer.metric("finished_s", (finished - begun) / 1e9);
        peer.check("processes that were started", started, count);
        peer.check("processes that timed out", TIMED_OUT.count(), count);
        peer.check("the sum of their states", TIMED_OUT.sum(), Peer.sumBelow(count));
        peer.check("processes that timed out early", EARLY.count(), 0);
    }

    private static Mailbox<Object> start(long value) {
        Mailbox<Object> mailbox = new Mailbox<>();
        Processes.start(() -> {
            if (mailbox.receive(seconds) == null) {
                if (System.nanoTime() - begun < seconds * 1_000_000_000) {
                    EARLY.add(value);
                }
                TIMED_OUT.add(value);
            }
        });
        return mailbox;
    }
}
