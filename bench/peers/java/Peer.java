import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.DoubleUnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;

/**
 * The Java peer: virtual threads, or with THREADS=platform in the environment, platform threads.
 *
 * <p>A process is a thread with a {@link Mailbox}; a call is a message with a CompletableFuture for its
 * reply. This is the style that JEP 444 asks for: a new thread per task, which blocks, and no pool. The
 * shapes with queues follow the stress tests of virtual threads in OpenJDK (PingPong and Skynet in
 * test/jdk/java/lang/Thread/virtual/stress).
 *
 * <p>Virtual threads are green threads: they share the heap, and a thread that does not block is not
 * preempted. Platform threads are threads of the operating system.
 *
 * <p>Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of
 * JSON that bench/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
 *
 * <p>Compiled by javac 17 or later; virtual threads need a JRE of 21 or later:
 * <pre>
 * javac -d CLASSES bench/peers/java/*.java
 * java -cp CLASSES Peer pairs --count 1000000 --workers 2 --set pairs=1000
 * </pre>
 *
 * <p>Limits:
 * <ul>
 * <li>`workers` is the parallelism of the scheduler of virtual threads. The collector, the compiler and the
 *     thread of the timers run besides, on any core. Platform threads run on every core that the
 *     program may use, and `workers` in the result is the number of these.
 * <li>`fairness` is left out for virtual threads: a take from a queue that is not empty does not yield, so
 *     a thread that sends itself messages keeps its carrier for ever.
 * <li>Platform threads are limited by the kernel to some 32,000 on a machine with its default settings:
 *     `spawn` and `sleep` run with 10,000, `skynet` with 1,000 leaves, and `fairness` with 100 flooders. A
 *     message that wakes a thread takes 5 to 20 µs, and a cycle of `churn` 60 to 200 µs, so `ring`, `pairs`,
 *     `call`, `calls` and `churn` run with 100,000, and `fan` with a million. `send` and `burst` run with their
 *     default counts.
 * </ul>
 *
 * <p>Before the clock the program does the same work with at most {@link #WARMUP} units, as JMH and every
 * other harness for Java does: the compiler has then seen the code. Without that, a million threads wait
 * inside code that was compiled before any of them had received a message, and each takes some 20 µs to
 * leave it. What the warm-up leaves behind is resident before memory is first read, so the warm-up is at
 * most a fiftieth of the work; a count below a million leaves the compiler less warm.
 *
 * <p>The tuned row changes only flags of a JRE 25:
 * <ul>
 * <li>-XX:+UseParallelGC, a collector for throughput, whose barriers are cheaper than those of the
 *     default G1; -XX:+UseZGC costs more than either here.
 * <li>-XX:+UseCompactObjectHeaders: headers of 8 bytes instead of 12.
 * <li>-Djdk.trackAllThreads=false: no table of all virtual threads for thread dumps (JEP 444).
 * </ul>
 * The heap is limited to a quarter of the machine's memory unless -Xmx says otherwise; a million processes
 * take 2 GB.
 */
final class Peer {
    /** Units of the work that is done before, at most. */
    private static final long WARMUP = 20_000;
    /** The work's part of all, at most: memory that it leaves behind is used again, and not measured. */
    private static final long WARMUP_SHARE = 50;
    /** Any other setting for that work, at most, and the units of work with platform threads. */
    private static final long WARMUP_SETTING = 1000;

