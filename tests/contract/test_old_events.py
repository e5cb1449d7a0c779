"""Old events of one session from a real broker: what is fetched for them depends on what is asked for, and not on
how much of others lies around. Counted are the bytes that came over the readers' sockets, as the client library
tells them."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.news import News
from gateway.pages import Pages
from gateway.view import Viewer
from producer import history
from producer.freshness import LogEnds
from producer.kafka_log import KafkaLog
from producer.kafka_reader import FEW_RECORDS, READERS_MAX, KafkaReader
from producer.memory_cache import MemoryCache
from producer.settings import ServerSettings
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from tests.logwriter import LogWriter

OTHERS_BYTES = 2000
# A batch comes whole or not at all, so the writer of the others makes small ones.
BATCH_RECORDS = 8
BATCH_BYTES = BATCH_RECORDS * (OTHERS_BYTES + 100)
FRONT_RECORDS = 1500
EVENTS = 16
# What one fetch may bring: what it asks for at most, and the batch that it began with.
FETCH_BYTES = (16 << 10) + BATCH_BYTES
LONG_FETCH_BYTES = (128 << 10) + BATCH_BYTES
# Requests without a record, and what a broker says of itself to each new client.
TALK_BYTES = 64 << 10


class Meter:
    """Readers that tell how many bytes their brokers sent them."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, int]] = {}

    def reader(self, options: dict[str, Any], topic: str) -> KafkaReader:
        """A KafkaReader whose clients report to this meter."""
        return KafkaReader({**options, "statistics.interval.ms": 50, "stats_cb": self._hear}, topic)

    def _hear(self, report: str) -> None:
        told = json.loads(report)
        self._told[told["name"]] = (told["ts"], sum(node["rxbytes"] for node in told["brokers"].values()))

    async def read_bytes(self, log: KafkaLog) -> int:
        """What all readers have received by now. A client reports only while it is asked, so each one is asked for
        what stands at the log's end, which is nothing."""
        end = (await log.ends([0], 5000))[0]
        now_us = time.monotonic_ns() // 1000
        async with asyncio.timeout(20):
            while len(self._told) < 2 * READERS_MAX or min(self._told.values())[0] < now_us:
                await asyncio.sleep(0.1)
                for records in (1, FEW_RECORDS + 1):
                    await asyncio.gather(*(log.read(0, end, records, 5000) for _ in range(READERS_MAX)))
        return sum(received for _, received in self._told.values())


class Room:
    """A session in a partition full of others, projected; `pages` reads its events."""

    def __init__(self, log: KafkaLog, meter: Meter) -> None:
        self.log = log
        self.meter = meter
        self.cache = MemoryCache()
        self.writer = LogWriter(log)
        keys = make_site(log, self.cache, 0, ProjectorSettings()).keys
        self.news = News(self.cache, lambda partition: keys.news)
        viewer = Viewer(self.cache, log.topic, 1, LogEnds(log, 5000), self.news)
        self.pages = Pages(viewer, log, 1 << 20)
        self._random = random.Random(3)

    async def fill(self, records: int) -> None:
        """Records of others, in small batches that no compression shrinks."""
        for first in range(0, records, BATCH_RECORDS):
            count = min(BATCH_RECORDS, records - first)
            bodies = [self._random.randbytes(OTHERS_BYTES) for _ in range(count)]
            await asyncio.gather(*(self.log.produce(0, b"t/other", [], body, 20_000) for body in bodies))

    async def tell(self, apart_records: int) -> bytes:
        """A session whose events have so many records of others between them, and many more around all of them."""
        key = await self.writer.open("old", checks="surface")
        await self.fill(FRONT_RECORDS)
        for number in range(EVENTS + 4):
            await self.writer.say(key, f"event {number}")
            await self.fill(apart_records)
        await self.fill(FRONT_RECORDS)
        for number in range(20):
            await self.writer.say(key, f"recent {number}")
        await Worker(self.log, self.cache, ProjectorSettings()).once()
        return key

    async def fetched_bytes(self, key: bytes) -> int:
        """What reading `EVENTS` events of the session brings over the wire."""
        before = await self.meter.read_bytes(self.log)
        _, lines = await self.pages.lines("t", "old", 2, 2 + EVENTS, 100)
        assert lines == self.writer.truths[key].session.lines[2 : 2 + EVENTS]
        return await self.meter.read_bytes(self.log) - before


@pytest.fixture
async def room(kafka: str, unique: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    meter = Meter()
    monkeypatch.setattr("producer.kafka_log.KafkaReader", meter.reader)
    log = await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique, partitions=1))
    made = Room(log, meter)
    yield made
    await made.news.close()
    await log.close()


async def test_events_that_lie_far_apart_are_fetched_one_by_one_and_what_lies_between_is_not(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = history.GAP_RECORDS_MAX + 20
    key = await room.tell(apart)
    bound = EVENTS * FETCH_BYTES + TALK_BYTES
    assert await room.fetched_bytes(key) <= bound
    # A reader that went through what lies between them would have been seen.
    monkeypatch.setattr(history, "GAP_RECORDS_MAX", 10**9)
    monkeypatch.setattr(history, "WINDOW_RECORDS_MAX", 10**9)
    between = (EVENTS - 1) * apart * OTHERS_BYTES
    assert await room.fetched_bytes(key) >= between > 5 * bound


async def test_events_that_lie_near_each_other_are_read_through_and_what_lies_around_them_is_not(
    room: Room,
) -> None:
    key = await room.tell(8)
    stretch, around = EVENTS * 9 * OTHERS_BYTES, 2 * FRONT_RECORDS * OTHERS_BYTES
    # The first few records by themselves, and behind the last one what was fetched ahead.
    bound = stretch + FETCH_BYTES + 2 * LONG_FETCH_BYTES + TALK_BYTES
    assert await room.fetched_bytes(key) <= bound < around / 5
