import java.util.concurrent.LinkedTransferQueue;
import java.util.concurrent.TimeUnit;

/**
 * The mailbox of a process: an unbounded queue of the library, without limit and for any number of senders.
 */
final class Mailbox<M> extends LinkedTransferQueue<M> {
    private static final long serialVersionUID = 1;

    void send(M message) {
        add(message);
    }

    /** Waits for a message. */
    M receive() {
        try {
            return take();
        } catch (InterruptedException error) {
            throw new IllegalStateException("no process is interrupted", error);
        }
    }

    /** Waits for a message for at most some seconds; returns null after that. */
    M receive(long seconds) {
        try {
            return poll(seconds, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            throw new IllegalStateException("no process is interrupted", error);
        }
    }
}
