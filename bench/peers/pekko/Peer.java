import com.typesafe.config.ConfigFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.DoubleUnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;
import org.apache.pekko.Done;
import org.apache.pekko.Version;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.ActorSystem;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.slf4j.LoggerFactory;

/**
 * The Pekko peer: typed actors of Apache Pekko, by its API for Java.
 *
 * <p>A process is an actor with the default mailbox of typed actors, an unbounded queue. A call is the
 * interaction pattern "Request-Response" of Pekko's documentation: the request has the caller's address, and
 * the reply is a message to it. The shapes follow Pekko's own benchmarks, TypedActorBenchmark with
 * TypedBenchmarkActors in bench-jmh. Behaviours are in the functional style of Pekko's style guide, since a
 * receive builder compares each message with one class after the other.
 *
 * <p>Actors share the heap, and an actor that handles a message is not preempted. After as many messages as the
 * dispatcher's `throughput` says, it leaves its thread to others.
 *
 * <p>Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of
 * JSON that bench/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
 *
 * <p>Limits:
 * <ul>
 * <li>`workers` is the parallelism of the default dispatcher, which runs all actors of a workload. The
 *     dispatcher of Pekko's internal actors, the timer, the collector and the compiler have threads of their own.
 * <li>In `burst` a receiver stashes what arrives before its latch is open, as Pekko advises for messages that
 *     an actor cannot handle yet: an actor must not block its thread. So the messages wait in stashes.
 * <li>`fairness` never ends on the fork-join pool of the default dispatcher. Its threads take tasks that come from
 *     outside, such as a timer's, only when their own queues are empty. It runs on a pool of threads with one queue.
 * </ul>
 *
 * <p>Before the clock the program does the same work with at most {@link #WARMUP} units, in actors that are
 * stopped afterwards, as the peer in Java does: see Peer.java there.
 *
 * <p>The other rows change only settings, not this program: see bench/src/runtimes/pekko.rs.
 */
final class Peer {
    /** Units of the work that is done before, at most. */
    private static final long WARMUP = 20_000;
    /** The work's part of all, at most: memory that it leaves behind is used again, and not measured. */
    private static final long WARMUP_SHARE = 50;
    /** Any other setting for that work, at most. */
    private static final long WARMUP_SETTING = 1000;

    private final Map<String, String> settings = new HashMap<>();
    private final List<String> metrics = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();
    private final List<String> quantiles = new ArrayList<>();
    /** The probabilities of the quantiles that a run reports of each distribution. */
    private static final double[] PROBABILITIES = {0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1};
    private final String workload;

    public static void main(String[] arguments) throws Exception {
        // Only failures are printed, to standard error.
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        // Before several threads log, so that none of them finds the logger half ready.
        LoggerFactory.getILoggerFactory();
        Peer peer = new Peer(arguments);
        long workers = peer.setting("workers");
        String dispatcher = "pekko.actor.default-dispatcher.";
        Map<String, Object> parallelism = Map.of(
            dispatcher + "fork-join-executor.parallelism-min", workers,
            dispatcher + "fork-join-executor.parallelism-max", workers,
            dispatcher + "thread-pool-executor.fixed-pool-size", workers);
        CompletableFuture<Void> finished = new CompletableFuture<>();
        ActorSystem<Done> system = ActorSystem.create(
            guardian(new Peer(arguments).warmup(), peer, finished),
            "bench",
            ConfigFactory.parseMap(parallelism).withFallback(ConfigFactory.load()));
        try {
            finished.join();
        } finally {
            system.terminate();
            system.getWhenTerminated().toCompletableFuture().join();
        }
        System.out.println(peer.line());
    }

    /** The actor that starts a driver for the warm-up and, when that and all its actors have stopped, another. */
    private static Behavior<Done> guardian(Peer warmup, Peer peer, CompletableFuture<Void> finished) {
        return Behaviors.setup(context -> {
            CompletableFuture<Void> warm = new CompletableFuture<>();
            ActorRef<Driver.Step> driver = context.spawn(Driver.create(warmup, warm), "warmup");
            context.watchWith(driver, Done.getInstance());
            warm.whenComplete((result, error) -> {
                if (error != null) {
                    finished.completeExceptionally(error);
                }
            });
            context.pipeToSelf(warm, (result, error) -> Done.getInstance());
            return Behaviors.receiveMessage(warmed -> {
                context.stop(driver);
                return Behaviors.receiveMessage(stopped -> {
                    context.spawn(Driver.create(peer, finished), "driver");
                    return Behaviors.empty();
                });
            });
        });
    }

    private Peer(String[] arguments) {
        workload = arguments[0];
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
    private Peer warmup() {
        long units = Math.max(1, Math.min(WARMUP, count() / WARMUP_SHARE));
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

    /** Runs the workload; called in its driver. */
    void run(Driver driver) throws Exception {
        switch (workload) {
            case "spawn" -> Spawn.run(this, driver);
            case "send" -> Send.run(this, driver);
            case "call" -> Calls.runSequential(this, driver);
            case "calls" -> Calls.runConcurrent(this, driver);
            case "churn" -> Churn.run(this, driver);
            case "sleep" -> Sleep.run(this, driver);
            case "pairs" -> Relay.runPairs(this, driver);
            case "ring" -> Relay.runRing(this, driver);
            case "fan" -> Collector.runFan(this, driver);
            case "burst" -> Collector.runBurst(this, driver);
            case "fairness" -> Fairness.run(this, driver);
            case "skynet" -> Skynet.run(this, driver);
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
        return "{\"version\":\"Pekko " + Version.current() + " on Java " + System.getProperty("java.version")
            + "\",\"workers\":" + setting("workers")
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
