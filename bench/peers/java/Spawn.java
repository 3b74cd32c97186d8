/** `spawn`: live processes with a number each; they count themselves on a message, and exit on another. */
final class Spawn {
    private enum Message { COUNT, STOP }

    /** Addresses in a block of the driver's memory, which it drops once its processes are stopped. */
    private static final int ADDRESS_BLOCK = 1 << 20;

    private static final Tally COUNTED = new Tally();
    private static final Tally EXITED = new Tally();

    private Spawn() {}

    static void run(Peer peer) throws Exception {
        COUNTED.reset();
        EXITED.reset();
        long count = peer.count();
        int chunk = (int) peer.setting("chunk");
        Mailbox<Message>[][] processes = addresses(count);
        long residentBefore = Memory.resident();

        long spawning = System.nanoTime();
        long value = 0;
        for (Mailbox<Message>[] block : processes) {
            for (int at = 0; at < block.length; at++) {
                block[at] = start(value++);
            }
        }
        long spawned = System.nanoTime();
        long counted = 0;
        for (Mailbox<Message>[] block : processes) {
            for (int begin = 0; begin < block.length; begin += chunk) {
                int end = Math.min(begin + chunk, block.length);
                counted += end - begin;
                sendAll(block, begin, end, Message.COUNT, COUNTED, counted);
            }
        }
        long ready = System.nanoTime();
        long resident = Memory.resident();

        long stopping = System.nanoTime();
        long stopped = 0;
        for (int index = 0; index < processes.length; index++) {
            Mailbox<Message>[] block = processes[index];
            processes[index] = null;
            for (int begin = 0; begin < block.length; begin += chunk) {
                int end = Math.min(begin + chunk, block.length);
                stopped += end - begin;
                sendAll(block, begin, end, Message.STOP, EXITED, stopped);
            }
        }
        long exited = System.nanoTime();

        peer.metric("spawn_ns", (double) (spawned - spawning) / count);
        peer.metric("ready_ns", (double) (ready - spawning) / count);
        peer.metric("bytes_per_process", (double) Math.max(0, resident - residentBefore) / count);
        peer.metric("peak_rss_bytes", Memory.peak());
        peer.metric("exit_ns", (double) (exited - stopping) / count);
        peer.check("processes that counted themselves", COUNTED.count(), count);
        peer.check("the sum of their states", COUNTED.sum(), Peer.sumBelow(count));
        peer.check("processes that exited", EXITED.count(), count);
        peer.check("the sum of their last states", EXITED.sum(), Peer.sumBelow(count));
    }

    private static Mailbox<Message> start(long value) {
        Mailbox<Message> mailbox = new Mailbox<>();
        Processes.start(() -> {
            while (mailbox.receive() == Message.COUNT) {
                COUNTED.add(value);
            }
            EXITED.add(value);
        });
        return mailbox;
    }

    /** Sends a message to some processes of a block, and waits until all so far have acted on theirs. */
    private static void sendAll(
            Mailbox<Message>[] block, int begin, int end, Message message, Tally tally, long due)
            throws InterruptedException {
        tally.arm(due);
        for (int at = begin; at < end; at++) {
            block[at].send(message);
        }
        tally.complete();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Mailbox<Message>[][] addresses(long count) {
        int blocks = (int) ((count + ADDRESS_BLOCK - 1) / ADDRESS_BLOCK);
        Mailbox<Message>[][] addresses = new Mailbox[blocks][];
        for (int block = 0; block < blocks; block++) {
            long left = count - (long) block * ADDRESS_BLOCK;
            addresses[block] = new Mailbox[(int) Math.min(ADDRESS_BLOCK, left)];
        }
        return addresses;
    }
}
