/** `philosophers`: an arbiter owns the forks; a philosopher asks for two until it gets them, eats, and asks again. */
final class Philosophers {
    private enum Kind { HUNGRY, DONE, EXIT }

    private record ToArbiter(Kind kind, int index, Mailbox<Boolean> philosopher) {}

    private Philosophers() {}

    static void run(Peer peer) {
        int philosophers = (int) peer.setting("philosophers");
        long[] report = Savina.measure(peer, () -> arbitrate(peer.count(), philosophers));
        peer.check("meals eaten", report[0], peer.count() * philosophers);
        peer.check("forks that were granted while another had them", report[1], 0);
        peer.check("forks held at the end", report[2], 0);
    }

    /**
     * The arbiter. A fork is free (0) or has its holder's index plus one. A fork that was granted to a second
     * philosopher no longer has the first when this one puts it down.
     */
    private static long[] arbitrate(long meals, int philosophers) {
        Mailbox<ToArbiter> mailbox = new Mailbox<>();
        int[] forks = new int[philosophers];
        for (int philosopher = 0; philosopher < philosophers; philosopher++) {
            int index = philosopher;
            Processes.start(() -> dine(index, meals, mailbox));
        }
        long[] report = new long[3];
        for (int left = philosophers; left > 0;) {
            ToArbiter message = mailbox.receive();
            int one = message.index;
            int other = (one + 1) % philosophers;
            switch (message.kind) {
                case HUNGRY -> {
                    boolean mayEat = forks[one] == 0 && forks[other] == 0;
                    if (mayEat) {
                        forks[one] = forks[other] = one + 1;
                    }
                    message.philosopher.send(mayEat);
                }
                case DONE -> {
                    report[0]++;
                    report[1] += Savina.wrong(forks[one], one + 1) + Savina.wrong(forks[other], one + 1);
                    forks[one] = forks[other] = 0;
                }
                case EXIT -> left--;
            }
        }
        for (int fork : forks) {
            report[2] += Savina.wrong(fork, 0);
        }
        return report;
    }

    private static void dine(int index, long meals, Mailbox<ToArbiter> arbiter) {
        Mailbox<Boolean> mailbox = new Mailbox<>();
        ToArbiter hungry = new ToArbiter(Kind.HUNGRY, index, mailbox);
        ToArbiter done = new ToArbiter(Kind.DONE, index, null);
        while (meals > 0) {
            arbiter.send(hungry);
            if (mailbox.receive()) {
                arbiter.send(done);
                meals--;
            }
        }
        arbiter.send(new ToArbiter(Kind.EXIT, index, null));
    }
}
