import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleUnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;

/**
 * A run of a peer on the Java virtual machine: its settings, and its line of JSON, which bench/steps/src/outcome.rs
 * describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
 *
 * <p>Before the clock a peer does the same work with at most {@link #WARMUP} units, as JMH and every other harness
 * for Java does: the compiler has then seen the code. Without that, a million threads wait inside code that was
 * compiled before any of them had received a message, and each takes some 20 µs to leave it. What the warm-up leaves
 * behind is resident before memory is first read, so the warm-up is at most a fiftieth of the work; a count below a
 * million leaves the compiler less warm.
 */
final class Peer {
    /** Units of the work that is done before, at most. */
    static final long WARMUP = 20_000;
    /** The work's part of all, at most: memory that it leaves behind is used again, and not measured. */
    static final long WARMUP_SHARE = 50;
    /** Any other setting for that work, at most, and the units of work with platform threads. */
    static final long WARMUP_SETTING = 1000;

    final String workload;
    private final Map<String, String> settings = new HashMap<>();
    private final List<String> metrics = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();
    private final List<String> quantiles = new ArrayList<>();
    /** The probabilities of the quantiles that a run reports of each distribution. */
    private static final double[] PROBABILITIES = {0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1};

    Peer(String[] arguments) {
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

    /** Makes this a peer for a small amount of the same work: a share of it, of `most` units at most. */
    Peer warmup(long most, long share) {
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

    /** The value of a setting that is a number. */
    long setting(String name) {
        String value = settings.get(name);
        if (value == null) {
            throw new IllegalArgumentException("no setting " + name);
        }
        return Long.parseLong(value);
    }

    /** The value of a setting that is a word. */
    String word(String name) {
        return settings.get(name);
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

    /** The line of the run, on a runtime of some version with some workers. */
    String line(String version, long workers) {
        return "{\"version\":\"" + version
            + "\",\"workers\":" + workers
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
