"""Starts processes."""

import asyncio

# The event loop itself refers only weakly to tasks, as its documentation warns.
_running = set()


def start(body):
    task = asyncio.get_running_loop().create_task(body)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
