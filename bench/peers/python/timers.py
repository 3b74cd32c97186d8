"""`timers`: a process starts timers to itself with call_later, and cancels all but every hundredth.

uvloop counts whole milliseconds of a clock that it reads once per turn. So there a timer may run before it is due by
an exact clock. Such a timer counts as on time; one that is earlier by more than TICK is early.
"""

import asyncio
from time import perf_counter_ns as clock

import memory

# Timers that the process starts or cancels in a turn of the event loop; the last of them is not cancelled.
SLICE = 100
# Shortest delay of a timer that fires, in milliseconds.
SHORTEST = 100
# Seconds that a cancelled timer has to fire after it was due, at the end of the run.
GRACE = 0.02
# Nanoseconds by which uvloop may be early, with what a turn had done before.
TICK = 2_000_000
# Limit of the wait for timers, in seconds.
LIMIT = 300


async def run(settings, outcome):
    process = _Process(settings)
    await process.run()
    process.report(outcome)


class _Process:
    def __init__(self, settings):
        self.count = settings["count"]
        self.live = min(settings["live"], self.count)
        self.seconds = settings["seconds"]
        self.longest = settings["longest"]
        self.fires = self.count // SLICE
        self.due = [0] * self.fires
        self.late = [-1] * self.fires
        self.fired = self.sum = self.again = self.early = self.stray = 0
        self.start_ns = self.cancel_ns = self.before = self.resident = 0

    async def run(self):
        loop = asyncio.get_running_loop()
        tick = TICK if "uvloop" in type(loop).__module__ else 0
        call_later, fire = loop.call_later, self._fire
        armed = [None] * self.live
        self.before = memory.resident()
        started = 0
        while started < self.count:
            end = min(started + self.live, self.count)
            arms = 0
            clocked = clock()
            while started < end:
                for number in range(started, min(started + SLICE, end)):
                    if number % SLICE == SLICE - 1:
                        delay = SHORTEST + number // SLICE * 607 % (max(0, self.longest - SHORTEST) + 1)
                        self.due[number // SLICE] = clock() + delay * 1_000_000
                        call_later(delay / 1000, fire, number, tick)
                    else:
                        armed[arms] = call_later(self.seconds, fire, number, tick)
                        arms += 1
                    started += 1
                await asyncio.sleep(0)
            self.start_ns += clock() - clocked
            if not self.resident:
                self.resident = memory.resident()
            clocked = clock()
            for begin in range(0, arms, SLICE):
                for at in range(begin, min(begin + SLICE, arms)):
                    armed[at].cancel()
                await asyncio.sleep(0)
            self.cancel_ns += clock() - clocked
        await asyncio.sleep(self.longest / 1000 + GRACE)
        limit = clock() + LIMIT * 1_000_000_000
        while self.fired < self.fires and clock() < limit:
            await asyncio.sleep(0.001)

    def _fire(self, number, tick):
        if number % SLICE != SLICE - 1:
            self.stray += 1
            return
        k = number // SLICE
        after = clock() - self.due[k]
        if after < -tick:
            self.early += 1
        elif self.late[k] >= 0:
            self.again += 1
        else:
            self.late[k] = max(0, after)
        self.fired += 1
        self.sum += number

    def report(self, outcome):
        late = sorted(after for after in self.late if after >= 0) or [0]
        outcome.metric("start_ns", self.start_ns / self.count)
        outcome.metric("cancel_ns", self.cancel_ns / max(1, self.count - self.fires))

        def at(probability):
            return late[int(probability * (len(late) - 1))]

        outcome.distribution("late", at)
        outcome.metric("bytes_per_timer", max(0, self.resident - self.before) / self.live)
        outcome.check("timers that fired", self.fired, self.fires)
        due = sum(k * SLICE + SLICE - 1 for k in range(self.fires))
        outcome.check("the sum of their numbers", self.sum, due)
        outcome.check("timers that fired again", self.again, 0)
        outcome.check("timers that fired early", self.early, 0)
        outcome.check("timers that fired though cancelled", self.stray, 0)
