import java.util.concurrent.CompletableFuture;

/**
 * `monitors`: processes end while one watcher is told of each, or each of several.
 *
 * <p>A process has a future that it completes as it ends, in the manner of Process.onExit; a watcher's callback on
 * it sends the watcher a message.
 */
final class Monitors {
    private enum Message { ASK, END }

    /** The end of a process, as a watcher is told of it. */
    private record Ended(int number, boolean isNormal) {}

    /** The message on which a watcher makes its monitors. */
    private static final Ended WATCH = new Ended(-1, false);

    private static final Tally ANSWERED = new Tally();
    private static final Tally WATCHING = new Tally();
    private static final Tally TOLD = new Tally();

    private record Watched(Mailbox<Message> mailbox, CompletableFuture<Void> ended) {}

    private Monitors() {}

    static void run(Peer peer) throws Exception {
        ANSWERED.reset();
        WATCHING.reset();
        TOLD.reset();
        int count = (int) peer.count();
        int watcherCount = (int) peer.setting("watchers");
        Watched[] processes = new Watched[count];
        for (int number = 0; number < count; number++) {
            processes[number] = start();
        }
        ANSWERED.arm(count);
        for (Watched process : processes) {
            process.mailbox().send(Message.ASK);
        }
        ANSWERED.complete();
        Watcher[] watchers = new Watcher[watcherCount];
        for (int at = 0; at < watcherCount; at++) {
            Watcher watcher = new Watcher(processes);
            Processes.start(watcher::live);
            watchers[at] = watcher;
        }
        long residentBefore = Memory.resident();

        WATCHING.arm(watcherCount);
        long watching = System.nanoTime();
        for (Watcher watcher : watchers) {
            watcher.mailbox.send(WATCH);
        }
        WATCHING.complete();
        long established = System.nanoTime();
        long resident = Memory.resident();

        TOLD.arm(watcherCount);
        long ending = System.nanoTime();
        for (Watched process : processes) {
            process.mailbox().send(Message.END);
        }
        TOLD.complete();
        long down = System.nanoTime();

        long all = (long) count * watcherCount;
        long once = 0;
        long abnormal = 0;
        for (Watcher watcher : watchers) {
            for (int times : watcher.times) {
                once += times == 1 ? 1 : 0;
            }
            abnormal += watcher.abnormal;
        }
        peer.metric("monitor_ns", (double) (established - watching) / all);
        peer.metric("down_ns", (double) (down - ending) / all);
        peer.metric("bytes_per_monitor", (double) Math.max(0, resident - residentBefore) / all);
        peer.check("messages that were answered", ANSWERED.count(), count);
        peer.check("watchers that made their monitors", WATCHING.count(), watcherCount);
        peer.check("watchers that were told of all ends", TOLD.count(), watcherCount);
        peer.check("processes that each watcher was told of once", once, all);
        peer.check("notifications of another reason", abnormal, 0);
    }

    private static Watched start() {
        Watched watched = new Watched(new Mailbox<>(), new CompletableFuture<>());
        Processes.start(() -> {
            try {
                while (watched.mailbox().receive() == Message.ASK) {
                    ANSWERED.add(1);
                }
                watched.ended().complete(null);
            } catch (Throwable error) {
                watched.ended().completeExceptionally(error);
            }
        });
        return watched;
    }

    private static final class Watcher {
        final Mailbox<Ended> mailbox = new Mailbox<>();
        /** How many times each process was reported. */
        final int[] times;
        long abnormal;
        private final Watched[] processes;

        Watcher(Watched[] processes) {
            this.processes = processes;
            times = new int[processes.length];
        }

        void live() {
            mailbox.receive();
            for (int at = 0; at < processes.length; at++) {
                int number = at;
                processes[at].ended().whenComplete(
                    (none, error) -> mailbox.send(new Ended(number, error == null)));
            }
            WATCHING.add(1);
            for (int told = 0; told < processes.length; told++) {
                Ended ended = mailbox.receive();
                times[ended.number()]++;
                abnormal += ended.isNormal() ? 0 : 1;
            }
            TOLD.add(1);
        }
    }
}
