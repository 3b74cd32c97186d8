"""`churn`: start a process, call it once, make it exit; in sequence."""

from time import perf_counter_ns as clock

import memory
from service import Service
from tally import Tally, sum_below


async def run(settings, outcome):
    count, warmup = settings["count"], settings["warmup"]
    cycles = warmup + count
    exited = Tally()
    replies = await _cycle_all(range(warmup), exited)
    resident_before = memory.resident()

    begun = clock()
    replies += await _cycle_all(range(warmup, cycles), exited)
    elapsed = clock() - begun
    resident = memory.resident()

    outcome.metric("cycle_ns", elapsed / count)
    outcome.metric("rss_growth_bytes", max(0, resident - resident_before))
    outcome.check("correct replies", replies, cycles)
    outcome.check("processes that exited", exited.count, cycles)
    outcome.check("the sum of their states", exited.sum, sum_below(cycles))


async def _cycle_all(values, exited):
    """Runs a cycle for each value, then waits until all processes so far have exited."""
    correct = 0
    exited.arm(values.stop)
    for value in values:
        service = Service(value, exited)
        reply = await service.call(1)
        service.stop()
        correct += reply == value + 1
    await exited.complete()
    return correct
