"""The event log of the embedded mode: one SQLite file in the data directory, one process.

An acknowledged record is on the disk. Consumers are told of it at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from producer.directory import DataDirectory
from producer.gate import Gate
from producer.local_consumer import LocalConsumer
from producer.log import LogRecord, ProduceUnknown, Unavailable, check_size
from producer.members import Group
from producer.sqlite_store import Outcome, SqliteStore, Write, read_rows, read_start
from surfacelog.errors import ProtocolError

__all__ = ["SqliteLog"]

FILE_NAME = "log.sqlite"
# As the topic of a Kafka log has it, so that a session fits the one when it fits the other.
RECORD_BYTES_MAX = (8 << 20) - 1024
READ_BYTES_MAX = 16 << 20
FETCH_TIMEOUT_MS = 30_000
# Records that wait for the disk. Past it producers wait, and then are refused with nothing written.
WAITING_BYTES_MAX = 64 << 20
WAITING_RECORDS_MAX = 20_000


class SqliteLog:
    """An EventLog; make it with `open`."""

    def __init__(self, directory: DataDirectory, store: SqliteStore, topic: str) -> None:
        self.topic = topic
        self.topic_id = store.topic_id
        self.partitions = store.partitions
        self.size_bytes_max = RECORD_BYTES_MAX
        self._directory = directory
        self._store = store
        self._ends = list(store.ends)
        self._groups: dict[str, Group] = {}
        self._consumers: list[LocalConsumer] = []
        self._gate = Gate(WAITING_RECORDS_MAX, WAITING_BYTES_MAX)
        self._closed = False

    @classmethod
    async def open(cls, path: Path, topic: str = "surfacelog", partitions: int | None = None) -> "SqliteLog":
        """Takes the data directory `path` and opens or makes its log (8 partitions unless told otherwise). Raises
        ProtocolError `misconfigured`: see `DataDirectory` and `SqliteStore`."""
        loop = asyncio.get_running_loop()
        directory = DataDirectory(path)
        try:
            store = await loop.run_in_executor(None, SqliteStore, path / FILE_NAME, topic, partitions)
        except BaseException:
            directory.release()
            raise
        log = cls(directory, store, topic)
        store.start(loop, log._settle)
        return log

    def _settle(self, moved: list[tuple[int, int]], outcomes: list[Outcome]) -> None:
        for partition, end in moved:
            self._ends[partition] = end
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if moved:
            for consumer in self._consumers:
                consumer.wake()

    async def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, timeout_ms: int
    ) -> int:
        size = check_size(key, headers, value, self.size_bytes_max)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        await self._gate.enter(size, timeout_ms)
        if self._closed:
            self._gate.leave(size)
            raise Unavailable("the log is closed; nothing was written")
        future: asyncio.Future[int] = loop.create_future()
        future.add_done_callback(lambda _: self._gate.leave(size))
        write = Write(partition, key, headers, value, future)
        self._store.put(write)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            if self._store.withdraw(write):
                raise Unavailable("the disk is too slow; nothing was written") from None
            raise ProduceUnknown("the disk did not answer in time") from None

    async def ends(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        return {partition: self._ends[partition] for partition in partitions}

    async def starts(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        found = await self._ask(lambda db: [read_start(db, partition) for partition in partitions], timeout_ms)
        return {
            partition: self._ends[partition] if start is None else start
            for partition, start in zip(partitions, found, strict=True)
        }

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        found = await self._read(partition, offset, records_max, READ_BYTES_MAX, timeout_ms)
        if offset < self._ends[partition] and (not found or found[0].offset != offset):
            raise _truncated(partition, offset)
        return found

    async def _read(
        self, partition: int, offset: int, records_max: int, bytes_max: int, timeout_ms: int
    ) -> list[LogRecord]:
        def question(db: Any) -> list[LogRecord]:
            return read_rows(db, partition, offset, records_max, bytes_max)

        return cast(list[LogRecord], await self._ask(question, timeout_ms))

    async def _ask(self, question: Any, timeout_ms: int) -> Any:
        if self._closed:
            raise Unavailable("the log is closed")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._store.ask(question)
        except TimeoutError:
            raise Unavailable("the disk did not answer in time") from None

    def end(self, partition: int) -> int:
        """The offset that the next record will have."""
        return self._ends[partition]

    async def records(self, partition: int, offset: int, records_max: int, bytes_max: int) -> list[LogRecord]:
        """A consumer's read: see `local_consumer.Source`."""
        found = await self._read(partition, offset, records_max, bytes_max, FETCH_TIMEOUT_MS)
        if not found or found[0].offset != offset:
            raise _truncated(partition, offset)
        return found

    @asynccontextmanager
    async def consumer(self, group: str, member: str) -> AsyncIterator[LocalConsumer]:
        members = self._groups.setdefault(group, Group(self.partitions))
        consumer = LocalConsumer(self, members, member, self._consumers.remove)
        self._consumers.append(consumer)
        try:
            yield consumer
        finally:
            await consumer.close()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._store.stop)
        finally:
            self._directory.release()


def _truncated(partition: int, offset: int) -> ProtocolError:
    return ProtocolError("log-truncated", "the log does not have this record", partition=partition, offset=offset)
