"""Counts processes and adds up their values; the process that completes the armed count wakes the driver."""

import asyncio

# Limit of each wait, so that a lost message cannot hang the benchmark.
TIMEOUT_S = 300


class Tally:
    __slots__ = ("count", "sum", "_armed", "_event")

    def __init__(self):
        self.count = 0
        self.sum = 0
        self._armed = -1
        self._event = asyncio.Event()

    def add(self, value):
        self.sum += value
        self.count += 1
        if self.count == self._armed:
            self._event.set()

    def arm(self, count):
        """Sets the count that the next `complete` waits for; called before it could be completed."""
        self._armed = count
        self._event.clear()

    async def complete(self):
        """Waits until the armed count is reached. After the time limit the check of the count fails."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._event.wait()
        except TimeoutError:
            pass


def sum_below(count):
    """0 + 1 + … + (count − 1)."""
    return count * (count - 1) // 2


def share(count, part, parts):
    """The units of a part, when `count` units are divided among `parts`."""
    return range(count * part // parts, count * (part + 1) // parts)
