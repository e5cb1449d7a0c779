"""The in-memory twin of the event log: asyncio only, no threads, no clock but the loop's.

A `MemoryTopic` is what the brokers hold; each `MemoryLog` is one client of it, as one process has it. What goes
wrong between the two is up to the client's `Network`, so that a simulation decides it.
"""

import asyncio
import bisect
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import msgspec

from producer.local_consumer import LocalConsumer
from producer.log import LogRecord, ProduceUnknown, Unavailable, check_size
from producer.members import Group
from surfacelog.errors import ProtocolError

__all__ = ["Calm", "MemoryLog", "MemoryTopic", "Network", "ProduceFault"]

READ_BYTES_MAX = 16 << 20
Headers = Sequence[tuple[str, bytes]]


class ProduceFault(msgspec.Struct, frozen=True):
    """What happens to one record: it lands `copies` times (0 to 2), the first time after `land_ms` and again
    `again_ms` later; the answer comes `answer_ms` after the first landing. `outcome`: what the producer is told;
    "unavailable" means that nothing lands."""

    outcome: Literal["acknowledged", "unknown", "unavailable"] = "acknowledged"
    copies: int = 1
    land_ms: float = 0
    again_ms: float = 0
    answer_ms: float = 0


class Network(Protocol):
    """What lies between a client and the log."""

    def produce(self, partition: int, key: bytes, headers: Headers, value: bytes) -> ProduceFault:
        """The fate of one record."""
        ...

    def call(self, name: str) -> float:
        """How long (ms) a call of `ends`, `starts`, `read` or `fetch` takes; raises Unavailable."""
        ...


class Calm:
    """A network in which nothing goes wrong."""

    def produce(self, partition: int, key: bytes, headers: Headers, value: bytes) -> ProduceFault:
        return _CALM

    def call(self, name: str) -> float:
        return 0


_CALM = ProduceFault()


class _Partition:
    """Records of one partition; `end` may lie beyond the last one."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.records: list[LogRecord] = []


class MemoryTopic:
    """The records and the groups. Whatever changes it wakes the consumers at once. Landings run in the context in
    which the topic was made: they happen even if the process that produced is dead by then."""

    def __init__(self, partitions: int = 8, topic: str = "surfacelog", size_bytes_max: int = 8 << 20) -> None:
        self.topic = topic
        self.generation = 1
        self.size_bytes_max = size_bytes_max
        self.context = contextvars.copy_context()
        self.consumers: list[LocalConsumer] = []
        self._partitions = [_Partition() for _ in range(partitions)]
        self._groups: dict[str, Group] = {}

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self._partitions)

    @property
    def topic_id(self) -> str:
        """Changes with `recreate`."""
        return f"{self.topic}-{self.generation}"

    def group(self, name: str) -> Group:
        """The group's members: a test may `expel` one or `place` partitions."""
        return self._groups.setdefault(name, Group(self.partitions))

    def append(
        self, partition: int, key: bytes | None, headers: Headers, value: bytes | None, time_ms: int
    ) -> int:
        """Writes a record; returns its offset."""
        part = self._partitions[partition]
        offset = part.end
        part.records.append(LogRecord(partition, offset, key, list(headers), value, time_ms))
        part.end += 1
        self._wake()
        return offset

    def start(self, partition: int) -> int:
        """The first offset that is not gone."""
        return self._partitions[partition].start

    def end(self, partition: int) -> int:
        """The offset that the next record will have."""
        return self._partitions[partition].end

    def slice(self, partition: int, offset: int, records_max: int, bytes_max: int) -> list[LogRecord]:
        """Records from `offset` on, at least one unless there is none."""
        records = self._partitions[partition].records
        first = bisect.bisect_left(records, offset, key=lambda record: record.offset)
        found = []
        for record in records[first : first + max(records_max, 1)]:
            found.append(record)
            bytes_max -= len(record.value or b"")
            if bytes_max <= 0:
                break
        return found

    def skip(self, partition: int, count: int) -> None:
        """Leaves a gap of `count` offsets, as control records do."""
        self._partitions[partition].end += count

    def truncate_before(self, partition: int, offset: int) -> None:
        """Retention: everything before `offset` is gone."""
        part = self._partitions[partition]
        part.start = max(part.start, offset)
        part.records = [record for record in part.records if record.offset >= offset]
        self._wake()

    def truncate_from(self, partition: int, offset: int) -> None:
        """An unclean election: everything from `offset` on is lost, and the offsets will be given again."""
        part = self._partitions[partition]
        part.end = min(part.end, offset)
        part.records = [record for record in part.records if record.offset < offset]
        self._wake()

    def recreate(self) -> None:
        """Another topic of the same name, empty."""
        self.generation += 1
        self._partitions = [_Partition() for _ in self._partitions]
        self._wake()

    def _wake(self) -> None:
        for consumer in self.consumers:
            consumer.wake()


