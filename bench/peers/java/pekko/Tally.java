import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Counts actors and adds up their values; the actor that completes the armed count completes a future. */
final class Tally {
    /** Limit of each wait, so that a lost message cannot hang the benchmark. */
    private static final long TIMEOUT_SECONDS = 300;

    private final AtomicLong count = new AtomicLong();
    private final AtomicLong sum = new AtomicLong();
    private volatile CompletableFuture<Void> complete;
    private volatile long armed = Long.MAX_VALUE;

    void add(long value) {
        sum.getAndAdd(value);
        if (count.incrementAndGet() == armed) {
            complete.complete(null);
        }
    }

    /**
     * Sets the count that the next {@link #complete} waits for; called before any message is sent that
     * could complete that count.
     */
    void arm(long count) {
        complete = new CompletableFuture<>();
        armed = count;
    }

    /** Completes when the armed count is reached. After the time limit the check of the count fails. */
    CompletionStage<Void> complete() {
        return complete.completeOnTimeout(null, TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    /** Begins anew; called while no actor is counting. */
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
