"""`spawn`: live processes with a number each; they count themselves on a message, and exit on another."""

import asyncio
from time import perf_counter_ns as clock

import memory
from process import start
from tally import Tally, sum_below

COUNT = "count"
STOP = "stop"

# Addresses in a block of the driver's memory; the driver drops a block once its processes are stopped.
ADDRESS_BLOCK = 1 << 20


async def run(settings, outcome):
    count, chunk = settings["count"], settings["chunk"]
    counted, exited = Tally(), Tally()
    processes = [[None] * min(ADDRESS_BLOCK, count - first) for first in range(0, count, ADDRESS_BLOCK)]
    resident_before = memory.resident()

    spawning = clock()
    value = 0
    for block in processes:
        for at in range(len(block)):
            mailbox = asyncio.Queue()
            start(_process(mailbox, value, counted, exited))
            block[at] = mailbox
            value += 1
    spawned = clock()
    due = 0
    for block in processes:
        for begin in range(0, len(block), chunk):
            due += await _send_all(block, begin, chunk, COUNT, counted, due)
    ready = clock()
    resident = memory.resident()

    stopping = clock()
    due = 0
    while processes:
        block = processes.pop(0)
        for begin in range(0, len(block), chunk):
            due += await _send_all(block, begin, chunk, STOP, exited, due)
    stopped = clock()

    outcome.metric("spawn_ns", (spawned - spawning) / count)
    outcome.metric("ready_ns", (ready - spawning) / count)
    outcome.metric("bytes_per_process", max(0, resident - resident_before) / count)
    outcome.metric("peak_rss_bytes", memory.peak())
    outcome.metric("exit_ns", (stopped - stopping) / count)
    outcome.check("processes that counted themselves", counted.count, count)
    outcome.check("the sum of their states", counted.sum, sum_below(count))
    outcome.check("processes that exited", exited.count, count)
    outcome.check("the sum of their last states", exited.sum, sum_below(count))


async def _process(mailbox, value, counted, exited):
    while await mailbox.get() is COUNT:
        counted.add(value)
    exited.add(value)


async def _send_all(block, begin, chunk, message, tally, before):
    """Sends a message to a chunk of a block, and waits until all so far have acted on theirs; returns the
    number of processes in the chunk."""
    mailboxes = block[begin : begin + chunk]
    tally.arm(before + len(mailboxes))
    for mailbox in mailboxes:
        mailbox.put_nowait(message)
    await tally.complete()
    return len(mailboxes)
