import com.typesafe.config.ConfigFactory;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
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
 * JSON that bench/steps/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
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
 * <p>The warm-up before the clock runs in actors that are stopped afterwards.
 *
 * <p>The other rows change only settings, not this program: see bench/runtimes.toml.
 */
final class Main {
    private Main() {}

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
            guardian(warmup(new Peer(arguments)), peer, finished),
            "bench",
            ConfigFactory.parseMap(parallelism).withFallback(ConfigFactory.load()));
        try {
            finished.join();
        } finally {
            system.terminate();
            system.getWhenTerminated().toCompletableFuture().join();
        }
        String version = "Pekko " + Version.current() + " on Java " + System.getProperty("java.version");
        System.out.println(peer.line(version, workers));
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

    private static Peer warmup(Peer peer) {
        return peer.warmup(Peer.WARMUP, peer.count() / Peer.WARMUP_SHARE);
    }

    /** Runs the workload; called in its driver. */
    static void run(Peer peer, Driver driver) throws Exception {
        switch (peer.workload) {
            case "spawn" -> Spawn.run(peer, driver);
            case "send" -> Send.run(peer, driver);
            case "call" -> Calls.runSequential(peer, driver);
            case "calls" -> Calls.runConcurrent(peer, driver);
            case "churn" -> Churn.run(peer, driver);
            case "sleep" -> Sleep.run(peer, driver);
            case "pairs" -> Relay.runPairs(peer, driver);
            case "ring" -> Relay.runRing(peer, driver);
            case "fan" -> Collector.runFan(peer, driver);
            case "burst" -> Collector.runBurst(peer, driver);
            case "fairness" -> Fairness.run(peer, driver);
            case "skynet" -> Skynet.run(peer, driver);
            default -> throw new IllegalArgumentException("no workload " + peer.workload);
        }
    }
}
