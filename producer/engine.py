"""What all writers of one producer share: the servers, the clock, the ids, and what is known of each partition."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from producer.admission import FoldLag
from producer.cache import Cache, CacheUnavailable
from producer.deadlines import Deadlines
from producer.endings import end_tasks
from producer.freshness import LogEnds
from producer.limits import AppendLimits
from producer.log import EventLog, QuickLog, Unavailable
from producer.sight import Seen, Sight
from producer.waiting import Verdicts
from surfacelog.errors import ProtocolError

__all__ = ["Engine"]

END_AGE_S = 0.1


class Engine:
    """`reply` names this producer on the verdict channels. `random` only spreads waiting times. `wanted` is
    called with the key of a session whose lock somebody waits for."""

    def __init__(
        self,
        log: EventLog,
        cache: Cache,
        limits: AppendLimits,
        *,
        now_ms: Callable[[], int],
        mint_id: Callable[[], str],
        random: Random,
        wanted: Callable[[bytes], None],
    ) -> None:
        self.log = log
        self.quick = log if isinstance(log, QuickLog) else None
        self.cache = cache
        self.limits = limits
        self.now_ms = now_ms
        self.mint_id = mint_id
        self.random = random
        self.reply = mint_id()
        self.sight = Sight(cache, log.topic, log.partitions)
        self.verdicts = Verdicts(
            cache, self.sight.verdict_channels(self.reply), self.sight.wanted_channels(), wanted
        )
        self.deadlines = Deadlines()
        self.ends = LogEnds(log, limits.append_timeout_ms)
        self.lags = [FoldLag() for _ in range(log.partitions)]
        self._looked = [0.0] * log.partitions
        self._tasks: set[asyncio.Task[None]] = set()
        self._producing: dict[str, asyncio.Task[None]] = {}

    def watch_end(self, partition: int) -> None:
        """Keeps what is known of the partition's end and fold from growing old, without waiting for it."""
        now = asyncio.get_running_loop().time()
        if now - self._looked[partition] >= END_AGE_S or not self._looked[partition]:
            self._looked[partition] = now
            self.spawn(self._watch(partition), "log end")

    async def _watch(self, partition: int) -> None:
        try:
            self.lags[partition].saw_end(await self.ends.after_now(partition))
            await self.look(partition)
        except (Unavailable, CacheUnavailable):
            return

    async def look(self, partition: int) -> int:
        """How far the partition's fold has come; raises CacheUnavailable."""
        next_offset, rate = await self.sight.place(partition)
        self.lags[partition].saw_next(next_offset, asyncio.get_running_loop().time(), rate)
        return next_offset

    async def fresh(self, session_key: bytes, timeout_ms: int) -> Seen:
        """What the cache shows once it has passed the log's end of now; raises `rebuilding` or `unavailable`, or
        what stands in the way of the session."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        end = -1
        obstacle = ("unavailable", "the log does not answer")
        while asyncio.get_running_loop().time() < deadline:
            try:
                if end < 0:
                    end = await self.ends.after_now(self.sight.partition(session_key))
                obstacle = ("unavailable", "the cache does not answer")
                seen = await self.sight.read(session_key)
                if not seen.code and seen.next_offset >= end:
                    return seen
                obstacle = (seen.code or "rebuilding", seen.message or "the cache is behind the log")
            except (Unavailable, CacheUnavailable):
                pass
            await asyncio.sleep(self.limits.lock_retry_ms / 1000)
        raise ProtocolError(obstacle[0], f"{obstacle[1]}; try again")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs `work` beside; the engine keeps it alive and ends it when it closes."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def producing(self, record_id: str, work: Coroutine[Any, Any, None]) -> None:
        """As `spawn`, cheaper: the work itself says `produced` at its end."""
        self._producing[record_id] = asyncio.get_running_loop().create_task(work)

    def produced(self, record_id: str) -> None:
        """The work of `producing` is over."""
        self._producing.pop(record_id, None)

    async def close(self) -> None:
        """Ends what still runs."""
        self.deadlines.close()
        await self.verdicts.close()
        await end_tasks([*self._tasks, *self._producing.values()])
