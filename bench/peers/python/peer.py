"""The peer for Python: asyncio.

A process is a task that awaits an asyncio.Queue; a call is a message with a future for its reply, and a
receive with a time-out stands in asyncio.timeout. This is how the documentation of asyncio connects tasks
("Queues" and "Coroutines and Tasks"), and how pkolaczk/async-runtimes-benchmarks starts a million of them.

Class: stackless tasks on one thread, which share a heap and are not preempted. `workers` in the result is
always 1.

Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of JSON that
bench/steps/src/outcome.rs describes:

    python3 bench/peers/python/peer.py pairs --count 1000000 --workers 2 --set pairs=1000

Needs Python 3.11 or later. The tuned row sets UVLOOP=1, and needs the package uvloop. It has uvloop's event
loop, and a collector of cycles that runs after 100,000 new objects instead of 700, as services with many
live objects set it: by default that collector takes two thirds of the time of `spawn`.

Limits:
- `fairness` is left out: a get from a queue that is not empty does not return to the event loop, so a
  process that sends itself messages keeps the thread for ever.
- In `send`, `fan` and `burst` all messages queue up before the first is received, as a sender that does not
  await keeps the thread.
- `spawn` and `sleep` take 5 KB and some 40 µs per process by default, so that their default counts take a
  minute; with 100,000 a run takes 5 s.
- A message that wakes a process takes 3 to 5 µs, so that the default count of `pairs` takes a minute; a
  million messages suffice.
- `skynet` has no mailboxes: a task awaits the tasks of its children, with asyncio.gather.
"""

import asyncio
import gc
import json
import os
import sys

import calls
import churn
import collector
import relay
import send
import send_cost
import skynet
import sleep
import spawn
import tasks
import timers

# New objects after which the collector of cycles runs in the tuned row.
GC_THRESHOLD = 100_000

WORKLOADS = {
    "spawn": spawn.run,
    "send": send.run,
    "send-cost": send_cost.run,
    "call": calls.run_sequential,
    "calls": calls.run_concurrent,
    "churn": churn.run,
    "sleep": sleep.run,
    "pairs": relay.run_pairs,
    "ring": relay.run_ring,
    "fan": collector.run_fan,
    "burst": collector.run_burst,
    "skynet": skynet.run,
    "timers": timers.run,
    "tasks": tasks.run,
}


# The probabilities of the quantiles that a run reports of each distribution.
PROBABILITIES = (0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1)


class Outcome:
    """The metrics of a run, and the checks that failed."""

    def __init__(self):
        self.metrics = {}
        self.failures = []
        self.quantiles = {}

    def metric(self, name, value):
        """Records a measured value, in the metric's unit."""
        self.metrics[name] = float(value)

    def distribution(self, name, at):
        """Records the values of a distribution at all probabilities."""
        self.quantiles[name] = [float(at(probability)) for probability in PROBABILITIES]

    def check(self, name, found, expected):
        """Records a failure unless the found number is the expected one."""
        if found != expected:
            self.failures.append(f"{name}: {found} instead of {expected}")


def parse(arguments):
    """The settings, as numbers where they are numbers."""
    settings = {}
    for name, value in zip(arguments[::2], arguments[1::2]):
        if name == "--set":
            name, value = value.split("=", 1)
        else:
            name = name[2:]
        settings[name] = int(value) if value.isdigit() else value
    return settings


def main():
    workload, settings = sys.argv[1], parse(sys.argv[2:])
    if workload not in WORKLOADS:
        sys.exit(f"no workload {workload}")
    version = f"Python {sys.version.split()[0]}"
    loop = asyncio.new_event_loop()
    if os.environ.get("UVLOOP") == "1":
        import uvloop

        gc.set_threshold(GC_THRESHOLD, 10, 10)
        loop = uvloop.new_event_loop()
        version += f", uvloop {uvloop.__version__}"
    outcome = Outcome()
    loop.run_until_complete(WORKLOADS[workload](settings, outcome))
    line = {
        "version": version,
        "workers": 1,
        "metrics": outcome.metrics,
        "failures": outcome.failures,
        "quantiles": outcome.quantiles,
    }
    print(json.dumps(line), flush=True)
    # Processes that still wait for a message are not torn down one by one.
    os._exit(0)


main()
