"""Deadlines of many requests on few timers: on a path that every append takes, a timer each would cost more than
the validation."""

import asyncio
from typing import Protocol

__all__ = ["Deadlines", "Expiring"]

TICK_S = 0.02


class Expiring(Protocol):
    """Something with a deadline, told once when it is over."""

    deadline: float

    def expire(self) -> None:
        """The deadline is over."""
        ...


Bucket = dict[Expiring, None]


class Deadlines:
    """Tells within a tick after the deadline (loop's clock, s). Whoever takes an entry out of the bucket that
    `watch` gave is not told."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0

    def watch(self, entry: Expiring) -> Bucket:
        """The bucket that the entry is in from now on."""
        tick = int(entry.deadline / TICK_S) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            if self._timer is None or tick < self._next:
                self._arm(tick)
        bucket[entry] = None
        return bucket

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = asyncio.get_running_loop().call_at(tick * TICK_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        now = int(asyncio.get_running_loop().time() / TICK_S)
        for tick in sorted(tick for tick in self._buckets if tick <= max(now, self._next)):
            for entry in list(self._buckets.pop(tick)):
                entry.expire()
        if self._buckets and self._timer is None:
            self._arm(min(self._buckets))

    def close(self) -> None:
        """All time is over: tells everybody now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        buckets, self._buckets = self._buckets, {}
        for tick in sorted(buckets):
            for entry in list(buckets[tick]):
                entry.expire()
