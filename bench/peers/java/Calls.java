import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

/** `call` and `calls`: a process, or many at once, call a service, and each reply is checked. */
final class Calls {
    private Calls() {}

    static void runSequential(Peer peer) {
        long count = peer.count();
        long samples = peer.setting("samples");
        Service[] callees = callees(peer);
        long replies = callOnce(callees);
        Pick pick = new Pick(callees.length);

        long clock = System.nanoTime();
        for (long value = 0; value < count; value++) {
            replies += call(callees[pick.next()], value);
        }
        long elapsed = System.nanoTime() - clock;
        long[] latencies = new long[(int) samples];
        for (int value = 0; value < samples; value++) {
            Service callee = callees[pick.next()];
            long start = System.nanoTime();
            replies += call(callee, value);
            latencies[value] = System.nanoTime() - start;
        }

        peer.metric("round_trip_ns", (double) elapsed / count);
        percentiles(peer, "latency", latencies);
        peer.check("correct replies", replies, callees.length + count + samples);
    }

    static void runConcurrent(Peer peer) throws Exception {
        long count = peer.count();
        long samples = peer.setting("samples");
        long callers = peer.setting("callers");
        Service[] callees = callees(peer);
        long replies = callOnce(callees);
        Tally done = new Tally();
        done.arm(callers);

        long clock = System.nanoTime();
        for (long caller = 0; caller < callers; caller++) {
            Service callee = callees[(int) (caller % callees.length)];
            long begin = Peer.shareBegin(count, caller, callers);
            long end = Peer.shareBegin(count, caller + 1, callers);
            Processes.start(() -> {
                long correct = 0;
                for (long value = begin; value < end; value++) {
                    correct += call(callee, value);
                }
                done.add(correct);
            });
        }
        done.complete();
        long elapsed = System.nanoTime() - clock;

        long[] latencies = new long[(int) samples];
        AtomicInteger timed = new AtomicInteger();
        done.arm(2 * callers);
        for (long caller = 0; caller < callers; caller++) {
            Service callee = callees[(int) (caller % callees.length)];
            int begin = (int) Peer.shareBegin(samples, caller, callers);
            int end = (int) Peer.shareBegin(samples, caller + 1, callers);
            Processes.start(() -> {
                long correct = 0;
                for (int value = begin; value < end; value++) {
                    long start = System.nanoTime();
                    correct += call(callee, value);
                    latencies[value] = System.nanoTime() - start;
                }
                timed.addAndGet(end - begin);
                done.add(correct);
            });
        }
        done.complete();

        peer.metric("round_trip_ns", (double) elapsed / count);
        percentiles(peer, "latency", latencies);
        peer.check("callers that finished, in two rounds", done.count(), 2 * callers);
        peer.check("correct replies", replies + done.sum(), callees.length + count + samples);
        peer.check("calls that were timed separately", timed.get(), samples);
    }

    static void percentiles(Peer peer, String name, long[] latencies) {
        Arrays.sort(latencies);
        peer.distribution(name, probability -> quantile(latencies, probability));
    }

    private static long quantile(long[] sorted, double quantile) {
        return sorted[Math.max(1, (int) Math.ceil(quantile * sorted.length)) - 1];
    }

    private static Service[] callees(Peer peer) {
        Service[] callees = new Service[(int) peer.setting("callees")];
        Arrays.setAll(callees, index -> Service.start(1, new Tally()));
        return callees;
    }

    private static long callOnce(Service[] callees) {
        long replies = 0;
        for (int index = 0; index < callees.length; index++) {
            replies += call(callees[index], index);
        }
        return replies;
    }

    /** Calls a callee, and returns 1 if the reply is right, otherwise 0. */
    static long call(Service callee, long value) {
        return callee.call(value) == value + 1 ? 1 : 0;
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
