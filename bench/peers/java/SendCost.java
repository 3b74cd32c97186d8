import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongUnaryOperator;
import java.util.stream.LongStream;

/** `send-cost`: local calls for some time, then messages to another process for as long. */
final class SendCost {
    private static final long FIRST_CALLS = 10;
    /** How often a loop is made, at most, until it takes half of its length. */
    private static final int ATTEMPTS = 3;
    /** Lengths of the source's loops after the first, in milliseconds. */
    private static final long[] SOURCE_MS = {1, 500, 3000, 10_000};
    /** Bytes of the messages of a round, at most, each with MESSAGE_BYTES besides those that it carries. */
    private static final long ROUND_BYTES = 64 << 20;
    private static final long MESSAGE_BYTES = 64;
    private static final long TIMEOUT_SECONDS = 300;

    /** Several implementations behind one call, because the compiler inlines a call that always finds one or two. */
    private static final LongUnaryOperator[] CALLS =
        {made -> made + 1, made -> made + 1, made -> made + 1, made -> made + 1};

    /** The message on which the receiver waits for the permit. */
    private record Hold(Semaphore permit) {}

    private record Confirm(CompletableFuture<Account> confirmed) {}

    private record Account(long count, long sum) {}

    private final Mailbox<Object> mailbox = new Mailbox<>();
    private final byte[] buffer;
    /** What was sent, and what the receiver has confirmed. */
    private long sentCount;
    private long sentSum;
    private long count;
    private long sum;
    /** The times of the latest loop that sent. */
    private long sent;
    private long delivered;

    private SendCost(int payload) {
        buffer = new byte[payload];
    }

    static void run(Peer peer) throws Exception {
        long depth = peer.setting("depth");
        long[] lengths = LongStream.concat(
            LongStream.of(SOURCE_MS).filter(length -> length < peer.count()), LongStream.of(peer.count())).toArray();
        long calls = FIRST_CALLS;
        long clock = System.nanoTime();
        long made = callAll(calls);
        long local = System.nanoTime() - clock;
        for (long length : lengths) {
            for (int attempt = 0; attempt < ATTEMPTS && (attempt == 0 || isShort(local, length)); attempt++) {
                calls = callsIn(length, calls, local);
                clock = System.nanoTime();
                made = callAll(calls);
                local = System.nanoTime() - clock;
            }
        }

        SendCost sender = new SendCost((int) peer.setting("payload"));
        Processes.start(sender::receiveAll);
        long messages = FIRST_CALLS;
        sender.sendAll(messages, 0);
        for (long length : lengths) {
            for (int attempt = 0; attempt < ATTEMPTS && (attempt == 0 || isShort(sender.sent, length)); attempt++) {
                messages = callsIn(length, messages, sender.sent);
                sender.sendAll(messages, length == peer.count() ? depth : 0);
            }
        }

        peer.metric("local_ns", (double) local / calls);
        peer.metric("send_ns", (double) sender.sent / messages);
        peer.metric("delivered_ns", (double) sender.delivered / messages);
        peer.check("local calls", made, calls);
        peer.check("messages received", sender.count, sender.sentCount);
        peer.check("the sum received", sender.sum, sender.sentSum);
    }

    private static long callAll(long count) {
        long made = 0;
        for (long call = 0; call < count; call++) {
            made = CALLS[(int) call & 3].applyAsLong(made);
        }
        return made;
    }

    /** The number of calls that take some milliseconds if so many took so long. */
    private static long callsIn(long milliseconds, long calls, long took) {
        return Math.max(1, (long) (milliseconds * 1e6 * calls / Math.max(1, took)));
    }

    private static boolean isShort(long took, long milliseconds) {
        return 2 * took < milliseconds * 1_000_000;
    }

    /** Sends messages in rounds, each to a mailbox in which some messages wait. */
    private void sendAll(long messages, long depth) throws Exception {
        long round = Math.max(1, ROUND_BYTES / (buffer.length + MESSAGE_BYTES));
        sent = 0;
        delivered = 0;
        for (long left = messages; left > 0; left -= round) {
            if (depth > 0) {
                Semaphore permit = new Semaphore(0);
                mailbox.send(new Hold(permit));
                send(depth);
                permit.release();
            }
            long clock = System.nanoTime();
            send(Math.min(left, round));
            sent += System.nanoTime() - clock;
            CompletableFuture<Account> confirmed = new CompletableFuture<>();
            mailbox.send(new Confirm(confirmed));
            try {
                Account account = confirmed.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
                count += account.count();
                sum += account.sum();
            } catch (TimeoutException lost) {
                // The messages are missing in the count.
                return;
            }
            delivered += System.nanoTime() - clock;
        }
    }

    private void send(long messages) {
        if (buffer.length == 0) {
            for (long number = 0; number < messages; number++) {
                mailbox.send(number);
            }
            sentSum += Peer.sumBelow(messages);
        } else {
            for (long number = 0; number < messages; number++) {
                buffer[0] = (byte) number;
                buffer[buffer.length - 1] = (byte) number;
                mailbox.send(buffer.clone());
            }
            long bytes = messages / 256 * Peer.sumBelow(256) + Peer.sumBelow(messages % 256);
            sentSum += messages * buffer.length + 2 * bytes;
        }
        sentCount += messages;
    }

    private void receiveAll() {
        long received = 0;
        long total = 0;
        while (true) {
            Object message = mailbox.receive();
            if (message instanceof byte[] bytes) {
                received++;
                total += bytes.length + (bytes[0] & 0xff) + (bytes[bytes.length - 1] & 0xff);
            } else if (message instanceof Long number) {
                received++;
                total += number;
            } else if (message instanceof Hold hold) {
                hold.permit().acquireUninterruptibly();
            } else if (message instanceof Confirm confirm) {
                confirm.confirmed().complete(new Account(received, total));
                received = 0;
                total = 0;
            }
        }
    }
}
