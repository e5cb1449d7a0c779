"""Ending tasks that lose a cancellation, fail, or have ended."""

import asyncio

from producer import endings
from producer.endings import end_tasks


async def test_a_task_that_loses_a_cancellation_ends_all_the_same(monkeypatch) -> None:
    monkeypatch.setattr(endings, "PATIENCE_S", 0.01)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    async def failed() -> None:
        raise ValueError("nobody asks")

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(failed()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end_tasks(tasks)
    assert lost == 3
    assert all(task.done() for task in tasks)


async def test_nothing_to_end_is_ended_at_once() -> None:
    await end_tasks([])
