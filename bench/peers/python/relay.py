"""`pairs` and `ring`: rings of processes pass a number on, and each adds one to it."""

import asyncio
from time import perf_counter_ns as clock

import order
from process import start
from tally import Tally, share


async def run_pairs(settings, outcome):
    elapsed = await _measure(settings["count"], settings["pairs"], 2, outcome)
    outcome.metric("message_ns", elapsed / settings["count"])


async def run_ring(settings, outcome):
    elapsed = await _measure(settings["count"], 1, settings["processes"], outcome)
    outcome.metric("wall_s", elapsed / 1e9)
    outcome.metric("hop_ns", elapsed / settings["count"])


async def _measure(count, rings, size, outcome):
    finished = Tally()
    shares = [len(share(count, ring, rings)) for ring in range(rings)]
    firsts = [_start_ring(size, messages, finished) for messages in shares]
    # A ring without a share of the messages does not begin.
    begun = min(rings, count)
    finished.arm(begun)
    began = clock()
    for first, messages in zip(firsts, shares):
        if messages > 0:
            first.put_nowait(0)
    await finished.complete()
    elapsed = clock() - began

    outcome.check("rings that finished", finished.count, begun)
    outcome.check("messages passed on", finished.sum, count)
    order.check(outcome)
    return elapsed


def _start_ring(size, messages, finished):
    links = [asyncio.Queue() for _ in range(size)]
    for place, mailbox in enumerate(links):
        start(_pass(mailbox, links[(place + 1) % size], place, size, messages, finished))
    return links[0]


async def _pass(mailbox, following, due, size, messages, finished):
    while True:
        value = await mailbox.get()
        if value != due:
            order.misplace()
        due = value + size
        sent = value + 1
        if sent == messages:
            finished.add(sent)
        else:
            following.put_nowait(sent)
