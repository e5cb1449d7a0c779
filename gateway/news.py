"""Who waits for a session to go on, and how they hear of it: one subscription per partition, however many wait.

A notification may be lost at any time, so every wait has a bound and the waiter looks again by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import msgspec

from producer.cache import Cache, CacheUnavailable

__all__ = ["News", "Watch"]

RETRY_S = 0.2
_news = msgspec.json.Decoder(list[tuple[str, int, int]])
_log = logging.getLogger("surfacelog.gateway")


class Watch:
    """One waiter's view of one session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """The session may have gone on."""
        self._stirred.set()

    async def wait(self, wait_s: float) -> bool:
        """Whether anything went on since the last call, waiting up to `wait_s` for it."""
        try:
            async with asyncio.timeout(wait_s):
                await self._stirred.wait()
        except TimeoutError:
            return False
        self._stirred.clear()
        return True


class News:
    """`channel_of` names the channel of a partition."""

    def __init__(self, cache: Cache, channel_of: Callable[[int], bytes]) -> None:
        self._cache = cache
        self._channel_of = channel_of
        self._watches: dict[int, set[Watch]] = {}
        self._listeners: dict[int, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def watch(self, partition: int, key: bytes) -> AsyncIterator[Watch]:
        """Hears of the session (by its record key) until the block ends. The first news may be missed: look once
        after entering."""
        watch = Watch(key.decode("ascii"))
        watches = self._watches.setdefault(partition, set())
        watches.add(watch)
        if partition not in self._listeners:
            self._listeners[partition] = asyncio.create_task(self._listen(partition), name=f"news-{partition}")
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches and self._watches.get(partition) is watches:
                del self._watches[partition]
                self._listeners.pop(partition).cancel()

    async def _listen(self, partition: int) -> None:
        while True:
            heard = self._cache.listen([self._channel_of(partition)])
            try:
                async for channel, payload in heard:
                    moved = _sessions(payload) if channel else None
                    for watch in self._watches.get(partition, ()):
                        if moved is None or watch.session in moved:
                            watch.stir()
            except CacheUnavailable as error:
                _log.debug("no news of partition %d: %s", partition, error)
            finally:
                await _close(heard)
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Stops listening; those who wait are woken once."""
        tasks = list(self._listeners.values())
        for watches in self._watches.values():
            for watch in watches:
                watch.stir()
        self._listeners.clear()
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _sessions(payload: bytes) -> set[str] | None:
    """The sessions that went on; None when that cannot be told, so that everybody looks."""
    try:
        return {entry[0] for entry in _news.decode(payload)}
    except msgspec.MsgspecError:
        return None


async def _close(heard: AsyncIterator[tuple[bytes, bytes]]) -> None:
    close = getattr(heard, "aclose", None)
    if close is not None:
        await close()
