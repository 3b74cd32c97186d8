import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/**
 * An actor that replies to each request with the sum of its own number and the request's: the interaction
 * pattern "Request-Response" of Pekko's documentation, in which a request has the address for the reply.
 */
final class Service {
    interface Message {}

    record Request(long value, ActorRef<Long> replyTo) implements Message {}

    enum Stop implements Message { STOP }

    private Service() {}

    /** A service that adds itself to the tally when it has stopped. */
    static Behavior<Message> create(long state, Tally exited) {
        return Behaviors.receiveMessage(message -> {
            if (message instanceof Request request) {
                request.replyTo.tell(request.value + state);
                return Behaviors.same();
            }
            return Behaviors.stopped(() -> exited.add(state));
        });
    }
}
