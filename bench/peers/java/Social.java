import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/**
 * `social`: clients make requests to shards of users, each a thread, which push each post to the shards of the
 * followers. The posts of a user are an array to which posts are only appended while a reader may have it, so a reader
 * gets the array itself.
 */
final class Social {
    /** A client times one of so many of its requests separately, the first included. */
    private static final int SAMPLED = 8;

    private final SocialPlan plan;
    private final Directory directory;
    private final Account[] users;
    private final int clients;
    private final int posts;
    private final int read;

    private Social(Peer peer) {
        plan = new SocialPlan(peer);
        directory = new Directory((int) peer.setting("users_per_process"));
        users = new Account[(int) peer.count()];
        clients = (int) peer.setting("clients");
        posts = (int) peer.setting("posts");
        read = (int) peer.setting("read");
    }

    static void run(Peer peer) throws Exception {
        if (peer.setting("dropped") >= peer.setting("rounds")) {
            throw new IllegalArgumentException("dropped must be less than rounds");
        }
        Social social = new Social(peer);
        social.measure(peer, (int) peer.setting("dropped"));
        social.settle(peer);
    }

    private void measure(Peer peer, int dropped) throws Exception {
        long clock = System.nanoTime();
        for (int user = 0; user < users.length; user++) {
            users[user] = directory.register(name(user));
        }
        peer.metric("register_ns", (double) (System.nanoTime() - clock) / users.length);
        clock = System.nanoTime();
        onClients((client, own) -> {
            for (int user = client; user < users.length; user += clients) {
                for (int target : plan.followees[user]) {
                    follow(users[user], users[target]);
                }
            }
        });
        if (plan.follows() > 0) {
            peer.metric("follow_ns", (double) (System.nanoTime() - clock) / plan.follows());
        }
        onClients((client, own) -> {
            for (int at = client; at < plan.before.length; at += clients) {
                post(plan.before[at]);
            }
        });

        Counted kept = new Counted();
        long[] times = new long[plan.rounds.length - dropped];
        long wrong = 0;
        for (int round = 0; round < plan.rounds.length; round++) {
            SocialPlan.Request[] requests = plan.rounds[round];
            clock = System.nanoTime();
            Counted counted = onClients((client, own) -> serve(requests, client, own));
            long elapsed = System.nanoTime() - clock;
            wrong += counted.wrong;
            if (round >= dropped) {
                times[round - dropped] = elapsed;
                kept.add(counted);
            }
        }
        report(peer, kept, Arrays.copyOfRange(plan.rounds, dropped, plan.rounds.length), times);
        peer.check("wrong answers", wrong, 0);
    }

    private void report(Peer peer, Counted kept, SocialPlan.Request[][] rounds, long[] times) {
        long[] followers = new long[users.length];
        Arrays.stream(plan.followees).flatMapToInt(Arrays::stream).forEach(target -> followers[target]++);
        long[] counts = new long[SocialPlan.Kind.values().length];
        long due = 0;
        for (SocialPlan.Request[] requests : rounds) {
            for (SocialPlan.Request request : requests) {
                counts[request.kind().ordinal()]++;
                due += request.kind() == SocialPlan.Kind.POST ? followers[request.user()] : 0;
            }
        }
        double elapsed = Arrays.stream(times).sum();
        String[] names = {"timelines_per_s", "profiles_per_s", "redirects_per_s", "posts_per_s"};
        for (int kind = 0; kind < names.length; kind++) {
            rate(peer, names[kind], counts[kind], elapsed);
        }
        rate(peer, "deliveries_per_s", kept.deliveries, elapsed);
        double mean = elapsed / times.length;
        peer.metric("round_mean_ns", mean);
        if (times.length > 1) {
            double squares = Arrays.stream(times).mapToDouble(time -> (time - mean) * (time - mean)).sum();
            peer.metric("round_deviation_ns", Math.sqrt(squares / (times.length - 1)));
        }
        Calls.percentiles(peer, "latency", Arrays.copyOf(kept.latencies, kept.timed));
        Calls.percentiles(peer, "round", times);
        peer.check("deliveries", kept.deliveries, due);
    }

    private static void rate(Peer peer, String name, long count, double elapsed) {
        if (count > 0) {
            peer.metric(name, count * 1e9 / elapsed);
        }
    }

