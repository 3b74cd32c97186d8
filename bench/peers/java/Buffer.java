import java.util.ArrayDeque;

/** `buffer`: a manager takes items from producers and gives them to consumers; it holds few at a time. */
final class Buffer {
    private enum Kind { ITEM, OVER, READY }

    private record ToManager(Kind kind, long item, Mailbox<Boolean> producer, Mailbox<Long> consumer) {}

    private static final ToManager OVER = new ToManager(Kind.OVER, 0, null, null);
    /** The message on which a consumer ends. */
    private static final long EXIT = -1;

    private Buffer() {}

    static void run(Peer peer) {
        long producers = peer.setting("producers");
        long capacity = peer.setting("capacity");
        long work = peer.setting("work");
        long[] report = Savina.measure(peer,
            () -> manage(peer.count(), producers, peer.setting("consumers"), capacity, work));
        long sum = 0;
        for (long producer = 0; producer < producers; producer++) {
            Savina.Random random = new Savina.Random(producer);
            for (long left = peer.count(); left > 0; left--) {
                sum += random.advance(work);
            }
        }
        peer.check("items consumed", report[0], peer.count() * producers);
        peer.check("their sum", report[1], sum);
        peer.check("items beyond the capacity", Math.max(0, report[2] - Math.max(capacity, producers + 1)), 0);
    }

    /** The manager. A producer whose item fills the buffer waits until one is taken. */
    private static long[] manage(long count, long producers, long consumers, long capacity, long work) {
        Mailbox<ToManager> mailbox = new Mailbox<>();
        Mailbox<long[]> reports = new Mailbox<>();
        Mailbox<Long>[] all = Savina.mailboxes(consumers);
        ArrayDeque<Mailbox<Long>> ready = new ArrayDeque<>();
        for (int consumer = 0; consumer < consumers; consumer++) {
            int index = consumer;
            Processes.start(() -> reports.send(consume(index, work, all[index], mailbox)));
            ready.add(all[index]);
        }
        for (long producer = 0; producer < producers; producer++) {
            long index = producer;
            Mailbox<Boolean> asked = new Mailbox<>();
            Processes.start(() -> produce(index, count, work, asked, mailbox));
            asked.send(true);
        }
        // Each producer may have an item under way, for which there has to be room.
        long full = Math.max(1, capacity - producers);
        ArrayDeque<Long> items = new ArrayDeque<>();
        ArrayDeque<Mailbox<Boolean>> waiting = new ArrayDeque<>();
        long most = 0;
        while (producers > 0 || ready.size() < consumers) {
            ToManager message = mailbox.receive();
            switch (message.kind) {
                case ITEM -> {
                    if (ready.isEmpty()) {
                        items.add(message.item);
                        most = Math.max(most, items.size());
                    } else {
                        ready.remove().send(message.item);
                    }
                    if (items.size() >= full) {
                        waiting.add(message.producer);
                    } else {
                        message.producer.send(true);
                    }
                }
                case OVER -> producers--;
                case READY -> {
                    if (items.isEmpty()) {
                        ready.add(message.consumer);
                    } else {
                        message.consumer.send(items.remove());
                        if (!waiting.isEmpty()) {
                            waiting.remove().send(true);
                        }
                    }
                }
            }
        }
        for (Mailbox<Long> consumer : all) {
            consumer.send(EXIT);
        }
        long[] sum = Savina.sum(reports, consumers, 2);
        return new long[] {sum[0], sum[1], most};
    }

    private static void produce(
            long index, long count, long work, Mailbox<Boolean> asked, Mailbox<ToManager> manager) {
        Savina.Random random = new Savina.Random(index);
        for (long left = count; left > 0; left--) {
            asked.receive();
            manager.send(new ToManager(Kind.ITEM, random.advance(work), asked, null));
        }
        asked.receive();
        manager.send(OVER);
    }

    private static long[] consume(int index, long work, Mailbox<Long> mailbox, Mailbox<ToManager> manager) {
        Savina.Random state = new Savina.Random(index);
        ToManager ready = new ToManager(Kind.READY, 0, null, mailbox);
        long items = 0;
        long sum = 0;
        long item;
        while ((item = mailbox.receive()) != EXIT) {
            items++;
            sum += item;
            state.add(item);
            Savina.use(state.advance(work));
            manager.send(ready);
        }
        return new long[] {items, sum};
    }
}
