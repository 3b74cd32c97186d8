"""`send-cost`: local calls for some time, then messages to another process for as long."""

import asyncio
from time import perf_counter_ns as clock

from process import start
from tally import TIMEOUT_S, sum_below

FIRST_CALLS = 10
# How often a loop is made, at most, until it takes half of its length.
ATTEMPTS = 3
# Lengths of the source's loops after the first, in milliseconds.
SOURCE_MS = (1, 500, 3000, 10_000)
# Bytes of the messages of a round, at most, each with MESSAGE_BYTES besides those that it carries.
ROUND_BYTES = 64 << 20
MESSAGE_BYTES = 64

# The message after which the receiver confirms what it has received.
CONFIRM = None


async def run(settings, outcome):
    longest, depth = settings["count"], settings["depth"]
    lengths = [length for length in SOURCE_MS if length < longest] + [longest]
    calls = FIRST_CALLS
    local, made = _call_all(calls)
    for length in lengths:
        for _ in range(ATTEMPTS):
            calls = _calls_in(length, calls, local)
            local, made = _call_all(calls)
            if _is_long_enough(local, length):
                break

    sender = _Sender(settings["payload"])
    messages = FIRST_CALLS
    sent, delivered = await sender.send_all(messages, 0)
    for length in lengths:
        for _ in range(ATTEMPTS):
            messages = _calls_in(length, messages, sent)
            sent, delivered = await sender.send_all(messages, depth if length == longest else 0)
            if _is_long_enough(sent, length):
                break

    outcome.metric("local_ns", local / calls)
    outcome.metric("send_ns", sent / messages)
    outcome.metric("delivered_ns", delivered / messages)
    outcome.check("local calls", made, calls)
    outcome.check("messages received", sender.received, sender.count)
    outcome.check("the sum received", sender.received_sum, sender.sum)


def _call_all(calls):
    begun = clock()
    made = 0
    for _ in range(calls):
        made = _call(made)
    return clock() - begun, made


def _call(made):
    return made + 1


def _calls_in(milliseconds, calls, took):
    """The number of calls that take some milliseconds if so many took so long."""
    return max(1, milliseconds * 1_000_000 * calls // max(1, took))


def _is_long_enough(took, milliseconds):
    return 2 * took >= milliseconds * 1_000_000


class _Sender:
    def __init__(self, payload):
        self._buffer = bytearray(payload)
        self._mailbox = asyncio.Queue()
        self._reports = asyncio.Queue()
        self.count = self.sum = 0
        self.received = self.received_sum = 0
        start(_receive_all(self._mailbox, self._reports))

    async def send_all(self, messages, depth):
        """Sends messages in rounds, each to a mailbox in which some messages wait.

        The receiver takes none of them as long as the sender has the thread.
        """
        most = max(1, ROUND_BYTES // (len(self._buffer) + MESSAGE_BYTES))
        sent = delivered = 0
        left = messages
        while left > 0:
            self._send(depth)
            now = min(left, most)
            begun = clock()
            self._send(now)
            sent += clock() - begun
            self._mailbox.put_nowait(CONFIRM)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    count, total = await self._reports.get()
            except TimeoutError:
                # The messages are missing in the count.
                break
            delivered += clock() - begun
            self.received += count
            self.received_sum += total
            left -= now
        return sent, delivered

    def _send(self, messages):
        put, buffer = self._mailbox.put_nowait, self._buffer
        if buffer:
            for number in range(messages):
                buffer[0] = buffer[-1] = number & 255
                put(bytes(buffer))
            of_bytes = messages // 256 * sum_below(256) + sum_below(messages % 256)
            self.sum += messages * len(buffer) + 2 * of_bytes
        else:
            for number in range(messages):
                put(number)
            self.sum += sum_below(messages)
        self.count += messages


async def _receive_all(mailbox, reports):
    count = total = 0
    while True:
        message = await mailbox.get()
        if message is CONFIRM:
            reports.put_nowait((count, total))
            count = total = 0
        else:
            count += 1
            total += message if isinstance(message, int) else len(message) + message[0] + message[-1]
