"""`call` and `calls`: a process, or many at once, call a service, and each reply is checked."""

import math
import random
from time import perf_counter_ns as clock

from process import start
from service import Service
from tally import Tally, share


async def run_sequential(settings, outcome):
    count, samples = settings["count"], settings["samples"]
    callees = [Service(1) for _ in range(settings["callees"])]
    replies = await _call_once(callees)
    pick = _pick(callees)

    begun = clock()
    replies += await _call_all(pick, range(count))
    elapsed = clock() - begun
    latencies = []
    replies += await _sample(pick, range(samples), latencies)

    outcome.metric("round_trip_ns", elapsed / count)
    _percentiles(latencies, outcome)
    outcome.check("correct replies", replies, len(callees) + count + samples)


async def run_concurrent(settings, outcome):
    count, samples, callers = settings["count"], settings["samples"], settings["callers"]
    callees = [Service(1) for _ in range(settings["callees"])]
    replies = await _call_once(callees)
    done = Tally()
    latencies = []

    async def call_all(callee, values):
        done.add(await _call_all(lambda: callee, values))

    async def sample(callee, values):
        done.add(await _sample(lambda: callee, values, latencies))

    done.arm(callers)
    begun = clock()
    for caller in range(callers):
        start(call_all(callees[caller % len(callees)], share(count, caller, callers)))
    await done.complete()
    elapsed = clock() - begun

    done.arm(2 * callers)
    for caller in range(callers):
        start(sample(callees[caller % len(callees)], share(samples, caller, callers)))
    await done.complete()

    outcome.metric("round_trip_ns", elapsed / count)
    _percentiles(latencies, outcome)
    outcome.check("callers that finished, in two rounds", done.count, 2 * callers)
    outcome.check("correct replies", replies + done.sum, len(callees) + count + samples)
    outcome.check("calls that were timed separately", len(latencies), samples)


async def _call_once(callees):
    in_turn = iter(callees)
    return await _call_all(lambda: next(in_turn), range(len(callees)))


def _pick(callees):
    """A function that returns a callee at random; with a single callee nothing is drawn."""
    if len(callees) == 1:
        return lambda: callees[0]
    random.seed(1)
    draw = random.random
    return lambda: callees[int(draw() * len(callees))]


async def _call_all(callee, values):
    """Calls once with each value; returns the number of correct replies."""
    correct = 0
    for value in values:
        correct += await callee().call(value) == value + 1
    return correct


async def _sample(callee, values, latencies):
    """Calls once with each value and times each call; returns the number of correct replies."""
    correct = 0
    for value in values:
        to = callee()
        begun = clock()
        reply = await to.call(value)
        latencies.append(clock() - begun)
        correct += reply == value + 1
    return correct


def _percentiles(latencies, outcome):
    latencies.sort()

    def at(probability):
        return latencies[max(1, math.ceil(probability * len(latencies))) - 1]

    outcome.distribution("latency", at)