    /** Reads all timelines and profiles, and checks their sums and texts. */
    private void settle(Peer peer) {
        long[] found = new long[3];
        for (Account user : users) {
            Posts[] both = {read(user, own -> own.timeline), read(user, own -> own.profile)};
            for (int which = 0; which < 2; which++) {
                Posts posts = both[which];
                found[which] += SocialPlan.sum(IntStream.range(0, posts.count)
                    .mapToLong(at -> posts.all[at].time).toArray());
                found[2] += IntStream.range(0, posts.count)
                    .filter(at -> !posts.all[at].text.equals(text(posts.all[at].time))).count();
            }
        }
        long[] due = plan.sums();
        peer.check("the sum of the timelines", found[0], due[0]);
        peer.check("the sum of the profiles", found[1], due[1]);
        peer.check("posts with a wrong text", found[2], 0);
    }

    private static String name(int user) {
        return "user_" + user;
    }

    private static String text(long time) {
        return "post " + time;
    }

    /** What a client counts. */
    private static final class Counted {
        private long deliveries;
        private long wrong;
        private long[] latencies = new long[64];
        private int timed;

        private void time(long latency) {
            if (timed == latencies.length) {
                latencies = Arrays.copyOf(latencies, 2 * timed);
            }
            latencies[timed++] = latency;
        }

        private void add(Counted other) {
            deliveries += other.deliveries;
            wrong += other.wrong;
            Arrays.stream(other.latencies, 0, other.timed).forEach(this::time);
        }
    }

    private interface Work {
        void run(int client, Counted own);
    }

    /** Runs a function in each client, a process; returns what they have counted. */
    private Counted onClients(Work work) throws InterruptedException {
        Counted[] all = new Counted[clients];
        Tally done = new Tally();
        done.arm(clients);
        for (int client = 0; client < clients; client++) {
            Counted own = all[client] = new Counted();
            int number = client;
            Processes.start(() -> {
                work.run(number, own);
                done.add(0);
            });
        }
        done.complete();
        Counted sum = new Counted();
        // A client that has not ended has wrong answers.
        sum.wrong = clients - done.count();
        Arrays.stream(all).forEach(sum::add);
        return sum;
    }

    /** Makes the requests of a client, one after the other. */
    private void serve(SocialPlan.Request[] requests, int client, Counted own) {
        for (int index = 0, at = client; at < requests.length; index++, at += clients) {
            if (index % SAMPLED != 0) {
                request(requests[at], own);
                continue;
            }
            long clock = System.nanoTime();
            request(requests[at], own);
            own.time(System.nanoTime() - clock);
        }
    }

    private void request(SocialPlan.Request request, Counted own) {
        Account user = users[request.user()];
        int followees = plan.followees[request.user()].length;
        boolean isRight = true;
        switch (request.kind()) {
            case TIMELINE -> isRight = isRight(read(user, of -> of.timeline), posts * followees);
            case PROFILE -> isRight = isRight(read(user, of -> of.profile), posts);
            case REDIRECT -> isRight = isRight(directory.profile(name(request.user())), posts);
            case POST -> own.deliveries += post(request);
            default -> throw new IllegalStateException();
        }
        own.wrong += isRight ? 0 : 1;
    }

    /** Reads the newest posts, which must be newest first, have texts, and be as many as are due. */
    private boolean isRight(Posts posts, int due) {
        long newer = Long.MAX_VALUE;
        int end = Math.max(0, posts.count - read);
        for (int at = posts.count - 1; at >= end; at--) {
            Post post = posts.all[at];
            if (post.time >= newer || post.text.length() <= 5) {
                return false;
            }
            newer = post.time;
        }
        return posts.count - end >= Math.min(due, read);
    }

    private static void follow(Account user, Account target) {
        CompletableFuture<Void> followed = new CompletableFuture<>();
        target.shard.send(own -> {
            Holdings of = own[target.slot];
            // A post on its way has the array as it was. A user that follows twice would get a second copy; the plan has
            // no such follow.
            of.followers.merge(user.shard, new int[] {user.slot}, Social::joined);
            Posts posts = of.profile.read();
            user.shard.send(there -> {
                there[user.slot].timeline.merge(posts);
                followed.complete(null);
            });
        });
        followed.join();
    }

    private static int[] joined(int[] slots, int[] more) {
        int[] all = Arrays.copyOf(slots, slots.length + 1);
        all[slots.length] = more[0];
        return all;
    }

