import java.util.concurrent.CompletableFuture;

/**
 * A process that replies to each call with the sum of its own number and the call's. A message holds the
 * future of its reply, the library's usual means to hand over a single result.
 */
final class Service {
    private static final class Request {
        private final long value;
        private final CompletableFuture<Long> reply = new CompletableFuture<>();

        private Request(long value) {
            this.value = value;
        }
    }

    /** The message on which a service exits. */
    private static final Request STOP = new Request(0);

    private final Mailbox<Request> mailbox = new Mailbox<>();

    /** Starts a service that adds itself to the tally when it exits. */
    static Service start(long state, Tally exited) {
        Service service = new Service();
        Mailbox<Request> mailbox = service.mailbox;
        Processes.start(() -> {
            Request request;
            while ((request = mailbox.receive()) != STOP) {
                request.reply.complete(request.value + state);
            }
            exited.add(state);
        });
        return service;
    }

    long call(long value) {
        Request request = new Request(value);
        mailbox.send(request);
        return request.reply.join();
    }

    void stop() {
        mailbox.send(STOP);
    }
}
