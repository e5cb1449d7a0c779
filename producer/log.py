"""The event log as the ledger sees it: partitions of records with growing offsets.

Kafka, SQLite and memory stand behind the same interface and pass the same contract tests. Offsets grow but may
have gaps. Nothing here knows what a session is.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from surfacelog.errors import ProtocolError

__all__ = [
    "OVERHEAD_BYTES_MAX",
    "Batch",
    "EventLog",
    "LogConsumer",
    "LogRecord",
    "ProduceUnknown",
    "QuickLog",
    "Told",
    "Unavailable",
    "check_size",
]

# Kafka writes the length of a header's name and of its value as varints, 5 bytes each at most.
HEADER_OVERHEAD_BYTES = 10
# Key and headers of our records are never longer than this; most need not be measured to the byte.
OVERHEAD_BYTES_MAX = 8192


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
        """What is there, waiting up to `wait_ms` for the first record or a change of partitions. A partition is
        taken away only inside a fetch: whoever works through one batch after the other never holds a partition
        that another member has, unless it took longer than the log allows between two fetches. A fetch that is
        cancelled loses nothing. Raises Unavailable when the member can never go on (another one has its name),
        and ProtocolError log-truncated (detail: `partition`, `offset`) once for a partition whose next offset is
        not in the log; that partition is paused, the others go on."""
        ...

    async def seek(self, partition: int, offset: int) -> None:
        """The next fetch of an assigned partition starts at `offset`."""
        ...

    def pause(self, partition: int) -> None:
        """Deliver nothing of the partition until `seek`."""
        ...

    async def close(self) -> None:
        """Ends the member. In Kafka its partitions are kept for it until the session timeout, so that a restart
        finds its own again; the logs of one process give them to the others at once."""
        ...


class EventLog(Protocol):
    """`size_bytes_max`: the largest record, as `check_size` counts it."""

    partitions: int
    topic: str
    size_bytes_max: int

    @property
    def topic_id(self) -> str:
        """The same as long as the topic is; another one after it was made anew."""
        ...

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


# A future for each record would cost more than handing it over.
Told = Callable[[int, Exception | None], None]


@runtime_checkable
class QuickLog(Protocol):
    """A log that takes a record without a task to wait for it."""

    def send(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, told: Told
    ) -> bool:
        """As `produce`, begun at once. `told` is called once, after this call, with the offset, or with -1 and
        what `produce` would raise, sooner or later; it does not raise. False when the record would have to wait in
        line: then nothing was done. Keeps its order with `produce`."""
        ...


def check_size(key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, size_bytes_max: int) -> int:
    """The bytes that a record counts, uncompressed; raises ProtocolError too-large."""
    size = len(key) + len(value)
    for name, content in headers:
        size += len(name.encode()) + len(content) + HEADER_OVERHEAD_BYTES
    if size > size_bytes_max:
        raise ProtocolError(
            "too-large",
            f"the record has {size} bytes and the log takes {size_bytes_max}; send less at once",
            size_bytes=size,
            size_bytes_max=size_bytes_max,
        )
    return size
