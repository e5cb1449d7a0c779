"""The event log as the ledger sees it: partitions of records with growing offsets.

Kafka, SQLite and memory stand behind the same interface and pass the same contract tests. Offsets grow but may
have gaps. Nothing here knows what a session is.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

__all__ = ["Batch", "EventLog", "LogConsumer", "LogRecord", "ProduceUnknown", "Unavailable"]


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read. `time`: the log's timestamp, ms."""

    partition: int
    offset: int
    key: bytes | None
    headers: list[tuple[str, bytes]]
    value: bytes | None
    time: int = 0


class Unavailable(Exception):
    """The log does not answer; what was asked for did not happen (or could not be read)."""


class ProduceUnknown(Exception):
    """The log took the record or it did not: nobody can say yet. Never write it again under the same id."""


class Batch(msgspec.Struct, frozen=True):
    """What a fetch brought: records by partition in offset order, and the partitions that were taken away or
    given since the last fetch (`lost` first, then `assigned`)."""

    records: dict[int, list[LogRecord]]
    assigned: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


class LogConsumer(Protocol):
    """A member of a group of workers that share the partitions. Commits nothing: the checkpoint is elsewhere.
    A newly assigned partition delivers nothing until `seek` says where to start."""

    async def fetch(self, records_max: int, wait_ms: int) -> Batch:
        """What is there, waiting up to `wait_ms` for the first record."""
        ...

    async def seek(self, partition: int, offset: int) -> None:
        """The next fetch of an assigned partition starts at `offset`."""
        ...

    def pause(self, partition: int) -> None:
        """Deliver nothing of the partition until `seek`."""
        ...

    async def close(self) -> None:
        """Leaves the group, so that others get the partitions at once (a static member keeps its own)."""
        ...


class EventLog(Protocol):
    """`topic_id` changes when the topic is made anew. `size_bytes_max`: the largest key + headers + value."""

    partitions: int
    topic: str
    topic_id: str
    size_bytes_max: int

    async def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, timeout_ms: int
    ) -> int:
        """Writes one record, acknowledged by all replicas; returns its offset. Records of one partition produced
        by one task after another keep their order. Raises Unavailable (nothing written), ProduceUnknown, or
        ProtocolError too-large."""
        ...

    async def ends(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """The offset that the next record of each partition will have; raises Unavailable."""
        ...

    async def starts(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """The first offset still there, of each partition; raises Unavailable."""
        ...

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        """Records from `offset` on, at least one unless the log ends there or before; raises Unavailable, or
        ProtocolError log-truncated when `offset` lies before the first one still there."""
        ...

    def consumer(self, group: str, member: str) -> AbstractAsyncContextManager[LogConsumer]:
        """Joins `group` as the static member `member`."""
        ...

    async def close(self) -> None:
        """Flushes what is in flight and lets go of all resources."""
        ...
