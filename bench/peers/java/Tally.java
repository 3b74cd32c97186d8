import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Counts processes and adds up their values; the process that completes the armed count wakes the driver. */
final class Tally {
    /** Limit of each wait, so that a lost message cannot hang the benchmark. */
    private static final long TIMEOUT_SECONDS = 300;

    private final AtomicLong count = new AtomicLong();
    private final AtomicLong sum = new AtomicLong();
    private final Semaphore complete = new Semaphore(0);
    private volatile long armed = Long.MAX_VALUE;

    void add(long value) {
        sum.getAndAdd(value);
        if (count.incrementAndGet() == armed) {
            complete.release();
        }
    }

    /**
     * Sets the count that the next {@link #complete} waits for; called before any message is sent that
     * could complete that count.
     */
    void arm(long count) {
        armed = count;
    }

    /** Waits until the armed count is reached. After the time limit the check of the count fails. */
    void complete() throws InterruptedException {
        complete.tryAcquire(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    /** Begins anew; called while no process is counting. */
    void reset() {
        count.set(0);
        sum.set(0);
        armed = Long.MAX_VALUE;
    }

    long count() {
        return count.get();
    }

    long sum() {
        return sum.get();
    }
}
