"""`fan` and `burst`: a process sends numbers round robin to receivers, which report once per chunk. The first
chunk is one number for each receiver."""

import asyncio
from itertools import cycle
from time import perf_counter_ns as clock

import memory
import order
from process import start
from tally import Tally, sum_below


async def run_fan(settings, outcome):
    latch = asyncio.Event()
    latch.set()
    sender = Sender(settings["receivers"], settings["chunk"], settings["count"], latch)
    await sender.send_chunk()

    async def send_all():
        while not sender.is_done():
            await sender.send_chunk()

    begun = clock()
    await start(send_all())
    elapsed = clock() - begun
    outcome.metric("delivered_ns", elapsed / settings["count"])
    await asyncio.sleep(settings["settle"])
    outcome.metric("rss_after_bytes", memory.resident())
    sender.check(outcome)


async def run_burst(settings, outcome):
    latch = asyncio.Event()
    sender = Sender(settings["receivers"], 0, settings["count"], latch)
    await sender.send_chunk()
    sent = Tally()
    resident_before = memory.resident()
    sent.arm(1)

    async def send_all():
        received = sender.send_chunk()
        sent.add(0)
        await received

    handled = start(send_all())
    await sent.complete()
    resident = memory.resident()
    latch.set()
    await handled
    outcome.metric("bytes_per_message", max(0, resident - resident_before) / settings["count"])
    outcome.metric("peak_rss_bytes", memory.peak())
    await asyncio.sleep(settings["settle"])
    outcome.metric("rss_after_bytes", memory.resident())
    sender.check(outcome)


class Sender:
    """The receivers, and the numbers sent to them so far."""

    def __init__(self, receivers, chunk, count, latch):
        """Starts the receivers, each of which awaits the latch after its first number."""
        self._receivers = receivers
        self._total = receivers + count
        # A multiple of the receivers, so that each gets as many; a single chunk if it is zero.
        self._chunk = -(-chunk // receivers) * receivers if chunk else self._total
        self._latch = latch
        self._received = Tally()
        self._next = 0
        self._reports = 0
        self._mailboxes = [asyncio.Queue() for _ in range(receivers)]
        for index, mailbox in enumerate(self._mailboxes):
            start(self._collect(mailbox, index))

    def is_done(self):
        return self._next == self._total

    def send_chunk(self):
        """Sends the next chunk, and returns an awaitable of its receipt."""
        end = self._end(self._next)
        # Every chunk begins with the first receiver; the last chunk may not reach all of them.
        self._reports += min(self._receivers, end - self._next)
        self._received.arm(self._reports)
        for value, mailbox in zip(range(self._next, end), cycle(self._mailboxes)):
            mailbox.put_nowait(value)
        self._next = end
        return self._received.complete()

    def check(self, outcome):
        outcome.check("the sum received", self._received.sum, sum_below(self._total))
        order.check(outcome)

    def _end(self, begin):
        return min(begin + (self._chunk if begin else self._receivers), self._total)

    async def _collect(self, mailbox, due):
        step = self._receivers
        end = self._end(0)
        total = 0
        while True:
            value = await mailbox.get()
            if value != due:
                order.misplace()
            due = value + step
            total += value
            if due >= end:
                self._received.add(total)
                total = 0
                end = self._end(end)
            if value < step:
                await self._latch.wait()
