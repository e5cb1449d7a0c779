"""Bounds what is in flight: past the bound producers wait in line, first come first served."""

import asyncio
from collections import deque

from producer.log import Unavailable

__all__ = ["Gate"]


class Gate:
    """At most `records_max` records and about `bytes_max` bytes are inside; one record of any size is let in when
    nothing else is."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self.records = 0
        self.bytes = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._called = 0
        self._shut = ""

    def shut(self, reason: str) -> None:
        """Lets nobody in until `open`; who waits too long is told the reason."""
        self._shut = reason

    def open(self) -> None:
        """Takes `shut` back."""
        self._shut = ""
        self._call()

    def enter_now(self, size_bytes: int) -> bool:
        """Enters when there is room and nobody waits."""
        # Who was called but did not run yet still comes first: records must not overtake each other.
        if self._line or self._called or not self._fits(size_bytes):
            return False
        self._count(size_bytes)
        return True

    async def enter(self, size_bytes: int, timeout_ms: int) -> None:
        """Returns at once, without giving way, when there is room and nobody waits. Raises Unavailable when there
        is none in time."""
        if self.enter_now(size_bytes):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size_bytes, future))
        self._call()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                self._called -= 1
                self.leave(size_bytes)
            else:
                self._line.remove((size_bytes, future))
                self._call()
            if isinstance(error, TimeoutError):
                reason = self._shut or "too much is in flight"
                raise Unavailable(f"{reason}; nothing was written") from None
            raise
        self._called -= 1

    def leave(self, size_bytes: int) -> None:
        """What `enter` let in is done."""
        self.records -= 1
        self.bytes -= size_bytes
        self._call()

    def _fits(self, size_bytes: int) -> bool:
        if self._shut:
            return False
        if self.records == 0:
            return True
        return self.records < self._records_max and self.bytes + size_bytes <= self._bytes_max

    def _count(self, size_bytes: int) -> None:
        self.records += 1
        self.bytes += size_bytes

    def _call(self) -> None:
        while self._line and self._fits(self._line[0][0]):
            size_bytes, future = self._line.popleft()
            self._count(size_bytes)
            self._called += 1
            future.set_result(None)
