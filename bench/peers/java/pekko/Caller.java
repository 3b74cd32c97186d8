import java.util.function.Supplier;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/**
 * An actor that sends requests to services, each after the reply to the one before, and stops after the last.
 * Its messages are the replies.
 */
final class Caller {
    private final ActorRef<Long> self;
    private final Supplier<ActorRef<Service.Message>> callees;
    private final long end;
    /** Nanoseconds of each call by its value; null if the calls are not timed separately. */
    private final long[] latencies;
    private final Tally done;
    private long value;
    private long correct;
    private long clock;

    private Caller(
            ActorContext<Long> context,
            Supplier<ActorRef<Service.Message>> callees,
            long begin,
            long end,
            long[] latencies,
            Tally done) {
        self = context.getSelf();
        this.callees = callees;
        value = begin;
        this.end = end;
        this.latencies = latencies;
        this.done = done;
    }

    /** A caller with each value of a range, which adds the number of correct replies to a tally. */
    static Behavior<Long> create(
            Supplier<ActorRef<Service.Message>> callees, long begin, long end, long[] latencies, Tally done) {
        return Behaviors.setup(context -> {
            Caller caller = new Caller(context, callees, begin, end, latencies, done);
            Behavior<Long> next = caller.callOrStop();
            return next == Behaviors.<Long>same() ? Behaviors.receiveMessage(caller::receive) : next;
        });
    }

    private Behavior<Long> callOrStop() {
        if (value == end) {
            done.add(correct);
            return Behaviors.stopped();
        }
        ActorRef<Service.Message> callee = callees.get();
        if (latencies != null) {
            clock = System.nanoTime();
        }
        callee.tell(new Service.Request(value, self));
        return Behaviors.same();
    }

    private Behavior<Long> receive(long reply) {
        if (latencies != null) {
            latencies[(int) value] = System.nanoTime() - clock;
        }
        correct += reply == value + 1 ? 1 : 0;
        value++;
        return callOrStop();
    }
}
