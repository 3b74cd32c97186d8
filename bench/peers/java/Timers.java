import java.util.Arrays;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * `timers`: a process starts timers to itself, and cancels all but every hundredth.
 *
 * <p>The timers are those of a ScheduledThreadPoolExecutor with a thread, which removes what is cancelled
 * (setRemoveOnCancelPolicy), as its documentation advises; a timer sends the process its number.
 */
final class Timers {
    /** Timers that the process starts or cancels on a message; the last of them is not cancelled. */
    private static final int SLICE = 100;
    /** Shortest delay of a timer that fires, in milliseconds. */
    private static final long SHORTEST = 100;
    /** Time that a cancelled timer has to fire after it was due, at the end of the run. */
    private static final long GRACE_NS = 20_000_000;
    private static final long LIMIT_NS = 300_000_000_000L;
    /** The message on which the process goes on; any other is the number of a timer that has fired. */
    private static final Integer NEXT = -1;

    private final Mailbox<Integer> mailbox = new Mailbox<>();
    private final ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1, body -> {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    });
    private final int count;
    private final int live;
    private final long seconds;
    private final long longest;
    private final ScheduledFuture<?>[] armed;
    private final long[] due;
    private final long[] late;
    private int started;
    private int cancelled;
    private long startNs;
    private long cancelNs;
    private long residentBefore;
    private long resident;
    private int fired;
    private long sum;
    private int again;
    private int early;
    private int stray;

    private Timers(Peer peer) {
        count = (int) peer.count();
        live = (int) Math.min(peer.setting("live"), count);
        seconds = peer.setting("seconds");
        longest = peer.setting("longest");
        armed = new ScheduledFuture<?>[live];
        due = new long[count / SLICE];
        late = new long[count / SLICE];
        Arrays.fill(late, -1);
        executor.setRemoveOnCancelPolicy(true);
    }

    static void run(Peer peer) throws Exception {
        Timers timers = new Timers(peer);
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Processes.start(() -> {
            try {
                timers.live();
            } catch (Throwable error) {
                thrown.set(error);
            }
        }).join();
        if (thrown.get() != null) {
            throw new Exception("the process failed", thrown.get());
        }
        timers.executor.shutdownNow();
        timers.report(peer);
    }

    private void live() throws Exception {
        residentBefore = Memory.resident();
        while (started < count) {
            int end = Math.min(started + live, count);
            int arms = 0;
            long clock = System.nanoTime();
            while (started < end) {
                arms = start(Math.min(started + SLICE, end), arms);
                next();
            }
            startNs += System.nanoTime() - clock;
            if (resident == 0) {
                resident = Memory.resident();
            }
            clock = System.nanoTime();
            for (int at = 0; at < arms;) {
                for (int last = Math.min(at + SLICE, arms); at < last; at++) {
                    cancelled += armed[at].cancel(false) ? 1 : 0;
                }
                next();
            }
            cancelNs += System.nanoTime() - clock;
        }
        long over = System.nanoTime() + longest * 1_000_000 + GRACE_NS;
        handleUntil(over, Integer.MAX_VALUE);
        handleUntil(over + LIMIT_NS, count / SLICE);
    }

    /** Handles messages until a time, or until so many timers have fired. */
    private void handleUntil(long end, int fires) throws InterruptedException {
        while (fired < fires && System.nanoTime() - end < 0) {
            Integer number = mailbox.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (number != null) {
                fire(number);
            }
        }
    }

    /** Starts timers below a number; returns how many of the round are to be cancelled. */
    private int start(int end, int arms) {
        for (; started < end; started++) {
            int number = started;
            Runnable send = () -> mailbox.send(number);
            if (number % SLICE != SLICE - 1) {
                armed[arms++] = executor.schedule(send, seconds, TimeUnit.SECONDS);
                continue;
            }
            int k = number / SLICE;
            long delay = SHORTEST + k * 607L % (Math.max(0, longest - SHORTEST) + 1);
            due[k] = System.nanoTime() + delay * 1_000_000;
            executor.schedule(send, delay, TimeUnit.MILLISECONDS);
        }
        return arms;
    }

    /** Sends the process a message, and handles all until this one. */
    private void next() {
        mailbox.send(NEXT);
        for (Integer number = mailbox.receive(); number != NEXT; number = mailbox.receive()) {
            fire(number);
        }
    }

    private void fire(int number) {
        if (number % SLICE != SLICE - 1) {
            stray++;
            return;
        }
        int k = number / SLICE;
        long after = System.nanoTime() - due[k];
        if (after < 0) {
            early++;
        } else if (late[k] >= 0) {
            again++;
        } else {
            late[k] = after;
        }
        fired++;
        sum += number;
    }

    private void report(Peer peer) {
        int fires = count / SLICE;
        long sumDue = 0;
        for (long k = 0; k < fires; k++) {
            sumDue += k * SLICE + SLICE - 1;
        }
        long[] latenesses = Arrays.stream(late).filter(after -> after >= 0).sorted().toArray();
        peer.metric("start_ns", (double) startNs / count);
        peer.metric("cancel_ns", (double) cancelNs / Math.max(1, count - fires));
        peer.distribution("late", probability -> at(latenesses, probability));
        peer.metric("bytes_per_timer", (double) Math.max(0, resident - residentBefore) / live);
        peer.check("timers that fired", fired, fires);
        peer.check("the sum of their numbers", sum, sumDue);
        peer.check("timers that fired again", again, 0);
        peer.check("timers that fired early", early, 0);
        peer.check("timers that were cancelled", cancelled, count - fires);
        peer.check("timers that fired though cancelled", stray, 0);
    }

    private static double at(long[] sorted, double quantile) {
        return sorted.length == 0 ? 0 : sorted[(int) (quantile * (sorted.length - 1))];
    }
}
