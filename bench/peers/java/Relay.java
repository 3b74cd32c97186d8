/** `pairs` and `ring`: rings of processes pass a number on, and each adds one to it. */
final class Relay {
    private static final Tally FINISHED = new Tally();

    private Relay() {}

    static void runPairs(Peer peer) throws Exception {
        long elapsed = measure(peer, (int) peer.setting("pairs"), 2);
        peer.metric("message_ns", (double) elapsed / peer.count());
    }

    static void runRing(Peer peer) throws Exception {
        long elapsed = measure(peer, 1, (int) peer.setting("processes"));
        peer.metric("wall_s", elapsed / 1e9);
        peer.metric("hop_ns", (double) elapsed / peer.count());
    }

    private static long measure(Peer peer, int rings, int size) throws InterruptedException {
        FINISHED.reset();
        long count = peer.count();
        @SuppressWarnings({"unchecked", "rawtypes"})
        Mailbox<Long>[] firsts = new Mailbox[rings];
        for (int ring = 0; ring < rings; ring++) {
            firsts[ring] = startRing(size, messages(count, ring, rings));
        }
        // A ring without a share of the messages does not begin.
        long begun = Math.min(rings, count);
        FINISHED.arm(begun);
        long clock = System.nanoTime();
        for (int ring = 0; ring < rings; ring++) {
            if (messages(count, ring, rings) > 0) {
                firsts[ring].send(0L);
            }
        }
        FINISHED.complete();
        long elapsed = System.nanoTime() - clock;

        peer.check("rings that finished", FINISHED.count(), begun);
        peer.check("messages passed on", FINISHED.sum(), count);
        Order.check(peer);
        return elapsed;
    }

    private static long messages(long count, long ring, long rings) {
        return Peer.shareBegin(count, ring + 1, rings) - Peer.shareBegin(count, ring, rings);
    }

    private static Mailbox<Long> startRing(int size, long messages) {
        @SuppressWarnings({"unchecked", "rawtypes"})
        Mailbox<Long>[] links = new Mailbox[size];
        for (int place = 0; place < size; place++) {
            links[place] = new Mailbox<>();
        }
        for (int place = 0; place < size; place++) {
            Mailbox<Long> mailbox = links[place];
            Mailbox<Long> next = links[(place + 1) % size];
            Order order = new Order(place, size);
            Processes.start(() -> pass(mailbox, next, order, messages));
        }
        return links[0];
    }

    private static void pass(Mailbox<Long> mailbox, Mailbox<Long> next, Order order, long messages) {
        while (true) {
            long value = mailbox.receive();
            order.note(value);
            long sent = value + 1;
            if (sent == messages) {
                FINISHED.add(sent);
            } else {
                next.send(sent);
            }
        }
    }
}
