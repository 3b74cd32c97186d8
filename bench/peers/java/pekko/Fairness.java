import java.time.Duration;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `fairness`: an actor is called while other actors flood themselves. */
final class Fairness {
    private static final Tally RUNNING = new Tally();
    private static final Tally STOPPED = new Tally();
    private static volatile boolean stop;

    private Fairness() {}

    static void run(Peer peer, Driver driver) {
        RUNNING.reset();
        STOPPED.reset();
        stop = false;
        int flooders = (int) peer.setting("flooders");
        Duration pause = Duration.ofMillis(peer.setting("pause"));
        ActorRef<Service.Message> callee = driver.start(Service.create(1, new Tally()));
        @SuppressWarnings({"unchecked", "rawtypes"})
        ActorRef<Long>[] mailboxes = new ActorRef[flooders];
        for (int index = 0; index < flooders; index++) {
            mailboxes[index] = driver.start(flooder(index));
        }
        long[] latencies = new long[(int) peer.count()];
        Tally replies = new Tally();

        RUNNING.arm(flooders);
        STOPPED.arm(flooders);
        replies.arm(1);
        long flooding = System.nanoTime();
        for (ActorRef<Long> mailbox : mailboxes) {
            mailbox.tell(0L);
        }
        driver.whenComplete(RUNNING, () -> {
            driver.start(caller(callee, pause, latencies, replies));
            driver.whenComplete(replies, () -> {
                stop = true;
                driver.whenComplete(STOPPED, () -> {
                    long flooded = System.nanoTime() - flooding;
                    Calls.percentiles(peer, latencies);
                    peer.metric("message_ns", (double) flooded / Math.max(1, STOPPED.sum()));
                    peer.check("correct replies", replies.sum(), latencies.length);
                    peer.check("flooders that ran", RUNNING.count(), flooders);
                    peer.check("the sum of their numbers", RUNNING.sum(), Peer.sumBelow(flooders));
                    peer.check("flooders that stopped", STOPPED.count(), flooders);
                    Order.check(peer);
                    driver.finish();
                });
            });
        });
    }

    private static Behavior<Long> flooder(int index) {
        return Behaviors.setup(context -> {
            Order order = new Order(0, 1);
            ActorRef<Long> self = context.getSelf();
            return Behaviors.receiveMessage(value -> {
                long next = order.note(value);
                if (value == 0) {
                    RUNNING.add(index);
                }
                if (stop) {
                    STOPPED.add(next);
                } else {
                    self.tell(next);
                }
                return Behaviors.same();
            });
        });
    }

    /** An actor that pauses before each call; adds the number of correct replies to a tally. */
    private static Behavior<Long> caller(
            ActorRef<Service.Message> callee, Duration pause, long[] latencies, Tally replies) {
        return Behaviors.setup(context -> {
            Caller caller = new Caller(context, callee, pause, latencies, replies);
            caller.pauseOrStop();
            return Behaviors.receiveMessage(caller::receive);
        });
    }

    private static final class Caller {
        /** The message that ends a pause; all others are replies. */
        private static final Long PAUSED = -1L;

        private final ActorContext<Long> context;
        private final ActorRef<Service.Message> callee;
        private final Duration pause;
        private final long[] latencies;
        private final Tally replies;
        private int value;
        private long correct;
        private long clock;

        private Caller(
                ActorContext<Long> context,
                ActorRef<Service.Message> callee,
                Duration pause,
                long[] latencies,
                Tally replies) {
            this.context = context;
            this.callee = callee;
            this.pause = pause;
            this.latencies = latencies;
            this.replies = replies;
        }

        private Behavior<Long> pauseOrStop() {
            if (value == latencies.length) {
                replies.add(correct);
                return Behaviors.stopped();
            }
            context.scheduleOnce(pause, context.getSelf(), PAUSED);
            return Behaviors.same();
        }

        private Behavior<Long> receive(Long message) {
            if (message.equals(PAUSED)) {
                clock = System.nanoTime();
                callee.tell(new Service.Request(value, context.getSelf()));
                return Behaviors.same();
            }
            latencies[value] = System.nanoTime() - clock;
            correct += message == value + 1 ? 1 : 0;
            value++;
            return pauseOrStop();
        }
    }
}
