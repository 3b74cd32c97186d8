import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Starts threads: virtual threads, or with THREADS=platform in the environment, platform threads. */
final class Processes {
    private static final boolean PLATFORM = "platform".equals(System.getenv("THREADS"));

    /**
     * Thread.startVirtualThread, which javac 17 does not know; null before JRE 21. A static final handle
     * is a constant for the compiler, so a call of it costs as much as a call of the method.
     */
    private static final MethodHandle START_VIRTUAL = startVirtual();

    private Processes() {}

    /** Sets the number of threads that run virtual threads; called before the first of them starts. */
    static void prepare(int workers) {
        if (PLATFORM) {
            return;
        }
        if (START_VIRTUAL == null) {
            throw new UnsupportedOperationException("virtual threads need Java 21 or later");
        }
        System.setProperty("jdk.virtualThreadScheduler.parallelism", Integer.toString(workers));
    }

    /** The number of threads that run processes. */
    static int workers(int workers) {
        return PLATFORM ? Runtime.getRuntime().availableProcessors() : workers;
    }

    static boolean arePlatform() {
        return PLATFORM;
    }

    /** Starts a process that does not keep the program from ending. */
    static Thread start(Runnable body) {
        if (PLATFORM) {
            Thread thread = new Thread(body);
            thread.setDaemon(true);
            thread.start();
            return thread;
        }
        try {
            return (Thread) START_VIRTUAL.invokeExact(body);
        } catch (RuntimeException | Error error) {
            throw error;
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    private static MethodHandle startVirtual() {
        try {
            return MethodHandles.lookup().findStatic(
                Thread.class, "startVirtualThread", MethodType.methodType(Thread.class, Runnable.class));
        } catch (NoSuchMethodException | IllegalAccessException error) {
            return null;
        }
    }
}
