"""The three event logs under one test bench: what a test needs of a log, and to do behind its back."""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from producer.kafka_log import KafkaLog
from producer.log import EventLog, LogRecord
from producer.memory_log import MemoryLog, MemoryTopic
from producer.settings import ServerSettings
from producer.sqlite_log import SqliteLog

__all__ = ["LOGS", "PARTITIONS", "TIMEOUT_MS", "Bench", "open_bench", "put", "values"]

LOGS = ("memory", "sqlite", "kafka")
PARTITIONS = 6
TIMEOUT_MS = 10_000


class Bench(Protocol):
    """A log under test, and what a test needs to do behind its back."""

    log: EventLog
    group: str

    async def truncate_before(self, partition: int, offset: int) -> None: ...
    async def reopen(self) -> EventLog: ...


class MemoryBench:
    def __init__(self) -> None:
        self.group = "g"
        self.topic = MemoryTopic(PARTITIONS)
        self.log: EventLog = MemoryLog(self.topic)

    async def truncate_before(self, partition: int, offset: int) -> None:
        self.topic.truncate_before(partition, offset)

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = MemoryLog(self.topic)
        return self.log


class SqliteBench:
    def __init__(self, path: Path, log: EventLog) -> None:
        self.group = "g"
        self.path = path
        self.log = log

    async def truncate_before(self, partition: int, offset: int) -> None:
        db = sqlite3.connect(self.path / "log.sqlite")
        low = partition << 48
        db.execute("DELETE FROM records WHERE place >= ? AND place < ?", (low, low + offset))
        db.commit()
        db.close()

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = await SqliteLog.open(self.path)
        return self.log


class KafkaBench:
    def __init__(self, settings: ServerSettings, log: EventLog) -> None:
        # Kafka keeps a static member of a group for a while after it ended.
        self.group = settings.topic
        self.settings = settings
        self.log = log

    async def truncate_before(self, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": str(self.settings.kafka)})
        place = TopicPartition(self.settings.topic, partition, offset)
        await asyncio.wrap_future(admin.delete_records([place])[place])

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = await KafkaLog.open(self.settings)
        return self.log


@asynccontextmanager
async def open_bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    made: Bench
    if request.param == "memory":
        made = MemoryBench()
    elif request.param == "sqlite":
        made = SqliteBench(tmp_path, await SqliteLog.open(tmp_path, partitions=PARTITIONS))
    else:
        settings = ServerSettings(
            kafka=request.getfixturevalue("kafka"), topic=f"t-{uuid.uuid4().hex[:12]}", partitions=PARTITIONS
        )
        made = KafkaBench(settings, await KafkaLog.open(settings))
    yield made
    await made.log.close()


async def put(log: EventLog, partition: int, *values: bytes) -> list[int]:
    return [await log.produce(partition, b"t/s", [("kind", b"commit")], value, TIMEOUT_MS) for value in values]


def values(records: list[LogRecord]) -> list[bytes | None]:
    return [record.value for record in records]
