/** `sieve`: a producer sends odd numbers to a chain of filters, each of which has a block of primes. */
final class Sieve {
    /** The message on which a filter passes on the number of the primes, and their sum. */
    private record Primes(long count, long sum) {}

    private Sieve() {}

    static void run(Peer peer) {
        int block = (int) peer.setting("block");
        Primes found = Savina.measure(peer, () -> produce(peer.count(), block));
        // The first filter has the prime 2.
        Primes due = primesBelow((int) Math.max(3, peer.count()));
        peer.check("primes", found.count, due.count);
        peer.check("their sum", found.sum, due.sum);
    }

    private static Primes produce(long limit, int block) {
        Mailbox<Primes> found = new Mailbox<>();
        Mailbox<Object> first = start(2, block, found);
        for (long number = 3; number < limit; number += 2) {
            first.send(number);
        }
        first.send(new Primes(0, 0));
        return found.receive();
    }

    private static Mailbox<Object> start(long prime, int block, Mailbox<Primes> found) {
        Mailbox<Object> mailbox = new Mailbox<>();
        Processes.start(() -> filter(prime, block, mailbox, found));
        return mailbox;
    }

    /** Adds primes to a block until it is full, and starts a filter for the next prime. */
    private static void filter(long prime, int block, Mailbox<Object> mailbox, Mailbox<Primes> found) {
        long[] own = new long[block];
        own[0] = prime;
        int count = 1;
        Mailbox<Object> next = null;
        while (true) {
            Object message = mailbox.receive();
            if (message instanceof Primes before) {
                long sum = before.sum;
                for (int index = 0; index < count; index++) {
                    sum += own[index];
                }
                Primes all = new Primes(before.count + count, sum);
                if (next == null) {
                    found.send(all);
                } else {
                    next.send(all);
                }
                return;
            }
            long number = (Long) message;
            if (hasDivisor(number, own, count)) {
                continue;
            }
            if (next != null) {
                next.send(message);
            } else if (count < block) {
                own[count++] = number;
            } else {
                next = start(number, block, found);
            }
        }
    }

    private static boolean hasDivisor(long number, long[] primes, int count) {
        for (int index = 0; index < count; index++) {
            if (number % primes[index] == 0) {
                return true;
            }
        }
        return false;
    }

    private static Primes primesBelow(int limit) {
        boolean[] composite = new boolean[limit];
        long count = 0;
        long sum = 0;
        for (int number = 2; number < limit; number++) {
            if (!composite[number]) {
                count++;
                sum += number;
                for (long multiple = (long) number * number; multiple < limit; multiple += number) {
                    composite[(int) multiple] = true;
                }
            }
        }
        return new Primes(count, sum);
    }
}
