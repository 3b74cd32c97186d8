import java.util.concurrent.atomic.AtomicReference;

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
 * JSON that bench/steps/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
 *
 * <p>Compiled by javac 17 or later; virtual threads need a JRE of 21 or later:
 * <pre>
 * javac -d CLASSES bench/peers/java/*.java bench/peers/java/shared/*.java
 * java -cp CLASSES Main pairs --count 1000000 --workers 2 --set pairs=1000
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
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        Processes.prepare((int) peer.setting("workers"));
        // The driver is a process like the others.
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Processes.start(() -> {
            try {
                run(warmup(new Peer(arguments)));
                run(peer);
            } catch (Throwable error) {
                thrown.set(error);
            }
        }).join();
        if (thrown.get() != null) {
            throw new Exception("the driver failed", thrown.get());
        }
        String version = "Java " + System.getProperty("java.version");
        System.out.println(peer.line(version, Processes.workers((int) peer.setting("workers"))));
    }

    private static Peer warmup(Peer peer) {
        long most = Processes.arePlatform() ? Peer.WARMUP_SETTING : Peer.WARMUP;
        // Three queens less are about a fiftieth of the work.
        boolean isQueens = peer.workload.equals("queens");
        return peer.warmup(most, isQueens ? peer.count() - 3 : peer.count() / Peer.WARMUP_SHARE);
    }

    private static void run(Peer peer) throws Exception {
        switch (peer.workload) {
            case "spawn" -> Spawn.run(peer);
            case "send" -> Send.run(peer);
            case "send-cost" -> SendCost.run(peer);
            case "call" -> Calls.runSequential(peer);
            case "calls" -> Calls.runConcurrent(peer);
            case "churn" -> Churn.run(peer);
            case "sleep" -> Sleep.run(peer);
            case "pairs" -> Relay.runPairs(peer);
            case "ring" -> Relay.runRing(peer);
            case "fan" -> Collector.runFan(peer);
            case "burst" -> Collector.runBurst(peer);
            case "fairness" -> Fairness.run(peer);
            case "skynet" -> Skynet.run(peer);
            case "chameneos" -> Chameneos.run(peer);
            case "big" -> Big.run(peer);
            case "dictionary" -> Dictionary.run(peer);
            case "buffer" -> Buffer.run(peer);
            case "philosophers" -> Philosophers.run(peer);
            case "barber" -> Barber.run(peer);
            case "smokers" -> Smokers.run(peer);
            case "banking" -> Banking.run(peer);
            case "sieve" -> Sieve.run(peer);
            case "queens" -> Queens.run(peer);
            case "monitors" -> Monitors.run(peer);
            case "timers" -> Timers.run(peer);
            case "tasks" -> Tasks.run(peer);
            case "social" -> Social.run(peer);
            default -> throw new IllegalArgumentException("no workload " + peer.workload);
        }
    }
}
