"""The consumer of logs that live in one process: SQLite and memory.

Keeps a position per partition and wakes as soon as something is written; no polling, no threads.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from producer.log import Batch, LogRecord
from producer.members import Group, Member
from surfacelog.errors import ProtocolError

__all__ = ["LocalConsumer", "Source"]

# What one fetch brings at most, so that a batch of large records does not fill the memory.
FETCH_BYTES_MAX = 16 << 20


class Source(Protocol):
    """Where the records are."""

    def end(self, partition: int) -> int:
        """The offset that the next record will have."""
        ...

    async def records(self, partition: int, offset: int, records_max: int, bytes_max: int) -> list[LogRecord]:
        """Records from `offset` on, at least one unless there is none; stops at `bytes_max`. Raises ProtocolError
        log-truncated when `offset` is not in the log, or Unavailable."""
        ...


class LocalConsumer:
    """A LogConsumer over a source. `on_close` hears of its end."""

    def __init__(
        self, source: Source, group: Group, name: str, on_close: Callable[["LocalConsumer"], None]
    ) -> None:
        self._source = source
        self._group = group
        self._news = asyncio.Event()
        self._positions: dict[int, int] = {}
        self._turn = 0
        self._on_close = on_close
        self._member: Member = group.join(name, self._news.set)

    def wake(self) -> None:
        """Something was written."""
        self._news.set()

    async def fetch(self, records_max: int, wait_ms: int) -> Batch:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            self._news.clear()
            lost, assigned = self._group.settle(self._member)
            if lost or assigned:
                for partition in (*lost, *assigned):
                    self._positions.pop(partition, None)
                return Batch({}, assigned, lost)
            records = await self._collect(records_max)
            left = deadline - loop.time()
            if records or left <= 0:
                return Batch(records)
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                # One more look: the deadline and the news may have come together.
                continue

    async def _collect(self, records_max: int) -> dict[int, list[LogRecord]]:
        found: dict[int, list[LogRecord]] = {}
        begun: dict[int, int] = {}
        room_bytes = FETCH_BYTES_MAX
        order = sorted(self._positions)
        self._turn += 1
        cut = self._turn % len(order) if order else 0
        for partition in order[cut:] + order[:cut]:
            offset = self._positions.get(partition)
            if offset is None or offset == self._source.end(partition):
                continue
            try:
                records = await self._source.records(partition, offset, records_max, room_bytes)
            except ProtocolError:
                self.pause(partition)
                raise
            if records:
                found[partition], begun[partition] = records, offset
                records_max -= len(records)
                room_bytes -= sum(len(record.value or b"") for record in records)
            if records_max <= 0 or room_bytes <= 0:
                break
        # Nothing is awaited from here to the caller, so a cancelled fetch has moved no position. A partition that
        # was sought anew or paused meanwhile delivers nothing of what was read for its old place.
        kept = {p: records for p, records in found.items() if self._positions.get(p) == begun[p]}
        for partition, records in kept.items():
            self._positions[partition] = records[-1].offset + 1
        return kept

    async def seek(self, partition: int, offset: int) -> None:
        if partition in self._member.held:
            self._positions[partition] = offset
            self._news.set()

    def pause(self, partition: int) -> None:
        self._positions.pop(partition, None)

    async def close(self) -> None:
        self._positions.clear()
        self._group.leave(self._member)
        self._on_close(self)
