import java.util.concurrent.atomic.AtomicLong;

/** The order in which a process must receive its numbers: each greater than the one before by a step. */
final class Order {
    private static final AtomicLong MISPLACED = new AtomicLong();

    private long due;
    private final long step;

    Order(long first, long step) {
        due = first;
        this.step = step;
    }

    /** Notes a number that was received; returns the number that must be received next. */
    long note(long value) {
        if (value != due) {
            MISPLACED.incrementAndGet();
        }
        due = value + step;
        return due;
    }

    static void check(Peer peer) {
        peer.check("messages received in the wrong order", MISPLACED.get(), 0);
    }
}
