/** `skynet`: a tree of processes, ten children to each; a process reports the sum to its parent, and exits. */
final class Skynet {
    private Skynet() {}

    static void run(Peer peer) {
        long count = peer.count();
        Mailbox<Long> sums = new Mailbox<>();
        long clock = System.nanoTime();
        start(sums, 0, count);
        Long sum = sums.receive(300);
        long elapsed = System.nanoTime() - clock;
        peer.metric("wall_s", elapsed / 1e9);
        peer.check("roots that reported", sum == null ? 0 : 1, 1);
        peer.check("the sum", sum == null ? -1 : sum, Peer.sumBelow(count));
    }

    private static void start(Mailbox<Long> parent, long begin, long end) {
        Processes.start(() -> parent.send(sum(begin, end)));
    }

    private static long sum(long begin, long end) {
        long count = end - begin;
        if (count == 1) {
            return begin;
        }
        Mailbox<Long> sums = new Mailbox<>();
        long parts = Math.min(count, 10);
        for (long part = 0; part < parts; part++) {
            start(sums,
                begin + Peer.shareBegin(count, part, parts),
                begin + Peer.shareBegin(count, part + 1, parts));
        }
        long sum = 0;
        for (long part = 0; part < parts; part++) {
            sum += sums.receive();
        }
        return sum;
    }
}
