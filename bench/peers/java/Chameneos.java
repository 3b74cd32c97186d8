/** `chameneos`: a mall pairs creatures that ask for a meeting; both take the colour that the meeting makes. */
final class Chameneos {
    private interface ToMall {}

    private record Meet(int index, int colour, Mailbox<Visit> creature) implements ToMall {}

    private record Report(int index, long meetings, long selves) implements ToMall {}

    private enum Kind { MEET, CHANGE, OVER }

    /** A message to a creature: another that it meets, or the colour that a meeting has made. */
    private record Visit(Kind kind, int index, int colour, Mailbox<Visit> creature) {}

    private static final Visit OVER = new Visit(Kind.OVER, 0, 0, null);

    private Chameneos() {}

    static void run(Peer peer) {
        int creatures = (int) peer.setting("creatures");
        long[] report = Savina.measure(peer, () -> pair(peer.count(), creatures));
        peer.check("meetings of all creatures", report[0], 2 * peer.count());
        peer.check("creatures that met themselves", report[1], 0);
        peer.check("creatures whose count is not the mall's", report[2], 0);
        peer.check("colours that no meeting made", report[3], 0);
    }

    /** The mall, which has the colour and the number of meetings of each creature itself. */
    private static long[] pair(long meetings, int creatures) {
        Mailbox<ToMall> mall = new Mailbox<>();
        int[] colours = new int[creatures];
        long[] met = new long[creatures];
        for (int creature = 0; creature < creatures; creature++) {
            int index = creature;
            colours[index] = index % 3;
            Processes.start(() -> live(index, index % 3, mall));
        }
        long[] sum = new long[4];
        Meet waiting = null;
        for (int left = creatures; left > 0;) {
            ToMall message = mall.receive();
            if (message instanceof Report report) {
                left--;
                sum[0] += report.meetings;
                sum[1] += report.selves;
                sum[2] += Savina.wrong(report.meetings, met[report.index]);
                continue;
            }
            Meet meet = (Meet) message;
            sum[3] += Savina.wrong(meet.colour, colours[meet.index]);
            if (meetings == 0) {
                meet.creature.send(OVER);
            } else if (waiting == null) {
                waiting = meet;
            } else {
                meetings--;
                waiting.creature.send(new Visit(Kind.MEET, meet.index, meet.colour, meet.creature));
                int made = complement(waiting.colour, meet.colour);
                for (int index : new int[] {waiting.index, meet.index}) {
                    colours[index] = made;
                    met[index]++;
                }
                waiting = null;
            }
        }
        return sum;
    }

    private static void live(int index, int colour, Mailbox<ToMall> mall) {
        Mailbox<Visit> mailbox = new Mailbox<>();
        long meetings = 0;
        long selves = 0;
        while (true) {
            mall.send(new Meet(index, colour, mailbox));
            Visit visit = mailbox.receive();
            switch (visit.kind) {
                case MEET -> {
                    colour = complement(colour, visit.colour);
                    visit.creature.send(new Visit(Kind.CHANGE, index, colour, null));
                }
                case CHANGE -> colour = visit.colour;
                case OVER -> {
                    mall.send(new Report(index, meetings, selves));
                    return;
                }
            }
            meetings++;
            selves += 1 - Savina.wrong(visit.index, index);
        }
    }

    /** The colour that a meeting makes. */
    private static int complement(int one, int other) {
        return one == other ? one : 3 - one - other;
    }
}
