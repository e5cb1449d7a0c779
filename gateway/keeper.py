"""Keeps the embedded ledger's projector running: one that ends on a fault is followed by a new one.

Without it nothing is accepted, so whoever asks whether the server is ready is told.
"""

import asyncio
import logging
from collections.abc import Callable

from producer.endings import end_tasks
from projector.worker import Worker

__all__ = ["Keeper"]

STOP_S = 5.0
PAUSE_S = 0.2
PAUSE_MAX_S = 10.0
# A worker that has lived for so long does not end at once again.
PROVEN_S = 2.0
_log = logging.getLogger("surfacelog.embedded")


class Keeper:
    """`worker_of` makes a worker, which remembers nothing of the one before it."""

    def __init__(self, worker_of: Callable[[], Worker]) -> None:
        self._worker_of = worker_of
        self._worker: Worker | None = None
        self._since = 0.0
        self._failures = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the first worker."""
        self._task = asyncio.create_task(self._keep(), name="projector")

    @property
    def ready(self) -> bool:
        """Whether a worker runs that never failed, or has proven that it runs again."""
        return self._worker is not None and (not self._failures or self._age_s() >= PROVEN_S)

    async def stop(self) -> None:
        """Ends the worker after the batch in hand, or in the middle of it when that takes too long."""
        self._stopping = True
        if self._worker is not None:
            self._worker.stop()
        if self._task is None:
            return
        _, running = await asyncio.wait([self._task], timeout=STOP_S if self._worker is not None else 0)
        if running:
            await end_tasks([self._task])

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._since

    async def _keep(self) -> None:
        while not self._stopping:
            self._worker = self._worker_of()
            self._since = asyncio.get_running_loop().time()
            try:
                await self._worker.run()
            except Exception:
                self._failures = 1 if self._age_s() >= PROVEN_S else self._failures + 1
                pause_s = min(PAUSE_S * 2 ** (self._failures - 1), PAUSE_MAX_S)
                _log.exception("the projector ended; a new one starts in %.1f s", pause_s)
                self._worker = None
                await asyncio.sleep(pause_s)
