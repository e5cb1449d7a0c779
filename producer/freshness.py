"""The log's ends, read on demand and shared: how a writer knows that a state is not behind the log.

An end counts for a request only if its reading began after the request came, so a reading in progress is
never joined; those who come meanwhile share the next one.
"""

import asyncio

from producer.log import EventLog

__all__ = ["LogEnds"]


class LogEnds:
    """One reading at a time, of all partitions that somebody asks for."""

    def __init__(self, log: EventLog, timeout_ms: int) -> None:
        self._log = log
        self._timeout_ms = timeout_ms
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def after_now(self, partition: int) -> int:
        """An end of the partition that was read after this call; raises Unavailable."""
        loop = asyncio.get_running_loop()
        found = self._asked.get(partition)
        if found is None:
            found = self._asked[partition] = loop.create_future()
            if self._task is None:
                self._task = loop.create_task(self._read(), name="log ends")
        # One waiter that gives up must not take the answer from the others.
        return await asyncio.shield(found)

    async def _read(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                try:
                    ends = await self._log.ends(list(asked), self._timeout_ms)
                except Exception as error:
                    for future in asked.values():
                        future.set_exception(error)
                        future.exception()  # Nobody may be left to look at it.
                else:
                    for partition, future in asked.items():
                        future.set_result(ends[partition])
        finally:
            self._task = None
