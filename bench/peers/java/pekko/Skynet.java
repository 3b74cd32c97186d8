import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `skynet`: a tree of actors, ten children to each; an actor tells the sum to its parent, and stops. */
final class Skynet {
    private Skynet() {}

    static void run(Peer peer, Driver driver) {
        long count = peer.count();
        CompletableFuture<Long> sum = new CompletableFuture<>();
        long clock = System.nanoTime();
        ActorRef<Long> root = driver.start(Behaviors.receiveMessage(value -> {
            sum.complete(value);
            return Behaviors.same();
        }));
        driver.start(create(root, 0, count));
        driver.when(sum.completeOnTimeout(-1L, 300, TimeUnit.SECONDS), () -> {
            long elapsed = System.nanoTime() - clock;
            peer.metric("wall_s", elapsed / 1e9);
            peer.check("the sum", sum.join(), Peer.sumBelow(count));
            driver.finish();
        });
    }

    private static Behavior<Long> create(ActorRef<Long> parent, long begin, long end) {
        return Behaviors.setup(context -> {
            long count = end - begin;
            if (count == 1) {
                parent.tell(begin);
                return Behaviors.stopped();
            }
            long parts = Math.min(count, 10);
            for (long part = 0; part < parts; part++) {
                context.spawnAnonymous(create(
                    context.getSelf(),
                    begin + Peer.shareBegin(count, part, parts),
                    begin + Peer.shareBegin(count, part + 1, parts)));
            }
            return Behaviors.receiveMessage(new Sum(parent, parts)::add);
        });
    }

    /** The sum of an actor's children. */
    private static final class Sum {
        private final ActorRef<Long> parent;
        private long due;
        private long sum;

        private Sum(ActorRef<Long> parent, long due) {
            this.parent = parent;
            this.due = due;
        }

        private Behavior<Long> add(long part) {
            sum += part;
            due--;
            if (due > 0) {
                return Behaviors.same();
            }
            parent.tell(sum);
            return Behaviors.stopped();
        }
    }
}
