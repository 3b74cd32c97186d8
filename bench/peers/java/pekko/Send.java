import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `send`: messages from one actor, or from several, to another, which confirms their sum. */
final class Send {
    private interface Message {}

    private record Number(long value) implements Message {}

    /** Asks the receiver for its sum. */
    private record Confirm(CompletableFuture<Long> sum) implements Message {}

    private Send() {}

    static void run(Peer peer, Driver driver) {
        long count = peer.count();
        long senders = peer.setting("senders");
        ActorRef<Message> receiver = driver.start(receiver());
        CompletableFuture<Long> sum = new CompletableFuture<>();
        Tally done = new Tally();
        AtomicLong lastDone = new AtomicLong();
        done.arm(senders);

        long clock = System.nanoTime();
        for (long sender = 0; sender < senders; sender++) {
            long begin = Peer.shareBegin(count, sender, senders);
            long end = Peer.shareBegin(count, sender + 1, senders);
            driver.start(Behaviors.setup(context -> {
                for (long value = begin; value < end; value++) {
                    receiver.tell(new Number(value));
                }
                lastDone.accumulateAndGet(System.nanoTime() - clock, Math::max);
                done.add(end - begin);
                return Behaviors.stopped();
            }));
        }
        driver.whenComplete(done, () -> {
            receiver.tell(new Confirm(sum));
            driver.when(sum, () -> {
                long delivered = System.nanoTime() - clock;
                peer.metric("send_ns", (double) lastDone.get() / count);
                peer.metric("delivered_ns", (double) delivered / count);
                peer.check("the sum received", sum.join(), Peer.sumBelow(count));
                peer.check("senders that finished", done.count(), senders);
                peer.check("messages sent", done.sum(), count);
                driver.finish();
            });
        });
    }

    private static Behavior<Message> receiver() {
        return Behaviors.setup(context -> Behaviors.receiveMessage(new Receiver()::receive));
    }

    private static final class Receiver {
        private long sum;

        private Behavior<Message> receive(Message message) {
            if (message instanceof Number number) {
                sum += number.value;
            } else if (message instanceof Confirm confirm) {
                confirm.sum.complete(sum);
            }
            return Behaviors.same();
        }
    }
}
