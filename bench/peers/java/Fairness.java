/** `fairness`: a process is called while other processes flood themselves; for platform threads only. */
final class Fairness {
    private static final Tally RUNNING = new Tally();
    private static final Tally STOPPED = new Tally();
    private static volatile boolean stop;

    private Fairness() {}

    static void run(Peer peer) throws Exception {
        if (!Processes.arePlatform()) {
            throw new UnsupportedOperationException("a virtual thread that floods itself is never preempted");
        }
        RUNNING.reset();
        STOPPED.reset();
        stop = false;
        long flooders = peer.setting("flooders");
        long pause = peer.setting("pause");
        Service callee = Service.start(1, new Tally());
        @SuppressWarnings({"unchecked", "rawtypes"})
        Mailbox<Long>[] mailboxes = new Mailbox[(int) flooders];
        for (int index = 0; index < flooders; index++) {
            mailboxes[index] = start(index);
        }
        long[] latencies = new long[(int) peer.count()];
        long replies = 0;

        RUNNING.arm(flooders);
        STOPPED.arm(flooders);
        long flooding = System.nanoTime();
        for (Mailbox<Long> mailbox : mailboxes) {
            mailbox.send(0L);
        }
        RUNNING.complete();
        for (int value = 0; value < latencies.length; value++) {
            Thread.sleep(pause);
            long clock = System.nanoTime();
            replies += Calls.call(callee, value);
            latencies[value] = System.nanoTime() - clock;
        }
        stop = true;
        STOPPED.complete();
        long flooded = System.nanoTime() - flooding;

        Calls.percentiles(peer, "latency", latencies);
        peer.metric("message_ns", (double) flooded / Math.max(1, STOPPED.sum()));
        peer.check("correct replies", replies, latencies.length);
        peer.check("flooders that ran", RUNNING.count(), flooders);
        peer.check("the sum of their numbers", RUNNING.sum(), Peer.sumBelow(flooders));
        peer.check("flooders that stopped", STOPPED.count(), flooders);
        Order.check(peer);
    }

    private static Mailbox<Long> start(long index) {
        Mailbox<Long> mailbox = new Mailbox<>();
        Processes.start(() -> {
            Order order = new Order(0, 1);
            while (true) {
                long value = mailbox.receive();
                long next = order.note(value);
                if (value == 0) {
                    RUNNING.add(index);
                }
                if (stop) {
                    STOPPED.add(next);
                } else {
                    mailbox.send(next);
                }
            }
        });
        return mailbox;
    }
}