    private final Map<String, String> settings = new HashMap<>();
    private final List<String> metrics = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();
    private final List<String> quantiles = new ArrayList<>();
    /** The probabilities of the quantiles that a run reports of each distribution. */
    private static final double[] PROBABILITIES = {0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1};

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        Processes.prepare((int) peer.setting("workers"));
        // The driver is a process like the others.
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Processes.start(() -> {
            try {
                new Peer(arguments).warmup(arguments[0]).run(arguments[0]);
                peer.run(arguments[0]);
            } catch (Throwable error) {
                thrown.set(error);
            }
        }).join();
        if (thrown.get() != null) {
            throw new Exception("the driver failed", thrown.get());
        }
        System.out.println(peer.line());
    }

    private Peer(String[] arguments) {
        for (int at = 1; at + 1 < arguments.length; at += 2) {
            String value = arguments[at + 1];
            if (arguments[at].equals("--set")) {
                int equals = value.indexOf('=');
                settings.put(value.substring(0, equals), value.substring(equals + 1));
            } else {
                settings.put(arguments[at].substring(2), value);
            }
        }
    }

    /** Makes this a peer for a small amount of the same work. */
    private Peer warmup(String workload) {
        long most = Processes.arePlatform() ? WARMUP_SETTING : WARMUP;
        // Three queens less are about a fiftieth of the work.
        long share = workload.equals("queens") ? count() - 3 : count() / WARMUP_SHARE;
        long units = Math.max(1, Math.min(most, share));
        settings.replaceAll((name, value) -> {
            long limit = switch (name) {
                case "count" -> units;
                case "seconds" -> 1;
                default -> WARMUP_SETTING;
            };
            return value.matches("[0-9]+") ? Long.toString(Math.min(Long.parseLong(value), limit)) : value;
        });
        settings.replace("settle", "0");
        return this;
    }

    private void run(String workload) throws Exception {
        switch (workload) {
            case "spawn" -> Spawn.run(this);
            case "send" -> Send.run(this);
            case "send-cost" -> SendCost.run(this);
            case "call" -> Calls.runSequential(this);
            case "calls" -> Calls.runConcurrent(this);
            case "churn" -> Churn.run(this);
            case "sleep" -> Sleep.run(this);
            case "pairs" -> Relay.runPairs(this);
            case "ring" -> Relay.runRing(this);
            case "fan" -> Collector.runFan(this);
            case "burst" -> Collector.runBurst(this);
            case "fairness" -> Fairness.run(this);
            case "skynet" -> Skynet.run(this);
            case "chameneos" -> Chameneos.run(this);
            case "big" -> Big.run(this);
            case "dictionary" -> Dictionary.run(this);
            case "buffer" -> Buffer.run(this);
            case "philosophers" -> Philosophers.run(this);
            case "barber" -> Barber.run(this);
            case "smokers" -> Smokers.run(this);
            case "banking" -> Banking.run(this);
            case "sieve" -> Sieve.run(this);
            case "queens" -> Queens.run(this);
            case "monitors" -> Monitors.run(this);
            case "timers" -> Timers.run(this);
            default -> throw new IllegalArgumentException("no workload " + workload);
        }
    }

    /** The value of a setting that is a number. */
    long setting(String name) {
        String value = settings.get(name);
        if (value == null) {
            throw new IllegalArgumentException("no setting " + name);
        }
        return Long.parseLong(value);
    }

    long count() {
        return setting("count");
    }

    /** Records a measured value, in the metric's unit. */
    void metric(String name, double value) {
        metrics.add('"' + name + "\":" + value);
    }

    /** Records the values of a distribution at all probabilities. */
    void distribution(String name, DoubleUnaryOperator at) {
        String values = DoubleStream.of(PROBABILITIES).map(at).mapToObj(Double::toString)
            .collect(Collectors.joining(","));
        quantiles.add('"' + name + "\":[" + values + ']');
    }

    /** Records a failure unless the found number is the expected one. */
    void check(String name, long found, long expected) {
        if (found != expected) {
            failures.add('"' + name + ": " + found + " instead of " + expected + '"');
        }
    }

    private String line() {
        return "{\"version\":\"Java " + System.getProperty("java.version")
            + "\",\"workers\":" + Processes.workers((int) setting("workers"))
            + ",\"metrics\":{" + String.join(",", metrics)
            + "},\"failures\":[" + String.join(",", failures)
            + "],\"quantiles\":{" + String.join(",", quantiles) + "}}";
    }

    /** 0 + 1 + … + (count − 1). */
    static long sumBelow(long count) {
        return count * (count - 1) / 2;
    }

    /** The first unit of a part, when `count` units are divided among `parts`. */
    static long shareBegin(long count, long part, long parts) {
        return count * part / parts;
    }
}
