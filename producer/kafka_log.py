"""The event log in Kafka: one topic, its partitions, and the clients that write, read and follow it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from producer.kafka_consumer import KafkaConsumer, group_options
from producer.kafka_offsets import END, START, KafkaOffsets
from producer.kafka_options import client_options, quiet_options
from producer.kafka_reader import KafkaReader, OffsetNotThere
from producer.kafka_writer import KafkaWriter
from producer.log import LogRecord, Told
from producer.settings import ServerSettings
from producer.topic import TopicShape, describe_topic, open_topic
from surfacelog.errors import ProtocolError

__all__ = ["KafkaLog"]

logger = logging.getLogger("surfacelog.kafka")

IDENTIFY_S = 5.0


class KafkaLog:
    """An EventLog; make it with `open`."""

    def __init__(self, settings: ServerSettings, shape: TopicShape) -> None:
        self.topic = shape.name
        self.topic_id = shape.topic_id
        self.partitions = shape.partitions
        self.size_bytes_max = shape.size_bytes_max
        self._settings = settings
        quiet = quiet_options(settings)
        self._offsets = KafkaOffsets(quiet, self.topic)
        self._reader = KafkaReader(quiet, self.topic)
        self._writer = KafkaWriter(
            _producer_options(settings, shape), self.topic, shape.size_bytes_max, self._probe
        )

    @classmethod
    async def open(cls, settings: ServerSettings) -> "KafkaLog":
        """Makes the topic if it is not there and checks it; see `open_topic` for what it raises."""
        shape = await asyncio.get_running_loop().run_in_executor(None, open_topic, settings)
        log = cls(settings, shape)
        try:
            # A partition just made has a leader before that serves it. A producer whose first batch is refused and
            # whose second is taken is told that the first one is there already, which nobody can tell then.
            await log.ends(range(shape.partitions), settings.start_timeout_ms)
        except BaseException:
            await log.close()
            raise
        return log

    def _identify(self) -> None:
        """Blocks: looks whether the topic is still the one that was opened, and keeps its id up to date."""
        try:
            shape = describe_topic(AdminClient(quiet_options(self._settings)), self.topic, IDENTIFY_S)
        except KafkaException:
            return
        if shape is not None and shape.topic_id != self.topic_id:
            logger.error("topic %s was made anew: it is not the log that was opened", self.topic)
            self.topic_id = shape.topic_id

    async def _probe(self, timeout_ms: int) -> object:
        return await self._offsets.ask(END, [0], timeout_ms)

    async def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, timeout_ms: int
    ) -> int:
        return await self._writer.produce(partition, key, headers, value, timeout_ms)

    def send(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, told: Told
    ) -> bool:
        return self._writer.send(partition, key, headers, value, told)

    async def ends(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        return await self._offsets.ask(END, partitions, timeout_ms)

    async def starts(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        return await self._offsets.ask(START, partitions, timeout_ms)

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        try:
            return await self._reader.read(partition, offset, records_max, timeout_ms)
        except OffsetNotThere:
            start = (await self.starts([partition], timeout_ms))[partition]
            if offset >= start:
                return []
            raise ProtocolError(
                "log-truncated", "the log no longer has this record", partition=partition, offset=offset
            ) from None

    @asynccontextmanager
    async def consumer(self, group: str, member: str) -> AsyncIterator[KafkaConsumer]:
        settings = self._settings
        membership = group_options(group, member, settings.session_timeout_ms, settings.poll_interval_max_ms)
        await asyncio.get_running_loop().run_in_executor(None, self._identify)
        consumer = KafkaConsumer({**client_options(settings), **membership}, self.topic, self._identify)
        try:
            yield consumer
        finally:
            await consumer.close()

    async def close(self) -> None:
        await self._writer.close()
        await asyncio.gather(self._reader.close(), self._offsets.close())


def _producer_options(settings: ServerSettings, shape: TopicShape) -> dict[str, object]:
    return {
        **client_options(settings),
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": settings.kafka_linger_ms,
        "compression.type": settings.kafka_compression,
        "message.max.bytes": int(shape.config["max.message.bytes"]),
        "delivery.timeout.ms": settings.delivery_timeout_ms,
        # One try; then the record goes to whoever leads by now. Idempotence keeps a second try from doubling it.
        "request.timeout.ms": min(6_000, settings.delivery_timeout_ms),
        # Our own gate bounds what is in flight; the library's queue must not be the smaller one.
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 256 << 10,
    }
