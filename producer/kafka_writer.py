"""Writes records to the topic and says what became of each: written, certainly not, or unknown."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer.gate import Gate
from producer.kafka_options import error_of
from producer.kafka_producer import Answer, PolledProducer, Sent
from producer.log import ProduceUnknown, Told, Unavailable, check_size
from surfacelog.errors import ProtocolError

__all__ = ["KafkaWriter"]

logger = logging.getLogger("surfacelog.kafka")

IN_FLIGHT_RECORDS_MAX = 20_000
IN_FLIGHT_BYTES_MAX = 64 << 20
PROBE_MS = 1_000
PROBE_PAUSE_MS = 50
CLOSE_MS = 10_000
_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"})


class KafkaWriter:
    """Idempotent, acks=all. `probe(timeout_ms)` asks the brokers for anything, or raises Unavailable. While no
    broker answers, producers wait in line, so that what they hold is certainly not written."""

    def __init__(
        self, options: dict[str, Any], topic: str, size_bytes_max: int, probe: Callable[[int], Awaitable[object]]
    ) -> None:
        self._options = options
        self._topic = topic
        self._size_bytes_max = size_bytes_max
        self._probe = probe
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(IN_FLIGHT_RECORDS_MAX, IN_FLIGHT_BYTES_MAX)
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_for_brokers = False
        self._producer = self._make()

    def _make(self) -> PolledProducer:
        return PolledProducer(self._options, self._settle, self._turned_away, self._shut, self._replace)

    async def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, timeout_ms: int
    ) -> int:
        """As `EventLog.produce`."""
        size_bytes = check_size(key, headers, value, self._size_bytes_max)
        deadline = self._loop.time() + timeout_ms / 1000
        await self._gate.enter(size_bytes, timeout_ms)
        future: asyncio.Future[int] = self._loop.create_future()
        self._queue(partition, key, headers, value, size_bytes, partial(_answer, future))
        # A timer costs a tenth of what asyncio.timeout does, on a path that every append takes.
        timer = self._loop.call_at(deadline, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    def send(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, told: Told
    ) -> bool:
        """As `QuickLog.send`."""
        size_bytes = check_size(key, headers, value, self._size_bytes_max)
        if not self._gate.enter_now(size_bytes):
            return False
        self._queue(partition, key, headers, value, size_bytes, told)
        return True

    def _queue(
        self,
        partition: int,
        key: bytes,
        headers: Sequence[tuple[str, bytes]],
        value: bytes,
        size_bytes: int,
        told: Told,
    ) -> None:
        """Hands a record that is inside the gate to the library."""
        try:
            if self._closed:
                raise Unavailable("the log is closed; nothing was written")
            self._producer.send(self._topic, partition, key, list(headers), value, size_bytes, told)
        except BaseException as error:
            self._gate.leave(size_bytes)
            if isinstance(error, KafkaException | BufferError):
                raise self._refusal(error, size_bytes) from None
            raise

    def _settle(self, answers: list[Answer]) -> None:
        for sent, error, offset in answers:
            self._gate.leave(sent.size_bytes)
            if error is not None:
                self._fail(sent, self._fate(error, sent.size_bytes))
            elif offset < 0:
                # The broker took this for a repetition: an earlier try was written, or a later batch of ours.
                self._fail(sent, ProduceUnknown("the log says that it has the record, and not where"))
            else:
                sent.told(offset, None)

    def _turned_away(self, sent: Sent, error: Exception) -> None:
        self._gate.leave(sent.size_bytes)
        self._fail(sent, self._refusal(error, sent.size_bytes))

    def _fail(self, sent: Sent, error: Exception) -> None:
        # Not within the call that tells all others: whoever hears of a failure makes new plans, and may send.
        self._loop.call_soon(sent.told, -1, error)

    def _refusal(self, error: Exception, size_bytes: int) -> Exception:
        """The library did not take the record, so nothing was written."""
        if isinstance(error, BufferError):
            return Unavailable("the client's queue is full; nothing was written")
        if not isinstance(error, KafkaException):
            return error
        name = error_of(error).name()
        if name in _TOO_LARGE:
            return self._too_large(size_bytes)
        return Unavailable(f"the log does not take the record ({name}); nothing was written")

    def _fate(self, error: KafkaError, size_bytes: int) -> Exception:
        """After it was queued, only what a broker refuses for its size is certainly not written. All else may
        follow a first try that was written and whose answer was lost: even what is purged from the queue may be
        there to be sent again."""
        if error.name() in _TOO_LARGE:
            return self._too_large(size_bytes)
        return ProduceUnknown(f"the log did not say whether it took the record ({error.name()})")

    def _too_large(self, size_bytes: int) -> ProtocolError:
        return ProtocolError(
            "too-large",
            f"the log does not take a record of {size_bytes} bytes; send less at once",
            size_bytes=size_bytes,
            size_bytes_max=self._size_bytes_max,
        )

    def _shut(self) -> None:
        if self._waiting_for_brokers or self._closed:
            return
        logger.warning("no Kafka broker answers; appends wait")
        self._waiting_for_brokers = True
        self._gate.shut("no Kafka broker answers")
        self._run(self._wait_for_brokers())

    async def _wait_for_brokers(self) -> None:
        while not self._closed:
            try:
                await self._probe(PROBE_MS)
                break
            except Unavailable:
                await asyncio.sleep(PROBE_PAUSE_MS / 1000)
        logger.warning("Kafka answers again")
        self._waiting_for_brokers = False
        self._gate.open()

    def _replace(self, dead: PolledProducer) -> None:
        """A new producer in place of one that met a fatal error; what that one still has is unknown."""
        if dead is self._producer and not self._closed:
            self._producer = self._make()
            self._run(dead.close(0))

    def _run(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits for what is in flight; nothing is taken any more."""
        if self._closed:
            return
        self._closed = True
        self._gate.open()
        await self._producer.close(CLOSE_MS)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _answer(future: "asyncio.Future[int]", offset: int, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(offset)
    else:
        future.set_exception(error)


def _expire(future: "asyncio.Future[int]") -> None:
    if not future.done():
        future.set_exception(ProduceUnknown("the log did not answer in time"))