    /** Sends a message; returns the number of followers that have received it when the last has. */
    private int post(SocialPlan.Request request) {
        Account user = users[request.user()];
        Post post = new Post(request.time(), text(request.time()), request.user());
        CompletableFuture<Integer> reply = new CompletableFuture<>();
        user.shard.send(own -> {
            Holdings of = own[user.slot];
            of.profile.insert(post);
            if (of.followers.isEmpty()) {
                reply.complete(0);
            }
            AtomicInteger waiting = new AtomicInteger(of.followers.size());
            AtomicInteger received = new AtomicInteger();
            of.followers.forEach((shard, slots) -> shard.send(there -> {
                for (int slot : slots) {
                    there[slot].timeline.insert(post);
                }
                received.getAndAdd(slots.length);
                if (waiting.decrementAndGet() == 0) {
                    reply.complete(received.get());
                }
            }));
        });
        return reply.join();
    }

    private interface List {
        Timeline of(Holdings user);
    }

    private static Posts read(Account user, List list) {
        CompletableFuture<Posts> reply = new CompletableFuture<>();
        user.shard.send(own -> reply.complete(list.of(own[user.slot]).read()));
        return reply.join();
    }

    private record Post(long time, String text, int author) {}

    /** Some posts of an array, oldest first. */
    private record Posts(Post[] all, int count) {}

    /** The place of a user. */
    private record Account(Shard shard, int slot) {}

    private static final class Holdings {
        private final Timeline timeline = new Timeline();
        private final Timeline profile = new Timeline();
        private final Map<Shard, int[]> followers = new HashMap<>();
    }

    /** The process that holds some users; a message is what it does with them. */
    private static final class Shard {
        private final Mailbox<Consumer<Holdings[]>> mailbox = new Mailbox<>();

        private Shard(int users) {
            Holdings[] own = new Holdings[users];
            Arrays.setAll(own, slot -> new Holdings());
            Processes.start(() -> {
                for (;;) {
                    mailbox.receive().accept(own);
                }
            });
        }

        private void send(Consumer<Holdings[]> message) {
            mailbox.send(message);
        }
    }

    /** The process that knows all users and starts their shards. */
    private static final class Directory {
        private final Mailbox<Consumer<Map<String, Account>>> mailbox = new Mailbox<>();
        private final int each;
        /** Used by the process only. */
        private Shard newest;

        private Directory(int each) {
            this.each = each;
            Map<String, Account> users = new HashMap<>();
            Processes.start(() -> {
                for (;;) {
                    mailbox.receive().accept(users);
                }
            });
        }

        private Account register(String name) {
            CompletableFuture<Account> reply = new CompletableFuture<>();
            mailbox.send(users -> {
                int slot = users.size() % each;
                if (slot == 0) {
                    newest = new Shard(each);
                }
                Account user = new Account(newest, slot);
                users.put(name, user);
                reply.complete(user);
            });
            return reply.join();
        }

        private Posts profile(String name) {
            CompletableFuture<Posts> reply = new CompletableFuture<>();
            mailbox.send(users -> {
                Account user = users.get(name);
                user.shard.send(own -> reply.complete(own[user.slot].profile.read()));
            });
            return reply.join();
        }
    }

    /** The posts of a list, as its shard keeps them. */
    private static final class Timeline {
        private Post[] posts = new Post[4];
        private int count;
        private boolean isRead;

        private Posts read() {
            isRead = true;
            return new Posts(posts, count);
        }

        /** Adds a post at its place. A reader sees none behind those that it got, and none of these moves. */
        private void insert(Post post) {
            int at = count;
            while (at > 0 && posts[at - 1].time > post.time) {
                at--;
            }
            if (count == posts.length || at < count && isRead) {
                posts = Arrays.copyOf(posts, count == posts.length ? 2 * count : posts.length);
                isRead = false;
            }
            System.arraycopy(posts, at, posts, at + 1, count - at);
            posts[at] = post;
            count++;
        }

        private void merge(Posts others) {
            if (others.count > 0) {
                Post[] merged = Arrays.copyOf(posts, Math.max(4, count + others.count));
                System.arraycopy(others.all, 0, merged, count, others.count);
                posts = merged;
                count += others.count;
                isRead = false;
                Arrays.sort(posts, 0, count, (one, other) -> Long.compare(one.time, other.time));
            }
        }
    }
}
