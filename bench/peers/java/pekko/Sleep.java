import java.time.Duration;
import java.util.Arrays;
import java.util.Objects;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `sleep`: actors with a receive time-out, until all have timed out. */
final class Sleep {
    private enum Message { TIMEOUT }

    private static final Tally TIMED_OUT = new Tally();
    private static final Tally EARLY = new Tally();
    /** Start of the clock, and the time-out; static, so that no actor holds either. */
    private static long begun;
    private static Duration timeout;

    private Sleep() {}

    static void run(Peer peer, Driver driver) {
        TIMED_OUT.reset();
        int count = (int) peer.count();
        timeout = Duration.ofSeconds(peer.setting("seconds"));
        TIMED_OUT.arm(count);
        begun = System.nanoTime();
        ActorRef<?>[] kept = new ActorRef<?>[count];
        for (int value = 0; value < count; value++) {
            kept[value] = driver.start(create(value));
        }
        driver.whenComplete(TIMED_OUT, () -> {
            long finished = System.nanoTime();
            peer.metric("peak_rss_bytes", Memory.peak());
            peer.metric("finished_s", (finished - begun) / 1e9);
            long started = Arrays.stream(kept).filter(Objects::nonNull).count();
            peer.check("processes that were started", started, count);
            peer.check("processes that timed out", TIMED_OUT.count(), count);
            peer.check("the sum of their states", TIMED_OUT.sum(), Peer.sumBelow(count));
            peer.check("processes that timed out early", EARLY.count(), 0);
            driver.finish();
        });
    }

    private static Behavior<Message> create(long value) {
        return Behaviors.setup(context -> {
            context.setReceiveTimeout(timeout, Message.TIMEOUT);
            return Behaviors.receiveMessage(message -> {
                if (System.nanoTime() - begun < timeout.toNanos()) {
                    EARLY.add(value);
                }
                TIMED_OUT.add(value);
                return Behaviors.stopped();
            });
        });
    }
}
