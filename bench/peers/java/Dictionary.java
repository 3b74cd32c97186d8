import java.util.HashMap;
import java.util.Map;

/** `dictionary`: clients read and write a map that one process holds. */
final class Dictionary {
    /** A request, whose value is null in a read. */
    private record Request(long key, Long value, Mailbox<Long> client) {}

    private static final Request END = new Request(0, null, null);
    /** The answer to a read of a key that was never written; no value is zero. */
    private static final Long NONE = 0L;

    private Dictionary() {}

    static void run(Peer peer) {
        long clients = peer.setting("clients");
        long writes = peer.setting("writes");
        long[] report = Savina.measure(peer, () -> askAll(peer.count(), clients, writes));
        peer.check("wrong answers", report[0], 0);
        peer.check("writes handled", report[4], report[1]);
        peer.check("entries of the dictionary", report[5], report[2]);
        peer.check("requests handled", report[3], peer.count() * clients);
    }

    private static long[] askAll(long count, long clients, long writes) {
        Mailbox<Request> dictionary = new Mailbox<>();
        Mailbox<long[]> ended = new Mailbox<>();
        Mailbox<long[]> done = new Mailbox<>();
        Processes.start(() -> ended.send(answerAll(dictionary)));
        for (long client = 0; client < clients; client++) {
            long index = client;
            Processes.start(() -> done.send(ask(index, count, writes, dictionary)));
        }
        long[] asked = Savina.sum(done, clients, 3);
        dictionary.send(END);
        long[] answered = ended.receive();
        return new long[] {asked[0], asked[1], asked[2], answered[0], answered[1], answered[2]};
    }

    private static long[] answerAll(Mailbox<Request> mailbox) {
        Map<Long, Long> entries = new HashMap<>();
        long handled = 0;
        long writes = 0;
        Request request;
        while ((request = mailbox.receive()) != END) {
            handled++;
            if (request.value == null) {
                request.client.send(entries.getOrDefault(request.key, NONE));
            } else {
                writes++;
                entries.put(request.key, request.value);
                request.client.send(request.value);
            }
        }
        return new long[] {handled, writes, entries.size()};
    }

    /** A client has at most 512 keys of its own, and keeps what it wrote last to each: the number of requests left. */
    private static long[] ask(long index, long count, long writes, Mailbox<Request> dictionary) {
        Map<Long, Long> own = new HashMap<>();
        Mailbox<Long> mailbox = new Mailbox<>();
        Savina.Random random = new Savina.Random(index);
        long wrong = 0;
        long written = 0;
        for (long left = count; left > 0; left--) {
            boolean isWrite = random.below(100) < writes;
            long key = index * 65536 + random.next() / 128;
            if (isWrite) {
                own.put(key, left);
                written++;
            }
            dictionary.send(new Request(key, isWrite ? left : null, mailbox));
            wrong += Savina.wrong(mailbox.receive(), own.getOrDefault(key, NONE));
        }
        return new long[] {wrong, written, own.size()};
    }
}
