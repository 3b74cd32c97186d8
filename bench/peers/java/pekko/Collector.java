import java.time.Duration;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.apache.pekko.actor.typed.javadsl.StashBuffer;

/**
 * `fan` and `burst`: an actor sends numbers round robin to receivers, which report once per chunk. The first
 * chunk is one number for each receiver.
 */
final class Collector {
    private static final Tally RECEIVED = new Tally();

    /** The message that opens the latch of a receiver in `burst`. */
    private static final long OPEN = -1;

    /** The end of the first chunk, and the length of each chunk between the first and the last. */
    private final int receivers;
    private final long chunk;
    /** Numbers in all. */
    private final long total;
    private final ActorRef<Long>[] mailboxes;
    private long next;
    private long reports;

    static void runFan(Peer peer, Driver driver) {
        long count = peer.count();
        Collector collector = new Collector(peer, driver, peer.setting("chunk"), false);
        driver.whenComplete(RECEIVED, () -> {
            Tally sent = new Tally();
            sent.arm(1);
            long clock = System.nanoTime();
            driver.start(collector.sender(sent));
            driver.whenComplete(sent, () -> {
                long elapsed = System.nanoTime() - clock;
                peer.metric("delivered_ns", (double) elapsed / count);
                collector.settle(peer, driver);
            });
        });
    }

    static void runBurst(Peer peer, Driver driver) {
        Collector collector = new Collector(peer, driver, 0, true);
        driver.whenComplete(RECEIVED, () -> {
            Tally sent = new Tally();
            long residentBefore = Memory.resident();
            sent.arm(1);
            driver.start(Behaviors.setup(context -> {
                collector.sendChunk();
                sent.add(0);
                return Behaviors.stopped();
            }));
            driver.whenComplete(sent, () -> {
                long resident = Memory.resident();
                for (ActorRef<Long> mailbox : collector.mailboxes) {
                    mailbox.tell(OPEN);
                }
                driver.whenComplete(RECEIVED, () -> {
                    long growth = Math.max(0, resident - residentBefore);
                    peer.metric("bytes_per_message", (double) growth / peer.count());
                    peer.metric("peak_rss_bytes", Memory.peak());
                    collector.settle(peer, driver);
                });
            });
        });
    }

    /** Starts the receivers, and sends the first chunk. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private Collector(Peer peer, Driver driver, long chunk, boolean latched) {
        RECEIVED.reset();
        receivers = (int) peer.setting("receivers");
        total = receivers + peer.count();
        // A multiple of the receivers, so that each gets as many; a single chunk if it is zero.
        this.chunk = chunk == 0 ? total : (chunk + receivers - 1) / receivers * receivers;
        mailboxes = new ActorRef[receivers];
        for (int index = 0; index < receivers; index++) {
            mailboxes[index] = driver.start(latched ? latched(index) : unlatched(index));
        }
        sendChunk();
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
            mailboxes[to].tell(value);
            to = to + 1 == mailboxes.length ? 0 : to + 1;
        }
        next = end;
    }

    /** The sender of `fan`: it sends a chunk, and the next one when its message says that this one has arrived. */
    private Behavior<Boolean> sender(Tally sent) {
        return Behaviors.setup(context -> {
            sendChunk();
            context.pipeToSelf(RECEIVED.complete(), (result, error) -> true);
            return Behaviors.receiveMessage(received -> {
                if (next == total) {
                    sent.add(0);
                    return Behaviors.stopped();
                }
                sendChunk();
                context.pipeToSelf(RECEIVED.complete(), (result, error) -> true);
                return Behaviors.same();
            });
        });
    }

    private Behavior<Long> unlatched(int index) {
        return Behaviors.setup(context -> Behaviors.receiveMessage(new Receiver(index)::receive));
    }

    /** A receiver that stashes every number after its first until a message opens its latch. */
    private Behavior<Long> latched(int index) {
        int capacity = (int) (total / receivers + 1);
        return Behaviors.withStash(capacity, stash -> {
            Receiver receiver = new Receiver(index);
            return Behaviors.receiveMessage(value -> {
                receiver.receive(value);
                return waiting(receiver, stash);
            });
        });
    }

    private static Behavior<Long> waiting(Receiver receiver, StashBuffer<Long> stash) {
        return Behaviors.receiveMessage(value -> {
            if (value == OPEN) {
                return stash.unstashAll(Behaviors.receiveMessage(receiver::receive));
            }
            stash.stash(value);
            return Behaviors.same();
        });
    }

    private final class Receiver {
        private final Order order;
        private long end = end(0);
        private long sum;

        private Receiver(int index) {
            order = new Order(index, receivers);
        }

        private Behavior<Long> receive(long value) {
            long due = order.note(value);
            sum += value;
            if (due >= end) {
                RECEIVED.add(sum);
                sum = 0;
                end = end(end);
            }
            return Behaviors.same();
        }
    }

    /** Measures the memory after the work, and ends the workload. */
    private void settle(Peer peer, Driver driver) {
        driver.after(Duration.ofSeconds(peer.setting("settle")), () -> {
            peer.metric("rss_after_bytes", Memory.resident());
            peer.check("the sum received", RECEIVED.sum(), Peer.sumBelow(total));
            Order.check(peer);
            driver.finish();
        });
    }
}
