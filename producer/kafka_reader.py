"""Point reads of old records, with clients of their own, so that a range costs what lies in it and little more.

A read near the tail of a partition takes about 2 ms where a default consumer needs half a second.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer.kafka_options import error_of
from producer.log import LogRecord, Unavailable

__all__ = ["KafkaReader", "OffsetNotThere", "record_of"]

READERS_MAX = 4
READ_BYTES_MAX = 16 << 20
# A read of so few records is one for itself, and what the fetch brings behind them is mostly thrown away: of 400
# byte records 16 KB instead of 128 KB an event. Longer reads would take three times as long in such pieces.
FEW_RECORDS = 8
FEW_FETCH_BYTES = 16 << 10
LONG_FETCH_BYTES = 128 << 10
# Reading on over so many records is cheaper than a seek, which throws away what was fetched ahead.
FEW_READ_THROUGH_RECORDS = 20
READ_THROUGH_RECORDS = 200
# An idle reader at the end of its partition would ask the broker for news all the time.
REST_AFTER_S = 0.5


class OffsetNotThere(Exception):
    """The offset lies before the first record or beyond the end."""


def record_of(message: Message) -> LogRecord:
    """A message without an error, as a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return LogRecord(
        partition, offset, message.key(), _headers_of(message), message.value(), message.timestamp()[1]
    )


def _headers_of(message: Message) -> list[tuple[str, bytes]]:
    try:
        found = cast(list[tuple[str, bytes | None]] | None, message.headers())
    except UnicodeDecodeError:
        # A stranger's; without headers the record is unreadable and told as malformed.
        return []
    for header in found or ():
        if header[1] is None:
            return [(name, content or b"") for name, content in found or ()]
    return cast(list[tuple[str, bytes]], found or [])


class _Reader:
    """One client and its thread. `long`: it fetches much at once. `place`: the (partition, offset) that it
    delivers next without a seek."""

    def __init__(self, options: dict[str, Any], topic: str, long: bool) -> None:
        fetch_bytes = LONG_FETCH_BYTES if long else FEW_FETCH_BYTES
        self._consumer = Consumer({**options, "max.partition.fetch.bytes": fetch_bytes})
        self._topic = topic
        self._through = READ_THROUGH_RECORDS if long else FEW_READ_THROUGH_RECORDS
        self.long = long
        self.thread = ThreadPoolExecutor(1, "surfacelog-read")
        self.place: tuple[int, int] | None = None
        self.assigned = False
        self.used_s = 0.0

    def near(self, partition: int, offset: int) -> bool:
        """Whether reading on gets to the offset."""
        place = self.place
        return place is not None and place[0] == partition and 0 <= offset - place[1] <= self._through

    def read(self, partition: int, offset: int, records_max: int, timeout_s: float) -> list[LogRecord]:
        """Blocks; raises OffsetNotThere, KafkaException or Unavailable."""
        deadline = time.monotonic() + timeout_s
        if self.near(partition, offset):
            found = self._take(partition, offset, records_max, deadline)
            if found:
                return found
            # The end that was met may have been seen before the question came; only a fresh fetch can tell.
        self.place = None
        self.assigned = True
        self._consumer.assign([TopicPartition(self._topic, partition, offset)])
        return self._take(partition, offset, records_max, deadline)

    def _take(self, partition: int, offset: int, records_max: int, deadline: float) -> list[LogRecord]:
        self.place = None
        found: list[LogRecord] = []
        size_bytes = 0
        while True:
            message = self._consumer.poll(0 if found else max(0.0, deadline - time.monotonic()))
            if message is None:
                if found:
                    break
                raise Unavailable("the log did not answer in time")
            error = message.error()
            if error is not None:
                if _is_end(error):
                    # Kafka tells the end once; a later read has to seek, or it would wait in vain.
                    return found
                continue
            record = record_of(message)
            if record.offset < offset:
                continue
            found.append(record)
            size_bytes += len(record.value or b"")
            if len(found) >= records_max or size_bytes >= READ_BYTES_MAX:
                break
        self.place = (partition, found[-1].offset + 1)
        return found

    def rest(self) -> None:
        """Fetches nothing until the next read."""
        self._consumer.unassign()

    def close(self) -> None:
        """Lets go of the client."""
        self._consumer.close()


def _is_end(error: KafkaError) -> bool:
    """True at the end of the partition, False for what may pass; raises for what will not."""
    name = error.name()
    if name == "_PARTITION_EOF":
        return True
    if name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"):
        raise OffsetNotThere(error.str())
    if error.retriable() or name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return False
    raise KafkaException(error)


class KafkaReader:
    """Some readers for few records and some for many, so that reads at the same time do not disturb each other."""

    def __init__(self, options: dict[str, Any], topic: str) -> None:
        self._options = {
            **options,
            "group.id": "surfacelog-read",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            # At the tail a fetch comes back empty-handed after this, and only then can the next seek be sent.
            "fetch.wait.max.ms": 2,
            # Fetch one response ahead at most.
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 1024,
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 20,
        }
        self._topic = topic
        self._idle: list[_Reader] = []
        self._all: list[_Reader] = []
        self._free = asyncio.Semaphore(READERS_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        """Records from `offset` on, none at the end; raises Unavailable or OffsetNotThere."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable("too many reads of old records at once") from None
        if self._closed:
            self._free.release()
            raise Unavailable("the log is closed")
        reader = self._pick(partition, offset, records_max > FEW_RECORDS)
        left_s = max(0.001, deadline - loop.time())
        work = loop.run_in_executor(reader.thread, reader.read, partition, offset, max(records_max, 1), left_s)
        # The thread goes on when the caller is cancelled, and the reader is not free before it is done.
        work.add_done_callback(lambda done: self._give_back(reader, done))
        try:
            return await asyncio.shield(work)
        except KafkaException as error:
            raise Unavailable(f"the log cannot be read ({error_of(error).name()})") from None

    def _pick(self, partition: int, offset: int, long: bool) -> _Reader:
        for reader in self._idle:
            if reader.near(partition, offset) and reader.long >= long:
                self._idle.remove(reader)
                return reader
        if sum(reader.long == long for reader in self._all) < READERS_MAX:
            reader = _Reader(self._options, self._topic, long)
            self._all.append(reader)
            return reader
        # The one that rested longest: the others may be asked to read on.
        reader = next(reader for reader in self._idle if reader.long == long)
        self._idle.remove(reader)
        return reader

    def _give_back(self, reader: _Reader, done: "asyncio.Future[Any]") -> None:
        if not done.cancelled():
            # Marks it as seen; a cancelled caller is not there to look.
            done.exception()
        loop = asyncio.get_running_loop()
        reader.used_s = loop.time()
        self._idle.append(reader)
        self._free.release()
        if self._timer is None and not self._closed:
            self._timer = loop.call_later(REST_AFTER_S, self._rest)

    def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for reader in self._idle:
            if reader.assigned and loop.time() - reader.used_s >= REST_AFTER_S:
                reader.place, reader.assigned = None, False
                loop.run_in_executor(reader.thread, reader.rest)
        if any(reader.assigned for reader in self._all):
            self._timer = loop.call_later(REST_AFTER_S, self._rest)

    async def close(self) -> None:
        """Ends after the reads that are under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(reader.thread, reader.close) for reader in self._all))
        for reader in self._all:
            reader.thread.shutdown(wait=False)
