"""`sleep`: processes wait for a message with a time-out, until all have timed out."""

import asyncio
from time import perf_counter_ns as clock

import memory
from process import start
from tally import Tally, sum_below


async def run(settings, outcome):
    count, seconds = settings["count"], settings["seconds"]
    timed_out, early = Tally(), Tally()
    timed_out.arm(count)
    begun = clock()
    kept = []
    for value in range(count):
        mailbox = asyncio.Queue()
        start(_process(mailbox, value, begun, seconds, timed_out, early))
        kept.append(mailbox)
    await timed_out.complete()
    finished = clock()

    outcome.metric("peak_rss_bytes", memory.peak())
    outcome.metric("finished_s", (finished - begun) / 1e9)
    outcome.check("processes that were started", len(kept), count)
    outcome.check("processes that timed out", timed_out.count, count)
    outcome.check("the sum of their states", timed_out.sum, sum_below(count))
    outcome.check("processes that timed out early", early.count, 0)


async def _process(mailbox, value, begun, seconds, timed_out, early):
    try:
        async with asyncio.timeout(seconds):
            await mailbox.get()
    except TimeoutError:
        if clock() - begun < seconds * 1_000_000_000:
            early.add(value)
        timed_out.add(value)