class _Sent:
    """A record on its way. `answer`: the future of the producer that waits."""

    __slots__ = ("answer", "due", "fault", "headers", "key", "partition", "value")

    def __init__(self, partition: int, key: bytes, headers: Headers, value: bytes, fault: ProduceFault) -> None:
        self.partition, self.key, self.headers, self.value = partition, key, list(headers), value
        self.fault = fault
        self.due = 0.0
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class MemoryLog:
    """One client's EventLog. Records of a partition land in the order in which this client produced them."""

    def __init__(self, topic: MemoryTopic | None = None, network: Network | None = None) -> None:
        self._topic = topic or MemoryTopic()
        self._network: Network = network or Calm()
        self._sent: dict[int, deque[_Sent]] = {}
        self.size_bytes_max = self._topic.size_bytes_max
        self.partitions = self._topic.partitions
        self.topic = self._topic.topic

    @property
    def topic_id(self) -> str:
        return self._topic.topic_id

    async def produce(self, partition: int, key: bytes, headers: Headers, value: bytes, timeout_ms: int) -> int:
        check_size(key, headers, value, self.size_bytes_max)
        fault = self._network.produce(partition, key, headers, value)
        if fault.outcome == "unavailable":
            await asyncio.sleep(fault.answer_ms / 1000)
            raise Unavailable("the log does not answer; nothing was written")
        sent = _Sent(partition, key, headers, value, fault)
        self._send(sent)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await sent.answer
        except TimeoutError:
            raise ProduceUnknown("the log did not answer in time") from None

    def _send(self, sent: _Sent) -> None:
        loop = asyncio.get_running_loop()
        queue = self._sent.setdefault(sent.partition, deque())
        # A later record never overtakes an earlier one of this client.
        sent.due = max(loop.time() + sent.fault.land_ms / 1000, queue[-1].due if queue else 0.0)
        queue.append(sent)
        if sent.due <= loop.time() and len(queue) == 1:
            loop.call_soon(self._land, sent.partition, context=self._topic.context)
        else:
            loop.call_at(sent.due, self._land, sent.partition, context=self._topic.context)

    def _land(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        queue = self._sent[partition]
        while queue and queue[0].due <= loop.time():
            sent = queue.popleft()
            fault, offset = sent.fault, -1
            if fault.copies > 0:
                offset = self._append(sent)
            if fault.copies > 1:
                loop.call_later(fault.again_ms / 1000, self._append, sent, context=self._topic.context)
            loop.call_later(fault.answer_ms / 1000, _answer, sent, offset, context=self._topic.context)

    def _append(self, sent: _Sent) -> int:
        time_ms = int(asyncio.get_running_loop().time() * 1000)
        return self._topic.append(sent.partition, sent.key, sent.headers, sent.value, time_ms)

    async def ends(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        return await self._offsets("ends", partitions, timeout_ms)

    async def starts(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        return await self._offsets("starts", partitions, timeout_ms)

    async def _offsets(self, name: str, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        # The log is looked at half-way: after the question was asked, before the answer is there.
        half = await self._travel(name, timeout_ms)
        look = self._topic.end if name == "ends" else self._topic.start
        found = {partition: look(partition) for partition in partitions}
        await asyncio.sleep(half)
        return found

    async def _travel(self, name: str, timeout_ms: int) -> float:
        half = self._network.call(name) / 2000
        if half * 2000 > timeout_ms:
            await asyncio.sleep(timeout_ms / 1000)
            raise Unavailable("the log did not answer in time")
        await asyncio.sleep(half)
        return half

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        half = await self._travel("read", timeout_ms)
        _refuse_truncated(partition, offset, self._topic.start(partition))
        found = self._topic.slice(partition, offset, records_max, READ_BYTES_MAX)
        await asyncio.sleep(half)
        return found

    def end(self, partition: int) -> int:
        """The offset that the next record will have."""
        return self._topic.end(partition)

    async def records(self, partition: int, offset: int, records_max: int, bytes_max: int) -> list[LogRecord]:
        """A consumer's read: see `local_consumer.Source`."""
        await asyncio.sleep(self._network.call("fetch") / 1000)
        _refuse_truncated(partition, offset, self._topic.start(partition))
        if offset > self._topic.end(partition):
            _refuse_truncated(partition, offset, offset + 1)
        return self._topic.slice(partition, offset, records_max, bytes_max)

    @asynccontextmanager
    async def consumer(self, group: str, member: str) -> AsyncIterator[LocalConsumer]:
        consumer = LocalConsumer(self, self._topic.group(group), member, self._topic.consumers.remove)
        self._topic.consumers.append(consumer)
        try:
            yield consumer
        finally:
            await consumer.close()

    async def close(self) -> None:
        waiting = [sent.answer for queue in self._sent.values() for sent in queue]
        if waiting:
            await asyncio.wait(waiting)


def _answer(sent: _Sent, offset: int) -> None:
    if sent.answer.done():
        return
    if sent.fault.outcome == "acknowledged" and offset >= 0:
        sent.answer.set_result(offset)
    else:
        sent.answer.set_exception(ProduceUnknown("the log did not say whether it took the record"))
        # Nobody may be waiting any more: the process is dead, or its wait was cancelled.
        sent.answer.exception()


def _refuse_truncated(partition: int, offset: int, start: int) -> None:
    if offset < start:
        raise ProtocolError(
            "log-truncated", "the log no longer has this record", partition=partition, offset=offset
        )
