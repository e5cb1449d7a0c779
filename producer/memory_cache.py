"""The in-memory twin of the Redis cache, for the simulation and the tests; it passes the same contract suite.

Faults are planted from outside: windows without an answer, lost notifications, all data lost, an older copy put
back. It keeps time by the event loop's clock.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from producer.cache import LISTENING, Argument, CacheUnavailable, Script
from producer.memory_data import MemoryData, Value

__all__ = ["MemoryCache", "MemoryLock"]


class MemoryCache:
    """`before` and `after` are awaited around each operation and may raise: an error from `after` is an answer
    that was lost. `hears` decides whether a listener gets a message. Nothing answers unless `available`."""

    def __init__(
        self,
        *,
        before: Callable[[str], Awaitable[None]] | None = None,
        after: Callable[[str], Awaitable[None]] | None = None,
        hears: Callable[[bytes, bytes], bool] | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self.hears = hears
        self.available = True
        self.data = MemoryData(lambda: asyncio.get_running_loop().time(), self._publish)
        self._tokens = 0
        self._listeners: list[tuple[frozenset[bytes], deque[tuple[bytes, bytes]], asyncio.Event]] = []

    def _publish(self, channel: bytes, payload: bytes) -> int:
        heard = 0
        for channels, queue, ready in self._listeners:
            if channel in channels and (self.hears is None or self.hears(channel, payload)):
                queue.append((channel, payload))
                ready.set()
                heard += 1
        return heard

    def snapshot(self) -> tuple[dict[bytes, Value], dict[bytes, float]]:
        """A copy of everything, as a replica that lags holds it."""
        return self.data.copied()

    def restore(self, copied: tuple[dict[bytes, Value], dict[bytes, float]]) -> None:
        """A failover to the copy: everything since is lost."""
        self.data.replace(*copied)

    def flush(self) -> None:
        """Loses everything."""
        self.data.replace({}, {})

    async def operate(self, name: str, act: Callable[[], Any]) -> Any:
        """Does one thing at once, with whatever fault is planted around it."""
        if self.before is not None:
            await self.before(name)
        if not self.available:
            raise CacheUnavailable("the cache is away")
        answer = act()
        if self.after is not None:
            await self.after(name)
        return answer

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """Runs the script's twin."""
        return await self.operate(script.name, lambda: script.twin(self.data, keys, args))

    async def call(self, command: str, *args: Argument) -> Any:
        """One plain command."""
        return await self.operate(command, lambda: self.data.call(command, *args))

    async def acquire(
        self, key: bytes, ttl_ms: int, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple["MemoryLock | None", Any]:
        """Tries the lock once and reads, in one operation."""
        self._tokens += 1
        token = b"%d" % self._tokens

        def act() -> tuple[bool, Any]:
            held = self.data.call("SET", key, token, b"NX", b"PX", ttl_ms)
            return bool(held), script.twin(self.data, keys, args)

        held, answer = await self.operate("acquire", act)
        return MemoryLock(self, key, token) if held else None, answer

    async def listen(self, channels: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Messages of the channels, after `LISTENING`."""
        queue: deque[tuple[bytes, bytes]] = deque([LISTENING])
        ready = asyncio.Event()
        entry = (frozenset(channels), queue, ready)
        self._listeners.append(entry)
        try:
            while True:
                while queue:
                    yield queue.popleft()
                ready.clear()
                await ready.wait()
        finally:
            self._listeners = [other for other in self._listeners if other is not entry]

    async def check(self) -> None:
        """Answers when it is there."""
        await self.operate("check", lambda: None)

    async def close(self) -> None:
        """Nothing is held."""


class MemoryLock:
    """A lock that is held until its time is over."""

    def __init__(self, cache: MemoryCache, key: bytes, token: bytes) -> None:
        self._cache = cache
        self._key = key
        self._token = token

    def _ours(self) -> bool:
        return bool(self._cache.data.call("GET", self._key) == self._token)

    async def extend(self, ttl_ms: int) -> bool:
        """Holds it for `ttl_ms` from now; False when it was lost."""

        def act() -> bool:
            return self._ours() and bool(self._cache.data.call("PEXPIRE", self._key, ttl_ms))

        return bool(await self._cache.operate("extend", act))

    async def release(self) -> None:
        """Lets it go if it is still held."""

        def act() -> None:
            if self._ours():
                self._cache.data.call("DEL", self._key)

        await self._cache.operate("release", act)
