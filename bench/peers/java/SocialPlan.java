import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** The plan of `social`, which is that of src/workloads/social/plan.rs, number by number. */
final class SocialPlan {
    enum Kind { TIMELINE, PROFILE, REDIRECT, POST }

    /** A request of a client; a post has a time of its own. */
    record Request(Kind kind, int user, long time) {}

    private static final long FOLLOWS = 1;
    private static final long REQUESTS = 2;

    /** The users that each user follows. */
    final int[][] followees;
    final Request[] before;
    final Request[][] rounds;

    SocialPlan(Peer peer) {
        int users = (int) peer.count();
        long follows = peer.setting("follows");
        long posts = peer.setting("posts");
        int requests = (int) peer.setting("requests");
        String graph = peer.word("graph");
        String part = peer.word("part");
        long[] sums = new long[users];
        for (int user = 0; user < users; user++) {
            sums[user] = (user == 0 ? 0 : sums[user - 1]) + (1L << 40) / (user + 1);
        }
        followees = new int[users][];
        for (int user = 0; user < users; user++) {
            int[] targets = new int[(int) follows];
            for (int at = 0; at < follows; at++) {
                targets[at] = target(graph, user, at, follows, users, sums);
            }
            int self = user;
            followees[user] = IntStream.of(targets).filter(target -> target != self).distinct().toArray();
        }
        before = new Request[(int) (users * posts)];
        Arrays.setAll(before, index -> new Request(Kind.POST, index % users, index + 1));
        rounds = new Request[(int) peer.setting("rounds")][requests];
        for (int round = 0; round < rounds.length; round++) {
            for (int at = 0; at < requests; at++) {
                long index = (long) round * requests + at;
                long draw = draw(REQUESTS, index);
                Kind kind = kind(part, Long.remainderUnsigned(draw, 100));
                int user = (int) (Long.divideUnsigned(draw, 100) % users);
                rounds[round][at] = new Request(kind, user, users * posts + 1 + index);
            }
        }
    }

    private static int target(String graph, int user, int at, long follows, int users, long[] sums) {
        long draw = draw(FOLLOWS, user * follows + at);
        if (graph.equals("ring")) {
            return (int) ((user + 1L + at) % users);
        }
        if (graph.equals("uniform")) {
            return (int) Long.remainderUnsigned(draw, users);
        }
        // The index of the first sum that is greater than the number.
        int found = Arrays.binarySearch(sums, Long.remainderUnsigned(draw, sums[users - 1]));
        return found < 0 ? -found - 1 : found + 1;
    }

    /** The output of splitmix64 with a seed that follows `index` others. */
    private static long draw(long seed, long index) {
        long state = seed + (index + 1) * 0x9E37_79B9_7F4A_7C15L;
        state = (state ^ state >>> 30) * 0xBF58_476D_1CE4_E5B9L;
        state = (state ^ state >>> 27) * 0x94D0_49BB_1331_11EBL;
        return state ^ state >>> 31;
    }

    private static Kind kind(String part, long percent) {
        return switch (part) {
            case "timelines" -> Kind.TIMELINE;
            case "profiles" -> Kind.PROFILE;
            case "redirects" -> Kind.REDIRECT;
            case "deliveries" -> Kind.POST;
            default -> percent < 80 ? Kind.TIMELINE : percent < 95 ? Kind.PROFILE : Kind.POST;
        };
    }

    long follows() {
        return Arrays.stream(followees).mapToLong(targets -> targets.length).sum();
    }

    /** The sums over all timelines, and over all profiles, when all requests are done. */
    long[] sums() {
        List<List<Long>> profiles = new ArrayList<>();
        IntStream.range(0, followees.length).forEach(user -> profiles.add(new ArrayList<>()));
        List<Request[]> all = new ArrayList<>();
        all.add(before);
        all.addAll(List.of(rounds));
        for (Request[] requests : all) {
            for (Request request : requests) {
                if (request.kind == Kind.POST) {
                    profiles.get(request.user).add(request.time);
                }
            }
        }
        long[] sums = new long[2];
        for (int user = 0; user < followees.length; user++) {
            sums[0] += sum(Arrays.stream(followees[user]).boxed()
                .flatMap(target -> profiles.get(target).stream()).mapToLong(Long::longValue).sorted().toArray());
            sums[1] += sum(profiles.get(user).stream().mapToLong(Long::longValue).toArray());
        }
        return sums;
    }

    /** A number that depends on times and on their order; the array has the oldest first. */
    static long sum(long[] times) {
        long sum = 0;
        for (int at = times.length - 1; at >= 0; at--) {
            sum = sum * 31 + times[at] & (1 << 30) - 1;
        }
        return sum;
    }
}
