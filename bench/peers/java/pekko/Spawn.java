import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `spawn`: live actors with a number each; they count themselves on a message, and stop on another. */
final class Spawn {
    private enum Message { COUNT, STOP }

    /** Addresses in a block of the driver's memory, which it drops once its actors are stopped. */
    private static final int ADDRESS_BLOCK = 1 << 20;

    private static final Tally COUNTED = new Tally();
    private static final Tally EXITED = new Tally();

    private final Peer peer;
    private final Driver driver;
    private final long count;
    private final int chunk;
    private final ActorRef<Message>[][] processes;
    private long residentBefore;
    private long resident;
    private long spawning;
    private long spawned;
    private long ready;
    private long stopping;

    private Spawn(Peer peer, Driver driver) {
        this.peer = peer;
        this.driver = driver;
        count = peer.count();
        chunk = (int) peer.setting("chunk");
        processes = addresses(count);
    }

    static void run(Peer peer, Driver driver) throws Exception {
        COUNTED.reset();
        EXITED.reset();
        new Spawn(peer, driver).spawnAll();
    }

    private void spawnAll() throws Exception {
        residentBefore = Memory.resident();
        spawning = System.nanoTime();
        long value = 0;
        for (ActorRef<Message>[] block : processes) {
            for (int at = 0; at < block.length; at++) {
                block[at] = driver.start(create(value++));
            }
        }
        spawned = System.nanoTime();
        countFrom(0);
    }

    private void countFrom(long begin) throws Exception {
        if (begin < count) {
            long end = sendChunk(begin, Message.COUNT, COUNTED);
            driver.whenComplete(COUNTED, () -> countFrom(end));
            return;
        }
        ready = System.nanoTime();
        resident = Memory.resident();
        stopping = System.nanoTime();
        stopFrom(0);
    }

    private void stopFrom(long begin) throws Exception {
        if (begin < count) {
            long end = sendChunk(begin, Message.STOP, EXITED);
            int index = (int) (begin / ADDRESS_BLOCK);
            if (end / ADDRESS_BLOCK > index || end == count) {
                processes[index] = null;
            }
            driver.whenComplete(EXITED, () -> stopFrom(end));
            return;
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
        driver.finish();
    }

    /** Sends a message to the actors of a chunk, which is part of one block; returns its end. */
    private long sendChunk(long begin, Message message, Tally tally) {
        ActorRef<Message>[] block = processes[(int) (begin / ADDRESS_BLOCK)];
        int first = (int) (begin % ADDRESS_BLOCK);
        int last = Math.min(first + chunk, block.length);
        tally.arm(begin + last - first);
        for (int at = first; at < last; at++) {
            block[at].tell(message);
        }
        return begin + last - first;
    }

    private static Behavior<Message> create(long value) {
        return Behaviors.receiveMessage(message -> {
            if (message == Message.COUNT) {
                COUNTED.add(value);
                return Behaviors.same();
            }
            return Behaviors.stopped(() -> EXITED.add(value));
        });
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static ActorRef<Message>[][] addresses(long count) {
        int blocks = (int) ((count + ADDRESS_BLOCK - 1) / ADDRESS_BLOCK);
        ActorRef<Message>[][] addresses = new ActorRef[blocks][];
        for (int block = 0; block < blocks; block++) {
            long left = count - (long) block * ADDRESS_BLOCK;
            addresses[block] = new ActorRef[(int) Math.min(ADDRESS_BLOCK, left)];
        }
        return addresses;
    }
}
