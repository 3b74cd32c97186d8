import java.util.concurrent.CountDownLatch;

/**
 * `banking`: a teller sends transfers to accounts, each of which has another account credited and waits for its
 * acknowledgement.
 */
final class Banking {
    private static final long BALANCE = 1_000_000;

    private interface ToAccount {}

    private record Transfer(long number, int source, long amount, Mailbox<ToAccount> destination)
        implements ToAccount {}

    /** An amount, and the latch at which the source waits for the acknowledgement. */
    private record Credit(long amount, CountDownLatch acknowledged) implements ToAccount {}

    private record Stop() implements ToAccount {}

    private static final Stop STOP = new Stop();

    private Banking() {}

    static void run(Peer peer) {
        int accounts = Math.max(2, (int) peer.setting("accounts"));
        long[] report = Savina.measure(peer, () -> teller(peer.count(), accounts));
        peer.check("transactions completed", report[0], peer.count());
        peer.check("the sum of the balances", report[1], accounts * BALANCE);
        peer.check("transactions completed before an earlier one of their account", report[2], 0);
    }

    private static long[] teller(long count, int accounts) {
        Mailbox<Transfer> completed = new Mailbox<>();
        Mailbox<long[]> balances = new Mailbox<>();
        Mailbox<ToAccount>[] all = Savina.mailboxes(accounts);
        for (Mailbox<ToAccount> account : all) {
            Processes.start(() -> balances.send(new long[] {keep(account, completed)}));
        }
        Savina.Random random = new Savina.Random(0);
        for (long number = 1; number <= count; number++) {
            // The destination is greater than the source, so that no accounts wait for each other in a circle.
            int source = (int) random.below(Math.max(1, accounts / 10 * 8));
            int destination = source + (int) Math.max(1, random.below(accounts - source));
            all[source].send(new Transfer(number, source, 1 + random.below(1000), all[destination]));
        }
        long[] last = new long[accounts];
        long[] report = new long[3];
        for (; report[0] < count; report[0]++) {
            // An account with two transactions open at once could complete the later first.
            Transfer transfer = completed.receive();
            report[2] += transfer.number < last[transfer.source] ? 1 : 0;
            last[transfer.source] = transfer.number;
        }
        for (Mailbox<ToAccount> account : all) {
            account.send(STOP);
        }
        report[1] = Savina.sum(balances, accounts, 1)[0];
        return report;
    }

    /** An account. While it waits for an acknowledgement, other messages stay in its mailbox. */
    private static long keep(Mailbox<ToAccount> mailbox, Mailbox<Transfer> completed) {
        long balance = BALANCE;
        ToAccount message;
        while ((message = mailbox.receive()) != STOP) {
            if (message instanceof Credit credit) {
                balance += credit.amount;
                credit.acknowledged.countDown();
            } else {
                Transfer transfer = (Transfer) message;
                balance -= transfer.amount;
                Credit credit = new Credit(transfer.amount, new CountDownLatch(1));
                transfer.destination.send(credit);
                await(credit.acknowledged);
                completed.send(transfer);
            }
        }
        return balance;
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException("no process is interrupted", error);
        }
    }
}
