import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.Behaviors;

/**
 * The driver of a workload: an actor whose messages are the workload's steps. It is the parent of all actors
 * that the steps start, which stop with it.
 */
final class Driver {
    /** A step of a workload; the last one calls {@link Driver#finish}. */
    @FunctionalInterface
    interface Step {
        void run() throws Exception;
    }

    private final ActorContext<Step> context;
    private final CompletableFuture<Void> finished;

    private Driver(ActorContext<Step> context, CompletableFuture<Void> finished) {
        this.context = context;
        this.finished = finished;
    }

    /** Creates the driver of a workload, which completes a future when it is done. */
    static Behavior<Step> create(Peer peer, CompletableFuture<Void> finished) {
        return Behaviors.setup(context -> {
            Driver driver = new Driver(context, finished);
            driver.run(() -> Main.run(peer, driver));
            return Behaviors.receiveMessage(driver::run);
        });
    }

    private Behavior<Step> run(Step step) {
        try {
            step.run();
        } catch (Exception error) {
            finished.completeExceptionally(error);
        }
        return Behaviors.same();
    }

    /** Starts an actor. */
    <M> ActorRef<M> start(Behavior<M> behavior) {
        return context.spawnAnonymous(behavior);
    }

    /** Runs a step when a tally is complete. */
    void whenComplete(Tally tally, Step step) {
        when(tally.complete(), step);
    }

    /** Runs a step when something has completed. */
    void when(CompletionStage<?> stage, Step step) {
        context.pipeToSelf(stage, (result, error) -> step);
    }

    /** Runs a step after some time. */
    void after(Duration pause, Step step) {
        context.scheduleOnce(pause, context.getSelf(), step);
    }

    /** Ends the workload. */
    void finish() {
        finished.complete(null);
    }
}
