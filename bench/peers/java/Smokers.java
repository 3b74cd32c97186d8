/** `smokers`: an arbiter chooses a smoker at random, and the next one when this one has started to smoke. */
final class Smokers {
    /** The message on which a smoker ends. */
    private static final long EXIT = -1;

    private Smokers() {}

    static void run(Peer peer) {
        int smokers = (int) peer.setting("smokers");
        long[] report = Savina.measure(peer, () -> choose(peer.count(), smokers));
        peer.check("rounds", report[0], peer.count());
        peer.check("cigarettes smoked", report[1], peer.count());
        peer.check("smokers that smoked more or less often than chosen", report[2], 0);
    }

    private static long[] choose(long count, int smokers) {
        Mailbox<Boolean> started = new Mailbox<>();
        Mailbox<long[]> reports = new Mailbox<>();
        Mailbox<Long>[] all = Savina.mailboxes(smokers);
        long[] chosen = new long[smokers];
        for (int smoker = 0; smoker < smokers; smoker++) {
            int index = smoker;
            Processes.start(() -> reports.send(new long[] {index, smoke(all[index], started)}));
        }
        long[] sum = new long[3];
        Savina.Random random = new Savina.Random(0);
        for (long left = count; left > 0; left--) {
            int index = (int) random.below(smokers);
            chosen[index]++;
            all[index].send(random.below(1000) + 10);
            started.receive();
            sum[0]++;
        }
        for (Mailbox<Long> smoker : all) {
            smoker.send(EXIT);
        }
        for (int left = smokers; left > 0; left--) {
            long[] report = reports.receive();
            sum[1] += report[1];
            sum[2] += Savina.wrong(report[1], chosen[(int) report[0]]);
        }
        return sum;
    }

    /** A smoker; returns the number of times that it smoked. */
    private static long smoke(Mailbox<Long> mailbox, Mailbox<Boolean> arbiter) {
        long times = 0;
        long steps;
        while ((steps = mailbox.receive()) != EXIT) {
            arbiter.send(true);
            Savina.busy(steps);
            times++;
        }
        return times;
    }
}
