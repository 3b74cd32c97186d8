import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.function.Supplier;
import org.apache.pekko.actor.typed.ActorRef;

/** `call` and `calls`: an actor, or many at once, call a service, and each reply is checked. */
final class Calls {
    private final Peer peer;
    private final Driver driver;
    private final List<ActorRef<Service.Message>> callees = new ArrayList<>();
    private final Tally done = new Tally();
    private final long[] latencies;
    private long clock;
    private long elapsed;

    private Calls(Peer peer, Driver driver) {
        this.peer = peer;
        this.driver = driver;
        latencies = new long[(int) peer.setting("samples")];
    }

    /** Starts the callees, and runs a step when each has replied once. */
    private void start(Driver.Step step) {
        long size = peer.setting("callees");
        Tally exited = new Tally();
        for (long index = 0; index < size; index++) {
            callees.add(driver.start(Service.create(1, exited)));
        }
        Iterator<ActorRef<Service.Message>> each = callees.iterator();
        done.arm(1);
        driver.start(Caller.create(each::next, 0, size, null, done));
        driver.whenComplete(done, step);
    }

    static void runSequential(Peer peer, Driver driver) {
        Calls calls = new Calls(peer, driver);
        Pick pick = new Pick((int) peer.setting("callees"));
        Supplier<ActorRef<Service.Message>> random = () -> calls.callees.get(pick.next());
        calls.start(() -> {
            calls.done.arm(2);
            calls.clock = System.nanoTime();
            driver.start(Caller.create(random, 0, peer.count(), null, calls.done));
            driver.whenComplete(calls.done, () -> {
                calls.elapsed = System.nanoTime() - calls.clock;
                calls.done.arm(3);
                driver.start(Caller.create(random, 0, calls.latencies.length, calls.latencies, calls.done));
                driver.whenComplete(calls.done, calls::report);
            });
        });
    }

    static void runConcurrent(Peer peer, Driver driver) {
        Calls calls = new Calls(peer, driver);
        long callers = peer.setting("callers");
        calls.start(() -> {
            calls.done.arm(1 + callers);
            calls.clock = System.nanoTime();
            calls.startCallers(callers, peer.count(), null);
            driver.whenComplete(calls.done, () -> {
                calls.elapsed = System.nanoTime() - calls.clock;
                calls.done.arm(1 + 2 * callers);
                calls.startCallers(callers, calls.latencies.length, calls.latencies);
                driver.whenComplete(calls.done, () -> {
                    peer.check("callers that finished, in two rounds", calls.done.count() - 1, 2 * callers);
                    calls.report();
                });
            });
        });
    }

    /** Starts callers, which divide some calls among them. */
    private void startCallers(long callers, long count, long[] latencies) {
        for (long caller = 0; caller < callers; caller++) {
            ActorRef<Service.Message> callee = callees.get((int) (caller % callees.size()));
            long begin = Peer.shareBegin(count, caller, callers);
            long end = Peer.shareBegin(count, caller + 1, callers);
            driver.start(Caller.create(() -> callee, begin, end, latencies, done));
        }
    }

    private void report() {
        peer.metric("round_trip_ns", (double) elapsed / peer.count());
        percentiles(peer, latencies);
        long timed = Arrays.stream(latencies).filter(nanoseconds -> nanoseconds > 0).count();
        peer.check("correct replies", done.sum(), callees.size() + peer.count() + latencies.length);
        peer.check("calls that were timed separately", timed, latencies.length);
        driver.finish();
    }

    static void percentiles(Peer peer, long[] latencies) {
        Arrays.sort(latencies);
        peer.distribution("latency", probability -> quantile(latencies, probability));
    }

    private static long quantile(long[] sorted, double quantile) {
        return sorted[Math.max(1, (int) Math.ceil(quantile * sorted.length)) - 1];
    }

    /** Random indices below a bound: xorshift64* with a fixed seed, as in the runtimes in Rust. */
    private static final class Pick {
        private long state = 0x9E37_79B9_7F4A_7C15L;
        private final long bound;

        private Pick(long bound) {
            this.bound = bound;
        }

        private int next() {
            state ^= state >>> 12;
            state ^= state << 25;
            state ^= state >>> 27;
            long random = state * 0x2545_F491_4F6C_DD1DL;
            // The upper half of the unsigned product.
            return (int) (Math.multiplyHigh(random, bound) + (random >> 63 & bound));
        }
    }
}
