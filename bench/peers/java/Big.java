/** `big`: each actor sends pings to random others, one at a time, and answers the pings of others. */
final class Big {
    private enum Kind { PING, PONG, EXIT }

    private record Message(Kind kind, long number, Mailbox<Message> from) {}

    private static final Message EXIT = new Message(Kind.EXIT, 0, null);

    private Big() {}

    static void run(Peer peer) {
        long actors = peer.setting("actors");
        long[] report = Savina.measure(peer, () -> sink(peer.count(), actors));
        peer.check("pings received", report[0], peer.count() * actors);
        peer.check("pongs received", report[1], peer.count() * actors);
        peer.check("pongs without their ping", report[2], 0);
    }

    private static long[] sink(long count, long actors) {
        Mailbox<Message>[] all = Savina.mailboxes(actors);
        Mailbox<Boolean> done = new Mailbox<>();
        Mailbox<long[]> reports = new Mailbox<>();
        for (int actor = 0; actor < actors; actor++) {
            int index = actor;
            Processes.start(() -> reports.send(play(index, count, all, done)));
        }
        for (long left = actors; left > 0; left--) {
            done.receive();
        }
        for (Mailbox<Message> actor : all) {
            actor.send(EXIT);
        }
        return Savina.sum(reports, actors, 3);
    }

    private static long[] play(int index, long pings, Mailbox<Message>[] all, Mailbox<Boolean> done) {
        long[] report = new long[3];
        Savina.Random random = new Savina.Random(index);
        ping(index, 0, all, random);
        while (true) {
            Message message = all[index].receive();
            switch (message.kind) {
                case PING -> {
                    report[0]++;
                    message.from.send(new Message(Kind.PONG, message.number, null));
                }
                case PONG -> {
                    report[2] += Savina.wrong(message.number, report[1]);
                    report[1]++;
                    if (report[1] < pings) {
                        ping(index, report[1], all, random);
                    } else {
                        done.send(true);
                    }
                }
                case EXIT -> {
                    return report;
                }
            }
        }
    }

    /** Sends a ping to a random other actor; if there is no other, to this one. */
    private static void ping(int index, long number, Mailbox<Message>[] all, Savina.Random random) {
        long step = 1 + random.below(Math.max(1, all.length - 1));
        all[(int) ((index + step) % all.length)].send(new Message(Kind.PING, number, all[index]));
    }
}
