"""A session's lock as one writer keeps it: held while there is work, given up for others, never trusted.

It only keeps writers from colliding. Whoever loses it unawares collides, and the log decides.
"""

import asyncio

from producer.cache import Cache, CacheLock, CacheUnavailable
from producer.limits import AppendLimits

__all__ = ["SessionLock"]

# A writer that found the lock taken says so under this name; the holder looks there before it goes on for long.
WANTED = b":wanted"


class SessionLock:
    """`key`: the lock's key. Times are of the loop's clock, s."""

    __slots__ = ("_cache", "_held", "_key", "_limits", "_looked", "_since", "_until")

    def __init__(self, cache: Cache, key: bytes, limits: AppendLimits) -> None:
        self._cache = cache
        self._key = key
        self._limits = limits
        self._held: CacheLock | None = None
        self._since = self._until = self._looked = 0.0

    @property
    def held(self) -> bool:
        """Whether it was taken and its time is not over."""
        return self._held is not None and asyncio.get_running_loop().time() < self._until

    def taken(self, lock: CacheLock, asked_at: float) -> None:
        """The lock was taken by a call that began at `asked_at`."""
        self._held = lock
        self._since = self._looked = asked_at
        self._until = asked_at + self._limits.lock_ttl_ms / 1000

    async def keep(self) -> None:
        """Extends it when a good part of its life is over; notices that it was lost."""
        now = asyncio.get_running_loop().time()
        ttl = self._limits.lock_ttl_ms / 1000
        if self._held is None or self._until - now > ttl * 2 / 3:
            return
        lock = self._held
        try:
            kept = await lock.extend(self._limits.lock_ttl_ms)
        except CacheUnavailable:
            kept = False
        if self._held is lock:
            self._until = now + ttl
            self._held = lock if kept else None

    async def is_wanted(self) -> bool:
        """Whether it has been held for long enough to be given up, and somebody waits."""
        now = asyncio.get_running_loop().time()
        if self._held is None or now - self._looked < self._limits.lock_yield_ms / 1000:
            return False
        self._looked = now
        try:
            return bool(await self._cache.call("EXISTS", self._key + WANTED))
        except CacheUnavailable:
            return False

    async def want(self) -> None:
        """Tells the holder that somebody waits."""
        await self._cache.call("SET", self._key + WANTED, b"1", b"PX", 2 * self._limits.lock_yield_ms)

    async def let_go(self) -> None:
        """Releases it, if it is still held. While the cache is away that is tried again, until it has run out."""
        lock, self._held = self._held, None
        while lock is not None and asyncio.get_running_loop().time() < self._until:
            try:
                return await lock.release()
            except CacheUnavailable:
                await asyncio.sleep(self._limits.retry_pause_ms / 1000)
