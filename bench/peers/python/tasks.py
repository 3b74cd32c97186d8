"""`tasks`: tasks share a dictionary, pass messages round a ring, and wait until they time out."""

import asyncio
import math
from time import perf_counter_ns as clock

import memory
from process import start
from tally import Tally, sum_below
from timers import TICK

EACH = 4


class Ring:
    """What all tasks share."""

    def __init__(self, count, seconds):
        self.count, self.seconds = count, seconds
        self.entries, self.mailboxes, self.late = {}, [], [math.inf] * count
        self.going = asyncio.Event()
        self.ready, self.handled, self.timed_out, self.exited = Tally(), Tally(), Tally(), Tally()
        self.early = self.misplaced = self.wrong = 0


async def run(settings, outcome):
    count, seconds = settings["count"], settings["seconds"]
    ring = Ring(count, seconds)
    ring.ready.arm(count)
    begun = clock()
    for index in range(count):
        mailbox = asyncio.Queue()
        ring.mailboxes.append(mailbox)
        start(_task(ring, index, mailbox))
    spawned = clock()
    await ring.ready.complete()
    ready = clock()
    ready_bytes = memory.resident()

    ring.handled.arm(count)
    ring.exited.arm(count)
    going = clock()
    ring.going.set()
    await ring.handled.complete()
    handled = clock()
    await ring.exited.complete()
    peak, after = memory.peak(), memory.resident()

    ring.late.sort()
    wrong = ring.wrong + sum(value != _value_of(key) for key, value in ring.entries.items())
    outcome.metric("spawn_ns", (spawned - begun) / count)
    outcome.metric("ready_ns", (ready - begun) / count)
    outcome.metric("ready_rss_bytes", ready_bytes)
    outcome.metric("messages_per_s", count * EACH * 1e9 / (handled - going))
    outcome.distribution("late", lambda probability: ring.late[max(1, math.ceil(probability * count)) - 1])
    outcome.metric("peak_rss_bytes", peak)
    outcome.metric("rss_after_bytes", after)
    outcome.check("tasks that were ready", ring.ready.count, count)
    outcome.check("entries of the map", len(ring.entries), count)
    outcome.check("entries with a wrong value", wrong, 0)
    outcome.check("tasks that handled all their messages", ring.handled.count, count)
    outcome.check("the sum of the messages", ring.handled.sum, sum_below(count * EACH))
    outcome.check("messages received in the wrong order", ring.misplaced, 0)
    outcome.check("tasks that timed out", ring.timed_out.count, count)
    outcome.check("tasks that timed out early", ring.early, 0)
    outcome.check("tasks that exited", ring.exited.count, count)
    outcome.check("the sum of their numbers", ring.exited.sum, sum_below(count))


async def _task(ring, index, mailbox):
    count = ring.count
    ring.entries[index] = _value_of(index)
    key = (index ^ index >> 15) * 0xD6E8FEB8 % count
    if ring.entries.get(key, _value_of(key)) != _value_of(key):
        ring.wrong += 1
    ring.ready.add(index)
    await ring.going.wait()

    following = ring.mailboxes[(index + 1) % count]
    for number in range(EACH):
        following.put_nowait((index, number))
    total = 0
    for due in range(EACH):
        source, number = await mailbox.get()
        if (source + 1) % count != index or number != due:
            ring.misplaced += 1
        total += source * EACH + number
    ring.handled.add(total)

    since = clock()
    try:
        async with asyncio.timeout(ring.seconds):
            await mailbox.get()
    except TimeoutError:
        late = clock() - since - ring.seconds * 1_000_000_000
        if late < -TICK:
            ring.early += 1
        else:
            ring.late[index] = max(0, late)
        ring.timed_out.add(index)
    ring.exited.add(index)


def _value_of(key):
    return key * 0x9E3779B9 & 0x3FFFFFFF
