"""Who may send: bounds on what one producer has in flight, and on how far a partition's fold may lag.

Without the second a backlog that clients retry into never drains.
"""

import asyncio
from collections import deque

from producer.limits import AppendLimits
from surfacelog.errors import ProtocolError

__all__ = ["Budget", "FoldLag"]

# A lag that any worker clears in a moment is no reason to turn work away, whatever the speed was measured to be.
LAG_RECORDS_FREE = 256
RATE_UNKNOWN = 2_000
# With fewer than these waiting a worker may be idle, and what it folds is what it was given.
SATURATED_RECORDS = 64


class Budget:
    """Commits and bytes that a producer may have queued or in flight; those beyond wait, first come first
    served."""

    def __init__(self, limits: AppendLimits) -> None:
        self._commits = limits.append_commits_max
        self._bytes = limits.append_bytes_max
        self._bytes_max = limits.append_bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int, wait_s: float) -> int:
        """Waits until there is room; returns what to give back. Raises `overloaded` after `wait_s`."""
        size_bytes = min(size_bytes, self._bytes_max)
        if self._waiting or self._commits < 1 or self._bytes < size_bytes:
            entry = (size_bytes, asyncio.get_running_loop().create_future())
            self._waiting.append(entry)
            try:
                async with asyncio.timeout(wait_s):
                    await entry[1]
            except BaseException as error:
                self._left(entry)
                if isinstance(error, TimeoutError):
                    raise _overloaded("this server has as much in flight as it may", 500) from None
                raise
            return size_bytes
        self._commits -= 1
        self._bytes -= size_bytes
        return size_bytes

    def give_back(self, size_bytes: int) -> None:
        """A commit of `size_bytes` is settled."""
        self._commits += 1
        self._bytes += size_bytes
        self._admit()

    def _left(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._admit()
        elif not entry[1].cancelled():
            self.give_back(entry[0])

    def _admit(self) -> None:
        while self._waiting and self._commits > 0 and self._bytes >= self._waiting[0][0]:
            size_bytes, future = self._waiting.popleft()
            if not future.done():
                self._commits -= 1
                self._bytes -= size_bytes
                future.set_result(None)


class FoldLag:
    """How far one partition's log is ahead of its fold, from what a producer happens to see: offsets that the log
    gave, checkpoints, verdicts. Times are of the loop's clock, s."""

    __slots__ = ("_end", "_next", "_rate", "_since")

    def __init__(self) -> None:
        self._end = 0
        self._next = 0
        self._rate = float(RATE_UNKNOWN)
        self._since: tuple[float, int] | None = None

    @property
    def next_offset(self) -> int:
        """The fold is known to have come to here."""
        return self._next

    def saw_end(self, end: int) -> None:
        """The log reaches to `end`."""
        if end > self._end:
            self._end = end

    def passed(self, offset: int) -> None:
        """The record at `offset` was folded; says nothing of the speed."""
        if offset >= self._next:
            self._next = offset + 1

    def saw_next(self, next_offset: int, now: float, rate: int = 0) -> None:
        """The fold has come to `next_offset`; `rate`: its speed by its own measure, records/s."""
        self._next = max(self._next, next_offset)
        if self._end - self._next < SATURATED_RECORDS:
            self._since = None
            return
        if self._since is None:
            self._since = (now, self._next)
            return
        began, first = self._since
        # Only time in which there was always work tells the speed; over a second it is not the luck of one batch.
        if now - began >= 1:
            self._rate = max((self._next - first) / (now - began), 1.0)
            self._since = (now, self._next)
        elif rate > 0 and self._next > first:
            self._rate = max(self._rate, float(rate))

    def admit(self, deadline: float, now: float) -> None:
        """Raises `overloaded` when the fold would not come to a record written now within half the time left."""
        lag = self._end - self._next
        if lag <= LAG_RECORDS_FREE:
            return
        clears_s = lag / self._rate
        if clears_s > (deadline - now) / 2:
            raise _overloaded(
                "the log is further ahead of its fold than can be made up in time", int(clears_s * 500)
            )


def _overloaded(message: str, retry_after_ms: int) -> ProtocolError:
    return ProtocolError(
        "overloaded",
        f"{message}; nothing was written, try again later",
        retry_after_ms=min(max(retry_after_ms, 100), 30_000),
    )
