import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/** `send`: messages from one process, or from several, to another, which confirms their sum. */
final class Send {
    /** The message after which the receiver reports its sum. */
    private static final Long END = -1L;

    private Send() {}

    static void run(Peer peer) throws Exception {
        long count = peer.count();
        long senders = peer.setting("senders");
        Mailbox<Long> mailbox = new Mailbox<>();
        CompletableFuture<Long> sum = new CompletableFuture<>();
        Processes.start(() -> sum.complete(add(mailbox)));
        Tally done = new Tally();
        AtomicLong lastDone = new AtomicLong();
        done.arm(senders);

        long clock = System.nanoTime();
        for (long sender = 0; sender < senders; sender++) {
            long begin = Peer.shareBegin(count, sender, senders);
            long end = Peer.shareBegin(count, sender + 1, senders);
            Processes.start(() -> {
                for (long value = begin; value < end; value++) {
                    mailbox.send(value);
                }
                lastDone.accumulateAndGet(System.nanoTime() - clock, Math::max);
                done.add(end - begin);
            });
        }
        done.complete();
        mailbox.send(END);
        long received = sum.join();
        long delivered = System.nanoTime() - clock;

        peer.metric("send_ns", (double) lastDone.get() / count);
        peer.metric("delivered_ns", (double) delivered / count);
        peer.check("the sum received", received, Peer.sumBelow(count));
        peer.check("senders that finished", done.count(), senders);
        peer.check("messages sent", done.sum(), count);
    }

    private static long add(Mailbox<Long> mailbox) {
        long sum = 0;
        long value;
        while ((value = mailbox.receive()) >= 0) {
            sum += value;
        }
        return sum;
    }
}
