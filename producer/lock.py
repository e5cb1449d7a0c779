"""A session's lock as one writer keeps it: held while there is work, given up for others, never trusted.

It only keeps writers from colliding. Whoever loses it unawares collides, and the log decides.
"""

import asyncio

from producer.cache import Cache, CacheLock, CacheUnavailable
from producer.limits import AppendLimits

__all__ = ["FREE", "SessionLock"]

# Before a session's key: its lock was given up for those who wait. No key begins so.
FREE = b"/"


class SessionLock:
    """`session_key` is told on the `channel`, on which every producer hears whose lock somebody waits for. Times
    are of the loop's clock, s."""

    __slots__ = ("_cache", "_channel", "_held", "_limits", "_session_key", "_since", "_until", "_wanted")

    def __init__(self, cache: Cache, channel: bytes, session_key: bytes, limits: AppendLimits) -> None:
        self._cache = cache
        self._channel = channel
        self._session_key = session_key
        self._limits = limits
        self._held: CacheLock | None = None
        self._wanted = False
        self._since = self._until = 0.0

    @property
    def held(self) -> bool:
        """Whether it was taken and its time is not over."""
        return self._held is not None and asyncio.get_running_loop().time() < self._until

    def taken(self, lock: CacheLock, asked_at: float) -> None:
        """The lock was taken by a call that began at `asked_at`."""
        self._held = lock
        self._since = asked_at
        self._wanted = False
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

    def hear(self) -> None:
        """Somebody waits for it."""
        self._wanted = self._held is not None

    @property
    def due(self) -> bool:
        """Whether somebody waits, and it was held for as long as it may be then."""
        if not self._wanted or self._held is None:
            return False
        return asyncio.get_running_loop().time() - self._since >= self._limits.lock_yield_ms / 1000

    @property
    def wanted(self) -> bool:
        """Whether somebody waits."""
        return self._wanted

    async def want(self) -> None:
        """Tells the holder that somebody waits."""
        await self._cache.call("SPUBLISH", self._channel, self._session_key)

    async def let_go(self) -> None:
        """Releases it, if it is still held, and tells those who wait. While the cache is away that is tried
        again, until it has run out."""
        lock, self._held = self._held, None
        while lock is not None and asyncio.get_running_loop().time() < self._until:
            try:
                await lock.release()
                if self._wanted:
                    await self._cache.call("SPUBLISH", self._channel, FREE + self._session_key)
                return
            except CacheUnavailable:
                await asyncio.sleep(self._limits.retry_pause_ms / 1000)
