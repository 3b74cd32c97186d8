"""`skynet`: a tree of tasks, ten children to each; each task returns the sum of its leaves, and its parent
awaits the tasks of its children."""

import asyncio
from time import perf_counter_ns as clock

from tally import share, sum_below


async def run(settings, outcome):
    count = settings["count"]
    begun = clock()
    total = await asyncio.create_task(_tree(0, count))
    elapsed = clock() - begun
    outcome.metric("wall_s", elapsed / 1e9)
    outcome.check("the sum", total, sum_below(count))


async def _tree(begin, end):
    count = end - begin
    if count == 1:
        return begin
    parts = min(count, 10)
    shares = [share(count, part, parts) for part in range(parts)]
    children = [asyncio.create_task(_tree(begin + part.start, begin + part.stop)) for part in shares]
    return sum(await asyncio.gather(*children))
