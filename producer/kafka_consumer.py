"""A member of a consumer group, for workers that keep their own checkpoints: nothing is ever committed to Kafka.

Everything that the client library may do to the assignment happens inside `fetch`, in one thread. So the answer to
a rebalance is given only while the worker has nothing in flight: between two fetches it holds what it was told.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer.kafka_options import error_of, is_fatal
from producer.kafka_reader import record_of
from producer.log import Batch, LogRecord, Unavailable
from surfacelog.errors import ProtocolError

__all__ = ["KafkaConsumer", "group_options"]

logger = logging.getLogger("surfacelog.kafka")

# A fetch looks this often whether it was given or lost partitions, or should end.
SLICE_S = 0.1
SEEK_S_MAX = 5.0
_NOT_THERE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})


def group_options(group: str, member: str, session_timeout_ms: int, poll_interval_max_ms: int) -> dict[str, Any]:
    """What makes a client a static member of a group of ledger workers."""
    return {
        "group.id": group,
        "group.instance.id": member,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": max(100, min(500, session_timeout_ms // 4)),
        "max.poll.interval.ms": poll_interval_max_ms,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        # One request to a broker serves all its partitions, and a partition that was just sought waits for the one
        # that is out: with the default of 500 ms it would stand still for so long.
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 50,
        # What is fetched ahead is bounded in memory; when it is full, look again soon (the default is a second).
        "queued.max.messages.kbytes": 32 << 10,
        "fetch.queue.backoff.ms": 5,
    }


class KafkaConsumer:
    """A LogConsumer. One task at a time may fetch. `on_truncated` is called in the thread before log-truncated is
    raised, so that whoever hears of it can ask the log what it is now."""

    def __init__(self, options: dict[str, Any], topic: str, on_truncated: Callable[[], None]) -> None:
        self._topic = topic
        self._on_truncated = on_truncated
        self._consumer = Consumer(options)
        self._thread = ThreadPoolExecutor(1, "surfacelog-consume")
        # A fetch in the thread, who waits for it, and what it brought: a batch or why there is none.
        self._fetching = False
        self._waiter: asyncio.Future[None] | None = None
        self._brought: Batch | BaseException | None = None
        self._outdated: set[int] = set()
        self._closing = False
        # The rest belongs to the thread. Partitions that deliver, each with the next offset:
        self._active: dict[int, int] = {}
        self._owned: set[int] = set()
        self._stopped: set[int] = set()
        self._assigned: list[int] = []
        self._lost: list[int] = []
        self._trouble: list[ProtocolError] = []
        self._fatal = ""
        self._consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    async def fetch(self, records_max: int, wait_ms: int) -> Batch:
        if self._closing:
            raise Unavailable("the consumer is closed")
        if not self._fetching and self._brought is None:
            self._outdated.clear()
            self._fetching = True
            loop = asyncio.get_running_loop()
            self._thread.submit(self._fetch_and_tell, loop, max(records_max, 1), wait_ms / 1000)
        # When the caller is cancelled, the thread goes on, and what it brings is the next fetch's.
        if self._fetching:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        batch, self._brought = self._brought, None
        if isinstance(batch, BaseException):
            raise batch
        assert batch is not None, "two tasks fetch at once"
        if not self._outdated:
            return batch
        return Batch(
            {p: records for p, records in batch.records.items() if p not in self._outdated},
            batch.assigned,
            batch.lost,
        )

    def _bring(self, found: Batch | BaseException) -> None:
        self._fetching, self._brought = False, found
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def seek(self, partition: int, offset: int) -> None:
        self._outdated.add(partition)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._seek, partition, offset)

    def pause(self, partition: int) -> None:
        self._outdated.add(partition)
        asyncio.get_running_loop().run_in_executor(self._thread, self._drop, partition)

    async def close(self) -> None:
        """Ends the member. Kafka keeps its partitions for it until the session timeout."""
        if self._closing:
            return
        self._closing = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)

    # Everything below runs in the thread.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The library must have every partition that the group gave, or the next rebalance takes it for free and
        # gives it away unasked. So it is assigned, but paused: delivery begins with the seek.
        places = [TopicPartition(self._topic, partition.partition, OFFSET_END) for partition in partitions]
        consumer.incremental_assign(places)
        if places:
            consumer.pause(places)
        self._assigned.extend(partition.partition for partition in partitions)
        self._owned.update(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        for partition in partitions:
            self._active.pop(partition.partition, None)
            self._stopped.discard(partition.partition)
            if partition.partition in self._assigned:
                self._assigned.remove(partition.partition)
            self._lost.append(partition.partition)
        gone = {partition.partition for partition in partitions}
        self._owned -= gone
        self._trouble = [error for error in self._trouble if error.detail["partition"] not in gone]

    def _seek(self, partition: int, offset: int) -> None:
        if partition not in self._owned:
            # Lost in a fetch whose answer the worker has not seen yet.
            return
        place = TopicPartition(self._topic, partition, offset)
        self._active.pop(partition, None)
        if partition in self._stopped:
            # The library has given it up after a place that is not there. Only a new assignment starts it again; a
            # rebalance in this very moment would take it for free, and tell us in the next fetch.
            self._stopped.discard(partition)
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
            self._consumer.resume([place])
        else:
            self._leap(place)
        self._active[partition] = offset

    def _leap(self, place: TopicPartition) -> None:
        deadline = time.monotonic() + SEEK_S_MAX
        while True:
            try:
                # In this order: a resume takes up the place before the pause, and the seek makes all of that void.
                self._consumer.resume([place])
                self._consumer.seek(place)
                return
            except KafkaException as error:
                # Just assigned, and the library has not begun with it.
                if error_of(error).name() not in ("_STATE", "_PREV_IN_PROGRESS") or time.monotonic() > deadline:
                    raise Unavailable(f"the partition cannot be read ({error_of(error).name()})") from None
                time.sleep(0.002)

    def _drop(self, partition: int) -> None:
        if self._active.pop(partition, None) is not None:
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def _fetch_and_tell(self, loop: asyncio.AbstractEventLoop, records_max: int, wait_s: float) -> None:
        # An executor's own future would take three turns of the loop to say so.
        found: Batch | BaseException
        try:
            found = self._fetch(records_max, wait_s)
        except BaseException as error:
            found = error
        with suppress(RuntimeError):
            # The loop may be closed: then nobody waits.
            loop.call_soon_threadsafe(self._bring, found)

    def _fetch(self, records_max: int, wait_s: float) -> Batch:
        if self._fatal:
            raise Unavailable(f"the consumer cannot go on: {self._fatal}")
        if self._trouble:
            self._on_truncated()
            raise self._trouble.pop(0)
        messages = self._poll(records_max, wait_s)
        records = self._sort(messages)
        if self._trouble and not (records or self._assigned or self._lost):
            self._on_truncated()
            raise self._trouble.pop(0)
        assigned, lost = tuple(sorted(self._assigned)), tuple(sorted(set(self._lost)))
        self._assigned, self._lost = [], []
        return Batch(records, assigned, lost)

    def _poll(self, records_max: int, wait_s: float) -> list[Message]:
        deadline = time.monotonic() + wait_s
        while True:
            left_s = deadline - time.monotonic()
            message = self._consumer.poll(max(0.0, min(left_s, SLICE_S)))
            if message is not None:
                # Only the first is waited for: `consume` with a wait returns when the wait is over.
                rest = self._consumer.consume(records_max - 1, 0) if records_max > 1 else []
                return [message, *rest]
            if left_s <= SLICE_S or self._assigned or self._lost or self._closing:
                return []

    def _sort(self, messages: list[Message]) -> dict[int, list[LogRecord]]:
        found: dict[int, list[LogRecord]] = {}
        active = self._active
        for message in messages:
            error = message.error()
            if error is not None:
                self._judge(error, message)
                continue
            record = record_of(message)
            position = active.get(record.partition)
            if position is None or record.offset < position:
                continue
            active[record.partition] = record.offset + 1
            records = found.get(record.partition)
            if records is None:
                found[record.partition] = [record]
            else:
                records.append(record)
        # Lost or broken later in this very fetch: what came of it before is not to be worked on.
        return {partition: records for partition, records in found.items() if partition in active}

    def _judge(self, error: KafkaError, message: Message) -> None:
        if error.name() in _NOT_THERE:
            partition = message.partition()
            assert partition is not None
            offset = self._active.get(partition)
            self._stopped.add(partition)
            if offset is not None:
                self._drop(partition)
                self._trouble.append(
                    ProtocolError(
                        "log-truncated", "the log does not have this record", partition=partition, offset=offset
                    )
                )
        elif is_fatal(error):
            self._fatal = error.str()
            raise Unavailable(f"the consumer cannot go on: {self._fatal}")
        elif error.name() == "_MAX_POLL_EXCEEDED":
            logger.warning("the worker took too long between two fetches and lost its partitions")
        else:
            logger.warning("consumer: %s", error.str())
