"""A process that replies to each call with the sum of its own number and the call's."""

import asyncio

from process import start

# The message on which a service exits.
STOP = None


class Service:
    __slots__ = ("_mailbox",)

    def __init__(self, state, exited=None):
        """Starts a service that adds itself to the tally, if there is one, when it exits."""
        self._mailbox = asyncio.Queue()
        start(_serve(self._mailbox, state, exited))

    def call(self, value):
        """Returns a future of the reply."""
        reply = asyncio.get_running_loop().create_future()
        self._mailbox.put_nowait((value, reply))
        return reply

    def stop(self):
        self._mailbox.put_nowait(STOP)


async def _serve(mailbox, state, exited):
    while (request := await mailbox.get()) is not STOP:
        value, reply = request
        reply.set_result(value + state)
    if exited is not None:
        exited.add(state)
