"""`send`: messages from one process, or from several, to another, which confirms their sum."""

import asyncio
from time import perf_counter_ns as clock

from process import start
from tally import Tally, share, sum_below

# The message after which the receiver reports its sum.
END = -1


async def run(settings, outcome):
    count, senders = settings["count"], settings["senders"]
    mailbox = asyncio.Queue()
    receiver = start(_add(mailbox))
    done = Tally()
    done.arm(senders)
    finished = []

    begun = clock()
    for sender in range(senders):
        start(_send_all(mailbox, share(count, sender, senders), done, finished))
    await done.complete()
    mailbox.put_nowait(END)
    received = await receiver
    delivered = clock() - begun

    outcome.metric("send_ns", (max(finished) - begun) / count)
    outcome.metric("delivered_ns", delivered / count)
    outcome.check("the sum received", received, sum_below(count))
    outcome.check("senders that finished", done.count, senders)
    outcome.check("messages sent", done.sum, count)


async def _send_all(mailbox, values, done, finished):
    for value in values:
        mailbox.put_nowait(value)
    finished.append(clock())
    done.add(len(values))


async def _add(mailbox):
    total = 0
    while (value := await mailbox.get()) != END:
        total += value
    return total
