import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `churn`: an actor starts an actor, calls it once, and makes it stop; in sequence. */
final class Churn {
    private static final Tally EXITED = new Tally();

    private final ActorContext<Long> context;
    private final Tally replies;
    private final long end;
    private long value;
    private long correct;
    private ActorRef<Service.Message> process;

    private Churn(ActorContext<Long> context, long begin, long end, Tally replies) {
        this.context = context;
        value = begin;
        this.end = end;
        this.replies = replies;
    }

    static void run(Peer peer, Driver driver) throws Exception {
        EXITED.reset();
        long count = peer.count();
        long warmup = peer.setting("warmup");
        long cycles = warmup + count;
        Tally replies = new Tally();
        cycleAll(driver, 0, warmup, replies, () -> {
            long residentBefore = Memory.resident();
            long clock = System.nanoTime();
            cycleAll(driver, warmup, cycles, replies, () -> {
                long elapsed = System.nanoTime() - clock;
                long resident = Memory.resident();
                peer.metric("cycle_ns", (double) elapsed / count);
                peer.metric("rss_growth_bytes", Math.max(0, resident - residentBefore));
                peer.check("correct replies", replies.sum(), cycles);
                peer.check("processes that exited", EXITED.count(), cycles);
                peer.check("the sum of their states", EXITED.sum(), Peer.sumBelow(cycles));
                driver.finish();
            });
        });
    }

    /** Runs a cycle for each value, then a step when all actors so far have stopped. */
    private static void cycleAll(Driver driver, long begin, long end, Tally replies, Driver.Step step) {
        EXITED.arm(end);
        replies.arm(replies.count() + 1);
        driver.start(create(begin, end, replies));
        driver.whenComplete(replies, () -> driver.whenComplete(EXITED, step));
    }

    private static Behavior<Long> create(long begin, long end, Tally replies) {
        return Behaviors.setup(context -> {
            Churn churn = new Churn(context, begin, end, replies);
            churn.startNext();
            return Behaviors.receiveMessage(churn::receive);
        });
    }

    private void startNext() {
        process = context.spawnAnonymous(Service.create(value, EXITED));
        process.tell(new Service.Request(1, context.getSelf()));
    }

    private Behavior<Long> receive(long reply) {
        process.tell(Service.Stop.STOP);
        correct += reply == value + 1 ? 1 : 0;
        value++;
        if (value < end) {
            startNext();
        } else {
            replies.add(correct);
        }
        return Behaviors.same();
    }
}
