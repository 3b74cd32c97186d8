import java.util.concurrent.CountDownLatch;

/**
 * `fan` and `burst`: a process sends numbers round robin to receivers, which report once per chunk. The
 * first chunk is one number for each receiver.
 */
final class Collector {
    private static final Tally RECEIVED = new Tally();

    /** The end of the first chunk, and the length of each chunk between the first and the last. */
    private final long receivers;
    private final long chunk;
    /** Numbers in all. */
    private final long total;
    /** The latch at which a receiver waits after its first number; open from the start in `fan`. */
    private final CountDownLatch latch;
    private final Mailbox<Long>[] mailboxes;
    private long next;
    private long reports;

    static void runFan(Peer peer) throws Exception {
        long count = peer.count();
        Collector collector = new Collector(peer, peer.setting("chunk"), new CountDownLatch(0));
        Tally sent = new Tally();
        sent.arm(1);
        long clock = System.nanoTime();
        Processes.start(() -> {
            try {
                while (collector.next < collector.total) {
                    collector.sendChunk();
                    RECEIVED.complete();
                }
            } catch (InterruptedException error) {
                throw new IllegalStateException("no process is interrupted", error);
            }
            sent.add(0);
        });
        sent.complete();
        long elapsed = System.nanoTime() - clock;
        peer.metric("delivered_ns", (double) elapsed / count);
        Thread.sleep(peer.setting("settle") * 1000);
        peer.metric("rss_after_bytes", Memory.resident());
        collector.check(peer);
    }

    static void runBurst(Peer peer) throws Exception {
        CountDownLatch latch = new CountDownLatch(1);
        Collector collector = new Collector(peer, 0, latch);
        Tally sent = new Tally();
        long residentBefore = Memory.resident();
        sent.arm(1);
        Processes.start(() -> {
            collector.sendChunk();
            sent.add(0);
        });
        sent.complete();
        long resident = Memory.resident();
        latch.countDown();
        RECEIVED.complete();
        peer.metric("bytes_per_message", (double) Math.max(0, resident - residentBefore) / peer.count());
        peer.metric("peak_rss_bytes", Memory.peak());
        Thread.sleep(peer.setting("settle") * 1000);
        peer.metric("rss_after_bytes", Memory.resident());
        collector.check(peer);
    }

    /** Starts the receivers, and sends the first chunk; returns when it has been received. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private Collector(Peer peer, long chunk, CountDownLatch latch) throws InterruptedException {
        RECEIVED.reset();
        receivers = peer.setting("receivers");
        total = receivers + peer.count();
        // A multiple of the receivers, so that each gets as many; a single chunk if it is zero.
        this.chunk = chunk == 0 ? total : (chunk + receivers - 1) / receivers * receivers;
        this.latch = latch;
        mailboxes = new Mailbox[(int) receivers];
        for (int index = 0; index < receivers; index++) {
            mailboxes[index] = start(index);
        }
        sendChunk();
        RECEIVED.complete();
    }

    private long end(long begin) {
        return Math.min(begin + (begin == 0 ? receivers : chunk), total);
    }

    private void sendChunk() {
        long end = end(next);
        // Every chunk begins with the first receiver; the last chunk may not reach all of them.
        reports += Math.min(receivers, end - next);
        RECEIVED.arm(reports);
        int to = 0;
        for (long value = next; value < end; value++) {
            mailboxes[to].send(value);
            to = to + 1 == mailboxes.length ? 0 : to + 1;
        }
        next = end;
    }

    private Mailbox<Long> start(long index) {
        Mailbox<Long> mailbox = new Mailbox<>();
        Processes.start(() -> {
            Order order = new Order(index, receivers);
            long end = end(0);
            long sum = 0;
            while (true) {
                long value = mailbox.receive();
                long due = order.note(value);
                sum += value;
                if (due >= end) {
                    RECEIVED.add(sum);
                    sum = 0;
                    end = end(end);
                }
                if (value < receivers) {
                    await();
                }
            }
        });
        return mailbox;
    }

    private void await() {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException("no process is interrupted", error);
        }
    }

    private void check(Peer peer) {
        peer.check("the sum received", RECEIVED.sum(), Peer.sumBelow(total));
        Order.check(peer);
    }
}
