import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** `tasks`: threads that share a map, pass messages round a ring, and wait until they time out. */
final class Tasks {
    private static final int EACH = 4;

    /** A message round the ring: the task that sent it, and the number among its messages. */
    private record Item(long from, long number) {}

    private final long count;
    private final long seconds;
    private final ConcurrentHashMap<Long, Long> map = new ConcurrentHashMap<>();
    private final Mailbox<Item>[] mailboxes;
    private final long[] late;
    private final CountDownLatch going = new CountDownLatch(1);
    private final Tally ready = new Tally();
    private final Tally handled = new Tally();
    private final Tally timedOut = new Tally();
    private final Tally exited = new Tally();
    private final AtomicLong early = new AtomicLong();
    private final AtomicLong misplaced = new AtomicLong();
    private final AtomicLong wrong = new AtomicLong();

    @SuppressWarnings("unchecked")
    private Tasks(Peer peer) {
        count = peer.count();
        seconds = peer.setting("seconds");
        mailboxes = (Mailbox<Item>[]) new Mailbox<?>[(int) count];
        late = new long[(int) count];
        Arrays.fill(late, Long.MAX_VALUE);
    }

    static void run(Peer peer) throws Exception {
        new Tasks(peer).measure(peer);
    }

    private void measure(Peer peer) throws Exception {
        ready.arm(count);
        long clock = System.nanoTime();
        for (int index = 0; index < count; index++) {
            int number = index;
            mailboxes[index] = new Mailbox<>();
            Processes.start(() -> work(number));
        }
        long spawned = System.nanoTime() - clock;
        ready.complete();
        long readied = System.nanoTime() - clock;
        long readyBytes = Memory.resident();

        handled.arm(count);
        exited.arm(count);
        clock = System.nanoTime();
        going.countDown();
        handled.complete();
        long passed = System.nanoTime() - clock;
        exited.complete();
        long peak = Memory.peak();
        long after = Memory.resident();

        map.forEach((key, value) -> note(value == valueOf(key)));
        peer.metric("spawn_ns", (double) spawned / count);
        peer.metric("ready_ns", (double) readied / count);
        peer.metric("ready_rss_bytes", readyBytes);
        peer.metric("messages_per_s", count * EACH * 1e9 / passed);
        Calls.percentiles(peer, "late", late);
        peer.metric("peak_rss_bytes", peak);
        peer.metric("rss_after_bytes", after);
        peer.check("tasks that were ready", ready.count(), count);
        peer.check("entries of the map", map.size(), count);
        peer.check("entries with a wrong value", wrong.get(), 0);
        peer.check("tasks that handled all their messages", handled.count(), count);
        peer.check("the sum of the messages", handled.sum(), Peer.sumBelow(count * EACH));
        peer.check("messages received in the wrong order", misplaced.get(), 0);
        peer.check("tasks that timed out", timedOut.count(), count);
        peer.check("tasks that timed out early", early.get(), 0);
        peer.check("tasks that exited", exited.count(), count);
        peer.check("the sum of their numbers", exited.sum(), Peer.sumBelow(count));
    }

    private void work(int index) {
        map.put((long) index, valueOf(index));
        long key = keyFor(index);
        Long value = map.get(key);
        note(value == null || value == valueOf(key));
        ready.add(index);
        try {
            going.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException("no process is interrupted", error);
        }

        Mailbox<Item> next = mailboxes[(int) ((index + 1) % count)];
        for (int number = 0; number < EACH; number++) {
            next.send(new Item(index, number));
        }
        long sum = 0;
        for (int due = 0; due < EACH; due++) {
            Item item = mailboxes[index].receive();
            if ((item.from + 1) % count != index || item.number != due) {
                misplaced.incrementAndGet();
            }
            sum += item.from * EACH + item.number;
        }
        handled.add(sum);

        long since = System.nanoTime();
        if (mailboxes[index].receive(seconds) == null) {
            long after = System.nanoTime() - since - seconds * 1_000_000_000;
            if (after < 0) {
                early.incrementAndGet();
            } else {
                late[index] = after;
            }
            timedOut.add(index);
        }
        exited.add(index);
    }

    private void note(boolean isRight) {
        if (!isRight) {
            wrong.incrementAndGet();
        }
    }

    private static long valueOf(long key) {
        return key * 0x9E37_79B9_7F4A_7C15L >>> 7;
    }

    private long keyFor(long index) {
        long mixed = (index ^ index >>> 15) * 0xD6E8_FEB8_6659_FD93L;
        return Long.remainderUnsigned(mixed ^ mixed >>> 32, count);
    }
}
