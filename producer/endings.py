"""Ending tasks for certain."""

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["end_tasks"]

# A task may have something to put away first.
PATIENCE_S = 1.0


async def end_tasks(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Returns when all of the tasks have ended, however they did. Cancels them again and again, since one may lose
    it: `asyncio.wait_for` of Python 3.11 does when what it waits for is done in the same moment."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=PATIENCE_S)
        for task in ended:
            if not task.cancelled():
                task.exception()
