import java.util.ArrayDeque;

/**
 * `barber`: customers wait in a room with few places until the barber has time for them; customers who find the
 * room full come again.
 */
final class Barber {
    private enum ToCustomer { FULL, WAIT, START, DONE }

    /** A customer that the room has turned away, or the number of haircuts of one that has left. */
    private record ToFactory(Mailbox<ToCustomer> returned, int index, int haircuts) {}

    /** A customer that enters the room. */
    private record Enter(Mailbox<ToCustomer> customer) {}

    private static final Enter NEXT = new Enter(null);
    private static final Enter EXIT = new Enter(null);
    private static final Enter WAIT = new Enter(null);

    private Barber() {}

    static void run(Peer peer) {
        long room = peer.setting("room");
        long arrival = peer.setting("arrival");
        long work = peer.setting("work");
        long[] report = Savina.measure(peer, () -> serve((int) peer.count(), room, arrival, work));
        peer.check("haircuts", report[0], peer.count());
        peer.check("customers with other than one haircut", report[1], 0);
    }

    /** The factory of customers. */
    private static long[] serve(int count, long places, long arrival, long work) {
        Mailbox<Enter> room = new Mailbox<>();
        Mailbox<Enter> barber = new Mailbox<>();
        Mailbox<Long> haircuts = new Mailbox<>();
        Processes.start(() -> wait(places, room, barber));
        Processes.start(() -> haircuts.send(cut(work, barber, room)));

        Mailbox<ToFactory> mailbox = new Mailbox<>();
        Savina.Random random = new Savina.Random(0);
        for (int customer = 0; customer < count; customer++) {
            int index = customer;
            Mailbox<ToCustomer> address = new Mailbox<>();
            Processes.start(() -> attend(index, address, mailbox));
            room.send(new Enter(address));
            Savina.busy(random.below(arrival) + 10);
        }
        long others = 0;
        for (int left = count; left > 0;) {
            ToFactory message = mailbox.receive();
            if (message.returned != null) {
                room.send(new Enter(message.returned));
            } else {
                left--;
                others += Savina.wrong(message.haircuts, 1);
            }
        }
        room.send(EXIT);
        return new long[] {haircuts.receive(), others};
    }

    private static void wait(long places, Mailbox<Enter> room, Mailbox<Enter> barber) {
        ArrayDeque<Enter> waiting = new ArrayDeque<>();
        boolean asleep = true;
        Enter message;
        while ((message = room.receive()) != EXIT) {
            if (message == NEXT) {
                asleep = waiting.isEmpty();
                barber.send(asleep ? WAIT : waiting.remove());
            } else if (waiting.size() == places) {
                message.customer.send(ToCustomer.FULL);
            } else {
                waiting.add(message);
                if (asleep) {
                    asleep = false;
                    room.send(NEXT);
                } else {
                    message.customer.send(ToCustomer.WAIT);
                }
            }
        }
        barber.send(EXIT);
    }

    private static long cut(long work, Mailbox<Enter> mailbox, Mailbox<Enter> room) {
        Savina.Random random = new Savina.Random(0);
        long haircuts = 0;
        Enter message;
        while ((message = mailbox.receive()) != EXIT) {
            if (message != WAIT) {
                message.customer.send(ToCustomer.START);
                Savina.busy(random.below(work) + 10);
                haircuts++;
                message.customer.send(ToCustomer.DONE);
                room.send(NEXT);
            }
        }
        return haircuts;
    }

    private static void attend(int index, Mailbox<ToCustomer> mailbox, Mailbox<ToFactory> factory) {
        int haircuts = 0;
        ToCustomer message;
        while ((message = mailbox.receive()) != ToCustomer.DONE) {
            switch (message) {
                case FULL -> factory.send(new ToFactory(mailbox, index, 0));
                case START -> haircuts++;
                default -> { }
            }
        }
        factory.send(new ToFactory(null, index, haircuts));
    }
}
