import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/** `pairs` and `ring`: rings of actors pass a number on, and each adds one to it. */
final class Relay {
    private interface Message {}

    private record Number(long value) implements Message {}

    /** Tells an actor to whom it passes numbers on. */
    private record Next(ActorRef<Message> next) implements Message {}

    private static final Tally FINISHED = new Tally();

    private Relay() {}

    static void runPairs(Peer peer, Driver driver) {
        measure(peer, driver, (int) peer.setting("pairs"), 2, elapsed ->
            peer.metric("message_ns", (double) elapsed / peer.count()));
    }

    static void runRing(Peer peer, Driver driver) {
        measure(peer, driver, 1, (int) peer.setting("processes"), elapsed -> {
            peer.metric("wall_s", elapsed / 1e9);
            peer.metric("hop_ns", (double) elapsed / peer.count());
        });
    }

    @FunctionalInterface
    private interface Report {
        void of(long elapsed);
    }

    private static void measure(Peer peer, Driver driver, int rings, int size, Report report) {
        FINISHED.reset();
        long count = peer.count();
        @SuppressWarnings({"unchecked", "rawtypes"})
        ActorRef<Message>[] firsts = new ActorRef[rings];
        for (int ring = 0; ring < rings; ring++) {
            firsts[ring] = startRing(driver, size, messages(count, ring, rings));
        }
        // A ring without a share of the messages does not begin.
        long begun = Math.min(rings, count);
        FINISHED.arm(begun);
        long clock = System.nanoTime();
        for (int ring = 0; ring < rings; ring++) {
            if (messages(count, ring, rings) > 0) {
                firsts[ring].tell(new Number(0));
            }
        }
        driver.whenComplete(FINISHED, () -> {
            report.of(System.nanoTime() - clock);
            peer.check("rings that finished", FINISHED.count(), begun);
            peer.check("messages passed on", FINISHED.sum(), count);
            Order.check(peer);
            driver.finish();
        });
    }

    private static long messages(long count, long ring, long rings) {
        return Peer.shareBegin(count, ring + 1, rings) - Peer.shareBegin(count, ring, rings);
    }

    private static ActorRef<Message> startRing(Driver driver, int size, long messages) {
        ActorRef<Message> first = driver.start(link(0, size, messages));
        ActorRef<Message> last = first;
        for (int place = 1; place < size; place++) {
            ActorRef<Message> link = driver.start(link(place, size, messages));
            last.tell(new Next(link));
            last = link;
        }
        last.tell(new Next(first));
        return first;
    }

    private static Behavior<Message> link(int place, int size, long messages) {
        return Behaviors.setup(context -> Behaviors.receiveMessage(new Link(place, size, messages)::receive));
    }

    private static final class Link {
        private final Order order;
        private final long messages;
        private ActorRef<Message> next;

        private Link(int place, int size, long messages) {
            order = new Order(place, size);
            this.messages = messages;
        }

        private Behavior<Message> receive(Message message) {
            if (message instanceof Number number) {
                order.note(number.value);
                long sent = number.value + 1;
                if (sent == messages) {
                    FINISHED.add(sent);
                } else {
                    next.tell(new Number(sent));
                }
            } else if (message instanceof Next told) {
                next = told.next;
            }
            return Behaviors.same();
        }
    }
}
